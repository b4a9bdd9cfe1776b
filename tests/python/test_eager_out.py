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
FLOAT, INT, BOOL = torch.float32, torch.int64, torch.bool

Results = list[tuple[tuple[int, ...], torch.dtype]]
Calls = dict[str, tuple[Callable[[list[Tensor]], Any], Results]]


def calls(device: str) -> Calls:
    """By overload: a call that writes to its argument, and the sizes and dtypes of that."""
    x, g = torch.randn(6, 50, device=device), torch.randn(6, 50, device=device)
    few, logs = x > 0.8, x.log_softmax(-1)
    n = torch.randint(0, 50, (6,), device=device)
    one, weight = torch.ones((), device=device), torch.tensor(6.0, device=device)
    z, w = torch.randn(2, 3, 12, 12, device=device), torch.randn(2, 2, 6, 8, 8, device=device)
    pooled, indices = A.max_pool2d_with_indices(z, [2, 2])
    pooled3, indices3 = A.max_pool3d_with_indices(w, [2, 2, 2])
    by, by3 = ([2, 2], [2, 2], [0, 0]), ([2, 2, 2], [2, 2, 2], [0, 0, 0])  # size, stride, padding
    all_x, rows, whole = ((6, 50), FLOAT), ((6,), FLOAT), ((), FLOAT)
    return {
        "aten::_log_softmax.out": (lambda o: A._log_softmax.out(x, -1, False, out=o[0]), [all_x]),
        "aten::_log_softmax_backward_data.out": (
            lambda o: A._log_softmax_backward_data.out(g, logs, -1, FLOAT, out=o[0]),
            [all_x],
        ),
        "aten::_softmax.out": (lambda o: A._softmax.out(x, -1, False, out=o[0]), [all_x]),
        "aten::_softmax_backward_data.out": (
            lambda o: A._softmax_backward_data.out(x, x.exp(), -1, FLOAT, grad_input=o[0]),
            [all_x],
        ),
        "aten::all.all_out": (lambda o: A.all.all_out(few, out=o[0]), [((), BOOL)]),
        "aten::all.out": (lambda o: A.all.out(few, 1, False, out=o[0]), [((6,), BOOL)]),
        "aten::amax.out": (lambda o: torch.amax(x, 1, out=o[0]), [rows]),
        "aten::amin.out": (lambda o: torch.amin(x, 1, out=o[0]), [rows]),
        "aten::any.all_out": (lambda o: A.any.all_out(few, out=o[0]), [((), BOOL)]),
        "aten::any.out": (lambda o: A.any.out(few, 1, False, out=o[0]), [((6,), BOOL)]),
        "aten::argmax.out": (lambda o: torch.argmax(x, 1, out=o[0]), [((6,), INT)]),
        "aten::argmin.out": (lambda o: torch.argmin(x, 1, out=o[0]), [((6,), INT)]),
        "aten::avg_pool2d.out": (
            lambda o: A.avg_pool2d.out(z, [2, 2], out=o[0]),
            [((2, 3, 6, 6), FLOAT)],
        ),
        "aten::avg_pool2d_backward.grad_input": (
            lambda o: A.avg_pool2d_backward.grad_input(
                pooled, z, *by, False, True, None, grad_input=o[0]
            ),
            [((2, 3, 12, 12), FLOAT)],
        ),
        "aten::avg_pool3d.out": (
            lambda o: A.avg_pool3d.out(w, [2, 2, 2], out=o[0]),
            [((2, 2, 3, 4, 4), FLOAT)],
        ),
        "aten::avg_pool3d_backward.grad_input": (
            lambda o: A.avg_pool3d_backward.grad_input(
                pooled3, w, *by3, False, True, None, grad_input=o[0]
            ),
            [((2, 2, 6, 8, 8), FLOAT)],
        ),
        "aten::cumprod.out": (lambda o: torch.cumprod(x, 1, out=o[0]), [all_x]),
        "aten::cumsum.out": (lambda o: torch.cumsum(x, 1, out=o[0]), [all_x]),
        "aten::logsumexp.out": (lambda o: torch.logsumexp(x, 1, out=o[0]), [rows]),
        "aten::max.dim_max": (
            lambda o: torch.max(x, 1, out=(o[0], o[1])),
            [rows, ((6,), INT)],
        ),
        "aten::max.unary_out": (lambda o: A.max.unary_out(x, out=o[0]), [whole]),
        "aten::max_pool2d_with_indices.out": (
            lambda o: A.max_pool2d_with_indices.out(z, [2, 2], out=o[0], indices=o[1]),
            [((2, 3, 6, 6), FLOAT), ((2, 3, 6, 6), INT)],
        ),
        "aten::max_pool2d_with_indices_backward.grad_input": (
            lambda o: A.max_pool2d_with_indices_backward.grad_input(
                pooled, z, *by, [1, 1], False, indices, grad_input=o[0]
            ),
            [((2, 3, 12, 12), FLOAT)],
        ),
        "aten::max_pool3d_with_indices.out": (
            lambda o: A.max_pool3d_with_indices.out(w, [2, 2, 2], out=o[0], indices=o[1]),
            [((2, 2, 3, 4, 4), FLOAT), ((2, 2, 3, 4, 4), INT)],
        ),
        "aten::max_pool3d_with_indices_backward.grad_input": (
            lambda o: A.max_pool3d_with_indices_backward.grad_input(
                pooled3, w, *by3, [1, 1, 1], False, indices3, grad_input=o[0]
            ),
            [((2, 2, 6, 8, 8), FLOAT)],
        ),
        "aten::mean.out": (lambda o: torch.mean(x, 1, out=o[0]), [rows]),
        "aten::min.dim_min": (
            lambda o: torch.min(x, 1, out=(o[0], o[1])),
            [rows, ((6,), INT)],
        ),
        "aten::min.unary_out": (lambda o: A.min.unary_out(x, out=o[0]), [whole]),
        "aten::nll_loss_backward.grad_input": (
            lambda o: A.nll_loss_backward.grad_input(
                one, logs, n, None, 1, -100, weight, grad_input=o[0]
            ),
            [all_x],
        ),
        "aten::nll_loss_forward.output": (
            lambda o: A.nll_loss_forward.output(
                x, n, None, 1, -100, output=o[0], total_weight=o[1]
            ),
            [whole, whole],
        ),
        "aten::prod.int_out": (lambda o: A.prod.int_out(x, 1, out=o[0]), [rows]),
        "aten::std.correction_out": (lambda o: torch.std(x, 1, out=o[0]), [rows]),
        "aten::sum.IntList_out": (lambda o: torch.sum(x, 1, out=o[0]), [rows]),
        "aten::var.correction_out": (lambda o: torch.var(x, 1, out=o[0]), [rows]),
    }


