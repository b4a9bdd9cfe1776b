"""Eager calls: chosen ATen operators are looked up on their way through PyTorch's dispatcher
(csrc/dispatch/eager.h)."""

from __future__ import annotations

import atexit
import functools
import logging
import multiprocessing.util
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Self

from cudaforge_backend import errors, log
from cudaforge_backend._native import _C
from cudaforge_backend.locks import ForkSafeLock, ForkSafeRLock
from cudaforge_backend.options import OPTIONS as ALL_OPTIONS
from cudaforge_backend.options import Settings, disabled, parse
from cudaforge_backend.records import not_served, result_text, summary
from cudaforge_backend.stats import count_miss

from .backend import open_cache, warn_of_environment
from .eager_ops import chosen_ops, default_ops
from .ending import program_has_ended
from .rules import refusal
from .telling import current_progress, tell_of_failed_background, telling_of_forging

OPTIONS = tuple(name for name in ALL_OPTIONS if name != "inductor")


@dataclass(eq=False)
class _State:
    """What one enable() asked for, or one `with disable()`; of each `with` that begins again or
    inside itself there is one more."""

    ops: tuple[str, ...] = ()
    settings: Settings | None = None  # None: nothing is intercepted
    process: int = field(default_factory=os.getpid)  # that asked for it
    entered: bool = False  # its end is that of a `with`
    ended: bool = False  # that `with`


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

    def __enter__(self) -> Self:
        if self._state is not None:
            with _lock:
                again = self._state.entered
                state = replace(self._state, ended=False) if again else self._state
                state.entered = True
            try:
                _change(functools.partial(self._begin, state))
            except BaseException:
                _end(state)
                raise
            self._withs.append((threading.get_ident(), state))
        return self

    def __exit__(self, *error: object) -> None:
        if self._withs:  # there are none where nothing is intercepted at all: see disabled()
            with _lock:
                own = [one for one in self._withs if one[0] == threading.get_ident()]
                last = (own or self._withs)[-1]  # a generator's `with` may end in any thread
                self._withs.remove(last)
            _end(last[1])

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
    _change(lambda states: [other for other in states if other is not state])


class _Thread(threading.local):
    """What each thread has of its own."""

    changes = False  # it is in the midst of _change


_lock = ForkSafeRLock()  # guards what follows
_changes: deque[Callable[[list[_State]], list[_State]]] = deque()  # that are asked for
_thread = _Thread()
_states: list[_State] = []  # all that hold; the last one is to be in force
_in_force: _State | None = None  # None also while that changes
_queue: _Queue | None = None  # of the state in force
atexit.register(_C.end_eager_misses)


def enable(ops: Iterable[str] | None = None, **options: Any) -> Interception:
    """Has eager calls of ATen operators, of programs that do not compile, looked up in the kernel
    cache: a call with a winner is served by it, any other runs as before.

    `ops`: overloads ("aten::_softmax") and patterns ("aten::*norm*"); None: those that winners can
    exist for. `options`: on_miss, region_budget_s, cache_dir and agents, as torch.compile's for
    this backend; what is missing is recorded, or forged in the background, or at once.

    Holds for the process until disable(); asked for anew, it replaces what was asked for before. As
    a context manager, `with enable(...):`, it holds until the end of that, in every thread: then
    what was asked for last, of all that still holds, is in force. What is not in force any more is
    not forged in the background either. Thread-safe. Raises OptionError for an unknown option, and
    for an operator that is not known or may not be intercepted (a view, one that changes its
    arguments or draws random numbers)."""
    for name in options:
        if name not in OPTIONS:
            raise errors.unknown("option", name, OPTIONS)
    settings = parse(None, options)
    names = default_ops() if ops is None else chosen_ops(ops)
    if disabled():
        return Interception(None)
    warn_of_environment()
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
    """Has change(what holds) hold. In the midst of a change by the same thread, where a generator's
    `with` may end as garbage is collected, or a signal be handled: after that change."""
    with _lock:
        _changes.append(change)
        if _thread.changes:
            return
        _thread.changes = True
        try:
            while _changes:
                _rule(_changes.popleft()(list(_states)))
        finally:
            _thread.changes = False


