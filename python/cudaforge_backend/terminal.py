"""What people see: rich's console, and its progress bar while kernels are forged."""

from __future__ import annotations

import contextlib
import os
import sys
import time

from rich.console import Console as RichConsole
from rich.file_proxy import FileProxy
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Column

from .progress import Event
from .records import counted, printable

_LEAST_S = 0.1  # between two drawings of the bar
_SHOWN_LEFT_S = 100  # seconds: a larger budget says nothing of how long it takes
_UNLIMITED = 1_000_000  # columns of a file or pipe: nothing wraps

_shown: ProgressBar | None = None  # rich shows one at a time


class Console(RichConsole):
    """Rich's console for text as it is: no markup. Files, pipes and NO_COLOR get plain lines."""

    def __init__(self, stderr: bool = False) -> None:
        super().__init__(
            file=sys.stderr if stderr else sys.stdout,  # given, rich asks it for its encoding
            color_system=None if os.environ.get("NO_COLOR") else "auto",
            markup=False,
            emoji=False,
            highlight=False,
        )
        if not self.is_terminal:
            self.width = _UNLIMITED

    def on_broken_pipe(self) -> None:
        """Raises BrokenPipeError, where rich would end the process."""
        raise

    def show_cursor(self, show: bool = True) -> bool:
        """Leaves the cursor as it is: a killed process could not bring it back."""
        return False


class ProgressBar:
    """A bar on standard error with what is known of a forging. What the program prints to the
    terminal meanwhile stands above it. Raises nothing if the terminal is gone. Called by one thread
    at a time."""

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix
        self._drawn = 0.0
        console = Console(stderr=True)
        console.soft_wrap = True  # of what the program prints
        text = Column(ratio=1, no_wrap=True, overflow="ellipsis")
        self._progress: Progress | None = Progress(
            *([TextColumn(prefix.strip(" :"), markup=False)] if prefix else ()),
            BarColumn(bar_width=10),
            TimeElapsedColumn(),
            TextColumn("{task.description}", markup=False, table_column=text),
            console=console,
            auto_refresh=False,  # a thread that draws would disturb what is timed
            transient=True,
            redirect_stdout=sys.stdout is not None and sys.stdout.isatty(),
            expand=True,
        )
        self._task = self._progress.add_task("", total=None)

    def restart(self) -> None:
        """Something else begins."""
        if self._progress is not None:
            self._progress.reset(self._task, total=None)

    def show(self, event: Event) -> None:
        """Draws what the event says, unless the bar was drawn just now."""
        global _shown
        if self._progress is None or time.monotonic() - self._drawn < _LEAST_S:
            return
        _shown = _shown or self
        if _shown is not self:
            return
        self._drawn = time.monotonic()
        with contextlib.suppress(OSError, ValueError):
            self._progress.update(
                self._task,
                completed=event.regions_done,
                total=event.regions or None,
                description=printable(_description(event)),
            )
            self._progress.start()
            self._progress.refresh()

    def stop(self) -> None:
        """Removes the bar."""
        global _shown
        if _shown is self:
            _shown = None
            if self._progress is not None:
                with contextlib.suppress(OSError, ValueError):
                    self._progress.stop()

    def leave(self, text: str) -> None:
        """Replaces the bar by this text."""
        self.stop()
        if self._progress is not None:
            with contextlib.suppress(OSError, ValueError):
                self._progress.console.print(printable(self._prefix + text))


def _description(event: Event) -> str:
    """What goes on. The best known comes first: the end may be cut off."""
    facts = []
    if event.regions:
        facts.append(f"{event.regions_done}/{counted(event.regions, 'region')}")
    if event.most_s is not None and event.most_s < _SHOWN_LEFT_S:
        facts.append(f"{event.most_s:.0f} s left at most")
    if event.best_ns is not None:
        facts.append(f"best {event.best_ns / 1e3:.1f} us of {event.tried} tried")
    elif event.tried:
        facts.append(f"{event.tried} tried")
    of_region = event.arch and event.text not in event.what
    what = f"{event.text}: {event.what}" if of_region else event.what
    return f"{', '.join(facts)}; {what}" if facts else what


def _after_in_child() -> None:
    """The terminal is the parent's."""
    global _shown
    if _shown is not None:
        _shown._progress = None
        _shown = None
    for name in ("stdout", "stderr"):
        if isinstance(stream := getattr(sys, name), FileProxy):
            setattr(sys, name, stream.rich_proxied_file)


os.register_at_fork(after_in_child=_after_in_child)
