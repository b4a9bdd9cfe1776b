"""The callables that race for one region: the winner-to-be through the operator, ATen, and
Inductor."""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from cudaforge_backend._native import _C

from .fx_signature import MEMORY_FORMATS
from .graph_pass import SubstitutePass, kept_table
from .rules import native_rules, overload
from .tracing import beside_running_programs

Call = Callable[[Sequence[torch.Tensor]], Any]

_MEMORY_FORMATS = {name: value for value, name in MEMORY_FORMATS.items()}


def device_of(signature: str, index: int) -> torch.device:
    """The torch device that a canonical signature runs on."""
    kind = json.loads(signature)["device"]
    return torch.device("cpu") if kind == "cpu" else torch.device(kind, index)


def make_inputs(signature: str, device: torch.device, seed: int) -> list[torch.Tensor]:
    """Fresh inputs with the signature's dtypes, sizes and strides; normal values for floating
    types."""
    generator = torch.Generator(device=device).manual_seed(seed)
    made = []
    for spec in json.loads(signature)["inputs"]:
        dtype = getattr(torch, spec["dtype"])
        extent = 1 + sum((n - 1) * s for n, s in zip(spec["sizes"], spec["strides"], strict=True))
        count = 0 if 0 in spec["sizes"] else extent
        if dtype.is_floating_point:
            flat = torch.randn(count, generator=generator, device=device).to(dtype)
        else:
            flat = torch.randint(0, 2, (count,), generator=generator, device=device).to(dtype)
        made.append(flat.as_strided(spec["sizes"], spec["strides"]))
    return made


def operator_call(signature: str, region_id: int) -> Call:
    """cudaforge::region as Inductor's wrapper calls it."""
    op = torch.ops.cudaforge.region.default

    def call(inputs: Sequence[torch.Tensor]) -> Any:
        return op(inputs, region_id, signature)

    return call


def aten_call(signature: str) -> Call:
    """The region's ATen ops one after the other, from C++: eager without Python's share."""
    program = _C.RegionProgram(signature)
    return program.run


def region_graph(signature: str, device: torch.device) -> fx.GraphModule:
    """The region as a graph of ATen calls, one placeholder an input."""
    region = json.loads(signature)
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
                return _MEMORY_FORMATS[name]
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


def inductor_call(signature: str, device: torch.device, replaced: str = "") -> Call:
    """Inductor's kernel for the region alone, with its full decompositions and without Dynamo's
    guards. `replaced`: key of a part that cudaforge::region is to compute. Raises RuntimeError when
    the region has no such part. REQUIRES: a thread in which nothing is being traced."""
    with beside_running_programs():
        return _inductor_call(signature, device, replaced)


def _inductor_call(signature: str, device: torch.device, replaced: str) -> Call:
    from torch._inductor import config
    from torch._inductor.compile_fx import compile_fx_inner
    from torch._inductor.decomposition import select_decomp_table
    from torch._inductor.virtualized import V
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx

    table: dict[Any, Any] = dict(select_decomp_table())
    patches: dict[str, Any] = {}
    substitute: SubstitutePass | None = None
    if replaced:
        rules = native_rules()
        substitute = SubstitutePass({replaced: "racing"}, rules)
        table = kept_table(rules)
        patches = {"post_grad_custom_pre_pass": substitute, "force_disable_caches": True}
    mode = FakeTensorMode()
    with mode:
        fakes = [mode.from_tensor(x) for x in make_inputs(signature, device, seed=0)]
        traced = make_fx(region_graph(signature, device), decomposition_table=table)(*fakes)
    with V.set_fake_mode(mode), torch.no_grad(), config.patch(patches):
        compiled: Any = compile_fx_inner(traced, fakes, is_inference=True)
    if substitute is not None and substitute.substituted == 0:
        raise RuntimeError("the part is not found in its region")

    def call(inputs: Sequence[torch.Tensor]) -> Any:
        return compiled(list(inputs))

    return call
