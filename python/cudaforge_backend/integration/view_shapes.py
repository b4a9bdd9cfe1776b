"""Shapes of a tensor's view, and of what broadcasts to it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence


def carried_shape(
    shape: Sequence[int], view: Sequence[int], base: Sequence[int]
) -> tuple[int, ...] | None:
    """What a tensor of `shape`, which broadcasts to `view`, is reshaped to so that it broadcasts to
    `base` with the same elements; None if there is no such shape. E.g. [4, 8, 1] of the view
    [4, 8, 16] of a base [32, 16] becomes [32, 1]. No leading ones are added."""
    if tuple(shape) == tuple(view):
        return tuple(base)
    full = (1,) * (len(view) - len(shape)) + tuple(shape)
    made: list[int] = []
    for of_view, of_base in _groups(view, base):
        mine = full[of_view]
        if mine == tuple(view[of_view]):
            made.extend(base[of_base])
        elif math.prod(mine) == 1:
            made.extend([1] * len(base[of_base]))
        else:
            return None
    least = min(len(shape), 1)  # a 0-D tensor stays one: it counts less in type promotion
    while len(made) > least and made[0] == 1:
        del made[0]
    return tuple(made)


def _groups(view: Sequence[int], base: Sequence[int]) -> Iterator[tuple[slice, slice]]:
    """The smallest runs of dimensions with equal numbers of elements in two shapes of one tensor,
    which is not empty."""
    i = j = 0
    while i < len(view) or j < len(base):
        start_i, start_j, left, right = i, j, 1, 1
        if i < len(view):
            left, i = view[i], i + 1
        if j < len(base):
            right, j = base[j], j + 1
        while left != right:
            if left < right:
                left, i = left * view[i], i + 1
            else:
                right, j = right * base[j], j + 1
        yield slice(start_i, i), slice(start_j, j)
