"""Locks, forks that wait, and threads of Inductor, where a fork or a signal comes between."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import RunPython
from cudaforge_backend import forks
from cudaforge_backend._native import _C
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


def test_a_flag_is_waited_for_by_several_threads_and_stays_set() -> None:
    flag = forks.Flag()
    assert not flag.wait(0.01) and not flag.is_set()
    seen: list[bool] = []
    threads = [
        threading.Thread(target=lambda: seen.append(flag.wait()), daemon=True) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    flag.set()
    for thread in threads:
        thread.join(60)
    assert seen == [True] * 3 and flag.is_set() and flag.wait(0)


def test_a_child_finds_a_flag_as_it_was() -> None:
    flag = forks.Flag()
    waits = threading.Thread(target=flag.wait, daemon=True)
    waits.start()
    assert in_child(lambda: 1 if flag.wait(0.01) else 0) == 0
    flag.set()
    flag.set()
    assert in_child(lambda: 0 if flag.wait(0) else 1) == 0
    waits.join(60)
    assert not waits.is_alive()


def test_a_child_finds_a_flag_that_is_being_set() -> None:
    class ForksInBetween:
        def __init__(self, lock: Any) -> None:
            self.acquire = lock.acquire
            self._release = lock.release

        def release(self) -> None:
            statuses.append(in_child(lambda: 0 if flag.wait(20) else 1))
            self._release()

    statuses: list[int] = []
    flag = forks.Flag()
    flag._closed = ForksInBetween(flag._closed)  # type: ignore[assignment]
    flag.set()
    assert statuses == [0]


def test_a_child_compiles_by_threads_of_its_own() -> None:
    with config.patch(compile_threads=2):
        AsyncCompile.pool().submit(int).result()
        assert in_child(lambda: AsyncCompile.pool().submit(int, "7").result(timeout=60)) == 7


def test_a_child_finds_dynamos_lock_free() -> None:
    with another_thread(compile_lock):
        assert in_child(lambda: 0 if compile_lock.acquire(blocking=False) else 1) == 0


@contextlib.contextmanager
def _compiles(told: list[str]) -> Iterator[None]:
    with forks.no_fork_meanwhile():
        yield
        told.append("compiled")


@pytest.fixture
def compiling() -> Iterator[tuple[threading.Event, list[str]]]:
    """A thread that is inside no_fork_meanwhile() until the event is set, and then says so."""
    told: list[str] = []
    with another_thread(_compiles(told)) as done:
        yield done, told


def test_a_fork_waits_for_what_it_must_not_interrupt(
    compiling: tuple[threading.Event, list[str]],
) -> None:
    done, told = compiling
    threading.Timer(0.3, done.set).start()
    with forks.no_fork_meanwhile():  # the forking thread's own is no obstacle
        child = os.fork()
        if child == 0:
            os._exit(0 if _C.before_fork(0.05) and told == ["compiled"] else 1)  # nor to another
    assert status_of(child) == 0


_SIGNALLED = """
import os, signal, threading, time
from cudaforge_backend import forks

begun, told, children = threading.Event(), [], []

def compiles():
    with forks.no_fork_meanwhile():
        begun.set()
        time.sleep(2)
        told.append("compiled")

def handler(*_):
    HANDLES

parent = os.getpid()
signal.signal(signal.SIGALRM, handler)
thread = threading.Thread(target=compiles)
thread.start()
begun.wait(60)
signal.setitimer(signal.ITIMER_REAL, 0.5)
try:
    os.fork()
except KeyboardInterrupt:
    pass
if os.getpid() != parent:
    os._exit(0 if "compiled" in told else 1)
thread.join()
while True:
    try:
        children.append(os.waitstatus_to_exitcode(os.wait()[1]))
    except ChildProcessError:
        break
print(children)
"""


@pytest.mark.parametrize(
    ("handles", "children"),
    [
        ("os.fork()", "[0, 0]"),
        ("with forks.no_fork_meanwhile(): pass", "[0]"),
        ("raise KeyboardInterrupt", "[0]"),
    ],
)
def test_a_signals_handler_does_not_end_the_wait_of_a_fork(
    run_python: RunPython, handles: str, children: str
) -> None:
    """Amid which it may fork, and get inside."""
    assert run_python(_SIGNALLED.replace("HANDLES", handles)).stdout == f"{children}\n"


def test_a_fork_does_not_wait_for_ever(compiling: tuple[threading.Event, list[str]]) -> None:
    _, told = compiling
    assert not _C.before_fork(0.05)
    child = os.fork()
    if child == 0:
        _C.after_fork_in_child()
        os._exit(0 if _C.before_fork(0.05) else 1)  # who was inside is not here
    _C.after_fork_in_parent()
    assert status_of(child) == 0 and told == []


def test_a_fork_is_not_overtaken() -> None:
    ended = threading.Event()

    def compiles() -> None:
        while not ended.is_set():
            with forks.no_fork_meanwhile():
                time.sleep(0.02)

    threads = [threading.Thread(target=compiles) for _ in range(3)]
    for thread in threads:
        thread.start()
    begun = time.monotonic()
    for _ in range(5):
        assert in_child(lambda: 0) == 0
    ended.set()
    for thread in threads:
        thread.join()
    assert time.monotonic() - begun < 60  # how long one of them would wait at most
