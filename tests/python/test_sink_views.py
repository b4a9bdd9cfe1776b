"""Views move below the pointwise ops after a product, and the graph computes the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import cudaforge_backend
import pytest
import torch
from cudaforge_backend.integration import graph_pass, known_graphs, rules
from cudaforge_backend.integration.graph_pass import SubstitutePass
from cudaforge_backend.integration.partition import Region, find_regions
from cudaforge_backend.integration.rules import Rules, native_rules
from cudaforge_backend.integration.sink_views import sink_views
from cudaforge_backend.reasons import GraphOutcome
from graphs import ops, trace
from torch import Tensor, fx, nn
from torch.nn import functional as F

aten = torch.ops.aten
RULES = native_rules(heavy=True, agents=True)
X, W, BIAS = torch.randn(6, 8), torch.randn(8, 4), torch.randn(4)  # their product: [6, 4]
THREE = torch.randn(2, 3, 4)
A, B = torch.randn(4, 3, 5), torch.randn(4, 5, 2)  # their product: [4, 3, 2]


def linear(x: Tensor, w: Tensor) -> Tensor:
    """A product and its view, as of a linear layer."""
    return (x @ w).view(2, 3, 4)


def values_of(graph: fx.Graph) -> list[tuple[Any, ...]]:
    """What a graph's user sees of its results, by the fake values."""
    found: list[tuple[Any, ...]] = []

    def note(node: fx.Node) -> fx.Node:
        value = node.meta["val"]
        found.append((value.shape, value.stride(), value.dtype))
        return node

    fx.map_arg(graph.output_node().args, note)
    return found


def sink(function: Callable[..., Any], *inputs: Tensor, by: Rules = RULES) -> tuple[fx.Graph, int]:
    """The graph of a function after the rewrite, which must have kept its results, and how many ops
    were rewritten."""
    graph = trace(function, *inputs)
    before, text = values_of(graph), str(graph)
    count = sink_views(graph, by)
    graph.lint()  # type: ignore[no-untyped-call]
    assert (str(graph) == text) == (count == 0)
    assert sink_views(graph, by) == 0
    assert values_of(graph) == before
    module = fx.GraphModule(nn.Module(), graph)
    for node in graph.nodes:
        if node.op == "call_function":
            args, kwargs = fx.map_arg((node.args, node.kwargs), lambda n: n.meta["val"])
            again, value = node.target(*args, **kwargs), node.meta["val"]
            assert (again.shape, again.stride(), again.dtype) == (
                value.shape,
                value.stride(),
                value.dtype,
            )
    torch.testing.assert_close(module(*inputs), function(*inputs), rtol=0, atol=0)
    return graph, count


def regions(graph: fx.Graph) -> list[list[str]]:
    """The ops of each region."""
    return [ops(region.signature) for region in find_regions(graph, RULES)[0]]


