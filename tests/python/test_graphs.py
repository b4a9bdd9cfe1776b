"""Names of whole graphs, and where they run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from cudaforge_backend.integration.graphs import device_of, graph_name
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode


def test_names_distinguish_graphs_shapes_and_facts() -> None:
    def traced(function: Callable[..., Any]) -> fx.GraphModule:
        return fx.symbolic_trace(function)

    x = torch.zeros(2, 3)
    name = graph_name(traced(lambda x: x + 1), [x], "c")
    assert name == graph_name(traced(lambda x: x + 1), [x], "c")
    assert name != graph_name(traced(lambda x: x + 2), [x], "c")
    assert name != graph_name(traced(lambda x: x + 1), [x.t()], "c")
    assert name != graph_name(traced(lambda x: x + 1), [x], "d")
    assert name != graph_name(traced(lambda x: x + 1), [torch._neg_view(x)], "c")
    z = torch.zeros(2, 3, dtype=torch.complex64)
    names = {graph_name(traced(lambda x: x + 1), [v], "c") for v in (z, z.conj())}
    assert len(names) == 2
    assert len(name) == 64


def test_a_graph_has_one_name_on_every_gpu() -> None:
    gm = fx.symbolic_trace(lambda x, y: x + y)

    def name(*devices: str) -> str:
        with FakeTensorMode():
            return graph_name(gm, [torch.empty(2, 3, device=device) for device in devices], "c")

    assert name("cuda:0", "cuda:0") == name("cuda:1", "cuda:1")
    assert name("cuda:0", "cuda:1") == name("cuda:1", "cuda:0") != name("cuda:0", "cuda:0")
    assert name("cpu", "cpu") != name("cuda:0", "cuda:0")


def test_a_cpu_number_together_with_tensors_on_another_device() -> None:
    number = torch.tensor(2.0)
    far = torch.empty(2, device="meta")
    assert device_of([3, number, far]) == far.device
    assert device_of([number]) == number.device
