"""`cudaforge report`: a page on a model, a region or a cache."""

from __future__ import annotations

import argparse
from typing import Any

from ..report import write_report
from .output import absolute, add_cache_dir, cache_dir


def add(verbs: Any) -> None:
    """Registers the command."""
    command = verbs.add_parser(
        "report",
        help="write a page on a model, a region or the whole cache",
        description="Writes one HTML file with the timings of graphs and regions, a roofline plot "
        "and every kernel that was tried. The page loads nothing from a network. Nothing is forged "
        "or compiled for it. SCRIPT.py:FACTORY is run: use only scripts that you trust.",
    )
    command.add_argument(
        "target",
        nargs="?",
        default="",
        metavar="SCRIPT.py:FACTORY | KEY",
        help="a function that returns (model, inputs), or the first digits of a region's key "
        "(default: the whole cache)",
    )
    command.add_argument(
        "--html", metavar="FILE", type=absolute, required=True, help="the file to write"
    )
    command.add_argument(
        "--device",
        choices=("auto", "cpu", "cuda"),
        default="auto",
        help="the device of a script's model; default: %(default)s",
    )
    command.add_argument("--train", action="store_true", help="a script's graphs of training")
    add_cache_dir(command)
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Writes the file."""
    write_report(args.target, args.html, cache_dir(args), args.device, args.train)
    print(f"written: {args.html}")
    return 0
