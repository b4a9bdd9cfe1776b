"""When no kernels are made: at a program's end, which other threads do not put off, and amid a
fork."""

from __future__ import annotations

import threading

from cudaforge_backend._native import _C


class ForgingEndedError(Exception):
    """Forging was given up: it was interrupted; the program has ended; a handler would have had it
    done amid a fork; or this is the child of a fork by a signal's handler, and has not the thread
    that forges."""


def program_has_ended() -> bool:
    """Whether the main thread has ended: from then on the interpreter waits for other threads, and
    nothing can be compiled any more."""
    return not threading.main_thread().is_alive()


def may_forge() -> bool:
    """Whether the calling thread may forge, and wait for it: not at the program's end, nor in a
    handler amid a fork, for whose end the forging would wait."""
    return not program_has_ended() and not _C.amid_fork()
