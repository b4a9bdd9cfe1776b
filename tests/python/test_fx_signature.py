"""Signatures of FX nodes, and graphs of signatures."""

from __future__ import annotations

import json
import math

import pytest
import torch
from cudaforge_backend._native import _C
from cudaforge_backend.integration.fx_signature import is_getitem, region_graph, signature
from graphs import trace
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

CPU = torch.device("cpu")


def described(graph: fx.Graph) -> str:
    """The canonical signature of a whole graph."""
    members = [node for node in graph.nodes if node.op == "call_function"]
    (results,) = graph.output_node().args
    assert isinstance(results, tuple)
    outputs = [(n.args[0], n.args[1]) if is_getitem(n) else (n, 0) for n in results]
    text, _, _ = signature(members, outputs)  # type: ignore[arg-type]
    return _C.normalize(text)


def every_form(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    aten = torch.ops.aten
    wide = aten._to_copy.default(
        x, dtype=torch.float64, layout=torch.strided, device=CPU, memory_format=torch.channels_last
    )
    values, places = aten.max.dim(aten.gelu.default(wide, approximate="tanh"), 1)
    bounded = aten.clamp.default(aten.sum.dim_IntList(values, [0, 1], True), -math.inf, 0.5)
    return aten.add.Tensor(bounded, y, alpha=2), places


def test_a_graph_of_a_signature_has_that_signature() -> None:
    x, y = torch.randn(4, 3, 2, 2), torch.randn(2, dtype=torch.float64)
    text = described(trace(every_form, x, y))
    for form in ('"in"', '"out":1', '"str"', '"dtype"', '"layout"', '"device"', '"memory_format"'):
        assert form in text
    assert {"float": "-inf"} in json.loads(text)["nodes"][4]["args"]
    made = region_graph(text, CPU)
    mode = FakeTensorMode()
    FakeTensorProp(made, mode).propagate(x, y)
    assert described(made.graph) == text


@pytest.mark.parametrize(
    ("change", "named"),
    [({"op": "aten::no_such_op"}, "no_such_op"), ({"args": [{"colour": "red"}]}, "colour")],
)
def test_what_cannot_be_a_graph_is_named(change: dict[str, object], named: str) -> None:
    region = json.loads(described(trace(lambda x: (torch.softmax(x, -1),), torch.randn(4, 8))))
    region["nodes"][0] |= change
    with pytest.raises(ValueError, match=named):
        region_graph(json.dumps(region), CPU)
