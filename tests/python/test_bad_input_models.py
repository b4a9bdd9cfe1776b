"""Models and data that CudaForge cannot take, or that are odd: PyTorch's own result, no error."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cudaforge_backend
import pytest
import torch
from cudaforge_backend._native import _C
from cudaforge_backend.integration import gate
from forged import compiled
from torch import Tensor

NAN, INF = float("nan"), float("inf")


def fallbacks() -> dict[str, int]:
    return cudaforge_backend.stats().fallbacks


def quiet(made: Callable[..., Any], *inputs: Any) -> Any:
    """The result, without a warning of ours."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        result = made(*inputs)
    assert [w for w in seen if w.category is cudaforge_backend.CudaForgeWarning] == []
    return result


def softmax_chain(x: Tensor) -> Tensor:
    return torch.softmax(x * 2, -1)


def test_unsupported_ops_stay_next_to_a_served_region(forged: Path) -> None:
    def function(x: Tensor) -> Tensor:
        return torch.linalg.inv(x @ x.t() + torch.eye(6)).sort(-1).values + softmax_chain(x[:, :6])

    x = torch.randn(6, 24)
    torch.testing.assert_close(quiet(compiled(function, forged), x), function(x))
    assert cudaforge_backend.stats().hits == 1


@pytest.mark.parametrize(
    ("function", "x", "reason"),
    [
        (lambda x: x.sum(-1), torch.randn(4, 8, dtype=torch.complex64), "complex_dtype"),
        (lambda x: x.sum(-1), torch.ones(4, 8, dtype=torch.uint8), None),
        (lambda x: x.float().sum(-1), torch.ones(4, 8).to(torch.float8_e4m3fn), None),
        (lambda x: torch.sum(x, -1).to_dense(), torch.eye(4).to_sparse(), None),
        (lambda x: x.sum(-1), torch.ones((2,) * 9), None),
        (lambda x: torch.sort(x).values.median(), torch.randn(9), None),
    ],
    ids=["complex", "uint8", "float8", "sparse", "nine_dimensions", "sort_and_median"],
)
def test_odd_types(
    forged: Path, function: Callable[[Tensor], Tensor], x: Tensor, reason: str | None
) -> None:
    torch.testing.assert_close(quiet(compiled(function, forged), x), function(x))
    assert "backend_failed" not in fallbacks()
    if reason is not None:
        assert fallbacks()[reason] >= 1


class Tagged(Tensor):
    """A subclass that keeps what it is through every op."""


def test_tensor_subclass(forged: Path) -> None:
    x = torch.randn(8, 24).as_subclass(Tagged)  # type: ignore[arg-type]
    y = quiet(compiled(softmax_chain, forged), x)
    assert type(y) is type(softmax_chain(x))
    torch.testing.assert_close(y.as_subclass(Tensor), softmax_chain(x).as_subclass(Tensor))
    assert fallbacks() == {"tensor_subclass": 1}


def test_wrapper_subclass(forged: Path) -> None:
    from torch.testing._internal.two_tensor import TwoTensor

    x = TwoTensor(torch.randn(8, 24), torch.randn(8, 24))
    y, expected = quiet(compiled(softmax_chain, forged), x), softmax_chain(x)
    torch.testing.assert_close((y.a, y.b), (expected.a, expected.b))
    assert fallbacks() == {"tensor_subclass": 1}


