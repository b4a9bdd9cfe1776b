"""Counters in words: what print(stats()) shows."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ._native import _C
from .forks import is_forked_child
from .options import DISABLED, disabled
from .reasons import EagerMiss, GraphOutcome, Phase, Reason, Way
from .records import counted, interval_text
from .stats import SHOWN, GraphSpent, GraphWay, RegionStats, Stats, called
from .steps import cost_text


def stats_text(stats: Stats) -> str:
    """All of it, for people."""
    lines = [DISABLED] if disabled() else []
    new = sum(seen.misses.get(EagerMiss.NEW, 0) for seen in stats.eager.values())
    first = f", {new} seen for the first time" if new else ""
    lines += [
        f"calls: {stats.hits} served by kernels, {stats.unserved} unserved{first}; "
        f"{_time(stats.saved_ns)} saved by the times of the races (cold caches)",
        f"regions: {stats.misses} missed, {stats.forged} forged to a winner, "
        f"{stats.negative} to no winner",
    ]
    skipped = stats.fallbacks.get(Reason.LITTLE_TO_GAIN, 0)
    if stats.misses > skipped and not _tried(stats):
        lines.append(f"  missed: {_why_missed()}")
    if stats.agents.calls:
        calls, failed = counted(stats.agents.calls, "call"), stats.agents.failed
        without = f", {failed} without a reply" * bool(failed)
        lines.append(f"agents: {calls}{without}; {cost_text(asdict(stats.agents))}")
    lines += [
        f"graphs: {_graph_counts(stats.graphs)}",
        *(f"  {way_text(way)}" for way in stats.ways[:SHOWN]),
        *_spent_lines(stats.spent),
        f"run by PyTorch: {_counts(stats.fallbacks, 'nothing that kernels are made for')}",
        f"cache: {_counts({_CACHE.get(k, k): n for k, n in stats.cache.items()})}",
    ]
    lines += [f"  {line}" for line in remedies(stats.fallbacks)]
    forms = stats.prepared
    if forms.get("kept") or forms.get("per_call"):
        lines.append(
            f"prepared weights: {forms['kept']} kept in {forms['bytes'] / 2**20:.0f} MiB, "
            f"{counted(forms['per_call'], 'call')} without"
        )
    if stats.intercepted:
        lines.append(f"eager calls are looked up: {counted(stats.intercepted, 'overload')}")
    lines += [
        f"eager {op}: {counted(seen.calls, 'call')}, {seen.hits} served by "
        f"kernels, {counted(seen.fallbacks, 'fallback')}; "
        f"not served: {_counts(seen.misses)}"
        for op, seen in sorted(stats.eager.items())
    ]
    return "\n".join(lines + _region_table(stats.regions))


_WAYS = {Way.INDUCTOR: "Inductor", Way.EAGER: "eager", Way.KERNELS: "with kernels"}


def way_text(way: GraphWay) -> str:
    """ "with kernels 12.6 ms, which is served; Inductor 25.8 ms, eager 28.3 ms; 2.05 [2.04, 2.06]
    times as fast, A/A 1.00 [0.99, 1.01]; timed with int64[8, 512]"."""
    ms = way.ms
    closer = any(ms[name] < ms.get(way.fastest, 0.0) for name in ms)
    times = {name: f"{_WAYS[name]} {ms:.4g} ms" for name, ms in way.ms.items()}
    first = times.pop(way.fastest, _WAYS[way.fastest])
    others = ", ".join(times.values()) or "no other way"
    doubt = " (not surely faster)" * closer
    ratios = [f"{interval_text(way.speedup)} times as fast"] if way.speedup else []
    ratios += [f"A/A {interval_text(way.control)}"] if way.control else []
    sizes = ", ".join(way.sizes) or "no inputs"
    busy = ", on a busy machine" * way.doubtful
    parts = [f"{first}, which is served", f"{others}{doubt}", ", ".join(ratios)]
    return "; ".join(filter(None, [*parts, f"timed with {sizes}{busy}"]))


def _spent_lines(spent: Sequence[GraphSpent]) -> list[str]:
    """What making took, in all."""
    if not spent:
        return []
    seconds = {phase: sum(graph.seconds[phase] for graph in spent) for phase in Phase}
    phases = ", ".join(f"{phase} {s:.1f}" for phase, s in seconds.items() if s >= 0.05)
    regions = counted(sum(graph.regions for graph in spent), "region")
    graphs = counted(len(spent), "graph")
    work = f"{sum(seconds.values()):.1f} s of work, some of it side by side"
    return [f"making kernels: {work} ({regions}, {graphs}): {phases or 'none'}"]


