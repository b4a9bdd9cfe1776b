"""One region's budget, its races and its record, with real kernels."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from command import Output
from conftest import RunPython
from cudaforge_backend._native import _C
from cudaforge_backend.cli import main
from cudaforge_backend.integration import forging, inductors_turn, rivals
from cudaforge_backend.integration.ending import ForgingEndedError
from cudaforge_backend.records import speedup_text, summary
from cudaforge_backend.steps import race_text, step_text
from forged import decide_every_race, host_ns, lose_for_want_of_time
from torch._dynamo.convert_frame import compile_lock


def softmax(columns: int) -> str:
    """The canonical signature of a softmax over the rows of a float32[4, columns]."""
    spec = {"dtype": "float32", "sizes": [4, columns], "strides": [columns, 1]}
    node = {"op": "aten::_softmax", "args": [{"in": 0}, -1, False], "kwargs": {}, "outputs": [spec]}
    region = {
        "format": 1, "aliases": [], "numerics": {"deterministic": False}, "device": "cpu",
        "nodes": [node], "inputs": [{**spec, "alignment": 16}],
        "outputs": [{"node": 0, "out": 0}],
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
    assert ("compiled" in record_of(done)["serves"]) == (low > 1.03)


@pytest.mark.parametrize(
    ("winner_s", "aten_s", "verdict", "text"),
    [
        (1e-3, 0.0, "nothing faster than ATen", "0."),
        (1e-3, 2e-3, "not faster than the kernel in the cache", ""),
    ],
)
def test_a_race_that_does_not_beat_the_winner_in_the_cache_tells_its_own_result(
    monkeypatch: pytest.MonkeyPatch, winner_s: float, aten_s: float, verdict: str, text: str
) -> None:
    ends: list[dict[str, Any]] = []

    def tell(event: Any) -> None:
        if event["event"] == "end":
            ends.append(event)

    decide_every_race(monkeypatch, 0, 1e-3)
    assert forging.forge_region(softmax(26), 0, 30.0, tell).kind == "winner"
    decide_every_race(monkeypatch, winner_s, aten_s)
    done = forging.forge_region(softmax(26), 0, 30.0, tell, again=True)
    before, after = ends
    assert (before["kind"], before["verdict"], before["kept"]) == ("winner", "winner", None)
    assert record_of(done)["timing"] == before["timing"] == after["kept"]["timing"]
    assert (done.kind, after["kind"], after["verdict"]) == ("negative", "negative", verdict)
    own = after["timing"]
    assert own["winner_us"] >= 1e3 and own["best_rival"] == "aten" and own["speedup"] is not None
    assert (own["aten_us"] >= 2e3) == (aten_s > 0)
    said = race_text(after)
    assert said.startswith(f"{verdict}: {text}") and said.endswith(", by the generators")
    kept = "; the kernel in the cache stays: "
    assert step_text(after).startswith(f"no winner: {verdict} (") and kept in step_text(after)
    assert f"{kept}{speedup_text(before['timing'])}, " in said
    assert race_text(before) == f"winner: {speedup_text(before['timing'])}"


def test_without_time_nothing_is_tried() -> None:
    events: list[str] = []
    done = forging.forge_region(softmax(17), 0, 1e-3, lambda event: events.append(event["event"]))
    assert events == ["start", "end"]
    record = record_of(done)
    assert record["kind"] == "negative" and record["provenance"]["out_of_time"] is True
    assert forging.worth_more_time(record, 1.0)


def test_inductor_compiles_nothing_that_it_cannot_end_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(forging, "MAX_CANDIDATES", 1)
    monkeypatch.setattr(rivals, "compile_seconds", lambda device: 60.0)
    events: list[str] = []
    signature = softmax(18)
    done = forging.forge_region(signature, 0, 30.0, lambda event: events.append(event["event"]))
    assert events.count("candidate") == 1
    assert done.kind == "negative" and done.reason.startswith("not raced: region_budget_s")
    record = record_of(done)
    assert record["timing"] == {}
    provenance = record["provenance"]
    assert provenance["out_of_time"] is True
    assert provenance["forge_seconds"] < provenance["budget_s"] == 30.0
    assert forging.worth_more_time(record, 46.0)
    assert not forging.worth_more_time(record, 44.0)
    # No kernel that lost or was never raced is left in the operator.
    x = torch.randn(4, 18)
    region = torch.ops.cudaforge.region.default
    before = _C.stats()["hits"]
    (served,) = region([x], _C.region_id(done.key), signature)
    torch.testing.assert_close(served, torch.softmax(x, -1))
    assert _C.stats()["hits"] == before


def test_a_kernel_for_eager_calls_that_had_too_little_time_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lose_for_want_of_time(monkeypatch, raced=True)
    decide_every_race(monkeypatch, 1e-4, 4e-4, inductor_s=0)
    for budget in (5.0, 20.0):  # the same kernel, and the record is of what it was given last
        done = forging.forge_region(softmax(27), 0, budget)
        assert record_of(done)["serves"] == ["eager"]
        assert not forging.worth_more_time(record_of(done), 1.4 * budget)
        assert forging.worth_more_time(record_of(done), 1.6 * budget)
    decide_every_race(monkeypatch, 0, 1e-4)
    assert record_of(forging.forge_region(softmax(27), 0, 60.0))["serves"] == ["compiled", "eager"]


def test_a_budget_without_end_is_one_like_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forging, "MAX_CANDIDATES", 1)
    done = forging.forge_region(softmax(21), 0, 1e9)
    provenance = record_of(done)["provenance"]
    assert provenance["budget_s"] == 1e9 and "out_of_time" not in provenance
    assert record_of(done)["timing"]["rounds"] > 0


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
    clock = _Clock(monkeypatch, waits_s=0.0)
    part = _forge(within=softmax(19))

    def race(*_: Any) -> _Won:
        clock.now += 9.0
        return _Won()

    monkeypatch.setattr(part, "_race", race)
    assert part._race_all() is None
    assert clock.limits == [10.0]  # Inductor has compiled the part, and not the whole


def softmax_times_two(columns: int) -> str:
    """The signature of softmax(columns) and a product with 2."""
    region = json.loads(softmax(columns))
    spec = region["nodes"][0]["outputs"][0]
    args = [{"node": 0, "out": 0}, 2]
    region["nodes"].append(
        {"op": "aten::mul.Tensor", "args": args, "kwargs": {}, "outputs": [spec]}
    )
    region["outputs"] = [{"node": 1, "out": 0}]
    return _C.normalize(json.dumps(region))


@pytest.mark.parametrize("wins_inside", [True, False])
def test_a_part_is_raced_alone_and_inside_its_region(
    capsys: Output, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wins_inside: bool
) -> None:
    part, whole = softmax(24), softmax_times_two(24)
    races: list[tuple[str, list[str]]] = []

    def race(self: Any, contestants: Any, signature: str) -> Any:
        inputs = rivals.make_inputs(signature, self.device, 0)
        results = [call(inputs)[0] for _, call in contestants]
        for result in results:
            torch.testing.assert_close(result, results[0])
        names = [name for name, _ in contestants]
        races.append((signature, names))
        wins = signature == part or wins_inside
        calls = [lambda s, n=n: time.sleep(0.0 if (n == "winner") == wins else 2e-4) for n in names]
        return _C.race(names, calls, "cpu", 0, 0.3, host_ns)

    monkeypatch.setattr(forging._Forge, "_race", race)
    monkeypatch.setattr(forging, "MAX_CANDIDATES", 2)
    done = forging.forge_region(part, 0, 600.0, within=whole)
    everyone = ["winner", "aten", "inductor"]
    assert races == [(part, everyone), (whole, everyone)]
    record = record_of(done)
    timing = record["timing"]
    assert done.kind == ("winner" if wins_inside else "negative")
    assert timing["speedup"][0] > 1.03 and timing["winner_us"] < timing["inductor_us"]  # alone
    assert timing["within"]["key"] == _C.signature_key(whole)
    assert (timing["within"]["speedup"][0] > 1.03) == wins_inside
    said = summary(record)["verdict"]
    if wins_inside:
        assert said == "winner"
    else:
        assert said == f"faster alone, not within region {_C.signature_key(whole)[:12]}"
        assert (
            done.reason.startswith("faster alone (") and "but not inside the region" in done.reason
        )
    # What is removed is not wanted: forged by its key it would be raced alone.
    assert main(["cache", "rm", done.key, "--cache-dir", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert f"a part of region {_C.signature_key(whole)[:12]}" in told and "wanted" not in told
    assert _C.store().wanted() == []


def test_a_region_that_inductor_cannot_compile_has_one_rival_less(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*args: Any) -> Any:
        raise RuntimeError("no such kernel")

    monkeypatch.setattr(rivals, "inductor_call", refuse)
    with pytest.warns(UserWarning, match=r"Inductor could not compile .*: no such kernel"):
        done = forging.forge_region(softmax(25), 0, 30.0)
    timing = record_of(done)["timing"]
    assert timing["best_rival"] == "aten" and "inductor_us" not in timing


class _Wrapped(RuntimeError):
    """As Inductor gives what it meets inside."""

    inner_exception = ImportError("half imported")


@pytest.mark.parametrize(
    "error",
    [
        ImportError("half imported"),
        OSError("no space left"),
        DeprecationWarning("is deprecated"),
        _Wrapped("in a lowering"),
    ],
)
def test_what_says_nothing_of_the_region_ends_its_forging(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*args: Any) -> Any:
        raise error

    monkeypatch.setattr(rivals, "inductor_call", fail)
    signature = softmax(26)
    with pytest.raises(type(error), match=str(error)):
        forging.forge_region(signature, 0, 30.0)
    assert _C.store().get(_C.signature_key(signature), _C.arch("cpu")) is None


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> list[tuple[bool, bool]]:
    """Of each of Inductor's turns, whether it came before the budget of 30 s was spent by waiting,
    and with Dynamo's lock. Inductor compiles nothing."""
    turns: list[tuple[bool, bool]] = []
    real = inductors_turn.inductors_turn

    @contextlib.contextmanager
    def turn(*args: Any, **kwargs: Any) -> Iterator[float]:
        with real(*args, **kwargs) as waited:
            turns.append((waited < 20.0, compile_lock._is_owned()))
            yield waited

    def fail(*args: Any) -> Any:
        assert inductors_turn._turn._is_owned()
        raise RuntimeError("no such kernel of these tests")

    monkeypatch.setattr(forging, "inductors_turn", turn)
    monkeypatch.setattr(rivals, "inductor_call", fail)
    return turns


