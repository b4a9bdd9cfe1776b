"""What a region must move and compute, and the measured limits of the device."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import torch

from .._native import _C
from .data import Roof, number

_RATES = ("fp32_tflops", "fp64_tflops", "bf16_tensor_tflops", "fp16_tensor_tflops")
_BANDWIDTHS = {"bandwidth_gb_s": "memory", "cached_gb_s": "L2"}
_COMPUTE = {
    "fp32_tflops": "float32",
    "bf16_tensor_tflops": "bfloat16, tensor cores",
    "fp16_tensor_tflops": "float16, tensor cores",
    "fp64_tflops": "float64",
}


def work_of(signature: _C.Signature) -> tuple[float, float]:
    """Bytes that one call must move and operations that it must compute.

    Signature.floor_us() gives them: its result, on a device that does one byte, or one operation,
    a microsecond and all else in no time."""
    moved = signature.floor_us({"bandwidth_gb_s": 1e-3})
    rates = [signature.floor_us({name: 1e-6}) for name in _RATES]
    # float32 products on a GPU are bounded by a rate that is made of these two.
    both = signature.floor_us({"fp32_tflops": 1e-6, "fp16_tensor_tflops": 3e-6})
    products = both if both > max(rates[0], rates[3] / 3) else 0.0
    return moved, sum(rates) + products


def device_facts(archs: Collection[str]) -> tuple[str, Mapping[str, Any]]:
    """The architecture of this machine's GPU and what it measurably does; ("", {}) where there is
    no GPU, or none of these architectures."""
    from ..integration import headroom

    if not torch.cuda.is_available():
        return "", {}
    arch = _C.arch("cuda")
    if arch not in archs:
        return "", {}
    return arch, headroom.device_facts(torch.device("cuda"), arch)


def roofs_of(facts: Mapping[str, Any]) -> tuple[Roof, ...]:
    """The limits among device_facts()."""
    found = [
        Roof(label, "bandwidth", rate * 1e9)
        for name, label in _BANDWIDTHS.items()
        if (rate := number(facts.get(name)))
    ]
    found += [
        Roof(label, "compute", rate * 1e12)
        for name, label in _COMPUTE.items()
        if (rate := number(facts.get(name)))
    ]
    return tuple(roof for roof in found if roof.rate > 0)


def roof_note(roofs: Collection[Roof], archs: Collection[str]) -> str:
    """What the lines of the plot are, or why there are none."""
    if roofs:
        return "Lines: limits that were measured on this machine's GPU."
    if any(arch.startswith("cuda:") for arch in archs):
        return "No roof: the limits of these GPUs are known on their own machine only."
    return "No roof: CudaForge does not measure the limits of a CPU, whose caches make them vague."
