"""Single infinities and NaN in rows, through served kernels: what one output makes of them is not
another's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cudaforge_backend
import pytest
import torch
from cudaforge_backend import enable
from torch import Tensor

INF, NAN = torch.inf, torch.nan


def rows(length: int, device: str) -> tuple[Tensor, Tensor]:
    """Rows with special values first, inside and last, and the means of the first ones."""
    x = torch.randn(16, length, device=device)
    places = (0, 1, length // 2, length - 2, length - 1)
    for row, place in enumerate(places):
        x[row, place] = INF
    x[5, 0] = x[6, -1] = -INF
    x[7, 1], x[7, -1] = INF, INF
    x[8, 1], x[8, -1] = INF, -INF
    x[9, -1] = NAN
    means = torch.tensor([INF] * 5 + [-INF] * 2 + [INF, NAN, NAN], device=device)
    return x, means


STATISTICS: dict[str, tuple[str, Callable[[Tensor], tuple[Tensor, ...]]]] = {
    "var_mean": (
        "aten::var_mean.correction",
        lambda x: torch.ops.aten.var_mean.correction(x, [-1], correction=1)[::-1],
    ),
    "var_mean of columns": (
        "aten::var_mean.correction",
        lambda x: torch.ops.aten.var_mean.correction(x.t().contiguous(), [0], correction=0)[::-1],
    ),
    "layer_norm": (
        "aten::native_layer_norm",
        lambda x: torch.ops.aten.native_layer_norm(x, x.shape[1:], None, None, 1e-5)[1:],
    ),
    "group_norm": (
        "aten::native_group_norm",
        lambda x: torch.ops.aten.native_group_norm(
            x.view(4, 4, -1), None, None, 4, 4, x.shape[1], 4, 1e-5
        )[1:],
    ),
}


@pytest.mark.parametrize("length", [500, 1024])
@pytest.mark.parametrize("name", STATISTICS)
def test_means_of_rows_with_an_infinity(
    name: str, length: int, device: str, blocking: dict[str, Any]
) -> None:
    op, function = STATISTICS[name]
    x, means = rows(length, device)
    finite = torch.randn(16, length, device=device)
    with enable([op], **blocking):
        function(finite)
        mean, spread = (value.flatten() for value in function(x))
        assert cudaforge_backend.stats().eager[op].hits == 1
    torch.testing.assert_close(mean[:10], means, equal_nan=True)
    torch.testing.assert_close(mean[10:], x.mean(-1)[10:])
    assert spread[:10].isnan().all()
    torch.testing.assert_close(spread[10:], function(x)[1].flatten()[10:])
