"""How far the answers of a program are from float64. Large work is compared on some of its rows."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from programs import Made, Program

LARGE = 1 << 27  # numbers in inputs and outputs: 1 GiB in float64
MORE = 8.0  # eager's error on all rows over that on some of them, at most

Tensors = Sequence[torch.Tensor]


@dataclass(frozen=True)
class Off:
    """The largest differences from float64, over the root-mean-square of the output."""

    worst: list[float]  # of each answer; infinite for a value that is not finite where it should be
    rows: tuple[int, int] | None  # how many rows were compared, of how many; None: all


def off_from_exact(
    program: Program | Made, eager: Tensors, answers: Sequence[Tensors], large: int = LARGE
) -> Off | None:
    """How far `answers`, the outputs of ways to run the program on its inputs, are from float64.

    With more than `large` numbers, of rows (indices of the leading dimension) that hold about so
    many, if `eager`, PyTorch's outputs, show that rows do not depend on each other; else of all.
    None: float64 needs more memory than there is."""
    try:
        if some := _exact_rows(program, eager, large):
            rows, exact = some
            worst = [_worst(_rows_of(answer, rows), exact) for answer in answers]
            return Off(worst, (len(rows), len(eager[0])))
        exact = program.exact()
        return Off([_worst(answer, exact) for answer in answers], None)
    except (RuntimeError, MemoryError):
        return None


def _exact_rows(
    program: Program | Made, eager: Tensors, large: int
) -> tuple[list[int], Tensors] | None:
    """Some rows, and the outputs for them in float64; None: compare all."""
    numbers = sum(x.numel() for x in (*program.inputs, *eager))
    count = len(eager[0]) if eager and eager[0].dim() else 0
    if numbers <= large or any(x.dim() == 0 or len(x) != count for x in eager):
        return None
    keep = max(2, count * large // numbers)
    if keep >= count:
        return None
    inner = random.Random(0).sample(range(1, count - 1), keep - 2)
    rows = sorted([0, count - 1, *inner])
    for inputs in _inputs_of_rows(program.inputs, rows, count):
        try:
            mine = program(*inputs)
            whole = _rows_of(eager, rows)
            if [x.shape for x in mine] != [x.shape for x in whole]:
                continue
            exact = program.exact(inputs)
        except (RuntimeError, IndexError):  # shapes that the program does not take
            continue
        if _agree(mine, whole, exact):
            return rows, exact
    return None


def _inputs_of_rows(inputs: Tensors, rows: list[int], count: int) -> Iterator[list[torch.Tensor]]:
    """Inputs that may give only these rows: all with that leading dimension cut, then one each."""
    long = [i for i, x in enumerate(inputs) if x.dim() and len(x) == count]
    for cut in ([long] if long else []) + ([[i] for i in long] if len(long) > 1 else []):
        yield [x[rows] if i in cut else x for i, x in enumerate(inputs)]


def _rows_of(tensors: Tensors, rows: list[int]) -> list[torch.Tensor]:
    return [x[rows] for x in tensors]


def _agree(mine: Tensors, whole: Tensors, exact: Tensors) -> bool:
    """Whether a run on some rows and one on all gave the same for them, within the errors that
    their type has here."""
    counted = [(a, b) for a, b in zip(mine, whole, strict=True) if not a.is_floating_point()]
    if not all(torch.equal(a, b) for a, b in counted):
        return False
    apart, own = _worst(whole, [x.double() for x in mine]), _worst(mine, exact)
    least = max((torch.finfo(x.dtype).eps for x in mine if x.is_floating_point()), default=0.0)
    return apart <= least + (MORE * own if math.isfinite(own) else 0.0)


def _worst(answer: Tensors, exact: Tensors) -> float:
    worst = 0.0
    for have, right in zip(answer, exact, strict=True):
        if not have.is_floating_point() or not have.numel():
            continue
        usual = right[right.isfinite()]
        size = float(usual.square().mean().sqrt()) if usual.numel() else 0.0
        have = have.double()
        same = (have == right) | (have.isnan() & right.isnan())
        away = (have - right).abs().masked_fill_(same, 0.0).nan_to_num_(nan=math.inf)
        worst = max(worst, float(away.max()) / (size or 1.0))
    return worst
