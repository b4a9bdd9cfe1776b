"""The gate: what pays in place is served, what does not is Inductor's, and the verdict is kept."""

from __future__ import annotations

import functools
import itertools
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import cudaforge_backend
import pytest
import torch
from conftest import RunPython
from cudaforge_backend import _C, GraphStep, StillGoing, measure
from cudaforge_backend.integration import analysis, gate, graph_pass, telling
from cudaforge_backend.integration.outcome import Outcome
from cudaforge_backend.integration.rules import native_rules
from cudaforge_backend.stats import Spent, graph_gains
from forged import compiled, lose_every_race
from torch import fx, nn

ARCH = "cpu:x86-64-v4"
NAME = "a" * 64


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A store in memory that the gate writes to."""
    memory = _C.KernelStore.in_memory()

    class Fake:
        def __getattr__(self, name: str) -> Any:
            return (lambda: memory) if name == "store" else getattr(_C, name)

    monkeypatch.setattr(gate, "_C", Fake())
    monkeypatch.setattr(gate, "SECONDS", 0.01)
    calls = itertools.count()
    monkeypatch.setattr(gate, "_own_hits", lambda: Counter({"k": next(calls)}))
    return memory


def gated(
    without: Callable[..., Any], with_winners: Callable[..., Any], regions: tuple[str, ...] = ("k",)
) -> gate.GatedCallable:
    """The gate of a graph with these regions. The first one counts as run."""
    ways = {"inductor": without, "kernels": with_winners}
    return gate.GatedCallable(NAME, ARCH, regions, ways, Outcome(()), Spent())


def taking(seconds: float, calls: list[str], name: str) -> Callable[..., Any]:
    """A graph that takes its time and notes its calls."""

    def run(*inputs: Any) -> Any:
        calls.append(name)
        time.sleep(seconds)
        return (inputs[0] + 1,)

    return run


def judged() -> Any:
    """The fastest way, the regions and the speed-up that are stored."""
    stored = gate.stored(NAME, ARCH)
    assert stored is not None
    return stored[:3]


@pytest.mark.parametrize(
    ("without_s", "with_s", "pays"), [(0.004, 0.001, True), (0.001, 0.004, False)]
)
def test_the_faster_one_is_served_and_the_verdict_kept(
    store: Any, without_s: float, with_s: float, pays: bool
) -> None:
    calls: list[str] = []
    without, with_winners = taking(without_s, calls, "without"), taking(with_s, calls, "with")
    made = gated(without, with_winners, ("k", "lost"))
    x = torch.zeros(3)
    assert torch.equal(made(x)[0], x + 1)
    verdict = store.get_graph(NAME, ARCH)
    inductor, kernels = verdict["alternatives"]
    assert (inductor["name"], kernels["name"]) == ("inductor", "kernels")
    assert (kernels["ms"] < inductor["ms"]) is pays
    assert verdict["regions"] == ["k"]
    speedup = tuple(kernels["over"]["inductor"])
    fastest = "kernels" if pays else "inductor"
    assert judged() == (fastest, {"k"}, speedup)
    assert graph_gains() == ([speedup] if pays else [])
    calls.clear()
    made(x)
    assert calls == ["with" if pays else "without"]


@pytest.mark.parametrize("disturbed", [True, False])
def test_a_verdict_from_a_busy_machine_is_retaken_a_day_later(
    store: Any, monkeypatch: pytest.MonkeyPatch, disturbed: bool
) -> None:
    monkeypatch.setattr(_C.MachineLoad, "was_disturbed", lambda self: disturbed)
    made = gated(taking(0.004, [], "without"), taking(0.001, [], "with"))
    made(torch.zeros(3, 5))
    verdict = gate.stored(NAME, ARCH)
    assert verdict is not None and (verdict.fastest, verdict.stale) == ("kernels", False)
    assert verdict.sizes == ("float32[3, 5]",) and set(verdict.ms) == {"inductor", "kernels"}
    assert verdict.control is not None and verdict.control[0] <= 1.2 and verdict.control[2] >= 0.8
    facts = store.get_graph(NAME, ARCH)
    assert ("doubtful" in facts) is disturbed
    if disturbed:
        store.put_graph(NAME, ARCH, {**facts, "doubtful": facts["doubtful"] - 24 * 3600 - 1})
    again = gate.stored(NAME, ARCH)
    assert again is not None and again.stale is disturbed


def test_a_graph_is_another_one_in_another_mode() -> None:
    gm = fx.symbolic_trace(nn.Linear(2, 2))
    names = {gate.name_of(gm, [], {}, inductor) for inductor in ({}, {"max_autotune": True})}
    assert len(names) == 2


@pytest.mark.parametrize(
    ("took", "fastest"),
    [
        ({"inductor": 0.004, "eager": 0.001, "kernels": 0.002}, "eager"),
        ({"inductor": 0.004, "eager": 0.002, "kernels": 0.001}, "kernels"),
        ({"inductor": 0.001, "eager": 0.002, "kernels": 0.004}, "inductor"),
        ({"inductor": 0.004, "eager": 0.001}, "eager"),
        ({"inductor": 0.001, "eager": 0.004}, "inductor"),
    ],
)
def test_the_fastest_of_all_ways(store: Any, took: dict[str, float], fastest: str) -> None:
    cudaforge_backend.reset_stats()
    calls: list[str] = []
    ways = {name: taking(seconds, calls, name) for name, seconds in took.items()}
    outcome = Outcome(()) if "kernels" in took else None
    regions = ("k",) if outcome else ()
    made = gate.GatedCallable(NAME, ARCH, regions, ways, outcome, Spent())
    made(torch.zeros(3))
    assert {call for call in calls} == set(took)
    calls.clear()
    made(torch.zeros(3))
    assert calls == [fastest]
    stored = gate.stored(NAME, ARCH)
    assert stored is not None and stored.fastest == fastest
    assert cudaforge_backend.stats().graphs.get("eager", 0) == (fastest == "eager")
    entries = store.get_graph(NAME, ARCH)["alternatives"]
    assert [entry["name"] for entry in entries] == [n for n in gate.WAYS if n in took]
    assert set(entries[-1]["over"]) == set(took) - {entries[-1]["name"]}


def test_pairs_and_medians_that_disagree_are_a_busy_machines(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_C.MachineLoad, "was_disturbed", lambda self: False)
    monkeypatch.setattr(measure.Times, "speedup", lambda self, base, name: (1.2, 1.5, 1.8))
    ways = {"inductor": taking(0.001, [], "a"), "eager": taking(0.004, [], "b")}
    gate.GatedCallable(NAME, ARCH, (), ways, None, Spent())(torch.zeros(3))
    verdict = gate.stored(NAME, ARCH)
    assert verdict is not None and verdict.fastest == "inductor"
    assert "doubtful" in store.get_graph(NAME, ARCH)


def test_fewer_rounds_of_what_is_slow() -> None:
    assert gate.rounds_within(30, 1.0) == 28
    assert gate.rounds_within(30, 4.0) == 5
    assert gate.rounds_within(30, 5.0) == 4  # too few
    assert gate.rounds_within(30, 0.0) > 1000


@pytest.mark.parametrize(
    ("took", "fastest"),
    [
        ({"inductor": 0.03, "eager": 0.01, "kernels": 0.02}, "eager"),
        ({"inductor": 0.03, "eager": 0.04, "kernels": 0.02}, "kernels"),
        ({"inductor": 0.02, "eager": 0.0198}, "inductor"),  # a tenth is needed
    ],
)
def test_what_takes_seconds_is_timed_once(store: Any, took: dict[str, float], fastest: str) -> None:
    calls: list[str] = []
    ways = {name: taking(seconds, calls, name) for name, seconds in took.items()}
    kernels = "kernels" in took
    outcome = Outcome(()) if kernels else None
    regions = ("k",) if kernels else ()
    made = gate.GatedCallable(NAME, ARCH, regions, ways, outcome, Spent(), budget_s=0.1)
    made(torch.zeros(3))
    assert calls == [*took, *took, fastest]
    verdict = gate.stored(NAME, ARCH)  # which later processes go by
    assert verdict is not None and verdict.fastest == fastest and set(verdict.ms) == set(took)


def lose_every_race_of_regions(monkeypatch: pytest.MonkeyPatch) -> None:
    """And has graphs timed, for a moment."""
    timed = gate.obstacle
    lose_every_race(monkeypatch)
    monkeypatch.setattr(gate, "obstacle", timed)
    monkeypatch.setattr(gate, "SECONDS", 0.01)


def test_eager_runs_an_inference_graph_and_no_training_graph(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lose_every_race_of_regions(monkeypatch)
    monkeypatch.setattr(gate, "fastest_of", lambda overs, ms: "eager" if "eager" in overs else "?")
    x = torch.randn(8, 33)

    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, -1) * 2

    for on_miss in ("blocking", "fallback"):  # then by what is stored
        torch._dynamo.reset()
        cudaforge_backend.reset_stats()
        made = compiled(function, tmp_path, on_miss=on_miss)
        assert torch.equal(made(x), function(x))
        assert cudaforge_backend.stats().graphs == {"eager": 1}
    made(x.clone().requires_grad_()).sum().backward()
    assert cudaforge_backend.stats().graphs == {"eager": 1, "plain": 1}


def test_eager_runs_no_graph_that_draws_random_numbers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Inductor draws others, and which ones a seed gives must not depend on a time."""
    lose_every_race_of_regions(monkeypatch)
    offered: list[list[str]] = []
    real = gate.fastest_of
    monkeypatch.setattr(
        gate, "fastest_of", lambda overs, ms: (ms and offered.append([*overs])) or real(overs, ms)
    )
    for p in (0.0, 0.5):
        made = compiled(lambda x, p=p: torch.dropout(x.softmax(-1), p, True) * 2, tmp_path)
        made(torch.randn(8, 34))
        torch._dynamo.reset()
    assert offered == [["inductor", "eager"]]


