"""PyTorch's own samples (OpInfo), and the comparison of what a kernel makes of one with what ATen
does."""

from __future__ import annotations

import os
import sys
import types
import unittest
from collections.abc import Iterator
from typing import Any

import torch
from cudaforge_backend._native import _C
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map
from yardstick import limit, moved, rounding_unit

# Only PyTorch's own test classes are made with it.
sys.modules.setdefault(
    "expecttest",
    types.SimpleNamespace(TestCase=unittest.TestCase),  # type: ignore[arg-type]
)

SAMPLES = int(os.environ.get("EAGER_SAMPLES", "4"))  # of an operator: each shape costs a search

FEW = 8  # numbers in all inputs

# How many results of an operator PyTorch writes: those after them, states of random numbers, hold
# what was in memory.
_WRITTEN = {
    "torch.ops.aten._efficient_attention_forward": 2,
    "torch.ops.aten._flash_attention_forward": 2,
}

# All that these give is what was in memory.
_UNWRITTEN = {
    "empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided",
}  # fmt: skip

# Those that a region can have, in the order in which they are tried.
DTYPES = [getattr(torch, name) for name in _C.DTYPES]


def op_infos() -> dict[str, Any]:
    """Every OpInfo of PyTorch's by its name, with its variant's. Takes seconds the first time."""
    from torch.testing._internal.common_methods_invocations import op_db

    return {info.name + (f".{v}" if (v := info.variant_test_name) else ""): info for info in op_db}


def every_case(device: str) -> Iterator[tuple[str, torch.dtype]]:
    """The names and dtypes that OpInfos have on a device, by dtype."""
    infos = op_infos()
    for dtype in DTYPES:
        for name, info in infos.items():
            if name not in _UNWRITTEN and dtype in info.supported_dtypes(device):
                yield name, dtype


def _numbers(sample: Any) -> int:
    return sum(value.numel() for value in _given(sample) if _is_plain(value))


def samples(info: Any, device: str, dtype: torch.dtype) -> list[Any]:
    """Some sample inputs of an operator, evenly spread over all that PyTorch has; of more than a
    few numbers where there are any, as of fewer the verifier often cannot tell right from wrong."""
    differentiable = dtype in info.supported_backward_dtypes(device)
    found = list(info.sample_inputs(device, dtype, requires_grad=differentiable))
    found = [one for one in found if _numbers(one) > FEW] or found
    last = len(found) - 1
    chosen = {round(n * last / max(SAMPLES - 1, 1)) for n in range(SAMPLES)} if found else set()
    return [found[n] for n in sorted(chosen)]


def _is_plain(value: Any) -> bool:
    return isinstance(value, Tensor) and value.layout == torch.strided


def _weights(like: Tensor) -> Tensor:
    """Eighths between -1 and 1, the same for each shape and exact in every dtype: a sum's gradient,
    which is one everywhere, would be zero through a softmax."""
    generator = torch.Generator().manual_seed(like.numel())
    eighths = torch.randint(-8, 9, like.shape, generator=generator) / 8
    return eighths.to(like.device, like.dtype)


def results(info: Any, sample: Any) -> list[Tensor]:
    """What the operator gives for a sample, and the gradients of all its inputs. Random numbers
    that it draws are the same each time."""
    torch.manual_seed(0)
    made = info(sample.input, *sample.args, **sample.kwargs)
    outputs = [value for value in tree_leaves(made) if _is_plain(value)]
    outputs = outputs[: _WRITTEN.get(info.name)]
    leaves = [value for value in _given(sample) if _is_plain(value) and value.requires_grad]
    sources = [value for value in outputs if value.requires_grad]
    gradients: Any = []
    if leaves and sources:
        weights = [_weights(value) for value in sources]
        gradients = torch.autograd.grad(sources, leaves, weights, allow_unused=True)
    return [value.detach() for value in (*outputs, *gradients) if value is not None]


def _given(sample: Any) -> list[Any]:
    leaves: list[Any] = tree_leaves((sample.input, sample.args, sample.kwargs))
    return leaves


def _coarsest(sample: Any, dtype: torch.dtype) -> torch.dtype:
    """Of a floating dtype and those of the sample's tensors, the one that rounds the most: what is
    computed of that tensor alone is rounded to it (of cov in float64 the samples have weights in
    float32)."""
    given = [value.dtype for value in _given(sample) if isinstance(value, Tensor)]
    return max((dtype, *(one for one in given if one.is_floating_point)), key=rounding_unit)


