"""How operands change their shapes with the shape of an op."""

from __future__ import annotations

import pytest
import torch
from cudaforge_backend.integration.view_shapes import carried_shape


@pytest.mark.parametrize(
    ("shape", "view", "base", "expected"),
    [
        ((4, 8, 16), (4, 8, 16), (32, 16), (32, 16)),
        ((16,), (4, 8, 16), (32, 16), (16,)),
        ((1, 1, 16), (4, 8, 16), (32, 16), (16,)),
        ((4, 8, 1), (4, 8, 16), (32, 16), (32, 1)),
        ((), (4, 8, 16), (32, 16), ()),
        ((1, 1, 1), (4, 8, 16), (32, 16), (1,)),
        ((8, 1), (4, 2, 8, 16), (8, 8, 16), (8, 1)),
        ((1, 8, 16), (1, 8, 16), (8, 16), (8, 16)),
        ((8, 1), (1, 8, 16), (8, 16), (8, 1)),
        ((4, 1), (4, 1), (4,), (4,)),
        ((1, 8, 16), (4, 8, 16), (32, 16), None),
        ((4, 1, 1), (4, 8, 16), (32, 16), None),
        ((4, 1, 16), (4, 8, 16), (32, 16), None),
        ((16,), (32, 16), (32, 4, 4), (4, 4)),
        ((6,), (4, 6), (6, 4), None),
    ],
)
def test_carried_shapes(
    shape: tuple[int, ...],
    view: tuple[int, ...],
    base: tuple[int, ...],
    expected: tuple[int, ...] | None,
) -> None:
    assert carried_shape(shape, view, base) == expected
    if expected is not None:
        x, y = torch.randn(base), torch.randn(shape)
        assert torch.equal((x + y.view(expected)).view(view), x.view(view) + y)
