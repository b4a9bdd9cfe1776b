"""Graphs that were planned before: which regions they have and what the cache said of them.

As long as it says the same, the trace that finds the regions is spared. A memory that is wrong
costs speed only: what is substituted is decided by the regions' keys, when Inductor compiles."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from cudaforge_backend import log
from cudaforge_backend._native import _C
from cudaforge_backend.options import Settings
from cudaforge_backend.stats import count_fallback, wanted_not_recorded

from .graphs import graph_name
from .plan import Plan, verdict_of
from .rules import Rules
from .telling import tell_region


def plan_name(
    gm: fx.GraphModule, inputs: Sequence[Any], settings: Settings, rules: Rules, training: bool
) -> str:
    """Of a graph and of all that decides which regions it has."""
    kinds = {v.device.type for v in inputs if isinstance(v, torch.Tensor)}
    facts = (
        "plan",
        training,
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
    )
    return graph_name(gm, inputs, facts)


_KEY = re.compile("[0-9a-f]{64}")
_MOST = 1 << 20


@dataclass(frozen=True)
class Recalled:
    """What a plan came to; `winners`: key to checksum."""

    winners: dict[str, str]
    misses: bool


def recall(name: str, arch: str, budget_s: float | None) -> Recalled | None:
    """What planning the graph would come to, told and counted as if it had been planned; None where
    it was never planned or the cache has other words now. `budget_s`: see plan.verdict_of."""
    memory = _C.store().get_graph(name, arch)
    try:
        if memory is None:
            return None
        regions = [_Memory(*entry) for entry in memory["plan"]]
        left = Counter({str(k): int(n) for k, n in memory["left"].items() if 0 < n < _MOST})
        if not all(region.is_sound() for region in regions):
            return None
        if any(region.changed(budget_s) for region in regions):
            return None
    except (KeyError, TypeError, ValueError, AttributeError):  # not as remember() writes it
        return None
    for region in regions:
        tell_region(region.key, region.arch, region.text, region.status)
    for reason, n in left.items():
        count_fallback(reason, n)
    winners = {r.key: r.checksum for r in regions if r.status == "hit"}
    return Recalled(winners, any(r.status == "miss" for r in regions))


@dataclass(frozen=True)
class _Memory:
    key: str
    arch: str
    text: str
    status: str
    checksum: str

    def is_sound(self) -> bool:
        texts = (self.key, self.arch, self.text, self.status, self.checksum)
        if not all(isinstance(text, str) for text in texts):
            return False
        return bool(_KEY.fullmatch(self.key)) and self.status in ("hit", "negative", "miss")

    def changed(self, budget_s: float | None) -> bool:
        status, checksum, _ = verdict_of(self.key, self.arch, budget_s)
        return (status, checksum) != (self.status, self.checksum)


def remember(name: str, arch: str, plan: Plan, wanted: bool) -> None:
    """Stores what a plan came to, and, if `wanted`, puts its misses on the list that `cudaforge
    cache wanted` shows. A cache that takes no writes is one warning where something is missing."""
    entries = [[k.region.key, k.arch, k.text(), k.status, k.checksum] for k in plan.regions]
    misses = [(k.region.signature, k.arch) for k in plan.misses()] if wanted else []
    try:
        facts = {"plan": entries, "left": dict(plan.left)}
        _C.store().put_graph(name, arch, facts, misses)
        log.cache.debug("a graph is known from now on; %d of its regions are wanted", len(misses))
    except Exception as error:
        log.cache.debug("a graph is not recorded: %s", error)
        if misses:
            wanted_not_recorded(str(error))
