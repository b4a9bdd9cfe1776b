"""Inductor's turn: while kernels are raced, Inductor compiles in one thread at a time, under
Dynamo's lock as in torch.compile."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

from cudaforge_backend.forks import dynamos_lock, fork_safe_lock

Place = tuple[str, str]  # a region's key and the architecture that it is forged for

_LOOKS_SECONDS = 0.1  # a waiting thread polls this often

_turn = fork_safe_lock()
# The forgings that compilations wait for. list.append(), remove() and `in` are atomic here.
_waited_for: list[Place] = []


def within_compilation() -> bool:
    """Whether the calling thread is inside a Dynamo compilation, and so holds its lock."""
    lock = dynamos_lock()
    return lock is not None and lock._is_owned()


@contextlib.contextmanager
def compilation_waits_for(place: Place) -> Iterator[None]:
    """Marks a forging that a Dynamo compilation waits for. That compilation holds Dynamo's lock, so
    the forging must not wait for it."""
    _waited_for.append(place)
    try:
        yield
    finally:
        _waited_for.remove(place)


@contextlib.contextmanager
def compilations_turn() -> Iterator[None]:
    """Inductor's turn for a Dynamo compilation; its thread holds Dynamo's lock."""
    with _turn:
        yield


@contextlib.contextmanager
def inductors_turn(
    place: Place, *, most_s: float | None, go_on: Callable[[], None]
) -> Iterator[float]:
    """Inductor's turn for a forging. Yields the seconds of waiting.

    Waits for Dynamo's lock, at most `most_s` seconds (None: no limit), unless a compilation waits
    for this forging. After that limit it goes on without the lock. Then waits for the turn, without
    limit. Calls `go_on` before each wait and every 0.1 s; if that raises, the wait ends. Only for
    forging threads: an exception from a signal handler would leave the locks held."""
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
    """Holds Inductor's turn. go_on: as for inductors_turn."""
    took = False
    while not took:
        go_on()
        took = _turn.acquire(timeout=_LOOKS_SECONDS)
    try:
        yield
    finally:
        _turn.release()
