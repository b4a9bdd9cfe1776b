"""Signatures of FX nodes, and graphs of signatures."""

from __future__ import annotations

import math
import operator

import pytest
import torch
from cudaforge_backend._native import _C
from cudaforge_backend.integration.fx_signature import (
    Unsupported,
    is_getitem,
    node_values,
    region_graph,
    signature,
)
from graphs import trace
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

CPU = torch.device("cpu")


def described(graph: fx.Graph) -> _C.Signature:
    """The signature of a whole graph."""
    members = [node for node in graph.nodes if node.op == "call_function"]
    (results,) = graph.output_node().args
    assert isinstance(results, tuple)
    outputs = [(n.args[0], n.args[1]) if is_getitem(n) else (n, 0) for n in results]
    text, _, _ = signature(members, outputs)  # type: ignore[arg-type]
    return _C.Signature.parse(text).normalized()


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
    whole = described(trace(every_form, x, y))
    for form in ('"in"', '"out":1', '"str"', '"dtype"', '"layout"', '"device"', '"memory_format"'):
        assert form in whole.text
    assert {"float": "-inf"} in whole.to_dict()["nodes"][4]["args"]
    made = region_graph(whole, CPU)
    mode = FakeTensorMode()
    FakeTensorProp(made, mode).propagate(x, y)
    assert described(made.graph) == whole


def attention_call(
    kind: str, *args: object, heads: int = 4, keys: int = 16, **kwargs: object
) -> fx.Graph:
    """A call of one of PyTorch's kernels for attention, with what each returns with it."""
    graph = fx.Graph()
    q, k, v = (graph.placeholder(name) for name in "qkv")
    for node, count, length in ((q, 4, 16), (k, heads, keys), (v, heads, keys)):
        node.meta["val"] = torch.empty(2, count, length, 8)
    target = getattr(torch.ops.aten, f"_scaled_dot_product_{kind}").default
    call = graph.call_function(target, (q, k, v, *args), kwargs)
    rest = (torch.empty(2, 4, 16), None, 16, torch.empty(2, dtype=torch.uint64))
    call.meta["val"] = (torch.empty(2, 4, 16, 8), *rest)
    graph.output((graph.call_function(operator.getitem, (call, 0)),))
    return graph


def test_attention_is_one_call_whatever_kernel_was_chosen() -> None:
    texts = {
        described(attention_call("cudnn_attention", None, False, 0.0, True, scale=0.5)),
        described(attention_call("efficient_attention", None, False, 0.0, True, scale=0.5)),
        described(attention_call("flash_attention", 0.0, True, scale=0.5)),
        described(attention_call("flash_attention_for_cpu", is_causal=True, scale=0.5)),
    }
    assert len(texts) == 1
    (node,) = texts.pop().to_dict()["nodes"]
    assert node["op"] == "aten::scaled_dot_product_attention"
    inputs = [{"in": 0}, {"in": 1}, {"in": 2}]
    assert node["args"] == [*inputs, None, 0, True]
    assert node["kwargs"] == {"enable_gqa": False, "scale": 0.5}
    assert len(node["outputs"]) == 1
    (grouped,) = described(attention_call("flash_attention", heads=2)).to_dict()["nodes"]
    assert grouped["kwargs"]["enable_gqa"] is True


def test_attention_whose_diagonal_may_end_elsewhere_is_no_region() -> None:
    described(attention_call("flash_attention", keys=24))
    with pytest.raises(NotImplementedError, match="causal"):
        described(attention_call("flash_attention", 0.0, True, keys=24))


def test_attention_with_dropout_or_for_a_backward_is_no_region() -> None:
    with pytest.raises(NotImplementedError, match="random"):
        described(attention_call("flash_attention", 0.5))
    graph = attention_call("flash_attention")
    call = graph.output_node().all_input_nodes[0].all_input_nodes[0]
    with pytest.raises(Unsupported, match="absent_output"):
        signature([call], [(call, 1)])


def test_an_op_that_torch_lacks_is_named() -> None:
    whole = described(trace(lambda x: (torch.softmax(x, -1),), torch.randn(4, 8)))
    with pytest.raises(ValueError, match="no_such_op"):
        region_graph(_C.Signature.parse(whole.text.replace("_softmax", "no_such_op")), CPU)


@pytest.mark.parametrize("weight", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("op", ["group", "layer"])
def test_norms_that_are_traced_to_other_dtypes_are_left(
    weight: torch.dtype, training: bool, op: str
) -> None:
    def norm(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        if op == "group":
            made = torch.ops.aten.native_group_norm.default(x, w, w, 4, 8, 6, 2, 1e-5)
        else:
            made = torch.ops.aten.native_layer_norm.default(x.mT, [8], w, w, 1e-5)
        return made if training else made[:1]

    x, w = torch.randn(4, 8, 6).bfloat16(), torch.ones(8, dtype=weight)
    traced = trace(norm, x, w)
    real = [value.dtype for value in norm(x, w)]
    (call,) = (node for node in traced.nodes if op in str(node.target))
    if training and weight != x.dtype:
        assert real != [value.dtype for value in call.meta["val"]]
        with pytest.raises(Unsupported, match="mixed_dtypes"):
            node_values(call)
    else:
        found = [None if value is None else value.dtype for value in node_values(call)]
        assert found[: len(real)] == real


def test_the_gradient_of_a_norm_of_mixed_dtypes_is_left() -> None:
    def gradient(x: Tensor, w: Tensor, mean: Tensor) -> tuple[Tensor, ...]:
        given = (x, x, mean, mean, w, 4, 8, 6, 2, [True, True, True])
        return torch.ops.aten.native_group_norm_backward.default(*given)

    x, w, mean = torch.randn(4, 8, 6), torch.ones(8), torch.ones(4, 2)
    for half, reason in ((x.bfloat16(), "mixed_dtypes"), (x, "")):
        graph = trace(gradient, half, w, mean.to(half.dtype))
        (call,) = (node for node in graph.nodes if "group" in str(node.target))
        if reason:
            with pytest.raises(Unsupported, match=reason):
                node_values(call)
        else:
            assert len(node_values(call)) == 3
