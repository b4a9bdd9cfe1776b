"""A line of the terminal that changes."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import time
from typing import TextIO

from . import log
from .forks import fork_safe_lock
from .records import printable

_LEAST_S = 0.1  # between two texts

_shown: ChangingLine | None = None  # what a terminal shows now


class ChangingLine:
    """One line of a terminal: each text replaces the one before. Called by one thread at a time,
    but for erase(), which is thread-safe. Raises nothing: where nobody reads, the work goes on."""

    def __init__(self, stream: TextIO, prefix: str = "") -> None:
        self._stream = stream
        self._prefix = prefix
        self._length = 0  # of what is shown
        self._last = 0.0
        self._lock = fork_safe_lock()

    def show(self, text: str) -> None:
        """Shows it, cut to the width of the terminal, unless the last one was shown just now."""
        global _shown
        if time.monotonic() - self._last < _LEAST_S:
            return
        self._last = time.monotonic()
        cut = printable(self._prefix + text)[: self._columns() - 1]  # the last column may wrap
        with self._lock:
            _shown = self
            self._write(f"\r{cut}{' ' * (self._length - len(cut))}")
            self._length = len(cut)

    def erase(self) -> None:
        """Leaves the line empty, the cursor at its beginning."""
        with self._lock:
            if self._length:
                self._write(f"\r{' ' * self._length}\r")
            self._length = 0

    def leave(self, text: str) -> None:
        """Replaces it for good by this text, whole."""
        self.erase()
        self._write(f"{printable(self._prefix + text)}\n")

    def _columns(self) -> int:
        with contextlib.suppress(OSError, ValueError):
            return os.get_terminal_size(self._stream.fileno()).columns or 80
        return 80

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(text)
            self._stream.flush()


def changing_line(prefix: str = "") -> ChangingLine | None:
    """One on standard error, where that is a terminal, or a notebook's output, to which no log of
    forging is written."""
    try:
        is_terminal = sys.stderr.isatty() or "ipykernel" in sys.modules
    except (AttributeError, ValueError):  # there is none, or it is closed
        return None
    asked = log.forge.isEnabledFor(logging.INFO)
    return ChangingLine(sys.stderr, prefix) if is_terminal and not asked else None


def erase_changing_line() -> None:
    """Before something else is written to a terminal."""
    if _shown is not None:
        _shown.erase()
