"""Counters of this process: what was served, what was not and why."""

from __future__ import annotations

import threading
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

from . import log
from ._native import _C
from .errors import CudaForgeWarning
from .forks import fork_safe_lock
from .reasons import EagerMiss, GraphOutcome, Phase, Reason, Way
from .records import why_no_kernel
from .steps import call_cost


@dataclass(frozen=True)
class RegionStats:
    """One region that was called in this process. ATen ran the calls in `unserved` and
    `fallbacks`."""

    key: str
    region: str  # a line for people: operators and shapes
    device: str  # as "cuda:0"
    hits: int  # calls that its kernel served
    unserved: int  # calls that found no kernel
    fallbacks: int  # calls that its kernel could not take
    saved_ns: float
    quarantined: str | None  # why its kernel is not served any more
    # Why its calls found no kernel; only for the first 20 regions in the order of the text.
    no_kernel: str | None = None


@dataclass(frozen=True)
class AgentStats:
    """Calls of agents in this process, and their cost."""

    calls: int
    failed: int  # brought no reply
    estimated: int  # the service did not count their tokens
    replayed: int  # a recording answered: nothing was spent
    unpriced: int  # the model has no price: not in `usd`
    input_tokens: int
    cached_input_tokens: int  # part of input_tokens
    output_tokens: int
    usd: float


@dataclass(frozen=True)
class EagerStats:
    """Eager calls of one overload that enable() looks up: calls = hits + fallbacks + misses."""

    calls: int
    hits: int  # a kernel served
    fallbacks: int  # the kernel could not take
    misses: Mapping[EagerMiss, int]


@dataclass(frozen=True)
class GraphSpent:
    """The making of kernels for one graph."""

    regions: int  # that were forged
    seconds: Mapping[Phase, float]


@dataclass(frozen=True)
class GraphWay:
    """How a timed graph runs. Intervals are (low, median, high) with 95% confidence."""

    fastest: Way  # the one that serves
    ms: Mapping[Way, float]  # medians of one call (training: with its backward), by way
    sizes: Sequence[str]  # of its first inputs, as "float32[8, 128]"
    speedup: tuple[float, float, float] | None = None  # over the faster of the other ways
    control: tuple[float, float, float] | None = None  # A/A: Inductor's time over itself
    doubtful: bool = False  # measured on a busy machine


@dataclass(frozen=True)
class Stats:
    """Counts since the process began or reset_stats(). str() is a text for people, to_dict() is for
    JSON. hits, unserved, saved_ns are of calls of regions; misses, forged, negative of regions,
    each counted once."""

    hits: int  # calls that a kernel served
    unserved: int  # calls that found no kernel: ATen ran
    misses: int  # regions without a record when first seen
    fallbacks: Mapping[Reason, int]
    forged: int  # to a kernel
    negative: int  # to none
    graphs: Mapping[GraphOutcome, int]
    agents: AgentStats
    saved_ns: float  # that the hits are expected to have saved, from the races
    cache: Mapping[str, int]  # reads, hits, writes, corrupt, errors; since the cache was opened
    spent: Sequence[GraphSpent]
    ways: Sequence[GraphWay]  # of the timed graphs
    regions: Sequence[RegionStats]
    eager: Mapping[str, EagerStats]  # by overload
    intercepted: int  # overloads that enable() looks up now
    # Of frozen weights. kept: forms now, bytes: their memory, made: preparations of them, per_call:
    # calls that prepared their weights themselves.
    prepared: Mapping[str, int]

    def to_dict(self) -> dict[str, Any]:
        """The same, JSON-serialisable."""
        return asdict(self)

    def __str__(self) -> str:
        from .stats_text import stats_text

        return stats_text(self)


SHOWN = 20  # regions in the text, at most
# As the C++ part has them.
_REGION = ("key", "device", "hits", "unserved", "fallbacks", "saved_ns", "quarantined")


def called(regions: Sequence[RegionStats]) -> list[RegionStats]:
    """The regions that were called, in the order of the text."""
    found = [r for r in regions if r.hits + r.unserved + r.fallbacks]
    return sorted(found, key=lambda r: (r.quarantined is None, -r.hits, -r.unserved))


class Spent:
    """A graph for which something may be made; see spending()."""

    def __init__(self) -> None:
        self.regions = 0
        self.seconds = dict.fromkeys(Phase, 0.0)

    def copy(self) -> GraphSpent:
        """As it is now."""
        return GraphSpent(regions=self.regions, seconds=dict(self.seconds))


_lock = fork_safe_lock()
_fallbacks: Counter[Reason] = Counter()
_graphs: Counter[GraphOutcome] = Counter()
_graph_gains: list[tuple[float, float, float]] = []
_forging: Counter[str] = Counter()
_agents: Counter[str] = Counter()  # the fields of AgentStats
_spent: list[Spent] = []
_ways: list[GraphWay] = []
_now = threading.local()  # .graph: for which this thread makes something
_unknown: set[str] = set()
_warned: set[str] = set()


def count_fallback(reason: Reason, n: int = 1) -> None:
    """Counts `n` regions or graphs that PyTorch runs, by reason."""
    log.graph.debug("run by PyTorch: %s (%d)", reason, n)
    with _lock:
        _fallbacks[reason] += n


def count_graph(how: GraphOutcome, n: int = 1) -> None:
    """Counts `n` graphs by what became of them. Below zero takes back what was
    counted."""
    log.graph.debug("graphs: %+d %s", n, how)
    with _lock:
        _graphs[how] += n


def graph_count(how: GraphOutcome) -> int:
    """What count_graph() counted for an outcome since the process began or reset_stats()."""
    with _lock:
        return _graphs[how]


