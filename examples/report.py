"""The quickstart's progress lines and tables."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

from cudaforge_backend.heartbeat import Teller, progress_bar
from cudaforge_backend.progress import Ended, Event, RegionFound, Started
from cudaforge_backend.records import find, interval_text, label

NOT_FORGED: dict[str, Any] = {
    "ops": "a region that could not be forged (see the warnings)", "shapes": [],
    "verdict": "not forged", "aten_us": None, "inductor_us": None, "winner_us": None,
    "speedup": None, "doubtful": 0,
}  # fmt: skip


def microseconds(value: float | None) -> str:
    """A time of a table, or a dash."""
    return "-" if value is None else f"{value:.1f}"


class Progress(Teller):
    """Prints a line for each decision about a region, during planning and forging."""

    def __init__(self) -> None:
        self.known: dict[str, set[str]] = {"hit": set(), "negative": set(), "miss": set()}
        self._seen: dict[str, dict[str, Any]] = {}
        shown = (Started, Ended)
        super().__init__(lambda line: print(line, flush=True), "starting", shown, progress_bar())

    def tell(self, line: str, doing: str) -> None:
        """Prints a line; `doing` is what a terminal shows to go on."""
        self.begin(doing)
        self.say(line)

    def __call__(self, event: Event) -> None:
        super().__call__(event)
        match event:
            case RegionFound():
                self._seen.setdefault(event.key, {"arch": event.arch, "origin": "cache"})
                self.known.setdefault(event.status, set()).add(event.key)
            case Started():
                self._seen[event.key] = {"arch": event.arch, "origin": "forged"}

    def forged(self) -> set[str]:
        """The keys of what was forged in this process, parts of regions too."""
        return {key for key, seen in self._seen.items() if seen["origin"] == "forged"}

    def skipped(self) -> set[str]:
        """The keys of the regions that were skipped, as little can be gained."""
        return {key for key in self._seen if self._is_skipped(key)}

    def _is_skipped(self, key: str) -> bool:
        known = any(key in self.known[status] for status in ("hit", "negative"))
        seen = self._seen[key]
        return seen["origin"] == "cache" and not known and find(key, seen["arch"]) is None

    def regions(self, served: Container[str]) -> list[dict[str, Any]]:
        """One entry for each region that has a record or was begun, with its times. served: keys
        that were called."""
        out = []
        for key, seen in self._seen.items():
            if self._is_skipped(key):
                continue
            record: Mapping[str, Any] = find(key, seen["arch"]) or NOT_FORGED
            values = {name: record[name] for name in NOT_FORGED}
            out.append({"key": key, **values, "origin": seen["origin"], "served": key in served})
        return out


def print_regions(regions: list[dict[str, Any]]) -> None:
    """One line per region."""
    if not regions:
        print("  none")
        return
    print(
        f"  {'ATen':>9} {'Inductor':>9} {'kernel':>9}  "
        f"{'speed-up':<20} {'origin':<7} {'served':<6} verdict, region"
    )
    for r in regions:
        served = "-" if r["verdict"] != "winner" else "yes" if r["served"] else "no"
        speedup = interval_text(r["speedup"]) if r["speedup"] else "-"
        region = label(r["ops"], r["shapes"], whole=True)
        print(
            f"  {microseconds(r['aten_us']):>9} {microseconds(r['inductor_us']):>9} "
            f"{microseconds(r['winner_us']):>9}  "
            f"{speedup:<20} {r['origin']:<7} {served:<6} {r['verdict']}: {region}"
        )


def print_models(models: list[dict[str, Any]]) -> None:
    """One line per model and phase."""
    print(
        f"  {'':<18} {'eager':>9} {'Inductor':>9} {'CudaForge':>9}  "
        f"{'over Inductor':<20} {'A/A':<20} error (allowed)"
    )
    for m in models:
        ratios = [interval_text(m[name]) for name in ("speedup_over_inductor", "control")]
        print(
            f"  {m['name'] + ' ' + m['phase']:<18} {m['eager_ms']:>9.3f} "
            f"{m['inductor_ms']:>9.3f} {m['cudaforge_ms']:>9.3f}  "
            f"{ratios[0]:<20} {ratios[1]:<20} {m['error']:.2e} ({m['error_limit']:.2e})"
            + ("" if m["winners"] else "  without winners: Inductor's own code")
        )
    if names := [f"{m['name']} {m['phase']}" for m in models if not quiet(*m["control"])]:
        print(
            f"  the machine was busy (see A/A): the figures of {', '.join(names)} say nothing; its "
            "decisions hold for a day: use an empty --cache-dir on a quiet machine"
        )


def quiet(low: float, _: float, high: float) -> bool:
    """Whether an A/A interval, as it is printed, holds 1 and is no wider than 0.1."""
    low, high = round(low, 2), round(high, 2)
    return low <= 1 <= high and round(high - low, 2) <= 0.1


def print_processes(processes: Mapping[str, Mapping[str, Any]], difference: float) -> None:
    """The cold and the cached process side by side; the largest relative difference of results."""
    print(
        f"  {'':<16} {'hits':>6} {'known':>6} {'misses':>6} {'forged':>6} {'first result':>13} "
        "(of the first model; known: regions with a record, winner or not)"
    )
    for name, c in processes.items():
        print(
            f"  {name.replace('_', ' '):<16} {c['hits']:>6} "
            f"{c['regions_with_winner'] + c['regions_known_without']:>6} {c['misses']:>6} "
            f"{c['forged']:>6} {c['first_result_s']:>11.1f} s"
        )
    print(
        f"  largest relative difference between the results of the two processes: {difference:.1e}"
    )
    if not processes["second_process"]["hits"]:
        print("  no kernel ran: none won, or no graph as a whole gains by its winners here")
