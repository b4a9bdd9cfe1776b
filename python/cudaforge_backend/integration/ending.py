"""The end of the program, which kernels that other threads make then do not put off."""

from __future__ import annotations

import threading


class ProgramEndedError(Exception):
    """The program has ended, or was interrupted, and waits for what is under way."""


def program_has_ended() -> bool:
    """Whether the main thread has ended: from then on the interpreter waits for other threads, and
    nothing can be compiled any more."""
    return not threading.main_thread().is_alive()
