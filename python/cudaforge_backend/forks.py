"""Forked children, and locks that are free in them."""

from __future__ import annotations

import os
import sys
import threading
import weakref
from typing import Any

_imported_in = os.getpid()


def is_forked_child() -> bool:
    """Whether this process was forked after its parent imported the package. A forked child
    never forges: it lacks the parent's threads, and libraries may be in an undefined state."""
    return os.getpid() != _imported_in


def fork_safe_lock() -> Any:
    """A threading.RLock that is free in a forked child unless the thread that forked holds it.

    Use it only as `with lock:`. That is C code, so KeyboardInterrupt cannot leave it held."""
    lock = threading.RLock()
    _locks.add(lock)
    return lock


def dynamos_lock() -> Any:
    """The RLock that a compiling thread holds (torch._dynamo.convert_frame). None: Dynamo is not
    imported; this function does not import it."""
    return getattr(sys.modules.get("torch._dynamo.convert_frame"), "compile_lock", None)


_locks: weakref.WeakSet[Any] = weakref.WeakSet()


def _after_in_child() -> None:
    for lock in [*_locks, dynamos_lock()]:
        if lock is not None and not lock._is_owned():
            lock._at_fork_reinit()
    # In a child Inductor's pool still has its parent's threads, which do not exist here.
    inductor = sys.modules.get("torch._inductor.async_compile")
    if inductor is not None and hasattr(inductor, "AsyncCompile"):
        inductor.AsyncCompile.pool.cache_clear()


os.register_at_fork(after_in_child=_after_in_child)
