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
