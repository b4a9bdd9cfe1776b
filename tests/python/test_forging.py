"""One region's budget, its races and its record, with real kernels."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cudaforge_backend
import pytest
import torch
from command import Output
from conftest import RunPython
from cudaforge_backend import Candidate, Ended, Event, Stage, Started
from cudaforge_backend._native import _C
from cudaforge_backend.cli import main
from cudaforge_backend.integration import forging, inductors_turn, rivals
from cudaforge_backend.integration.ending import ForgingEndedError
from cudaforge_backend.options import parse
from cudaforge_backend.records import speedup_text
from forged import decide_every_race, host_ns, lose_for_want_of_time
from others import in_child
from torch._dynamo.convert_frame import compile_lock
from torch._inductor import config


def softmax(columns: int) -> _C.Signature:
    """The signature of a softmax over the rows of a float32[4, columns]."""
    spec = {"dtype": "float32", "sizes": [4, columns], "strides": [columns, 1]}
    node = {"op": "aten::_softmax", "args": [{"in": 0}, -1, False], "kwargs": {}, "outputs": [spec]}
    region = {
        "format": 1, "aliases": [], "numerics": {"deterministic": False}, "device": "cpu",
        "nodes": [node], "inputs": [{**spec, "alignment": 16}],
        "outputs": [{"node": 0, "out": 0}],
    }  # fmt: skip
    return _C.Signature.parse(json.dumps(region)).normalized()


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
    assert min(done.spent[phase] for phase in ("compile", "run", "rival", "race")) > 0
    low, median, high = timing["speedup"]
    assert low <= median <= high
    assert ("compiled" in record_of(done)["serves"]) == (low > 1.03)


@pytest.mark.parametrize(
    ("winner_s", "aten_s", "verdict"),
    [
        (1e-3, 0.0, "nothing faster than ATen"),
        (1e-3, 2e-3, "not faster than the kernel in the cache"),
    ],
)
def test_a_race_that_the_cached_winner_survives_reports_its_own_result(
    monkeypatch: pytest.MonkeyPatch, winner_s: float, aten_s: float, verdict: str
) -> None:
    ends: list[Ended] = []

    def tell(event: Any) -> None:
        if isinstance(event, Ended):
            ends.append(event)

    decide_every_race(monkeypatch, 0, 1e-3)
    assert forging.forge_region(softmax(26), 0, 30.0, tell).kind == "winner"
    decide_every_race(monkeypatch, winner_s, aten_s)
    done = forging.forge_region(softmax(26), 0, 30.0, tell, again=True)
    before, after = ends
    assert (before.kind, before.verdict, before.kept) == ("winner", "winner", None)
    assert after.kept is not None
    assert record_of(done)["timing"] == before.timing == after.kept["timing"]
    assert (done.kind, after.kind, after.verdict) == ("negative", "negative", verdict)
    own = after.timing
    assert own["winner_us"] >= 1e3 and own["best_rival"] == "aten" and own["speedup"] is not None
    assert (own["aten_us"] >= 2e3) == (aten_s > 0)
    kept = f"; the kernel in the cache stays: {speedup_text(before.timing)}, by the generators, "
    assert after.what.startswith(f"no winner: {verdict} (") and kept in after.what
    assert before.what.startswith(f"winner: {speedup_text(before.timing)}, ")


def test_without_time_nothing_is_tried() -> None:
    events: list[Any] = []
    done = forging.forge_region(softmax(17), 0, 1e-3, events.append)
    assert [type(event) for event in events] == [Started, Ended]
    record = record_of(done)
    assert record["kind"] == "negative" and record["provenance"]["out_of_time"] is True
    assert forging.worth_more_time(record, 1.0)


def test_inductor_compiles_nothing_that_it_cannot_end_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(forging, "MAX_CANDIDATES", 1)
    monkeypatch.setattr(rivals, "compile_seconds", lambda device: 60.0)
    events: list[Any] = []
    signature = softmax(18)
    done = forging.forge_region(signature, 0, 30.0, events.append)
    judged = [event for event in events if isinstance(event, Candidate)]
    assert [event.proven for event in judged] == [False, True]
    assert done.kind == "negative" and record_of(done)["provenance"]["why"] == "not_raced"
    record = record_of(done)
    assert record["timing"] == {}
    provenance = record["provenance"]
    assert provenance["out_of_time"] is True
    assert provenance["forge_seconds"] < provenance["budget_s"] == 30.0
    assert forging.worth_more_time(record, 46.0)
    assert not forging.worth_more_time(record, 44.0)
    # No kernel that lost or was never raced is left in the operator.
    x = torch.randn(4, 18)
    region = torch.ops.cudaforge.region_v1.default
    before = _C.stats()["hits"]
    (served,) = region([x], _C.region_id(done.key), signature.text)
    torch.testing.assert_close(served, torch.softmax(x, -1))
    assert _C.stats()["hits"] == before


def test_an_eager_kernel_with_too_little_time_is_retried(
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


def test_a_part_is_not_promoted_without_its_race_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    decide_every_race(monkeypatch, 0, 1e-3)

    def inductor(self: Any, signature: _C.Signature, part: str, left_s: float) -> Any:
        return None, not part, 0.0  # there is no time to compile the whole

    monkeypatch.setattr(forging._Forge, "inductor", inductor)
    done = forging.forge_region(softmax(19), 0, 30.0, within=softmax_times_two(19))
    assert done.kind == "negative" and record_of(done)["timing"] == {}


def softmax_times_two(columns: int) -> _C.Signature:
    """The signature of softmax(columns) and a product with 2."""
    region = softmax(columns).to_dict()
    spec = region["nodes"][0]["outputs"][0]
    args = [{"node": 0, "out": 0}, 2]
    region["nodes"].append(
        {"op": "aten::mul.Tensor", "args": args, "kwargs": {}, "outputs": [spec]}
    )
    region["outputs"] = [{"node": 1, "out": 0}]
    return _C.Signature.parse(json.dumps(region)).normalized()


@pytest.mark.parametrize("wins_inside", [True, False])
def test_a_part_is_raced_alone_and_inside_its_region(
    capsys: Output, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wins_inside: bool
) -> None:
    part, whole = softmax(24), softmax_times_two(24)
    made: list[tuple[str, str]] = []

    def decided(name: str, signature: _C.Signature, call: Any) -> Any:
        made.append((signature.key, name))
        wins = signature == part or wins_inside
        factor = 1 if signature == part else 2

        right: list[bool] = []

        def run(inputs: Any) -> None:
            if len(right) < 2:
                torch.testing.assert_close(call(inputs)[0], factor * inputs[0].softmax(-1))
                right.append(True)
            time.sleep(0.0 if (name == "winner") == wins else 2e-3)

        return run

    for name in ("winner", "aten"):
        real = getattr(forging._Forge, name)
        monkeypatch.setattr(
            forging._Forge, name, lambda self, s, n=name, r=real: decided(n, s, r(self, s))
        )
    by_inductor = forging._Forge.inductor

    def inductor(self: Any, signature: _C.Signature, part: str, left_s: float) -> Any:
        call, in_time, waited = by_inductor(self, signature, part, left_s)
        return decided("winner" if part else "inductor", signature, call), in_time, waited

    monkeypatch.setattr(forging._Forge, "inductor", inductor)
    monkeypatch.setattr(forging._Forge, "clock", lambda self: host_ns)
    monkeypatch.setattr(forging, "MAX_CANDIDATES", 2)
    done = forging.forge_region(part, 0, 600.0, within=whole)
    everyone = ["winner", "aten", "inductor"]
    assert made == [(s.key, name) for s in (part, whole) for name in everyone]
    record = record_of(done)
    timing = record["timing"]
    assert record["serves"] == (["compiled", "eager"] if wins_inside else ["eager"])
    assert timing["speedup"][0] > 1.03 and timing["winner_us"] < timing["inductor_us"]  # alone
    assert timing["within"]["key"] == whole.key
    assert (timing["within"]["speedup"][0] > 1.03) == wins_inside
    assert record["provenance"].get("why") == (None if wins_inside else "not_within")
    # Not on the wanted list after rm: forged by its key it would be raced alone.
    assert main(["cache", "rm", done.key, "--cache-dir", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert f"a part of region {whole.key[:12]}" in told and "wanted" not in told
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


def on_a_gpu(function: Any, *inputs: torch.Tensor) -> _C.Signature:
    """The region that all of `function` is, as if the inputs were on a GPU."""
    (report,) = cudaforge_backend.explain(function, *inputs, agents=True).regions
    region = {**report.signature, "device": "cuda"}
    return _C.Signature.parse(json.dumps(region)).normalized()


def test_inductor_is_no_rival_of_a_product_that_it_leaves_to_aten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    arch, x = "cuda:sm_90a", torch.randn(512, 512)
    product = on_a_gpu(lambda x: x @ x, x)
    assert product.ops == ("aten::mm",) and rivals.is_product_alone(product, arch)
    small = torch.randn(8, 8)
    for function, inputs in [
        (lambda x: x @ x, small),  # which Inductor may write itself
        (lambda x: torch.relu(x @ x), x),
        (lambda x: x.softmax(-1), x),
    ]:
        assert not rivals.is_product_alone(on_a_gpu(function, inputs), arch)
    assert rivals.is_product_alone(product, "cuda:sm_80")  # a library's
    assert not rivals.is_product_alone(product, "cpu:x86-64-v4")
    assert not rivals.chooses_kernels({})
    assert rivals.chooses_kernels({"max_autotune_gemm": True})
    with config.patch(max_autotune=True):
        assert rivals.chooses_kernels({}) and not rivals.chooses_kernels({"max_autotune": False})

    monkeypatch.setattr(rivals, "is_product_alone", lambda signature, arch: True)
    monkeypatch.setattr(rivals, "inductor_call", None)  # is not called
    timing = record_of(forging.forge_region(softmax(26), 0, 30.0))["timing"]
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
    assert _C.store().get(signature.key, _C.arch("cpu")) is None


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


def test_forging_does_not_wait_for_a_compilation_that_waits_for_it(
    turns: list[tuple[bool, bool]],
) -> None:
    signature, compiling = softmax(31), threading.Event()

    def progress(event: Event) -> None:
        if isinstance(event, Stage) and event.stage == "compile":
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
        "within": None,
    }
    return forging._Forge(**{**fields, **given})


@pytest.mark.parametrize("beside_program", [True, False])
def test_waiting_for_other_threads_takes_no_time_of_a_regions(
    monkeypatch: pytest.MonkeyPatch, beside_program: bool
) -> None:
    """Where the program waits for the region, all of it is taken off the limit of the next wait."""
    clock = _Clock(monkeypatch, waits_s=4.0)
    forge = _forge(beside_program=beside_program)
    for _ in range(3):
        call, in_time, waited = forge.inductor(forge.signature, "", 10.0)
        assert call is not None and in_time and waited == 4.0
    assert clock.now == 15.0  # three compilations
    assert clock.limits == ([None] * 3 if beside_program else [10.0, 6.0, 2.0])
    call, in_time, _ = forge.inductor(forge.signature, "", 0.0)
    assert call is None and not in_time


def test_a_forked_child_forges_nothing() -> None:
    def forges() -> int:
        with pytest.raises(ForgingEndedError):
            forging.forge_region(softmax(30), 0, 30.0)
        return 0 if parse(None, {"on_miss": "blocking"}).on_miss == "record" else 1

    assert in_child(forges) == 0


def test_an_interrupt_while_inductor_compiles_leaves_the_race_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    raced: list[Any] = []

    def compile_until_interrupted(self: Any, *_: Any) -> Any:
        self.interrupt()
        return None, True, 0.0

    monkeypatch.setattr(forging._Forge, "inductor", compile_until_interrupted)
    monkeypatch.setattr(forging._Forge, "inputs", lambda self, *_: raced.append(self))
    signature = softmax(33)
    with pytest.raises(ForgingEndedError):
        forging.forge_region(signature, 0, 30.0)
    assert raced == [] and _C.store().get(signature.key, _C.arch("cpu", 0)) is None


_INTERRUPTED = """
import signal, threading, torch, cudaforge_backend
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
starts = []
def tell(event):
    if isinstance(event, cudaforge_backend.Started): starts.append(event.key)
    if isinstance(event, cudaforge_backend.Candidate):
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
