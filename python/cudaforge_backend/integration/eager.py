"""Eager calls: chosen ATen operators are looked up on their way through PyTorch's dispatcher
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

_OPTIONS = tuple(name for name in OPTIONS if name not in ("graph_budget_s", "inductor"))


@dataclass(frozen=True, eq=False)
class _Configuration:
    """What one enable() asked for."""

    ops: tuple[str, ...]
    settings: Settings
    process: int  # that called enable()


@dataclass(eq=False)
class _Inside:
    """A `with` that was entered and has not ended."""

    of: Interception
    thread: threading.Thread
    before: _Configuration | None  # what its end restores


class Interception:
    """What enable() and disable() return. As a context manager it restores, at its end, what was in
    force before it. Meanwhile only the thread that entered it may change what is in force. Of two
    that overlap in one thread (in tasks of asyncio, in generators) the later one holds to its end,
    which then restores what was in force before both."""

    def __init__(self, wanted: _Configuration | None) -> None:
        """Puts `wanted` in force; None: nothing is intercepted."""
        self._wanted = wanted
        with _lock:
            self._before = _put_in_force(wanted)
            self._is_new = True  # no `with` has been entered

    @property
    def ops(self) -> tuple[str, ...]:
        """The overloads that enable() was asked for; of disable() none."""
        return self._wanted.ops if self._wanted is not None else ()

    def __repr__(self) -> str:
        if disabled():
            return f"<{type(self).__name__} of enable(), without effect: CUDAFORGE_DISABLE is set>"
        asked = f"enable() of {counted(len(self.ops), 'overload')}" if self.ops else "disable()"
        holds = _active is self._wanted
        return f"<{type(self).__name__} of {asked}, {'' if holds else 'not '}in force>"

    def __enter__(self) -> Self:
        with _lock:
            before = self._before
            if self._is_new and _active is self._wanted:
                _refuse_beside_other_threads()
            else:
                before = _put_in_force(self._wanted)
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


_lock = fork_safe_lock()  # guards what follows
_active: _Configuration | None = None  # what is in force; None also while that changes
_inside: list[_Inside] = []  # oldest first, all of one thread
_queue: Queue | None = None  # of what is in force
_writes_at_end: int | None = None  # the process that _write_at_end was called in

atexit.register(_C.end_eager_misses)


def enable(ops: Iterable[str] | None = None, **options: Any) -> Interception:
    """Has eager calls of ATen operators, of programs that do not compile, looked up in the kernel
    cache: a call with a winner is served by it, any other runs as before.

    `ops`: overloads ("aten::_softmax") and patterns ("aten::*norm*"); None: those that winners can
    exist for. `options`: on_miss, region_budget_s, cache_dir and agents, as torch.compile's for
    this backend; what is missing is recorded, or forged in the background, or at once. Unless
    on_miss or CUDAFORGE_ON_MISS says otherwise, it is recorded ("record"), and nothing is forged.

    Holds for the process until disable(); called again, it replaces what was in force. As a context
    manager, `with enable(...):`, it restores at its end what was in force before. Until then
    enable() and disable() in other threads raise RuntimeError. With "background", the region under
    way at the end is finished, and no other is begun. Thread-safe. Raises OptionError for an
    unknown option, and for an operator that is not known or may not be intercepted (a view, one
    that changes its arguments or draws random numbers)."""
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
    """Has eager calls of every operator run as PyTorch alone would run them. As a context manager,
    `with disable():`, it restores at its end what was in force before. Raises RuntimeError where
    another thread is inside a `with`. Thread-safe."""
    return Interception(None)


def _write_at_end() -> None:
    """Has what this process records written before it ends. Children of multiprocessing leave by
    os._exit, of which atexit is not told. REQUIRES: _lock is held."""
    global _writes_at_end
    if _writes_at_end == os.getpid():
        return
    _writes_at_end = os.getpid()
    if multiprocessing.parent_process() is not None:
        multiprocessing.util.Finalize(None, _C.end_eager_misses, exitpriority=-1)


def _refuse_beside_other_threads() -> None:
    """RuntimeError where another thread is inside a `with`. REQUIRES: _lock is held."""
    inside = _inside[-1].thread if _inside else threading.current_thread()
    if inside is not threading.current_thread() and inside.is_alive():
        raise RuntimeError(
            "another thread is inside a `with cudaforge_backend.enable()` or `with disable()`, "
            "which hold for all threads: enter one `with` around the work of both threads"
        )


def _put_in_force(wanted: _Configuration | None) -> _Configuration | None:
    """What was in force before; RuntimeError where another thread is inside a `with`. An error
    changes nothing. REQUIRES: _lock is held."""
    _refuse_beside_other_threads()
    before = _active
    try:
        _apply(wanted)
    except Exception:
        _apply(before)
        raise
    return before


def _apply(wanted: _Configuration | None) -> None:
    """Has `wanted` be in force. REQUIRES: _lock is held."""
    global _queue, _active
    _active = None
    if _queue is not None:
        _queue.end()
        _queue = None
    if wanted is None:
        _C.intercept([])
        _C.on_eager_miss(False, None)
    _C.flush_eager_misses()  # to the cache that they were meant for
    if wanted is not None:
        settings = wanted.settings
        open_cache(settings.cache_dir)
        # A forked child is served. What its parent asked for, it neither records nor forges.
        own = wanted.process == os.getpid()
        if own and settings.records:
            _write_at_end()
        _queue = Queue(settings) if own and settings.on_miss == "background" else None
        _C.on_eager_miss(own and settings.records, on_miss(settings, _queue))
        _C.intercept(list(wanted.ops))
    _active = wanted
