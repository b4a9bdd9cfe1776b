"""What the tests of eager calls share."""

from __future__ import annotations

import cudaforge_backend
from cudaforge_backend.stats import EagerStats

SOFTMAX = "aten::_softmax"


def seen(op: str = SOFTMAX) -> EagerStats:
    """The counters of an overload."""
    none = EagerStats(calls=0, hits=0, fallbacks=0, misses={})
    return cudaforge_backend.stats().eager.get(op, none)
