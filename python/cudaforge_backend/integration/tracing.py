"""Tracing while other threads of the program run compiled functions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

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
