"""Whole graphs: what they are compiled to, their names in the cache, and where they run."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from cudaforge_backend._native import _C

Compiled = Callable[..., Any]


def graph_name(gm: fx.GraphModule, inputs: Sequence[Any], facts: object) -> str:
    """A SHA-256 that is the same in every process: the code of the graph and of the graphs that its
    higher-order operators call, the metadata of its inputs (which share memory among it) and of the
    tensors that it holds, and `facts`, whose repr must be the same as well. Devices count by order
    of appearance: a graph has one name on every GPU of a machine."""
    digest = hashlib.sha256()
    for name, module in gm.named_modules():
        if isinstance(module, fx.GraphModule):
            digest.update(f"{name}\n{module.code}\n".encode())
    storages: dict[int, int] = {}
    devices: dict[torch.device, int] = {}
    held = [*gm.named_parameters(), *gm.named_buffers()]
    for name, value in [*(("", v) for v in inputs), *held]:
        digest.update(f"{name} {_metadata(value, storages, devices)}\n".encode())
    digest.update(repr(facts).encode())
    return digest.hexdigest()


def _metadata(value: Any, storages: dict[int, int], devices: dict[torch.device, int]) -> str:
    """Of one tensor; `storages` and `devices` number those seen so far."""
    if not isinstance(value, torch.Tensor):
        return repr(type(value))
    layout = (value.dtype, tuple(value.shape), value.stride(), value.storage_offset())
    identity = value.untyped_storage()._cdata
    storage = storages.setdefault(identity, len(storages))
    bits = (value.requires_grad, value.is_conj(), value.is_neg())
    device = (value.device.type, devices.setdefault(value.device, len(devices)))
    return repr((*device, *layout, *bits, storage))


def device_of(inputs: Sequence[Any]) -> torch.device:
    """The device on which a graph with these inputs runs. Inputs on a GPU may be mixed with 0-d
    tensors on the CPU. REQUIRES: a tensor among them."""
    tensors = [v for v in inputs if isinstance(v, torch.Tensor)]
    return next((v for v in tensors if v.dim()), tensors[0]).device


def arch_of(inputs: Sequence[Any]) -> str:
    """The architecture of their device."""
    device = device_of(inputs)
    return str(_C.arch(device.type, device.index or 0))
