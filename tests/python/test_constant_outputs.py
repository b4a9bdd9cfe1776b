"""Regions one of whose outputs is the same for all inputs: the total weight of losses by row."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import cudaforge_backend
import pytest
import torch
from cudaforge_backend import enable
from forged import compiled, refused
from torch import Tensor
from torch.nn import functional as F

LOSSES: dict[str, Callable[..., Tensor]] = {
    "plain": lambda x, t: F.cross_entropy(x, t, reduction="none"),
    "ignored": lambda x, t: F.cross_entropy(x, t, reduction="none", ignore_index=3),
    "weighted": lambda x, t: F.cross_entropy(
        x, t, torch.linspace(0.5, 2, x.shape[1], device=x.device), reduction="none"
    ),
}


def rows(device: str) -> tuple[Tensor, Tensor]:
    """Of 48 rows, some with a class to ignore, some with an infinite loss."""
    x = torch.randn(48, 100, device=device)
    x[5, 7] = -torch.inf
    x[6, 0] = torch.inf
    labels = torch.arange(48, device=device) % 50
    labels[5], labels[9] = 7, 3
    return x, labels


@pytest.mark.parametrize("name", LOSSES)
def test_losses_by_row_are_served_in_training(name: str, device: str, forged: Path) -> None:
    x, labels = rows(device)
    x.requires_grad_()
    result = compiled(LOSSES[name], forged)(x, labels)
    expected = LOSSES[name](x, labels)
    assert expected[5].isinf()
    torch.testing.assert_close(result, expected, equal_nan=True)
    weights = torch.rand(48, device=device)
    mine, theirs = (torch.autograd.grad((y * weights).sum(), x)[0] for y in (result, expected))
    torch.testing.assert_close(mine, theirs, equal_nan=True)
    served = [
        region
        for region in cudaforge_backend.stats().regions
        if "nll_loss_forward" in region.region and region.hits
    ]
    assert served, refused(forged)


@pytest.mark.parametrize("ignore", [-100, 3])
@pytest.mark.parametrize("weighted", [False, True])
def test_losses_by_row_are_served_eagerly(
    ignore: int, weighted: bool, device: str, blocking: dict[str, Any]
) -> None:
    x, labels = rows(device)
    x = x.log_softmax(-1)
    op = torch.ops.aten.nll_loss_forward
    weights = torch.linspace(0.5, 2, 100, device=device) if weighted else None
    expected = op(x, labels, weights, 0, ignore)
    assert expected[1] == 0
    with enable(["aten::nll_loss_forward"], **blocking):
        for _ in range(3):
            torch.testing.assert_close(op(x, labels, weights, 0, ignore), expected, equal_nan=True)
        assert cudaforge_backend.stats().eager["aten::nll_loss_forward"].hits == 2
