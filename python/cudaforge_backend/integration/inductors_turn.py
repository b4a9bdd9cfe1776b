"""Inductor's turn: where kernels are raced, it compiles in one thread at a time, and under Dynamo's
lock, as in torch.compile."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

from cudaforge_backend.forks import dynamos_lock, fork_safe_lock

Place = tuple[str, str]  # a region's key and the architecture that it is forged for

_LOOKS_SECONDS = 0.1  # how often who waits looks whether to go on

_turn = fork_safe_lock()
# The forgings that compilations wait for. list.append(), remove() and `in` are atomic here.
_waited_for: list[Place] = []


def within_compilation() -> bool:
    """Whether the calling thread is in a compilation of Dynamo's, and so has its lock."""
    lock = dynamos_lock()
    return lock is not None and lock._is_owned()


@contextlib.contextmanager
def compilation_waits_for(place: Place) -> Iterator[None]:
    """While a compilation of Dynamo's, which has its lock, waits for that forging, which then must
    not wait for the lock."""
    _waited_for.append(place)
    try:
        yield
    finally:
        _waited_for.remove(place)


@contextlib.contextmanager
def compilations_turn() -> Iterator[None]:
    """While it is entered, a compilation of Dynamo's, whose thread has its lock, uses Inductor, and
    no forging does that it waits for."""
    with _turn:
        yield


@contextlib.contextmanager
def inductors_turn(
    place: Place, *, most_s: float | None, go_on: Callable[[], None]
) -> Iterator[float]:
    """While it is entered, Inductor may be used for that forging; the seconds that were waited for
    other threads.

    Dynamo's lock is waited for, `most_s` seconds at most (None: however long), but not while a
    compilation waits for the forging. Without it what the program compiles meanwhile may disturb
    this, and this that. The turn is waited for however long. `go_on` is called now and then, and
    before it begins; what it raises ends the waiting. For threads of forgings: a signal's exception
    would find the locks held, and leave them so."""
    from torch._dynamo.convert_frame import compile_lock

    began = time.monotonic()
    held = False
    while place not in _waited_for:
        go_on()
        held = compile_lock.acquire(timeout=_LOOKS_SECONDS)
        if held or (most_s is not None and time.monotonic() - began > most_s):
            break
    try:
        with no_compilation(go_on):
            yield time.monotonic() - began
    finally:
        if held:
            compile_lock.release()


@contextlib.contextmanager
def no_compilation(go_on: Callable[[], None]) -> Iterator[None]:
    """While it is entered, Inductor compiles for no other forging, nor for who waits for those.
    `go_on` as for inductors_turn."""
    took = False
    while not took:
        go_on()
        took = _turn.acquire(timeout=_LOOKS_SECONDS)
    try:
        yield
    finally:
        _turn.release()
