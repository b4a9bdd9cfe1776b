"""The machine that a report was made on."""

from __future__ import annotations

import datetime
import platform
from pathlib import Path

import torch

from .._native import _C
from .data import Fact, text


def now() -> str:
    """The local date and time."""
    return datetime.datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z").strip()


def machine(device: str = "auto") -> tuple[Fact, ...]:
    """Device and versions. `device`: "cpu", "cuda", or "auto" for the GPU where there is one."""
    gpu = torch.cuda.is_available() and device != "cpu"
    facts = [Fact("GPU", text(torch.cuda.get_device_name()))] if gpu else []
    facts += [
        Fact("CPU", f"{_cpu()}, {torch.get_num_threads()} threads"),
        Fact("Architecture", text(_C.arch("cuda" if gpu else "cpu"))),
        Fact("CudaForge", f"{_C.versions()['cudaforge']}, verifier {_C.versions()['verifier']}"),
        Fact("PyTorch", torch.__version__),
        Fact("CUDA", (torch.version.cuda or "not in this build") + ("" if gpu else ", no GPU")),
        Fact("Python", platform.python_version()),
    ]
    return tuple(facts)


def _cpu() -> str:
    """The model of the processor, as the kernel names it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return text(names[0]) if names else platform.machine()