def _region_table(regions: Sequence[RegionStats]) -> list[str]:
    rows = called(regions)
    if not rows:
        return []
    lines = [
        "regions that were called:",
        f"  {'hits':>8} {'unserved':>8} {'fallbacks':>9} {'saved':>9}  region",
    ]
    for region in rows[:SHOWN]:
        lines.append(
            f"  {region.hits:>8} {region.unserved:>8} {region.fallbacks:>9} "
            f"{_time(region.saved_ns):>9}  {region.key[:12]}  {region.region}"
        )
        if region.quarantined:
            lines.append(f"{'':<40}not served any more: {region.quarantined}")
        elif region.no_kernel:
            lines.append(f"{'':<40}{region.no_kernel}")
    if rest := rows[SHOWN:]:
        hits, unserved = sum(r.hits for r in rest), sum(r.unserved for r in rest)
        lines.append(
            f"  {hits:>8} {unserved:>8} {sum(r.fallbacks for r in rest):>9} "
            f"{_time(sum(r.saved_ns for r in rest)):>9}  of {len(rest)} more"
        )
    return lines


def _tried(stats: Stats) -> int:
    """How many regions were forged, or were to be: what became of them stands elsewhere."""
    out_of_time = stats.fallbacks.get(Reason.GRAPH_BUDGET, 0)
    return stats.forged + stats.negative + undecided(stats) + out_of_time


def _why_missed() -> str:
    """Of a process that has forged nothing: why, and what makes the kernels that it misses."""
    if is_forked_child():
        return _FORKED
    threads = {thread.name for thread in threading.enumerate()}
    begun = threads & {"cudaforge-background", "cudaforge-eager"}
    return _BEING_FORGED if begun else _NOT_FORGED


def undecided(stats: Stats) -> int:
    """How many regions were to be forged and ended without a verdict."""
    reasons = (Reason.FORGE_FAILED, Reason.NO_MEMORY_TO_VERIFY, Reason.NO_REPLY)
    return sum(stats.fallbacks.get(reason, 0) for reason in reasons)


def remedies(left: Mapping[Reason, int]) -> list[str]:
    """A line for each of the reasons in `left` (Stats.fallbacks) about which something can be
    done."""
    return [f"{why}: {_REMEDIES[why]}" for why in _REMEDIES if left.get(why)]


def _counts(counts: Mapping[Any, int], none: str = "none") -> str:
    return ", ".join(f"{name} {n}" for name, n in sorted(counts.items()) if n) or none


# As the text has them; a "hit" there is a call that a kernel served.
_CACHE = {"hits": "records found"}
_GRAPHS = {
    GraphOutcome.SUBSTITUTED: "run with kernels",
    GraphOutcome.PLAIN: "compiled by Inductor alone",
    GraphOutcome.NO_ANCHOR: "without a region",
    GraphOutcome.SWAPPED: "given kernels while they ran",
    GraphOutcome.DOES_NOT_PAY: "no faster with their kernels (Inductor runs them)",
    GraphOutcome.EAGER: "faster in eager mode than compiled (eager runs them)",
    GraphOutcome.NOT_USED: "with other strides than their kernels, or without the regions "
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

# What to do about a reason, where there is something to do.
_REMEDIES = {
    Reason.DYNAMIC_SHAPE: (
        "a size changed between calls, or dynamic=True was given. Such a graph has no regions. "
        "torch.compile(..., dynamic=False) gives every size its own graph and kernels, within "
        "Dynamo's recompile_limit"
    ),
    Reason.ALIGNMENT: (
        "tensors start at addresses that their kernels cannot use. A copy (x.clone()) is aligned. "
        "On a GPU, `cudaforge forge --wanted` makes kernels for unaligned inputs"
    ),
    Reason.LITTLE_TO_GAIN: (
        "a kernel could hardly make the graph faster, so none was made. explain() has the figures"
    ),
    Reason.GRAPH_BUDGET: (
        "graph_budget_s ran out. The next process that compiles the graph forges the other regions;"
        " `cudaforge forge --wanted` forges them now"
    ),
    Reason.NOT_RECORDED: "the cache takes no writes. `cudaforge doctor` says what to do",
    Reason.NO_MEMORY_TO_VERIFY: (
        "kernels are verified in the memory that the program leaves free, and that was too little. "
        "`cudaforge warmup`, or a later process, tries again"
    ),
    Reason.FORGE_FAILED: "the warning says why. `cudaforge doctor` looks for what is missing",
    Reason.NO_REPLY: (
        "the Coder gave no reply within its limits, was not reachable, or wrote no kernel. A later "
        "process asks again"
    ),
    Reason.MIXED_DTYPES: (
        "on a CPU, PyTorch traces a normalisation of a half type with a float32 weight (as under "
        "autocast) with other dtypes than its kernel returns. Use weights of the input's dtype"
    ),
    Reason.UNSUPPORTED_DTYPE: f"kernels are made for {', '.join(_C.DTYPES)}",
}


def _graph_counts(counts: Mapping[GraphOutcome, int]) -> str:
    return "; ".join(f"{n} {_GRAPHS[k]}" for k, n in sorted(counts.items()) if n) or "none"


def _time(ns: float) -> str:
    for unit, size in (("s", 1e9), ("ms", 1e6)):
        if abs(ns) >= size:
            return f"{ns / size:.1f} {unit}"
    return f"{ns / 1e3:.1f} us"
