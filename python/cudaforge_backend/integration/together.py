"""State shared by the forges of one graph: the budget, turns on the device, and the end."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import torch

from cudaforge_backend import log
from cudaforge_backend._native import _C
from cudaforge_backend.options import NO_LIMIT_S, Settings
from cudaforge_backend.reasons import Phase

from .rivals import chooses_kernels

_SILENT_SECONDS = 1.0  # after Ctrl-C, before a line says what is waited for
_LOOKS_SECONDS = 0.1  # a waiting thread polls this often
_AT_ONCE = 8  # regions; most of them wait for Inductor or for the device
_CORES_AT_ONCE = 4  # with fewer cores, one region at a time


class NoTimeLeftError(Exception):
    """The graph's remaining budget is too short for this region."""

    def __init__(self, spent: Mapping[Phase, float] | None = None) -> None:
        super().__init__()
        self.spent = dict(spent or {})  # seconds by phase


class ElsewhereError(Exception):
    """Another process that has the cache in use forges this region now."""


class Turns:
    """A device that one forge at a time uses. Waiting races go first, then the lowest number.
    Thread-safe."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._busy = False
        self._waiting: list[tuple[bool, int]] = []

    @contextmanager
    def take(self, race: bool, number: int, go_on: Callable[[], None]) -> Iterator[None]:
        """Waits for the device. Calls `go_on` every 0.1 s; if that raises, the wait ends."""
        mine = (not race, number)
        with self._changed:
            self._waiting.append(mine)
            try:
                while self._busy or min(self._waiting) != mine:
                    go_on()
                    self._changed.wait(_LOOKS_SECONDS)
                self._busy = True
            finally:
                self._waiting.remove(mine)
        try:
            yield
        finally:
            with self._changed:
                self._busy = False
                self._changed.notify_all()

    def of_timing(self) -> AbstractContextManager[None]:
        """A turn for timing the graph; it goes before all others."""
        return self.take(True, -1, lambda: None)


class Turn:
    """Holds the device, and for a race Inductor's turn, until end(). For one thread. left_s:
    seconds left of the graph's budget."""

    def __init__(self, held: ExitStack, left_s: float) -> None:
        self._held = held
        self.left_s = left_s

    def end(self) -> None:
        """Releases them."""
        self._held.close()


class Together:
    """State shared by the forges of one graph, or of a forward and a backward (graphs=2).
    Thread-safe.

    waited_for: the thread that holds Dynamo's lock waits for the forges. reserved: Inductor
    compiles the graph without winners at the same time; the budget keeps time for compiling it with
    winners and `timing_s` seconds for timing it."""

    def __init__(
        self,
        settings: Settings,
        device: torch.device,
        *,
        waited_for: bool,
        reserved: bool,
        graphs: int = 1,
        timing_s: float = 0.0,
    ) -> None:
        self.waited_for = waited_for
        self.inductor = settings.inductor
        # Times on a GPU do not depend on the load of the processor.
        cores = len(os.sched_getaffinity(0))
        several = device.type == "cuda" and cores >= _CORES_AT_ONCE
        several = several and reserved and settings.agents is None
        self.at_once = _AT_ONCE if several and not chooses_kernels(settings.inductor) else 1
        self.turns = Turns()
        self.cancel = _C.Cancel()
        self.stopped = False
        self.skipped: dict[str, str] = {}  # by key: why little can be gained
        # Seconds; None with agents, which have limits of their own.
        self.budget_s = graphs * settings.graph_budget_s if settings.agents is None else None
        self._began = time.monotonic()
        self._compiling_since: float | None = None
        self._reserve_s = timing_s
        self._graph_us: float | None = None
        self._known = threading.Event()  # the graph was compiled, and timed if that is possible
        if not reserved:
            self._known.set()

    def begin(self) -> None:
        """Starts the budget."""
        self._began = time.monotonic()

    @contextmanager
    def compiling(self) -> Iterator[None]:
        """Stops the budget while Inductor compiles the graph without winners."""
        self._compiling_since = time.monotonic()
        try:
            yield
        finally:
            self._began += time.monotonic() - self._compiling_since
            self._compiling_since = None

    def left_s(self) -> float:
        """Seconds left of the graph's budget, without the reserve."""
        budget_s = math.inf if self.budget_s is None else self.budget_s
        now = self._compiling_since or time.monotonic()
        return budget_s - self._reserve_s - (now - self._began)

    @property
    def clock(self) -> Callable[[], float] | None:
        """left_s; None: there is no budget."""
        no_budget = self.budget_s is None or self.budget_s >= NO_LIMIT_S
        return None if no_budget else self.left_s

    def compiled(self, seconds: float, graph_us: float | None) -> None:
        """Reports that Inductor compiled the graph without winners. Reserves `seconds` for
        compiling it with winners, at most half of the budget. graph_us: of one call; None:
        unknown."""
        self._reserve_s += seconds if self.budget_s is None else min(seconds, self.budget_s / 2)
        self._graph_us = graph_us
        self._known.set()

    def graph_us(self, go_on: Callable[[], None] | None) -> float | None:
        """Microseconds of one call of Inductor's code for the graph; None: unknown. With `go_on`:
        waits until it was timed, and calls `go_on` every 0.1 s."""
        while go_on is not None and not self._known.wait(_LOOKS_SECONDS):
            go_on()
        return self._graph_us

    def stop(self) -> None:
        """Ends all forges soon. Decided regions are kept; the others are lost."""
        self.stopped = True
        self.cancel.set()


