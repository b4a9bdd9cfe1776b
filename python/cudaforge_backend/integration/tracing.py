"""Tracing while the program's other threads run compiled functions."""

from __future__ import annotations

import os
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


def _forget() -> None:
    """In a forked child: the threads that traced do not exist there."""
    global _tracers
    if _tracers:
        from torch._dynamo import config

        _tracers = 0
        config.error_on_nested_fx_trace = _before


os.register_at_fork(after_in_child=_forget)
