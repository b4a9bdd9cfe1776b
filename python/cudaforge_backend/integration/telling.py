"""Reports forging, and the compiling and timing after it, to callbacks. All events pass here: dicts
of the forge become events. One thread at a time calls a callback, at least every two seconds while
there is work for it."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from cudaforge_backend import log
from cudaforge_backend._native import _C
from cudaforge_backend.forks import fork_safe_lock
from cudaforge_backend.progress import (
    AgentStep,
    Candidate,
    Ended,
    Event,
    GraphStep,
    RegionFound,
    RegionsLeft,
    Stage,
    Started,
    StillGoing,
)
from cudaforge_backend.reasons import Reason, Status
from cudaforge_backend.records import status_text
from cudaforge_backend.stats import count_fallback, count_miss, warn_once
from cudaforge_backend.steps import GRAPH_STEPS, graph_text, step_text

if TYPE_CHECKING:
    from cudaforge_backend.heartbeat import Teller

Progress = Callable[[Any], None]  # takes an Event; Any: a caller's lambda may name a kind

# Seconds without an event before a StillGoing. Half of the two seconds that are promised: the
# clock's thread may have to wait for the interpreter or for another callback.
EVERY_S = 1.0

_progress: list[Progress] = []
_told_of_background = False


@dataclass(eq=False, kw_only=True)
class Work:
    """Something that is being made: a region, a step of a graph, a command."""

    what: str  # for people: what is done now
    key: str = ""  # as in Event; so are the next two
    arch: str = ""
    text: str = ""
    left_s: Callable[[], float] | None = None  # of its budget, where it has one
    is_region: bool = False
    began: float = field(default_factory=time.monotonic)
    spoke: float = 0.0  # time of its last event
    tried: int = 0
    best_ns: float | None = None
    forged: bool = False  # a region's forging has begun, and has not ended
    counted: bool = False  # among the regions that are done


@dataclass(eq=False)
class _Audience:
    """A callback, and what is being made for it."""

    listener: Progress
    works: list[Work] = field(default_factory=list)  # running, the newest last
    spoke: float = field(default_factory=time.monotonic)
    expected: int = 0  # regions that were announced
    begun: int = 0  # regions
    done: int = 0  # regions
    error: BaseException | None = None  # of the callback in the clock's thread; `tell()` raises it

    def region(self, key: str) -> Work | None:
        """The running region with that key, if there is one."""
        return next((work for work in self.works if work.is_region and work.key == key), None)

    def end(self, work: Work) -> None:
        """Counts a region as done, once."""
        self.done += int(work.is_region and not work.counted)
        work.counted, work.forged = True, False

    def facts(self, work: Work | None) -> dict[str, Any]:
        """The fields that every event has, but for "what"."""
        far = {"regions_done": self.done, "regions": max(self.expected, self.begun)}
        if work is None:
            return far
        # The first of them is the graph, whose budget bounds those of its regions.
        left_s = next((one.left_s for one in self.works if one.left_s is not None), None)
        return far | {
            "key": work.key,
            "arch": work.arch,
            "text": work.text,
            "tried": work.tried,
            "best_ns": work.best_ns,
            "most_s": None if left_s is None else max(0.0, left_s()),
        }

    def call(self, event: Event, work: Work | None) -> None:
        """REQUIRES: _lock is held. The torch operators of a callback are not looked up."""
        global _calls_back
        outer, _calls_back = _calls_back, threading.get_ident()
        try:
            with _C.OwnWork():
                self.listener(event)
        finally:
            _calls_back = outer
            self.spoke = time.monotonic()
            if work is not None:
                work.spoke = self.spoke


_lock = fork_safe_lock()  # guards all below, and is held while a callback runs
_audiences: list[_Audience] = []  # those for which anything is made
_clock: threading.Thread | None = None
_calls_back: int | None = None  # the thread in which a callback runs


def set_progress(callback: Progress | None) -> None:
    """Sets the callback of this process; see cudaforge_backend.set_progress."""
    _progress[:] = [callback] if callback is not None else []


def current_progress() -> Progress | None:
    """The callback that set_progress was given last."""
    return _progress[0] if _progress else None


def tell(raw: Mapping[str, Any], listener: Progress | None) -> None:
    """Gives `listener`, if there is one, a dict of the forge (csrc/forge/forge.h) as an Event.
    Thread-safe. Raises what the callback raises, now or when the clock's thread called it last."""
    if listener is None:
        return
    with _lock:
        audience = _audience_of(listener) or _Audience(listener)
        if audience.error is not None:
            error, audience.error = audience.error, None
            raise error
        work = audience.region(raw.get("key", ""))
        if work is not None:
            _note(raw, audience, work)
        audience.call(_event(raw, audience.facts(work)), work)


