"""The quickstart's command line, without torch: `--help` works before anything is installed."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from pathlib import Path

MODELS = ("gpt", "resnet", "mixer")  # of models.py
PHASES = ("inference", "train")


def names(known: Iterable[str]) -> Callable[[str], list[str]]:
    """A comma-separated list of known names, for argparse."""

    def parse_names(text: str) -> list[str]:
        given = text.split(",")
        for name in given:
            if name not in known:
                raise argparse.ArgumentTypeError(f"no {name!r}; known: {', '.join(known)}")
        return given

    return parse_names


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="bash examples/quickstart.sh",
        allow_abbrev=False,
        description="Compile three models with CudaForge in inference and in one training step, "
        "then run them again from the cache in a second process.",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results as JSON")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    for option, known in (("--models", MODELS), ("--phases", PHASES)):
        parser.add_argument(
            option,
            type=names(known),
            default=list(known),
            metavar="A,B",
            help=f"some of {','.join(known)} (default: all)",
        )
    parser.add_argument(
        "--region-budget", type=float, default=10.0, metavar="SECONDS",
        help="longest time for one region: search, Inductor's compilation, races "
        "(default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--cache-dir",
        type=str,
        metavar="DIR",
        help="kernel cache (default: $CUDAFORGE_CACHE_DIR or ~/.cache/cudaforge)",
    )
    parser.add_argument("--second", type=Path, metavar="FILE", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    arguments()