@dataclass(frozen=True)
class InGraph:
    """The place of a region in its graph."""

    together: Together
    number: int = 0  # in the order of forging
    times: int = 1  # how often the graph has it
    wait: bool = True  # for another process that forges it; False: ElsewhereError is raised


def run_all(work: Callable[[int], None], count: int, together: Together) -> None:
    """Calls work(0) to work(count - 1), together.at_once at a time. Raises the first failure."""
    if together.at_once == 1:
        for number in range(count):
            work(number)
        return
    numbers = iter(range(count))  # whose next() is atomic
    failures: list[BaseException] = []

    def body() -> None:
        for number in numbers:
            try:
                work(number)
            except BaseException as error:
                failures.append(error)
                together.stop()
                return

    threads = [
        threading.Thread(target=body, name=f"cudaforge-region-{i}", daemon=False)
        for i in range(min(together.at_once, count))
    ]
    started = []
    try:
        for thread in threads:
            thread.start()
            started.append(thread)
    except RuntimeError as error:  # the process may have no more of them
        failures.append(error)
        together.stop()
    for thread in started:
        thread.join()
    if failures:
        raise failures[0]


class Beside:
    """Runs work in a thread that ends before the `with` block does."""

    def __init__(self, work: Callable[[], Any], together: Together) -> None:
        self._work = work
        self._together = together
        self._result: Any = None
        self._failure: BaseException | None = None
        self._ended = threading.Event()
        # Not a daemon: the process aborts if the interpreter ends while a thread runs C++.
        self._thread = threading.Thread(target=self._run, name="cudaforge-graph", daemon=False)

    def _run(self) -> None:
        try:
            self._result = self._work()
        except BaseException as error:
            self._failure = error
        finally:
            self._ended.set()

    def __enter__(self) -> Beside:
        self._thread.start()
        return self

    def result(self) -> Any:
        """Waits for the result; raises what the work raised."""
        # Not join(): after Ctrl-C it takes a running thread for ended.
        while not self._ended.wait(_LOOKS_SECONDS):
            pass
        if self._failure is not None:
            raise self._failure
        return self._result

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            return
        self._together.stop()
        if not self._ended.wait(_SILENT_SECONDS):
            log.forge.warning(
                "cudaforge: the current steps are finished first (where Inductor compiles, up to "
                "half a minute)"
            )
        with suppress(KeyboardInterrupt):  # a second Ctrl-C
            self._ended.wait()
