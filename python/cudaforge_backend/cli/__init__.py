"""The `cudaforge` command: one module a command."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence

import click
import torch

from .. import __version__
from . import cache, doctor, forge, lineage, report, warmup
from .output import Group, complain


@click.group(
    cls=Group,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog='In a program: model = torch.compile(model, backend="cudaforge"). For programs that do '
    "not compile: cudaforge_backend.enable(), or CUDAFORGE_EAGER=1.",
)
@click.version_option(__version__, message=f"cudaforge %(version)s, torch {torch.__version__}")
def cudaforge() -> None:
    """CudaForge makes PyTorch models faster with generated kernels.

    Every kernel is proved against PyTorch's own on this machine. It is made once for an operation,
    its shapes and this device, and kept in a cache.
    """


for _module in (doctor, cache, warmup, forge, lineage, report):
    cudaforge.add_command(_module.command)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command. Returns its exit code, as its --help lists them."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="surrogateescape")  # folders may be named in any bytes
    try:
        code: int = cudaforge.main(argv, "cudaforge", standalone_mode=False)
        return code
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "cudaforge"
        complain(f"{' '.join(error.format_message().split())} See `{command} --help`.")
        return error.exit_code
    except click.Abort:  # Ctrl-C before the command began
        return 130
