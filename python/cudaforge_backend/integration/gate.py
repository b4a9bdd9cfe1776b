"""The gate: a graph with its winners in place is timed against the graph without them.

A kernel that wins alone may lose in place: what Inductor would have fused into its neighbours now
goes through memory. The verdict is stored under the graph's name and asked for by every later
process."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor

from cudaforge_backend import measure
from cudaforge_backend._native import _C

Compiled = Callable[..., Any]

_SECONDS = 3.0  # of timing, at most
_MIN_ROUNDS = 10


def graph_name(gm: fx.GraphModule, inputs: Sequence[Any], winners: Mapping[str, str]) -> str:
    """A SHA-256 that is the same in every process: the graph's code, its inputs' metadata, and the
    winners' keys and checksums."""
    digest = hashlib.sha256(gm.code.encode())
    for value in inputs:
        if isinstance(value, torch.Tensor):
            spec = (value.dtype, tuple(value.shape), value.stride(), value.requires_grad)
            digest.update(repr((str(value.device), *spec)).encode())
        else:
            digest.update(repr(type(value)).encode())
    digest.update(repr(sorted(winners.items())).encode())
    return digest.hexdigest()


def stored(name: str, arch: str) -> bool | None:
    """Whether the winners pay in place, or None where the graph has not been timed."""
    verdict = _C.store().get_graph(name, arch)
    return None if verdict is None else verdict.get("pays") is not False


def real_inputs(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> list[Any]:
    """What the graph is called with; Dynamo shows backends fake tensors and keeps the real ones
    with the placeholders while it compiles."""
    nodes = gm.graph.find_nodes(op="placeholder")
    args = [getattr(node.meta.get("grapharg"), "example", None) for node in nodes]
    return [v if a is None else a for a, v in zip(args, example_inputs, strict=True)]


def can_time(inputs: Sequence[Any], inductor: Mapping[str, Any]) -> bool:
    """Whether the graph can be run here and now. CUDA-graph trees belong to the thread that calls
    the model, so a graph that uses them is not timed."""
    real = all(not isinstance(v, FakeTensor) and not isinstance(v, torch.SymInt) for v in inputs)
    return real and not inductor.get("triton.cudagraphs", False)


def decide(
    name: str,
    arch: str,
    winners: Mapping[str, str],
    without: Compiled,
    with_winners: Compiled,
    inputs: Sequence[Any],
) -> bool:
    """Times both on clones of the inputs, forward and, where an output requires grad, backward;
    stores and returns the verdict. Runs in a thread of its own, where nothing is being traced."""
    device = next(v.device for v in inputs if isinstance(v, torch.Tensor))
    grad = torch.is_grad_enabled()
    speedup = _in_thread(lambda: _race(without, with_winners, inputs, device.type, grad))
    pays = speedup[1] >= 1.0
    verdict = {"pays": pays, "speedup": list(speedup), "regions": sorted(winners)}
    _C.store().put_graph(name, arch, verdict)
    return pays


def _race(
    without: Compiled, with_winners: Compiled, inputs: Sequence[Any], device: str, grad: bool
) -> tuple[float, float, float]:
    # Whatever the graph writes to (running statistics) is a clone; parameters are only read.
    mine = [v.clone() if isinstance(v, torch.Tensor) and not v.requires_grad else v for v in inputs]
    devices = [torch.cuda.current_device()] if device == "cuda" else []
    with torch.random.fork_rng(devices=devices), torch.set_grad_enabled(grad):
        times = measure.time_interleaved(
            {"without": lambda: _step(without, mine), "with": lambda: _step(with_winners, mine)},
            device,
            min_rounds=_MIN_ROUNDS,
            budget_s=_SECONDS,
        )
    return times.speedup("without", "with")


def _step(compiled: Compiled, inputs: Sequence[Any]) -> None:
    outputs = compiled(*inputs)
    outputs = outputs if isinstance(outputs, tuple | list) else (outputs,)
    heads = [o for o in outputs if isinstance(o, torch.Tensor) and o.requires_grad]
    leaves = [v for v in inputs if isinstance(v, torch.Tensor) and v.requires_grad]
    if heads and leaves:
        ones = [torch.ones_like(o) for o in heads]
        torch.autograd.grad(heads, leaves, ones, allow_unused=True)


def _in_thread(work: Callable[[], tuple[float, float, float]]) -> tuple[float, float, float]:
    result: list[tuple[float, float, float]] = []
    failure: list[BaseException] = []

    def body() -> None:
        try:
            result.append(work())
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=body, name="cudaforge-gate")
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return result[0]
