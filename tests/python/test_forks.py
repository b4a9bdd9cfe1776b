"""Locks, and threads of Inductor, where a fork or a signal comes between."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from typing import Any

from cudaforge_backend.forks import fork_safe_lock
from others import another_thread, in_child, status_of
from torch._dynamo.convert_frame import compile_lock
from torch._inductor import config
from torch._inductor.async_compile import AsyncCompile


def _free_for_others(lock: Any) -> bool:
    got: list[bool] = []

    def ask() -> None:
        got.append(lock.acquire(blocking=False))
        if got[0]:
            lock.release()

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    return got[0]


def test_a_child_does_not_wait_for_a_thread_that_it_does_not_have() -> None:
    lock = fork_safe_lock()
    with another_thread(lock):
        assert not lock.acquire(blocking=False)
        assert in_child(lambda: 0 if lock.acquire(blocking=False) else 1) == 0
        assert not lock.acquire(blocking=False)  # the parent's is still held
    assert lock.acquire(blocking=False)


def test_a_child_keeps_what_the_thread_that_forked_holds() -> None:
    lock = fork_safe_lock()
    with lock:
        child = os.fork()
        taken = not _free_for_others(lock)
    if child == 0:
        os._exit(0 if taken and _free_for_others(lock) else 1)
    assert status_of(child) == 0
    assert taken and _free_for_others(lock)


def test_a_thread_may_take_it_again() -> None:
    lock = fork_safe_lock()
    with lock, lock:
        assert not _free_for_others(lock)
    assert _free_for_others(lock)


class _Interrupt(BaseException):
    pass


def test_an_interrupt_does_not_leave_it_held() -> None:
    def interrupt(*_: object) -> None:
        raise _Interrupt

    lock = fork_safe_lock()
    before = signal.signal(signal.SIGALRM, interrupt)
    times = random.Random(0)
    interrupts = 0
    end = time.monotonic() + 2
    try:
        while time.monotonic() < end:
            try:
                signal.setitimer(signal.ITIMER_REAL, times.uniform(1e-6, 1e-4))
                while True:
                    with lock:
                        pass
            except _Interrupt:
                interrupts += 1
            assert _free_for_others(lock)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert interrupts > 100


def test_a_child_compiles_by_threads_of_its_own() -> None:
    with config.patch(compile_threads=2):
        AsyncCompile.pool().submit(int).result()
        assert in_child(lambda: AsyncCompile.pool().submit(int, "7").result(timeout=60)) == 7


def test_a_child_finds_dynamos_lock_free() -> None:
    with another_thread(compile_lock):
        assert in_child(lambda: 0 if compile_lock.acquire(blocking=False) else 1) == 0
