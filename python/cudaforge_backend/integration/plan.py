"""What is to be done with a graph: its regions, what the cache knows of them, and what is
missing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import fx

from cudaforge_backend._native import _C
from cudaforge_backend.options import Settings
from cudaforge_backend.stats import count_fallback, count_graph, warn_once

from .analysis import Analysis, analyse, graph_reason, may_have_anchor
from .forging import Progress, forge_region
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

    @property
    def device_index(self) -> int:
        """Index of the region's device among its kind."""
        return self.region.device.index or 0


@dataclass(frozen=True)
class Plan:
    """Every region of one graph, forward and backward."""

    regions: tuple[Known, ...]

    def winners(self) -> dict[str, str]:
        """Key to checksum, of the regions to be substituted."""
        return {k.region.key: k.checksum for k in self.regions if k.status == "hit"}

    def misses(self) -> list[Known]:
        """Regions of which the cache knows nothing."""
        return [k for k in self.regions if k.status == "miss"]


def look_up(region: Region) -> Known:
    """Asks the cache. Raises where the device cannot be described."""
    arch = _C.arch(region.device.type, region.device.index or 0)
    record = _C.store().get(region.key, arch)
    if record is None:
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
    analysis: Analysis = analyse(gm, example_inputs, rules, settings.inductor)
    for left, n in analysis.left.items():
        count_fallback(left, n)
    plan = Plan(tuple(look_up(region) for region in analysis.regions))
    for known in plan.regions:
        tell_region(known)
    return plan


def record_wanted(plan: Plan) -> None:
    """Puts the misses on the wanted list, for `cudaforge warmup` and people."""
    for known in plan.misses():
        _C.store().add_wanted(known.region.key, known.arch, known.region.signature)


def forge_misses(
    plan: Plan, budget_s: float, progress: Progress | None, compile_lock: bool
) -> Plan:
    """Forges what is missing, one region after the other, and looks the plan's regions up again."""
    for known in plan.misses():
        try:
            forge_region(
                known.region.signature, known.device_index, budget_s, progress, compile_lock
            )
        except Exception as error:
            count_fallback("forge_failed")
            warn_once(
                f"forging {_C.describe(known.region.signature)} failed, PyTorch runs it: {error}"
            )
    return Plan(tuple(look_up(known.region) for known in plan.regions))


_progress: list[Callable[[Mapping[str, Any]], None]] = []


def set_progress(callback: Progress | None) -> None:
    """Who is told of forging in this process; cudaforge_backend.set_progress has the events."""
    _progress[:] = [callback] if callback is not None else []


def tell_region(known: Known) -> None:
    """The event {"event": "region", "key", "arch", "ops", "status"}: a graph has this region."""
    progress = current_progress()
    if progress is not None:
        key, ops = known.region.key, _C.describe(known.region.signature)
        progress(
            {"event": "region", "key": key, "arch": known.arch, "ops": ops, "status": known.status}
        )


def current_progress() -> Progress | None:
    """The callback that set_progress was given last."""
    return _progress[0] if _progress else None
