"""Counters of this process: what was served, what was not and why."""

from __future__ import annotations

import threading
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypedDict, cast

from . import log
from ._native import _C
from .errors import CudaForgeWarning
from .forks import fork_safe_lock, is_forked_child
from .options import DISABLED, disabled
from .records import counted, why_no_kernel
from .steps import call_cost, cost_text


class RegionStats(TypedDict):
    """One region that was called in this process; `region` is a line for people. Of its calls,
    `hits` were served by its kernel, `unserved` found none and `fallbacks` one that could not take
    them: those two ran ATen."""

    key: str
    region: str
    device: str
    hits: int
    unserved: int
    fallbacks: int
    saved_ns: float
    quarantined: str | None  # why its kernel is not served any more


class AgentStats(TypedDict):
    """What agents were asked in this process, and what it cost: `failed` calls brought no reply,
    `estimated` ones have tokens that the service did not count, `replayed` ones were answered by a
    recording, so that nothing was spent on them, and `unpriced` ones asked a model without a price,
    so that they are not in `usd`. `cached_input_tokens` are a part of `input_tokens`."""

    calls: int
    failed: int
    estimated: int
    replayed: int
    unpriced: int
    input_tokens: int
    cached_input_tokens: int
    output_tokens: int
    usd: float


class EagerStats(TypedDict):
    """Eager calls of one overload that enable() had looked up: `hits` were served by a kernel,
    `fallbacks` had one that could not take them, the others are `misses`, by reason: "new" (met for
    the first time), "no_kernel", "unsupported" (no signature holds the call, or the default dtype
    is not float32), "capture" (met for the first time in the capture of a CUDA graph), "too_many"
    (of ever new shapes)."""

    calls: int
    hits: int
    fallbacks: int
    misses: dict[str, int]


class GraphSpent(TypedDict):
    """Of one graph for which something was made: how many regions were forged, and the seconds that
    it took, by phase. "start": the verifier starts and takes its memory; "inputs": they are drawn,
    with ATen's answers; "compile", "run" and "compare": candidates; "rival": Inductor compiles
    regions; "race": regions are raced; "graph": the ways to run the graph are compiled and
    timed."""

    regions: int
    seconds: dict[str, float]


class GraphWay(TypedDict):
    """How a graph that was timed runs: `fastest` of "inductor", "eager" and "kernels"; `ms`,
    milliseconds of one call (of training with its backward) by way; `sizes` of the first of its
    inputs then, as "float32[8, 128]"."""

    fastest: str
    ms: dict[str, float]
    sizes: list[str]


class Stats(TypedDict):
    """Counts since the process began or reset_stats(). A plain dict; str() is a text for people.

    Calls of regions: `hits` were served by a kernel, `unserved` found none and ran ATen; saved_ns
    is what the hits are expected to have saved, from the records. Regions, each counted once:
    `misses` had no record when their graph was compiled, or at their first eager call, `forged`
    were forged to a kernel and `negative` to none. `fallbacks`, by reason: calls whose kernel could
    not take them ("device", "strides", "alignment", "numerics", "labels" out of range, "no_memory"
    for its outputs or scratch, "launch_error", "quarantined"), graphs, and regions of eager calls,
    whose forging in the background failed ("background_failed"), and parts of graphs that were left
    to PyTorch (every other reason). `graphs`, by what became of them: "substituted" (served with
    winners), "plain" (compiled by Inductor alone; so are those without a region, "no_anchor", and
    those whose winners are known not to pay or not to be used), "swapped" (given winners while they
    ran), "does_not_pay_in_place" (no faster with their winners, so Inductor runs them), "eager"
    (faster as eager runs them than with Inductor or with their winners; never where gradients are
    needed), "winners_not_used" (the compiled graph has other strides than its winners, or lost
    their regions). `agents`: what they were asked, and its cost. `cache` (reads, hits, writes,
    corrupt, errors) counts since the cache in use was opened. `spent`: what making took, by graph.
    `ways`: of the graphs that were timed, in this process or before, which way they run.
    `eager`: the calls that enable() had looked up, by overload; hits, fallbacks and those without a
    kernel count in `regions`, too."""

    hits: int
    unserved: int
    misses: int
    fallbacks: dict[str, int]
    forged: int
    negative: int
    graphs: dict[str, int]
    agents: AgentStats
    saved_ns: float
    cache: dict[str, int]
    spent: list[GraphSpent]
    ways: list[GraphWay]
    regions: list[RegionStats]
    eager: dict[str, EagerStats]


# As the C++ part has them.
_REGION = ("key", "device", "hits", "unserved", "fallbacks", "saved_ns", "quarantined")
_SHOWN = 20  # regions in the text, at most


