"""Steps of forging in words."""

from __future__ import annotations

from typing import Any

import pytest
from cudaforge_backend.steps import no_counters_text, step_text

RACE = {"winner_us": 5.0, "aten_us": 8.0, "inductor_us": 6.0, "best_rival": "inductor"}


@pytest.mark.parametrize(
    ("event", "said"),
    [
        (
            {"event": "region", "status": "negative", "region": "sum(float32[8])"},
            "no winner: sum(float32[8])",
        ),
        ({"event": "start", "region": "sum(float32[8])"}, "forging sum(float32[8]) ..."),
        (
            {"event": "candidate", "index": 3, "verdict": "accepted", "ns": 812.0, "best": True},
            "candidate 3: accepted, 0.8 us, the best so far",
        ),
        (
            {"event": "candidate", "index": 4, "verdict": "wrong_values"},
            "candidate 4: wrong_values",
        ),
        (
            {"event": "verified", "index": 3, "verdict": "accepted", "ns": 812.0},
            "candidate 3 on every input set: accepted",
        ),
        (
            {"event": "candidate", "round": 1, "verdict": "accepted", "ns": 500.0, "speedup": 2.0},
            "accepted, 0.5 us, about 2.00 times as fast as what it had to beat",
        ),
        ({"event": "rival", "rival": "inductor", "us": 6.0}, "to beat: Inductor, 6.0 us"),
        ({"event": "advice", "issue": "slow", "plan": "tile"}, "judge: slow -> tile"),
        ({"event": "something new", "key": "ab"}, "something new"),
    ],
)
def test_a_step_is_one_line(event: dict[str, Any], said: str) -> None:
    assert step_text(event) == said


def test_why_there_are_no_counters_is_one_line() -> None:
    said = no_counters_text("CUPTI does not profile this device:\n run as root", "cuda")
    assert said.endswith("what warps wait for (CUPTI does not profile this device: run as root)")


def test_ends_with_and_without_a_winner() -> None:
    won = {
        "event": "end", "kind": "winner", "serves": ["compiled"], "verdict": "winner",
        "reason": "", "seconds": 3.41, "timing": {**RACE, "speedup": [1.1, 1.2, 1.3]}, "kept": None,
    }  # fmt: skip
    assert step_text(won) == "winner: 1.20 times as fast as Inductor [1.10, 1.30], 3.4 s"
    lost = {**won, "kind": "negative", "serves": []}
    lost |= {"verdict": "nothing faster than Inductor", "reason": "0.9x"}
    assert step_text(lost) == "no winner: nothing faster than Inductor (0.9x), 3.4 s"
    kept = {"author": "generator:rows", "by_agent": False, "timing": won["timing"]}
    again = {
        **lost,
        "timing": {**RACE, "winner_us": 12.0, "speedup": [0.4, 0.5, 0.6]},
        "kept": kept,
    }
    stays = "the kernel in the cache stays: 1.20 times as fast as Inductor [1.10, 1.30]"
    own = "no winner: nothing faster than Inductor (0.9x)"
    assert step_text(again) == f"{own}; {stays}, by the generators, 3.4 s"
    none = {**lost, "verdict": "no right candidate", "timing": {}, "kept": None}
    assert step_text(none) == "no winner: no right candidate, 3.4 s"
