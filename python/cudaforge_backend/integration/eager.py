"""Eager calls: chosen ATen operators are looked up on their way through PyTorch's dispatcher
(csrc/dispatch/eager.h)."""

from __future__ import annotations

import atexit
import functools
import multiprocessing.util
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
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


@dataclass(eq=False)
class _State:
    """What one enable() asked for, or one `with disable()`; of each `with` that begins again or
    inside itself there is one more."""

    ops: tuple[str, ...] = ()
    settings: Settings | None = None  # None: nothing is intercepted
    process: int = field(default_factory=os.getpid)  # that asked for it
    entered: bool = False  # its end is that of a `with`
    ended: bool = False  # it holds no more


class Interception:
    """What enable() and disable() return. As a context manager, its end takes back what was asked
    for; what was asked for last of all else, in whatever thread, is then in force. Thread-safe."""

    def __init__(self, state: _State | None) -> None:
        self._state = state
        self._disabled: list[_State] = []  # what held before disable()
        self._withs: list[tuple[int, _State]] = []  # under way, with their threads

    @property
    def ops(self) -> tuple[str, ...]:
        """The overloads that enable() was asked for; of disable() none."""
        return self._state.ops if self._state is not None else ()

    def __repr__(self) -> str:
        if self._state is None:
            return f"<{type(self).__name__} of enable(), without effect: CUDAFORGE_DISABLE is set>"
        asked = f"enable() of {counted(len(self.ops), 'overload')}" if self.ops else "disable()"
        own = [self._state, *(state for _, state in self._withs)]
        holds = any(state is _in_force for state in own)
        if not self.ops:  # what disable() asks for holds, too, where nothing else does
            holds = holds or not _states
        return f"<{type(self).__name__} of {asked}, {'' if holds else 'not '}in force>"

    def __enter__(self) -> Self:
        first = self._state
        if first is None:
            return self
        state: _State | None = None
        try:
            with _lock:
                state = replace(first, ended=False) if first.entered else first
                state.entered = True
                self._withs.append((threading.get_ident(), state))
            _change(functools.partial(self._begin, state))
        except BaseException:  # an interrupt: no __exit__ follows
            begun = state or (None if first.entered else first)
            if begun is not None:
                with _lock:
                    self._withs = [one for one in self._withs if one[1] is not begun]
                _end(begun)
            raise
        return self

    def __exit__(self, *error: object) -> None:
        if self._withs:  # there are none where nothing is intercepted at all: see disabled()
            with _lock:
                own = [one for one in self._withs if one[0] == threading.get_ident()]
                last = (own or self._withs)[-1]  # a generator's `with` may end in any thread
                try:
                    _end(last[1])
                finally:
                    self._withs.remove(last)

    def _begin(self, state: _State, states: list[_State]) -> list[_State]:
        held = [other for other in self._disabled if not other.ended and other not in states]
        self._disabled = []
        # It may have been taken for replaced, or been disabled, before it began.
        return [*held, *states, *([] if state in states else [state])]

    def _end_all(self, states: list[_State]) -> list[_State]:
        self._disabled = states
        return []


def _end(state: _State) -> None:
    state.ended = True
    try:
        _change(_without_what_has_ended)
    except BaseException:  # an interrupt, which may have come before the change
        _change(_without_what_has_ended)
        raise


def _without_what_has_ended(states: list[_State]) -> list[_State]:
    return [state for state in states if not state.ended]


class _PerThread(threading.local):
    changes = False  # the thread is in the midst of _change


_thread = _PerThread()
_lock = fork_safe_lock()  # guards what follows
_changes: deque[Callable[[list[_State]], list[_State]]] = deque()  # that are asked for
_states: list[_State] = []  # all that hold; the last one is to be in force
_in_force: _State | None = None  # None also while that changes
_queue: Queue | None = None  # of the state in force
_writes_at_end: int | None = None  # the process that _write_at_end was called in

atexit.register(_C.end_eager_misses)


