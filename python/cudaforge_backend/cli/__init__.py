"""The `cudaforge` command: one module a verb, with `add(subparsers)` and `run(args)`."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence
from typing import Any

import torch

from .. import __version__
from .._native import _C


class Parser(argparse.ArgumentParser):
    """Takes whole option names alone. Commands and their verbs are made of the same class."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, **settings)


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    from . import cache, doctor, forge, lineage, report, warmup

    top = Parser(
        prog="cudaforge",
        description="CudaForge makes PyTorch models faster with generated kernels that are "
        "proven equal to PyTorch's own. A kernel is made once for an operation, its shapes and "
        "this device, and kept in a cache.",
        epilog='In a program: model = torch.compile(model, backend="cudaforge"), or, of one that '
        "does not compile: cudaforge_backend.enable() (CUDAFORGE_EAGER=1 does so at its import)",
    )
    versions = f"cudaforge {__version__}, torch {torch.__version__}"
    top.add_argument("--version", action="version", version=versions)
    verbs = top.add_subparsers(dest="verb", required=True, metavar="COMMAND")
    for module in (doctor, cache, warmup, forge, lineage, report):
        module.add(verbs)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command. 0: done; 1: could not be done (see standard error); 2: wrong usage."""
    args = parser().parse_args(argv)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="surrogateescape")  # folders may be named in any bytes
    if not getattr(args, "tells_warnings", False):  # the verbs that say so themselves
        for warning in _C.config()["warnings"]:
            print(f"cudaforge: {warning}", file=sys.stderr)
    try:
        code: int = args.run(args)
    except KeyboardInterrupt:
        print(
            "cudaforge: interrupted; what was finished is kept, and the same command goes on from "
            "it",
            file=sys.stderr,
        )
        return 130
    except BrokenPipeError:
        # Nobody reads any more; what is still buffered must not fail when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (OSError, ValueError, KeyError, RuntimeError, NotImplementedError) as error:
        text = error.args[0] if isinstance(error, KeyError) and error.args else error
        print(f"cudaforge: {text}", file=sys.stderr)
        return 1
    return code
