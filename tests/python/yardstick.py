"""The numerics contract of a kernel (csrc/verify/yardstick.cc), held over a whole operator or
training: what an error against float64 may be at most."""

from __future__ import annotations

import torch
from torch import Tensor


def rounding_unit(dtype: torch.dtype) -> float:
    """The largest share by which rounding to a dtype moves a number; of integers none."""
    return torch.finfo(dtype).eps / 2 if dtype.is_floating_point else 0.0


def moved(values: Tensor, unit: float, generator: torch.Generator) -> Tensor:
    """Each number up or down by the share `unit`, at random."""
    up = torch.randint(0, 2, values.shape, generator=generator)
    return values * (1 + (2 * up - 1).to(values) * unit)


def limit(rounded_to: torch.dtype, own: float, move: Tensor, true: Tensor) -> Tensor:
    """Of errors against `true`, the answers in float64: k times ATen's own error, or k times three
    times what moving the inputs by a rounding unit does (k is 2, of the half types 3), and an ulp;
    of float64 sixteen times the move and sixteen ulps."""
    ulp = torch.finfo(rounded_to).eps * true.abs()
    if rounded_to == torch.float64:
        return 16 * move + 16 * ulp
    k = 2 if rounded_to == torch.float32 else 3
    return k * torch.clamp(3 * move, min=own) + ulp
