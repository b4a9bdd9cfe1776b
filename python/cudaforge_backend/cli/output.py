"""What the commands share: the two options, the folder of the cache, and text or JSON on standard
output."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .._native import _C
from ..heartbeat import Teller
from ..progress import Ended, GraphStep, Started
from ..terminal import changing_line


def add_json(command: argparse.ArgumentParser) -> None:
    """The --json option."""
    command.add_argument("--json", action="store_true", help="print JSON instead of text")


def add_cache_dir(command: argparse.ArgumentParser) -> None:
    """The --cache-dir option."""
    command.add_argument(
        "--cache-dir",
        metavar="DIR",
        type=absolute,
        help="the cache (default: $CUDAFORGE_CACHE_DIR, else $XDG_CACHE_HOME/cudaforge, else "
        "~/.cache/cudaforge)",
    )


def absolute(path: str) -> str:
    """The type of an option that names a path: a user's script may change the current folder."""
    return path and str(Path(path).absolute())


def cache_dir(args: argparse.Namespace) -> str:
    """The folder that the command works on."""
    return str(args.cache_dir or _C.config()["cache_dir"])


def teller(args: argparse.Namespace, doing: str) -> Teller:
    """Tells of forging: on standard error where standard output is JSON; and in a line that changes
    where standard error is a terminal."""
    stream = sys.stderr if args.json else sys.stdout
    return Teller(
        lambda line: print(line, file=stream, flush=True),
        doing,
        (Started, Ended, GraphStep),
        changing_line(),
    )


def show(args: argparse.Namespace, data: Any, text: Callable[[], None]) -> None:
    """Prints `data` with --json, else what `text` prints."""
    if args.json:
        print(json.dumps(data, indent=2))
    else:
        text()
