"""Eager calls that are looked up, on a GPU: CUDA graphs, streams, several devices."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import cudaforge_backend
import pytest
import torch
from cudaforge_backend import disable, enable
from cudaforge_backend._native import _C
from eager_calls import SOFTMAX, seen
from torch import Tensor

pytestmark = pytest.mark.gpu

LONG = 2_000_000_000  # GPU cycles: about a second


def exact(x: Tensor) -> Tensor:
    """The softmax of float32 numbers, by operators that are not intercepted, in float64."""
    powers = x.double().exp()
    return (powers / powers.sum(-1, keepdim=True)).float()


def captured(work: Callable[[], Tensor]) -> tuple[torch.cuda.CUDAGraph, Tensor]:
    """`work` as a graph, and its result, which each replay writes."""
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = work()
    return graph, result


def replays_right(graph: torch.cuda.CUDAGraph, x: Tensor, y: Tensor) -> None:
    """Three replays, each with new numbers in `x`, write their softmax to `y`."""
    for _ in range(3):
        x.copy_(torch.randn_like(x))
        y.fill_(float("nan"))
        graph.replay()
        torch.testing.assert_close(y, exact(x))


def test_a_winner_runs_inside_a_captured_graph(blocking: dict[str, Any]) -> None:
    x = torch.randn(16, 131, device="cuda")
    with enable([SOFTMAX], **blocking):
        for _ in range(2):
            x.softmax(-1)
        assert seen().hits == 1
        cudaforge_backend.reset_stats()
        graph, y = captured(lambda: x.softmax(-1))
        assert asdict(seen()) == {"calls": 1, "hits": 1, "fallbacks": 0, "misses": {}}
    replays_right(graph, x, y)


def test_a_call_first_seen_during_capture_takes_the_previous_kernel(
    blocking: dict[str, Any],
) -> None:
    x = torch.randn(16, 132, device="cuda")
    x.softmax(-1)  # CUDA has loaded PyTorch's kernel
    with enable([SOFTMAX], **blocking):
        graph, y = captured(lambda: x.softmax(-1))
        assert asdict(seen()) == {"calls": 1, "hits": 0, "fallbacks": 0, "misses": {"capture": 1}}
        assert cudaforge_backend.stats().forged == 0
        for _ in range(2):  # after the capture: first seen, as usual
            torch.testing.assert_close(x.softmax(-1), exact(x))
        assert seen().misses == {"capture": 1, "new": 1} and seen().hits == 1
        cudaforge_backend.reset_stats()
    replays_right(graph, x, y)


def test_a_call_without_a_winner_is_captured_as_it_is(tmp_path: Path) -> None:
    x = torch.randn(16, 133, device="cuda")
    with enable([SOFTMAX], on_miss="record", cache_dir=str(tmp_path)):
        x.softmax(-1)
        graph, y = captured(lambda: x.softmax(-1))
        assert seen().misses == {"new": 1, "no_kernel": 1}
    replays_right(graph, x, y)


def test_gradients_are_served_inside_a_captured_graph(blocking: dict[str, Any]) -> None:
    backward = "aten::_softmax_backward_data"
    x = torch.randn(16, 134, device="cuda", requires_grad=True)
    weights = torch.randn(16, 134, device="cuda")

    def gradient() -> Tensor:
        (found,) = torch.autograd.grad(x.softmax(-1), x, weights)
        return found

    with enable([SOFTMAX, backward], **blocking):
        stream = torch.cuda.Stream()  # PyTorch requires a warm-up on a side stream
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                gradient()
        torch.cuda.current_stream().wait_stream(stream)
        cudaforge_backend.reset_stats()
        graph, y = captured(gradient)
        counts = cudaforge_backend.stats().eager
        assert counts[SOFTMAX].hits == counts[backward].hits == 1
    for _ in range(3):
        with torch.no_grad():
            x.copy_(torch.randn_like(x))
        graph.replay()
        torch.testing.assert_close(y, gradient())


def test_a_winner_runs_on_the_current_stream(blocking: dict[str, Any]) -> None:
    """On any other it would read the zeros that are there while the stream is busy."""
    values = torch.randn(16, 135, device="cuda")
    x = torch.zeros_like(values)
    stream, ended = torch.cuda.Stream(), torch.cuda.Event()

    def on_stream(cycles: int) -> Tensor:
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(cycles)
            x.copy_(values)
            y = x.softmax(-1)
            ended.record(stream)
        return y

    with enable([SOFTMAX], **blocking):
        for _ in range(3):  # makes the kernel, and has memory for the stream
            on_stream(1000)
        torch.cuda.synchronize()
        x.zero_()
        cudaforge_backend.reset_stats()
        y = on_stream(LONG)
        assert not ended.query()  # nothing has waited for the GPU
        assert asdict(seen()) == {"calls": 1, "hits": 1, "fallbacks": 0, "misses": {}}
        ended.synchronize()  # of this stream alone
    torch.testing.assert_close(y, exact(values))


def test_two_streams_do_not_wait_for_each_other(blocking: dict[str, Any]) -> None:
    x = torch.randn(16, 136, device="cuda")
    busy, free = torch.cuda.Stream(), torch.cuda.Stream()
    torch.cuda.synchronize()
    with enable([SOFTMAX], **blocking):
        with torch.cuda.stream(free):
            for _ in range(3):
                x.softmax(-1)
        torch.cuda.synchronize()
        ended = torch.cuda.Event()
        with torch.cuda.stream(busy):
            torch.cuda._sleep(LONG)
            ended.record(busy)
        with torch.cuda.stream(free):
            y = x.softmax(-1)
        free.synchronize()
        assert not ended.query()
    torch.testing.assert_close(y, exact(x))
    assert seen().hits == 3


def test_an_operator_with_a_kernel_for_one_device_alone_is_intercepted_there(
    blocking: dict[str, Any],
) -> None:
    op = "aten::_fused_rms_norm"
    x, weight = torch.randn(64, 1024, device="cuda"), torch.rand(1024, device="cuda")
    expected = torch.nn.functional.rms_norm(x.double(), (1024,), weight.double(), 1e-6).float()
    with enable(["aten::rms_norm"], **blocking):
        for _ in range(2):
            y = torch.nn.functional.rms_norm(x, (1024,), weight, 1e-6)
            torch.testing.assert_close(y, expected)
        torch.nn.functional.rms_norm(x.cpu(), (1024,))  # made of others
    assert asdict(seen(op)) == {"calls": 2, "hits": 1, "fallbacks": 0, "misses": {"new": 1}}


def test_attention_without_a_backward_is_served(tmp_path: Path) -> None:
    """By the kernel that comes along, which is of aten::scaled_dot_product_attention, whatever
    kernel PyTorch has chosen for that."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    packs = Path(__file__).parents[2] / "cache" / "packs" / _C.arch("cuda").removeprefix("cuda:")
    found = list(packs.glob("scaled_dot_product_attention-*"))
    if not found:
        pytest.skip(f"no kernel for attention comes along for {packs.name}")
    shutil.copytree(found[0], tmp_path / "pack" / found[0].name)
    _C.use_cache(str(tmp_path / "cache"))
    assert _C.adopt_pack(str(tmp_path / "pack"))["imported"] == 1
    q, k, v = (torch.randn(4, 16, 1024, 64, device="cuda") for _ in range(3))
    attention = torch.nn.functional.scaled_dot_product_attention
    exact = attention(q.double(), k.double(), v.double(), is_causal=True).float()
    op = "aten::_scaled_dot_product_efficient_attention"
    cache = str(tmp_path / "cache")

    def results() -> list[Any]:
        of_kernel = torch.ops.aten._scaled_dot_product_efficient_attention
        made = of_kernel(q, k, v, None, False, 0.0, True)
        return [(one.shape, one.dtype, one.device) for one in made]

    with (
        enable([op], on_miss="record", cache_dir=cache),
        sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION),
    ):
        with torch.no_grad():
            for _ in range(3):
                torch.testing.assert_close(attention(q, k, v, is_causal=True), exact)
        assert asdict(seen(op)) == {"calls": 3, "hits": 2, "fallbacks": 0, "misses": {"new": 1}}
        graph, y = captured(lambda: attention(q, k, v, is_causal=True))
        y.fill_(float("nan"))
        graph.replay()
        torch.testing.assert_close(y, exact)
        assert seen(op).hits == 3
        served = results()
        assert seen(op).hits == 4
        disable()
        assert served == results()
    with enable([op], on_miss="record", cache_dir=cache):
        q.requires_grad_()
        for _ in range(2):  # a backward will follow, which reads what a region does not hold
            (gradient,) = torch.autograd.grad(attention(q, k, v, is_causal=True).sum(), q)
            assert gradient.isfinite().all()
        misses = {"new": 2, "unsupported": 1}
        assert asdict(seen(op)) == {"calls": 7, "hits": 4, "fallbacks": 0, "misses": misses}


