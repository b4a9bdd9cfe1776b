"""Other threads call compiled functions while a region's rival is traced."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from cudaforge_backend._native import _C
from cudaforge_backend.integration import analysis, fx_signature, rivals
from cudaforge_backend.integration.tracing import beside_running_programs
from test_forging import softmax
from torch import fx, nn
from torch._inductor.graph import GraphLowering


def call_elsewhere(function: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> object:
    """What a call in another thread gives, or raises."""
    seen: list[object] = []

    def call() -> None:
        try:
            seen.append(function(x))
        except Exception as error:
            seen.append(error)

    other = threading.Thread(target=call)
    other.start()
    other.join()
    return seen[0]


def test_a_compilation_does_not_rewind_the_programs_random_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    restore, run = torch.random.set_rng_state, GraphLowering.run
    drawn: list[Any] = []

    def drawing(graph: Any, *inputs: Any) -> Any:
        drawn.append(call_elsewhere(lambda x: torch.rand(3), torch.ones(1)))
        return run(graph, *inputs)

    monkeypatch.setattr(GraphLowering, "run", drawing)
    torch.manual_seed(3)
    expected = torch.rand(2, 3)
    torch.manual_seed(3)
    with torch._inductor.config.patch(force_disable_caches=True):
        rivals.inductor_call(softmax(29), torch.device("cpu"))
    assert torch.equal(torch.stack([*drawn, torch.rand(3)]), expected)
    assert torch.random.set_rng_state is restore


def test_a_compiled_module_is_called_in_the_middle_of_a_trace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model: Any = torch.compile(nn.Sequential(nn.Linear(8, 8), nn.ReLU()), backend="eager")
    x = torch.randn(4, 8)
    expected = model(x)
    graph_of, seen = fx_signature.region_graph, []

    def region_graph(signature: _C.Signature, device: torch.device) -> Any:
        graph = graph_of(signature, device)

        def traced(*inputs: torch.Tensor) -> Any:
            seen.append(call_elsewhere(model, x))
            return graph(*inputs)

        return traced

    monkeypatch.setattr(rivals, "region_graph", region_graph)
    signature = softmax(28)
    device = torch.device("cpu")
    inputs = rivals.make_inputs(signature, device, 0)
    made = rivals.inductor_call(signature, device)
    torch.testing.assert_close(made(inputs)[0], torch.softmax(inputs[0], -1))
    (result,) = seen
    torch.testing.assert_close(result, expected)


def test_a_compiled_function_is_called_while_another_is_analysed(
    all_win: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by threads that all call for the first time."""
    other: Any = torch.compile(lambda x: x + 1, backend="eager")
    x = torch.randn(4, 61)
    other(x)
    find, seen = analysis.find_regions, []

    def while_traced(*args: Any) -> Any:
        fx._symbolic_trace._is_fx_tracing_flag = True
        try:
            seen.append(call_elsewhere(other, x))
        finally:
            fx._symbolic_trace._is_fx_tracing_flag = False
        return find(*args)

    monkeypatch.setattr(analysis, "find_regions", while_traced)
    torch.compile(lambda x: torch.softmax(x, -1), backend="cudaforge")(x)
    assert seen and all(torch.equal(one, x + 1) for one in seen)


def test_the_setting_is_put_back_by_the_last_one() -> None:
    config = torch._dynamo.config
    assert config.error_on_nested_fx_trace
    first, second = beside_running_programs(), beside_running_programs()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert not config.error_on_nested_fx_trace
    second.__exit__(None, None, None)
    assert config.error_on_nested_fx_trace
