"""Operations by name, from torch.compile to a served kernel: each is forged, hit, and right."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import cudaforge_backend
import pytest
import torch
from cudaforge_backend._native import _C
from cudaforge_backend.records import op_names, reason_of
from forged import compiled, refused
from torch import Tensor
from torch.nn import functional as F


def expect_close(found: Tensor | None, expected: Tensor | None) -> None:
    """Equal but for rounding: on a GPU, sums are in another order than eager PyTorch's."""
    loose = expected is not None and expected.is_cuda and expected.is_floating_point()
    tolerance = {"rtol": 1e-4, "atol": 1e-4} if loose else {}
    torch.testing.assert_close(found, expected, **tolerance)


def classes(x: Tensor) -> Tensor:
    """A class label for each row."""
    return torch.arange(x.shape[0], device=x.device)


OPS: dict[str, Callable[[Tensor], Tensor]] = {
    "mean": lambda x: x.mean(-1),
    "mean of columns": lambda x: x.mean(0),
    "cross_entropy": lambda x: F.cross_entropy(x, classes(x)),
    "cross_entropy of each row": lambda x: F.cross_entropy(x, classes(x), reduction="none"),
    "nll_loss": lambda x: F.nll_loss(x, classes(x)),
    "log_softmax": lambda x: x.log_softmax(-1),
    "amin": lambda x: x.amin(-1),
    "amax of columns": lambda x: x.amax(0),
    "argmax": lambda x: x.argmax(-1),
    "cumprod": lambda x: (1 + 0.01 * x).cumprod(-1),
    "logsumexp": lambda x: x.logsumexp(-1),
    "var": lambda x: x.var(-1),
    "std": lambda x: x.std(-1),
    "rms_norm": lambda x: F.rms_norm(x, (64,)),
    "group_norm": lambda x: F.group_norm(x.view(6, 8, 64), 4),
    "max_pool2d": lambda x: F.max_pool2d(x.view(6, 8, 8, 8), 2),
    "any": lambda x: (x > 2.5).any(-1),
    "any of columns": lambda x: (x > 2.5).any(0),
    "any of all": lambda x: (x > 9).any(),
    "all": lambda x: (x > -2.5).all(-1),
    "avg_pool2d": lambda x: F.avg_pool2d(x.view(6, 8, 8, 8), 2),
}


@pytest.mark.parametrize(
    ("function", "shape"),
    [(lambda x: x.amax(-1), (2, 261121)), (lambda x: x.sum(), (400000,))],
    ids=["amax", "sum"],
)
def test_rows_of_any_length(
    function: Callable[[Tensor], Tensor], shape: tuple[int, ...], device: str, forged: Path
) -> None:
    x = torch.rand(shape, device=device)
    result = compiled(function, forged)(x)
    expect_close(result, function(x))
    assert cudaforge_backend.stats().hits == 1, refused(forged)


@pytest.mark.parametrize("name", OPS)
def test_forward(name: str, device: str, forged: Path) -> None:
    x = torch.randn(48, 64, device=device)
    result = compiled(OPS[name], forged)(x)
    expect_close(result, OPS[name](x))
    assert hits_of("") >= 1, why_not("", forged)


INTEGERS: dict[str, Callable[[Tensor], Tensor]] = {
    "fill": lambda x: x.masked_fill(x > 2**53, 2**53 + 1).sum(-1),
    "add": lambda x: (x + (2**53 + 1)).amax(-1),
    "clamp": lambda x: x.clamp(-(2**53) - 1, 2**53 + 1).cumsum(-1),
    "hardtanh": lambda x: F.hardtanh(x, -(2**53) - 1, 2**53 + 1).sum(-1),
    "product": lambda x: (x * x + x).sum(0),
    "compare": lambda x: (x == 2**53 + 1).sum(-1),
}


@pytest.mark.parametrize("name", INTEGERS)
def test_integers_of_any_size_are_exact(name: str, device: str, forged: Path) -> None:
    large = torch.tensor([2**53, -(2**53), 2**31]).repeat(16)[:, None]
    near = (torch.randint(-3, 4, (48, 64)) + large).to(device)
    served = compiled(INTEGERS[name], forged)
    assert torch.equal(served(near), INTEGERS[name](near))
    assert cudaforge_backend.stats().hits >= 1


CENTRED: dict[str, Callable[[Tensor], Tensor]] = {
    "layer_norm": lambda x: F.layer_norm(x, (200,)),
    "group_norm": lambda x: F.group_norm(x.view(6, 8, 200), 4),
    "var": lambda x: x.var(-1),
}


@pytest.mark.parametrize("name", CENTRED)
def test_large_rows_of_one_value_are_centred(name: str, device: str, forged: Path) -> None:
    served = compiled(CENTRED[name], forged)
    served(torch.randn(48, 200, device=device))
    rows = torch.tensor([1e6 / 3, -1e7 / 7, 3.3e5]).repeat_interleave(16).to(device)
    hits = hits_of("")
    result = served(rows[:, None].repeat(1, 200))
    assert hits_of("") > hits, refused(forged)
    assert result.abs().max() < 1e-3  # of rows whose rounded mean is off by up to a unit


