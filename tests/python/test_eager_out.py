"""Operators that write their results to out arguments, in eager calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cudaforge_backend
import pytest
import torch
from cudaforge_backend import enable
from cudaforge_backend.integration.eager_ops import default_ops
from eager_calls import seen
from torch import Tensor

A = torch.ops.aten

# By overload: a call that writes to `out`, of x [6, 50], z [2, 3, 12, 12] and labels [6].
CALLS: dict[str, Callable[[Tensor, Tensor, Tensor, list[Tensor]], Any]] = {
    "aten::_log_softmax.out": lambda x, z, n, out: A._log_softmax.out(x, -1, False, out=out[0]),
    "aten::_softmax.out": lambda x, z, n, out: A._softmax.out(x, -1, False, out=out[0]),
    "aten::_softmax_backward_data.out": lambda x, z, n, out: A._softmax_backward_data.out(
        x, x.exp(), -1, torch.float32, grad_input=out[0]
    ),
    "aten::amax.out": lambda x, z, n, out: torch.amax(x, 1, out=out[0]),
    "aten::argmax.out": lambda x, z, n, out: torch.argmax(x, 1, out=out[0]),
    "aten::avg_pool2d.out": lambda x, z, n, out: A.avg_pool2d.out(z, [2, 2], out=out[0]),
    "aten::cumprod.out": lambda x, z, n, out: torch.cumprod(x, 1, out=out[0]),
    "aten::cumsum.out": lambda x, z, n, out: torch.cumsum(x, 1, out=out[0]),
    "aten::logsumexp.out": lambda x, z, n, out: torch.logsumexp(x, 1, out=out[0]),
    "aten::max.dim_max": lambda x, z, n, out: torch.max(x, 1, out=(out[0], out[1])),
    "aten::max_pool2d_with_indices.out": lambda x, z, n, out: A.max_pool2d_with_indices.out(
        z, [2, 2], out=out[0], indices=out[1]
    ),
    "aten::mean.out": lambda x, z, n, out: torch.mean(x, 1, out=out[0]),
    "aten::nll_loss_forward.output": lambda x, z, n, out: A.nll_loss_forward.output(
        x, n, None, 1, -100, output=out[0], total_weight=out[1]
    ),
    "aten::sum.IntList_out": lambda x, z, n, out: torch.sum(x, 1, out=out[0]),
    "aten::var.correction_out": lambda x, z, n, out: torch.var(x, 1, out=out[0]),
}
WHOLE = ["aten::_log_softmax.out", "aten::_softmax.out", "aten::_softmax_backward_data.out"]
WHOLE += ["aten::cumprod.out", "aten::cumsum.out"]
POOLS = ["aten::avg_pool2d.out", "aten::max_pool2d_with_indices.out"]


def outputs(op: str, device: str) -> list[Tensor]:
    """What the call of `op` writes to, filled with what it never writes."""
    shape = (6, 50) if op in WHOLE else (2, 3, 6, 6) if op in POOLS else (6,)
    if op == "aten::nll_loss_forward.output":
        shape = ()
    second = torch.float32 if op == "aten::nll_loss_forward.output" else torch.int64
    first = torch.int64 if op == "aten::argmax.out" else torch.float32
    return [torch.full(shape, 77, dtype=dtype, device=device) for dtype in (first, second)]


@pytest.mark.parametrize("op", CALLS)
def test_kernels_write_to_out_arguments(op: str, blocking: dict[str, Any], device: str) -> None:
    x, z = torch.randn(6, 50, device=device), torch.randn(2, 3, 12, 12, device=device)
    labels = torch.randint(0, 50, (6,), device=device)
    expected = outputs(op, device)
    CALLS[op](x, z, labels, expected)
    assert op in default_ops()
    with enable([op], **blocking):
        for _ in range(3):
            found = outputs(op, device)
            CALLS[op](x, z, labels, found)
            torch.testing.assert_close(found, expected)
    assert seen(op)["hits"] == 2, cudaforge_backend.stats()
