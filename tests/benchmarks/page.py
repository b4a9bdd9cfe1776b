"""The results of a benchmark as an HTML page, in the form of `cudaforge report`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from cudaforge_backend.report import html
from cudaforge_backend.report.data import BenchmarkData, TimedRow, Way, interval, number, text
from cudaforge_backend.report.machine import machine, now

Result = Mapping[str, Any]

_WAYS = {"eager": "eager", "inductor": "Inductor", "cudaforge": "CudaForge"}


def timed_row(result: Result, notes: Iterable[str]) -> TimedRow:
    """The row of a result with `ms`, `gain` over `best`, and `control`; of one without times, the
    reason alone."""
    name = text(result.get("name", result.get("id")))
    for why in ("error", "failed", "refused"):
        if why in result:
            return TimedRow(name, notes=(f"{why.capitalize()}: {text(result[why])}",))
    ms = result.get("ms", {})
    best = _WAYS.get(result.get("best", ""), "")
    gain = interval(f"CudaForge over {best}", result.get("gain"))
    return TimedRow(
        name=name,
        ways=tuple(
            Way(label, took) for way, label in _WAYS.items() if (took := number(ms.get(way)))
        ),
        ratios=() if gain is None else (gain,),
        control=interval("Inductor over itself", result.get("control")),
        notes=tuple(notes),
    )


def write_page(file: Path, title: str, rows: Iterable[TimedRow], device: str) -> None:
    """Writes the page of this run of the program."""
    data = BenchmarkData(
        title=title,
        subject=f"on {device}",
        created=now(),
        command=shlex.join(["python", *sys.argv]),
        machine=machine(device),
        rows=tuple(rows),
    )
    html.write(data, file)
