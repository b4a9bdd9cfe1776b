"""Whether the program has ended: kernels that other threads still make do not put its end off."""

from __future__ import annotations

import threading


class ProgramEndedError(Exception):
    """Forging was given up: it was interrupted, or the program has ended."""


def program_has_ended() -> bool:
    """Whether the main thread has ended: from then on the interpreter waits for other threads, and
    nothing can be compiled any more."""
    return not threading.main_thread().is_alive()
