"""The regions of a graph that are forged side by side, and what they share."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path
from typing import Any

import cudaforge_backend
import pytest
import torch
from cudaforge_backend.integration import backend, gate, together
from cudaforge_backend.integration.inductors_turn import compilations_turn, no_compilation
from cudaforge_backend.integration.together import Together, Turns
from cudaforge_backend.options import parse
from forged import compiled, win_every_race
from torch import Tensor


def two_regions(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.softmax(-1), x.cumsum(-1)


@pytest.fixture
def side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has regions forged as they are for a GPU."""
    real = Together.__init__

    def init(self: Together, *given: Any, **named: Any) -> None:
        real(self, *given, **named)
        self.at_once = 4 if named["reserved"] else 1

    monkeypatch.setattr(Together, "__init__", init)


def test_races_go_before_searches_and_those_in_order() -> None:
    turns, order = Turns(), []

    def take(race: bool, number: int) -> None:
        with turns.take(race, number, lambda: None):
            order.append((race, number))

    waiting = [(False, 2), (False, 1), (True, 3), (True, 0)]
    threads = [threading.Thread(target=take, args=one) for one in waiting]
    with turns.take(False, 9, lambda: None):
        for thread in threads:
            thread.start()
        while len(turns._waiting) < len(waiting):
            time.sleep(0.01)
    for thread in threads:
        thread.join()
    assert order == [(True, 0), (True, 3), (False, 1), (False, 2)]


def test_who_is_to_stop_leaves_the_queue() -> None:
    turns = Turns()

    def stop() -> None:
        raise RuntimeError("stopped")

    with turns.take(False, 0, lambda: None):
        with pytest.raises(RuntimeError), turns.take(True, 1, stop):
            pass
        assert turns._waiting == []
    with turns.take(False, 1, stop):  # no thread waits: `stop` is not called
        pass


def test_a_race_waits_for_the_compilation_of_its_graph() -> None:
    entered = threading.Event()

    def race() -> None:
        with no_compilation(lambda: None):
            entered.set()

    thread = threading.Thread(target=race)
    with compilations_turn():
        thread.start()
        assert not entered.wait(0.3)
    thread.join()
    assert entered.is_set()


def test_time_is_kept_for_the_graph_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = parse(None, {"graph_budget_s": 60})
    cpu = torch.device("cpu")
    made = Together(settings, cpu, waited_for=True, reserved=True, timing_s=3.0)
    now = made._began
    monkeypatch.setattr(together.time, "monotonic", lambda: now)
    now += 5
    assert made.left_s() == pytest.approx(60 - 3 - 5)
    with made.compiling():  # Inductor's own seconds are none of the budget
        now += 20
        assert made.left_s() == pytest.approx(60 - 3 - 5)
    now += 1
    assert made.left_s() == pytest.approx(60 - 3 - 6)
    made.compiled(25.0, None)
    assert made.left_s() == pytest.approx(60 - 3 - 6 - 25)
    assert made.clock == made.left_s


def test_half_of_the_budget_is_for_the_regions_of_a_graph_that_compiles_slowly() -> None:
    settings = parse(None, {"graph_budget_s": 60})
    made = Together(settings, torch.device("cpu"), waited_for=True, reserved=True, graphs=2)
    made.compiled(1000.0, None)
    assert made.left_s() == pytest.approx(2 * 60 / 2, abs=1)  # forward and backward


def test_regions_are_forged_while_the_graph_is_compiled(
    side_by_side: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    win_every_race(monkeypatch)
    seen: list[set[str]] = []
    real = backend._without_kernels

    def without_kernels(*given: Any) -> Any:
        seen.append({thread.name for thread in threading.enumerate()})
        return real(*given)

    monkeypatch.setattr(backend, "_without_kernels", without_kernels)
    x = torch.randn(8, 90)
    made = compiled(two_regions, tmp_path)
    torch.testing.assert_close(made(x), two_regions(x))
    made(x)
    stats = cudaforge_backend.stats()
    assert stats.forged == 2 and stats.graphs == {"substituted": 1}
    assert len(seen) == 1  # the graph is compiled once without winners
    assert {"cudaforge-graph"} <= seen[0]
    assert stats.spent[0].regions == 2


def test_an_interruption_waits_for_the_work() -> None:
    """Though join() of an interrupted thread takes another for ended."""
    made = Together(parse(None, None), torch.device("cpu"), waited_for=True, reserved=True)
    begun, ended = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        while not made.stopped:
            time.sleep(0.01)
        time.sleep(0.3)
        ended.set()

    def interrupt() -> None:
        begun.wait()
        time.sleep(0.2)
        signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may ignore it
    try:
        with pytest.raises(KeyboardInterrupt), together.Beside(work, made) as beside:
            threading.Thread(target=interrupt).start()
            beside.result()
    finally:
        signal.signal(signal.SIGINT, before)
    assert ended.is_set()


def test_what_the_graph_takes_may_stay_unknown(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def no_memory(*_: Any) -> float:
        raise torch.OutOfMemoryError("for copies of the inputs")

    win_every_race(monkeypatch)
    monkeypatch.setattr(gate, "obstacle", lambda *_: "")
    monkeypatch.setattr(gate, "time_compiled", no_memory)
    x = torch.randn(8, 92)
    torch.testing.assert_close(compiled(two_regions, tmp_path)(x), two_regions(x))
    stats = cudaforge_backend.stats()
    assert stats.forged == 2 and "backend_failed" not in stats.fallbacks


def test_a_compilation_that_fails_ends_the_forging(
    side_by_side: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    failed = []

    def fail(*_: Any) -> Any:
        if not failed:
            failed.append(True)
            raise ValueError("no compiler")
        return lambda *inputs: two_regions(*inputs)

    monkeypatch.setattr(backend, "_without_kernels", fail)
    x = torch.randn(8, 91)
    with pytest.warns(cudaforge_backend.CudaForgeWarning, match="no compiler"):
        made = compiled(two_regions, tmp_path)(x)
    torch.testing.assert_close(made, two_regions(x))
    running = {thread.name for thread in threading.enumerate()}
    assert not {name for name in running if name.startswith(("cudaforge-graph", "cudaforge-reg"))}