def count_graph_gain(speedup: tuple[float, float, float]) -> None:
    """Notes of a graph that runs with its winners how much faster it is by them: low, median and
    high (95% interval)."""
    with _lock:
        _graph_gains.append(speedup)


def note_way(way: GraphWay) -> None:
    """Notes how a graph that was timed runs."""
    with _lock:
        _ways.append(way)


def graph_gains() -> list[tuple[float, float, float]]:
    """What was passed to count_graph_gain() since the process began or reset_stats()."""
    with _lock:
        return list(_graph_gains)


def count_miss(key: str) -> None:
    """Counts a region of a graph or of an eager call that the cache does not know, once."""
    with _lock:
        _unknown.add(key)


def count_forging(outcome: str) -> None:
    """Counts one forged region: "forged" or "negative"."""
    with _lock:
        _forging[outcome] += 1


@contextmanager
def spending(graph: Spent | None = None) -> Iterator[Spent]:
    """What this thread makes inside is for `graph`; None: for one more."""
    before = getattr(_now, "graph", None)
    _now.graph = graph or Spent()
    try:
        yield _now.graph
    finally:
        _now.graph = before


def current_spent() -> Spent | None:
    """The graph for which this thread makes something, if it does."""
    return getattr(_now, "graph", None)


def count_spent(seconds: Mapping[Phase, float], regions: int = 0) -> None:
    """Adds seconds by phase to the graph for which this thread makes something, if it does."""
    graph = current_spent()
    if graph is None:
        return
    with _lock:
        if graph not in _spent:
            _spent.append(graph)
        graph.regions += regions
        for phase, spent in seconds.items():
            graph.seconds[phase] += spent


@contextmanager
def timing_phase(phase: Phase) -> Iterator[None]:
    """Counts the seconds inside as spent on it."""
    began = time.monotonic()
    try:
        yield
    finally:
        count_spent({phase: time.monotonic() - began})


def count_agent_call(event: Mapping[str, Any]) -> None:
    """Counts one call of an agent, by its event "call"."""
    with _lock:
        _agents.update(call_cost(event))


def warn_once(message: str, cause: str | None = None) -> None:
    """Gives a CudaForgeWarning the first time that `cause` (or else this message) appears in the
    process. Raises nothing: if the program turns warnings into errors, the message is logged
    instead, because nothing of the program's has failed."""
    with _lock:
        if (cause or message) in _warned:
            return
        _warned.add(cause or message)
    try:
        # Names no line of ours, because the cause is not in our code.
        warnings.warn_explicit(message, CudaForgeWarning, "cudaforge", 0)
    except CudaForgeWarning:
        log.graph.warning("cudaforge: %s", message)  # by logging's last resort, to stderr


CHOOSE_FOLDER = (
    "choose a folder that you can write to (CUDAFORGE_CACHE_DIR or the option cache_dir)"
)


def wanted_not_recorded(error: str) -> None:
    """Counts and warns that a region which is missing could not be put on the wanted list."""
    count_fallback(Reason.NOT_RECORDED)
    warn_once(
        f"the cache takes no writes, what is missing is not recorded: {error}; {CHOOSE_FOLDER}"
    )


def stats() -> Stats:
    """This process's counters; print() gives them as a text."""
    served: dict[str, Any] = _C.stats()
    cache = _C.store().counters()  # before the reasons, which read the cache
    regions = _with_reasons(
        [
            RegionStats(**{of: one[of] for of in _REGION}, region=one["describe"])
            for one in served.get("regions", [])
        ]
    )
    fallbacks = Counter({Reason(why): n for why, n in served.get("fallbacks", {}).items()})
    eager = {
        op: EagerStats(**{**seen, "misses": {EagerMiss(k): n for k, n in seen["misses"].items()}})
        for op, seen in served.get("eager", {}).items()
    }
    intercepted = len(_C.intercepted())
    with _lock:
        fallbacks.update(_fallbacks)
        return Stats(
            hits=int(served.get("hits", 0)),
            unserved=int(served.get("unserved", 0)),
            misses=len(_unknown),
            fallbacks=dict(fallbacks),
            forged=_forging["forged"],
            negative=_forging["negative"],
            graphs={how: n for how, n in _graphs.items() if n > 0},
            agents=AgentStats(**{name: _agents[name] for name in AgentStats.__annotations__}),
            saved_ns=float(served.get("saved_ns", 0.0)),
            cache=cache,
            spent=[spent.copy() for spent in _spent],
            ways=list(_ways),
            regions=regions,
            eager=eager,
            intercepted=intercepted,
            prepared=served.get("prepared", {}),
        )


def _with_reasons(regions: Sequence[RegionStats]) -> list[RegionStats]:
    """The regions, those that the text shows with why their calls found no kernel."""
    shown = {(r.key, r.device) for r in called(regions)[:SHOWN]}
    return [_with_reason(r) if (r.key, r.device) in shown else r for r in regions]


def _with_reason(region: RegionStats) -> RegionStats:
    if region.quarantined or region.hits or not region.unserved:
        return region
    kind, _, index = region.device.partition(":")
    why = why_no_kernel(region.key, _C.arch(kind, int(index or 0)))
    return replace(region, no_kernel=why or "no record in the cache in use")


def reset_stats() -> None:
    """Sets every counter to zero; winners stay installed."""
    with _lock:
        _agents.clear()
        _fallbacks.clear()
        _graphs.clear()
        _graph_gains.clear()
        _forging.clear()
        _unknown.clear()
        _spent.clear()
        _ways.clear()
    _C.reset_stats()
