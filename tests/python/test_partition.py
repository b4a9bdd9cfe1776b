"""Which nodes make a region."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from cudaforge_backend._native import _C
from cudaforge_backend.integration.partition import MAX_OFFERS, Region, find_regions
from graphs import ops, rules, trace
from torch import Tensor

HEAVY = frozenset({"aten::mm"})
X = torch.randn(4, 8)
ROW = torch.randn(8)


def test_chain_before_and_after_an_anchor() -> None:
    graph = trace(lambda x, w: (torch.softmax(x * w, -1) + 1).exp(), X, ROW)
    regions, left = find_regions(graph, rules())
    assert [ops(r.signature) for r in regions] == [["_softmax", "add.Tensor", "exp", "mul.Tensor"]]
    assert len(regions[0].inputs) == 2
    assert not left


def test_a_heavy_op_is_the_agents_where_no_generator_makes_its_region() -> None:
    def refusal(signature: _C.Signature) -> str | None:
        return None if ops(signature) == ["mm"] else "only alone"

    asked: list[tuple[list[str], bool]] = []

    def take(region: Region, within: Region | None) -> bool:
        asked.append((ops(region.signature), region.by_agents))
        return not region.by_agents

    graph = trace(lambda x, y: torch.relu(x @ y), X, torch.randn(8, 4))
    heavy = replace(rules(refusal), heavy=frozenset({"aten::mm"}))
    regions, _ = find_regions(graph, heavy, take)
    assert asked == [(["mm", "relu"], True), (["mm"], False)]
    assert [ops(r.signature) for r in regions] == [["mm"]]


def test_no_anchor_no_region() -> None:
    regions, left = find_regions(trace(lambda x: (x * 2).exp() + x, X), rules())
    assert regions == []
    assert not left


def test_a_value_with_another_user_stays_outside_before_and_becomes_an_output_after() -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        before = x * 2
        anchor = torch.softmax(before, -1)
        return before, anchor, anchor + 1

    regions, _ = find_regions(trace(function, X), rules())
    assert [ops(r.signature) for r in regions] == [["_softmax", "add.Tensor"]]
    assert len(regions[0].outputs) == 2


def test_views_are_never_inside() -> None:
    regions, _ = find_regions(
        trace(lambda x: torch.softmax((x * 2).view(8, 4), -1).t() + 1, X), rules()
    )
    assert [ops(r.signature) for r in regions] == [["_softmax"]]


def test_several_anchors_merge_when_a_generator_can() -> None:
    def rms_norm(x: Tensor, w: Tensor) -> Tensor:
        return torch.softmax(x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * w, -1)

    graph = trace(rms_norm, X, ROW)
    merged, _ = find_regions(graph, rules())
    assert [ops(r.signature) for r in merged] == [
        ["_softmax", "add.Tensor", "mean.dim", "mul.Tensor", "mul.Tensor", "mul.Tensor", "rsqrt"]
    ]

    def one_anchor(signature: _C.Signature) -> str | None:
        anchors = {"_softmax", "mean.dim"} & set(ops(signature))
        return "two" if len(anchors) > 1 else None

    apart, _ = find_regions(graph, rules(one_anchor))
    assert [len({"_softmax", "mean.dim"} & set(ops(r.signature))) for r in apart] == [1, 1]


@pytest.mark.parametrize(
    ("refused", "expected"),
    [("exp", ["_softmax", "mul.Tensor"]), ("mul.Tensor", ["_softmax", "exp"])],
)
def test_shrinks_to_what_can_be_generated(refused: str, expected: list[str]) -> None:
    graph = trace(lambda x: torch.softmax(x * 2, -1).exp(), X)
    refusal = lambda signature: "no" if refused in ops(signature) else None  # noqa: E731
    regions, _ = find_regions(graph, rules(refusal))
    assert [ops(r.signature) for r in regions] == [expected]


def test_reason_when_nothing_can_be_generated() -> None:
    regions, left = find_regions(trace(lambda x: torch.softmax(x, -1), X), rules(lambda s: "no"))
    assert regions == []
    assert left == {"no_kernel_generator": 1}


def test_a_heavy_op_has_its_chains_and_no_other_anchor() -> None:
    graph = trace(lambda x, w: torch.softmax(torch.relu(x.mm(w)) * 2, -1), X, torch.randn(8, 8))
    assert [ops(r.signature) for r in find_regions(graph, rules())[0]] == [
        ["_softmax", "mul.Tensor", "relu"]
    ]

    def refusal(signature: _C.Signature) -> str | None:
        return "a matrix product" if "mm" in ops(signature) else None

    heavy = replace(rules(refusal), heavy=frozenset({"aten::mm"}))
    found, _ = find_regions(graph, heavy)
    assert [(ops(r.signature), r.by_agents) for r in found] == [
        (["mm", "mul.Tensor", "relu"], True),
        (["_softmax"], False),
    ]
    found, _ = find_regions(graph, heavy, lambda region, within: not region.by_agents)
    assert [ops(r.signature) for r in found] == [["_softmax", "mul.Tensor", "relu"]]


def test_what_normalisation_refuses_is_counted() -> None:
    def normalize(text: str) -> _C.Signature:
        raise NotImplementedError("views")

    made = replace(rules(), normalize=normalize)
    _, left = find_regions(trace(lambda x: torch.softmax(x, -1), X), made)
    assert left == {"unsupported_op": 1}


def test_unsupported_dtype_is_counted() -> None:
    _, left = find_regions(
        trace(lambda x: x.sum(-1), torch.ones(3, 4, dtype=torch.complex64)), rules()
    )
    assert left == {"complex_dtype": 1}


def _layer_norm_backward(mask: list[bool]) -> torch.fx.Graph:
    def function(grad: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, w: Tensor) -> list[Tensor]:
        found = torch.ops.aten.native_layer_norm_backward(grad, x, [8], mean, rstd, w, None, mask)
        return [value.exp() for value in found if value is not None]

    return trace(function, X, X, torch.randn(4, 1), torch.rand(4, 1), ROW)


@pytest.mark.parametrize("mask", [[True, False, False], [False, True, False], [True, True, False]])
def test_outputs_that_are_absent_are_left_out(mask: list[bool]) -> None:
    regions, left = find_regions(_layer_norm_backward(mask), rules())
    assert not left
    region = regions[0].signature.to_dict()
    assert [output is not None for output in region["nodes"][0]["outputs"]] == mask
    assert len(region["outputs"]) == sum(mask)


def test_an_op_without_outputs_is_counted() -> None:
    graph = _layer_norm_backward([True, False, False])
    anchor = next(n for n in graph.nodes if "layer_norm" in n.name)
    anchor.meta["val"] = (None, None, None)
    assert find_regions(graph, rules()) == ([], {"absent_output": 1})


def test_an_absent_output_that_is_read_is_counted() -> None:
    graph = _layer_norm_backward([True, False, False])
    anchor = next(n for n in graph.nodes if "layer_norm" in n.name)
    getitem = next(iter(anchor.users))
    getitem.args = (anchor, 1)
    assert find_regions(graph, rules()) == ([], {"absent_output": 1})


def test_no_cycle_between_a_region_and_what_is_outside() -> None:
    def function(x: Tensor) -> Tensor:
        anchor = torch.softmax(x, -1)
        # Depends on the anchor from outside.
        detour = (anchor @ anchor.t()).view(4, 4).sum() + anchor
        return anchor * detour

    for region in find_regions(trace(function, X), rules())[0]:
        members = set(region.members)
        reached = {u for m in members for u in m.users if u not in members}
        while reached:
            assert not reached & set(region.inputs)
            reached = {u for n in reached for u in n.users}


def test_regions_do_not_depend_on_each_other_in_a_circle() -> None:
    def function(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        a, b = torch.softmax(x, -1), torch.softmax(y, 0)
        return a + b.exp(), b * a.exp()

    graph = trace(function, X, torch.randn(4, 8))
    regions, _ = find_regions(graph, rules())
    depends = {
        i: {j for j, other in enumerate(regions) if set(other.members) & set(region.inputs)}
        for i, region in enumerate(regions)
    }
    assert not any(i in depends[j] for i in depends for j in depends[i])


def test_multiple_outputs_come_with_their_getitems() -> None:
    def function(x: Tensor) -> Tensor:
        y, mean, _ = torch.ops.aten.native_layer_norm(x, [8], None, None, 1e-5)
        return y.relu() + mean

    regions, _ = find_regions(trace(function, X), rules())
    assert [ops(r.signature) for r in regions] == [["add.Tensor", "native_layer_norm", "relu"]]


def test_an_output_that_nothing_uses_is_no_output() -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        y, _, rstd = torch.ops.aten.native_layer_norm(x, [8], None, None, 1e-5)
        return y.relu(), rstd

    graph = trace(function, X)
    getitems = [node.args[1] for node in graph.nodes if "getitem" in node.name]
    assert getitems == [0, 1, 2]  # one of them without users
    regions, _ = find_regions(graph, rules())
    outputs = regions[0].signature.to_dict()["outputs"]
    assert {(o["node"], o["out"]) for o in outputs} == {(0, 2), (1, 0)}


def test_equal_graphs_give_equal_keys_whatever_surrounds_them() -> None:
    alone, _ = find_regions(trace(lambda x: torch.softmax(x * 2, -1), X), rules())
    inside, _ = find_regions(
        trace(lambda x: torch.softmax((x @ x.t() @ x) * 2, -1).t(), X), rules()
    )
    assert alone[0].key == inside[0].key


def test_the_signature_distinguishes_layouts() -> None:
    def signature(x: Tensor) -> dict[str, object]:
        regions, _ = find_regions(trace(lambda x: torch.softmax(x, 1), x), rules())
        found: dict[str, object] = regions[0].signature.to_dict()["inputs"][0]
        return found

    assert signature(torch.randn(4, 8).t())["strides"] == [1, 8]
    assert signature(torch.randn(1, 3, 2, 2).to(memory_format=torch.channels_last))["strides"] == [
        12, 1, 6, 3,
    ]  # fmt: skip
    assert signature(X)["alignment"] == 16


def test_alignment_follows_the_storage_offset() -> None:
    graph = trace(lambda x: torch.softmax(x[1:], -1), torch.randn(5, 3))
    regions, _ = find_regions(graph, rules())
    assert regions[0].signature.to_dict()["inputs"][0]["alignment"] == 4


def test_parts_are_offered_where_a_region_is_refused() -> None:
    def function(x: Tensor, w: Tensor) -> Tensor:
        return torch.softmax(torch.softmax(x * 2, -1) * w, -1).exp()

    graph = trace(function, X, ROW)
    offers: list[tuple[list[str], bool]] = []

    def take(region: Region, within: Region | None) -> bool:
        offers.append((ops(region.signature), within is not None))
        return ops(region.signature).count("_softmax") == 1

    regions, left = find_regions(graph, rules(), take)
    whole = ["_softmax", "_softmax", "exp", "mul.Tensor", "mul.Tensor"]
    assert offers[:2] == [(whole, False), (["_softmax", "mul.Tensor", "mul.Tensor"], True)]
    assert [ops(r.signature) for r in regions] == [
        ["_softmax", "mul.Tensor", "mul.Tensor"],
        ["_softmax", "exp"],
    ]
    assert not left


def test_refusals_are_bounded_and_end_in_no_region() -> None:
    offers: list[str] = []

    def take(region: Region, within: Region | None) -> bool:
        offers.append(region.key)
        return False

    def function(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        return (torch.relu(x) @ y) * 2, y.sum(0), y.sum(1)

    graph = trace(function, X, torch.randn(8, 3))
    regions, left = find_regions(graph, replace(rules(), heavy=HEAVY), take)
    assert regions == []
    assert not left
    assert len(offers) == len(set(offers)) == MAX_OFFERS + 2  # the sums alone are two more


def offered(
    function: Callable[..., object], *inputs: Tensor, refused: tuple[list[str], ...] = ()
) -> list[list[str]]:
    """The ops of the regions that are offered; none is taken."""
    graph = trace(function, *inputs)
    made = replace(rules(lambda s: "no" if ops(s) in refused else None), heavy=HEAVY)
    asked: list[list[str]] = []

    def take(region: Region, within: Region | None) -> bool:
        asked.append(ops(region.signature))
        return False

    find_regions(graph, made, take)
    return asked


def gated(x: Tensor, gate: Tensor, up: Tensor) -> Tensor:
    return torch.relu(x @ gate) * (x @ up)


def test_products_of_one_input_are_one_region() -> None:
    w = torch.randn(8, 4)
    both = ["mm", "mm", "mul.Tensor", "relu"]
    assert offered(gated, X, w, w)[:2] == [both, ["mm", "mul.Tensor", "relu"]]

    def apart(x: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
        return tuple(x @ weight for weight in weights)

    assert offered(apart, X, w, w, w)[0] == ["mm"] * 3
    assert offered(apart, X, w, w, w, w, w)[:2] == [["mm"] * 4, ["mm"]]


def test_products_of_other_sizes_or_inputs_are_apart() -> None:
    w, wide = torch.randn(8, 4), torch.randn(8, 5)
    assert ["mm", "mm"] not in offered(lambda x, a, b: (x @ a, x @ b), X, w, wide)
    assert ["mm", "mm"] not in offered(
        lambda x, y, a, b: (x @ a, y @ b), X, X.clone(), w, w.clone()
    )
    # The second needs the first.
    square = torch.randn(8, 8)
    assert offered(lambda x, a: (x @ a, (x @ a) @ a), X, square)[0] != ["mm"] * 3


def test_products_of_two_inputs_with_shared_weights() -> None:
    """Those of one input are a region, though others share their weights."""
    w = torch.randn(8, 4)

    def towers(x: Tensor, y: Tensor, a: Tensor, b: Tensor) -> list[Tensor]:
        return [t @ m for t in (x, y) for m in (a, b)]

    graph = trace(towers, X, X.clone(), w, w.clone())

    def one_left(signature: _C.Signature) -> str | None:
        nodes = signature.to_dict()["nodes"]
        lefts = {json.dumps(node["args"][0]) for node in nodes}
        return None if len(lefts) == 1 else "several left operands"

    made = replace(rules(one_left), heavy=HEAVY)
    regions, _ = find_regions(graph, made)
    assert [ops(region.signature) for region in regions] == [["mm", "mm"]] * 2


def test_products_alone_only_if_nothing_computes_with_several() -> None:
    """One product with the rest of a gate has less to store than both without it."""
    w = torch.randn(8, 4)
    both = ["mm", "mm", "mul.Tensor", "relu"]
    assert offered(gated, X, w, w, refused=(both,))[0] == ["mm", "mul.Tensor", "relu"]

    def apart(x: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        return torch.relu(x @ a), (x @ b) * 2

    assert offered(apart, X, w, w, refused=(both,))[0] == ["mm", "mm"]


def gradients(x: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    """Of a linear layer's weight and bias, from its input and the gradient of its result."""
    return x.t() @ g, g.sum(0, keepdim=True)


