"""The programs in README.md and docs/ run as they stand, but for those marked "not run"."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import RunPython

ROOT = Path(__file__).resolve().parents[2]
_PROGRAM = re.compile(r"^(<!-- not run: .+ -->\n+)?```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def programs() -> Iterator[Any]:
    """Every program that is to run, by page and number."""
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for number, (not_run, program) in enumerate(_PROGRAM.findall(page.read_text()), start=1):
            if not not_run:
                yield pytest.param(program, id=f"{page.name}-{number}")


@pytest.mark.parametrize("program", programs())
def test_a_program_of_the_documentation_runs(
    run_python: RunPython, tmp_path: Path, program: str
) -> None:
    done = run_python(program, ready=True, CUDAFORGE_CACHE_DIR=str(tmp_path))
    assert "CudaForgeWarning" not in done.stderr


def test_programs_are_found() -> None:
    assert len(list(programs())) >= 5
    page = "<!-- not run: slow -->\n```python\nfirst()\n```\n```python\nsecond()\n```\n"
    found = _PROGRAM.findall(page)
    assert [(bool(mark), text) for mark, text in found] == [
        (True, "first()\n"), (False, "second()\n"),
    ]  # fmt: skip