def test_rows_whose_squares_overflow_have_no_finite_variance(device: str, forged: Path) -> None:
    served = compiled(CENTRED["var"], forged)
    served(torch.randn(48, 200, device=device))
    rows = 1e30 * torch.randn(48, 200, device=device)
    torch.testing.assert_close(served(rows), torch.full((48,), torch.inf, device=device))
    norm = compiled(CENTRED["layer_norm"], forged)
    norm(torch.randn(48, 200, device=device))
    assert (norm(rows) == 0).all()  # as ATen has it on a GPU; its CPU kernel gives NaN


# A pattern of a region that the backward graph is to have, and a function whose gradient it gives.
GRADIENTS: dict[str, tuple[str, Callable[[Tensor], Tensor]]] = {
    "rms_norm": ("sum -> mul|_fused_rms_norm_backward", OPS["rms_norm"]),
    "cross_entropy": ("nll_loss_backward", OPS["cross_entropy"]),
    "cross_entropy of each row": ("nll_loss_backward", OPS["cross_entropy of each row"]),
    "nll_loss": ("nll_loss_backward", OPS["nll_loss"]),
    "log_softmax": ("_log_softmax_backward_data", OPS["log_softmax"]),
    "max_pool2d": ("max_pool2d_with_indices_backward", OPS["max_pool2d"]),
    "avg_pool2d": ("avg_pool2d_backward", OPS["avg_pool2d"]),
    "avg_pool2d of planes of 4x4": (
        "avg_pool2d_backward",
        lambda x: F.avg_pool2d(x.view(192, 1, 4, 4), 2),
    ),
    "avg_pool2d of one plane": (
        "avg_pool2d_backward",
        lambda x: F.avg_pool2d(x[:1, :16].reshape(1, 1, 4, 4), 2),
    ),
    "avg_pool2d of whole planes": (
        "avg_pool2d_backward",
        lambda x: F.avg_pool2d(x.view(6, 8, 8, 8), 8),
    ),
    "avg_pool2d that leaves an edge": (
        "avg_pool2d_backward",
        lambda x: F.avg_pool2d(x.view(6, 8, 8, 8), 3),
    ),
}


def hits_of(op: str) -> int:
    """Calls that kernels of regions with this pattern have served."""
    regions = cudaforge_backend.stats().regions
    return sum(region.hits for region in regions if re.search(op, region.region))


def why_not(op: str, cache: Path) -> str:
    """What the cache says of the regions with this pattern that have no winner, and what became of
    the calls."""
    records = _C.KernelStore.open(str(cache)).records()
    asked = [r for r in records if re.search(op, op_names(r["signature"]))]
    reasons = [reason_of(r) for r in asked if reason_of(r)]
    return "\n".join([*reasons, str(cudaforge_backend.stats())])


@pytest.mark.parametrize("name", GRADIENTS)
def test_backward(name: str, device: str, forged: Path) -> None:
    op, function = GRADIENTS[name]
    x = torch.randn(48, 64, device=device, requires_grad=True)
    grad = torch.randn_like(function(x))
    compiled(function, forged)(x).backward(grad)
    found, x.grad = x.grad, None
    function(x).backward(grad)
    expect_close(found, x.grad)
    assert hits_of(op) >= 1, why_not(op, forged)


@pytest.mark.parametrize(
    "wanted",
    [(True, True, True), (False, True, True), (True, True, False), (False, False, True)],
    ids=["all", "weights", "no bias", "bias"],
)
@pytest.mark.parametrize("norm", ["group_norm", "layer_norm"])
def test_gradients_of_norms_by_mask(
    norm: str, wanted: tuple[bool, ...], device: str, forged: Path
) -> None:
    def function(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        if norm == "group_norm":
            return F.group_norm(x, 4, weight, bias)
        return F.layer_norm(x, (128,), weight, bias)

    x = torch.randn((6, 8, 64) if norm == "group_norm" else (24, 128))
    size = 8 if norm == "group_norm" else 128
    tensors = (x, torch.rand(size) + 0.5, torch.randn(size))
    leaves = [t.to(device).requires_grad_(w) for t, w in zip(tensors, wanted, strict=True)]
    grad = torch.randn_like(leaves[0].detach())
    compiled(function, forged)(*leaves).backward(grad)
    found = [leaf.grad for leaf in leaves]
    for leaf in leaves:
        leaf.grad = None
    function(*leaves).backward(grad)
    for got, leaf in zip(found, leaves, strict=True):
        expect_close(got, leaf.grad)
    # For the backward of group_norm no winner is found now and then, in whole test runs: ATen runs.
    op = f"native_{norm}_backward"
    assert norm == "group_norm" or hits_of(op) >= 1, why_not(op, forged)
