"""Regions by which little can be gained are not forged, and explain() says so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import cudaforge_backend
import pytest
import torch
from cudaforge_backend._native import _C
from cudaforge_backend.integration import forging, gate, headroom, plan
from forged import compiled, win_every_race
from torch import Tensor


def test_a_region_near_the_least_time_of_the_device_is_not_worth_a_kernel() -> None:
    assert headroom.why_little(1, 100.0, 96.0, None) == (
        "it takes 100.0 us, and this device at least 96.0 us"
    )
    assert headroom.why_little(1, 100.0, 94.0, None) == ""
    assert headroom.why_little(1, 10.0, 20.0, None)  # a floor above the time is no headroom either


def test_what_takes_less_than_a_call_of_the_graph_is_not_worth_a_kernel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(headroom, "LEAST_US", 10.0)  # which conftest sets to zero
    assert headroom.why_little(2, 4.0, 0.0, None) == (
        "it takes 8.0 us of its graph, less than calling the graph does"
    )
    assert headroom.why_little(3, 4.0, 0.0, None) == ""


def test_what_can_be_saved_counts_in_its_graph() -> None:
    # 24 calls of 10 us are 2.4% of 10 ms; a fifth of that is too little, a half is not.
    assert headroom.why_little(24, 10.0, 8.0, 10_000.0) == (
        "it is 2.4% of its graph's time, and a kernel can save at most 20% of that"
    )
    assert headroom.why_little(24, 10.0, 5.0, 10_000.0) == ""
    assert headroom.why_little(1, 10.0, 0.0, 10_000.0) == "it is 0.1% of its graph's time"


def test_the_floor_is_the_larger_of_bytes_and_operations_and_a_launch() -> None:
    x = torch.randn(1024, 1024)
    (report,) = cudaforge_backend.explain(lambda x: x.cumsum(-1), x).regions
    region = _C.Signature.parse(json.dumps(report.signature)).normalized()
    facts = {"bandwidth_gb_s": 1000.0, "l2_bytes": 0, "launch_us": 2.0}
    moved = 2 * 4 * 1024 * 1024
    assert region.floor_us(facts) == pytest.approx(2.0 + moved / 1e6)
    in_l2 = facts | {"l2_bytes": moved, "cached_gb_s": 4000.0}
    assert region.floor_us(in_l2) == pytest.approx(2.0 + moved / 4e6)
    slow = facts | {"fp32_tflops": 1e-3}
    assert region.floor_us(slow) == pytest.approx(2.0 + 1024 * 1024 / 1e3)
    assert region.floor_us({}) == 0.0


def mostly_products(x: Tensor, w: Tensor) -> Tensor:
    for _ in range(4):
        x = x @ w
    return x[:2].cumsum(-1)


def test_a_small_part_of_a_graph_is_skipped_and_explained(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(gate, "time_compiled", lambda *_: 1e7)
    x, w = torch.randn(512, 1024), torch.randn(1024, 1024)
    made = compiled(mostly_products, tmp_path)
    with torch.no_grad():
        torch.testing.assert_close(made(x, w), mostly_products(x, w))
        report = cudaforge_backend.explain(mostly_products, x, w, cache_dir=str(tmp_path))
    stats = cudaforge_backend.stats()
    assert stats.forged + stats.negative == 0
    assert stats.fallbacks == {"little_to_gain": 1}
    (region,) = report.regions
    assert region.status == "skipped"
    assert "of its graph's time" in region.why

    # A later compilation remembers it, and measures nothing.
    torch._dynamo.reset()
    cudaforge_backend.reset_stats()
    with torch.no_grad():
        compiled(mostly_products, tmp_path)(x, w)
    stats = cudaforge_backend.stats()
    assert (stats.misses, stats.forged, stats.spent) == (0, 0, [])


def test_what_was_skipped_is_remembered_where_the_budget_left_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    win_every_race(monkeypatch)
    asked: list[str] = []
    ended: list[bool] = [False]
    real = plan.forge_one

    def why_little(self: Any) -> str:
        asked.append(self.text.partition("(")[0])
        return "it is little" * (asked[-1] == "cumsum")

    def forge_one(*given: Any, in_graph: Any, **named: Any) -> bool:
        done = real(*given, in_graph=in_graph, **named)
        if not ended[0]:
            in_graph.together._began -= 1e4
        return done

    monkeypatch.setattr(forging._Forge, "_why_little", why_little)
    monkeypatch.setattr(plan, "forge_one", forge_one)
    monkeypatch.setattr(plan, "_order", lambda known, times: "cumsum" not in known.text())

    def two(x: Tensor) -> tuple[Tensor, Tensor]:
        return x.softmax(-1), x.cumsum(-1)

    x = torch.randn(8, 95)
    compiled(two, tmp_path)(x)
    assert asked == ["cumsum"]
    assert cudaforge_backend.stats().fallbacks == {"graph_budget": 1, "little_to_gain": 1}
    report = cudaforge_backend.explain(two, x, cache_dir=str(tmp_path))
    assert [region.status for region in report.regions] == ["miss", "skipped"]

    torch._dynamo.reset()
    cudaforge_backend.reset_stats()
    ended[0] = True
    torch.testing.assert_close(compiled(two, tmp_path)(x), two(x))
    assert asked == ["cumsum", "_softmax"]  # nothing is measured twice
    stats = cudaforge_backend.stats()
    assert stats.forged == 1 and stats.fallbacks == {"little_to_gain": 1}
