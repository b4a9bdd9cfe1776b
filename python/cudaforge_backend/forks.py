"""What threads share, where a signal or a fork comes between."""

from __future__ import annotations

import os
import sys
import threading
import weakref
from typing import Any


def fork_safe_lock() -> Any:
    """A threading.RLock that is free in a forked child unless the thread that forked holds it: its
    other holders do not exist there. A thread may take it again while it holds it: a signal, or a
    collection of garbage, may have the thread run other code at any place, a fork too.

    To be held with `with`, which is C here: a signal's exception finds it held, and has it given
    up, or not held."""
    lock = threading.RLock()
    _locks.add(lock)
    return lock


_locks: weakref.WeakSet[Any] = weakref.WeakSet()


def _after_in_child() -> None:
    for lock in list(_locks):
        if not lock._is_owned():
            lock._at_fork_reinit()
    # PyTorch has a child make processes of its own that compile, and yet has it wait for the
    # threads of its parent that do.
    inductor = sys.modules.get("torch._inductor.async_compile")
    if inductor is not None:
        inductor.AsyncCompile.pool.cache_clear()


os.register_at_fork(after_in_child=_after_in_child)