class _Readable(dict[str, Any]):
    """What stats() returns at run time: Stats, and a text when it is printed."""

    intercepted = 0  # overloads that are looked up now
    no_kernel: Mapping[tuple[str, str], str] = {}  # by key and device: why calls had none

    def __str__(self) -> str:
        stats = cast(Stats, self)
        lines = [DISABLED] if disabled() else []
        new = sum(seen["misses"].get("new", 0) for seen in stats["eager"].values())
        first = f", {new} met for the first time" if new else ""
        lines += [
            f"calls: {stats['hits']} served by kernels, {stats['unserved']} unserved{first}; "
            f"{_time(stats['saved_ns'])} saved, as expected from the races",
            f"regions: {stats['misses']} missed, {stats['forged']} forged to a winner, "
            f"{stats['negative']} to no winner",
        ]
        skipped = stats["fallbacks"].get("little_to_gain", 0)
        if stats["misses"] > skipped and not _tried(stats):
            lines.append(f"  missed: {_why_missed()}")
        if stats["agents"]["calls"]:
            calls, failed = counted(stats["agents"]["calls"], "call"), stats["agents"]["failed"]
            without = f", {failed} without a reply" * bool(failed)
            lines.append(f"agents: {calls}{without}; {cost_text(stats['agents'])}")
        lines += [
            f"graphs: {_graph_counts(stats['graphs'])}",
            *(f"  {way_text(way)}" for way in stats["ways"][:_SHOWN]),
            *_spent_lines(stats["spent"]),
            f"left to PyTorch: {_counts(stats['fallbacks'])}",
            f"cache: {_counts({_CACHE.get(k, k): n for k, n in stats['cache'].items()})}",
        ]
        lines += [f"  {line}" for line in remedies(stats["fallbacks"])]
        if self.intercepted:
            lines.append(f"eager calls are looked up: {counted(self.intercepted, 'overload')}")
        lines += [
            f"eager {op}: {counted(seen['calls'], 'call')}, {seen['hits']} served by "
            f"kernels, {counted(seen['fallbacks'], 'fallback')}; "
            f"not served: {_counts(seen['misses'])}"
            for op, seen in sorted(stats["eager"].items())
        ]
        return "\n".join(lines + _region_table(stats["regions"], self.no_kernel))


_WAYS = {"inductor": "Inductor", "eager": "eager", "kernels": "with kernels"}


def way_text(way: GraphWay) -> str:
    """ "with kernels 12.6 ms, which is served; Inductor 25.8 ms, eager 28.3 ms; timed with int64[8,
    512]"."""
    ms = way["ms"]
    closer = any(ms[name] < ms.get(way["fastest"], 0.0) for name in ms)
    times = {name: f"{_WAYS.get(name, name)} {ms:.4g} ms" for name, ms in way["ms"].items()}
    first = times.pop(way["fastest"], _WAYS.get(way["fastest"], way["fastest"]))
    others = ", ".join(times.values()) or "nothing beside it"
    doubt = " (not surely faster)" * closer
    sizes = ", ".join(way["sizes"]) or "no inputs"
    return f"{first}, which is served; {others}{doubt}; timed with {sizes}"


def _spent_lines(spent: Sequence[GraphSpent]) -> list[str]:
    """What making took, in all."""
    if not spent:
        return []
    seconds = {phase: sum(graph["seconds"][phase] for graph in spent) for phase in PHASES}
    phases = ", ".join(f"{phase} {s:.1f}" for phase, s in seconds.items() if s >= 0.05)
    regions = counted(sum(graph["regions"] for graph in spent), "region")
    graphs = counted(len(spent), "graph")
    work = f"{sum(seconds.values()):.1f} s of work, some of it side by side"
    return [f"making kernels: {work} ({regions}, {graphs}): {phases or 'none'}"]


def _called(regions: Sequence[RegionStats]) -> list[RegionStats]:
    """The regions that were called, in the order of the text."""
    called = [r for r in regions if r["hits"] + r["unserved"] + r["fallbacks"]]
    return sorted(called, key=lambda r: (r["quarantined"] is None, -r["hits"], -r["unserved"]))


def _region_table(
    regions: Sequence[RegionStats], no_kernel: Mapping[tuple[str, str], str]
) -> list[str]:
    called = _called(regions)
    if not called:
        return []
    lines = [
        "regions that were called:",
        f"  {'hits':>8} {'unserved':>8} {'fallbacks':>9} {'saved':>9}  region",
    ]
    for region in called[:_SHOWN]:
        lines.append(
            f"  {region['hits']:>8} {region['unserved']:>8} {region['fallbacks']:>9} "
            f"{_time(region['saved_ns']):>9}  {region['key'][:12]}  {region['region']}"
        )
        if region["quarantined"]:
            lines.append(f"{'':<40}not served any more: {region['quarantined']}")
        elif reason := no_kernel.get((region["key"], region["device"])):
            lines.append(f"{'':<40}{reason}")
    if rest := called[_SHOWN:]:
        hits, unserved = (sum(r[of] for r in rest) for of in ("hits", "unserved"))
        lines.append(
            f"  {hits:>8} {unserved:>8} {sum(r['fallbacks'] for r in rest):>9} "
            f"{_time(sum(r['saved_ns'] for r in rest)):>9}  of {len(rest)} more"
        )
    return lines


