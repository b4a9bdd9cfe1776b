"""The quickstart's progress lines and tables."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import cudaforge_backend


def microseconds(value: float | None) -> str:
    """A time of a table, or a dash."""
    return "-" if value is None else f"{value:.1f}"


class Progress:
    """Told of every region as it is planned and forged; prints a line for each decision."""

    def __init__(self) -> None:
        self._seen: dict[str, dict[str, Any]] = {}
        self._tried = 0
        self._beat = time.monotonic()

    def __call__(self, event: Mapping[str, Any]) -> None:
        """See cudaforge_backend.set_progress for the events."""
        key = str(event.get("key", ""))
        kind = event["event"]
        if kind == "region":
            self._seen.setdefault(key, {"arch": event["arch"], "origin": "cache"})
        elif kind == "start":
            self._seen[key] = {"arch": event["arch"], "origin": "forged"}
            self._tried = 0
            print(f"  {event['ops']} ...", flush=True)
        elif kind == "candidate":
            self._tried += 1
            if time.monotonic() - self._beat > 2:
                self._beat = time.monotonic()
                print(f"    {self._tried} candidates tried", flush=True)
        elif kind == "end":
            print(
                f"    {event['verdict']}, {self._tried} candidates, {event['seconds']:.1f} s",
                flush=True,
            )

    def regions(self, cache_dir: str | None) -> list[dict[str, Any]]:
        """One entry for each region seen, with the times of its record."""
        out = []
        for key, seen in self._seen.items():
            record = cudaforge_backend.record(key, seen["arch"], cache_dir)
            if record is None:
                continue
            timing = record["timing"] or {}
            out.append({
                "key": key,
                "ops": record["ops"],
                "shapes": [i["sizes"] for i in record["signature"]["inputs"]],
                "verdict": record["verdict"],
                "aten_us": timing.get("aten_us"),
                "inductor_us": timing.get("inductor_us"),
                "winner_us": timing.get("winner_us"),
                "speedup": timing.get("speedup"),
                "origin": seen["origin"],
            })  # fmt: skip
        return out


def print_regions(regions: list[dict[str, Any]]) -> None:
    """One line per region."""
    print(
        f"  {'ATen':>9} {'Inductor':>9} {'kernel':>9}  "
        f"{'speed-up':<20} {'origin':<7} verdict, region"
    )
    for r in regions:
        low, middle, high = r["speedup"] or (None, None, None)
        speedup = "-" if middle is None else f"{middle:.2f} [{low:.2f}, {high:.2f}]"
        print(
            f"  {microseconds(r['aten_us']):>9} {microseconds(r['inductor_us']):>9} "
            f"{microseconds(r['winner_us']):>9}  "
            f"{speedup:<20} {r['origin']:<7} {r['verdict']}: {r['ops']}"
        )


def print_models(models: list[dict[str, Any]]) -> None:
    """One line per model and phase."""
    print(
        f"  {'':<18} {'eager':>9} {'Inductor':>9} {'CudaForge':>9}  "
        f"{'over Inductor':<20} {'A/A':<20} error (allowed)"
    )
    for m in models:
        ratios = []
        for low, middle, high in (m["speedup_over_inductor"], m["control"]):
            ratios.append(f"{middle:.2f} [{low:.2f}, {high:.2f}]")
        print(
            f"  {m['name'] + ' ' + m['phase']:<18} {m['eager_ms']:>9.3f} "
            f"{m['inductor_ms']:>9.3f} {m['cudaforge_ms']:>9.3f}  "
            f"{ratios[0]:<20} {ratios[1]:<20} {m['error']:.2e} ({m['error_limit']:.2e})"
        )


def print_processes(processes: Mapping[str, Mapping[str, Any]], same: bool) -> None:
    """The cold and the cached process side by side."""
    print(f"  {'':<16} {'hits':>6} {'misses':>6} {'forged':>6} {'first result':>13}")
    for name, c in processes.items():
        print(
            f"  {name.replace('_', ' '):<16} {c['hits']:>6} {c['misses']:>6} "
            f"{c['forged']:>6} {c['first_result_s']:>11.1f} s"
        )
    print("  same numbers: " + ("yes, bit for bit" if same else "no, not bit for bit"))
