"""What threads share, where a signal or a fork comes between."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import weakref
from typing import Any

# Inductor's. Its own handlers of forks have to be there before a fork waits for the thread that
# imports Inductor: those after the fork would run without the one before it.
import filelock  # noqa: F401

from ._native import _C


def fork_safe_lock() -> Any:
    """A threading.RLock that is free in a forked child unless the thread that forked holds it, or
    waits for it: its other holders do not exist there. A thread may take it again while it holds
    it: a signal, or a collection of garbage, may have the thread run other code at any place, a
    fork too.

    To be held with `with`, which is C here: a signal's exception finds it held, and has it given
    up, or not held."""
    lock = threading.RLock()
    _locks.add(lock)
    return lock


class Flag:
    """A threading.Event that is set once. That one has a lock, which a child finds taken where the
    fork comes while another thread sets the event or waits for it."""

    def __init__(self) -> None:
        self._is_set = False
        self._closed = threading.Lock()
        self._closed.acquire()

    def set(self) -> None:
        """By one thread; again, it does nothing."""
        if not self._is_set:
            self._is_set = True
            self._closed.release()

    def is_set(self) -> bool:
        return self._is_set

    def wait(self, seconds: float | None = None) -> bool:
        """Whether it is set, after so long at most; None: however long."""
        if not self._is_set and self._closed.acquire(timeout=-1 if seconds is None else seconds):
            self._closed.release()  # for others that wait
        return self._is_set


def dynamos_lock() -> Any:
    """The RLock of torch._dynamo.convert_frame, which a thread holds that compiles. For who must
    not import Dynamo; None as long as nobody has."""
    return getattr(sys.modules.get("torch._dynamo.convert_frame"), "compile_lock", None)


def no_fork_meanwhile() -> contextlib.AbstractContextManager[None]:
    """For what leaves the process, while it is inside, in a state from which a child could not go
    on, such as modules that are half imported. A fork by Python waits until no other thread is
    inside, and no other thread gets inside until the fork is made; each waits a minute at most. A
    fork by a library in C does not wait.

    Who is inside must not wait for a thread that may fork, or may want to get inside. Nor must a
    handler of forks or signals amid a fork, which may itself fork and get inside: _C.amid_fork().
    What a signal's handler raises there Python may report and drop."""
    return _C.NoForkMeanwhile()


_locks: weakref.WeakSet[Any] = weakref.WeakSet()


def _after_in_child() -> None:
    for lock in [*_locks, dynamos_lock()]:
        if lock is not None and not lock._is_owned():
            lock._at_fork_reinit()
    # PyTorch has a child make processes of its own that compile, and yet has it wait for the
    # threads of its parent that do.
    inductor = sys.modules.get("torch._inductor.async_compile")
    if inductor is not None and hasattr(inductor, "AsyncCompile"):
        inductor.AsyncCompile.pool.cache_clear()


# In a child this runs before the gate is open again, which it does not need.
os.register_at_fork(after_in_child=_after_in_child)
os.register_at_fork(
    before=_C.before_fork,
    after_in_parent=_C.after_fork_in_parent,
    after_in_child=_C.after_fork_in_child,
)
