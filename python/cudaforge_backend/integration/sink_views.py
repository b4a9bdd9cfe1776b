"""Moves views below the pointwise ops that follow a product: gelu(view(mm)) becomes view(gelu(mm)).

A linear layer of a 3-D tensor is a 2-D product of a view, and a view of the product. A region has
no views, so that the pointwise ops after the view could never be in the product's region. And
several layers of one tensor have a view of it each: they get the same, so that their products share
an operand. A linear layer's gradients of weight and bias read one tensor, too: that of the bias is
the sum of what the other has transposed.

Inductor's pass rewrites a graph only if the graph has winners. The rewrite stays where no region is
taken in the end: a view costs nothing in Inductor's code."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor

from .fx_signature import is_getitem, op_name, signature, tensor_reason
from .rules import Rules
from .view_shapes import carried_shape

VERSION = 4  # of what sink_views does to a graph: Inductor's caches and stored plans depend on it

_RESHAPE = torch.ops.aten.reshape.default
_VIEWS = (_RESHAPE, torch.ops.aten.view.default, torch.ops.aten._unsafe_view.default)
_PERMUTE = torch.ops.aten.permute.default
_PLAIN = (fx.Node, bool, int, float, str, torch.dtype, torch.device, torch.layout)
_FORMATS = (torch.contiguous_format, torch.preserve_format)  # those that any shape can have


def sink_views(graph: fx.Graph, rules: Rules) -> int:
    """Has equal views of a tensor be one node, has reductions read what a heavy op reads, and moves
    views below pointwise ops, where these become part of a heavy op's chain. Returns how many
    views, reductions and pointwise ops it rewrote; a graph where that is 0 is not touched.

    Requires fake values in node.meta["val"], and keeps shapes, strides and dtypes of all values
    that the rest of the graph reads. No op is computed twice. A pointwise op stays where it is if
    it is the prologue of an anchor of the generators, such as the scaling before a softmax.
    Depends only on the graph's structure, as find_regions does."""
    if not any(op_name(node) in rules.heavy for node in graph.nodes):
        return 0
    return _merge_views(graph) + _reduce_operands(graph, rules) + _Sinking(graph, rules).run()


def _merge_views(graph: fx.Graph) -> int:
    """Replaces each view by the first of the same tensor in the same shape."""
    first: dict[tuple[fx.Node, torch.Size], fx.Node] = {}
    merged = 0
    for node in list(graph.nodes):
        if node.target not in _VIEWS or not all(map(_has_value, (node, *node.all_input_nodes))):
            continue
        same = first.setdefault((node.all_input_nodes[0], node.meta["val"].shape), node)
        is_result = any(user.op == "output" for user in node.users)
        if same is not node and not is_result and _strides(same) == _strides(node):
            node.replace_all_uses_with(same)
            graph.erase_node(node)
            merged += 1
    return merged


def _reduce_operands(graph: fx.Graph, rules: Rules) -> int:
    """Has what reduces a matrix along its first dimension reduce its transpose along the second,
    where a heavy op reads this and a generator makes one kernel of both."""
    rewritten = 0
    reductions = rules.anchors - rules.heavy
    for node in list(graph.nodes):
        if op_name(node) not in reductions or len(node.args) not in (2, 3):
            continue
        matrix, dims = node.args[:2]
        if node.kwargs or dims != [0] or not isinstance(matrix, fx.Node):
            continue
        if not all(map(_has_value, (node, matrix))) or matrix.meta["val"].dim() != 2:
            continue
        readers = ((t, heavy) for t in matrix.users if _is_transpose(t) for heavy in t.users)
        rewritten += any(_try_reduction(graph, rules, node, *both) for both in list(readers))
    return rewritten


def _is_transpose(node: fx.Node) -> bool:
    return node.target is _PERMUTE and node.args[1] == [1, 0] and _has_value(node)


def _try_reduction(
    graph: fx.Graph, rules: Rules, node: fx.Node, transposed: fx.Node, heavy: fx.Node
) -> bool:
    if op_name(heavy) not in rules.heavy:
        return False
    old = node.meta["val"]
    with old.fake_mode, torch.no_grad():
        value = node.target(transposed.meta["val"], [1])  # type: ignore[operator]
        view = value.view(old.shape)
    args, meta = node.args, node.meta
    node.args, node.meta = (transposed, [1]), _meta(node, value)
    if (view.dtype, view.stride()) != (old.dtype, old.stride()) or not _makes(rules, heavy, node):
        node.args, node.meta = args, meta
        return False
    if node < transposed:  # which needs the matrix alone
        node.prepend(transposed)
    if old.dim() == 2:  # the reduction keeps its dimension
        _add_view_below(graph, node, value, view)
    return True


