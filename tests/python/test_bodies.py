"""Bodies of torch.cond(), loops and nested regions: found, served and reported like the graph."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import cudaforge_backend
import pytest
import torch
from forged import compiled
from torch import Tensor
from torch._higher_order_ops import while_loop
from torch._higher_order_ops.map import map as map_over
from torch._higher_order_ops.scan import scan
from torch.compiler import nested_compile_region


def branch(x: Tensor) -> Tensor:
    return torch.cond(x[0, 0] > 0, lambda x: x.softmax(-1), lambda x: (-x).softmax(-1), (x,))


def branch_in_branch(x: Tensor) -> Tensor:
    def inner(x: Tensor) -> Tensor:
        return torch.cond(x[0, 1] > 0, lambda x: x.softmax(-1), lambda x: x.cumsum(-1), (x,))

    return torch.cond(x[0, 0] > 0, inner, lambda x: -inner(x), (x,))


def loop(x: Tensor) -> Tensor:
    def goes_on(i: Tensor, x: Tensor) -> Tensor:
        return i < 3

    def body(i: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        return i + 1, x.softmax(-1)

    found: tuple[Tensor, Tensor] = while_loop(goes_on, body, (torch.tensor(0), x))
    return found[1]


def scanned(x: Tensor) -> Tensor:
    def step(carry: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
        following = (carry + row).softmax(-1)
        return following, following.clone()

    found: tuple[Tensor, Tensor] = scan(step, torch.zeros_like(x), torch.stack([x, -x]))
    return found[1]


@nested_compile_region
def region(x: Tensor) -> Tensor:
    return x.softmax(-1) * 2


def twice(x: Tensor) -> Tensor:
    return region(region(x))


@pytest.mark.parametrize(
    ("function", "regions", "hits"),
    [(branch, 2, 1), (branch_in_branch, 2, 1), (loop, 1, 3), (scanned, 1, 2), (twice, 1, 2)],
)
@torch._dynamo.config.patch(capture_scalar_outputs=True)  # else Inductor compiles no scan()
def test_they_are_served(
    forged: Path, device: str, function: Callable[[Tensor], Tensor], regions: int, hits: int
) -> None:
    x = torch.rand(6, 88, device=device)
    with torch.no_grad():
        made = compiled(function, forged)
        for sign in (1, -1):
            cudaforge_backend.reset_stats()
            torch.testing.assert_close(made(sign * x), function(sign * x))
            assert cudaforge_backend.stats().hits == hits
        report = cudaforge_backend.explain(function, x, cache_dir=str(forged))
    assert [found.status for found in report.regions] == ["hit"] * regions


@torch._dynamo.config.patch(capture_scalar_outputs=True)
def test_slices_with_other_strides_run_in_pytorch(forged: Path, device: str) -> None:
    """Their strides are not those of the body's trace: a kernel would never be called."""

    def step(carry: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
        following = (carry + row).softmax(-1)
        return following, following.clone()

    def batch_first(x: Tensor) -> Tensor:
        found: tuple[Tensor, Tensor] = scan(step, torch.zeros_like(x[:, 0]), x, dim=1)
        return found[1]

    def mapped(x: Tensor) -> Tensor:
        return map_over(lambda row: row.softmax(-1), x.transpose(0, 1))

    x = torch.rand(6, 8, 87, device=device)
    with torch.no_grad():
        for function in (batch_first, mapped):
            cudaforge_backend.reset_stats()
            torch._dynamo.reset()
            torch.testing.assert_close(compiled(function, forged)(x), function(x))
            stats = cudaforge_backend.stats()
            assert (stats.hits, stats.fallbacks, stats.forged) == (0, {"strides": 1}, 0)
        contiguous = compiled(lambda x: map_over(lambda row: row.softmax(-1), x), forged)
        contiguous(x)
        assert cudaforge_backend.stats().hits == 6


@pytest.mark.parametrize("function", [branch, twice])
def test_they_are_trained(forged: Path, device: str, function: Callable[[Tensor], Tensor]) -> None:
    x = torch.rand(6, 89, device=device, requires_grad=True)
    weight = torch.rand(6, 89, device=device)
    gradients = []
    for call in (compiled(function, forged), function):
        (call(x) * weight).sum().backward()
        gradients.append(x.grad)
        x.grad = None
    torch.testing.assert_close(gradients[0], gradients[1])
    assert cudaforge_backend.stats().hits >= 2


def test_without_winners_they_are_inductors(tmp_path: Path) -> None:
    """The trace that looks for regions leaves nothing behind for Inductor's own."""
    x = torch.rand(6, 90)
    for function in (branch, loop, twice):
        with torch.no_grad():
            made = torch.compile(
                function, backend="cudaforge", options={"cache_dir": str(tmp_path)}
            )
            torch.testing.assert_close(made(x), function(x))
    assert cudaforge_backend.stats().fallbacks == {}
