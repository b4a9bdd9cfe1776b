"""Headroom: whether a kernel for a region can make its graph faster. From the time of the fastest
rival, the least time that the device needs, and the region's share of its graph's time."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping
from typing import Any

import torch

from cudaforge_backend import log, measure
from cudaforge_backend._native import _C
from cudaforge_backend.forks import fork_safe_lock

from . import rivals
from .clocks import cuda_clock

LEAST_OF_GRAPH = 0.01  # of a graph's time, that a kernel must be able to save
LEAST_ABOVE_FLOOR = 0.05  # of the rival's time
LEAST_US = 10.0  # in one call of a graph, which takes longer from Python than that
_ROUNDS, _SECONDS = 7, 0.1  # of the timing

_facts_lock = fork_safe_lock()
_facts: dict[str, Mapping[str, Any]] = {}


def device_facts(device: torch.device, arch: str) -> Mapping[str, Any]:
    """A GPU's measured rates, kept in the cache. Empty for a CPU (its caches make a floor
    uncertain) and if measuring fails."""
    if device.type != "cuda":
        return {}
    model = device_model(device)  # those of one architecture differ
    with _facts_lock:
        if model not in _facts:
            versions = sorted(_C.versions().items())
            name = hashlib.sha256(repr(("device facts", model, versions)).encode()).hexdigest()
            found = _C.store().get_graph(name, arch)
            if found is None or not isinstance(found.get("launch_us"), float):
                try:
                    found = _C.device_facts(device.type, device.index or 0)
                    if found["alone"]:  # no other forge of this machine was timing
                        _C.store().put_graph(name, arch, found)
                except Exception as error:  # forging says what is missing, and whether all fails
                    log.forge.debug("the device was not measured: %s", error)
                    return found or {}
            _facts[model] = found
        return _facts[model]


def device_model(device: torch.device) -> str:
    """The name of a GPU's model; "" for a CPU."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else ""


def floor_us(signature: _C.Signature, device: torch.device, arch: str) -> float:
    """The least microseconds of one call."""
    facts = device_facts(device, arch)
    return signature.floor_us(facts) if facts else 0.0


def rival_us(
    signature: _C.Signature, device: torch.device, calls: Mapping[str, rivals.Call]
) -> float | None:
    """Microseconds of one call of the fastest of `calls`, with inputs in the L2 if they fit. None:
    other programs kept the processor busy."""
    inputs = rivals.make_inputs(signature, device, seed=0)
    steps = {name: functools.partial(call, inputs) for name, call in calls.items()}
    if device.type != "cuda":
        load = _C.MachineLoad()
        cold = measure.time_interleaved(steps, device.type, _ROUNDS, _SECONDS)
        return None if load.was_disturbed() else min(map(cold.median_ms, steps)) * 1e3
    clock = cuda_clock(device)
    l2_bytes = torch.cuda.get_device_properties(device).L2_cache_size
    warm = inputs if signature.bytes[0] <= l2_bytes // 2 else []
    timed = [functools.partial(clock, step, warm) for step in steps.values()]
    times = _C.time_interleaved(list(steps), timed, _ROUNDS, _SECONDS)
    return min(map(times.median_ns, steps)) / 1e3


def why_little(times: int, us: float, floor_us: float, graph_us: float | None) -> str:
    """Why no kernel is made for a region; "" if one may pay. times: how often the graph has the
    region. us: microseconds of its rival. graph_us: of the whole graph; None: unknown."""
    above = max(0.0, 1 - floor_us / us)
    if above < LEAST_ABOVE_FLOOR:
        return f"it takes {us:.1f} us, and this device at least {floor_us:.1f} us"
    if times * us < LEAST_US:
        return f"it takes {times * us:.1f} us of its graph, less than calling the graph does"
    if graph_us is None:
        return ""
    share = times * us / graph_us
    if share * above >= LEAST_OF_GRAPH:
        return ""
    at_most = f", and a kernel can save at most {above:.0%} of that" if floor_us else ""
    return f"it is {share:.1%} of its graph's time{at_most}"
