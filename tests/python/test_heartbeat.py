"""Signs of life: only when something takes long, and not after its end."""

from __future__ import annotations

import logging
import re
import threading
import time
from pathlib import Path
from typing import Any

import cudaforge_backend
import pytest
import torch
from cudaforge_backend import heartbeat, records
from cudaforge_backend.records import counted
from forged import compiled, lose_for_want_of_time, wait_for

REGION = {"region": "sum(float32[8])", "key": "0" * 64, "arch": "cpu:none"}  # the cache has none
LOST = {"kind": "negative", "serves": [], "why": "not_within", "verdict": "no right candidate"}


def test_what_takes_long_is_said_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "EVERY_S", 0.02)
    lines: list[str] = []
    with heartbeat.Teller(lines.append, "reading") as beat:
        wait_for(lambda: len(lines) >= 2)
        beat.begin("writing")
        wait_for(lambda: any(line.startswith("writing (") for line in lines))
    time.sleep(0.1)
    said = len(lines)
    time.sleep(0.1)
    assert len(lines) == said and lines[0] == "reading (0 s)"


def test_what_is_short_is_not_mentioned() -> None:
    lines: list[str] = []
    with heartbeat.Teller(lines.append, "reading"):
        pass
    assert lines == []


def test_no_line_comes_after_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "EVERY_S", 0.01)
    began = threading.Event()
    lines: list[str] = []

    def say(text: str) -> None:
        began.set()
        time.sleep(0.05)
        lines.append(text)

    with heartbeat.Teller(say, "reading"):
        assert began.wait(20)
    said = len(lines)
    assert said
    time.sleep(0.2)
    assert len(lines) == said


def test_nobody_waits_for_ever_for_the_last_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "EVERY_S", 0.01)
    monkeypatch.setattr(heartbeat, "_LAST_LINE_S", 0.01)
    began, read = threading.Event(), threading.Event()

    def say(text: str) -> None:
        began.set()
        read.wait(20)

    with heartbeat.Teller(say, "reading"):
        assert began.wait(20)
    assert not read.is_set()
    read.set()


def test_forging_says_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "EVERY_S", 0.02)
    lines: list[str] = []
    with heartbeat.Teller(lines.append, "forging") as beat:
        for event in ("start", "candidate", "end", "start"):
            beat({"event": event, **REGION, **LOST})
        beat._began -= 50
        beat._since -= 500
        said = re.compile(
            r"forging sum\(float32\[8\]\): 0 candidates tried \(5\d s\); "
            r"1 region done so far \(5\d\d s\)"
        )
        wait_for(lambda: any(said.fullmatch(line) for line in lines))
        beat({"event": "start", **REGION})
        beat({"event": "end", "kind": "winner", "serves": ["compiled"]})
    said = re.compile(r"forged 3 regions \(.*\): 1 winner, 1 with no winner, 1 failed \(5\d\d s\)")
    assert said.fullmatch(beat.summary())


@pytest.mark.parametrize(
    ("step", "words", "end"),
    [
        (
            {"event": "ask", "role": "coder", "provider": "openai:m"},
            "asking the coder (openai:m)",
            {"event": "call", "role": "coder"},
        ),
        (
            {"event": "stage", "stage": "rivals"},
            "timing ATen and Inductor, which compiles first",
            {"event": "rival", "rival": "inductor", "us": 6.0},
        ),
    ],
)
def test_a_step_is_named_until_it_ends(
    monkeypatch: pytest.MonkeyPatch, step: dict[str, Any], words: str, end: dict[str, Any]
) -> None:
    monkeypatch.setattr(heartbeat, "EVERY_S", 0.02)
    lines: list[str] = []
    with heartbeat.Teller(lines.append, "forging") as beat:
        beat({"event": "start", **REGION})
        beat(step)
        said = f"forging sum(float32[8]): {words}, 0 candidates tried ("
        wait_for(lambda: any(line.startswith(said) for line in lines))
        beat(end)
        lines.clear()
        wait_for(lambda: lines[-1:] != [] and words not in lines[-1])


def forge(folder: Path, columns: int) -> None:
    compiled(lambda x: torch.softmax(x * 3, -1), folder)(torch.randn(4, columns))


@pytest.mark.parametrize("level", [logging.WARNING, logging.DEBUG])
def test_blocking_forging_says_that_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, level: int
) -> None:
    """With a log of every step, too."""
    lose_for_want_of_time(monkeypatch, raced=False)
    monkeypatch.setattr(heartbeat, "EVERY_S", 0.01)
    with caplog.at_level(level, "cudaforge.forge"):
        forge(tmp_path, 61)
    ours = [r for r in caplog.records if r.name == "cudaforge.forge"]
    said = [r.getMessage() for r in ours if r.levelno == logging.WARNING]
    assert (len(said) < len(ours)) == (level == logging.DEBUG)
    first, *lines, last = said
    assert first.startswith("cudaforge: forging kernels (regions: 1, and the parts of those that ")
    assert lines and all(line.startswith("cudaforge: forging") for line in lines)
    assert any("_softmax(float32[4, 61]): " in line for line in lines)
    forged = r"cudaforge: forged (\d+) regions \(.*\): 0 winners, (\d+) with no winner \("
    counts = re.match(forged, last)
    n = cudaforge_backend.stats()["negative"]
    again = f"; {counted(n, 'region')} had too little time: "
    assert last.endswith(f"{again}region_budget_s=46 or more tries again")
    assert counts and int(counts[1]) == int(counts[2]) == n


def test_what_had_too_little_time_asks_for_enough_for_all() -> None:
    said = "2 regions had too little time: region_budget_s="
    for above, budget in (([9.0, None, 4.5], 30), ([9.0, 45.0], 46)):
        again = records.try_again(above, "region_budget_s=")
        assert again == f"{said}{budget} or more tries again"
    assert records.try_again([None], "region_budget_s=") is None


def test_blocking_forging_with_a_callback_says_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lose_for_want_of_time(monkeypatch, raced=False)
    monkeypatch.setattr(heartbeat, "EVERY_S", 0.01)
    cudaforge_backend.set_progress(lambda event: None)
    with caplog.at_level(logging.WARNING):
        forge(tmp_path, 63)
    assert not [r for r in caplog.records if r.name.startswith("cudaforge")]
