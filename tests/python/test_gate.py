"""The gate: what pays in place is served, what does not is Inductor's, and the verdict is kept."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import cudaforge_backend
import pytest
import torch
from cudaforge_backend import _C
from cudaforge_backend.integration import gate
from torch import fx, nn

ARCH = "cpu:x86-64-v4"
NAME = "a" * 64


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A store in memory that the gate writes to."""
    memory = _C.KernelStore.in_memory()

    class Fake:
        def __getattr__(self, name: str) -> Any:
            return (lambda: memory) if name == "store" else getattr(_C, name)

    monkeypatch.setattr(gate, "_C", Fake())
    monkeypatch.setattr(gate, "_SECONDS", 0.01)
    return memory


def taking(seconds: float, calls: list[str], name: str) -> Callable[..., Any]:
    """A graph that takes its time and notes its calls."""

    def run(*inputs: Any) -> Any:
        calls.append(name)
        time.sleep(seconds)
        return (inputs[0] + 1,)

    return run


@pytest.mark.parametrize(
    ("without_s", "with_s", "pays"), [(0.004, 0.001, True), (0.001, 0.004, False)]
)
def test_the_faster_one_is_served_and_the_verdict_kept(
    store: Any, without_s: float, with_s: float, pays: bool
) -> None:
    calls: list[str] = []
    without, with_winners = taking(without_s, calls, "without"), taking(with_s, calls, "with")
    gated = gate.GatedCallable(NAME, ARCH, ["k"], without, with_winners)
    x = torch.zeros(3)
    assert torch.equal(gated(x)[0], x + 1)
    verdict = store.get_graph(NAME, ARCH)
    assert verdict["pays"] is pays
    assert verdict["regions"] == ["k"]
    assert gate.stored(NAME, ARCH) is pays
    calls.clear()
    gated(x)
    assert calls == ["with" if pays else "without"]


def test_buffers_are_written_once(store: Any) -> None:
    def count(buffer: torch.Tensor) -> Any:
        buffer += 1
        return (buffer.clone(),)

    gated = gate.GatedCallable(NAME, ARCH, [], count, count)
    buffer = torch.zeros(1)
    gated(buffer)
    assert buffer.item() == 1


def test_random_state_is_left_alone(store: Any) -> None:
    def draw(x: torch.Tensor) -> Any:
        return (x + torch.rand(1),)

    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    assert torch.equal(gate.GatedCallable(NAME, ARCH, [], draw, draw)(torch.zeros(1))[0], expected)


def test_parameters_get_no_gradient_from_the_timing(store: Any) -> None:
    weight = nn.Parameter(torch.ones(3))
    gated = gate.GatedCallable(NAME, ARCH, [], lambda w: (w * 2,), lambda w: (w * 2,))
    gated(weight)[0].sum().backward()
    assert weight.grad is not None
    assert torch.equal(weight.grad, torch.full((3,), 2.0))


def test_one_thread_decides(store: Any) -> None:
    calls: list[str] = []
    gated = gate.GatedCallable(
        NAME, ARCH, [], taking(0.001, calls, "without"), taking(0.002, calls, "with")
    )
    threads = [threading.Thread(target=gated, args=(torch.zeros(1),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert calls[-4:] == ["without"] * 4


def test_a_graph_that_cannot_be_timed_is_served(store: Any) -> None:
    def fails(x: torch.Tensor) -> Any:
        raise RuntimeError("no")

    gated = gate.GatedCallable(NAME, ARCH, [], fails, lambda x: (x + 1,))
    before = cudaforge_backend.stats()["fallbacks"].get("gate_failed", 0)
    with pytest.warns(UserWarning, match="could not be timed"):
        assert gated(torch.zeros(1))[0].item() == 1
    assert cudaforge_backend.stats()["fallbacks"]["gate_failed"] == before + 1
    assert store.get_graph(NAME, ARCH) is None


def test_names_tell_graphs_shapes_and_winners_apart() -> None:
    def traced(function: Callable[..., Any]) -> fx.GraphModule:
        return fx.symbolic_trace(function)

    x = torch.zeros(2, 3)
    name = gate.graph_name(traced(lambda x: x + 1), [x], {"k": "c"})
    assert name == gate.graph_name(traced(lambda x: x + 1), [x], {"k": "c"})
    assert name != gate.graph_name(traced(lambda x: x + 2), [x], {"k": "c"})
    assert name != gate.graph_name(traced(lambda x: x + 1), [x.t()], {"k": "c"})
    assert name != gate.graph_name(traced(lambda x: x + 1), [x], {"k": "d"})
    assert len(name) == 64
