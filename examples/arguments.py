"""The quickstart's command line, without torch: quickstart.sh has it checked before anything is
installed."""

from __future__ import annotations

import argparse
import ctypes
import math
from collections.abc import Callable, Iterable
from pathlib import Path

MODELS = ("gpt", "resnet", "mixer")  # of example_models.py
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


def seconds(text: str) -> float:
    """A time of a budget, for argparse."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value <= 0:
        raise argparse.ArgumentTypeError(f"{text!r}; it takes a number of seconds above 0")
    return value


def file_to_write(text: str) -> Path:
    """A file in a folder that exists, for argparse."""
    path = Path(text)
    if path.is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} is a folder")
    if not path.absolute().parent.is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {path.absolute().parent}")
    return path


def cache_folder(text: str) -> str:
    """A folder, there or to be made, for argparse."""
    if not text or (Path(text).exists() and not Path(text).is_dir()):
        raise argparse.ArgumentTypeError(f"{text!r} is no folder")
    return text


def sees_gpu() -> bool:
    """Whether the NVIDIA driver is there and has a GPU for us."""
    count = ctypes.c_int()
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        error = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    except (OSError, AttributeError):
        return False
    return not error and count.value > 0


def arguments() -> argparse.Namespace:
    """The command line; one that cannot be carried out ends the process."""
    parser = argparse.ArgumentParser(
        prog="bash examples/quickstart.sh",
        allow_abbrev=False,
        description="Compile three models with CudaForge in inference and in one training step, "
        "then run them again from the cache in a second process.",
    )
    parser.add_argument(
        "--json", type=file_to_write, metavar="FILE", help="write the results as JSON"
    )
    parser.add_argument(
        "--torch", metavar="RELEASE", help="build for this release of PyTorch, in an environment "
        "of its own (for the script; default: the one in .venv, at first 2.11.0)"
    )  # fmt: skip
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
        "--region-budget", type=seconds, default=10.0, metavar="SECONDS",
        help="longest time for one region: search, Inductor's compilation, races "
        "(default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--cache-dir",
        type=cache_folder,
        metavar="DIR",
        help="kernel cache (default: $CUDAFORGE_CACHE_DIR or ~/.cache/cudaforge)",
    )
    parser.add_argument("--second", type=Path, metavar="FILE", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.device == "cuda" and not sees_gpu():
        parser.error("--device cuda, but the NVIDIA driver is not there or finds no GPU")
    return args


if __name__ == "__main__":
    arguments()