def test_what_reduces_an_operand_of_a_product_is_in_its_region() -> None:
    both = ["mm", "sum.dim_IntList"]
    assert offered(gradients, X, torch.randn(4, 3)) == [both, ["mm"], ["sum.dim_IntList"]]
    g = torch.randn(4, 8)

    def after_it(x: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
        weight, bias = gradients(x, g)
        return weight * 2, bias

    assert offered(after_it, X, g)[0] == ["mm", "mul.Tensor", "sum.dim_IntList"]

    def of_the_result(x: Tensor, g: Tensor) -> Tensor:
        return (x.t() @ g).sum(0)

    def of_what_the_product_makes(x: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
        bias = g.sum(0, keepdim=True)
        return (x * bias).t() @ g, bias

    for apart in (of_the_result, of_what_the_product_makes):
        assert both not in offered(apart, X, g)


def test_a_part_comes_with_a_refused_region_that_has_all_of_it() -> None:
    def function(x: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
        return (torch.relu(x).t() @ g) * 2, g.sum(0, keepdim=True)

    told: list[tuple[list[str], list[str]]] = []

    def take(region: Region, within: Region | None) -> bool:
        assert within is None or set(region.members) < set(within.members)
        told.append((ops(region.signature), ops(within.signature) if within else []))
        return False

    graph = trace(function, X, torch.randn(4, 3))
    find_regions(graph, replace(rules(), heavy=HEAVY), take)
    whole = ["mm", "mul.Tensor", "sum.dim_IntList"]
    assert told[0] == (whole, [])
    assert (["mm"], whole) in told


def test_agents_have_no_region_of_a_product_and_a_reduction() -> None:
    both = ["mm", "sum.dim_IntList"]
    assert both not in offered(gradients, X, torch.randn(4, 3), refused=(both,))


def test_agents_have_no_region_of_several_products() -> None:
    w = torch.randn(8, 4)
    both = ["mm", "mm", "mul.Tensor", "relu"]
    asked = offered(gated, X, w, w, refused=(both, ["mm", "mm"]))
    assert both not in asked and ["mm", "mm"] not in asked
    assert ["mm", "mul.Tensor", "relu"] in asked
