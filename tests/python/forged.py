"""Real kernels, quickly: a region is searched and proven as ever, and then its race is decided."""

from __future__ import annotations

import io
import itertools
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from cudaforge_backend._native import _C
from cudaforge_backend.integration import forging, gate
from cudaforge_backend.records import reason_of

CANDIDATES = 2


def host_ns(work: Any, warm: Any) -> float:
    """A clock of a ForgeHost: nanoseconds of one call."""
    start = time.perf_counter_ns()
    work()
    return float(time.perf_counter_ns() - start)


def join_threads(name: str) -> None:
    """Waits until this process has no more threads of that name."""
    for thread in threading.enumerate():
        if thread.name == name:
            thread.join()


class Terminal(io.StringIO):
    """Stands for standard error at a terminal of 80 columns."""

    def isatty(self) -> bool:
        return True


def wait_for(there: Callable[[], bool]) -> None:
    """Fails where this does not come true within twenty seconds."""
    limit = time.monotonic() + 20
    while not there() and time.monotonic() < limit:
        time.sleep(0.01)
    assert there()


def _race_between(
    patch: pytest.MonkeyPatch,
    contestants: Callable[[], tuple[dict[str, Callable[[Any], object]], Any]],
) -> None:
    """Has every race be one between what `contestants` makes: calls by name, and the clock."""

    arranged: list[Any] = [contestants()]

    def winner(self: Any, signature: _C.Signature) -> Any:
        arranged[0] = contestants()
        return arranged[0][0]["winner"]

    def inductor(self: Any, signature: _C.Signature, part: str, left_s: float) -> Any:
        return arranged[0][0]["winner" if part else "inductor"], True, 0.0

    host = forging._Forge
    patch.setattr(forging, "MAX_CANDIDATES", CANDIDATES)
    patch.setattr(
        host, "inputs", lambda self, signature, seed: [torch.empty(0)] * len(signature.inputs)
    )
    patch.setattr(host, "winner", winner)
    patch.setattr(host, "aten", lambda self, signature: arranged[0][0]["aten"])
    patch.setattr(host, "inductor", inductor)
    patch.setattr(host, "clock", lambda self: arranged[0][1])
    patch.setattr(host, "_why_little", lambda self: "")  # these times say nothing about a graph


def decide_every_race(
    patch: pytest.MonkeyPatch, winner_s: float, aten_s: float, inductor_s: float | None = None
) -> None:
    """Has every race be one between contestants that take so many seconds by a clock that is
    exact: none below a microsecond, and no time passes."""
    takes = {"winner": winner_s, "aten": aten_s, "inductor": inductor_s}
    called: list[float] = []
    calls: dict[str, Any] = {
        name: None if s is None else (lambda inputs, s=s: called.append(max(s * 1e9, 1e3)))
        for name, s in takes.items()
    }

    def clock(work: Callable[[], None], warm: object) -> float:
        work()
        return called[-1]

    _race_between(patch, lambda: (calls, clock))


def win_every_race(patch: pytest.MonkeyPatch | None = None) -> None:
    """Has on_miss="blocking" promote the best kernel that was found, however fast it is, and serve
    it without timing whole graphs. Without `patch`, for the rest of the process."""
    patch = patch or pytest.MonkeyPatch()
    patch.setattr(gate, "obstacle", lambda gm, analysis, inductor: "a test")
    decide_every_race(patch, 0, 1e-4)


def lose_every_race(patch: pytest.MonkeyPatch) -> None:
    """Has no region get a winner, and no graph timed."""
    patch.setattr(gate, "obstacle", lambda gm, analysis, inductor: "a test")
    decide_every_race(patch, 1e-4, 0)


def disturb_every_race(patch: pytest.MonkeyPatch | None = None) -> None:
    """Makes every race too disturbed to decide. Without `patch`, for the rest of the process."""
    # Pairs are of three kinds (of twenty seven, seven and six). The winner wins two by a tenth; the
    # third spoils ATen's median.
    took = {"winner": (5000.0, 9000.0, 6000.0), "aten": (5500.0, 9900.0, 1000.0)}

    def contestants() -> tuple[dict[str, Callable[[Any], object]], Any]:
        made: list[float] = []

        def contestant(name: str) -> Callable[[Any], object]:
            calls = itertools.count()
            return lambda inputs: made.append(took[name][next(calls) % 20 // 7])

        def clock(work: Callable[[], None], warm: object) -> float:
            work()
            return made[-1]

        return {**{name: contestant(name) for name in took}, "inductor": None}, clock

    _race_between(patch or pytest.MonkeyPatch(), contestants)


def refused(cache: Path | str) -> list[str]:
    """Of each region of a cache that has no kernel: what it is, why, and what became of its
    candidates."""
    store = _C.KernelStore.open(str(cache))
    return [
        f"{record['key'][:12]}: {reason_of(record)}; {store.lineage(record['key'], record['arch'])}"
        for record in store.records()
        if record["kind"] == "negative"
    ]


def lose_for_want_of_time(patch: pytest.MonkeyPatch, raced: bool) -> None:
    """Has no region get a winner and every record say that more time might find one: each loses its
    race, or has none."""
    lose_every_race(patch)
    if not raced:
        patch.setattr(forging._Forge, "inductor", lambda self, *_: (None, False, 0.0))
    patch.setattr(forging, "SEARCH_SECONDS", 1e-3)  # one candidate, and time is over


def compiled(function: Any, cache: Path | str, **options: Any) -> Any:
    """`function` compiled, its kernels forged into `cache`."""
    given = {"on_miss": "blocking", "graph_budget_s": 600, "cache_dir": str(cache), **options}
    return torch.compile(function, backend="cudaforge", options=given)
