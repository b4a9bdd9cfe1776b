"""What the forges of one graph share: its budget, the device, by turns, and how they end."""

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

from .rivals import chooses_kernels

_SILENT_SECONDS = 1.0  # of waiting at an interruption
_LOOKS_SECONDS = 0.1  # how often who waits looks whether to go on
_AT_ONCE = 8  # regions, most of which wait for Inductor or for the device
_CORES_AT_ONCE = 4  # fewer are for one region alone


class NoTimeLeftError(Exception):
    """What is left of the graph's budget does not suffice for this region."""

    def __init__(self, spent: Mapping[str, float] | None = None) -> None:
        super().__init__()
        self.spent = dict(spent or {})  # seconds by phase, of what was done for it


class ElsewhereError(Exception):
    """Another process that has the cache in use forges this region now."""


class Turns:
    """A device that one forge at a time uses. Of those that wait a race goes first, then the lowest
    number. Thread-safe."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._busy = False
        self._waiting: list[tuple[bool, int]] = []

    @contextmanager
    def take(self, race: bool, number: int, go_on: Callable[[], None]) -> Iterator[None]:
        """Waits. What `go_on`, which is called now and then, raises ends the waiting."""
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
        """For the timing of the graph, which goes before all else."""
        return self.take(True, -1, lambda: None)


class Turn:
    """What a forge holds until end(), the device and for a race the turn of Inductor's as well; of
    one thread. `left_s`: of the graph's budget."""

    def __init__(self, held: ExitStack, left_s: float) -> None:
        self._held = held
        self.left_s = left_s

    def end(self) -> None:
        """Gives them to the next."""
        self._held.close()


class Together:
    """Of the forges of one graph, or of these `graphs`, a forward and a backward. `waited_for`: a
    compilation of Dynamo's, which has its lock, waits for them. `reserved`: the graph is compiled
    without winners meanwhile, and time is kept for compiling it with them, and `timing_s` seconds
    for timing it. Thread-safe."""

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
        # On a GPU times do not depend on what the processor does meanwhile.
        cores = len(os.sched_getaffinity(0))
        several = device.type == "cuda" and cores >= _CORES_AT_ONCE
        several = several and reserved and settings.agents is None
        self.at_once = _AT_ONCE if several and not chooses_kernels(settings.inductor) else 1
        self.turns = Turns()
        self.cancel = _C.Cancel()
        self.stopped = False
        self.skipped: dict[str, str] = {}  # by key: why nothing is to be gained
        # Seconds; None with agents, who have limits of their own.
        self.budget_s = graphs * settings.graph_budget_s if settings.agents is None else None
        self._began = time.monotonic()
        self._compiling_since: float | None = None
        self._reserve_s = timing_s
        self._graph_us: float | None = None
        self._known = threading.Event()  # the graph was compiled, and timed where it could be
        if not reserved:
            self._known.set()

    def begin(self) -> None:
        """The budget runs from now on."""
        self._began = time.monotonic()

    @contextmanager
    def compiling(self) -> Iterator[None]:
        """Inductor compiles the graph without winners: its own seconds, and none of the budget."""
        self._compiling_since = time.monotonic()
        try:
            yield
        finally:
            self._began += time.monotonic() - self._compiling_since
            self._compiling_since = None

    def left_s(self) -> float:
        """Of the graph's budget, without what is reserved: seconds."""
        budget_s = math.inf if self.budget_s is None else self.budget_s
        now = self._compiling_since or time.monotonic()
        return budget_s - self._reserve_s - (now - self._began)

    @property
    def clock(self) -> Callable[[], float] | None:
        """left_s, if there is a budget."""
        no_budget = self.budget_s is None or self.budget_s >= NO_LIMIT_S
        return None if no_budget else self.left_s

    def compiled(self, seconds: float, graph_us: float | None) -> None:
        """The graph was compiled without winners. With them it may take `seconds`: for that at most
        half of the budget is kept. One call of it takes `graph_us`."""
        self._reserve_s += seconds if self.budget_s is None else min(seconds, self.budget_s / 2)
        self._graph_us = graph_us
        self._known.set()

    def graph_us(self, go_on: Callable[[], None] | None) -> float | None:
        """Microseconds of one call of the graph as Inductor compiles it; None: not known. Waits
        until that was timed where there is a `go_on`."""
        while go_on is not None and not self._known.wait(_LOOKS_SECONDS):
            go_on()
        return self._graph_us

    def stop(self) -> None:
        """Has all forges end soon. What they decided is kept, what is under way is lost."""
        self.stopped = True
        self.cancel.set()


@dataclass(frozen=True)
class InGraph:
    """A region as one of a graph's: the `number`th to be forged, which stands in it `times` times.
    `wait`: for another process that forges it; else ElsewhereError is raised."""

    together: Together
    number: int = 0
    times: int = 1
    wait: bool = True


def run_all(work: Callable[[int], None], count: int, together: Together) -> None:
    """Calls work(0) to work(count - 1), `at_once` at a time, and raises what the first of them to
    fail raised."""
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
    """Work in a thread of its own, which ends before the `with` does."""

    def __init__(self, work: Callable[[], Any], together: Together) -> None:
        self._work = work
        self._together = together
        self._result: Any = None
        self._failure: BaseException | None = None
        self._ended = threading.Event()
        # Not a daemon: the interpreter would end while it is in C++, and that aborts the process.
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
        """Waits; raises what the work raised."""
        # Not by join(), which takes a thread for ended where Ctrl-C interrupts it.
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
                "cudaforge: the steps under way are finished first (where Inductor compiles, up to "
                "half a minute)"
            )
        with suppress(KeyboardInterrupt):  # a second Ctrl-C
            self._ended.wait()