def test_inductor_compiles_in_its_turn(turns: list[tuple[bool, bool]]) -> None:
    with pytest.warns(UserWarning, match="no such kernel"):
        forging.forge_region(softmax(28), 0, 30.0)
    assert turns == [(True, True)]


def test_what_a_compilation_waits_for_does_not_wait_for_it(turns: list[tuple[bool, bool]]) -> None:
    with compile_lock, pytest.warns(UserWarning, match="no such kernel"):
        forging.forge_region(softmax(29), 0, 30.0)
    assert turns == [(True, False)]


def test_what_a_compilation_comes_to_wait_for_does_not_wait_for_it(
    turns: list[tuple[bool, bool]],
) -> None:
    signature, compiling = softmax(31), threading.Event()

    def progress(event: Mapping[str, Any]) -> None:
        if event.get("stage") == "compile":
            compiling.set()

    forges = threading.Thread(target=forging.forge_region, args=(signature, 0, 30.0, progress))
    with compile_lock, pytest.warns(UserWarning, match="no such kernel"):
        forges.start()
        assert compiling.wait(60)
        forging.forge_region(signature, 0, 30.0)
        forges.join()
    assert turns == [(True, False)]


class _Clock:
    """The time of forging.py, and of turns that are waited for so long."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, waits_s: float) -> None:
        self.now = 0.0
        self.limits: list[float | None] = []  # that the turns were given
        self._waits_s = waits_s
        monkeypatch.setattr(forging, "time", self)
        monkeypatch.setattr(forging, "inductors_turn", self._turn)
        monkeypatch.setattr(rivals, "inductor_call", self._compile)

    def monotonic(self) -> float:
        return self.now

    @contextlib.contextmanager
    def _turn(self, *_: Any, most_s: float | None, **__: Any) -> Iterator[float]:
        self.limits.append(most_s)
        self.now += self._waits_s
        yield self._waits_s

    def _compile(self, *_: Any) -> Any:
        self.now += 1.0
        return lambda inputs: []


def _forge(**given: Any) -> Any:
    """What forges softmax(18) within 10 s, without agents."""
    fields: dict[str, Any] = {
        "signature": softmax(18),
        "key": "0" * 64,
        "arch": "cpu",
        "device_index": 0,
        "budget_s": 10.0,
        "listener": None,
        "beside_program": False,
        "within": "",
    }
    return forging._Forge(**{**fields, **given})


class _Won:
    promoted = True
    reason = "won"

    def placed_in(self, *_: Any) -> _Won:
        return self

    def times_us(self) -> list[float]:
        return [1.0, 2.0]


@pytest.mark.parametrize("beside_program", [True, False])
def test_waiting_for_other_threads_takes_no_time_of_a_regions(
    monkeypatch: pytest.MonkeyPatch, beside_program: bool
) -> None:
    """Where the program waits for the region, all of it is taken off the limit of the next wait."""
    clock = _Clock(monkeypatch, waits_s=4.0)
    forge = _forge(beside_program=beside_program, within=softmax_times_two(18))
    monkeypatch.setattr(forge, "_race", lambda *_: _Won())
    assert forge._race_all() is not None
    assert clock.now == 15.0  # three compilations
    assert forge._left() == 10.0 - 3.0
    assert clock.limits == ([None] * 3 if beside_program else [10.0, 6.0, 2.0])


def test_waiting_is_not_taken_off_twice_where_agents_are_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = _Clock(monkeypatch, waits_s=4.0)

    def ask(*_: Any) -> str:
        clock.now += 100.0
        return "found"

    class NoSettings:
        def settings(self, rival: str, us: float) -> None: ...

    monkeypatch.setattr(_C, "agents", ask)
    forge = _forge()
    monkeypatch.setattr(forge, "_race", lambda *_: _Won())
    assert forge._ask(NoSettings(), None) == "found"
    assert clock.now == 105.0 and forge._left() == 10.0


def test_nothing_is_forged_amid_a_fork() -> None:
    """Its thread would wait for the end of the fork, and a handler amid that for the thread."""
    _C.before_fork()
    try:
        with pytest.raises(ForgingEndedError):
            forging.forge_region(softmax(30), 0, 30.0)
    finally:
        _C.after_fork_in_parent()


def test_a_forging_that_ends_while_it_is_looked_for_gives_its_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Run:
        def run(self) -> str:
            looked.wait(60)
            return "made"

    def has_ended_by_then(thread: threading.Thread) -> bool:
        if thread.name == "cudaforge-forge" and not looked.is_set():
            looked.set()
            thread.join()
        return is_alive(thread)

    looked = threading.Event()
    is_alive = threading.Thread.is_alive
    monkeypatch.setattr(threading.Thread, "is_alive", has_ended_by_then)
    assert forging._in_clean_thread(Run()) == "made"  # type: ignore[arg-type, comparison-overlap]
    assert looked.is_set()


_FORKING_HANDLER = """
import os, signal, threading, time
import torch
from cudaforge_backend.integration import forging
from cudaforge_backend.integration.ending import ForgingEndedError

