"""What is to be done with a graph: its regions, what the cache knows of them, and what is
missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

from torch import fx

from cudaforge_backend._native import _C
from cudaforge_backend.options import Settings
from cudaforge_backend.reasons import Reason, Status
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

    status: Status
    checksum: str  # of the record, "" for a miss and what was skipped
    reason: str  # of a negative entry, and of what was skipped
    # Measured on a busy machine more than a day ago: used, and re-measured if there is time.
    stale: bool = False
    too_busy: bool = False  # the machine was, at its race: no verdict on its parts

    @property
    def is_to_be_forged(self) -> bool:
        """Whether the cache does not know it, or it is to be re-measured."""
        return self.status == Status.MISS or self.stale


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
    """The regions of one graph, forward and backward, with what the cache knows of each. A region
    without a winner is replaced by its parts."""

    regions: tuple[Known, ...]
    analysis: Analysis
    left: Mapping[Reason, int] = field(default_factory=dict)  # anchors in no region
    times: Mapping[str, int] = field(default_factory=dict)  # by key: how often the graph has it

    def winners(self) -> dict[str, str]:
        """Key to checksum, of the regions to be substituted."""
        return {k.region.key: k.checksum for k in self.regions if k.status == Status.HIT}

    def misses(self) -> list[Known]:
        """Regions that the cache does not know, and stale ones."""
        return [k for k in self.regions if k.is_to_be_forged]


def verdict_of(key: str, arch: str, budget_s: float | None) -> Said:
    """What the cache knows of a region. With a `budget_s` for forging, a negative entry made in
    much less time is a miss, and an entry measured on a busy machine more than a day ago is
    stale."""
    record = _C.store().verdict(key, arch)
    if record is None or (budget_s is not None and worth_more_time(record, budget_s)):
        return Said(Status.MISS, "", "")
    status = Status.HIT if "compiled" in record["serves"] else Status.NEGATIVE
    stale = budget_s is not None and record["stale"]
    too_busy = status == Status.NEGATIVE and why_code(record) == "doubtful"
    return Said(status, record["checksum"], reason_of(record), stale, too_busy)


def look_up(region: Region, budget_s: float | None = None) -> Known:
    """What the cache knows of a region; see verdict_of. Raises if the device has no name."""
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
    """The plan of a graph. budget_s: see verdict_of; None: nothing is forged. skipped: see
    plan_analysis."""
    analysis = analyse(gm, example_inputs, rules, settings.inductor)
    plan = plan_analysis(analysis, budget_s=budget_s, skipped=skipped)
    for reason, n in plan.left.items():
        count_fallback(reason, n)
    for known in plan.regions:
        tell_region(known.region.key, known.arch, known.text(), known.status)
    if budget_s is not None and (misses := plan.misses()):  # starts while Inductor compiles
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
    """The plan of traced graphs.

    given_up: keys that are not forged or retried; their parts are. budget_s: see verdict_of.
    `anew`: as if only the regions in given_up had been forged. skipped: keys of regions that are
    not forged, and why; their parts are not forged either."""
    skipped = skipped or {}
    asked: dict[str, Known] = {}

    def take(region: Region, within: Region | None) -> bool:
        if region.by_agents and not analysis.rules.agents:  # served, never missed
            stored = look_up(region)
            if stored.status == Status.HIT:
                asked.setdefault(region.key, stored)
            return stored.status == Status.HIT
        known = asked.get(region.key)
        if known is None:
            more = None if region.key in given_up else budget_s
            known = replace(look_up(region, more), within=within.signature if within else None)
            if region.key in skipped and known.status != Status.HIT:
                why = skipped[region.key]
                known = replace(known, status=Status.SKIPPED, checksum="", reason=why, stale=False)
            asked[region.key] = known
        open_yet = region.key not in given_up and (anew or known.is_to_be_forged)
        return known.status in (Status.HIT, Status.SKIPPED) or known.too_busy or open_yet

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
    """Forges the misses of a plan, with the agents and budgets in `settings`; several at a time if
    `together` says so. Returns the plan as the cache has it afterwards.

    - A region without a winner: its parts are forged in the next round.
    - A region whose forging failed: its parts are not tried.
    - When the graph's budget is spent, the remaining regions go on the list of `cudaforge cache
      wanted`. Agents have limits of their own instead of that budget."""
    ended: set[str] = set()
    failed: set[str] = set()
    together.begin()
    together.skipped |= {k.region.key: k.reason for k in plan.regions if k.status == Status.SKIPPED}
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
        count_fallback(Reason.LITTLE_TO_GAIN, len(together.skipped))
    return plan


def _order(known: Known, times: Mapping[str, int]) -> tuple[bool, int]:
    """Sort key. First regions with a product, a convolution or attention: the others wait until the
    graph is compiled. Then by the bytes that all instances move, largest first."""
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
    """Forges regions; each ends as "decided", "failed", or "left" (no time). Regions that other
    processes forge are waited for last."""
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
        count_miss(known.region.key)  # parts were not counted yet
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
    """Counts and reports regions that the graph's budget was too short for, and requests them."""
    count_fallback(Reason.GRAPH_BUDGET, len(misses))
    try:
        _C.store().add_wanted([(k.region.signature, k.arch) for k in misses])
    except Exception as error:
        wanted_not_recorded(str(error))
    keys = [known.region.key for known in misses]
    raw = {"event": "left", "regions": keys, "graph_budget_s": settings.graph_budget_s}
    tell(raw, progress)


def tried_besides(plan: Plan) -> list[Known]:
    """Regions that were forged on the way to `plan`, have a record, and are not in the plan. Which
    parts a region has depends on the other regions of its round."""
    found: dict[str, Known] = {}
    given_up: set[str] = set()
    while True:  # the rounds of forge_misses
        regions = plan_analysis(plan.analysis, given_up, anew=True).regions
        found |= {known.region.key: known for known in regions}
        without = {known.region.key for known in regions if known.status == Status.NEGATIVE}
        if without <= given_up:
            break
        given_up |= without
    planned = {known.region.key for known in plan.regions}
    return [k for key, k in found.items() if k.status != Status.MISS and key not in planned]


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
    """Calls forge_region with the agents and budget in `settings`. False: it failed; that is
    counted and warned of once, and PyTorch runs the region. No warning if forging ended early
    (another cache is in use, or ForgingEndedError)."""
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
        ):  # by Ctrl-C, or because another region failed
            return False
        text = signature.describe()
        if isinstance(error, _C.NoReply):
            reason, what = Reason.NO_REPLY, f"agents wrote no kernel for {text}"
            cause = f"no reply: {settings.agents and settings.agents.coder}"
        elif isinstance(error, MemoryError):
            reason, what = Reason.NO_MEMORY_TO_VERIFY, f"too little memory is free to verify {text}"
            cause = "no memory to verify"
        else:
            reason, what, cause = Reason.FORGE_FAILED, f"forging {text} failed", f"forging: {error}"
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
    """Why this process last failed to forge the region; None: it did not fail."""
    return _failures.get(key)
