"""Which records of the cache this process goes by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cudaforge_backend._native import _C

_provisional: set[tuple[str, str]] = set()  # keys and architectures, of this process's own records


def note_provisional(key: str, arch: str) -> None:
    """This process makes the provisional record of a region, which is good for it alone."""
    _provisional.add((key, arch))


def settled(key: str, arch: str) -> Mapping[str, Any] | None:
    """KernelStore.verdict, without what another process found on a busy machine."""
    known = _C.store().verdict(key, arch)
    if known is not None and known["provisional"] and (key, arch) not in _provisional:
        return None
    return known
