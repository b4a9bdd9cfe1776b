"""Operations by name, from torch.compile to a served kernel: each is forged, hit, and right."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import cudaforge_backend
import pytest
import torch
from forged import compiled
from torch import Tensor
from torch.nn import functional as F

OPS: dict[str, Callable[[Tensor], Tensor]] = {
    "amin": lambda x: x.amin(-1),
    "amax of columns": lambda x: x.amax(0),
    "argmax": lambda x: x.argmax(-1),
    "cumprod": lambda x: (1 + 0.01 * x).cumprod(-1),
    "logsumexp": lambda x: x.logsumexp(-1),
    "var": lambda x: x.var(-1),
    "rms_norm": lambda x: F.rms_norm(x, (64,)),
    "group_norm": lambda x: F.group_norm(x.view(6, 8, 64), 4),
    "max_pool2d": lambda x: F.max_pool2d(x.view(6, 8, 8, 8), 2),
    "avg_pool2d": lambda x: F.avg_pool2d(x.view(6, 8, 8, 8), 2),
}


@pytest.mark.parametrize("name", OPS)
def test_forward(name: str, forged: Path) -> None:
    x = torch.randn(48, 64)
    result = compiled(OPS[name], forged)(x)
    torch.testing.assert_close(result, OPS[name](x))
    assert cudaforge_backend.stats()["hits"] >= 1


@pytest.mark.parametrize("name", ["rms_norm", "max_pool2d"])
def test_backward(name: str, forged: Path) -> None:
    x = torch.randn(48, 64, requires_grad=True)
    grad = torch.randn_like(OPS[name](x))
    compiled(OPS[name], forged)(x).backward(grad)
    found, x.grad = x.grad, None
    OPS[name](x).backward(grad)
    torch.testing.assert_close(found, x.grad)
    assert cudaforge_backend.stats()["hits"] >= 1
