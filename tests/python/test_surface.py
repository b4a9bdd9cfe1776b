"""What is written down of the package's surface is what is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import cudaforge_backend
import pytest
from conftest import RunPython
from cudaforge_backend._native import _C
from cudaforge_backend.integration.analysis import _ANCHOR_WORDS
from cudaforge_backend.integration.rules import native_rules

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "python" / "cudaforge_backend"


def public(names: list[str]) -> set[str]:
    return {name for name in names if not name.startswith("_")}


def test_the_stub_names_what_the_module_has() -> None:
    tree = ast.parse((PACKAGE / "_C.pyi").read_text())
    stub: dict[str, set[str]] = {}
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            stub[node.name] = public([m.name for m in node.body if isinstance(m, ast.FunctionDef)])
        elif isinstance(node, ast.FunctionDef):
            stub[node.name] = set()
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            stub[node.target.id] = set()
    assert set(stub) == public(dir(_C))
    for name, methods in stub.items():
        found = getattr(_C, name)
        if isinstance(found, type):
            attributes = {n for n in public(dir(found)) if callable(getattr(found, n))}
            assert methods >= attributes, name


def test_progress_must_be_a_function() -> None:
    with pytest.raises(TypeError, match="a function of one event"):
        cudaforge_backend.set_progress(3)  # type: ignore[arg-type]


def test_every_environment_variable_is_in_the_readme() -> None:
    sources = [*PACKAGE.rglob("*.py"), *(ROOT / "csrc").rglob("*.cc")]
    used = {
        name for file in sources for name in re.findall(r'"(CUDAFORGE_[A-Z_]+)"', file.read_text())
    }
    told = set(re.findall(r"CUDAFORGE_[A-Z_]+", (ROOT / "README.md").read_text()))
    assert used <= told
    assert told <= used | {"CUDAFORGE_USE_CURRENT_ENV"}


def test_every_anchor_has_a_word_that_finds_it() -> None:
    for name in native_rules().anchors:
        assert any(word in name for word in _ANCHOR_WORDS), name


def test_cuda_folders_of_the_environment_come_first(run_python: RunPython, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    done = run_python(
        "from cudaforge_backend._native import _C; print(_C.cuda_search_paths()[:2])",
        CUDAFORGE_CUDA_PATH=f"{tmp_path / 'a'}:{tmp_path / 'b'}",
    )
    assert done.stdout.strip() == repr([str(tmp_path / "a"), str(tmp_path / "b")])


def test_what_the_package_exports_is_there() -> None:
    for name in cudaforge_backend.__all__:
        assert getattr(cudaforge_backend, name) is not None
