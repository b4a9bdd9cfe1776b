"""From FX nodes to the text of an OpSignature (csrc/signature/op_signature.h says the form), and
back."""

from __future__ import annotations

import functools
import json
import math
import operator
from collections.abc import Sequence, Set
from typing import Any

import torch
from torch import fx

from cudaforge_backend._native import _C
from cudaforge_backend.reasons import Reason

from .rules import overload

# Ops of other namespaces that are ATen calls by another name: Inductor's decompositions make them.
_CONVERT = "prims::convert_element_type"

_DTYPES: dict[torch.dtype, str] = {getattr(torch, name): name for name in _C.DTYPES}
_MEMORY_FORMATS = {
    torch.contiguous_format: "contiguous",
    torch.preserve_format: "preserve",
    torch.channels_last: "channels_last",
}
_MEMORY_FORMAT_OF = {name: value for value, name in _MEMORY_FORMATS.items()}


class Unsupported(Exception):
    """A node or value that no signature can hold."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason = reason


_region_op = functools.cache(_C.region_op)


def op_name(node: fx.Node) -> str:
    """ "aten::sum.dim_IntList" for a call of that overload, or of a kernel that PyTorch chose for
    it; "" for any other node."""
    return _region_op(_called(node))


def _called(node: fx.Node) -> str:
    target = node.target
    if node.op != "call_function" or not isinstance(target, torch._ops.OpOverload):
        return ""
    name: str = target._name
    return "aten::_to_copy" if name == _CONVERT else name


def is_getitem(node: fx.Node) -> bool:
    """Whether the node picks one output of a multi-output op."""
    return node.op == "call_function" and node.target is operator.getitem


def tensor_reason(value: object) -> Reason | None:
    """Why a fake value cannot be an input or output of a region; None when it can."""
    if not isinstance(value, torch.Tensor):
        return Reason.NOT_A_TENSOR
    if torch.utils._python_dispatch.is_traceable_wrapper_subclass(value):
        return Reason.TENSOR_SUBCLASS
    if value.layout is not torch.strided:
        return Reason.SPARSE_LAYOUT
    if value.dtype not in _DTYPES:
        return Reason.COMPLEX_DTYPE if value.dtype.is_complex else Reason.UNSUPPORTED_DTYPE
    if value.is_conj() or value.is_neg():
        return Reason.LAZY_CONJUGATE
    if value.device.type not in ("cpu", "cuda"):
        return Reason.UNSUPPORTED_DEVICE
    numbers = (*value.shape, *value.stride(), value.storage_offset())
    if any(not isinstance(n, int) for n in numbers):
        return Reason.DYNAMIC_SHAPE
    return Reason.TOO_MANY_DIMENSIONS if value.dim() > 8 else None


def _spec(value: torch.Tensor) -> dict[str, Any]:
    return {
        "dtype": _DTYPES[value.dtype],
        "sizes": list(value.shape),
        "strides": list(value.stride()),
    }


def _alignment(value: torch.Tensor) -> int:
    # Storage begins on at least 16 bytes; a graph input that does not is caught when the region
    # runs.
    offset = int(value.storage_offset()) * value.element_size()
    alignment = 16
    while offset % alignment:
        alignment //= 2
    return alignment


def _is_traced_wrongly(node: fx.Node) -> bool:
    """Whether PyTorch's trace has other dtypes than its kernels on a CPU: of a normalisation whose
    input is of a half type and whose weight is not, the mean and the rest, and what takes them."""
    operands = _C.norm_operands(op_name(node))
    if operands is None:
        return False
    value, weight = (
        given.meta.get("val") if isinstance(given, fx.Node) else None
        for given in (node.args[i] for i in operands)
    )
    if not isinstance(value, torch.Tensor) or not isinstance(weight, torch.Tensor):
        return False
    if value.device.type != "cpu" or value.dtype == weight.dtype:
        return False
    takes_them = operands[0] > 0  # a backward: its first is the gradient
    return takes_them or any(user.args[1] != 0 for user in node.users if user.users)


def node_values(node: fx.Node) -> list[torch.Tensor | None]:
    """The fake outputs of a node; None stands for one that is absent, such as a gradient that
    output_mask leaves out. Raises Unsupported."""
    if _is_traced_wrongly(node):
        raise Unsupported(Reason.MIXED_DTYPES)
    value = node.meta.get("val")
    values = list(value) if isinstance(value, tuple | list) else [value]
    if op_name(node) != _called(node):
        del values[1:]  # what only a backward pass reads
    for item in values:
        if item is not None and (reason := tensor_reason(item)) is not None:
            raise Unsupported(reason)
    if all(item is None for item in values):
        raise Unsupported(Reason.ABSENT_OUTPUT)
    return values


def _node_value(node: fx.Node, out: int) -> torch.Tensor:
    values = node_values(node)
    value = values[out] if out < len(values) else None
    if value is None:
        raise Unsupported(Reason.ABSENT_OUTPUT)
    return value


class _Writer:
    """Turns arguments into JSON, numbering the region's inputs by first use."""

    def __init__(self, members: Sequence[fx.Node]) -> None:
        self.index = {node: i for i, node in enumerate(n for n in members if not is_getitem(n))}
        self.inputs: dict[fx.Node, int] = {}
        self.devices: set[torch.device] = set()
        self.device_types: set[str] = set()  # of device arguments, which may lack an index

    def reference(self, node: fx.Node) -> dict[str, int]:
        if is_getitem(node):
            source, out = node.args
            if source in self.index:
                assert isinstance(source, fx.Node) and isinstance(out, int)
                _node_value(source, out)
                return {"node": self.index[source], "out": out}
        if node in self.index:
            return {"node": self.index[node], "out": 0}
        value = node.meta.get("val")
        reason = tensor_reason(value)
        if reason is not None:
            raise Unsupported(Reason.DYNAMIC_SHAPE if isinstance(value, torch.SymInt) else reason)
        self.devices.add(value.device)  # type: ignore[union-attr]
        return {"in": self.inputs.setdefault(node, len(self.inputs))}

    def argument(self, value: Any) -> Any:
        match value:
            case fx.Node():
                return self.reference(value)
            case None | bool() | int():
                return value
            case float():
                if math.isfinite(value):
                    return value
                return {"float": "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"}
            case str():
                return {"str": value}
            case list() | tuple():
                return [self.argument(item) for item in value]
            case torch.dtype() if value in _DTYPES:
                return {"dtype": _DTYPES[value]}
            case torch.device():
                self.device_types.add(value.type)
                return {"device": "target"}
            case torch.memory_format() if value in _MEMORY_FORMATS:
                return {"memory_format": _MEMORY_FORMATS[value]}
            case torch.layout() if value is torch.strided:
                return {"layout": "strided"}
        raise Unsupported(Reason.UNSUPPORTED_ARGUMENT)


