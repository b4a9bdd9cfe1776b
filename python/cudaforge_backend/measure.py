"""Warm timing of whole callables, interleaved: what a user of a compiled model sees."""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ._native import _C

Call = Callable[[], Any]


@dataclass(frozen=True)
class Times:
    """Interleaved times of named callables; drift of the machine hits all alike."""

    paired: _C.PairedTimes

    def median_ms(self, name: str) -> float:
        """Milliseconds of one call. KeyError: there is no such name."""
        return self.paired.median_ns(name) / 1e6

    def speedup(self, base: str, name: str) -> tuple[float, float, float]:
        """time(base) / time(name): low, median, high of the 95% interval."""
        return self.paired.speedup(base, name)


def time_interleaved(
    calls: Mapping[Any, Call],
    device: torch.device | str,
    min_rounds: int = 10,
    budget_s: float = 4.0,
    cold: bool = False,
) -> Times:
    """Times calls with warm caches: CUDA events of that GPU, synchronised; on "cpu" a clock. cold,
    for a GPU: device time with empty caches, behind queued work that hides 1 ms of the host's.

    Rounds of one call each, in random order, after two that do not count; stops once `min_rounds`
    rounds were run and `budget_s` seconds are spent. What a callable raises is raised here."""
    clock = _cold_clock(device) if cold else _clock(device)
    timed = [functools.partial(clock, call) for call in calls.values()]
    return Times(_C.time_interleaved(list(calls), timed, min_rounds, budget_s))


def compiled_apart(model: torch.nn.Module, **options: Any) -> Call:
    """torch.compile(model, **options) with its own entry in Dynamo's cache, which is by code. Two
    callables that share one find its guards in the processor's caches more often than a third: 3 to
    6% of a call of 1 ms.

    Whatever a process compiles first is slower, by 5% of a call of 25 us. So compile a control
    last."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return model(*args, **kwargs)

    call.__code__ = call.__code__.replace(co_name=f"call_{next(_numbers)}")
    compiled: Call = torch.compile(call, **options)
    return compiled


_numbers = itertools.count()


def once_ms(call: Call, device: torch.device | str) -> float:
    """Milliseconds of one call. Clocks as of time_interleaved."""
    return _clock(device)(call) / 1e6


def fastest_ms(call: Call, device: torch.device | str, budget_s: float) -> float:
    """Milliseconds of the fastest of the calls that fit into `budget_s` seconds, at least of one;
    where that is short, another one before does not count. Clocks as of time_interleaved."""
    clock = _clock(device)
    found = [clock(call)]
    began = time.monotonic()
    while found[0] < budget_s * 1e9 and time.monotonic() - began < budget_s:
        found.append(clock(call))
    return min(found[1:] or found) / 1e6


def _clock(device: torch.device | str) -> Callable[[Call], float]:
    """Gives the nanoseconds of a call."""
    device = torch.device(device)
    return functools.partial(_cuda_ns, device) if device.type == "cuda" else _cpu_ns


def _cold_clock(device: torch.device | str) -> Callable[[Call], float]:
    from .integration.clocks import cuda_clock

    clock = cuda_clock(torch.device(device))
    return lambda call: clock(call, ())


def _cpu_ns(call: Call) -> float:
    start = time.perf_counter_ns()
    call()
    return float(time.perf_counter_ns() - start)


def _cuda_ns(device: torch.device, call: Call) -> float:
    with torch.cuda.device(device):  # whose events these are
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
        begin.record()
        call()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) * 1e6
