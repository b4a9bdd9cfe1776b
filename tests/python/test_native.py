"""Importing the package: light, and clear about a C++ part that is missing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from conftest import RunPython
from cudaforge_backend import _native

ROOT = Path(__file__).resolve().parents[2]


def test_import_brings_no_inductor(run_python: RunPython) -> None:
    done = run_python(
        "import sys, torch\n"
        "import torch._dynamo.backends.registry\n"
        "before = set(sys.modules)\n"
        "import cudaforge_backend\n"
        "print([m for m in set(sys.modules) - before if m.startswith('torch._inductor')])"
    )
    assert done.stdout.strip() == "[]"


def test_the_name_is_registered(run_python: RunPython) -> None:
    done = run_python("import cudaforge_backend, torch; print(torch.compiler.list_backends())")
    assert "cudaforge" in done.stdout


def test_the_name_needs_no_import(run_python: RunPython, tmp_path: Path) -> None:
    """A program that never imports the package compiles with it, once it is installed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    installed = tmp_path / "cudaforge_backend-0.1.0.dist-info"
    installed.mkdir()
    installed.joinpath("METADATA").write_text(f"Name: {project['name']}\nVersion: 0.1.0\n")
    lines = [f"{n} = {v}\n" for n, v in project["entry-points"]["torch_dynamo_backends"].items()]
    installed.joinpath("entry_points.txt").write_text("[torch_dynamo_backends]\n" + "".join(lines))
    done = run_python(
        "import sys, torch\n"
        "x = torch.randn(4, 98)\n"
        f"options = {{'on_miss': 'record', 'cache_dir': {str(tmp_path / 'cache')!r}}}\n"
        "made = torch.compile(lambda x: torch.softmax(x * 3, -1), backend='cudaforge',\n"
        "                     options=options)\n"
        "torch.testing.assert_close(made(x), torch.softmax(x * 3, -1))\n"
        "print(sys.modules['cudaforge_backend'].stats().misses)",
        PYTHONPATH=os.pathsep.join([str(tmp_path), *sys.path]),
    )
    assert done.stdout.strip() == "1"


def test_the_environment_is_read_once(run_python: RunPython, tmp_path: Path) -> None:
    done = run_python(
        "import os, cudaforge_backend\n"
        "from cudaforge_backend import options\n"
        "from cudaforge_backend._native import _C\n"
        "os.environ.update(CUDAFORGE_ON_MISS='blocking', CUDAFORGE_CACHE_DIR='/after',\n"
        "                  CUDAFORGE_REGION_BUDGET_S='7', CUDAFORGE_DISABLE='1',\n"
        "                  CUDAFORGE_NO_SUCH_NAME='1')\n"
        "settings = options.parse(None, None)\n"
        "print(settings.on_miss, settings.region_budget_s, settings.cache_dir)\n"
        "print(options.disabled(), _C.config()['warnings'])",
        CUDAFORGE_ON_MISS="background",
        CUDAFORGE_REGION_BUDGET_S="3",
        CUDAFORGE_CACHE_DIR=str(tmp_path),
    )
    assert done.stdout == f"background 3.0 {tmp_path}\nFalse []\n"


@pytest.fixture
def unbuilt(tmp_path: Path) -> Callable[[str | None], str]:
    """Makes a PYTHONPATH with the package but without its C++ part; that part was built for the
    torch that is given."""

    def make(built_for: str | None) -> str:
        built = shutil.ignore_patterns("*.so", "bin", _native.BUILT_FOR.name)
        package = tmp_path / "cudaforge_backend"
        shutil.copytree(_native.PACKAGE, package, ignore=built)
        if built_for is not None:
            (package / _native.BUILT_FOR.name).write_text(f"{built_for}\n")
        return os.pathsep.join([str(tmp_path), *sys.path])

    return make


RELEASE = torch.__version__.partition("+")[0]
IMPORT = "import cudaforge_backend"
BUILD = (
    "`pip install wheel && pip install --no-build-isolation --no-deps .` in its source folder "
    "builds it again"
)


def last_lines(run_python: RunPython, code: str, path: str) -> list[str]:
    """What an import that fails shows below its traceback."""
    done = run_python(code, check=False, PYTHONPATH=path)
    assert done.returncode != 0
    return str(done.stderr.partition("ImportError: ")[2]).splitlines()


def test_the_build_says_what_torch_it_was_for() -> None:
    assert _native.BUILT_FOR.read_text().strip() == torch.__version__


@pytest.mark.parametrize("built_for", ["1.13.1+cu117", "1.13.1"])
def test_another_torch_is_named_in_one_line(
    run_python: RunPython, unbuilt: Callable[[str], str], built_for: str
) -> None:
    assert last_lines(run_python, IMPORT, unbuilt(built_for)) == [
        f"cudaforge_backend was built for torch 1.13.1, and torch {RELEASE} is installed: {BUILD}; "
        "`pip install torch==1.13.1` brings the other torch back"
    ]


def test_a_torch_that_no_index_has_is_not_suggested(
    run_python: RunPython, unbuilt: Callable[[str], str]
) -> None:
    (line,) = last_lines(run_python, IMPORT, unbuilt("1.13.0a0+git1234"))
    assert "built for torch 1.13.0a0," in line
    assert line.endswith(f"is installed: {BUILD}")


def test_a_torch_that_differs_little_may_load(
    run_python: RunPython, unbuilt: Callable[[str], str]
) -> None:
    near = ".".join([*RELEASE.split(".")[:2], "99"])
    lines = last_lines(run_python, IMPORT, unbuilt(near))
    assert len(lines) == 2
    assert lines[0].endswith(f"`pip install torch=={near}` brings the other torch back")
    assert "the loader said: " in lines[1] and "nothing like it is there" in lines[1]
    done = run_python(f"import torch; torch.__version__ = {near!r}\n{IMPORT}")
    assert done.returncode == 0


@pytest.mark.parametrize("built_for", [None, RELEASE, f"{RELEASE}+other"])
def test_the_same_torch_and_no_cpp_part(
    run_python: RunPython, unbuilt: Callable[[str | None], str], built_for: str | None
) -> None:
    lines = last_lines(run_python, IMPORT, unbuilt(built_for))
    assert lines[0].startswith("cudaforge_backend cannot load its C++ part: ")
    assert "pip install --no-build-isolation" in lines[0]
    for words in ("_C.", f"torch {torch.__version__}", "the loader said: "):
        assert words in lines[1]


@pytest.mark.parametrize("script", [True, False], ids=["cudaforge", "-m"])
def test_the_command_shows_no_traceback(
    unbuilt: Callable[[str], str], tmp_path: Path, script: bool
) -> None:
    command = [sys.executable, "-m", "cudaforge_backend"]
    if script:  # as pip writes it
        path = tmp_path / "bin" / "cudaforge"
        path.parent.mkdir()
        path.write_text("import sys\nfrom cudaforge_backend.cli import main\nsys.exit(main())\n")
        command = [sys.executable, str(path)]
    environment = os.environ | {"PYTHONPATH": unbuilt("1.13.1")}
    done = subprocess.run(
        [*command, "doctor"], env=environment, cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr == (
        f"cudaforge: cudaforge_backend was built for torch 1.13.1, and torch {RELEASE} is "
        f"installed: {BUILD}; `pip install torch==1.13.1` brings the other torch back\n"
    )