def test_a_bias_gradient_reads_what_its_weights_gradient_reads() -> None:
    x, g = torch.randn(6, 8), torch.randn(6, 4)
    both = ["mm", "sum.dim_IntList"]
    makes = replace(RULES, why_not_generated=lambda s: None if ops(s) == both else "another region")

    def gradients(x: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
        return g.sum(0, keepdim=True), g.permute(1, 0) @ x

    def product_first(x: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
        return g.permute(1, 0) @ x, g.sum(0)

    def with_a_largest(x: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
        return g.permute(1, 0) @ x, g.amax(0)

    def other_sums(x: Tensor, g: Tensor) -> tuple[Tensor, ...]:
        everything = aten.sum.dim_IntList(g, None), g.sum((0, 1)), g.sum(1)
        return *everything, g.permute(1, 0) @ x

    for function in (gradients, product_first):
        graph, count = sink(function, x, g, by=makes)
        assert count == 1
        (sums,) = (node for node in graph.nodes if node.target == aten.sum.dim_IntList)
        (product,) = (node for node in graph.nodes if node.target == aten.mm.default)
        assert sums.all_input_nodes[0] is product.args[0]
        assert sink(function, x, g)[1] == 0  # no generator makes one kernel of both
    for function in (with_a_largest, other_sums):
        assert sink(function, x, g, by=makes)[1] == 0
    assert sink(lambda g: (g.permute(1, 0) * 2, g.sum(0)), g, by=makes)[1] == 0


def test_products_of_equal_views_share_an_operand() -> None:
    """Layers of one input: the graph has a view of it for each."""

    def gated(x: Tensor, gate: Tensor, up: Tensor) -> Tensor:
        return F.relu(F.linear(x, gate)) * F.linear(x, up)

    x, w = torch.randn(2, 3, 8), torch.randn(4, 8)
    graph, _ = sink(gated, x, w, w.clone())
    products = [n for n in graph.nodes if n.target is aten.mm.default]
    assert len(products) == 2 and len({n.args[0] for n in products}) == 1

    offered: list[list[str]] = []

    def take(region: Region, within: Region | None) -> bool:
        offered.append(ops(region.signature))
        return True

    find_regions(graph, replace(RULES, why_not_generated=lambda signature: None), take)
    assert offered == [["mm", "mm", "mul.Tensor", "relu"]]


def test_views_that_differ_are_not_merged() -> None:
    def views(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        return x.view(6, 8) @ w, x.view(3, 16).relu(), x.view(6, 8), x.view(6, 8)

    graph, _ = sink(views, torch.randn(2, 3, 8), W)
    # Two results stay two tensors.
    assert sum(n.target is aten.view.default for n in graph.nodes) == 4


def test_a_chain_joins_its_product() -> None:
    graph, count = sink(lambda b, x, w: F.gelu(torch.addmm(b, x, w).view(2, 3, 4)) * 2, BIAS, X, W)
    assert count == 2
    assert regions(graph) == [["addmm", "gelu", "mul.Tensor"]]
    assert [str(n.target) for n in graph.nodes][-2:] == ["aten.reshape.default", "output"]


@pytest.mark.parametrize(
    "other",
    [
        torch.randn(2, 3, 4),
        torch.randn(4),
        torch.randn(1, 1, 4),
        torch.randn(1, 4),
        torch.randn(2, 3, 1),
        torch.randn(1, 1, 1),
        torch.tensor(2.0),
        torch.tensor(2.0, dtype=torch.float64),
        torch.randn(2, 3, 4) > 0,
        torch.randn(2, 3, 8)[:, :, ::2],
    ],
)
@pytest.mark.parametrize("swapped", [False, True])
def test_operands_that_come_along(other: Tensor, swapped: bool) -> None:
    graph, count = sink(
        lambda x, w, r: r + linear(x, w) if swapped else linear(x, w) * r, X, W, other
    )
    assert count == 1
    assert len(regions(graph)[0]) == 2


@pytest.mark.parametrize(
    "other",
    [
        torch.randn(2, 1, 1),
        torch.randn(1, 3, 4),
        torch.randn(3, 1),
        torch.randn(3, 2, 4).transpose(0, 1),
        torch.randn(3, 4).expand(2, 3, 4),
        torch.randn(5, 2, 3, 4),
        torch.randn(1, 3, 4).expand(2, 3, 4),
    ],
)
def test_operands_that_cannot_come_along(other: Tensor) -> None:
    assert sink(lambda x, w, r: linear(x, w) + r, X, W, other)[1] == 0


def test_an_expanded_operand_cannot_come_along() -> None:
    """A fake tensor has a view of it with strides (0, 1); a real one has none."""
    other = torch.randn(1, 1, 4, 6).expand(3, 1, 4, 6)
    x, w = torch.randn(12, 8), torch.randn(8, 6)
    assert sink(lambda x, w, r: (x @ w).view(3, 1, 4, 6) + r, x, w, other)[1] == 0


def test_a_tensor_that_is_viewed_alike_needs_no_view() -> None:
    graph, count = sink(lambda x, w, y: linear(x, w) * y.view(2, 3, 4), X, W, torch.randn(6, 4))
    assert count == 1
    assert sum(n.target in (aten.view.default, aten.reshape.default) for n in graph.nodes) == 1


def test_a_view_of_a_view() -> None:
    def function(x: Tensor, w: Tensor) -> Tensor:
        first = linear(x, w)
        second = first.view(6, 4).view(2, 3, 4)
        return second + first

    graph, count = sink(function, X, W)
    assert count == 1
    assert regions(graph) == [["add.Tensor", "mm"]]


def test_an_operand_is_viewed_once_for_all_its_readers() -> None:
    graph, count = sink(lambda x, w, r: F.relu(linear(x, w) + r) * r, X, W, THREE)
    assert count == 3
    assert sum(n.target is aten.reshape.default for n in graph.nodes) == 2


@pytest.mark.parametrize(
    "function",
    [
        lambda x, w: (x @ w).view(2, 3, 4).transpose(0, 1) * 2,
        lambda x, w: (x @ w).view(2, 3, 4).sum(0),
        lambda x, w: torch.softmax((x @ w).view(2, 3, 4) * 2, -1),  # the softmax's own chain
        lambda x, w: (x * 2).view(2, 3, 8) + 1,  # not of a product
        lambda x, w: torch.zeros_like((x @ w).view(2, 3, 4)),
        lambda x, w: aten.clone((x @ w).view(1, 2, 3, 4), memory_format=torch.channels_last),
        lambda x, w: torch.cumsum(x @ w, 0).view(2, 3, 4) * 2,
        lambda x, w: (x @ w)[:0].view(0, 2, 2) * 2,
    ],
)
def test_what_stays(function: Callable[..., Any]) -> None:
    assert sink(function, X, W)[1] == 0


def test_an_op_with_an_operand_that_needs_the_product_elsewhere_stays() -> None:
    """It could not be in the product's region: the region would need its own result."""

    def function(x: Tensor, w: Tensor) -> Tensor:
        made = linear(x, w)
        return made * made.sum(-1, keepdim=True) + 1

    assert sink(function, X, W)[1] == 0


def test_a_chain_that_other_ops_read_as_well() -> None:
    def function(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        made = linear(x, w)
        active = F.relu(made)
        return made, active.transpose(0, 1), active.sum(-1), active * 2

    graph, count = sink(function, X, W)
    assert count == 2
    assert ["mm", "mul.Tensor", "relu"] in regions(graph)
    assert sum(n.target is aten.relu.default for n in graph.nodes) == 1


def test_residuals_of_one_chain_after_another() -> None:
    def function(x: Tensor, w: Tensor, r: Tensor) -> Tensor:
        first = linear(x, w) + r
        second = linear(first.view(6, 4) @ w.t(), w) + first
        return second * 2

    graph, count = sink(function, X, W, THREE)
    assert count == 3
    assert sorted(regions(graph)) == [
        ["add.Tensor", "mm"],
        ["add.Tensor", "mm", "mul.Tensor"],
        ["mm"],
    ]
    made = [n.args[0] for n in graph.find_nodes(op="call_function", target=aten.reshape.default)]
    assert len(made) == 3  # of r, and below both chains: the second reads the first's 2-D sum


def test_gates_of_two_products() -> None:
    graph, count = sink(lambda x, w: F.silu(linear(x, w)) * linear(x + 1, w), X, W)
    assert count == 2
    assert ["mm", "mul.Tensor", "silu"] in regions(graph)


@pytest.mark.parametrize(
    "cast",
    [
        lambda x: x.to(torch.float64),
        lambda x: torch.ops.prims.convert_element_type.default(x, torch.bfloat16),
    ],
)
def test_casts(cast: Callable[[Tensor], Tensor]) -> None:
    graph, count = sink(lambda x, w: cast(linear(x, w)) * 2, X, W)
    assert count == 2
    assert len(regions(graph)[0]) == 3


@pytest.mark.parametrize("view", [aten.reshape.default, aten._unsafe_view.default])
def test_other_kinds_of_views(view: Any) -> None:
    assert sink(lambda x, w: F.relu(view(x @ w, [2, 3, 4])), X, W)[1] == 1


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (torch.randn(2, 2, 3, 2), 1),
        (torch.randn(1, 1, 3, 2), 1),
        (torch.randn(3, 1), 1),
        (torch.randn(2, 1, 1, 2), 0),
        (torch.randn(2, 1, 3, 2), 0),
    ],
)
def test_batched_products(other: Tensor, expected: int) -> None:
    graph, count = sink(lambda a, b, r: torch.bmm(a, b).view(2, 2, 3, 2) + r, A, B, other)
    assert count == expected
    assert ("add.Tensor" in regions(graph)[0]) == bool(expected)


def test_a_backward_graph() -> None:
    def function(g: Tensor, w: Tensor, saved: Tensor) -> tuple[Tensor, Tensor]:
        made = aten.gelu_backward((g @ w).view(2, 3, 4), saved).view(6, 4)
        return made.t() @ g, made.sum(0)

    graph, count = sink(function, X, W, THREE)
    assert count == 1
    assert ["gelu_backward", "mm"] in regions(graph)


def test_what_a_node_knows_besides_its_value_stays() -> None:
    graph = trace(lambda x, w: F.relu(linear(x, w)), X, W)
    relu = graph.find_nodes(op="call_function", target=aten.relu.default)[0]
    relu.meta["stack_trace"] = "here"
    assert sink_views(graph, RULES) == 1
    (view,) = relu.users
    assert (relu.meta["stack_trace"], view.meta["stack_trace"]) == ("here", "here")
    assert (relu.meta["val"].shape, view.meta["val"].shape) == ((6, 4), (2, 3, 4))


def test_names_depend_on_the_graph_only() -> None:
    def function(x: Tensor, w: Tensor, r: Tensor) -> Tensor:
        return F.relu(linear(x, w) + r) * r

    assert str(sink(function, X, W, THREE)[0]) == str(sink(function, X, W, THREE)[0])


def test_nothing_moves_where_no_heavy_op_is_looked_for() -> None:
    plain = replace(RULES, heavy=frozenset())
    assert sink(lambda x, w: F.relu(linear(x, w)), X, W, by=plain)[1] == 0


def test_what_is_kept_by_a_name_depends_on_the_version(monkeypatch: pytest.MonkeyPatch) -> None:
    gm = fx.symbolic_trace(nn.Linear(8, 4))

    def names() -> set[str]:
        settings = cudaforge_backend.options.parse(None, None)
        plan = known_graphs.plan_name(gm, [X], settings, RULES, False)
        return {SubstitutePass({}, RULES).uuid(), plan}

    before = names()
    for module in (graph_pass, known_graphs):
        monkeypatch.setattr(module, "VERSION", -1)
    assert not before & names()


class Mlp(nn.Module):
    """Two linear layers and a residual, of three dimensions."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(8, 32), nn.Linear(32, 8)

    def forward(self, x: Tensor) -> Tensor:
        added: Tensor = x + self.down(F.gelu(self.up(x)))
        return added


@pytest.mark.parametrize("training", [False, True])
def test_a_compiled_model(all_win: None, monkeypatch: pytest.MonkeyPatch, training: bool) -> None:
    """The pass finds the regions of the plan in Inductor's own graph."""
    monkeypatch.setattr(rules, "rules_for", lambda arch, agents: RULES)
    found: list[list[str]] = []
    replace_region = graph_pass.replace_region

    def note(graph: fx.Graph, region: Any, renamed: Any) -> None:
        found.append(ops(region.signature))
        replace_region(graph, region, renamed)

    monkeypatch.setattr(graph_pass, "replace_region", note)
    model, x = Mlp(), torch.randn(2, 5, 8)
    made = torch.compile(model, backend="cudaforge", options={"on_miss": "fallback"})
    with torch.set_grad_enabled(training):
        got, expected = made(x), model(x)
        torch.testing.assert_close(got, expected)
        if training:
            parameters = list(model.parameters())
            grads = torch.autograd.grad(got.square().sum(), parameters)
            wanted = torch.autograd.grad(expected.square().sum(), parameters)
            torch.testing.assert_close(grads, wanted)
    assert ["add.Tensor", "addmm"] in found
    assert any("addmm" in names and "erf" in names for names in found)
    if training:
        assert ["mm", "mul.Tensor"] in found
    assert cudaforge_backend.stats().graphs[GraphOutcome.SUBSTITUTED] == 1
