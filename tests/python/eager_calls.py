"""What the tests of eager calls share."""

from __future__ import annotations

from typing import Any

import cudaforge_backend

SOFTMAX = "aten::_softmax"


def seen(op: str = SOFTMAX) -> Any:
    """The counters of an overload."""
    none: dict[str, Any] = {"calls": 0, "hits": 0, "fallbacks": 0, "misses": {}}
    return cudaforge_backend.stats().eager.get(op, none)
