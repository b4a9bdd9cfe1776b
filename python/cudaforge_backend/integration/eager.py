"""Eager calls: PyTorch's dispatcher looks up chosen ATen operators in the kernel cache
(csrc/dispatch/eager.h)."""

from __future__ import annotations

import atexit
import multiprocessing.util
import os
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

import torch

from cudaforge_backend import errors
from cudaforge_backend._native import _C
from cudaforge_backend.forks import fork_safe_lock
from cudaforge_backend.options import OPTIONS, Settings, disabled, parse
from cudaforge_backend.records import counted
from cudaforge_backend.stats import warn_once

from .backend import open_cache, warn_of_environment
from .eager_misses import Queue, on_miss
from .eager_ops import chosen_ops, default_ops

_OF_GRAPHS = ("graph_budget_s", "inductor", "frozen_weights")
_OPTIONS = tuple(name for name in OPTIONS if name not in _OF_GRAPHS)


@dataclass(frozen=True, eq=False)
class _Configuration:
    """The settings of one enable()."""

    ops: tuple[str, ...]
    settings: Settings
    process: int  # that called enable()


@dataclass(eq=False)
class _Inside:
    """An open `with` block."""

    of: Interception
    thread: threading.Thread
    before: _Configuration | None  # what its end restores


class Interception:
    """The result of enable() and disable(). As a context manager it restores the earlier setting at
    its end; until then only the thread that entered it may call enable() or disable(). If two
    overlap in one thread (asyncio tasks, generators), the later one stays active until its end,
    which restores the setting from before both."""

    def __init__(self, requested: _Configuration | None) -> None:
        """Activates a setting; None: nothing is intercepted."""
        self._requested = requested
        with _lock:
            self._before = _activate(requested)
            self._is_new = True  # no `with` has been entered

    @property
    def ops(self) -> tuple[str, ...]:
        """The overloads that enable() was given; disable(): none."""
        return self._requested.ops if self._requested is not None else ()

    def __repr__(self) -> str:
        if disabled():
            return f"<{type(self).__name__} of enable(), without effect: CUDAFORGE_DISABLE is set>"
        asked = f"enable() of {counted(len(self.ops), 'overload')}" if self.ops else "disable()"
        holds = _active is self._requested
        return f"<{type(self).__name__} of {asked}, {'' if holds else 'not '}in force>"

    def __enter__(self) -> Self:
        with _lock:
            before = self._before
            if self._is_new and _active is self._requested:
                _refuse_beside_other_threads()
            else:
                before = _activate(self._requested)
            self._is_new = False
            _inside.append(_Inside(self, threading.current_thread(), before))
        return self

    def __exit__(self, *error: object) -> None:
        with _lock:
            at = max(i for i, one in enumerate(_inside) if one.of is self)
            ended = _inside.pop(at)
            if at == len(_inside):
                _apply(ended.before)
            else:
                _inside[at].before = ended.before


_lock = fork_safe_lock()  # guards these:
_active: _Configuration | None = None  # None also while it changes
_inside: list[_Inside] = []  # open `with` blocks, oldest first, all of one thread
_queue: Queue | None = None  # of the active setting
_writes_at_end: int | None = None  # process that called _write_at_end

atexit.register(_C.end_eager_misses)


def enable(ops: Iterable[str] | None = None, **options: Any) -> Interception:
    """Looks up eager calls of ATen operators in the kernel cache, for programs that do not compile.
    A call with a winner runs its kernel; other calls run as before.

    ops: overloads ("aten::_softmax") and patterns ("aten::*norm*"); None: all that can have
        winners.
    options: on_miss, region_budget_s, cache_dir and agents, as in torch.compile's options. The
        default of on_miss is "record" (or CUDAFORGE_ON_MISS): calls without a kernel are recorded
        and nothing is forged.

    Holds for the whole process until disable(); a second call replaces the first. As a context
    manager it restores the earlier setting at its end; until then enable() and disable() in other
    threads raise RuntimeError. With "background", a forging in progress at the end is finished.
    Thread-safe. Raises OptionError for an unknown option or operator, and for an operator that may
    not be intercepted (a view, or one that changes its arguments or draws random numbers)."""
    for name in options:
        if name not in _OPTIONS:
            raise errors.unknown("option", name, _OPTIONS)
    settings = parse(None, options, on_miss="record")
    names = default_ops() if ops is None else chosen_ops(ops)
    if disabled():
        return Interception(None)
    warn_of_environment()
    if torch.get_default_dtype() != torch.float32:
        warn_once(
            f"under another default dtype than float32 (now {torch.get_default_dtype()}) eager "
            "calls run PyTorch's way"
        )
    return Interception(_Configuration(names, settings, os.getpid()))


def disable() -> Interception:
    """Stops looking up eager calls: PyTorch runs them all. As a context manager it restores the
    earlier setting at its end. Raises RuntimeError if another thread is inside a `with`.
    Thread-safe."""
    return Interception(None)


def _write_at_end() -> None:
    """Writes this process's records before it ends. Children of multiprocessing end by os._exit,
    which does not call atexit. REQUIRES: _lock is held."""
    global _writes_at_end
    if _writes_at_end == os.getpid():
        return
    _writes_at_end = os.getpid()
    if multiprocessing.parent_process() is not None:
        multiprocessing.util.Finalize(None, _C.end_eager_misses, exitpriority=-1)


def _refuse_beside_other_threads() -> None:
    """RuntimeError: another thread is inside a `with`. REQUIRES: _lock is held."""
    inside = _inside[-1].thread if _inside else threading.current_thread()
    if inside is not threading.current_thread() and inside.is_alive():
        raise RuntimeError(
            "another thread is inside a `with cudaforge_backend.enable()` or `with disable()`, "
            "which hold for all threads: enter one `with` around the work of both threads"
        )


def _activate(requested: _Configuration | None) -> _Configuration | None:
    """Returns the earlier setting. RuntimeError: another thread is inside a `with`. An error
    changes nothing. REQUIRES: _lock is held."""
    _refuse_beside_other_threads()
    before = _active
    try:
        _apply(requested)
    except Exception:
        _apply(before)
        raise
    return before


def _apply(requested: _Configuration | None) -> None:
    """REQUIRES: _lock is held."""
    global _queue, _active
    _active = None
    if _queue is not None:
        _queue.end()
        _queue = None
    if requested is None:
        _C.intercept([])
        _C.on_eager_miss(False, None)
    _C.flush_eager_misses()  # into the cache that was open when they were found
    if requested is not None:
        settings = requested.settings
        open_cache(settings.cache_dir)
        # In a forked child kernels serve, but its parent's setting neither records nor forges.
        own = requested.process == os.getpid()
        if own and settings.records:
            _write_at_end()
        _queue = Queue(settings) if own and settings.on_miss == "background" else None
        _C.on_eager_miss(own and settings.records, on_miss(settings, _queue))
        _C.intercept(list(requested.ops))
    _active = requested
