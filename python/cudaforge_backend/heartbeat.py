"""A sign of life from work that takes long and says nothing."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Self

from .records import counted, find, try_again
from .steps import step_text

EVERY_S = 10.0
_LAST_LINE_S = 1.0

# What is done to a graph when its regions have been forged, by the step of its event "graph".
GRAPH_STEPS = {
    "compile": "compiling the graph with its kernels and without",
    "race": "timing the graph with its kernels and without",
}


class Heartbeat:
    """Has `say` told what goes on, and for how long it has, whenever EVERY_S seconds have passed
    without a word. Starts at once, in a thread of its own; a context manager that ends it."""

    def __init__(self, say: Callable[[str], None], doing: str) -> None:
        self._say = say
        self._ended = threading.Event()
        self._saying = threading.Lock()
        self.begin(doing)
        threading.Thread(target=self._watch, name="cudaforge-heartbeat", daemon=True).start()

    def begin(self, doing: str) -> None:
        """Something else goes on from now on, and that was said."""
        self._doing = doing
        self._since = self._spoke = time.monotonic()

    def go_on(self, doing: str) -> None:
        """Other words for what goes on."""
        self._doing = doing

    def _words(self, now: float) -> str:
        return f"{self._doing} ({now - self._since:.0f} s)"

    def end(self) -> None:
        """Says no more; a line that is being said has a second to come out."""
        self._ended.set()
        if self._saying.acquire(timeout=_LAST_LINE_S):
            self._saying.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.end()

    def _watch(self) -> None:
        while not self._ended.wait(min(1.0, EVERY_S)):
            now = time.monotonic()
            if now - self._spoke < EVERY_S:
                continue
            with self._saying:
                if self._ended.is_set():
                    return
                self._spoke = now
                try:
                    self._say(self._words(now))
                except OSError:  # nobody reads any more
                    return


class ForgingHeartbeat(Heartbeat):
    """A progress callback (cudaforge_backend.set_progress has the events) that says now and then
    which region is forged, what is done for it, for how long, and for how long all of it has gone
    on. `region_budget_s`: the seconds allowed for each."""

    def __init__(self, say: Callable[[str], None], region_budget_s: float) -> None:
        self._budget_s = region_budget_s
        self._began = time.monotonic()  # with this region
        self._tried = self._started = 0
        self._kinds: Counter[str] = Counter()  # of the regions that are done
        self._met: dict[tuple[str, str], None] = {}  # their keys and architectures
        self._step = ""  # what is done now, other than trying candidates
        self._left: Mapping[str, Any] | None = None  # the event of regions that were left
        super().__init__(say, "forging")

    def __call__(self, event: Mapping[str, Any]) -> None:
        if event["event"] == "start":
            self._began, self._tried = time.monotonic(), 0
            self._started += 1
            self._met[event["key"], event["arch"]] = None
            self.go_on(f"forging {event['region']}")
        if event["event"] in ("ask", "stage"):
            self._step = f"{step_text(event)}, "
        elif event["event"] in ("rival", "call", "agents_end", "start", "end"):
            self._step = ""
        self._tried += event["event"] == "candidate"
        if event["event"] == "left":
            self._left = event
        if event["event"] == "end":
            self._kinds[event["kind"]] += 1

    def summary(self) -> str:
        """What came of all regions, in a line."""
        failed = self._started - self._kinds.total()
        stored = [record for place in self._met if (record := find(*place)) is not None]
        raced = [(record["speedup"] is not None, record["retry_above_s"]) for record in stored]
        again = try_again(raced, self._budget_s, "region_budget_s=")
        return (
            f"forged {counted(self._started, 'region')}, parts included: "
            f"{counted(self._kinds['winner'], 'winner')}, "
            f"{self._kinds['negative']} with no winner{f', {failed} failed' * bool(failed)} "
            f"({time.monotonic() - self._since:.0f} s){f'; {again}' if again else ''}"
            f"{f'; {step_text(self._left)}' if self._left else ''}"
        )

    def _words(self, now: float) -> str:
        tried = f"{counted(self._tried, 'candidate')} tried ({now - self._began:.0f} s)"
        done = f"{counted(self._kinds.total(), 'region')} done so far ({now - self._since:.0f} s)"
        return f"{self._doing}: {self._step}{tried}; {done}"
