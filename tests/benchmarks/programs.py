"""Workloads as models: a line of a file of workloads, or SCRIPT.py:FACTORY."""

from __future__ import annotations

import copy
import json
import operator
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

Workload = dict[str, Any]
DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}


def read_workloads(names: Sequence[str]) -> list[Workload]:
    """The workloads of files (JSON lines), and of SCRIPT.py:FACTORY one each; `file` is the name of
    the file. ValueError: two have the same `id`."""
    found: list[Workload] = []
    for name in names:
        path = Path(name.partition(":")[0])
        if path.suffix == ".py":
            found.append({"id": name, "file": path.name, "factory": name})
        else:
            lines = [line for line in Path(name).read_text().splitlines() if line]
            found += [{**json.loads(line), "file": Path(name).name} for line in lines]
    for one, times in Counter(w["id"] for w in found).items():
        if times > 1:
            raise ValueError(f"{times} workloads have the id {one!r}")
    return found


def make_program(workload: Workload, device: str, shrink: int, dtype: str) -> Program | Made:
    """The workload as a model with its `inputs`. dtype: "" or that of its float32 tensors."""
    if "factory" in workload:
        return Made(workload["factory"], device, dtype)
    return Program(workload, device, shrink, dtype)


class Program(torch.nn.Module):
    """A workload as a model. Parameters and buffers are the model's, the rest its inputs."""

    def __init__(self, workload: Workload, device: str, shrink: int, dtype: str = "") -> None:
        super().__init__()
        self.workload = workload
        self.device = device
        self.inputs: list[torch.Tensor] = []
        self.names: list[str] = []
        generator = torch.Generator(device).manual_seed(0)
        for arg in workload["args"]:
            tensor = _filled(arg, shrink if arg["kind"] == "input" else 1, generator)
            if dtype and tensor.dtype == torch.float32:
                tensor = tensor.to(getattr(torch, dtype))
            if arg["kind"] in ("parameter", "buffer"):
                self.register_buffer(f"of_{arg['name']}", tensor)
            else:
                self.inputs.append(tensor)
                self.names.append(arg["name"])

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The workload's outputs."""
        return outputs_of(self.workload, self.device, self.values(inputs))

    def exact(self, inputs: Sequence[torch.Tensor] | None = None) -> tuple[torch.Tensor, ...]:
        """The outputs in float64, for these inputs or its own."""
        given = self.values(self.inputs if inputs is None else inputs)
        values = {name: x.double() if x.is_floating_point() else x for name, x in given.items()}
        return outputs_of(self.workload, self.device, values)

    def values(self, inputs: Sequence[torch.Tensor]) -> dict[str, Any]:
        """All tensors that the calls begin with, by name."""
        own = {name.removeprefix("of_"): tensor for name, tensor in self.named_buffers()}
        return own | dict(zip(self.names, inputs, strict=True))


class Made(torch.nn.Module):
    """The model of a SCRIPT.py:FACTORY, in evaluation mode; its script is run."""

    def __init__(self, reference: str, device: str, dtype: str = "") -> None:
        from cudaforge_backend.cli.model import make_model

        super().__init__()
        self.model, inputs = make_model(reference, device)
        if dtype:
            self.model.to(getattr(torch, dtype))
        self.inputs = [
            x.to(getattr(torch, dtype)) if dtype and x.dtype == torch.float32 else x for x in inputs
        ]

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The model's outputs that are tensors."""
        return _tensors(self.model(*inputs))

    def exact(self, inputs: Sequence[torch.Tensor] | None = None) -> tuple[torch.Tensor, ...]:
        """The outputs in float64, for these inputs or its own."""
        model = copy.deepcopy(self.model).double()
        given = self.inputs if inputs is None else inputs
        return _tensors(model(*[x.double() if x.is_floating_point() else x for x in given]))


def _tensors(outputs: Any) -> tuple[torch.Tensor, ...]:
    leaves = torch.utils._pytree.tree_leaves(outputs)
    return tuple(x for x in leaves if isinstance(x, torch.Tensor))


def outputs_of(workload: Workload, device: str, values: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """The outputs of the workload's calls, which start from `values`."""

    for node in workload["nodes"]:
        args = [_value(arg, device, values) for arg in node["args"]]
        kwargs = {name: _value(arg, device, values) for name, arg in node.get("kwargs", {}).items()}
        values[node["name"]] = _called(node["op"])(*args, **kwargs)
    return tuple(_value(output, device, values) for output in workload["outputs"])


def _value(of: Any, device: str, values: dict[str, Any]) -> Any:
    """What an argument in the file stands for."""
    if isinstance(of, list):
        return [_value(one, device, values) for one in of]
    if not isinstance(of, dict):
        return of
    if "ref" in of:
        return values[of["ref"]]
    if "dtype" in of:
        return getattr(torch, of["dtype"])
    if "device" in of:
        return torch.device(device)
    if "float" in of:
        return float(of["float"])
    raise ValueError(f"an argument of a kind that this reader does not know: {of}")


def _called(op: str) -> Callable[..., Any]:
    if op == "getitem":
        return operator.getitem
    _, name, overload = op.split(".")
    return getattr(getattr(torch.ops.aten, name), overload)  # type: ignore[no-any-return]


def _filled(arg: dict[str, Any], shrink: int, generator: torch.Generator) -> torch.Tensor:
    shape = list(arg["shape"])
    if shape and shrink > 1:
        shape[0] = max(1, shape[0] // shrink)
    dtype = getattr(torch, arg["dtype"])
    init: dict[str, Any] = arg["init"] if isinstance(arg["init"], dict) else {arg["init"]: 0}
    kind, how = next(iter(init.items()))
    made = torch.empty(shape, device=generator.device)
    if kind == "uniform":
        made.uniform_(*how, generator=generator)
    elif kind == "normal":
        made.normal_(0, how, generator=generator)
    elif kind == "integers":
        made = torch.randint(how[0], how[1], shape, generator=generator, device=generator.device)
    elif kind == "bool":
        made = torch.rand(shape, generator=generator, device=generator.device) < how
    else:
        made.fill_(how)
    made = made.to(dtype)
    if "stride" not in arg or shrink > 1:
        return made
    strided = torch.empty_strided(shape, arg["stride"], dtype=dtype, device=generator.device)
    return strided.copy_(made)
