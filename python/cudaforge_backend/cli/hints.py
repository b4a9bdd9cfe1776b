"""What a person says while agents work."""

from __future__ import annotations

import sys
import threading
from collections import deque
from pathlib import Path


class Hints:
    """What a person says while agents work: lines added to a file, lines typed."""

    def __init__(self, file: str | None, typed: bool) -> None:
        self._file = Path(file) if file else None
        self._read = b""  # what was taken of it
        if self._file is not None and not self._file.is_file():
            print(f"cudaforge: there is no {file} yet: it is looked for again before each prompt",
                  file=sys.stderr, flush=True)  # fmt: skip
        self._lines: deque[str] = deque()
        if typed:
            threading.Thread(target=self._listen, name="cudaforge-hints", daemon=True).start()

    def _listen(self) -> None:
        for line in sys.stdin:
            if line.strip():
                self._lines.append(line.strip())
                print("    for the next prompt: " + line.strip(), flush=True)

    def take(self) -> list[str]:
        """What was said since the last call."""
        said = [self._lines.popleft() for _ in range(len(self._lines))]
        if self._file is not None and self._file.is_file():
            text = self._file.read_bytes()
            whole = text[: text.rfind(b"\n") + 1]  # the last line may still be written
            new = whole.removeprefix(self._read)  # the whole text if the file was rewritten
            self._read = whole
            said += [line for line in new.decode(errors="replace").splitlines() if line.strip()]
        return said

    def say_unused(self) -> None:
        """Prints what was typed but went into no prompt."""
        if self._lines:
            print("cudaforge: typed, but in no prompt: " + "; ".join(self._lines), file=sys.stderr)
