"""Importing the package: light, and clear about a C++ part that is missing."""

from __future__ import annotations

from conftest import RunPython


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


def test_import_error_says_what_was_looked_for(run_python: RunPython) -> None:
    done = run_python(
        "import sys\nsys.modules['cudaforge_backend._C'] = None\nimport cudaforge_backend",
        check=False,
    )
    assert done.returncode != 0
    for words in ("ImportError: cudaforge_backend cannot load", "_C.", "torch 2.", "pip install"):
        assert words in done.stderr
