"""One region's budget, its races and its record, with real kernels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import RunPython
from cudaforge_backend._native import _C
from cudaforge_backend.integration import forging, rivals


def softmax(columns: int) -> str:
    """The canonical signature of a softmax over the rows of a float32[4, columns]."""
    spec = {"dtype": "float32", "sizes": [4, columns], "strides": [columns, 1]}
    node = {"op": "aten::_softmax", "args": [{"in": 0}, -1, False], "kwargs": {}, "outputs": [spec]}
    region = {
        "format": 1, "aliases": [], "numerics": {}, "device": "cpu", "nodes": [node],
        "inputs": [{**spec, "alignment": 16}], "outputs": [{"node": 0, "out": 0}],
    }  # fmt: skip
    return _C.normalize(json.dumps(region))


@pytest.fixture(autouse=True)
def _store(tmp_path: Path) -> None:
    assert _C.use_cache(str(tmp_path)) is None


def record_of(done: forging.Forged) -> dict[str, Any]:
    record = _C.store().get(done.key, _C.arch("cpu"))
    assert record is not None
    return record


def test_every_rival_is_timed_whether_the_kernel_wins_or_not() -> None:
    done = forging.forge_region(softmax(16), 0, 30.0)
    timing = record_of(done)["timing"]
    assert min(timing[f"{name}_us"] for name in ("aten", "inductor", "winner")) > 0
    low, median, high = timing["speedup"]
    assert low <= median <= high
    assert (done.kind == "winner") == (low > _C.PROMOTION_BOUND)


def test_a_short_budget_tries_one_candidate_and_races_none() -> None:
    events: list[str] = []
    signature = softmax(17)
    done = forging.forge_region(signature, 0, 0.01, lambda event: events.append(event["event"]))
    assert events.count("candidate") == 1
    assert done.kind == "negative" and done.reason.startswith("not raced: region_budget_s")
    record = record_of(done)
    assert record["timing"] == {}
    provenance = record["provenance"]
    assert provenance["out_of_time"] is True
    assert provenance["budget_s"] == 0.01 < provenance["forge_seconds"]
    assert forging.worth_more_time(record, 1.0)
    assert not forging.worth_more_time(record, 0.012)
    # No kernel that lost or was never raced is left in the operator.
    x = torch.randn(4, 17)
    region = torch.ops.cudaforge.region.default
    before = _C.stats()["hits"]
    (served,) = region([x], _C.region_id(done.key), signature)
    torch.testing.assert_close(served, torch.softmax(x, -1))
    assert _C.stats()["hits"] == before


@pytest.mark.parametrize(("budget", "searching"), [(30.0, 23.0), (2.0, 0.6)])
def test_time_is_left_for_the_races(
    monkeypatch: pytest.MonkeyPatch, budget: float, searching: float
) -> None:
    given: list[float] = []

    def search(signature: str, device: int, seconds: float, *args: Any) -> Any:
        given.append(seconds)
        raise RuntimeError("stopped")

    monkeypatch.setattr(_C, "search", search)
    with pytest.raises(RuntimeError, match="stopped"):
        forging.forge_region(softmax(20), 0, budget)
    assert given == pytest.approx([searching])


def test_a_part_is_not_promoted_without_its_race_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    class Won:
        promoted = True
        reason = "won"

    raced: list[str] = []
    part = forging._Forge(softmax(18), "0" * 64, "cpu", 0, 10.0, None, False, softmax(19))
    monkeypatch.setattr(rivals, "inductor_call", lambda *args: raced.append("inductor"))
    monkeypatch.setattr(part, "_race", lambda contestants, signature="": Won())
    clock = iter([0.0, 11.0])
    monkeypatch.setattr(part, "_seconds", lambda: next(clock))
    assert part._race_all() is None
    assert raced == ["inductor"]


_INTERRUPTED = """
import signal, threading, torch, cudaforge_backend
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
starts = []
def tell(event):
    if event["event"] == "start": starts.append(event["key"])
    if event["event"] == "candidate":
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
cudaforge_backend.set_progress(tell)
made = torch.compile(lambda x: torch.softmax(x * 3, -1), backend="cudaforge",
                     options={"on_miss": "blocking", "region_budget_s": 20})
try:
    made(torch.randn(8, 40))
except KeyboardInterrupt:
    alive = [t.name for t in threading.enumerate() if t.name.startswith("cudaforge-forge")]
    print("interrupted", len(starts), alive)
else:
    print("not interrupted", starts, cudaforge_backend.stats())
"""


def test_an_interrupt_ends_the_forging(run_python: RunPython, tmp_path: Path) -> None:
    done = run_python(_INTERRUPTED, CUDAFORGE_CACHE_DIR=str(tmp_path))
    assert done.stdout.strip() == "interrupted 1 []"
