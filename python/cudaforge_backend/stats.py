"""Counters of this process: what was served, what was not and why."""

from __future__ import annotations

import warnings
from collections import Counter
from typing import Any, TypedDict

from . import log
from ._native import _C
from .errors import CudaForgeWarning
from .locks import ForkSafeLock


class RegionStats(TypedDict):
    """One region that was called in this process; `region` is a line for people."""

    key: str
    region: str
    device: str
    hits: int
    misses: int
    fallbacks: int
    saved_ns: float
    quarantined: str | None  # why its kernel is not served any more


class Stats(TypedDict):
    """Counts since the process began or reset_stats(). `misses`: regions that the cache did not
    know when a graph was compiled, and calls that came to no kernel. saved_ns is expected, from the
    records. `cache` (reads, hits, writes, corrupt, errors) counts since the cache in use was
    opened."""

    hits: int
    misses: int
    fallbacks: dict[str, int]
    forged: int
    negative: int
    graphs: dict[str, int]
    saved_ns: float
    cache: dict[str, int]
    regions: list[RegionStats]


_lock = ForkSafeLock()
_fallbacks: Counter[str] = Counter()
_graphs: Counter[str] = Counter()
_forging: Counter[str] = Counter()
_unknown: set[str] = set()
_warned: set[str] = set()


def count_fallback(reason: str, n: int = 1) -> None:
    """Counts `n` regions or graphs that PyTorch runs, by reason."""
    log.graph.debug("left to PyTorch: %s (%d)", reason, n)
    with _lock:
        _fallbacks[reason] += n


def count_graph(how: str, n: int = 1) -> None:
    """Counts `n` graphs: "plain", "substituted" (served with winners), "no_anchor", "swapped",
    "does_not_pay_in_place". Below zero takes back what was counted."""
    log.graph.debug("a graph: %s (%+d)", how, n)
    with _lock:
        _graphs[how] += n


def count_miss(key: str) -> None:
    """Counts a region that the cache does not know, once."""
    with _lock:
        _unknown.add(key)


def count_forging(outcome: str) -> None:
    """Counts one forged region: "forged" or "negative"."""
    with _lock:
        _forging[outcome] += 1


def warn_once(message: str, cause: str | None = None) -> None:
    """A CudaForgeWarning, the first time that `cause` (or else this message) appears in the
    process."""
    with _lock:
        if (cause or message) in _warned:
            return
        _warned.add(cause or message)
    warnings.warn(message, CudaForgeWarning, stacklevel=2)


def stats() -> Stats:
    """This process's counters, JSON-serialisable."""
    served: dict[str, Any] = _C.stats()
    with _lock:
        fallbacks = Counter(served.get("fallbacks", {}))
        fallbacks.update(_fallbacks)
        return Stats(
            hits=int(served.get("hits", 0)),
            misses=int(served.get("misses", 0)) + len(_unknown),
            fallbacks=dict(fallbacks),
            forged=_forging["forged"],
            negative=_forging["negative"],
            graphs={how: n for how, n in _graphs.items() if n > 0},
            saved_ns=float(served.get("saved_ns", 0.0)),
            cache=_C.store().counters(),
            regions=[_region(region) for region in served.get("regions", [])],
        )


def _region(served: dict[str, Any]) -> RegionStats:
    return RegionStats(
        key=served["key"],
        region=served["describe"],
        device=served["device"],
        hits=served["hits"],
        misses=served["misses"],
        fallbacks=served["fallbacks"],
        saved_ns=served["saved_ns"],
        quarantined=served["quarantined"],
    )


def reset_stats() -> None:
    """Sets every counter to zero; winners stay installed."""
    with _lock:
        _fallbacks.clear()
        _graphs.clear()
        _forging.clear()
        _unknown.clear()
    _C.reset_stats()
