"""What is to be done with a graph: its regions, what the cache knows of them, and what is
missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

from torch import fx

from cudaforge_backend._native import _C
from cudaforge_backend.options import Settings
from cudaforge_backend.records import reason_of, why_code
from cudaforge_backend.stats import (
    CHOOSE_FOLDER,
    count_fallback,
    count_miss,
    count_spent,
    current_spent,
    spending,
    wanted_not_recorded,
    warn_once,
)

from .analysis import Analysis, analyse
from .ending import ForgingEndedError
from .forging import OtherCacheError, forge_region, worth_more_time
from .partition import Region
from .rivals import HEAVY, least_seconds, signature_device
from .room import has_room, leave_room
from .rules import Rules
from .telling import Progress, tell, tell_region
from .together import ElsewhereError, InGraph, NoTimeLeftError, Together, run_all


@dataclass(frozen=True)
class Said:
    """What the cache says of a region."""

    # "hit"; "negative", also where a kernel serves eager calls alone; "miss"; "skipped": not
    # forged, as little can be gained by it
    status: str
    checksum: str  # of the record, "" for a miss and what was skipped
    reason: str  # of a negative entry, and of what was skipped
    # Measured on a busy machine more than a day ago: used, and measured again where there is time.
    stale: bool = False
    too_busy: bool = False  # the machine was, for its race: which says nothing of its parts

    @property
    def is_to_be_forged(self) -> bool:
        """Whether the cache knows nothing of it, or what is to be measured again."""
        return self.status == "miss" or self.stale


@dataclass(frozen=True, kw_only=True)
class Known(Said):
    """One region and what the cache says about it."""

    region: Region
    arch: str
    # The larger region that it is a part of and that did not win.
    within: _C.Signature | None = None

    @property
    def device_index(self) -> int:
        """Index of the region's device among its kind."""
        return self.region.device.index or 0

    def text(self) -> str:
        """The region in one line, for people."""
        return self.region.signature.describe()


@dataclass(frozen=True)
class Plan:
    """The regions of one graph, forward and backward, by what the cache knows: of those that have a
    negative entry the parts were looked at as well. `left`: why anchors were left, how many."""

    regions: tuple[Known, ...]
    analysis: Analysis
    left: Mapping[str, int] = field(default_factory=dict)
    times: Mapping[str, int] = field(default_factory=dict)  # by key: how often it is in the graph

    def winners(self) -> dict[str, str]:
        """Key to checksum, of the regions to be substituted."""
        return {k.region.key: k.checksum for k in self.regions if k.status == "hit"}

    def misses(self) -> list[Known]:
        """Regions of which the cache knows nothing, and those that are to be measured again."""
        return [k for k in self.regions if k.is_to_be_forged]


def verdict_of(key: str, arch: str, budget_s: float | None) -> Said:
    """Asks the cache. With a `budget_s` to forge in, a negative entry that came of clearly less
    time counts as a miss, and what another process measured on a busy machine more than a day ago
    is stale."""
    record = _C.store().verdict(key, arch)
    if record is None or (budget_s is not None and worth_more_time(record, budget_s)):
        return Said("miss", "", "")
    status = "hit" if "compiled" in record["serves"] else "negative"
    stale = budget_s is not None and record["stale"]
    too_busy = status == "negative" and why_code(record) == "doubtful"
    return Said(status, record["checksum"], reason_of(record), stale, too_busy)


def look_up(region: Region, budget_s: float | None = None) -> Known:
    """Asks the cache; see verdict_of. Raises where the device cannot be described."""
    arch = _C.arch(region.device.type, region.device.index or 0)
    return Known(region=region, arch=arch, **vars(verdict_of(region.key, arch, budget_s)))


def plan_graph(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    settings: Settings,
    rules: Rules,
    budget_s: float | None,
    skipped: Mapping[str, str] | None = None,
) -> Plan:
    """The plan of a graph. `budget_s`: see verdict_of; None: nothing is to be forged. `skipped`:
    see plan_analysis."""
    analysis = analyse(gm, example_inputs, rules, settings.inductor)
    plan = plan_analysis(analysis, budget_s=budget_s, skipped=skipped)
    for reason, n in plan.left.items():
        count_fallback(reason, n)
    for known in plan.regions:
        tell_region(known.region.key, known.arch, known.text(), known.status)
    if budget_s is not None and (misses := plan.misses()):  # it comes up while Inductor compiles
        region = misses[0].region
        if has_room(region.signature, region.device):
            _C.prepare_verifier(region.device.type, region.device.index or 0)
    return plan


