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


def dynamos_lock() -> Any:
    """The RLock of torch._dynamo.convert_frame, which a thread holds that compiles. For who must
    not import Dynamo; None as long as nobody has."""
    return getattr(sys.modules.get("torch._dynamo.convert_frame"), "compile_lock", None)


def no_fork_meanwhile() -> contextlib.AbstractContextManager[None]:
    """A fork by Python in another thread waits until no thread is inside, or for a minute; no other
    thread gets inside while it waits and is made, or for a minute. A signal's handler runs before
    the wait or after it, and may fork and get inside, but then waits for a minute where it waits
    for another thread that gets inside: see _C.amid_fork(). What it raises Python may report and
    drop, as of every handler of forks.

    What is inside leaves the process in a state that a child could not go on from, such as modules
    that are half imported. It must not wait for a thread that may fork, or may want to get inside.
    A fork by a library in C does not wait."""
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


# In a child this runs first: it takes and waits for nothing that the gate keeps from others.
os.register_at_fork(after_in_child=_after_in_child)
os.register_at_fork(
    before=_C.before_fork,
    after_in_parent=_C.after_fork_in_parent,
    after_in_child=_C.after_fork_in_child,
)
