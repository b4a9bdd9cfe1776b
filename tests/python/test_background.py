"""on_miss="background": plain first, swapped between two calls, plain for good after a failure."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import cudaforge_backend
import pytest
import torch
from command import Output, as_json
from conftest import RunPython
from cudaforge_backend._native import _C
from cudaforge_backend.cli import main
from cudaforge_backend.integration import background, forging, plan
from cudaforge_backend.integration.analysis import Analysis
from cudaforge_backend.integration.rules import native_rules
from cudaforge_backend.options import parse
from cudaforge_backend.records import DOUBTFUL, reason_of, verdict, why_code
from forged import (
    compiled,
    disturb_every_race,
    join_threads,
    lose_every_race,
    lose_for_want_of_time,
    win_every_race,
)

_OPTIONS = {"on_miss": "background"}


def function(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x * 5, -1).square()


@pytest.fixture
def forged(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Replaces forging: when the event is set, everything has been made."""
    gate = threading.Event()

    def forge(made: plan.Plan, *args: Any, **kwargs: Any) -> plan.Plan:
        gate.wait(60)
        won = tuple(replace(k, status="hit", checksum="t") for k in made.regions)
        return replace(made, regions=won)

    monkeypatch.setattr(background, "forge_misses", forge)
    return gate


def _finish(gate: threading.Event) -> None:
    gate.set()
    for thread in threading.enumerate():
        if thread.name == "cudaforge-background":
            thread.join(60)


@pytest.mark.parametrize("grad", [False, True])
def test_swaps_between_two_calls(forged: threading.Event, grad: bool) -> None:
    x = torch.randn(8, 41, requires_grad=grad)
    made = torch.compile(function, backend="cudaforge", options=_OPTIONS)
    torch.testing.assert_close(made(x), function(x))
    assert cudaforge_backend.stats().graphs == {"plain": 1}
    _finish(forged)
    torch.testing.assert_close(made(x), function(x))
    graphs = cudaforge_backend.stats().graphs
    assert (graphs["substituted"], graphs["swapped"]) == (1, 1)
    if grad:
        (mine,) = torch.autograd.grad(made(x).sum(), x)
        (theirs,) = torch.autograd.grad(function(x).sum(), x)
        torch.testing.assert_close(mine, theirs)


def test_a_failed_swap_stays_plain_with_one_warning() -> None:
    known = plan.Plan((), Analysis([], native_rules()))

    def fail(done: plan.Plan, inputs: Sequence[Any]) -> Any:
        raise RuntimeError("cannot swap")

    served = background.SwappingCallable(lambda x: x + 1, known, parse(None, None), fail)
    served.thread.join(60)
    served._ready = known
    with pytest.warns(cudaforge_backend.CudaForgeWarning, match="cannot swap"):
        assert served(1) == 2
    assert served(2) == 3
    assert cudaforge_backend.stats().fallbacks == {"swap_failed": 1}


def test_calls_under_hooks_stay_plain() -> None:
    """The backward of a checkpointed forward must recompute what the forward saved."""
    known = plan.Plan((), Analysis([], native_rules()))
    served = background.SwappingCallable(
        lambda x: "plain", known, parse(None, None), lambda done, inputs: lambda x: "swapped"
    )
    served.thread.join(60)
    served._ready = known
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        assert served(1) == "plain"
    assert served(1) == "swapped"
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        assert served(1) == "plain"


@pytest.mark.parametrize("grad", [False, True])
def test_forging_for_real(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, grad: bool) -> None:
    """The worker forges while two threads call the model: every result is right, the winners come
    in between two calls, and from then on they are served."""
    win_every_race(monkeypatch)
    x = torch.randn(8, 43, requires_grad=grad)
    made = compiled(function, tmp_path / "cache", on_miss="background", region_budget_s=25)
    expected = function(x)
    torch.testing.assert_close(made(x), expected)
    (forging,) = (t for t in threading.enumerate() if t.name == "cudaforge-background")
    wrong: list[str] = []

    def call() -> None:
        try:
            torch.testing.assert_close(made(x), expected)
        except Exception as error:
            wrong.append(str(error))

    def call_on() -> None:
        while forging.is_alive():
            call()
            forging.join(0.01)

    beside = threading.Thread(target=call_on)
    beside.start()
    call_on()
    beside.join()
    call()  # swaps at the latest
    stats = cudaforge_backend.stats()
    assert wrong == []
    assert stats.graphs == {"plain": 1, "substituted": 1, "swapped": 1}
    assert stats.fallbacks == {}
    assert (stats.forged, stats.negative) == (2 if grad else 1, 0)
    assert {r["provenance"]["budget_s"] for r in _C.store().records()} == {25.0}
    before = stats.hits
    y = made(x)
    torch.testing.assert_close(y, expected)
    assert cudaforge_backend.stats().hits == before + 1
    if grad:
        (mine,), (theirs,) = (torch.autograd.grad(z.sum(), x) for z in (y, function(x)))
        torch.testing.assert_close(mine, theirs)
        assert cudaforge_backend.stats().hits == before + 2
    assert sum(region.unserved for region in cudaforge_backend.stats().regions) == 0


