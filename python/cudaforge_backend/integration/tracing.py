"""Tracing while other threads of the program run compiled functions."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from cudaforge_backend.forks import fork_safe_lock

_lock = fork_safe_lock()
_tracers = 0
_before = True


@contextmanager
def beside_running_programs() -> Iterator[None]:
    """For traces that the program does not expect: of rivals, of a graph that is swapped in, of
    explain(). FX marks a trace for the whole process, and Dynamo then refuses compiled calls in
    every thread. Inside this context those calls run uncompiled. Thread-safe."""
    global _tracers, _before
    from torch._dynamo import config

    with _lock:
        if _tracers == 0:
            _before = config.error_on_nested_fx_trace
            config.error_on_nested_fx_trace = False
        _tracers += 1
    try:
        yield
    finally:
        with _lock:
            _tracers -= 1
            if _tracers == 0:
                config.error_on_nested_fx_trace = _before


_states = fork_safe_lock()
_leaving = 0  # threads inside of leaving_random_state()
_here = threading.local()  # .leaving: whether this thread is inside
_set_states: dict[Any, Callable[..., None]] = {}  # set_rng_state of torch.random and torch.cuda


@contextmanager
def leaving_random_state() -> Iterator[None]:
    """For compilations next to the program. Inductor saves the random state of the process and
    restores it seconds later, so that the program would draw numbers twice. Inside this context
    this thread restores no state. Thread-safe."""
    global _leaving
    with _states:
        if _leaving == 0:
            modules: tuple[Any, ...] = (torch.random, torch.cuda)
            for module in modules:
                _set_states[module] = module.set_rng_state
                module.set_rng_state = _unless_leaving(module.set_rng_state)
        _leaving += 1
    before = getattr(_here, "leaving", False)
    _here.leaving = True
    try:
        yield
    finally:
        _here.leaving = before
        with _states:
            _leaving -= 1
            if _leaving == 0:
                for module, real in _set_states.items():
                    module.set_rng_state = real


def _unless_leaving(real: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(real)
    def set_rng_state(*args: Any, **kwargs: Any) -> None:
        if not getattr(_here, "leaving", False):
            real(*args, **kwargs)

    return set_rng_state


@contextmanager
def own_bodies() -> Iterator[None]:
    """For a compilation with other decompositions than Inductor's. AOTAutograd caches traced bodies
    of nested_compile_region() for all compilations of a Dynamo graph; inside this context it uses a
    cache of its own."""
    from torch._guards import HopDispatchSetCache, TracingContext

    if TracingContext.try_get() is None:
        yield
        return
    with TracingContext.patch(hop_dispatch_set_cache=HopDispatchSetCache()):
        yield