def plan_analysis(
    analysis: Analysis,
    given_up: Set[str] = frozenset(),
    budget_s: float | None = None,
    anew: bool = False,
    skipped: Mapping[str, str] | None = None,
) -> Plan:
    """The plan of traced graphs. `given_up`: keys of which no more is expected than the cache has.
    `budget_s`: see verdict_of. `anew`: as before the other regions without a winner were forged.
    `skipped`: keys of which nothing is to be gained, nor of their parts, and why."""
    skipped = skipped or {}
    asked: dict[str, Known] = {}

    def take(region: Region, within: Region | None) -> bool:
        if region.by_agents and not analysis.rules.agents:  # served, never missed
            stored = look_up(region)
            if stored.status == "hit":
                asked.setdefault(region.key, stored)
            return stored.status == "hit"
        known = asked.get(region.key)
        if known is None:
            more = None if region.key in given_up else budget_s
            known = replace(look_up(region, more), within=within.signature if within else None)
            if region.key in skipped and known.status != "hit":
                why = skipped[region.key]
                known = replace(known, status="skipped", checksum="", reason=why, stale=False)
            asked[region.key] = known
        open_yet = region.key not in given_up and (anew or known.is_to_be_forged)
        return known.status in ("hit", "skipped") or known.too_busy or open_yet

    times, left = analysis.regions(take)
    return Plan(tuple(asked.values()), analysis, left, times)


def forge_misses(
    plan: Plan,
    settings: Settings,
    progress: Progress | None,
    together: Together,
    *,
    beside_program: bool = False,
) -> Plan:
    """Forges what is missing, with the agents and in the budgets that `settings` has; several
    regions side by side where `together` says so. Where a region ends without a winner its parts
    are forged in the next round, but where little can be gained by them; where forging itself
    failed they would fail as well. What the graph's time does not suffice for is put on the wanted
    list; with agents, who have limits of their own, there is no such time. Returns the plan as the
    cache then has it."""
    ended: set[str] = set()
    failed: set[str] = set()
    together.begin()
    together.skipped |= {k.region.key: k.reason for k in plan.regions if k.status == "skipped"}
    while misses := [known for known in plan.misses() if known.region.key not in ended | failed]:
        misses.sort(key=lambda known: _order(known, plan.times))
        left = []
        for known, how in _forge_all(
            misses, plan.times, settings, progress, together, beside_program
        ):
            if how == "left":
                left.append(known)
            else:
                (ended if how == "decided" else failed).add(known.region.key)
        budget_s, skipped = settings.region_budget_s, together.skipped
        plan = plan_analysis(plan.analysis, ended, budget_s, skipped=skipped)
        if left:
            left = [k for k in plan.misses() if k.region.key not in ended | failed]
            _leave(left, settings, progress)
            break
    if together.skipped:
        count_fallback("little_to_gain", len(together.skipped))
    return plan


def _order(known: Known, times: Mapping[str, int]) -> tuple[bool, int]:
    """Regions with a product, a convolution or attention first, as the others wait until the graph
    is compiled; of each kind those that move the most bytes in all."""
    signature = known.region.signature
    return HEAVY.isdisjoint(signature.ops), -times.get(signature.key, 1) * sum(signature.bytes)


def _forge_all(
    misses: Sequence[Known],
    times: Mapping[str, int],
    settings: Settings,
    progress: Progress | None,
    together: Together,
    beside_program: bool,
) -> list[tuple[Known, str]]:
    """What became of each: "decided", "failed", or "left" for want of time. Those that other
    processes forge are waited for at the end."""
    found: dict[int, str] = {}
    elsewhere: list[int] = []
    spent = current_spent()

    def forge(number: int, wait: bool = False) -> None:
        known = misses[number]
        left_s = together.left_s()
        found[number] = "left"
        if left_s < min(settings.region_budget_s, least_seconds(known.region.device)):
            return
        bounded = replace(settings, region_budget_s=min(settings.region_budget_s, left_s))
        count_miss(known.region.key)  # a part, which no graph was said to have
        with spending(spent):
            try:
                done = forge_one(
                    known.region.signature,
                    known.device_index,
                    bounded,
                    progress,
                    beside_program=beside_program,
                    within=known.within,
                    in_graph=InGraph(together, number, times.get(known.region.key, 1), wait),
                )
            except NoTimeLeftError as error:
                count_spent(error.spent, regions=0)
            except ElsewhereError:
                elsewhere.append(number)
            else:
                found[number] = "decided" if done else "failed"

    run_all(forge, len(misses), together)
    waited_for = list(elsewhere)
    run_all(lambda at: forge(waited_for[at], wait=True), len(waited_for), together)
    return [(known, found[number]) for number, known in enumerate(misses)]


