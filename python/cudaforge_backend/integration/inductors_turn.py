"""Inductor's turn: where kernels are raced, it compiles in one thread at a time, and under Dynamo's
lock, as in torch.compile."""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator

from cudaforge_backend.forks import dynamos_lock, fork_safe_lock, no_fork_meanwhile

Place = tuple[str, str]  # a region's key and the architecture that it is forged for

_LOOKS_SECONDS = 0.1  # how often who waits looks whether to go on

_turn = fork_safe_lock()
# Every change is one call of C, so is the copy before a look: set.copy(), for a collection of
# garbage, which can change the set, may come amid tuple().
_waiting: set[weakref.ref[_Waiting]] = set()


class _Waiting:
    """A compilation that waits for a forging, as long as that object lives."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.thread = threading.get_ident()


def within_compilation() -> bool:
    """Whether the calling thread is in a compilation of Dynamo's, and so has its lock."""
    lock = dynamos_lock()
    return lock is not None and lock._is_owned()


@contextlib.contextmanager
def compilation_waits_for(place: Place) -> Iterator[None]:
    """While a compilation of Dynamo's, which has its lock, waits for that forging, which then must
    not wait for the lock."""
    waiting = _Waiting(place)  # goes, with the exception, where a signal's exception comes between
    reference = weakref.ref(waiting, _waiting.discard)
    try:
        _waiting.add(reference)
        yield
    finally:
        _waiting.discard(reference)


def _is_waited_for(place: Place) -> bool:
    return any(waiting.place == place for waiting in _compilations())


def _compilations() -> list[_Waiting]:
    return [waiting for reference in _waiting.copy() if (waiting := reference()) is not None]


def _keep_own() -> None:
    for waiting in _compilations():
        if waiting.thread != threading.get_ident():
            _waiting.discard(weakref.ref(waiting))


os.register_at_fork(after_in_child=_keep_own)


@contextlib.contextmanager
def inductors_turn(
    place: Place, *, most_s: float | None, go_on: Callable[[], None]
) -> Iterator[float]:
    """While it is entered, Inductor may be used for that forging, and no fork is made; the seconds
    that were waited for other threads.

    Dynamo's lock is waited for, `most_s` seconds at most (None: however long), but not while a
    compilation waits for the forging. Without it what the program compiles meanwhile may disturb
    this, and this that. The turn is waited for however long. `go_on` is called now and then, and
    before it begins; what it raises ends the waiting. For threads of forgings: a signal's exception
    would find the locks held, and leave them so."""
    with no_fork_meanwhile():
        from torch._dynamo.convert_frame import compile_lock

    began = time.monotonic()
    held = False
    while not _is_waited_for(place):
        go_on()
        held = compile_lock.acquire(timeout=_LOOKS_SECONDS)
        if held or (most_s is not None and time.monotonic() - began > most_s):
            break
    took = False
    try:
        while not took:
            go_on()
            took = _turn.acquire(timeout=_LOOKS_SECONDS)
        with no_fork_meanwhile():
            yield time.monotonic() - began
    finally:
        if took:
            _turn.release()
        if held:
            compile_lock.release()
