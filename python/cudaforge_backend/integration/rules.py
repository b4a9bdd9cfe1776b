"""What the partition needs from C++, as one small object, so that it can be tested alone."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import torch

from cudaforge_backend._native import _C


@dataclass(frozen=True)
class Rules:
    """Names are ATen overloads: "aten::_softmax", "aten::sum.dim_IntList"."""

    anchors: frozenset[str]  # of generators
    pointwise: frozenset[str]
    # Why no generator makes a kernel; None: one does.
    why_not_generated: Callable[[_C.Signature], str | None]
    normalize: Callable[[str], _C.Signature]  # of a signature's JSON; raises for unsupported ones
    heavy: frozenset[str] = frozenset()  # products, convolutions, attention; empty: not looked for
    agents: bool = False  # whether regions that only agents make count as misses


@functools.cache
def native_rules(heavy: bool = False, agents: bool = False, arch: str = "") -> Rules:
    """The rules of this build for kernels on `arch`; "": on any. heavy: look for regions around
    heavy ops, too. agents: count regions that only agents make as misses."""
    return Rules(
        anchors=frozenset(_C.anchor_ops()),
        pointwise=frozenset(_C.pointwise_ops()),
        why_not_generated=lambda signature: _why_not_generated(signature, arch),
        normalize=lambda text: _C.Signature.parse(text).normalized(),
        heavy=frozenset(_C.heavy_ops()) if heavy or agents else frozenset(),
        agents=agents,
    )


def rules_for(arch: str, agents: bool) -> Rules:
    """The rules for graphs on `arch`. They have heavy ops if agents are used, if a generator makes
    kernels for some of these, or if the cache has had winners of regions that only agents make."""
    heavy = agents or _C.generates_heavy_ops(arch) or _C.has_agent_regions(arch)
    return native_rules(heavy, agents, arch)


_why_not_generated = functools.lru_cache(maxsize=4096)(_C.Signature.why_not_generated)


def overload(name: str) -> torch._ops.OpOverload | None:
    """The overload called "aten::sum.dim_IntList", or None where this torch has none."""
    namespace, _, rest = name.partition("::")
    op, _, variant = rest.partition(".")
    packet = getattr(getattr(torch.ops, namespace), op, None)
    found = getattr(packet, variant or "default", None)
    return found if isinstance(found, torch._ops.OpOverload) else None


def kept_overloads(rules: Rules) -> frozenset[torch._ops.OpOverload]:
    """The anchors that are not decomposed, although Inductor would."""
    return frozenset(op for op in map(overload, rules.anchors) if op is not None)