OPS = tuple(calls("cpu"))
# Made on Hopper GPUs alone.
PRODUCTS = {f"aten::{name}.out" for name in ("addmm", "baddbmm", "bmm", "mm")}


def is_out_variant(op: str) -> bool:
    name, _, overload = op.partition(".")
    return any(argument.is_out for argument in torch._C._get_schema(name, overload).arguments)


def test_none_is_forgotten() -> None:
    assert {op for op in default_ops() if is_out_variant(op)} == {*OPS, *PRODUCTS}


def outputs(results: Results, device: str, fill: int) -> list[Tensor]:
    """What a call writes to, filled with `fill`."""
    return [torch.full(sizes, fill).to(dtype=dtype, device=device) for sizes, dtype in results]


@pytest.mark.parametrize("op", OPS)
def test_kernels_write_to_out_arguments(op: str, blocking: dict[str, Any], device: str) -> None:
    call, results = calls(device)[op]
    expected = outputs(results, device, 77)
    call(expected)
    with enable([op], **blocking):
        # Forged, then served twice: a bool is True of 77 and False of 0, so one must be changed.
        for fill in (77, 77, 0):
            found = outputs(results, device, fill)
            call(found)
            torch.testing.assert_close(found, expected)
    assert seen(op)["hits"] == 2, cudaforge_backend.stats()
