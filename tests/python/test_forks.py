"""Locks, and threads of Inductor, where a fork or a signal comes between."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from typing import Any

import pytest
from cudaforge_backend import forks
from cudaforge_backend.forks import fork_safe_lock
from torch._inductor import config
from torch._inductor.async_compile import AsyncCompile


def _exits_with(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


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
    assert _exits_with(child) == 0
    assert not lock.acquire(blocking=False)  # the parent's is still held
    done.set()
    thread.join()
    assert lock.acquire(blocking=False)


def test_a_child_keeps_what_the_thread_that_forked_holds() -> None:
    lock = fork_safe_lock()
    with lock:
        child = os.fork()
        taken = not _free_for_others(lock)
    if child == 0:
        os._exit(0 if taken and _free_for_others(lock) else 1)
    assert _exits_with(child) == 0
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
        child = os.fork()
        if child == 0:
            try:
                os._exit(AsyncCompile.pool().submit(int, "7").result(timeout=60))
            except BaseException:
                os._exit(1)
    assert _exits_with(child) == 7


def _compiles(begun: threading.Event, done: threading.Event, log: list[str]) -> None:
    with forks.no_fork_meanwhile():
        begun.set()
        done.wait(60)
        log.append("compiled")


def test_a_fork_waits_for_what_it_must_not_interrupt() -> None:
    begun, done = threading.Event(), threading.Event()
    log: list[str] = []
    thread = threading.Thread(target=_compiles, args=(begun, done, log))
    thread.start()
    begun.wait(60)
    threading.Timer(0.3, done.set).start()
    with forks.no_fork_meanwhile():  # the forking thread's own is no obstacle
        child = os.fork()
        if child == 0:
            os._exit(0 if log == ["compiled"] and list(forks._inside.values()) == [1] else 1)
    thread.join()
    assert _exits_with(child) == 0 and not forks._inside


def test_a_fork_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forks, "_FORK_WAITS_SECONDS", 0.1)
    begun, done = threading.Event(), threading.Event()
    log: list[str] = []
    thread = threading.Thread(target=_compiles, args=(begun, done, log))
    thread.start()
    begun.wait(60)
    child = os.fork()
    if child == 0:
        os._exit(0 if not log and not forks._inside else 1)
    done.set()
    thread.join()
    assert _exits_with(child) == 0 and not forks._inside
