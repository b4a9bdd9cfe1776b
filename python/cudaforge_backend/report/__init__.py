"""Reports that people can look at: `cudaforge report`, and --html of the benchmarks."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .data import ReportData


def report_on(
    target: str, html: str, cache_dir: str, device: str = "auto", train: bool = False
) -> ReportData:
    """The report on `target`: SCRIPT.py:FACTORY (a model), the first digits of a key (a region) or
    "" (the whole cache). html: the file that the command in it writes, "" for JSON. KeyError,
    OSError, ValueError: it cannot be made."""
    from .._native import _C
    from ..cli.stores import of_key
    from . import collect

    options = [*(["--html", html] if html else ["--json"]), "--cache-dir", cache_dir]
    if ":" in target:
        options += ["--device", device, *(["--train"] if train else [])]
    command = shlex.join(["cudaforge", "report", *([target] if target else []), *options])
    if ":" in target:
        found = collect.look_at(target, cache_dir, device, train)
        source = collect.Source(_C.store(), cache_dir, command)
        return collect.of_model(source, found)
    store = _C.KernelStore.open(cache_dir)
    if problem := store.health():
        raise OSError(f"the cache cannot be read: {problem}")
    source = collect.Source(store, cache_dir, command)
    return collect.of_store(source, of_key(store, target) if target else None)
