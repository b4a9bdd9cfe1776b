"""A thread that is inside something."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def another_thread(inside: contextlib.AbstractContextManager[Any]) -> Iterator[threading.Event]:
    """While another thread is inside; it leaves when the event is set, or this ends."""
    begun, done = threading.Event(), threading.Event()

    def body() -> None:
        with inside:
            begun.set()
            done.wait(60)

    thread = threading.Thread(target=body)
    thread.start()
    assert begun.wait(60)
    try:
        yield done
    finally:
        done.set()
        thread.join()
