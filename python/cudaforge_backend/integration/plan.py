"""What is to be done with a graph: its regions, what the cache knows of them, and what is
missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

from torch import fx

from cudaforge_backend import log
from cudaforge_backend._native import _C
from cudaforge_backend.options import Settings
from cudaforge_backend.stats import count_fallback, count_graph, warn_once

from .analysis import Analysis, analyse, graph_reason, may_have_anchor
from .forging import Progress, forge_region, worth_more_time
from .partition import Region
from .rules import Rules


@dataclass(frozen=True)
class Known:
    """One region and what the cache says about it."""

    region: Region
    arch: str
    status: str  # "hit", "negative", "miss"
    checksum: str  # of the record, "" for a miss
    reason: str  # of a negative entry
    within: str = ""  # signature of the larger region that it is a part of and that did not win

    @property
    def device_index(self) -> int:
        """Index of the region's device among its kind."""
        return self.region.device.index or 0


@dataclass(frozen=True)
class Plan:
    """The regions of one graph, forward and backward, by what the cache knows: of those that have a
    negative entry the parts were looked at as well."""

    regions: tuple[Known, ...]
    analysis: Analysis

    def winners(self) -> dict[str, str]:
        """Key to checksum, of the regions to be substituted."""
        return {k.region.key: k.checksum for k in self.regions if k.status == "hit"}

    def misses(self) -> list[Known]:
        """Regions of which the cache knows nothing."""
        return [k for k in self.regions if k.status == "miss"]


def look_up(region: Region, budget_s: float | None = None) -> Known:
    """Asks the cache. A negative entry that came of too little time counts as a miss where
    `budget_s` is clearly more. Raises where the device cannot be described."""
    arch = _C.arch(region.device.type, region.device.index or 0)
    record = _C.store().verdict(region.key, arch)
    if record is None or (budget_s is not None and worth_more_time(record, budget_s)):
        return Known(region, arch, "miss", "", "")
    reason = str((record["provenance"] or {}).get("reason", ""))
    status = "hit" if record["kind"] == "winner" else "negative"
    return Known(region, arch, status, record["checksum"], reason)


def plan_graph(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    settings: Settings,
    rules: Rules,
    training: bool,
) -> Plan | None:
    """The plan of a graph, or None where it has nothing for us (counted by reason)."""
    if not may_have_anchor(gm, training):
        count_graph("no_anchor")
        return None
    reason = graph_reason(example_inputs)
    if reason is not None:
        count_fallback(reason)
        return None
    forging = settings.on_miss in ("background", "blocking")
    plan, left = plan_analysis(
        analyse(gm, example_inputs, rules, settings.inductor),
        budget_s=settings.region_budget_s if forging else None,
    )
    for reason, n in left.items():
        count_fallback(reason, n)
    for known in plan.regions:
        tell_region(known)
    return plan


def plan_analysis(
    analysis: Analysis, given_up: Set[str] = frozenset(), budget_s: float | None = None
) -> tuple[Plan, Counter[str]]:
    """The plan of traced graphs, and why anchors were left. `given_up`: keys of which no more is
    expected than the cache has. `budget_s`: see look_up."""
    asked: dict[str, Known] = {}

    def take(region: Region, within: Region | None) -> bool:
        known = asked.get(region.key)
        if known is None:
            more = None if region.key in given_up else budget_s
            known = replace(look_up(region, more), within=within.signature if within else "")
            asked[region.key] = known
        return known.status == "hit" or (known.status == "miss" and region.key not in given_up)

    _, left = analysis.regions(take)
    return Plan(tuple(asked.values()), analysis), left


def record_wanted(plan: Plan) -> None:
    """Puts the misses on the wanted list, for `cudaforge warmup` and people. A cache that takes no
    writes is one warning."""
    wanted = [(k.region.key, k.arch, k.region.signature) for k in plan.misses()]
    try:
        _C.store().add_wanted(wanted)
        log.cache.debug("%d regions are on the wanted list", len(wanted))
    except Exception as error:
        count_fallback("not_recorded")
        warn_once(f"what is missing is not recorded: {error}")


def forge_misses(
    plan: Plan, budget_s: float, progress: Progress | None, compile_lock: bool
) -> Plan:
    """Forges what is missing, one region after the other. Where a region ends without a winner its
    parts are forged in the next round; where forging itself failed they would fail as well. Returns
    the plan as the cache then has it."""
    ended: set[str] = set()
    failed: set[str] = set()
    while misses := [known for known in plan.misses() if known.region.key not in ended | failed]:
        for known in misses:
            done = _forge(known, budget_s, progress, compile_lock)
            (ended if done else failed).add(known.region.key)
        plan, _ = plan_analysis(plan.analysis, given_up=ended, budget_s=budget_s)
    return plan


def _forge(known: Known, budget_s: float, progress: Progress | None, compile_lock: bool) -> bool:
    """Whether the region was decided."""
    signature = known.region.signature
    try:
        forge_region(signature, known.device_index, budget_s, progress, compile_lock, known.within)
        return True
    except Exception as error:
        count_fallback("forge_failed")
        warn_once(
            f"forging {_C.describe(signature)} failed, PyTorch runs it: {error}",
            cause=f"forging: {error}",
        )
        return False


_progress: list[Callable[[Mapping[str, Any]], None]] = []


def set_progress(callback: Progress | None) -> None:
    """Who is told of forging in this process; cudaforge_backend.set_progress has the events."""
    _progress[:] = [callback] if callback is not None else []


def tell_region(known: Known) -> None:
    """The event {"event": "region", "key", "arch", "ops", "status"}: a graph has this region."""
    log.graph.debug(
        "%s %s: %s", known.status, known.region.key[:12], _C.describe(known.region.signature)
    )
    progress = current_progress()
    if progress is not None:
        key, ops = known.region.key, _C.describe(known.region.signature)
        progress(
            {"event": "region", "key": key, "arch": known.arch, "ops": ops, "status": known.status}
        )


def current_progress() -> Progress | None:
    """The callback that set_progress was given last."""
    return _progress[0] if _progress else None
