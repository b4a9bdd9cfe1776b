"""The `cudaforge` command, called in this process."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from cudaforge_backend.cli import main

Output = pytest.CaptureFixture[str]


def as_json(output: Output, *argv: str, code: int = 0) -> Any:
    """What the command prints with --json."""
    assert main([*argv, "--json"]) == code
    return json.loads(output.readouterr().out)


def cells(text: str) -> list[list[str]]:
    """The rows of a table in a pipe. The last cell has its further lines, too."""
    rows: list[list[str]] = []
    for line in text.splitlines():
        if line.startswith(" ") and rows:
            rows[-1][-1] += f"\n{line.strip()}"
        else:
            rows.append(re.split(r" {2,}", line))
    return rows


def facts(text: str) -> dict[str, str]:
    """The first and the last cell of each row."""
    return {row[0]: row[-1] for row in cells(text)}


# What PyTorch 2.15 logs of an operation that it cannot trace.
_LOGGED = re.compile(r"^E\d{4} .*\] .*\n", re.MULTILINE)


def refusal(output: Output, *argv: str) -> str:
    """The one line that a command which cannot do its work prints."""
    assert main(argv) == 1
    captured = output.readouterr()
    told = captured.out.splitlines()
    # Nothing but that it began, and takes long.
    assert not [line for line in told if not line.endswith((" s)", " ..."))]
    (line,) = _LOGGED.sub("", captured.err).splitlines()
    assert line.startswith("cudaforge: ")
    return f"{line}\n"
