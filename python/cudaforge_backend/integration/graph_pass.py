"""The graph pass inside Inductor: regions with winners become calls of cudaforge::region_v1."""

from __future__ import annotations

import hashlib
import json
import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import fx
from torch._inductor.custom_graph_pass import CustomGraphPass

from cudaforge_backend._native import _C
from cudaforge_backend.torch_compat import Table

from .frozen import Weights, mark_traced
from .partition import Region, find_regions
from .rules import Rules, kept_overloads
from .sink_views import VERSION, sink_views

FORMAT = 3  # of what this pass does to a graph: Inductor's caches keep its results by it


def kept_table(rules: Rules, patches: Mapping[str, Any]) -> dict[Any, Callable[..., Any]]:
    """Inductor's decompositions under these options of its, without those of the anchors."""
    from torch._inductor import config
    from torch._inductor.decomposition import select_decomp_table

    kept = kept_overloads(rules)
    with config.patch(dict(patches)):  # such as fallback_random
        table = {op: fn for op, fn in select_decomp_table().items() if op not in kept}
    return Table(table, f"cudaforge keeps {' '.join(sorted(map(str, kept)))}")


class SubstitutePass(CustomGraphPass):
    """Replaces the regions whose keys are in `winners` (key -> its record's checksum) and
    decomposes the anchors that it leaves, which Inductor expects to be decomposed already.
    weights: of the graph without a backward, if they are frozen."""

    def __init__(
        self, winners: Mapping[str, str], rules: Rules, weights: Weights | None = None
    ) -> None:
        self.winners = dict(winners)
        self.weights = weights
        self.rules = rules
        self.substituted = 0  # regions replaced so far, over all graphs of this compilation
        facts = [
            FORMAT,
            VERSION,
            sorted(self.winners.items()),
            sorted(rules.anchors),
            sorted(rules.heavy),
            sorted(rules.pointwise),
            *([weights.indices, weights.inputs] if weights is not None else []),
        ]
        self._uuid = hashlib.sha256(json.dumps(facts).encode()).hexdigest()

    def uuid(self) -> str:
        """The same in every process that would do the same to a graph."""
        return self._uuid

    def __call__(self, graph: fx.Graph) -> None:
        from torch._inductor.pattern_matcher import stable_topological_sort

        mark_traced(graph, self.weights)
        if self.winners:
            sink_views(graph, self.rules)
        regions, _ = find_regions(
            graph, self.rules, lambda region, within: region.key in self.winners
        )
        renamed: dict[fx.Node, fx.Node] = {}
        for region in regions:
            replace_region(graph, region, renamed)
            self.substituted += 1
        decompose_anchors(graph, self.rules)
        stable_topological_sort(graph)
        graph.lint()  # type: ignore[no-untyped-call]


def replace_region(graph: fx.Graph, region: Region, renamed: dict[fx.Node, fx.Node]) -> None:
    """Replaces the region's nodes by one call of cudaforge::region_v1 and its getitems. The graph
    may need a topological sort afterwards. renamed: from outputs of replaced regions to the nodes
    that replace them; this region's are added."""
    last = max(region.members)
    values = [_value(node, out) for node, out in region.outputs]
    inputs = [renamed.get(n, n) for n in region.inputs]
    named = (_C.region_id(region.key), region.signature.text)
    with graph.inserting_after(last):
        call = graph.call_function(torch.ops.cudaforge.region_v1.default, (inputs, *named))
    call.meta["val"] = values
    # Inductor keeps an operator's input strides only if they are given here. Otherwise it may
    # change them, for example after a convolution, and the winner could not be called.
    call.meta["eager_input_vals"] = (([n.meta["val"] for n in inputs], *named), {})
    call.meta["stack_trace"] = last.meta.get("stack_trace")
    members = set(region.members)
    position = call
    for i, (node, out) in enumerate(region.outputs):
        with graph.inserting_after(position):
            position = graph.call_function(operator.getitem, (call, i))
        position.meta["val"] = values[i]
        for old in _holders(node, out):
            new = position
            old.replace_all_uses_with(new, delete_user_cb=lambda user: user not in members)
            renamed[old] = new
    for node in sorted(region.members, reverse=True):
        graph.erase_node(node)


def _value(node: fx.Node, out: int) -> torch.Tensor:
    value = node.meta["val"]
    found = value[out] if isinstance(value, tuple | list) else value
    assert isinstance(found, torch.Tensor)
    return found


def _holders(node: fx.Node, out: int) -> list[fx.Node]:
    if not isinstance(node.meta["val"], tuple | list):
        return [node]
    return [u for u in node.users if u.target is operator.getitem and u.args[1] == out]


def decompose_anchors(graph: fx.Graph, rules: Rules) -> None:
    """Decomposes every remaining anchor in `graph` with Inductor's own table."""
    from torch._inductor.decomposition import select_decomp_table

    table = select_decomp_table()
    kept = kept_overloads(rules)
    for node in list(graph.nodes):
        if node.op == "call_function" and node.target in kept and node.target in table:
            _splice_decomposition(graph, node, table)


def _splice_decomposition(graph: fx.Graph, node: fx.Node, table: Mapping[Any, Any]) -> None:
    from torch._inductor.virtualized import V
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.utils import _pytree as pytree

    leaves, spec = pytree.tree_flatten((node.args, node.kwargs))
    operands = [leaf for leaf in leaves if isinstance(leaf, fx.Node)]
    target: Any = node.target

    def call(*values: Any) -> Any:
        given = iter(values)
        filled = [next(given) if isinstance(leaf, fx.Node) else leaf for leaf in leaves]
        args, kwargs = pytree.tree_unflatten(filled, spec)
        return target(*args, **kwargs)

    with V.fake_mode:
        traced = make_fx(call, decomposition_table=dict(table))(*(n.meta["val"] for n in operands))
    made: dict[fx.Node, Any] = dict(
        zip((n for n in traced.graph.nodes if n.op == "placeholder"), operands, strict=True)
    )
    with graph.inserting_before(node):
        for inner in traced.graph.nodes:
            if inner.op == "call_function":
                made[inner] = graph.node_copy(inner, made.__getitem__)
            elif inner.op == "get_attr":
                raise RuntimeError(f"decomposing {node.target} needs a constant")
    results: Any = fx.map_arg(traced.graph.output_node().args[0], made.__getitem__)
    if isinstance(results, tuple | list):
        for user in list(node.users):
            index: Any = user.args[1]
            user.replace_all_uses_with(results[index])
            graph.erase_node(user)
    else:
        node.replace_all_uses_with(results)
    graph.erase_node(node)
