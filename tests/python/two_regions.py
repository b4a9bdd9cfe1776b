"""A process that compiles two regions, one after the other, and prints the results."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from conftest import RunPython

_SCRIPT = """
import json, os, threading, time, warnings, torch, cudaforge_backend
from cudaforge_backend._native import _C
if FORGE:
    from forged import win_every_race
    win_every_race()
exec(FIRST)
options = {"on_miss": "blocking" if FORGE else "record", "cache_dir": FOLDER}
options["region_budget_s"] = 120
torch.manual_seed(0)
x = torch.randn(8, COLUMNS)
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    for scale in SCALES:
        f = lambda x: torch.softmax(x * scale, -1)
        made = torch.compile(f, backend="cudaforge", options=options)
        torch.testing.assert_close(made(x), f(x))
        torch._dynamo.reset()
s = cudaforge_backend.stats()
ours = [str(w.message) for w in seen if w.category is cudaforge_backend.CudaForgeWarning]
names = ("hits", "forged", "negative", "fallbacks", "cache")
records = [] if s.cache["corrupt"] else _C.store().records()
print(json.dumps({n: getattr(s, n) for n in names} | {"warnings": ours, "records": records}))
"""


def run_regions(
    run_python: RunPython,
    folder: Path | str,
    forge: bool = False,
    columns: int = 26,
    scales: Sequence[int] = (3, 4),
    first: str = "",
    **how: Any,
) -> subprocess.CompletedProcess[str]:
    """softmax(x * scale) of 8 x `columns` for each scale, with the cache in `folder`; with `forge`
    each gets a kernel. `first` is run before, `how` is for run_python."""
    given = {"FOLDER": str(folder), "FORGE": forge, "COLUMNS": columns, "SCALES": tuple(scales)}
    names = "".join(f"{name} = {value!r}\n" for name, value in (given | {"FIRST": first}).items())
    return run_python(names + _SCRIPT, ready=True, **how)


def told(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The process's report: counters, our warnings, the records of its cache."""
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found
