"""What threads share, where a signal or a fork comes between."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import weakref
from collections.abc import Iterator
from typing import Any

# Inductor's. Its own handlers of forks have to be there before a fork waits for the thread that
# imports Inductor: those after the fork would run without the one before it.
import filelock  # noqa: F401

_FORK_WAITS_SECONDS = 60.0


def fork_safe_lock() -> Any:
    """A threading.RLock that is free in a forked child unless the thread that forked holds it: its
    other holders do not exist there. A thread may take it again while it holds it: a signal, or a
    collection of garbage, may have the thread run other code at any place, a fork too.

    To be held with `with`, which is C here: a signal's exception finds it held, and has it given
    up, or not held."""
    lock = threading.RLock()
    _locks.add(lock)
    return lock


@contextlib.contextmanager
def no_fork_meanwhile() -> Iterator[None]:
    """A fork in another thread waits until this has ended, or for a minute. What is inside leaves
    the process in a state that a child could not go on from, such as modules that are half
    imported. It must not wait for a thread that may fork."""
    thread = threading.get_ident()
    with _steps:
        _inside[thread] = _inside.get(thread, 0) + 1
    try:
        yield
    finally:
        with _steps:
            _inside[thread] -= 1
            if not _inside[thread]:
                del _inside[thread]
            _steps.notify_all()


_locks: weakref.WeakSet[Any] = weakref.WeakSet()
_steps = threading.Condition(fork_safe_lock())  # held while a fork is under way; guards:
_inside: dict[int, int] = {}  # how often each thread is inside no_fork_meanwhile()


def _others() -> list[int]:
    return [thread for thread in list(_inside) if thread != threading.get_ident()]


def _before_fork() -> None:
    _steps.acquire()
    _steps.wait_for(lambda: not _others(), _FORK_WAITS_SECONDS)


def _after_in_parent() -> None:
    if _steps._is_owned():  # type: ignore[attr-defined]
        _steps.release()


def _after_in_child() -> None:
    for thread in _others():
        del _inside[thread]
    _after_in_parent()
    dynamo = sys.modules.get("torch._dynamo.convert_frame")
    for lock in [*_locks, getattr(dynamo, "compile_lock", None)]:
        if lock is not None and not lock._is_owned():
            lock._at_fork_reinit()
    # PyTorch has a child make processes of its own that compile, and yet has it wait for the
    # threads of its parent that do.
    inductor = sys.modules.get("torch._inductor.async_compile")
    if inductor is not None and hasattr(inductor, "AsyncCompile"):
        inductor.AsyncCompile.pool.cache_clear()


os.register_at_fork(
    before=_before_fork, after_in_parent=_after_in_parent, after_in_child=_after_in_child
)