def _leave(misses: Sequence[Known], settings: Settings, progress: Progress | None) -> None:
    """Counts regions for which a graph's time did not suffice, tells of them and puts them on the
    wanted list."""
    count_fallback("graph_budget", len(misses))
    try:
        _C.store().add_wanted([(k.region.signature, k.arch) for k in misses])
    except Exception as error:
        wanted_not_recorded(str(error))
    keys = [known.region.key for known in misses]
    raw = {"event": "left", "regions": keys, "graph_budget_s": settings.graph_budget_s}
    tell(raw, progress)


def tried_besides(plan: Plan) -> list[Known]:
    """Regions that forging came by on its way to `plan`, that have a record and are not in it: what
    a part is depends on what else was still to be forged in its round."""
    found: dict[str, Known] = {}
    given_up: set[str] = set()
    while True:  # the rounds of forge_misses
        regions = plan_analysis(plan.analysis, given_up, anew=True).regions
        found |= {known.region.key: known for known in regions}
        without = {known.region.key for known in regions if known.status == "negative"}
        if without <= given_up:
            break
        given_up |= without
    planned = {known.region.key for known in plan.regions}
    return [k for key, k in found.items() if k.status != "miss" and key not in planned]


def forge_one(
    signature: _C.Signature,
    device_index: int,
    settings: Settings,
    progress: Progress | None = None,
    *,
    beside_program: bool = False,
    within: _C.Signature | None = None,
    store: _C.KernelStore | None = None,
    in_graph: InGraph | None = None,
) -> bool:
    """forge_region, which see, with the agents and in the budget that `settings` has. Whether the
    region was decided: where not, that is warned of once and counted, and PyTorch runs it. Nothing
    is said of a region that was given up because `store` is not in use any more or by
    ForgingEndedError."""
    key = signature.key
    try:
        forged = forge_region(
            signature,
            device_index,
            settings.region_budget_s,
            progress,
            beside_program=beside_program,
            within=within,
            agents=settings.agents,
            store=store,
            in_graph=in_graph,
        )
        count_spent(forged.spent, regions=int(forged.kind != "skipped" and bool(forged.spent)))
        if in_graph is not None and forged.kind == "skipped":
            in_graph.together.skipped[key] = forged.reason
        _failures.pop(key, None)
        return True
    except (NoTimeLeftError, ElsewhereError):
        raise
    except (OtherCacheError, ForgingEndedError):
        return False
    except Exception as error:
        if (
            in_graph is not None and in_graph.together.stopped
        ):  # by Ctrl-C, or by a failure beside it
            return False
        text = signature.describe()
        if isinstance(error, _C.NoReply):
            reason, what = "no_reply", f"agents wrote no kernel for {text}"
            cause = f"no reply: {settings.agents and settings.agents.coder}"
        elif isinstance(error, MemoryError):
            reason, what = "no_memory_to_verify", f"too little memory is free to verify {text}"
            cause = "no memory to verify"
        else:
            reason, what, cause = "forge_failed", f"forging {text} failed", f"forging: {error}"
        _failures[key] = str(error)
        count_fallback(reason)
        folder = _C.store().location()
        of_cache = bool(folder) and isinstance(error, OSError) and str(error).startswith(folder)
        advice = f"; {CHOOSE_FOLDER}" if of_cache else ""
        warn_once(f"{what}, PyTorch runs it: {error}{advice}", cause=cause)
        return False
    finally:
        leave_room(signature_device(signature, device_index))


_failures: dict[str, str] = {}


def failure(key: str) -> str | None:
    """Why forging the region failed when this process last tried, None where it did not."""
    return _failures.get(key)