def _tried(stats: Stats) -> int:
    """How many regions were forged, or were to be: what became of them stands elsewhere."""
    out_of_time = stats["fallbacks"].get("graph_budget", 0)
    return stats["forged"] + stats["negative"] + undecided(stats) + out_of_time


def _why_missed() -> str:
    """Of a process that has forged nothing: why, and what makes the kernels that it misses."""
    if is_forked_child():
        return _FORKED
    threads = {thread.name for thread in threading.enumerate()}
    begun = threads & {"cudaforge-background", "cudaforge-eager"}
    return _BEING_FORGED if begun else _NOT_FORGED


def undecided(stats: Stats) -> int:
    """How many regions were to be forged and came to neither a winner nor no winner."""
    reasons = ("forge_failed", "no_memory_to_verify", "no_reply")
    return sum(stats["fallbacks"].get(reason, 0) for reason in reasons)


def remedies(left: Mapping[str, int]) -> list[str]:
    """A line for each of the reasons in `left` (Stats.fallbacks) about which something can be
    done."""
    return [f"{why}: {_REMEDIES[why]}" for why in _REMEDIES if left.get(why)]


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {n}" for name, n in sorted(counts.items()) if n) or "none"


# As the text has them; a "hit" there is a call that a kernel served.
_CACHE = {"hits": "records found"}
_GRAPHS = {
    "substituted": "run with kernels",
    "plain": "compiled by Inductor alone",
    "no_anchor": "without a region",
    "swapped": "given kernels while they ran",
    "does_not_pay_in_place": "no faster with their kernels (Inductor runs them)",
    "eager": "faster as eager runs them than compiled (eager runs them)",
    "winners_not_used": "with other strides than their kernels, or without the regions "
    "(Inductor runs them)",
}

_BEING_FORGED = "kernels are being made in the background (CUDAFORGE_LOG=forge shows each step)"
_NOT_FORGED = (
    "on_miss is 'fallback' or 'record' (enable()'s default), or only agents make these kernels "
    "(--coder PROVIDER: most matrix products, convolutions, attention); `cudaforge forge --wanted` "
    "makes those that were recorded, `cudaforge warmup` those of a model"
)
_FORKED = (
    "a forked child forges nothing; `cudaforge forge --wanted` makes the kernels that were "
    "recorded, and so does a process that is not forked"
)

# What to do about a reason, where there is something.
_REMEDIES = {
    "dynamic_shape": "a size changed between calls, or dynamic=True was asked for; the graph for "
    "all sizes has no regions, and runs the first size too from then on; "
    "torch.compile(..., dynamic=False) gives every size its own graph and kernels, as far as "
    "Dynamo's recompile_limit goes",
    "alignment": "tensors begin at addresses that their kernels cannot use; a copy (x.clone()) is "
    "aligned, and on a GPU `cudaforge forge --wanted` makes kernels for unaligned inputs",
    "little_to_gain": "kernels for these regions could hardly make their graph faster, and none "
    "were made; explain() has the figures",
    "graph_budget": "graph_budget_s left too little time for these regions; the next process that "
    "compiles the graph goes on with them, and `cudaforge forge --wanted` forges them now",
    "not_recorded": "the cache took no writes, so a later process asks again; `cudaforge doctor` "
    "says what to do about it",
    "no_memory_to_verify": "a kernel is verified beside the program, in memory that it leaves "
    "free; the warning says how much; `cudaforge warmup` or a later process tries again",
    "forge_failed": "the warning says why; `cudaforge doctor` looks for what is missing",
    "no_reply": "the Coder did not reply within its limits, cannot be reached, or wrote no "
    "candidate; a later process asks again",
    "mixed_dtypes": "on a CPU, PyTorch traces a normalisation whose input is of a half type and "
    "whose weight is not (as under autocast) with other dtypes than its kernel gives; weights of "
    "the input's dtype have no such difference",
    "unsupported_dtype": f"kernels are made for {', '.join(_C.DTYPES)}",
}


def _graph_counts(counts: Mapping[str, int]) -> str:
    return "; ".join(f"{n} {_GRAPHS.get(k, k)}" for k, n in sorted(counts.items()) if n) or "none"


