"""Progress told to a person: lines of steps, and a line of the terminal that changes."""

from __future__ import annotations

import contextlib
import math
import time
from collections import Counter
from collections.abc import Callable, Collection
from typing import Any, Self

from ._native import _C
from .integration.telling import Work, making
from .progress import Ended, Event, GraphStep, RegionFound, RegionsLeft, Started, StillGoing
from .records import counted, find, too_little_time, try_again
from .terminal import ChangingLine

_SHOWN_LEFT_S = 100  # seconds: a larger budget says nothing of how long it takes


class Teller:
    """A callback of cudaforge_backend.set_progress() for people. Writes a line for each event of a
    kind in `shown`, and shows what goes on in `line`, where there is one. Counts regions. A context
    manager: inside, what was said last to begin goes on. Called by one thread at a time."""

    def __init__(
        self,
        write: Callable[[str], None] | None,
        doing: str,
        shown: Collection[type[Event]] = (),
        line: ChangingLine | None = None,
    ) -> None:
        self.found: dict[str, str] = {}  # key to status when a model was compiled
        self.met: dict[tuple[str, str], None] = {}  # keys and architectures, of parts too
        self.kinds: Counter[str] = Counter()  # of the regions that are done
        self.reasons: Counter[str] = Counter()  # why there is no winner
        self._write = write
        self._shown = tuple(shown)
        self._line = line
        self._read = True  # until nobody does
        self._started: Counter[str] = Counter()  # regions, by key
        self._left: RegionsLeft | None = None
        self._under_way = contextlib.ExitStack()
        self._work = Work(what=doing)

    def begin(self, doing: str) -> None:
        """Something else goes on from now on."""
        self._work.what = doing
        self._work.began = time.monotonic()

    def say(self, line: str) -> None:
        """A line, unless nobody reads any more."""
        if self._write is None or not self._read:
            return
        if self._line is not None:
            self._line.erase()
        try:
            self._write(line)
        except OSError:  # the work goes on
            self._read = False

    def __call__(self, event: Event) -> None:
        if isinstance(event, RegionFound | Started):
            self.met[event.key, event.arch] = None
        if isinstance(event, self._shown):
            self.say(f"{'  ' if isinstance(event, Ended) else ''}{event.what}")
        match event:
            case RegionFound():
                self.found.setdefault(event.key, event.status)
            case Started():
                self._started[event.key] += 1
            case RegionsLeft():
                self._left = event
            case Ended():
                self.kinds[event.kind] += 1
                if "compiled" not in event.serves:
                    alone = "faster alone, not within a larger region"
                    self.reasons[alone if event.why == "not_within" else event.verdict] += 1
        said = isinstance(event, (RegionFound, RegionsLeft, *self._shown))
        if self._line is not None and not said:
            self._line.show(self._words(event))

    def summary(self) -> str:
        """What came of all regions, in a line."""
        left = set(self._left.keys if self._left else ())  # begun, and given up for want of time
        started = sum(n for key, n in self._started.items() if key not in left)
        failed = started - self.kinds.total()
        stored = [record for place in self.met if (record := find(*place)) is not None]
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
            f"({self._seconds():.0f} s){f'; {again}' if again else ''}"
            f"{f'; {self._left.what}' if self._left else ''}"
        )

    def conclude(self) -> None:
        """Writes the summary, or leaves it on the terminal, if anything was forged."""
        if not self._started:
            if self._left is not None:
                self._end_with(self._left.what)
            return
        self._end_with(self.summary())

    def _end_with(self, words: str) -> None:
        if self._line is not None:
            self._line.leave(words)
        else:
            self.say(words)

    def __enter__(self) -> Self:
        self._under_way.enter_context(making(self, self._work))
        return self

    def __exit__(self, *error: Any) -> None:
        self._under_way.close()
        if self._line is not None:
            self._line.erase()

    def _seconds(self) -> float:
        return time.monotonic() - self._work.began

    def _words(self, event: Event) -> str:
        """What goes on. The best known comes first: the end may be cut off."""
        if isinstance(event, GraphStep):
            return event.what
        if isinstance(event, StillGoing) and not event.arch:
            return f"{event.what} ({event.seconds:.0f} s)"
        words = [f"{event.regions_done} of {counted(event.regions, 'region')} done"]
        words.append(f"{self._seconds():.0f} s")
        if event.most_s is not None and event.most_s < _SHOWN_LEFT_S:
            words.append(f"{event.most_s:.0f} s left")
        if event.best_ns is not None:
            words.append(f"best {event.best_ns / 1e3:.1f} us of {event.tried} tried")
        elif event.tried:
            words.append(f"{event.tried} tried")
        what = event.what if event.text in event.what else f"{event.what}: {event.text}"
        return f"{', '.join(words)}; {what}"