def _call(node: fx.Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a node as those of the op that _called names."""
    assert isinstance(node.target, torch._ops.OpOverload)
    if node.target._name == _CONVERT:
        return node.args[:1], {"dtype": node.args[1]}
    return node.args, dict(node.kwargs)


def signature(
    members: Sequence[fx.Node],
    outputs: Sequence[tuple[fx.Node, int]],
    frozen: Set[fx.Node] = frozenset(),
) -> tuple[str, list[fx.Node], torch.device]:
    """The JSON text of a region, its input nodes in order, and its device.

    `members` are in topological order, getitems among them; `outputs` are (node, output) pairs;
    `frozen` are inputs whose values do not change. Defaults are not filled in yet (Rules.normalize
    does that). Raises Unsupported."""
    writer = _Writer(members)
    nodes: list[dict[str, Any]] = []
    for node in writer.index:
        args, kwargs = _call(node)
        values = node_values(node)
        writer.devices.update(value.device for value in values if value is not None)
        nodes.append(
            {
                "op": _called(node),
                "args": [writer.argument(a) for a in args],
                "kwargs": {k: writer.argument(v) for k, v in kwargs.items()},
                "outputs": [None if v is None else _spec(v) for v in values],
            }
        )
    for node, out in outputs:
        _node_value(node, out)
    if len(writer.devices) != 1:
        raise Unsupported(Reason.MIXED_DEVICES)
    device = next(iter(writer.devices))
    if writer.device_types - {device.type}:
        raise Unsupported(Reason.MIXED_DEVICES)
    inputs = list(writer.inputs)
    text = json.dumps(
        {
            "format": 1,
            "device": device.type,
            "inputs": [
                _spec(n.meta["val"])
                | {"alignment": _alignment(n.meta["val"])}
                | ({"frozen": True} if n in frozen else {})
                for n in inputs
            ],
            "aliases": _aliases(inputs),
            "nodes": nodes,
            "outputs": [{"node": writer.index[n], "out": k} for n, k in outputs],
            "numerics": _C.numerics([op_name(n) for n in writer.index]),
        }
    )
    return text, inputs, device


def _aliases(inputs: Sequence[fx.Node]) -> list[list[int]]:
    groups: dict[int, list[int]] = {}
    for i, node in enumerate(inputs):
        groups.setdefault(node.meta["val"].untyped_storage()._cdata, []).append(i)
    return [group for group in groups.values() if len(group) > 1]


def region_graph(signature: _C.Signature, device: torch.device) -> fx.GraphModule:
    """The region as a graph of ATen calls, one placeholder an input."""
    region = signature.to_dict()
    graph = fx.Graph()
    inputs = [graph.placeholder(f"in{i}") for i in range(len(region["inputs"]))]
    nodes: list[fx.Node] = []

    def output(node: int, out: int) -> Any:
        several = len(region["nodes"][node]["outputs"]) > 1
        return graph.call_function(operator.getitem, (nodes[node], out)) if several else nodes[node]

    def argument(value: Any) -> Any:
        if isinstance(value, list):
            return [argument(item) for item in value]
        if not isinstance(value, dict):
            return value
        match value:
            case {"in": int(i)}:
                return inputs[i]
            case {"node": int(n), "out": int(k)}:
                return output(n, k)
            case {"float": str(text)}:
                return float(text)
            case {"str": str(text)}:
                return text
            case {"dtype": str(name)}:
                return getattr(torch, name)
            case {"device": _}:
                return device
            case {"layout": _}:
                return torch.strided
            case {"memory_format": str(name)}:
                return _MEMORY_FORMAT_OF[name]
        raise ValueError(f"unknown argument form in a signature: {value!r}")

    for node in region["nodes"]:
        target = overload(node["op"])
        if target is None:
            raise ValueError(f"this torch has no {node['op']}")
        args = tuple(argument(a) for a in node["args"])
        kwargs = {k: argument(v) for k, v in node["kwargs"].items()}
        nodes.append(graph.call_function(target, args, kwargs))
    graph.output(tuple(output(o["node"], o["out"]) for o in region["outputs"]))
    return fx.GraphModule(torch.nn.Module(), graph)