def _time(ns: float) -> str:
    for unit, size in (("s", 1e9), ("ms", 1e6)):
        if abs(ns) >= size:
            return f"{ns / size:.1f} {unit}"
    return f"{ns / 1e3:.1f} us"


PHASES = ("start", "inputs", "compile", "run", "compare", "rival", "race", "graph")


class Spent:
    """A graph for which something may be made; see spending()."""

    def __init__(self) -> None:
        self.regions = 0
        self.seconds = dict.fromkeys(PHASES, 0.0)

    def copy(self) -> GraphSpent:
        """As it is now."""
        return GraphSpent(regions=self.regions, seconds=dict(self.seconds))


_lock = fork_safe_lock()
_fallbacks: Counter[str] = Counter()
_graphs: Counter[str] = Counter()
_graph_gains: list[tuple[float, float, float]] = []
_forging: Counter[str] = Counter()
_agents: Counter[str] = Counter()  # the fields of AgentStats
_spent: list[Spent] = []
_ways: list[GraphWay] = []
_now = threading.local()  # .graph: for which this thread makes something
_unknown: set[str] = set()
_warned: set[str] = set()


def count_fallback(reason: str, n: int = 1) -> None:
    """Counts `n` regions or graphs that PyTorch runs, by reason."""
    log.graph.debug("left to PyTorch: %s (%d)", reason, n)
    with _lock:
        _fallbacks[reason] += n


def count_graph(how: str, n: int = 1) -> None:
    """Counts `n` graphs by what became of them (see Stats). Below zero takes back what was
    counted."""
    log.graph.debug("graphs: %+d %s", n, _GRAPHS.get(how, how))
    with _lock:
        _graphs[how] += n


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
    """What count_graph_gain() was told since the process began or reset_stats()."""
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


def count_spent(seconds: Mapping[str, float], regions: int = 0) -> None:
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
def timing_phase(phase: str) -> Iterator[None]:
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
    """A CudaForgeWarning, the first time that `cause` (or else this message) appears in the
    process. Where the program has made errors of warnings it is logged instead, as nothing of the
    program's has failed: raises nothing."""
    with _lock:
        if (cause or message) in _warned:
            return
        _warned.add(cause or message)
    try:
        # Of no line: it is not our own code that somebody is to look at.
        warnings.warn_explicit(message, CudaForgeWarning, "cudaforge", 0)
    except CudaForgeWarning:
        log.graph.warning("cudaforge: %s", message)  # by logging's last resort, to stderr


CHOOSE_FOLDER = (
    "choose a folder that you can write to (CUDAFORGE_CACHE_DIR or the option cache_dir)"
)


def wanted_not_recorded(error: str) -> None:
    """Counts and warns that a region which is missing could not be put on the wanted list."""
    count_fallback("not_recorded")
    warn_once(
        f"the cache takes no writes, what is missing is not recorded: {error}; {CHOOSE_FOLDER}"
    )


def stats() -> Stats:
    """This process's counters, JSON-serialisable; print() gives them as a text."""
    served: dict[str, Any] = _C.stats()
    with _lock:
        fallbacks = Counter(served.get("fallbacks", {}))
        fallbacks.update(_fallbacks)
        counters = Stats(
            hits=int(served.get("hits", 0)),
            unserved=int(served.get("unserved", 0)),
            misses=len(_unknown),
            fallbacks=dict(fallbacks),
            forged=_forging["forged"],
            negative=_forging["negative"],
            graphs={how: n for how, n in list(_graphs.items()) if n > 0},
            agents=cast(AgentStats, {name: _agents[name] for name in AgentStats.__annotations__}),
            saved_ns=float(served.get("saved_ns", 0.0)),
            cache=_C.store().counters(),
            spent=[spent.copy() for spent in _spent],
            ways=[GraphWay(**way) for way in _ways],
            regions=[
                cast(RegionStats, {of: one[of] for of in _REGION} | {"region": one["describe"]})
                for one in served.get("regions", [])
            ],
            eager=served.get("eager", {}),
        )
        readable = _Readable(counters)
    readable.intercepted = len(_C.intercepted())
    readable.no_kernel = _why_no_kernel(counters["regions"])
    return cast(Stats, readable)


def _why_no_kernel(regions: Sequence[RegionStats]) -> dict[tuple[str, str], str]:
    """By key and device: why calls of the regions that the text shows had no kernel."""
    found = {}
    for region in _called(regions)[:_SHOWN]:
        if region["quarantined"] or region["hits"] or not region["unserved"]:
            continue
        kind, _, index = region["device"].partition(":")
        why = why_no_kernel(region["key"], _C.arch(kind, int(index or 0)))
        found[region["key"], region["device"]] = why or "no record in the cache in use"
    return found


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