def test_a_call_with_a_lazily_negated_tensor_leaves_the_winner_in_use(
    forged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: list[tuple[str, str]] = []
    real = gate.stored

    def stored(name: str, arch: str) -> gate.Verdict | None:
        names.append((name, arch))
        return real(name, arch)

    monkeypatch.setattr(gate, "stored", stored)

    def call(x: Tensor) -> cudaforge_backend.Stats:
        torch._dynamo.reset()
        cudaforge_backend.reset_stats()
        made = compiled(softmax_chain, forged, on_miss="record")
        y = quiet(made, x)
        torch._dynamo.reset()
        torch.testing.assert_close(y, torch.compile(softmax_chain)(x))
        return cudaforge_backend.stats()

    x = torch.randn(8, 25)
    compiled(softmax_chain, forged)(x)
    assert call(x).hits == 1
    before = [_C.store().get_graph(*name) for name in names]
    negated = call(torch._neg_view(x))
    assert (negated.hits, negated.fallbacks) == (0, {"lazy_conjugate": 1})
    assert [_C.store().get_graph(*name) for name in names] == before
    assert call(x).hits == 1


def test_nested_tensors(forged: Path) -> None:
    x = torch.nested.nested_tensor([torch.randn(2, 24), torch.randn(3, 24)], layout=torch.jagged)
    y, expected = quiet(compiled(softmax_chain, forged), x), softmax_chain(x)
    torch.testing.assert_close(y.values(), expected.values())


def test_mutated_input_around_a_served_region(forged: Path) -> None:
    def function(x: Tensor, out: Tensor) -> Tensor:
        x.mul_(0.5)
        out.copy_(softmax_chain(x))
        return softmax_chain(x.add_(1))

    x = torch.randn(8, 24)
    mine, theirs = (x.clone(), torch.zeros(8, 24)), (x.clone(), torch.zeros(8, 24))
    made = compiled(function, forged)
    torch.testing.assert_close(quiet(made, *mine), function(*theirs))
    torch.testing.assert_close(mine, theirs)
    assert cudaforge_backend.stats().hits > 0


def test_aliased_inputs(forged: Path) -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        return softmax_chain(x + y)

    made, x = compiled(function, forged), torch.randn(8, 24)
    pairs = ((x, x), (x, x.clone()), (x, x[:1].expand(8, 24)), (x, torch.randn(8, 24)))
    for served, pair in enumerate(pairs, 1):
        torch.testing.assert_close(quiet(made, *pair), function(*pair))
        assert cudaforge_backend.stats().hits == served


def test_graph_break_and_python_side_effects(forged: Path) -> None:
    seen = []

    def function(x: Tensor) -> Tensor:
        y = softmax_chain(x)
        seen.append(y.sum().item())
        return softmax_chain(y)

    made, x = compiled(function, forged), torch.randn(8, 24)
    torch.testing.assert_close(quiet(made, x), function(x))
    assert seen[0] == pytest.approx(seen[1])
    assert cudaforge_backend.stats().hits == 2


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.randn(24, 8).t(),
        lambda: torch.randn(8, 48)[:, ::2],
        lambda: torch.randn(9, 25)[1:, 1:],
        lambda: torch.randn(1, 24).expand(8, 24),
        lambda: torch.randn(2, 3, 4, 24).to(memory_format=torch.channels_last),
        lambda: torch.randn(0, 24),
        lambda: torch.randn(8 * 24 + 1)[1:].view(8, 24),
    ],
    ids=["transposed", "every_second", "offset", "expanded", "channels_last", "empty", "unaligned"],
)
def test_layouts_with_real_kernels(forged: Path, make: Callable[[], Tensor]) -> None:
    made, x = compiled(softmax_chain, forged), make()
    got, expected = quiet(made, x), softmax_chain(x)
    torch.testing.assert_close(got, expected)
    assert got.stride() == expected.stride()
    assert (cudaforge_backend.stats().hits >= 1) == (x.numel() > 0)
    dense = torch.randn(x.shape)  # and the other layout afterwards
    torch.testing.assert_close(quiet(made, dense), softmax_chain(dense))


def test_an_input_that_is_less_aligned_than_at_first(forged: Path) -> None:
    made = compiled(softmax_chain, forged)
    quiet(made, torch.randn(8, 24))
    hits = cudaforge_backend.stats().hits
    assert hits == 1
    x = torch.randn(8 * 24 + 1)[1:].view(8, 24)
    torch.testing.assert_close(quiet(made, x), softmax_chain(x))


