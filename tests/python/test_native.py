"""Importing the package: light, and clear about a C++ part that is missing."""

from __future__ import annotations

import os
import sys
import tomllib
from pathlib import Path

from conftest import RunPython

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
    installed = tmp_path / f"cudaforge_backend-{project['version']}.dist-info"
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
        "print(sys.modules['cudaforge_backend'].stats()['misses'])",
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


def test_import_error_says_what_was_looked_for(run_python: RunPython) -> None:
    done = run_python(
        "import sys\nsys.modules['cudaforge_backend._C'] = None\nimport cudaforge_backend",
        check=False,
    )
    assert done.returncode != 0
    for words in ("ImportError: cudaforge_backend cannot load", "_C.", "torch 2.", "pip install"):
        assert words in done.stderr