def test_kernels_count_by_the_faster_of_the_others(store: Any) -> None:
    over = {"inductor": [2.9, 3.0, 3.1], "eager": [1.4, 1.5, 1.6]}
    eager = {"name": "eager", "ms": 1.5, "over": {"inductor": [1.9, 2.0, 2.1]}}
    kernels = {"name": "kernels", "ms": 1.0, "over": over}
    store.put_graph(NAME, ARCH, {"alternatives": [eager, kernels], "regions": ["k"]})
    assert judged() == ("kernels", {"k"}, (1.4, 1.5, 1.6))


def test_an_unknown_alternative_is_passed_over(store: Any) -> None:
    replayed = {"name": "captured", "ms": 0.1, "over": {"inductor": [3.0, 3.0, 3.0]}}
    kernels = {"name": "kernels", "ms": 1.0, "over": {"inductor": [1.1, 1.2, 1.3], "eager": []}}
    store.put_graph(NAME, ARCH, {"alternatives": [replayed, kernels, 5], "regions": ["k"]})
    assert judged() == ("kernels", {"k"}, (1.1, 1.2, 1.3))
    store.put_graph(NAME, ARCH, {"alternatives": [replayed], "regions": ["k"]})
    assert judged() == ("inductor", {"k"}, None)
    store.put_graph(NAME, ARCH, {"pays": True, "regions": ["k"]})
    assert gate.stored(NAME, ARCH) is None