def _makes(rules: Rules, *members: fx.Node) -> bool:
    """Whether a generator makes a kernel of these, which are independent of each other."""
    try:
        text, _, _ = signature(members, [(node, 0) for node in members])
        return rules.why_not_generated(rules.normalize(text)) is None
    except Exception:  # no region: see _Partition._make
        return False


@dataclass
class _Sinking:
    graph: fx.Graph
    rules: Rules
    # Bit sets of heavy ops: those that a node depends on, and those whose pointwise chain it is in.
    before: dict[fx.Node, int] = field(default_factory=dict)
    chains: dict[fx.Node, int] = field(default_factory=dict)
    made: dict[tuple[fx.Node, tuple[int, ...]], fx.Node] = field(default_factory=dict)

    def run(self) -> int:
        prologues = _prologues(self.graph, self.rules)
        rewritten = 0
        for node in list(self.graph.nodes):
            if self._is_pointwise(node) and node not in prologues and self._sink(node):
                rewritten += 1
            self._note(node)
        return rewritten

    def _is_pointwise(self, node: fx.Node) -> bool:
        name = op_name(node)  # zeros_like and the others read a shape, no elements
        return name in self.rules.pointwise and not name.endswith("_like")

    def _note(self, node: fx.Node) -> None:
        operands = node.all_input_nodes
        before = functools.reduce(int.__or__, (self.before[n] for n in operands), 0)
        chains = 0
        if op_name(node) in self.rules.heavy:
            chains = 1 << len(self.before)
        elif self._is_pointwise(node):
            chains = self._chains(operands)
        elif is_getitem(node) and node.args[1] == 0:
            chains = self.chains[operands[0]]
        self.before[node], self.chains[node] = before | chains, chains

    def _chains(self, operands: Sequence[fx.Node], reshaped: Sequence[fx.Node] = ()) -> int:
        """The heavy ops whose chains a pointwise op is in, if it takes these operands, and views of
        `reshaped`: no operand may depend on the heavy op in another way."""
        through = functools.reduce(int.__or__, (self.chains[n] for n in operands), 0)
        for n in operands:
            through &= ~(self.before[n] & ~self.chains[n])
        for n in reshaped:
            through &= ~self.before[n]
        return through

    def _sink(self, node: fx.Node) -> bool:
        """Rewrites a pointwise op if it has a view of a heavy op's chain as an operand."""
        operands = node.all_input_nodes
        if not all(_is_plain(arg) for arg in (*node.args, *node.kwargs.values())):
            return False
        if not all(map(_has_value, (node, *operands))) or not node.meta["val"].numel():
            return False
        tried: set[tuple[int, ...]] = set()
        for view in operands:
            for base in _bases(view):
                shape = tuple(base.meta["val"].shape)
                if self.chains[base] and view.meta["val"].shape == node.meta["val"].shape:
                    if shape not in tried and self._try(node, shape):
                        return True
                    tried.add(shape)
        return False

    def _try(self, node: fx.Node, shape: tuple[int, ...]) -> bool:
        """Has `node` compute a tensor of this shape, if the rest of the graph can have a view of it
        in place of the value that it has now."""
        old = node.meta["val"]
        args = (node.args, dict(node.kwargs))
        try:
            with old.fake_mode, torch.no_grad():
                carried = {n: _carried(n, old.shape, shape) for n in node.all_input_nodes}
                given, named = fx.map_arg(args, lambda n: carried[n][1])
                new = node.target(*given, **named)  # type: ignore[operator]
                view = new.view(old.shape)
        except (RuntimeError, ValueError):  # a view that needs a copy
            return False
        if (new.shape, new.dtype, view.stride()) != (shape, old.dtype, old.stride()):
            return False
        reshaped = [n for n, value in carried.values() if value is not n.meta["val"]]
        kept = [n for n, value in carried.values() if value is n.meta["val"]]
        if not self._chains(kept, reshaped):
            return False
        above = node.all_input_nodes
        moved = {n: self._reshaped(node, *pair) for n, pair in carried.items()}
        node.args, node.kwargs = fx.map_arg(args, moved.__getitem__)
        below = _add_view_below(self.graph, node, new, view)
        self._note(node)
        self._note(below)
        self._erase_unused(above)
        return True

    def _reshaped(self, user: fx.Node, source: fx.Node, value: torch.Tensor) -> fx.Node:
        """A node with this value, which is the source's or a view of it."""
        if value is source.meta["val"]:
            return source
        shape = tuple(value.shape)
        if (source, shape) not in self.made:
            with self.graph.inserting_before(user):
                made = self.graph.call_function(_RESHAPE, (source, list(shape)))
            made.meta = _meta(source, value)
            self.made[source, shape] = made
            self._note(made)
        return self.made[source, shape]

    def _erase_unused(self, nodes: Iterable[fx.Node]) -> None:
        """Erases those of the nodes that are views without users, and what they are views of."""
        waiting = dict.fromkeys(nodes)
        while waiting:
            node, _ = waiting.popitem()
            if node.target in _VIEWS and not node.users:
                waiting.update(dict.fromkeys(node.all_input_nodes))
                self.graph.erase_node(node)


