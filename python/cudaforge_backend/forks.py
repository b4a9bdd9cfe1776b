"""Forked children, and locks that they find free."""

from __future__ import annotations

import os
import sys
import threading
import weakref
from typing import Any

_imported_in = os.getpid()


def is_forked_child() -> bool:
    """Whether this process was forked after its parent had imported the package. It forges nothing:
    it has none of the threads, and an unknown state of the libraries, that forging takes."""
    return os.getpid() != _imported_in


def fork_safe_lock() -> Any:
    """A threading.RLock that is free in a forked child unless the thread that forked holds it.

    Use it only as `with lock:`. That is C code, so KeyboardInterrupt cannot leave it held."""
    lock = threading.RLock()
    _locks.add(lock)
    return lock


def dynamos_lock() -> Any:
    """The RLock of torch._dynamo.convert_frame, which a thread holds that compiles. For who must
    not import Dynamo; None as long as nobody has."""
    return getattr(sys.modules.get("torch._dynamo.convert_frame"), "compile_lock", None)


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


os.register_at_fork(after_in_child=_after_in_child)