def _audience_of(listener: Progress) -> _Audience | None:
    return next((one for one in _audiences if one.listener is listener), None)


def _note(raw: Mapping[str, Any], audience: _Audience, work: Work) -> None:
    """What an event changes for its region."""
    kind = raw["event"]
    if kind in ("stage", "ask"):
        work.what = step_text(raw)
    elif kind in ("rival", "call", "candidate"):  # the step has ended
        work.what = f"forging {work.text}"
    if kind == "start":
        work.forged = True
    elif kind == "candidate":
        work.tried += 1
        if raw.get("best") and raw.get("ns") is not None:
            work.best_ns = raw["ns"]
    elif kind == "end":
        audience.end(work)


def _event(raw: Mapping[str, Any], facts: Mapping[str, Any]) -> Event:
    """The event of a dict. `facts`: the fields that every event has, as far as they are known."""
    same = {
        **facts,
        "what": step_text(raw),
        "key": raw.get("key", ""),
        "arch": raw.get("arch") or facts.get("arch", ""),
        "text": raw.get("region") or facts.get("text", ""),
    }
    match raw["event"]:
        case "region":
            return RegionFound(status=raw["status"], **same)
        case "start":
            return Started(**same)
        case "candidate" | "verified" as kind:
            by_agent = "round" in raw
            known = ("event", "key", "index", "round", "verdict", "ns", "best", "params")
            return Candidate(
                number=raw["round"] if by_agent else raw["index"],
                verdict=raw["verdict"],
                ns=raw.get("ns"),
                is_best=bool(raw.get("best")),
                proven=kind == "verified",
                params=raw.get("params"),
                round={k: v for k, v in raw.items() if k not in known} if by_agent else None,
                **same,
            )
        case "stage":
            return Stage(stage=raw["stage"], within=raw.get("within", ""), **same)
        case "end":
            return Ended(
                kind=raw["kind"],
                serves=tuple(raw["serves"]),
                verdict=raw["verdict"],
                why=raw["why"],
                reason=raw["reason"],
                timing=raw["timing"] or {},
                seconds=raw["seconds"],
                kept=raw["kept"],
                **same,
            )
        case "left":
            keys = tuple(raw["regions"])
            return RegionsLeft(keys=keys, graph_budget_s=raw["graph_budget_s"], **same)
        case "graph":
            same["text"] = graph_text(raw)
            return GraphStep(step=raw["step"], keys=tuple(raw["regions"]), **same)
        case step:
            step_facts = {k: v for k, v in raw.items() if k not in ("event", "key")}
            return AgentStep(step=step, facts=step_facts, **same)


@contextmanager
def making(listener: Progress | None, work: Work, regions: int = 0) -> Iterator[Work]:
    """Inside it `work` is running, and `listener` gets an event at least every two seconds.
    `regions`: how many are to be forged in it. RuntimeError: called by a callback."""
    if listener is None:
        yield work
        return
    if _calls_back == threading.get_ident():  # the thread that forges would wait for it for ever
        raise RuntimeError("a callback of set_progress() must neither compile nor forge")
    with _lock:
        audience = _audience_of(listener)
        if audience is None:
            audience = _Audience(listener)
            _audiences.append(audience)
        audience.works.append(work)
        audience.expected += regions
        audience.begun += int(work.is_region)
        _start_clock()
    try:
        yield work
    finally:
        with _lock:
            audience.end(work)
            audience.works.remove(work)
            if not audience.works and audience in _audiences:
                _audiences.remove(audience)


def making_region(
    listener: Progress | None, signature: _C.Signature, arch: str, budget_s: float | None
) -> contextlib.AbstractContextManager[Work]:
    """A region that is being forged, or looked up. `budget_s`: None where there is none."""
    text = signature.describe()
    work = Work(what=f"forging {text}", key=signature.key, arch=arch, text=text, is_region=True)
    if budget_s is not None:
        work.left_s = partial(_left, budget_s, work.began)
    return making(listener, work)


def _left(budget_s: float, began: float) -> float:
    return budget_s - (time.monotonic() - began)