def _add_view_below(
    graph: fx.Graph, node: fx.Node, new: torch.Tensor, view: torch.Tensor
) -> fx.Node:
    """Gives the node the value `new`, and its users a view of it."""
    with graph.inserting_after(node):
        below = graph.call_function(_RESHAPE, (node, list(view.shape)))
    below.meta = _meta(node, view)
    node.meta = _meta(node, new)
    node.replace_all_uses_with(below, delete_user_cb=lambda user: user is not below)
    return below


def _meta(node: fx.Node, value: torch.Tensor) -> dict[str, Any]:
    return {k: v for k, v in node.meta.items() if k != "tensor_meta"} | {"val": value}


def _strides(node: fx.Node) -> tuple[int, ...]:
    return tuple(node.meta["val"].stride())


def _is_plain(argument: object) -> bool:
    """Whether an argument means the same for a tensor of any shape; strings are modes."""
    if isinstance(argument, torch.memory_format):
        return argument in _FORMATS
    return argument is None or isinstance(argument, _PLAIN)


def _has_value(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, FakeTensor) and tensor_reason(value) is None


def _bases(node: fx.Node) -> Iterator[fx.Node]:
    """What the node is a view of, nearest first."""
    while node.target in _VIEWS and _has_value(node.all_input_nodes[0]):
        node = node.all_input_nodes[0]
        yield node


def _carried(
    node: fx.Node, view: Sequence[int], base: tuple[int, ...]
) -> tuple[fx.Node, torch.Tensor]:
    """The operand of an op on tensors of shape `base` that stands for `node`, an operand of the
    same op on their views: a node and the view of its value to use. Raises ValueError or
    RuntimeError if there is none."""
    value = node.meta["val"]
    for source in reversed(list(_bases(node))):  # a view of the chain's result is not in the chain
        if value.shape == view and source.meta["val"].shape == base:
            return source, source.meta["val"]
    shape = carried_shape(value.shape, view, base)
    if shape is None:
        raise ValueError("the operand cannot be carried to another shape")
    leading = value.dim() - len(shape)
    expanded = any(n > 1 and not s for n, s in zip(value.shape, value.stride(), strict=True))
    # A fake view of one may have strides that no real view has.
    if expanded and tuple(value.shape) != shape:
        raise ValueError("views of expanded tensors are copies")
    fits = leading <= len(base) - len(shape) and tuple(value.shape) == (1,) * leading + shape
    return node, value if fits else value.view(shape)


def _prologues(graph: fx.Graph, rules: Rules) -> set[fx.Node]:
    """The pointwise ops that only one anchor's region reads, directly or through other pointwise
    ops. Moving them into a product's region would save nothing and shrink the anchor's."""
    anchors = rules.anchors - rules.heavy
    own = {n: 1 << i for i, n in enumerate(graph.nodes) if op_name(n) in anchors}
    after: dict[fx.Node, int] = {}  # bit sets of anchors whose chains lead to the node
    for node in graph.nodes:
        after[node] = own.get(node, 0)
        if op_name(node) in rules.pointwise or (is_getitem(node) and not after[node]):
            after[node] = functools.reduce(int.__or__, (after[n] for n in node.all_input_nodes), 0)
    into: dict[fx.Node, int] = {}  # of anchors whose regions have all users of the node
    for node in reversed(graph.nodes):
        into[node] = 0
        if op_name(node) in rules.pointwise and node.users:
            readers = (
                into[user] | after[user] if user not in own else own[user] for user in node.users
            )
            into[node] = functools.reduce(int.__and__, readers)
    return {node for node, anchors_of in into.items() if anchors_of}
