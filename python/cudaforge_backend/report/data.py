"""What a report shows, as frozen data that is JSON-serialisable.

Texts of a cache or a model may come from anyone: text() and number() take them in."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..records import printable

MOST_TEXT = 4_000  # characters of a message
MOST_SOURCE = 200_000  # characters of a source


@dataclass(frozen=True)
class Fact:
    """A line of the table about the machine."""

    name: str
    text: str


@dataclass(frozen=True)
class Interval:
    """A ratio with its 95% interval; `label` says of what, as "CudaForge over eager"."""

    label: str
    low: float
    median: float
    high: float


@dataclass(frozen=True)
class Way:
    """One way to run a graph or a model: the median of one call."""

    label: str
    ms: float


@dataclass(frozen=True)
class TimedRow:
    """A graph, or a model of a benchmark, by the ways in which it was timed. `served`: the label of
    the way that serves, "" where that is not known. `control`: the A/A control, None where it was
    not measured."""

    name: str
    ways: tuple[Way, ...] = ()
    ratios: tuple[Interval, ...] = ()
    control: Interval | None = None
    served: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Candidate:
    """A generators' kernel that was tried for a region."""

    author: str
    verdict: str
    message: str
    us: float | None
    seconds: float | None
    params: str


@dataclass(frozen=True)
class Round:
    """An agents' kernel. Rounds are listed parents first; `depth` is the distance from the
    session's first round. `diff`: lines of a unified diff against the source of `diff_of`, the
    nearest ancestor with a stored source; empty where there is none. `reply`: of the Coder, where
    it held no source."""

    id: int
    parent: int | None
    depth: int
    kind: str
    verdict: str
    message: str
    us: float | None
    rival_us: float | None
    issue: str
    plan: str
    cost: str
    seconds: float | None
    documents: tuple[str, ...]
    language: str
    source: str
    reply: str
    diff_of: int | None
    diff: tuple[str, ...]


@dataclass(frozen=True)
class Session:
    """The rounds of one session of agents. `end`: why it ended, "" where it was cut off."""

    name: str
    end: str
    cost: str
    rounds: tuple[Round, ...]


@dataclass(frozen=True)
class Region:
    """One region on one architecture. `status`: "winner", "for eager", "no winner", "unused",
    "skipped" or "not forged". Times are microseconds of one call; None: not known. `times`: how
    often it is in its graph. `bytes`, `flops`: what one call must move and compute. `share`: of
    ReportData.share_of. `headroom`: the share of its time above the floor of the device."""

    key: str
    arch: str
    ops: str
    shapes: str
    status: str
    why: str
    author: str
    device: str
    within: str
    program: tuple[str, ...]
    times: int
    aten_us: float | None
    inductor_us: float | None
    winner_us: float | None
    us: float | None
    speedup: Interval | None
    share: float | None
    floor_us: float | None
    headroom: float | None
    bytes: float | None
    flops: float | None
    notes: tuple[str, ...]
    candidates: tuple[Candidate, ...]
    sessions: tuple[Session, ...]
    commands: tuple[Fact, ...]


@dataclass(frozen=True)
class Roof:
    """A measured limit of the device. `kind`: "bandwidth" (`rate` in bytes a second) or "compute"
    (operations a second)."""

    label: str
    kind: str
    rate: float


@dataclass(frozen=True)
class ReportData:
    """A report on a model, on a region or on a whole cache. `roof_note` says why there is no roof,
    or what it is."""

    title: str
    subject: str
    created: str
    command: str
    machine: tuple[Fact, ...]
    machine_command: str
    notes: tuple[str, ...]
    graphs: tuple[TimedRow, ...]
    graphs_note: str
    graphs_command: str
    regions: tuple[Region, ...]
    regions_command: str
    share_of: str
    headroom_note: str
    roofs: tuple[Roof, ...]
    roof_note: str
    kind: str = "report"


@dataclass(frozen=True)
class BenchmarkData:
    """The results of a benchmark, in the same form as the graphs of a report."""

    title: str
    subject: str
    created: str
    command: str
    machine: tuple[Fact, ...]
    rows: tuple[TimedRow, ...]
    notes: tuple[str, ...] = ()
    kind: str = "benchmark"


def to_json(data: ReportData | BenchmarkData) -> str:
    """JSON in ASCII that is safe inside of an HTML script element."""
    text = json.dumps(asdict(data), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def text(value: object, most: int = MOST_TEXT) -> str:
    """A text from outside: invisible and control characters as escapes, cut where it is long."""
    if value is None:
        return ""
    whole = value if isinstance(value, str) else str(value)
    shown = printable(whole[:most], kept="\n\t")
    return shown if len(whole) <= most else f"{shown} ..."


def number(value: object) -> float | None:
    """A finite number from outside, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def microseconds(ns: object) -> float | None:
    """Of positive nanoseconds from outside."""
    found = number(ns)
    return found / 1e3 if found is not None and found > 0 else None


def mapping(value: object) -> Mapping[str, Any]:
    """An object of JSON from outside, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def sequence(value: object) -> Sequence[Any]:
    """An array of JSON from outside, else an empty one."""
    return value if isinstance(value, list | tuple) else ()


def interval(label: str, value: object) -> Interval | None:
    """Of [low, median, high], None where it is no such list."""
    found = [number(one) for one in sequence(value)]
    if len(found) != 3 or None in found:
        return None
    low, median, high = (float(one or 0.0) for one in found)
    return Interval(label, low, median, high)
