"""What the partition asks of the C++ part, behind one small object so that it can be tested
alone."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import torch

from cudaforge_backend._native import _C


@dataclass(frozen=True)
class Rules:
    """Names are ATen overloads: "aten::_softmax", "aten::sum.dim_IntList"."""

    anchors: frozenset[str]
    pointwise: frozenset[str]
    refusal: Callable[[str], str | None]  # signature -> why no kernel can be generated, or None
    normalize: Callable[[str], str]  # signature -> canonical signature; raises for unsupported ones
    key: Callable[[str], str]  # canonical signature -> SHA-256


@functools.cache
def native_rules() -> Rules:
    """The rules of this build."""
    return Rules(
        anchors=frozenset(_C.anchor_ops()),
        pointwise=frozenset(_C.pointwise_ops()),
        refusal=functools.lru_cache(maxsize=4096)(_C.can_generate),
        normalize=_C.normalize,
        key=_C.signature_key,
    )


def overload(name: str) -> torch._ops.OpOverload | None:
    """The overload called "aten::sum.dim_IntList", or None where this torch has none."""
    namespace, _, rest = name.partition("::")
    op, _, variant = rest.partition(".")
    packet = getattr(getattr(torch.ops, namespace), op, None)
    found = getattr(packet, variant or "default", None)
    return found if isinstance(found, torch._ops.OpOverload) else None


def kept_overloads(rules: Rules) -> frozenset[torch._ops.OpOverload]:
    """The anchors that are kept whole where Inductor would decompose them."""
    return frozenset(op for op in map(overload, rules.anchors) if op is not None)