# Where there is one GPU, or none, there is no such test, rather than one that is skipped.
if torch.cuda.device_count() > 1:

    def test_calls_are_served_on_the_device_of_their_tensors(blocking: dict[str, Any]) -> None:
        inputs = [torch.randn(16, 137, device=f"cuda:{index}") for index in (0, 1)]
        expected = [exact(x) for x in inputs]
        with enable([SOFTMAX], **blocking):
            for current in (0, 1):  # neither is special
                with torch.cuda.device(current):
                    for x, right in zip(inputs, expected, strict=True):
                        for _ in range(2):
                            y = x.softmax(-1)
                            assert y.device == x.device
                            torch.testing.assert_close(y, right)
                    assert torch.cuda.current_device() == current
        # On each device the call was first seen once.
        assert asdict(seen()) == {"calls": 8, "hits": 6, "fallbacks": 0, "misses": {"new": 2}}

    def test_graphs_are_served_on_the_device_of_their_tensors(blocking: dict[str, Any]) -> None:
        model = torch.compile(lambda x: x.softmax(-1), backend="cudaforge", options=blocking)
        with torch.cuda.device(0):
            for index in (1, 0):
                x = torch.randn(16, 139, device=f"cuda:{index}")
                for _ in range(3):
                    y = model(x)
                    assert y.device == x.device
                    torch.testing.assert_close(y, exact(x))
                    assert torch.cuda.current_device() == 0
