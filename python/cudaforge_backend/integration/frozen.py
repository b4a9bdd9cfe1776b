"""Which inputs of a graph are weights that the program promises not to change
(options={"frozen_weights": True})."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import fx

_NOTE = "cudaforge_weights"  # in the metadata of Dynamo's graph
_FROZEN = "cudaforge_frozen"  # in the metadata of an input of a traced graph


@dataclass(frozen=True)
class Weights:
    """Inputs of a Dynamo graph, by number."""

    indices: tuple[int, ...]  # parameters and buffers of modules
    inputs: int  # of all


def note_weights(gm: fx.GraphModule) -> None:
    """Notes in a Dynamo graph which of its inputs are parameters and buffers: the program made the
    promise. Copies of the graph keep the note."""
    inputs = gm.graph.find_nodes(op="placeholder")
    held = any(True for _ in gm.parameters()) or any(True for _ in gm.buffers())
    # A graph that holds tensors itself has them before its inputs when it is traced.
    indices = () if held else tuple(i for i, node in enumerate(inputs) if _is_weight(node))
    gm.meta[_NOTE] = Weights(indices, len(inputs))


def weights_of(gm: fx.GraphModule) -> Weights | None:
    """What note_weights has noted; None: nothing."""
    found = gm.meta.get(_NOTE)
    return found if isinstance(found, Weights) else None


def _is_weight(node: fx.Node) -> bool:
    if isinstance(getattr(node.meta.get("grapharg"), "example", None), torch.nn.Parameter):
        return True
    # Dynamo also marks other tensors of a module as static.
    name = getattr(getattr(node, "_dynamo_source", None), "name", "")
    return "._buffers[" in str(name() if callable(name) else name)


def mark_traced(graph: fx.Graph, weights: Weights | None) -> None:
    """Marks the weights among the inputs of a graph without a backward, while AOTAutograd's tracing
    context of it is in force. An input that the graph changes is no weight. Marks nothing if
    tracing has added or merged inputs."""
    context = torch._guards.TracingContext.try_get()
    metadata = context.fw_metadata if context is not None else None
    inputs = graph.find_nodes(op="placeholder")
    if weights is None or metadata is None:
        return
    if not len(inputs) == weights.inputs == len(metadata.input_info):
        return
    changed = {
        _storage(node)
        for node, info in zip(inputs, metadata.input_info, strict=True)
        if info.mutates_data
    }
    static = set(metadata.static_input_indices)
    found = (inputs[i] for i in weights.indices if i in static)
    mark_inputs(node for node in found if _storage(node) not in changed)


def mark_inputs(inputs: Iterable[fx.Node]) -> None:
    """Marks these inputs of a graph as frozen."""
    for node in inputs:
        node.meta[_FROZEN] = True


def is_frozen(node: fx.Node) -> bool:
    """Whether the value is a marked input, or a view of one that Inductor passes on as it is, in
    the same storage."""
    base = node
    while not base.meta.get(_FROZEN):
        operand = base.args[0] if base.op == "call_function" and base.args else None
        if not isinstance(operand, fx.Node) or not _is_plain_view(base, operand):
            return False
        base = operand
    return _storage(base) == _storage(node)


def _is_plain_view(node: fx.Node, operand: fx.Node) -> bool:
    """Whether the node is a view of its operand. Inductor may copy a view that divides or merges
    dimensions of a value that is not contiguous; it does not count."""
    if not getattr(node.target, "is_view", False):
        return False
    value, of = node.meta.get("val"), operand.meta.get("val")
    if not isinstance(value, torch.Tensor) or not isinstance(of, torch.Tensor):
        return False
    if value.dtype != of.dtype:
        return False
    places = list(zip(of.shape, of.stride(), strict=True))
    dims = [(n, s) for n, s in zip(value.shape, value.stride(), strict=True) if n != 1]
    return of.is_contiguous() or all(any(s == t and n <= m for m, t in places) for n, s in dims)


def _storage(node: fx.Node) -> int | None:
    value = node.meta.get("val")
    return value.untyped_storage()._cdata if isinstance(value, torch.Tensor) else None