def enable(ops: Iterable[str] | None = None, **options: Any) -> Interception:
    """Has eager calls of ATen operators, of programs that do not compile, looked up in the kernel
    cache: a call with a winner is served by it, any other runs as before.

    `ops`: overloads ("aten::_softmax") and patterns ("aten::*norm*"); None: those that winners can
    exist for. `options`: on_miss, region_budget_s, cache_dir and agents, as torch.compile's for
    this backend; what is missing is recorded, or forged in the background, or at once.

    Holds for the process until disable(); asked for anew, it replaces what was asked for before. As
    a context manager, `with enable(...):`, it holds until the end of that, in every thread: then
    what was asked for last, of all that still holds, is in force. The background forges what is in
    force alone: the region under way is finished, the rest is not begun. Thread-safe. Raises
    OptionError for an unknown option, and for an operator that is not known or may not be
    intercepted (a view, one that changes its arguments or draws random numbers)."""
    for name in options:
        if name not in _OPTIONS:
            raise errors.unknown("option", name, _OPTIONS)
    settings = parse(None, options)
    names = default_ops() if ops is None else chosen_ops(ops)
    if disabled():
        return Interception(None)
    warn_of_environment()
    if torch.get_default_dtype() != torch.float32:
        warn_once(
            f"under another default dtype than float32 (now {torch.get_default_dtype()}) eager "
            "calls run PyTorch's way"
        )
    asked = _State(names, settings)

    def with_it(states: list[_State]) -> list[_State]:
        # An enable() without `with` replaces the one before. Of the last one and of this it is not
        # known yet whether a `with` will enter them: both are kept.
        replaced = [state for state in states if not state.entered][:-1]
        return [*(state for state in states if state not in replaced), asked]

    interception = Interception(asked)
    try:
        _change(with_it)
    except BaseException:
        _end(asked)
        raise
    return interception


def disable() -> Interception:
    """Has eager calls of every operator run as PyTorch alone would run them. Ends what every
    enable() asked for, also inside its `with`. As a context manager, `with disable():`, for as long
    as that lasts, in every thread: then what held before holds again, but for what has ended
    meanwhile. Thread-safe."""
    interception = Interception(_State())
    _change(interception._end_all)
    return interception


def _change(change: Callable[[list[_State]], list[_State]]) -> None:
    """Replaces what holds by change(what holds). In the midst of a change by the same thread, where
    a generator's `with` may end as garbage is collected, or a signal be handled: after that
    change."""
    with _lock:
        _changes.append(change)
        if _thread.changes:
            return
        try:
            _thread.changes = True
            while _changes:
                _apply(_changes.popleft()(list(_states)))
        finally:
            _thread.changes = False


def _write_at_end() -> None:
    """Has what this process records written before it ends. Children of multiprocessing leave by
    os._exit, of which atexit is not told. REQUIRES: _lock is held."""
    global _writes_at_end
    if _writes_at_end == os.getpid():
        return
    _writes_at_end = os.getpid()
    if multiprocessing.parent_process() is not None:
        multiprocessing.util.Finalize(None, _C.end_eager_misses, exitpriority=-1)


def _apply(states: list[_State]) -> None:
    """Has those of `states` hold that have not ended, and the last of them be in force. REQUIRES:
    _lock is held."""
    global _queue, _in_force
    # They hold where what follows is interrupted, and the next change does it.
    _states[:] = [state for state in states if not state.ended]
    last = _states[-1] if _states else _State()
    if last is _in_force:
        return
    _in_force = None
    if _queue is not None:
        _queue.end()
        _queue = None
    settings = last.settings
    if settings is None:
        _C.intercept([])
        _C.on_eager_miss(False, None)
    _C.flush_eager_misses()  # to the cache that they were meant for
    if settings is not None:
        open_cache(settings.cache_dir)
        # A forked child is served. What its parent asked for, it neither records nor forges.
        own = last.process == os.getpid()
        if own and settings.records:
            _write_at_end()
        _queue = Queue(settings) if own and settings.on_miss == "background" else None
        _C.on_eager_miss(own and settings.records, on_miss(last.process, settings, _queue))
        _C.intercept(list(last.ops))
    _in_force = last
