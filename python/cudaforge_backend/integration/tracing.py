"""Tracing while the program's other threads run compiled functions, and more than once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cudaforge_backend.forks import fork_safe_lock

_lock = fork_safe_lock()
_tracers = 0
_before = True


@contextmanager
def beside_running_programs() -> Iterator[None]:
    """For the tracing that a caller does not expect: of rivals while kernels are forged, of the
    graph that is swapped in, of what explain() reports. FX marks a trace for the whole process, and
    Dynamo refuses every call of a compiled function while the mark is there, in whatever thread.
    Inside, such calls run uncompiled. Thread-safe."""
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
    """For a compilation with other decompositions than Inductor's. AOTAutograd keeps what it traced
    of the bodies of nested_compile_region() for all compilations of a Dynamo graph. Inside, it
    keeps what it traces apart."""
    from torch._guards import HopDispatchSetCache, TracingContext

    if TracingContext.try_get() is None:
        yield
        return
    with TracingContext.patch(hop_dispatch_set_cache=HopDispatchSetCache()):
        yield
