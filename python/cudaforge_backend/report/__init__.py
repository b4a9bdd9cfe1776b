"""Reports that people can look at: `cudaforge report`, and --html of the benchmarks."""

from __future__ import annotations

import shlex


def write_report(
    target: str, file: str, cache_dir: str, device: str = "auto", train: bool = False
) -> None:
    """Writes the report on `target` to an HTML file: SCRIPT.py:FACTORY (a model), the first digits
    of a key (a region) or "" (the whole cache). KeyError, OSError, ValueError: it cannot be
    made."""
    from .._native import _C
    from ..cli.stores import of_key
    from . import collect, html

    options = ["--html", file, "--cache-dir", cache_dir]
    if ":" in target:
        options += ["--device", device, *(["--train"] if train else [])]
    command = shlex.join(["cudaforge", "report", *([target] if target else []), *options])
    if ":" in target:
        found = collect.look_at(target, cache_dir, device, train)
        source = collect.Source(_C.store(), cache_dir, command)
        html.write(collect.of_model(source, found), file)
        return
    store = _C.KernelStore.open(cache_dir)
    if problem := store.health():
        raise OSError(f"the cache cannot be read: {problem}")
    source = collect.Source(store, cache_dir, command)
    html.write(collect.of_store(source, of_key(store, target) if target else None), file)
