"""The events that a callback of cudaforge_backend.set_progress() is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .reasons import Status


@dataclass(frozen=True, kw_only=True)
class Event:
    """What every event says.

    what: what is done or was found, one line for people.
    key, arch, text: the region's key, the architecture it is forged for, and the region in one
        line for people, "mul -> cumsum(float32[8, 128])". For a step of a graph: `key` is the
        graph's, `text` describes it. All are "" where the event is of several regions or of none.
    regions_done, regions: how many regions are done with, and how many there are in all, of what
        is made for this callback now. Parts of regions count as regions, so `regions` may grow.
    tried: candidates of this region that were judged.
    best_ns: nanoseconds of the best candidate of this region so far. None: none is right yet.
    most_s: seconds of the budget that are left. None: unknown, or there is no budget.

    Immutable, so that any thread may keep it. Later versions may add kinds and fields."""

    what: str
    key: str = ""
    arch: str = ""
    text: str = ""
    regions_done: int = 0
    regions: int = 0
    tried: int = 0
    best_ns: float | None = None
    most_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class RegionFound(Event):
    """A graph has this region."""

    status: Status  # never UNUSED


@dataclass(frozen=True, kw_only=True)
class Started(Event):
    """The forging of a region begins."""


@dataclass(frozen=True, kw_only=True)
class Candidate(Event):
    """A candidate was judged.

    number: of the candidate; of the round, where an agent wrote it.
    verdict: "accepted", "wrong_values", "too_slow" and so on.
    ns: nanoseconds of one run. None: not timed.
    is_best: it is the best so far.
    proven: it was judged on every input set; before, it was on a few.
    params: of the generator. None: an agent wrote it.
    round: the result of the agents' round: "kind", "message", "advice", "seconds",
        "device_seconds", "input_tokens", "cached_input_tokens", "output_tokens", "replayed",
        "usd"; where known "speedup", "duplicate_of", "no_counters". None: a generator wrote it.
    """

    number: int
    verdict: str
    ns: float | None
    is_best: bool
    proven: bool
    params: Mapping[str, Any] | None
    round: Mapping[str, Any] | None


@dataclass(frozen=True, kw_only=True)
class Stage(Event):
    """The forging of a region enters another stage.

    stage: "rivals" (before agents write, what they have to beat is compiled and timed), "compile"
        (Inductor compiles what the kernel has to beat) or "race" (the kernel is timed against it).
    within: the key of the larger region in which that is done. "": the region is alone.
    """

    stage: str
    within: str


@dataclass(frozen=True, kw_only=True)
class AgentStep(Event):
    """A step of agents that write a kernel.

    step and facts:
        "rival": "rival" and "us", microseconds of what is to be beaten.
        "resumed": an interrupted session goes on; "nodes" (rounds) and "ledger" (its cost).
        "round": "round", "kind", "parent", "near".
        "ask": "round", "role", "provider".
        "call": a call has ended: "round", "role", "model", "usage" (tokens), "usd", "seconds".
        "advice": of the Judge; "round", "issue" and "plan", or "silence".
        "rejudged": a kernel of an earlier session is not right any more: "round", "before",
            "verdict", "message".
        "agents_end": "reason", "limit", "ledger", "answered".
    """

    step: str
    facts: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Ended(Event):
    """The forging of a region has ended with a verdict.

    kind: "winner" (its kernel was stored) or "negative".
    serves: which calls use the kernel: of "compiled" and "eager".
    verdict, reason: for people: "nothing faster than ATen", "0.91 times as fast as ATen".
    why: a code of the verdict: "" for a winner, "not_faster", "none_right" and so on.
    timing: of the race: "winner_us", "aten_us", "inductor_us" (microseconds), "best_rival",
        "speedup" (low, median, high). Empty: there was no race.
    seconds: that the forging took.
    kept: the winner that was in the cache and stays: "author", "by_agent", "timing". None: there
        is no such winner.
    """

    kind: str
    serves: tuple[str, ...]
    verdict: str
    why: str
    reason: str
    timing: Mapping[str, Any]
    seconds: float
    kept: Mapping[str, Any] | None


@dataclass(frozen=True, kw_only=True)
class RegionsLeft(Event):
    """The budget of a graph does not suffice for these regions, which are not forged.

    keys: of the regions. graph_budget_s: seconds.
    """

    keys: tuple[str, ...]
    graph_budget_s: float


@dataclass(frozen=True, kw_only=True)
class GraphStep(Event):
    """A graph is timed, with its winners and without (on_miss="blocking").

    step: "compile" (the ways to run it are compiled) or "race" (they are called and timed).
    keys: of the regions that have winners.
    """

    step: str
    keys: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class StillGoing(Event):
    """Nothing new for a second: what the other fields describe goes on.

    seconds: since that began.
    """

    seconds: float
