"""The parts of PyTorch that the package uses outside its documented interface."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import cudaforge_backend
import pytest
from command import Output, as_json
from cudaforge_backend import torch_compat

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = Path(cudaforge_backend.__file__).parent


def taken(source: str) -> set[str]:
    """The undocumented names of torch that a module imports."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torch._"):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.startswith("torch._")}
    return found


def test_every_name_is_in_the_list_and_there() -> None:
    files = [path for path in PACKAGE.rglob("*.py") if path.name != "torch_compat.py"]
    listed = {f"{module}.{n}" for module, names in torch_compat.UNDOCUMENTED.items() for n in names}
    assert set().union(*(taken(path.read_text()) for path in files)) == listed
    assert torch_compat.lacking() == []


def test_the_range_is_that_of_the_package() -> None:
    facts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["cudaforge"]
    first, (major, minor) = torch_compat.TESTED
    assert facts["torch"] == f">={first[0]}.{first[1]},<{major}.{minor + 1}"


@pytest.mark.parametrize("gone", [False, True])
def test_doctor_says_that_torch_is_newer(
    capsys: Output, monkeypatch: pytest.MonkeyPatch, gone: bool
) -> None:
    monkeypatch.setattr(torch_compat, "TESTED", ((2, 9), (2, 10)))
    if gone:
        monkeypatch.setitem(torch_compat.UNDOCUMENTED, "torch._inductor", ("no_such_name",))
    checks = {c["name"]: c for c in as_json(capsys, "doctor", code=int(gone))}
    said = "newer than the releases that CudaForge is tested with, 2.9 to 2.10"
    assert said in checks["torch"]["detail"]
    assert checks["torch"]["ok"] is not gone
    assert ("torch._inductor.no_such_name" in checks["torch"]["detail"]) is gone
