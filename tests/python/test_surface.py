"""What is written down of the package's surface is what is there."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import cudaforge_backend
import pytest
from conftest import RunPython
from cudaforge_backend._native import _C
from cudaforge_backend.integration.rules import native_rules

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "python" / "cudaforge_backend"


def public(names: list[str]) -> set[str]:
    return {name for name in names if not name.startswith("_")}


def parameters(function: ast.FunctionDef) -> list[str]:
    """Their names; those that may be left out end in "="."""
    names = [argument.arg for argument in function.args.args]
    needed = len(names) - len(function.args.defaults)
    return names[:needed] + [f"{name}=" for name in names[needed:]]


def native_parameters(function: Any) -> list[str]:
    """From the first line of the docstring, which pybind11 writes."""
    (made,) = ast.parse(f"def {function.__doc__.splitlines()[0]}: ...").body
    assert isinstance(made, ast.FunctionDef)
    return parameters(made)


def test_the_stub_names_what_the_module_has() -> None:
    body = ast.parse((PACKAGE / "_C.pyi").read_text()).body
    constants = {
        node.target.id
        for node in body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    classes = [n for n in body if isinstance(n, ast.ClassDef) and not n.name.startswith("_")]
    functions = [node for node in body if isinstance(node, ast.FunctionDef)]
    assert public(dir(_C)) == constants | {node.name for node in (*classes, *functions)}
    for function in functions:
        assert native_parameters(getattr(_C, function.name)) == parameters(function), function.name
    for node in classes:
        found = getattr(_C, node.name)
        methods = [m for m in node.body if isinstance(m, ast.FunctionDef)]
        own = set(dir(found)) - set(dir(found.__base__))
        assert public(list(own)) == public([m.name for m in methods]), node.name
        for method in methods:
            attribute = getattr(found, method.name)
            if not isinstance(attribute, property):
                assert native_parameters(attribute) == parameters(method), (node.name, method.name)


def test_progress_must_be_a_function() -> None:
    with pytest.raises(TypeError, match="a function of one event"):
        cudaforge_backend.set_progress(3)  # type: ignore[arg-type]


def test_every_environment_variable_is_in_the_documentation() -> None:
    sources = [*PACKAGE.rglob("*.py"), *(ROOT / "csrc").rglob("*.cc")]
    used = {
        name for file in sources for name in re.findall(r'"(CUDAFORGE_[A-Z_]+)"', file.read_text())
    }
    page = (ROOT / "docs" / "options.md").read_text()
    documented = set(re.findall(r"\bCUDAFORGE_[A-Z_]+", page))
    assert used <= documented
    of_scripts = {"CUDAFORGE_USE_CURRENT_ENV", "CUDAFORGE_REQUIRE_GPU"}
    assert documented <= used | of_scripts
    assert set(re.findall(r"[A-Z_]+", " ".join(_C.provider_variables()))) <= set(
        re.findall(r"`([A-Z_]+)`", page)
    )


def test_every_anchor_has_a_word_that_finds_it() -> None:
    for name in native_rules().anchors:
        assert any(word in name for word in _C.anchor_words()), name


def test_cuda_folders_of_the_environment_come_first(run_python: RunPython, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    done = run_python(
        "from cudaforge_backend.cli import main; main(['doctor', '--json'])",
        CUDAFORGE_CUDA_PATH=f"{tmp_path / 'a'}:{tmp_path / 'b'}",
        ready=True,
    )
    (nvrtc,) = (check for check in json.loads(done.stdout) if check["name"] == "nvrtc")
    assert nvrtc["searched"][:2] == [str(tmp_path / "a"), str(tmp_path / "b")]


def test_what_the_package_exports_is_there() -> None:
    for name in cudaforge_backend.__all__:
        assert getattr(cudaforge_backend, name) is not None
