"""Which listeners receive the progress of forging."""

from __future__ import annotations

import dataclasses
import itertools
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cudaforge_backend
import pytest
import torch
from cudaforge_backend import AgentStep, Candidate, Ended, Event, Stage, Started, StillGoing
from cudaforge_backend.errors import CudaForgeWarning
from cudaforge_backend.integration import telling
from cudaforge_backend.integration.telling import Work, making, tell, tell_of_failed_background
from forged import compiled, lose_every_race, wait_for


@pytest.fixture(autouse=True)
def fresh_counters() -> Iterator[None]:
    cudaforge_backend.reset_stats()
    yield
    cudaforge_backend.reset_stats()


def test_a_failure_in_the_background_is_counted_and_warned_of_once() -> None:
    with pytest.warns(CudaForgeWarning, match="forging in the background failed, .*: no disk") as w:
        for _ in range(2):
            tell_of_failed_background(OSError("no disk of test_telling"))
    assert len(w) == 1
    assert cudaforge_backend.stats().fallbacks == {"background_failed": 2}


def region(key: str, left_s: float | None = None) -> Work:
    return Work(
        what=f"forging {key}",
        key=key,
        arch="cpu:none",
        text=f"sum({key})",
        left_s=None if left_s is None else lambda: left_s,
        is_region=True,
    )


def candidate(key: str, index: int, ns: float | None, best: bool) -> dict[str, Any]:
    raw = {"event": "candidate", "key": key, "index": index, "params": {}, "best": best}
    return raw | {"verdict": "accepted" if best else "wrong_values"} | ({"ns": ns} if ns else {})


def test_events_say_how_far_and_what_is_best_by_region() -> None:
    events: list[Any] = []
    listener = events.append
    with making(listener, Work(what="forging"), 2), making(listener, region("a", 30)):
        with making(listener, region("b")):
            for key in "ab":
                tell({"event": "start", "key": key, "arch": "cpu:none", "region": key}, listener)
            tell(candidate("a", 0, 900.0, True), listener)
            tell(candidate("b", 0, None, False), listener)
            tell(candidate("b", 1, 70.0, True), listener)
            tell({"event": "verified", "key": "b", "index": 1, "verdict": "accepted"}, listener)
        tell({"event": "stage", "key": "a", "stage": "race"}, listener)  # b has failed
    far = [(e.key, e.regions_done, e.regions, e.tried, e.best_ns) for e in events]
    assert far == [
        ("a", 0, 2, 0, None),
        ("b", 0, 2, 0, None),
        ("a", 0, 2, 1, 900.0),
        ("b", 0, 2, 1, None),
        ("b", 0, 2, 2, 70.0),
        ("b", 0, 2, 2, 70.0),
        ("a", 1, 2, 1, 900.0),
    ]
    kinds = [Started, Started, Candidate, Candidate, Candidate, Candidate, Stage]
    assert [type(event) for event in events] == kinds
    assert [event.proven for event in events if isinstance(event, Candidate)] == [False] * 3 + [
        True
    ]
    with pytest.raises(dataclasses.FrozenInstanceError):
        events[0].key = "c"


def test_the_time_that_is_left_is_that_of_the_graph_where_it_has_a_budget() -> None:
    left: list[Any] = []

    def listener(event: Any) -> None:
        left.append(event.most_s)

    def start() -> None:
        tell({"event": "start", "key": "a", "arch": "cpu:none", "region": "a"}, listener)

    with making(listener, region("a", 30)):
        start()
    with making(listener, Work(what="", left_s=lambda: 50)), making(listener, region("a", 30)):
        start()
    with making(listener, Work(what="", left_s=lambda: -1)), making(listener, region("a")):
        start()
    with making(listener, Work(what="")), making(listener, region("a")):
        start()
    assert left == [30, 50, 0, None]


def test_steps_of_agents_keep_their_facts() -> None:
    events: list[Any] = []
    usage = {"input_tokens": 3, "output_tokens": 4}
    tell({"event": "call", "key": "a", "round": 1, "role": "coder", "usage": usage, "seconds": 2.0},
         events.append)  # fmt: skip
    judged = {"event": "candidate", "key": "a", "round": 1, "verdict": "wrong_values"}
    tell({**judged, "message": "no", "best": False, "usd": 0.1}, events.append)
    tell({"event": "of a later version", "key": "a", "x": 1}, events.append)
    call, candidate, later = events
    assert (call.step, call.facts["usage"], call.what) == ("call", usage, "coder (2 s)")
    assert (candidate.number, candidate.round) == (1, {"message": "no", "usd": 0.1})
    assert isinstance(later, AgentStep) and later.facts == {"x": 1}


def test_no_two_seconds_without_an_event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a real forging, with intervals a tenth as long; the machine may be slow."""
    assert telling.EVERY_S <= 1
    monkeypatch.setattr(telling, "EVERY_S", 0.1)
    lose_every_race(monkeypatch)
    times: list[float] = []
    events: list[Event] = []

    def listen(event: Event) -> None:
        times.append(time.monotonic())
        events.append(event)

    cudaforge_backend.set_progress(listen)
    compiled(lambda x: torch.softmax(x * 3, -1), tmp_path)(torch.randn(8, 57))
    gaps = [after - before for before, after in itertools.pairwise(times)]
    assert max(gaps) < 1
    assert sum(isinstance(event, Ended) for event in events) >= 1
    beats = [event for event in events if isinstance(event, StillGoing)]
    assert beats and all("_softmax(float32[8, 57])" in event.text for event in beats if event.arch)
    cudaforge_backend.set_progress(None)
    wait_for(lambda: not [t for t in threading.enumerate() if t.name == "cudaforge-heartbeat"])


def test_regions_at_once_each_say_that_they_go_on_and_no_two_call_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(telling, "EVERY_S", 0.01)
    inside, most = [0], [0]
    events: list[Any] = []

    def listen(event: Event) -> None:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        time.sleep(0.002)
        events.append(event)
        inside[0] -= 1

    def forge(key: str) -> None:
        with making(listen, region(key)):
            tell({"event": "start", "key": key, "arch": "cpu:none", "region": key}, listen)
            for index in range(20):
                tell(candidate(key, index, None, False), listen)
            wait_for(lambda: bool(beats(key)))

    def beats(key: str) -> list[StillGoing]:
        return [e for e in list(events) if isinstance(e, StillGoing) and e.key == key]

    threads = [threading.Thread(target=forge, args=(key,)) for key in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] and all(beats(key) for key in "abc")
    assert all(event.tried <= 20 for event in events)
    said = len(events)
    time.sleep(0.1)
    assert len(events) == said


def test_an_error_in_the_clocks_thread_is_raised_by_the_next_event(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(telling, "EVERY_S", 0.01)
    called: list[Any] = []

    def listen(event: Event) -> None:
        called.append(event)
        raise ValueError("from the callback")

    with making(listen, region("a")):
        wait_for(lambda: bool(called))
        with pytest.raises(ValueError, match="from the callback"):
            tell(candidate("a", 0, None, False), listen)
    assert all(isinstance(event, StillGoing) for event in called)


def test_a_callback_cannot_forge() -> None:
    def listen(event: Event) -> None:
        with making(listen, region("b")):
            pass

    with pytest.raises(RuntimeError, match="must neither compile nor forge"):
        tell(candidate("a", 0, None, False), listen)
