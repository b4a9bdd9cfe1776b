"""Progress for people: a line for each step, and a bar at a terminal."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import math
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, Self

from . import log
from ._native import _C
from .integration.telling import Work, making
from .progress import Ended, Event, RegionFound, RegionsLeft, Started
from .records import counted, find, too_little_time, try_again

if TYPE_CHECKING:
    from .terminal import ProgressBar


def progress_bar(prefix: str = "") -> ProgressBar | None:
    """A bar on standard error, if that is a terminal, or a notebook with ipywidgets. None if the
    log of forging is on."""
    try:
        is_shown = sys.stderr.isatty() or (
            "ipykernel" in sys.modules and importlib.util.find_spec("ipywidgets") is not None
        )
    except (AttributeError, ValueError):  # there is none, or it is closed
        return None
    if not is_shown or log.forge.isEnabledFor(logging.INFO):
        return None
    from .terminal import ProgressBar

    return ProgressBar(prefix)


class Teller:
    """A callback of cudaforge_backend.set_progress() for people. Writes a line for each event of a
    kind in `shown`. Shows the current work in `bar`, if there is one. Counts regions. Inside the
    context manager the current work is `doing`, or what begin() named last. Not thread-safe."""

    def __init__(
        self,
        write: Callable[[str], None] | None,
        doing: str,
        shown: Collection[type[Event]] = (),
        bar: ProgressBar | None = None,
    ) -> None:
        self.found: dict[str, str] = {}  # key to status when a model was compiled
        self.seen: dict[tuple[str, str], None] = {}  # keys and architectures, of parts too
        self.left: dict[str, None] = {}  # keys for which a graph's budget was too small
        self.kinds: Counter[str] = Counter()  # of the regions that are done
        self.reasons: Counter[str] = Counter()  # why there is no winner, in words
        self.why: Counter[str] = Counter()  # the same as codes
        self._write = write
        self._shown = tuple(shown)
        self._bar = bar
        self._started: Counter[str] = Counter()  # regions, by key
        self._left_text = ""
        self._under_way = contextlib.ExitStack()
        self._work = Work(what=doing)

    def begin(self, doing: str) -> None:
        """Names the work that begins now."""
        self._work.what = doing
        self._work.began = time.monotonic()
        if self._bar is not None:
            self._bar.restart()

    def say(self, line: str) -> None:
        """Writes a line. Once a write fails, this and later lines are dropped."""
        if self._write is not None:
            try:
                self._write(line)
            except OSError:  # the work goes on
                self._write = None

    def __call__(self, event: Event) -> None:
        if isinstance(event, RegionFound | Started):
            self.seen[event.key, event.arch] = None
        if isinstance(event, self._shown):
            self.say(f"{'  ' if isinstance(event, Ended) else ''}{event.what}")
        match event:
            case RegionFound():
                self.found.setdefault(event.key, event.status)
            case Started():
                self._started[event.key] += 1
            case RegionsLeft():
                self.left |= dict.fromkeys(event.keys)
                self._left_text = event.what
            case Ended():
                self.left.pop(event.key, None)
                self.kinds[event.kind] += 1
                if "compiled" not in event.serves:
                    alone = "faster by itself, not within a larger region"
                    self.reasons[alone if event.why == "not_within" else event.verdict] += 1
                    self.why[event.why] += 1
        said = isinstance(event, (RegionFound, RegionsLeft, *self._shown))
        if self._bar is not None and not said:
            self._bar.show(event)

    def summary(self) -> str:
        """The results of all regions in one line."""
        started = sum(n for key, n in self._started.items() if key not in self.left)
        failed = started - self.kinds.total()
        stored = [record for place in self.seen if (record := find(*place)) is not None]
        above = [record["retry_above_s"] for record in stored]
        short = too_little_time(above)
        if short is not None and short[1] <= math.ceil(_C.DEFAULT_REGION_BUDGET_S):
            again: str | None = (
                f"{short[0]}, and the next compilation tries again"  # with more time
            )
        else:
            again = try_again(above, "region_budget_s=")
        return (
            f"forged {counted(started, 'region')} (parts count as regions): "
            f"{counted(self.kinds['winner'], 'winner')}, "
            f"{self.kinds['negative']} with no winner{f', {failed} failed' * bool(failed)} "
            f"({time.monotonic() - self._work.began:.0f} s){f'; {again}' if again else ''}"
            f"{f'; {self._left_text}' if self._left_text else ''}"
        )

    def conclude(self) -> None:
        """Writes the summary, in place of the bar, if anything was forged or left over."""
        words = self.summary() if self._started else self._left_text
        if words and self._bar is not None:
            self._bar.leave(words)
        elif words:
            self.say(words)

    def __enter__(self) -> Self:
        self._under_way.enter_context(making(self, self._work))
        return self

    def __exit__(self, *error: Any) -> None:
        self._under_way.close()
        if self._bar is not None:
            self._bar.stop()
