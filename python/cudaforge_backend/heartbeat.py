"""Progress told to a person: lines of steps, and signs of life from work that takes long."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Any, Self

from .records import counted, find, try_again
from .steps import GRAPH_STEPS, step_text

EVERY_S = 10.0
_LAST_LINE_S = 1.0


class Teller:
    """A progress callback (cudaforge_backend.set_progress has the events) that writes lines: one
    for each event of a kind in `shown`, and, whenever EVERY_S seconds have passed without a line,
    one that says what goes on and for how long it has. That is done by a thread of its own, which
    starts at once; a context manager that ends it. Keeps count of regions."""

    def __init__(
        self, write: Callable[[str], None], doing: str, shown: Collection[str] = ()
    ) -> None:
        self.found: dict[str, str] = {}  # key to status when a model was compiled
        self.met: dict[tuple[str, str], None] = {}  # keys and architectures, of parts too
        self.kinds: Counter[str] = Counter()  # of the regions that are done
        self.reasons: Counter[str] = Counter()  # why there is no winner
        self._write = write
        self._shown = shown
        self._read = True  # until nobody does
        self._tried = self._started = 0
        self._region = self._step = ""  # what is forged now, and what is done for it
        self._left: Mapping[str, Any] | None = None  # the event of regions that were left
        self._ended = threading.Event()
        self._saying = threading.Lock()
        self.begin(doing)
        threading.Thread(target=self._watch, name="cudaforge-heartbeat", daemon=True).start()

    def begin(self, doing: str) -> None:
        """Something else goes on from now on, and that was said."""
        self._doing = doing
        self._began = self._since = self._spoke = time.monotonic()

    def say(self, line: str) -> None:
        """A line, unless nobody reads any more."""
        self._spoke = time.monotonic()
        if self._read:
            try:
                self._write(line)
            except OSError:  # the work goes on
                self._read = False

    def __call__(self, event: Mapping[str, Any]) -> None:
        kind = event["event"]
        if kind in ("region", "start"):
            self.met[event["key"], event["arch"]] = None
        if kind in self._shown:
            self.say(f"{'  ' if kind == 'end' else ''}{step_text(event)}")
        self._step = f"{step_text(event)}, " if kind in ("ask", "stage") else ""
        match kind:
            case "region":
                self.found.setdefault(event["key"], event["status"])
            case "start":
                self._region, self._began, self._tried = event["region"], time.monotonic(), 0
                self._started += 1
            case "candidate":
                self._tried += 1
            case "left":
                self._left = event
            case "end":
                self._region = ""
                self.kinds[event["kind"]] += 1
                if "compiled" not in event["serves"]:
                    within = event["why"] == "not_within"
                    alone = "faster alone, not within a larger region"
                    self.reasons[alone if within else event["verdict"]] += 1
            case "graph":
                self.begin(GRAPH_STEPS[event["step"]])

    def summary(self) -> str:
        """What came of all regions, in a line."""
        failed = self._started - self.kinds.total()
        stored = [record for place in self.met if (record := find(*place)) is not None]
        again = try_again([record["retry_above_s"] for record in stored], "region_budget_s=")
        return (
            f"forged {counted(self._started, 'region')} (parts count as regions): "
            f"{counted(self.kinds['winner'], 'winner')}, "
            f"{self.kinds['negative']} with no winner{f', {failed} failed' * bool(failed)} "
            f"({time.monotonic() - self._since:.0f} s){f'; {again}' if again else ''}"
            f"{f'; {step_text(self._left)}' if self._left else ''}"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Says no more; a line that is being said has a second to come out."""
        self._ended.set()
        if self._saying.acquire(timeout=_LAST_LINE_S):
            self._saying.release()

    def _words(self, now: float) -> str:
        if not self._region:
            return f"{self._doing} ({now - self._since:.0f} s)"
        tried = f"{counted(self._tried, 'candidate')} tried ({now - self._began:.0f} s)"
        done = f"{counted(self.kinds.total(), 'region')} done so far ({now - self._since:.0f} s)"
        return f"forging {self._region}: {self._step}{tried}; {done}"

    def _watch(self) -> None:
        while not self._ended.wait(min(1.0, EVERY_S)):
            now = time.monotonic()
            if now - self._spoke < EVERY_S:
                continue
            with self._saying:
                if self._ended.is_set():
                    return
                self.say(f"{'    ' if self._shown else ''}{self._words(now)}")