def test_a_race_is_announced(store: Any) -> None:
    events: list[Any] = []
    cudaforge_backend.set_progress(events.append)
    gated(lambda x: (x + 1,), lambda x: (x + 1,))(torch.zeros(3))
    (event,) = events
    assert isinstance(event, GraphStep)
    assert (event.step, event.key, event.keys) == ("race", NAME, ("k",))


def test_a_race_shows_that_it_goes_on(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telling, "EVERY_S", 0.01)
    events: list[Any] = []
    cudaforge_backend.set_progress(events.append)
    gated(taking(0.05, [], ""), taking(0.05, [], ""))(torch.zeros(3))
    beats = [event for event in events if isinstance(event, StillGoing)]
    assert beats and {event.key for event in beats} == {NAME}


def test_buffers_are_written_once(store: Any) -> None:
    def count(buffer: torch.Tensor) -> Any:
        buffer += 1
        return (buffer.clone(),)

    buffer = torch.zeros(1)
    gated(count, count)(buffer)
    assert buffer.item() == 1


def test_random_state_is_left_alone(store: Any) -> None:
    def draw(x: torch.Tensor) -> Any:
        return (x + torch.rand(1),)

    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    assert torch.equal(gated(draw, draw)(torch.zeros(1))[0], expected)


def test_parameters_get_no_gradient_from_the_timing(store: Any) -> None:
    weight = nn.Parameter(torch.ones(3))
    gated(lambda w: (w * 2,), lambda w: (w * 2,))(weight)[0].sum().backward()
    assert weight.grad is not None
    assert torch.equal(weight.grad, torch.full((3,), 2.0))


