"""The callables that race for one region: the kernel through its operator, ATen, and Inductor."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from statistics import median
from typing import Any

import torch

from cudaforge_backend._native import _C

from . import isa
from .frozen import mark_inputs
from .fx_signature import region_graph
from .graph_pass import SubstitutePass, kept_table
from .rules import rules_for
from .tracing import beside_running_programs, leaving_random_state

Call = Callable[[Sequence[torch.Tensor]], Any]

HEAVY = frozenset(_C.heavy_ops())


def signature_device(signature: _C.Signature, index: int) -> torch.device:
    """The torch device that a signature runs on."""
    kind = signature.device
    return torch.device("cpu") if kind == "cpu" else torch.device(kind, index)


# Uniform numbers to values of a role.
_SHAPED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "positive": lambda x: x + 0.5,
    "probability": lambda x: x * 0.98 + 0.01,
    "log_probability": lambda x: (x * 0.98 + 0.01).log(),
    "tanh": lambda x: x * 1.98 - 0.99,
}


def make_inputs(signature: _C.Signature, device: torch.device, seed: int) -> list[torch.Tensor]:
    """New inputs with the signature's dtypes, sizes and strides. Indices and labels are uniform
    over their range, variances are positive, other floats are normal, other integers are 0 or 1."""
    generator = torch.Generator(device=device).manual_seed(seed)
    made = []
    for (name, sizes, strides), (role, limit) in zip(
        signature.inputs, signature.input_roles, strict=True
    ):
        dtype = getattr(torch, name)
        extent = 1 + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True))
        count = 0 if 0 in sizes else extent
        if not dtype.is_floating_point:
            end = max(limit, 1) if role == "index" else 2
            flat = torch.randint(0, end, (count,), generator=generator, device=device)
        elif role in _SHAPED:
            flat = _SHAPED[role](torch.rand(count, generator=generator, device=device))
        else:
            flat = torch.randn(count, generator=generator, device=device)
        made.append(flat.to(dtype).as_strided(sizes, strides))
    return made


def operator_call(signature: _C.Signature, region_id: int) -> Call:
    """cudaforge::region_v1 as Inductor's wrapper calls it."""
    op, text = torch.ops.cudaforge.region_v1.default, signature.text

    def call(inputs: Sequence[torch.Tensor]) -> Any:
        return op(inputs, region_id, text)

    return call


def aten_call(signature: _C.Signature) -> Call:
    """The region's ATen ops in order, from C++: eager mode without Python's overhead."""
    program = _C.RegionProgram(signature)
    return program.run


def chooses_kernels(inductor: Mapping[str, Any]) -> bool:
    """Whether Inductor with these options times kernels while it compiles."""
    from torch._inductor import config

    names = ("max_autotune", "max_autotune_gemm", "max_autotune_pointwise")
    return any(inductor.get(name, getattr(config, name)) for name in names)


def is_product_alone(signature: _C.Signature, arch: str) -> bool:
    """Whether the region is one matrix product that a generator makes. For those Inductor calls
    ATen, unless chooses_kernels()."""
    heavy = not HEAVY.isdisjoint(signature.ops)
    return heavy and len(signature.ops) == 1 and signature.why_not_generated(arch) is None


# Seconds of Inductor's last compilations of regions, by device type; at first a guess.
_compilations: dict[str, deque[float]] = {
    "cpu": deque([4.0], maxlen=5),
    "cuda": deque([2.0], maxlen=5),
}
_begun: set[str] = set()  # device types for which Inductor has compiled


def first_compilation(device: torch.device) -> float:
    """Compiles something small, once for each process and device type: the first compilation loads
    what all later ones need, also the program's own. Returns the seconds."""
    if device.type in _begun:
        return 0.0
    _begun.add(device.type)
    began = time.monotonic()
    spec = {"dtype": "float32", "sizes": [8], "strides": [1]}
    relu = {"op": "aten::relu", "args": [{"in": 0}], "kwargs": {}, "outputs": [spec]}
    region = {
        "format": 1, "device": device.type, "inputs": [{**spec, "alignment": 16}], "aliases": [],
        "nodes": [relu], "outputs": [{"node": 0, "out": 0}],
        "numerics": _C.numerics(["aten::relu"]),
    }  # fmt: skip
    with suppress(Exception):  # the region's own compilation will fail and report
        inductor_call(_C.Signature.parse(json.dumps(region)).normalized(), device)
    return time.monotonic() - began


def compile_seconds(device: torch.device) -> float:
    """Expected seconds of Inductor's compilation of a region: the median of the last ones."""
    return median(_compilations[device.type])


def least_seconds(device: torch.device) -> float:
    """The smallest useful budget of a region: twice Inductor's compilation, to leave time for the
    search."""
    return 2 * compile_seconds(device)


def timed(device: torch.device, make: Callable[[], Call]) -> Call:
    """Returns make(), a compilation by Inductor, and records its time for compile_seconds."""
    began = time.monotonic()
    made = make()
    _compilations[device.type].append(time.monotonic() - began)
    return made


def inductor_call(signature: _C.Signature, device: torch.device, replaced: str = "") -> Call:
    """Inductor's code for the region alone, with its full decompositions and without Dynamo's
    guards. replaced: key of a part that cudaforge::region_v1 computes; RuntimeError: the region has
    no such part. REQUIRES: nothing is being traced in this thread."""
    isa.install()
    with beside_running_programs(), leaving_random_state():
        return _inductor_call(signature, device, replaced)


def _inductor_call(signature: _C.Signature, device: torch.device, replaced: str) -> Call:
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
        rules = rules_for(_C.arch(device.type, device.index or 0), agents=False)
        substitute = SubstitutePass({replaced: "racing"}, rules)
        table = kept_table(rules, {})
        patches = {"post_grad_custom_pre_pass": substitute, "force_disable_caches": True}
    mode = FakeTensorMode()
    with mode:
        fakes = [mode.from_tensor(x) for x in make_inputs(signature, device, seed=0)]
        traced = make_fx(region_graph(signature, device), decomposition_table=table)(*fakes)
    given = zip(
        traced.graph.find_nodes(op="placeholder"), signature.to_dict()["inputs"], strict=True
    )
    mark_inputs(node for node, spec in given if spec.get("frozen"))
    with V.set_fake_mode(mode), torch.no_grad(), config.patch(patches):
        compiled: Any = compile_fx_inner(traced, fakes, is_inference=True)
    if substitute is not None and substitute.substituted == 0:
        raise RuntimeError("the part is not found in its region")

    def call(inputs: Sequence[torch.Tensor]) -> Any:
        return compiled(list(inputs))

    return call
