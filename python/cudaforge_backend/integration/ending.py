"""When no kernels are made: after the main thread's end, and in a forked child."""

from __future__ import annotations

import threading

from cudaforge_backend.forks import is_forked_child


class ForgingEndedError(Exception):
    """Forging ended early or did not begin: an interrupt, the program's end, or a forked child."""


def program_has_ended() -> bool:
    """Whether the main thread has ended. The interpreter then waits for other threads, and nothing
    can be compiled."""
    return not threading.main_thread().is_alive()


def may_forge() -> bool:
    """Whether the process may forge."""
    return not program_has_ended() and not is_forked_child()
