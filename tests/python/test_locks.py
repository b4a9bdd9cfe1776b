"""Locks that a forked child finds free."""

from __future__ import annotations

import os
import threading

from cudaforge_backend.locks import ForkSafeLock


def test_a_child_does_not_wait_for_a_thread_that_it_does_not_have() -> None:
    lock = ForkSafeLock()
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            done.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(60)
    assert not lock.acquire(blocking=False)
    child = os.fork()
    if child == 0:
        os._exit(0 if lock.acquire(blocking=False) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert not lock.acquire(blocking=False)  # the parent's is still held
    done.set()
    thread.join()
    assert lock.acquire(blocking=False)