def test_two_devices(forged: Path) -> None:
    def function(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return softmax_chain(x), y.sum(-1)

    x, y = torch.randn(8, 24), torch.empty(4, 6, device="meta")
    first, second = quiet(compiled(function, forged), x, y)
    torch.testing.assert_close(first, softmax_chain(x))
    assert second.device.type == "meta"
    assert second.shape == (4,)
    assert fallbacks() == {"mixed_devices": 1}


def rows_of_special_values() -> Tensor:
    x = torch.randn(12, 24)
    x[0, 3] = NAN
    x[1, :] = NAN
    x[2, 5] = INF
    x[3, 5] = -INF
    x[4, :] = -INF
    x[5, :] = INF
    x[6, ::2], x[6, 1::2] = INF, -INF
    x[7, :] = 1e-40
    x[8, :], x[8, ::2] = 0.0, -0.0
    x[9, :] = torch.finfo(torch.float32).max
    x[10, :] = torch.finfo(torch.float32).min
    return x


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.softmax(x, -1),
        lambda x: torch.log_softmax(x + 1, -1),
        lambda x: torch.amax(x * 1, -1),
        lambda x: x.sum(-1),
        lambda x: torch.cumsum(x, -1),
        lambda x: torch.nn.functional.layer_norm(x, (24,)),
    ],
    ids=["softmax", "log_softmax", "amax", "sum", "cumsum", "layer_norm"],
)
def test_special_values_with_real_kernels(
    forged: Path, function: Callable[[Tensor], Tensor], dtype: torch.dtype
) -> None:
    x = rows_of_special_values().to(dtype)
    got, expected = quiet(compiled(function, forged), x), function(x)
    assert torch.equal(got.isnan(), expected.isnan())
    assert torch.equal(got == INF, expected == INF)
    assert torch.equal(got == -INF, expected == -INF)
    tolerance = 1e-5 if dtype is torch.float32 else 2e-2
    torch.testing.assert_close(got, expected, rtol=tolerance, atol=tolerance, equal_nan=True)
    assert cudaforge_backend.stats().hits == 1


@pytest.mark.parametrize(
    "function",
    [
        lambda x, w: (x * torch.sign(w)).sum(-1),
        lambda x, w: torch.maximum(x, w.abs()).amax(-1),
        lambda x, w: (x + w.clamp(-1, 2)).cumsum(-1),
        lambda x, w: (x * torch.tanh(w).isnan()).sum(-1),
        lambda x, w: torch.softmax(x / w, -1),
    ],
    ids=["sign", "maximum", "clamp", "isnan", "divide"],
)
def test_special_values_in_a_small_operand(
    forged: Path, function: Callable[[Tensor, Tensor], Tensor]
) -> None:
    x = torch.randn(16, 24)
    w = torch.tensor([1.5, NAN, INF, -INF, 0.0, -0.0, 1e-40, -3.0]).repeat(2)[:, None]
    expected = function(x, w)
    got = quiet(compiled(function, forged), x, w)
    torch.testing.assert_close(got, expected, equal_nan=True)
    assert cudaforge_backend.stats().hits == 1


def test_a_region_after_a_convolution_is_served(forged: Path) -> None:
    """Inductor would give the convolution's result other strides than the traced graph has."""
    layers = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.GroupNorm(2, 8))
    made, x = compiled(layers.eval(), forged), torch.randn(8, 3, 12, 12)
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(quiet(made, x), layers(x))
    assert cudaforge_backend.stats().hits == 2
    assert fallbacks() == {}


def test_denormals_are_not_flushed(forged: Path) -> None:
    x = torch.full((8, 24), 1e-41)
    made = compiled(lambda x: torch.amax(x * 1, -1), forged)
    assert torch.equal(quiet(made, x), torch.amax(x, -1))
    assert cudaforge_backend.stats().hits == 1


def test_an_error_of_the_model_is_the_users(forged: Path) -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        return softmax_chain(x) @ y

    with pytest.raises(Exception, match=r"shape|size|mat1") as error:
        compiled(function, forged)(torch.randn(8, 24), torch.randn(8, 24))
    assert "cudaforge failed" not in str(error.value)
