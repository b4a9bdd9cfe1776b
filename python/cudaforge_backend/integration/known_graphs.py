"""Remembered plans of graphs: their regions, and what the cache knew about each.

While the cache knows the same, the trace that finds regions is skipped. A wrong memory costs speed
only: the keys of the regions decide what is substituted when Inductor compiles."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from cudaforge_backend import log
from cudaforge_backend._native import _C
from cudaforge_backend.options import Settings
from cudaforge_backend.reasons import Reason, Status
from cudaforge_backend.stats import count_fallback, wanted_not_recorded

from .frozen import weights_of
from .graphs import device_of, graph_name
from .headroom import device_model
from .plan import Known, Plan, verdict_of
from .rules import Rules
from .sink_views import VERSION
from .telling import tell_region


def plan_name(
    gm: fx.GraphModule, inputs: Sequence[Any], settings: Settings, rules: Rules, training: bool
) -> str:
    """A name for a graph and everything that decides which regions it has."""
    kinds = {v.device.type for v in inputs if isinstance(v, torch.Tensor)}
    facts = (
        "plan",
        VERSION,
        training,
        device_model(device_of(inputs)),
        sorted(settings.inductor.items()),
        sorted(rules.anchors),
        sorted(rules.heavy),
        rules.agents,
        sorted(rules.pointwise),
        sorted(_C.versions().items()),
        torch.get_default_dtype(),
        sorted(_C.numerics(sorted(rules.heavy)).items()),
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        [(k, torch.get_autocast_dtype(k)) for k in sorted(kinds) if torch.is_autocast_enabled(k)],
        *([] if weights_of(gm) is None else [weights_of(gm)]),
    )
    return graph_name(gm, inputs, facts)


_KEY = re.compile("[0-9a-f]{64}")
_MOST = 1 << 20


def recall(name: str, arch: str, budget_s: float | None) -> dict[str, str] | None:
    """The winners of a remembered plan, as Plan.winners(); events and counters as if the graph had
    been planned. None: there is no plan, the cache changed, or a region is missing and there is a
    budget to forge it. budget_s: see plan.verdict_of."""
    memory = _C.store().get_graph(name, arch)
    winners: dict[str, str] = {}
    try:
        if memory is None:
            return None
        left = Counter({Reason(k): int(n) for k, n in memory["left"].items() if 0 < n < _MOST})
        regions = memory["plan"]
        for key, on, _, status, checksum, _ in regions:
            if not _KEY.fullmatch(key):
                return None
            now = verdict_of(key, on, budget_s)
            if status == Status.SKIPPED:
                same = now.status != Status.HIT
            else:
                same = (now.status, now.checksum) == (status, checksum)
            if now.stale or not same:
                return None
            if status == Status.MISS and budget_s is not None:
                return None
            if status == Status.HIT:
                winners[key] = checksum
    except (KeyError, TypeError, ValueError, AttributeError):  # not as remember() writes it
        return None
    for key, on, text, status, _, _ in regions:
        tell_region(key, on, str(text), Status(status))
    for reason, n in left.items():
        count_fallback(reason, n)
    return winners


def skipped(name: str, arch: str) -> dict[str, str]:
    """The skipped regions of a remembered plan (little can be gained): key to why."""
    memory = _C.store().get_graph(name, arch) or {}
    match memory.get("plan"):
        case [*regions]:
            return {r[0]: r[5] for r in regions if len(r) == 6 and r[3] == Status.SKIPPED}
    return {}


def remember(name: str, arch: str, plan: Plan, wanted: bool) -> None:
    """Stores a plan. `wanted`: also puts its misses on the list of `cudaforge cache wanted`, and
    warns once if the cache does not take them."""
    misses = [(k.region.signature, k.arch) for k in plan.misses()] if wanted else []
    try:
        facts = {"plan": [_entry(known) for known in plan.regions], "left": dict(plan.left)}
        _C.store().put_graph(name, arch, facts, misses)
        log.cache.debug("a graph is stored; %d of its regions are on the wanted list", len(misses))
    except Exception as error:
        log.cache.debug("a graph is not recorded: %s", error)
        if misses:
            wanted_not_recorded(str(error))


def _entry(known: Known) -> list[str]:
    why = known.reason if known.status == Status.SKIPPED else ""
    return [known.region.key, known.arch, known.text(), known.status, known.checksum, why]
