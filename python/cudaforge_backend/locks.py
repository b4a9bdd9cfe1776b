"""Locks and forks."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any


class ForkSafeLock:
    """A lock that is free in a forked child, where the thread that held it does not exist."""

    def __init__(self) -> None:
        self._lock: Any
        self.renew()
        _locks.add(self)

    def acquire(self, blocking: bool = True) -> bool:
        """Whether the lock is now held; waits for it if `blocking`."""
        return bool(self._lock.acquire(blocking))

    def release(self) -> None:
        """Gives the lock up. REQUIRES: it is held."""
        self._lock.release()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *exception: object) -> None:
        self._lock.release()

    def renew(self) -> None:
        """Frees the lock whoever holds it."""
        self._lock = threading.Lock()


class ForkSafeRLock(ForkSafeLock):
    """One that a thread may take again while it holds it: a collection of garbage, or a signal, may
    have the thread run other code at any place."""

    def renew(self) -> None:
        self._lock = threading.RLock()


_locks: weakref.WeakSet[ForkSafeLock] = weakref.WeakSet()


def _renew_all() -> None:
    for lock in list(_locks):
        lock.renew()


os.register_at_fork(after_in_child=_renew_all)
