"""When no kernels are made: at a program's end, which other threads do not put off, and in a forked
child."""

from __future__ import annotations

import threading

from cudaforge_backend.forks import is_forked_child


class ForgingEndedError(Exception):
    """Forging was given up or not begun: it was interrupted, the program has ended, or this is a
    forked child."""


def program_has_ended() -> bool:
    """Whether the main thread has ended: from then on the interpreter waits for other threads, and
    nothing can be compiled any more."""
    return not threading.main_thread().is_alive()


def may_forge() -> bool:
    """Whether the process may forge."""
    return not program_has_ended() and not is_forked_child()