@functools.cache
def _write_at_end(_process: int) -> None:
    """Has what the process records be written before it ends, once for each process: children of
    multiprocessing leave by os._exit, of which atexit is not told."""
    if multiprocessing.parent_process() is not None:
        multiprocessing.util.Finalize(None, _C.end_eager_misses, exitpriority=-1)


def _rule(states: list[_State]) -> None:
    """Has `states` hold and the last of them be in force. REQUIRES: _lock is held."""
    global _queue, _in_force
    _states[:] = states  # holds where what follows is interrupted, and the next change does it
    last = states[-1] if states else _State()
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
            _write_at_end(last.process)
        _queue = _Queue(settings) if own and settings.on_miss == "background" else None
        _C.on_eager_miss(own and settings.records, _on_miss(last.process, settings, _queue))
        _C.intercept(list(last.ops))
    _in_force = last


# Of a miss: the region's signature, its key, the architecture and the device's index.
_Told = Callable[[str, str, str, int], None]


def _on_miss(process: int, settings: Settings, queue: _Queue | None) -> _Told:
    """What is told of a call that is met for the first time and has no winner, beside its being
    recorded. Forges in that process alone."""
    forge: _Told | None = None
    if settings.on_miss == "blocking":
        forge = functools.partial(_forge_at_once, settings)
    elif queue is not None:
        forge = queue.add

    def told(signature: str, key: str, arch: str, device_index: int) -> None:
        if log.dispatch.isEnabledFor(logging.DEBUG):
            region, why = _C.describe(signature), _why(signature, key, arch)
            log.dispatch.debug("no kernel: %s  %s: %s", key[:12], region, why)
        if _C.store().verdict(key, arch) is None:
            count_miss(key, eager=True)
        if forge is not None and os.getpid() == process:
            forge(signature, key, arch, device_index)

    return told


def _why(signature: str, key: str, arch: str) -> str:
    """Why calls of a region have no kernel."""
    record = _C.store().get(key, arch)
    if record is not None:
        return "; ".join([result_text(record), *not_served(summary(record))])
    refused = refusal(signature, arch)
    return f"only agents make it ({refused})" if refused else "not forged yet"


def _can_forge(signature: str, arch: str, settings: Settings) -> bool:
    return settings.agents is not None or refusal(signature, arch) is None


def _forge_at_once(
    settings: Settings, signature: str, key: str, arch: str, device_index: int
) -> None:
    from .plan import forge_one, verdict_of

    if program_has_ended() or not _can_forge(signature, arch, settings):
        return
    if verdict_of(key, arch, settings.region_budget_s)[0] != "miss":
        return
    what = f"a kernel for {_C.describe(signature)} (seconds allowed: {settings.region_budget_s:g})"
    with telling_of_forging(what) as progress:
        forge_one(signature, device_index, settings, compile_lock=False, progress=progress)


class _Queue:
    """Forges what is added, one region after the other, in a thread that ends with the last, into
    the cache that is in use when the queue is made."""

    _turn = ForkSafeLock()  # of two queues, one forges

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._store = _C.store()
        self._ended = False
        self._waiting: deque[tuple[str, str, int]] = deque()
        self._works = False
        self._lock = ForkSafeLock()

    def add(self, signature: str, _key: str, arch: str, device_index: int) -> None:
        """A region that is to be forged."""
        with self._lock:
            if self._ended or program_has_ended():
                return
            self._waiting.append((signature, arch, device_index))
            if self._works:
                return
            self._works = True
        try:
            # A program that ends waits for the step under way: see forging.py.
            threading.Thread(target=self._work, name="cudaforge-eager", daemon=False).start()
        except BaseException:
            with self._lock:
                self._works = False  # the next one that is added tries again
            raise

    def end(self) -> None:
        """Forges no more. The region under way is finished, if the cache stays in use."""
        self._ended = True  # without the lock, which this thread may hold: see _change

    def _work(self) -> None:
        while not program_has_ended():
            with self._lock:
                if self._ended or not self._waiting:
                    self._works = False
                    return
                signature, arch, device_index = self._waiting.popleft()
            try:
                with self._turn:
                    self._forge(signature, arch, device_index)
            except Exception as error:
                tell_of_failed_background(error)

    def _forge(self, signature: str, arch: str, device_index: int) -> None:
        from .plan import forge_one

        if _can_forge(signature, arch, self._settings):
            progress = current_progress()
            forge_one(signature, device_index, self._settings, True, progress, store=self._store)