_NEXT_PROCESS = """
import cudaforge_backend, torch
from test_background import function
from forged import compiled, lose_every_race, win_every_race
win_every_race()
x = torch.randn(8, 44)
for mode in MODES:
    torch._dynamo.reset()
    cudaforge_backend.reset_stats()
    compiled(function, FOLDER, on_miss=mode, region_budget_s=25)(x)
    stats = cudaforge_backend.stats()
    print(mode, stats.hits, stats.misses, stats.forged)
(region,) = cudaforge_backend.explain(function, x, cache_dir=FOLDER).regions
print(region.status)
"""


def next_process(run_python: RunPython, cache: Path, *modes: str) -> list[str]:
    """What another process prints, which compiles with these on_miss one after the other."""
    given = f"FOLDER, MODES = {str(cache)!r}, {modes!r}\n"
    return run_python(given + _NEXT_PROCESS, ready=True).stdout.split("\n")[:-1]


def a_day_later(cache: Path) -> None:
    """Has every doubtful record of a cache be a day old."""
    store = _C.KernelStore.open(str(cache), True)
    for record in store.records():
        place = (record["key"], record["arch"])
        kernel = (store.candidate(*place), store.binary(*place))
        store.put({**record, "doubtful": record["doubtful"] - 86400}, *kernel, replace=True)


@pytest.mark.parametrize("busy", [True, False])
def test_a_race_on_a_busy_machine_is_repeated_a_day_later(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, run_python: RunPython, busy: bool
) -> None:
    """It is served meanwhile, in other processes too."""
    win_every_race(monkeypatch)
    monkeypatch.setattr(forging, "program_is_busy", lambda: busy)
    cache = tmp_path / "cache"
    x = torch.randn(8, 44)
    made = compiled(function, cache, on_miss="background", region_budget_s=25)
    made(x)
    join_threads("cudaforge-background")
    torch.testing.assert_close(made(x), function(x))
    assert cudaforge_backend.stats().hits == 1
    (record,) = _C.store().records()
    assert (record["serves"], record["doubtful"] != 0) == (["compiled"], busy)
    (region,) = cudaforge_backend.explain(function, x, cache_dir=str(cache)).regions
    assert region.status == "hit"
    first = ["record 1 0 0", "blocking 1 0 0"]
    assert next_process(run_python, cache, "record", "blocking")[:2] == first
    if busy:
        a_day_later(cache)
        shown = next_process(run_python, cache, "record", "blocking", "record")
        assert shown == ["record 1 0 0", "blocking 1 1 1", "record 1 0 0", "hit"]


@pytest.mark.parametrize("budget_s", [0.001, 60])
def test_a_winner_awaiting_remeasurement_is_served_meanwhile(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, budget_s: float
) -> None:
    """Also where the graph's time does not suffice to do so."""
    win_every_race(monkeypatch)
    x = torch.randn(8, 47)
    compiled(function, tmp_path, on_miss="blocking", region_budget_s=25)(x)
    verdict = _C.KernelStore.verdict
    monkeypatch.setattr(
        _C.KernelStore,
        "verdict",
        lambda store, key, arch: (known := verdict(store, key, arch)) and {**known, "stale": True},
    )
    cudaforge_backend.reset_stats()
    torch._dynamo.reset()
    made = compiled(function, tmp_path, on_miss="blocking", graph_budget_s=budget_s)
    torch.testing.assert_close(made(x), function(x))
    stats = cudaforge_backend.stats()
    assert stats.hits == 1
    assert stats.forged + stats.negative == int(budget_s > 1)


@pytest.mark.parametrize("won", [True, False])
def test_lists_say_what_was_measured_on_a_busy_machine(
    capsys: Output, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, won: bool
) -> None:
    """But not for a kernel that lost: next to other work it looks faster than it is."""
    (win_every_race if won else lose_every_race)(monkeypatch)
    monkeypatch.setattr(forging, "program_is_busy", lambda: True)
    compiled(function, tmp_path, on_miss="background", region_budget_s=25)(torch.randn(8, 45))
    join_threads("cudaforge-background")
    folder = ("--cache-dir", str(tmp_path))
    for verb in ("ls", "wanted"):
        assert main(["cache", verb, *folder]) == 0
        told = capsys.readouterr().out
        assert (DOUBTFUL in told) is won
    rows = as_json(capsys, "cache", "wanted", *folder)
    assert [row["record"]["kind"] for row in rows] == (["winner"] if won else [])
    assert all(row["record"]["doubtful"] for row in rows)