parent, main = os.getpid(), threading.main_thread().ident
children, forked, interrupted = [], threading.Event(), threading.Event()

class Run:
    def run(self):
        if SECONDS is not None:  # after an interrupt
            signal.pthread_kill(main, signal.SIGINT)
            interrupted.wait(60)
            time.sleep(SECONDS)
        signal.pthread_kill(main, signal.SIGALRM)
        forked.wait(60)
        return "made"
    def interrupt(self):
        interrupted.set()

def fork(*_):
    children.append(os.fork())
    if os.getpid() == parent:
        forked.set()

signal.signal(signal.SIGALRM, fork)
signal.signal(signal.SIGINT, signal.default_int_handler)
made = ended = None
try:
    made = forging._in_clean_thread(Run())
except (KeyboardInterrupt, ForgingEndedError) as error:
    ended = type(error).__name__
if os.getpid() != parent:
    print("child", made, ended, flush=True)
    os._exit(0)
os.waitpid(children[0], 0)
print("parent", made, ended)
"""


@pytest.mark.parametrize("seconds_after_an_interrupt", [None, 0.1, 1.5])
def test_a_child_of_a_signals_handler_does_not_wait_for_a_forging(
    run_python: RunPython, seconds_after_an_interrupt: float | None
) -> None:
    """Nor where its parent has been interrupted, and waits for the step under way: silently at
    first."""
    shown = run_python(f"SECONDS = {seconds_after_an_interrupt}\n" + _FORKING_HANDLER).stdout
    if seconds_after_an_interrupt is None:
        assert shown == "child None ForgingEndedError\nparent made None\n"
    else:
        assert shown == "child None KeyboardInterrupt\nparent None KeyboardInterrupt\n"


def test_an_interrupt_while_inductor_compiles_leaves_the_race_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    raced: list[Any] = []

    def compile_until_interrupted(self: Any, signature: str) -> list[Any]:
        self.interrupt()
        return []

    monkeypatch.setattr(forging._Forge, "_inductor", compile_until_interrupted)
    monkeypatch.setattr(forging._Forge, "_race", lambda self, *_: raced.append(self))
    signature = softmax(33)
    with pytest.raises(ForgingEndedError):
        forging.forge_region(signature, 0, 30.0)
    assert raced == [] and _C.store().get(_C.signature_key(signature), _C.arch("cpu", 0)) is None


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


def test_an_interrupt_as_the_forgings_thread_starts_ends_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Run:
        def run(self) -> None:
            assert interrupted.wait(60)
            ended.append(True)

        def interrupt(self) -> None:
            interrupted.set()

    def start_and_interrupt(thread: threading.Thread) -> None:
        start(thread)
        if thread.name == "cudaforge-forge":
            raise KeyboardInterrupt

    interrupted, ended = threading.Event(), []
    start = threading.Thread.start
    monkeypatch.setattr(threading.Thread, "start", start_and_interrupt)
    with pytest.raises(KeyboardInterrupt):
        forging._in_clean_thread(Run())  # type: ignore[arg-type]
    assert ended == [True]