def test_one_thread_decides(store: Any) -> None:
    calls: list[str] = []
    made = gated(taking(0.001, calls, "without"), taking(0.002, calls, "with"))
    threads = [threading.Thread(target=made, args=(torch.zeros(1),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert calls[-4:] == ["without"] * 4


def test_a_graph_that_cannot_be_timed_runs_without(store: Any) -> None:
    def fails(x: torch.Tensor) -> Any:
        raise RuntimeError("no")

    made = gated(lambda x: (x + 1,), fails)
    before = cudaforge_backend.stats().fallbacks.get("gate_failed", 0)
    with pytest.warns(UserWarning, match="could not be timed"):
        assert made(torch.zeros(1))[0].item() == 1
    assert cudaforge_backend.stats().fallbacks["gate_failed"] == before + 1
    assert cudaforge_backend.stats().graphs.get("plain") == 1
    assert store.get_graph(NAME, ARCH) is None


def test_a_graph_in_which_no_winner_ran_is_not_judged(store: Any) -> None:
    calls: list[str] = []
    made = gated(taking(0.002, calls, "without"), taking(0.001, calls, "with"), ("lost",))
    made(torch.zeros(1))
    assert calls[-1] == "without"
    assert judged() == ("inductor", frozenset(), None)
    assert cudaforge_backend.stats().graphs == {"winners_not_used": 1}


def function(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x * 2, -1)


def lose_every_region(patch: pytest.MonkeyPatch) -> None:
    """Has the pass find no region, as where strides are not those of the analysis."""
    patch.setattr(graph_pass, "find_regions", lambda *given: ([], Counter()))


@pytest.mark.parametrize("grad", [False, True])
def test_winners_that_are_lost_are_neither_served_nor_timed(
    all_win: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, grad: bool
) -> None:
    lose_every_region(monkeypatch)
    x = torch.randn(8, 47 + grad, requires_grad=grad)
    made = compiled(function, tmp_path)
    torch.testing.assert_close(made(x), function(x))
    graphs = cudaforge_backend.stats().graphs
    # A training graph is detected by its race, for which Inductor's own graph is compiled too.
    assert graphs == {"winners_not_used": 1}
    report = cudaforge_backend.explain(function, x, cache_dir=str(tmp_path))
    assert {region.status for region in report.regions} == {"unused"}
    assert "other strides or lost" in str(report)
    cudaforge_backend.reset_stats()
    torch._dynamo.reset()
    compiled(function, tmp_path)(x)
    assert cudaforge_backend.stats().graphs == {"winners_not_used": 1}


def test_a_backward_alone_may_have_the_winners(
    all_win: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.randn(8, 49, requires_grad=True)
    with monkeypatch.context() as patch:
        lose_every_region(patch)
        made = compiled(function, tmp_path, on_miss="fallback")
        result = made(x)
        assert cudaforge_backend.stats().graphs == {"winners_not_used": 1}
    result.sum().backward()
    assert cudaforge_backend.stats().graphs == {"substituted": 1}


def test_code_from_inductors_cache_reports_what_it_calls(all_win: None, tmp_path: Path) -> None:
    for _ in range(2):
        torch._dynamo.reset()
        cudaforge_backend.reset_stats()
        compiled(function, tmp_path, on_miss="fallback")(torch.randn(8, 50))
        assert cudaforge_backend.stats().graphs == {"substituted": 1}
    assert torch._dynamo.utils.counters["aot_autograd"]["autograd_cache_hit"] == 1


@pytest.mark.parametrize(
    ("speedup", "pays"),
    [
        ((0.95, 0.99, 1.02), False),
        ((0.99, 1.005, 1.02), False),
        ((0.98, 1.02, 1.05), False),
        ((1.001, 1.002, 1.003), True),
    ],
)
def test_what_counts_as_a_gain(speedup: tuple[float, float, float], pays: bool) -> None:
    assert gate.gains(speedup) is pays


def test_copies_keep_strides_offsets_and_sharing() -> None:
    base = torch.arange(60.0).reshape(6, 10)
    weight = nn.Parameter(torch.ones(3))
    given = [base[:, 2:5], base.t(), torch.ones(4, 1).expand(4, 3), weight, 7]
    made = gate.copies(given)
    for old, new in zip(given[:4], made[:4], strict=True):
        assert torch.equal(old, new) and old.stride() == new.stride()
        assert old.storage_offset() == new.storage_offset()
    made[0].zero_()
    assert made[1][2, 0] == 0 and base[0, 2] == 2  # shared among the copies, not with the caller
    assert made[0].untyped_storage().nbytes() == 60 * 4
    far = torch.zeros(1 << 20)[1 << 19 :][:7]
    (near,) = gate.copies([far])
    assert near.untyped_storage().nbytes() < 4096 and near.data_ptr() % 64 == far.data_ptr() % 64
    assert made[3].requires_grad and made[3].data_ptr() == weight.data_ptr() and made[4] == 7
    for offset in (1, 4, 24):  # storages that begin anywhere, also inside an element
        data = bytearray(torch.arange(40.0).numpy().tobytes())
        odd = torch.frombuffer(data, dtype=torch.float32, offset=offset, count=20)
        (copied,) = gate.copies([odd])
        assert copied.data_ptr() != odd.data_ptr() and torch.equal(copied, odd)
        assert copied.data_ptr() % 512 == odd.data_ptr() % 512 and copied.storage_offset() == 0


def analysed(function: Callable[..., Any], *inputs: torch.Tensor) -> Any:
    """The analysis of the one graph that Dynamo makes of `function`."""
    found: list[Any] = []

    def inspect(gm: fx.GraphModule, example_inputs: Any) -> Any:
        found.append(analysis.analyse(gm, example_inputs, native_rules()))
        return gm.forward

    torch.compile(function, backend=inspect)(*inputs)
    (one,) = found
    return one


def test_graphs_that_may_be_rerun() -> None:
    @torch.library.custom_op("cudaforge_test::noisy", mutates_args=())
    def noisy(x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    noisy.register_fake(torch.empty_like)
    weight = nn.Parameter(torch.ones(8, 16))

    def writes(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            weight.mul_(0.5)
        return torch.softmax(x * weight, -1)

    x = torch.randn(8, 16)
    pure = analysed(lambda x: torch.softmax(x * weight, -1), x)
    obstacle = functools.partial(gate.obstacle, fx.symbolic_trace(nn.ReLU()))
    assert obstacle(pure, {}) == ""
    assert "CUDA graphs" in obstacle(pure, {"triton.cudagraphs": True})
    with torch._inductor.config.patch({"triton.cudagraphs": True}):
        assert "CUDA graphs" in obstacle(pure, {})
    assert "noisy" in obstacle(analysed(lambda x: torch.softmax(noisy(x), -1), x), {})
    assert "writes" in obstacle(analysed(writes, x), {})
    with torch.no_grad():
        assert "writes" in obstacle(analysed(writes, x), {})
    held = fx.symbolic_trace(nn.ReLU())
    held.register_buffer("mean", torch.zeros(3))
    assert "of its own" in gate.obstacle(held, pure, {})


def test_parameters_that_a_graph_writes_to_are_written_to_once(tmp_path: Any) -> None:
    class Halving(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(64, 256))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                self.weight.mul_(0.5)
            return torch.softmax(x * self.weight, -1)

    model = Halving()
    options = {"on_miss": "blocking", "region_budget_s": 2, "cache_dir": str(tmp_path / "cache")}
    torch.compile(model, backend="cudaforge", options=options)(torch.randn(64, 256))
    assert torch.equal(model.weight, torch.full_like(model.weight, 0.5))


_CHECKPOINTED = """
import torch
from torch.utils.checkpoint import checkpoint
from cudaforge_backend.integration import gate
from forged import compiled, win_every_race
torch.manual_seed(0)
obstacle = gate.obstacle
win_every_race()
gate.obstacle = obstacle
packed = []
def f(x): return torch.softmax(x * 2, -1).cumsum(-1)
made = compiled(f, CACHE)
x = torch.randn(16, 40, requires_grad=True)
if torch.cuda.is_available():  # Inductor asks the GPU's name, and checkpoint bears no first use
    torch.cuda.init()
checkpoint(made, x, use_reentrant=False).sum().backward()
mine, x.grad = x.grad, None
f(x).sum().backward()
torch.testing.assert_close(mine, x.grad)
torch._dynamo.reset()
def g(x): return torch.softmax(x * 3, -1).cumsum(-1)
made = compiled(g, CACHE)
with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(1) or t, lambda t: t):
    made(x)
    first = len(packed)
    made(x)
assert 0 < first == len(packed) - first, packed
"""


def test_timing_is_not_seen_by_checkpointing_or_hooks(
    run_python: RunPython, tmp_path: Path
) -> None:
    run_python(f"CACHE = {str(tmp_path)!r}\n{_CHECKPOINTED}", ready=True)


class _SavesItsOutput(torch.autograd.Function):
    """As a compiled graph does whose backward needs an output."""

    made: ClassVar[list[weakref.ref[Any]]] = []

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        y = x.exp()
        ctx.save_for_backward(y)
        _SavesItsOutput.made.append(weakref.ref(ctx))
        return y

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return dy * ctx.saved_tensors[0]


def test_timing_a_training_graph_keeps_nothing_that_it_saved() -> None:
    x = torch.randn(8, requires_grad=True)
    gate.time_compiled(lambda x: (_SavesItsOutput.apply(x),), [x], training=True)
    assert _SavesItsOutput.made
    assert not any(context() is not None for context in _SavesItsOutput.made)
