"""Other threads, and forked children."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any


@contextlib.contextmanager
def another_thread(inside: contextlib.AbstractContextManager[Any]) -> Iterator[threading.Event]:
    """While another thread is inside; it leaves when the event is set, or this ends."""
    begun, done = threading.Event(), threading.Event()

    def body() -> None:
        with inside:
            begun.set()
            done.wait(60)

    thread = threading.Thread(target=body, daemon=True)
    thread.start()
    try:
        assert begun.wait(60)
        yield done
    finally:
        done.set()
        thread.join(60)


def status_of(child: int) -> int:
    """The exit status of a child that ends by itself; of one that a signal ends, less than 0."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def in_child(body: Callable[[], int]) -> int:
    """What `body` returns in a forked child; 255 where it raises."""
    child = os.fork()
    if child == 0:
        status = 255
        try:
            status = body()
        finally:
            os._exit(status)
    return status_of(child)