def _doubled(sample: Any, dtype: torch.dtype, unit: float, seed: int | None = None) -> Any:
    """The sample, and `dtype` where it is named, in float64; with a seed, each number moved up or
    down by the share `unit`, at random."""

    def double(value: Any) -> Any:
        if value is dtype:
            return torch.float64
        if not (isinstance(value, Tensor) and value.is_floating_point()):
            return value
        made = value.detach().double()
        if seed is not None:
            generator = torch.Generator().manual_seed(seed)
            made = moved(made, unit, generator)
        return made.requires_grad_(value.requires_grad)

    parts = tree_map(double, (sample.input, sample.args, sample.kwargs))
    return types.SimpleNamespace(input=parts[0], args=parts[1], kwargs=parts[2])


MOVES = 4  # of the inputs; see csrc/verify/yardstick.cc


class Comparison:
    """ATen's answer for one sample, and whether other results are as good.

    Two answers are equal by the rule of PyTorch's own tests: assert_close with its tolerances for
    the dtype (float64: 1e-12, which excludes kernels that compute in float32), and exactly for
    integers and booleans. Sums of numbers that cancel differ by more between correct kernels. For
    them the verifier's rule for a kernel applies to the whole operator, in the maximum: an error
    against float64 is at most yardstick.limit. In both cases NaN and infinities must be where ATen
    has them. `dtype`: the requested dtype of the sample; a coarser one of its tensors replaces
    it."""

    def __init__(self, info: Any, sample: Any, dtype: torch.dtype) -> None:
        self._info, self._sample, self._dtype = info, sample, dtype
        self._coarsest = _coarsest(sample, dtype)
        self.expected = results(info, sample)
        self._oracle: list[list[Tensor]] | None = None

    def difference(self, found: list[Tensor]) -> str:
        """How `found` differs from ATen's results; "" where it is as good."""
        if len(found) != len(self.expected):
            return f"{len(found)} results instead of {len(self.expected)}"
        for n, (one, right) in enumerate(zip(found, self.expected, strict=True)):
            limits = self._tolerances(one.dtype)
            try:
                torch.testing.assert_close(one, right, equal_nan=True, check_stride=True, **limits)
            except AssertionError as error:
                why = self._beyond_contract(n, one, right)
                if why:
                    return f"result {n}: {why}; {error}"
        return ""

    def _rounded_to(self, result: torch.dtype) -> torch.dtype:
        """The dtype whose rounding a result of the floating dtype `result` has."""
        if self._coarsest == self._dtype:
            return result
        return max(result, self._coarsest, key=rounding_unit)

    def _tolerances(self, result: torch.dtype) -> dict[str, float]:
        rounded_to = self._rounded_to(result) if result.is_floating_point else result
        if rounded_to == torch.float64:
            return {"rtol": 1e-12, "atol": 1e-12}
        rtol, atol = torch.testing._comparison.default_tolerances(rounded_to)
        return {"rtol": rtol, "atol": atol}

    def _answers_in_float64(self) -> list[list[Tensor]]:
        """First those of the sample, then those of its moves."""
        seeds, unit = [None, *range(MOVES)], rounding_unit(self._coarsest)
        doubled = [_doubled(self._sample, self._dtype, unit, seed) for seed in seeds]
        return [results(self._info, sample) for sample in doubled]

    def _beyond_contract(self, n: int, found: Tensor, right: Tensor) -> str:
        same_kind = (
            found.shape == right.shape
            and found.stride() == right.stride()
            and found.dtype == right.dtype
        )
        if not (same_kind and found.is_floating_point() and self._dtype.is_floating_point):
            return "not the same"
        finite = right.isfinite()
        strange = ~finite
        if not torch.equal(finite, found.isfinite()) or not torch.equal(
            found[strange].nan_to_num(), right[strange].nan_to_num()
        ):
            return "NaN or infinities elsewhere"
        if self._oracle is None:
            self._oracle = self._answers_in_float64()
        true, *moves = (answers[n].double() for answers in self._oracle)
        finite = finite & true.isfinite()
        for one in moves:
            finite &= one.isfinite()
        true = true[finite]
        error = (found.double()[finite] - true).abs()
        own = (right.double()[finite] - true).abs()
        move = torch.stack([(one[finite] - true).abs() for one in moves]).amax(0)
        largest = own.max().item() if own.numel() else 0.0
        most = limit(self._rounded_to(found.dtype), largest, move, true)
        beyond = error - most
        if not (beyond > 0).any():
            return ""
        worst = int(beyond.argmax())
        return f"an error of {error[worst]:.3g} against float64, of at most {most[worst]:.3g}"