def _start_clock() -> None:
    """REQUIRES: _lock is held."""
    global _clock
    if _clock is not None and _clock.is_alive():
        return
    _clock = threading.Thread(target=_tick, name="cudaforge-heartbeat", daemon=True)
    with contextlib.suppress(RuntimeError):  # no more threads: only StillGoing is lost
        _clock.start()


def _tick() -> None:
    """The clock's thread: ends with the last thing that is made."""
    global _clock
    while True:
        time.sleep(EVERY_S / 4)  # seldom: on a CPU it disturbs what is timed
        with _lock:
            if not _audiences:
                _clock = None
                return
            for audience in list(_audiences):
                if audience.error is None and time.monotonic() - audience.spoke >= EVERY_S:
                    _say_that_it_goes_on(audience)


def _say_that_it_goes_on(audience: _Audience) -> None:
    """Of several regions each has its turn."""
    regions = [work for work in audience.works if work.forged] or audience.works[-1:]
    work = min(regions, key=lambda one: one.spoke)
    facts = audience.facts(work)
    try:
        seconds = time.monotonic() - work.began
        audience.call(StillGoing(what=work.what, seconds=seconds, **facts), work)
    except BaseException as error:
        audience.error = error


def _after_in_child() -> None:
    """A forked child has none of its parent's threads, and makes nothing of what they did."""
    global _clock, _calls_back
    _audiences.clear()
    _clock = _calls_back = None


os.register_at_fork(after_in_child=_after_in_child)


def tell_region(key: str, arch: str, text: str, status: Status) -> None:
    """Counts a miss, and reports that a graph has this region."""
    raw = {"event": "region", "key": key, "arch": arch, "region": text, "status": status}
    log.graph.debug("%s %s: %s", status_text(status), key[:12], text)
    if status == Status.MISS:
        count_miss(key)
    tell(raw, current_progress())


def tell_of_failed_background(error: Exception) -> None:
    """Counts and warns of a thread's forging that failed."""
    count_fallback(Reason.BACKGROUND_FAILED)
    warn_once(f"forging in the background failed, PyTorch's own kernels run: {error}")


@contextmanager
def _told(work: Work, regions: int = 0) -> Iterator[tuple[Progress | None, Teller | None]]:
    """Yields the callback for `work`, and our own Teller if that is the callback. The callback
    is the first of: that of set_progress(); the log, if its level is INFO or less; a bar at a
    terminal; None."""
    from cudaforge_backend.heartbeat import Teller, progress_bar

    progress = current_progress()
    if progress is not None:
        with making(progress, work, regions):
            yield progress, None
        return
    bar = progress_bar("cudaforge: ")
    if bar is None and not log.forge.isEnabledFor(logging.INFO):
        yield None, None
        return
    write = log.forge.info if bar is None else None
    with Teller(write, work.what, bar=bar) as teller, making(teller, work, regions):
        yield teller, teller


@contextmanager
def telling(step: str, regions: Iterable[str], name: str = "") -> Iterator[None]:
    """Reports a step of a graph that has winners for these regions, when the step begins. `name`:
    the graph's."""
    raw = {"event": "graph", "step": step, "key": name, "regions": sorted(regions)}
    work = Work(what=GRAPH_STEPS[step], key=name, text=graph_text(raw))
    with _told(work) as (progress, _):
        tell(raw, progress)
        yield


@contextmanager
def telling_of_forging(
    what: str, regions: int = 1, left_s: Callable[[], float] | None = None
) -> Iterator[Progress | None]:
    """Inside it the progress of forging `what` is shown. `regions`: how many. Yields the callback
    for its events, or None if there is none. `left_s`: returns the seconds that are left of the
    budget for all regions. None: there is no budget."""
    work = Work(what="forging", left_s=left_s)
    with _told(work, regions) as (progress, own):
        if own is not None:
            own.say(f"forging {what}")
        yield progress
        if own is not None:
            own.conclude()


@contextmanager
def telling_in_background(
    regions: int = 1, left_s: Callable[[], float] | None = None
) -> Iterator[Progress | None]:
    """Like telling_of_forging, for work that no thread of the program waits for. The program may
    use the terminal meanwhile, so that only a callback and the log report this work."""
    global _told_of_background
    progress = current_progress()
    if progress is None and not _told_of_background:
        _told_of_background = True
        log.forge.info(
            "forging kernels in the background; cudaforge_backend.stats() says what is missing"
        )
    work = Work(what="forging in the background", left_s=left_s)
    with making(progress, work, regions):
        yield progress