def test_a_doubtful_race_is_repeated_by_another_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, run_python: RunPython
) -> None:
    """Pairs that say "faster" and medians that do not: no winner, for a day."""
    disturb_every_race(monkeypatch)
    cache = tmp_path / "cache"
    compiled(function, cache, on_miss="blocking", region_budget_s=25)(torch.randn(8, 44))
    records = list(_C.store().records())
    assert len(records) == 1, "it says nothing of the region's parts"
    for record in records:
        assert record["kind"] == "negative" and record["doubtful"]
        assert reason_of(record).endswith(", and yet no smaller median")
        assert verdict(record) == "the machine was too busy for a race"
    a_day_later(cache)
    assert next_process(run_python, cache, "record", "blocking")[:2] == [
        "record 0 0 0",
        "blocking 1 1 1",
    ]


def test_a_disturbed_race_takes_the_place_of_one_without_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with monkeypatch.context() as patch:
        lose_for_want_of_time(patch, raced=False)
        compiled(function, tmp_path, on_miss="blocking", region_budget_s=1)(torch.randn(8, 46))
    whys = {why_code(record) for record in _C.store().records()}
    assert whys and whys <= {"not_raced", "out_of_time"}
    disturb_every_race(monkeypatch)
    torch._dynamo.reset()
    compiled(function, tmp_path, on_miss="blocking", region_budget_s=25)(torch.randn(8, 46))
    (raced_again,) = (record for record in _C.store().records() if record["doubtful"])
    assert why_code(raced_again) == "doubtful"
    raced = cudaforge_backend.stats().negative
    torch._dynamo.reset()
    compiled(function, tmp_path, on_miss="blocking", region_budget_s=25)(torch.randn(8, 46))
    assert cudaforge_backend.stats().negative == raced, "this process goes by it"


_FIRST_CALL = """
import os, signal, sys, threading, torch, cudaforge_backend
from forged import compiled, lose_every_race, win_every_race
win_every_race()
torch.set_num_threads(1)
reached, go = threading.Event(), threading.Event()
def listen(event):
    verified = getattr(event, "proven", False)
    if ("verified" if verified else type(event).__name__) == WHEN:
        reached.set()
        go.wait(200 if STOP else 0)
cudaforge_backend.set_progress(listen)
f = lambda x: torch.softmax(x * 5, -1)
x = torch.randn(8, 47)
torch.testing.assert_close(compiled(f, FOLDER, on_miss="background")(x), f(x))
assert reached.wait(200)
"""


def _first_call(folder: Path, when: str, stop: bool) -> str:
    """Calls a model, and waits until its forging reports the event `when`; `stop`s it there."""
    return f"FOLDER, WHEN, STOP = {str(folder)!r}, {when!r}, {stop}\n" + _FIRST_CALL


@pytest.mark.parametrize("when", ["Started", "Candidate", "verified"])
def test_a_program_may_end_while_forging(run_python: RunPython, tmp_path: Path, when: str) -> None:
    done = run_python(_first_call(tmp_path / "cache", when, stop=False) + "print('the end')")
    assert done.stdout.endswith("the end\n")
    assert "terminate" not in done.stderr and "Traceback" not in done.stderr


def test_a_fork_while_forging(run_python: RunPython, tmp_path: Path) -> None:
    """The child compiles the region that its parent's thread is at: no lock stays taken. Without a
    GPU: Inductor cannot compile in the child of a process that uses CUDA."""
    fork = """
child = os.fork()
if child == 0:
    signal.alarm(100)
    status = 1
    try:
        cudaforge_backend.set_progress(None)
        torch._dynamo.reset()
        torch.testing.assert_close(compiled(f, FOLDER)(x), f(x))
        status = 0
    finally:
        os._exit(status)
ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
go.set()
sys.exit(ended)
"""
    script = _first_call(tmp_path / "cache", "Started", stop=True) + fork
    run_python(script, CUDA_VISIBLE_DEVICES="")


# A blocking compilation holds Dynamo's lock while it waits for a region that the background forges,
# and the background must compile rivals for that region.
_SAME_REGION = """
import threading
import torch
import cudaforge_backend
options = {"region_budget_s": 4, "cache_dir": CACHE}
begun = threading.Event()
def listen(event):
    if isinstance(event, cudaforge_backend.Candidate): begun.set()
cudaforge_backend.set_progress(listen)
def f(x): return torch.softmax(x * 3 + 1, -1).cumsum(-1)
def g(x): return torch.softmax(x * 3 + 1, -1).cumsum(-1)
x = torch.randn(96, 300)
with torch.no_grad():
    torch.compile(f, backend="cudaforge", options={"on_miss": "background", **options})(x)
    assert begun.wait(60)
    y = torch.compile(g, backend="cudaforge", options={"on_miss": "blocking", **options})(x)
print(torch.allclose(y, g(x), atol=1e-5))
"""


def test_blocking_waits_for_what_the_background_forges(
    run_python: RunPython, tmp_path: Path
) -> None:
    done = run_python(_SAME_REGION.replace("CACHE", repr(str(tmp_path / "cache"))))
    assert done.stdout.split() == ["True"]
