"""Graphs that were planned before: the trace is spared as long as the cache says the same."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cudaforge_backend
import pytest
import torch
import torch.utils.checkpoint
from cudaforge_backend import _C, RegionFound
from cudaforge_backend.cli import main
from cudaforge_backend.integration import known_graphs, plan
from cudaforge_backend.integration.known_graphs import plan_name
from cudaforge_backend.integration.rules import native_rules
from cudaforge_backend.options import Settings, parse
from forged import compiled
from torch import fx


def function(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x * 3, -1).square()


@pytest.fixture
def traces(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """One entry for each graph that was traced."""
    made: list[str] = []
    real = plan.analyse

    def analyse(gm: fx.GraphModule, *args: Any) -> Any:
        made.append(gm.code)
        return real(gm, *args)

    monkeypatch.setattr(plan, "analyse", analyse)
    return made


def run(cache: Path, x: torch.Tensor, **options: Any) -> torch.Tensor:
    """The result of a compilation that knows no earlier one but through the cache."""
    torch._dynamo.reset()
    given = {"cache_dir": str(cache), **options}
    result: torch.Tensor = torch.compile(function, backend="cudaforge", options=given)(x)
    return result


def test_a_graph_without_winners_is_traced_once(tmp_path: Path, traces: list[str]) -> None:
    x = torch.randn(8, 43)
    events: list[Any] = []
    cudaforge_backend.set_progress(events.append)
    for _ in range(3):
        torch.testing.assert_close(run(tmp_path, x), function(x))
    assert len(traces) == 1
    assert len(events) == 3 and events[0] == events[1] == events[2]
    assert isinstance(events[0], RegionFound) and events[0].status == "miss"
    assert len(_C.store().wanted()) == 1
    assert cudaforge_backend.stats().graphs == {"plain": 3}
    run(tmp_path, torch.randn(8, 44))
    assert len(traces) == 2


def test_forging_retraces_and_its_winners_are_remembered(
    forged: Path, tmp_path: Path, traces: list[str]
) -> None:
    x = torch.randn(8, 45)
    run(tmp_path, x)
    events: list[Any] = []
    cudaforge_backend.set_progress(events.append)
    run(tmp_path, x, on_miss="blocking", region_budget_s=7)
    assert sum(isinstance(event, RegionFound) for event in events) == 1
    assert [r["provenance"]["budget_s"] for r in _C.store().records()] == [7]
    assert len(traces) == 2
    cudaforge_backend.reset_stats()
    torch.testing.assert_close(run(tmp_path, x), function(x))
    assert len(traces) == 2
    stats = cudaforge_backend.stats()
    assert stats.graphs == {"substituted": 1} and stats.hits == 1
    assert stats.saved_ns == sum(region.saved_ns for region in stats.regions) > 0


def test_a_graph_is_retraced_when_the_cache_has_changed(
    forged: Path, tmp_path: Path, traces: list[str]
) -> None:
    x = torch.randn(8, 46)
    compiled(function, tmp_path)(x)
    (record,) = _C.store().records()
    _C.store().delete(record["key"], record["arch"])
    run(tmp_path, x)
    assert len(traces) == 2


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"plan": 3, "left": {}},
        {"plan": [["k"]], "left": {}},
        {"plan": [[1, 2, 3, 4, 5]], "left": {}},
        {"plan": [["k", "cpu", "softmax", "miss", ""]], "left": {}},
        {"plan": [["a" * 64, "cpu", "softmax", "maybe", ""]], "left": {}},
        {"plan": [], "left": {"a": "b"}},
        {"plan": []},
    ],
)
def test_a_remembered_graph_in_another_form_is_ignored(
    facts: dict[str, Any], tmp_path: Path
) -> None:
    assert _C.use_cache(str(tmp_path)) is None
    name, arch = "a" * 64, _C.arch("cpu")
    _C.store().put_graph(name, arch, facts)
    assert known_graphs.recall(name, arch, None) is None
    assert cudaforge_backend.stats().fallbacks == {}


def test_fallback_writes_nothing(tmp_path: Path, traces: list[str]) -> None:
    x = torch.randn(8, 47)
    torch.compile(function)(x)  # what the processor can do is asked once a process, and kept
    torch._dynamo.reset()
    for _ in range(2):
        run(tmp_path / "cache", x, on_miss="fallback")
    assert len(traces) == 2 and not (tmp_path / "cache").exists()


def captured(function: Any, *inputs: torch.Tensor) -> tuple[fx.GraphModule, Sequence[Any]]:
    """Dynamo's graph of function(*inputs) and its inputs."""
    graphs: list[tuple[fx.GraphModule, Sequence[Any]]] = []

    def capture(gm: fx.GraphModule, inputs: Sequence[Any]) -> Any:
        graphs.append((gm, inputs))
        return gm.forward

    torch._dynamo.reset()
    torch.compile(function, backend=capture)(*inputs)
    (graph,) = graphs
    return graph


def test_inputs_that_share_memory_or_begin_elsewhere_make_another_name() -> None:
    def name(*inputs: torch.Tensor) -> str:
        gm, _ = captured(lambda a, b: torch.softmax(a + b, -1), *inputs)
        return plan_name(gm, inputs, parse(None, None), native_rules(), False)

    whole = torch.randn(65)
    first, second, later = whole[:32].view(4, 8), whole[32:64].view(4, 8), whole[33:].view(4, 8)
    apart = torch.randn(4, 8)
    assert len({name(first, apart), name(first, second), name(first, later)}) == 3
    assert name(first, apart) == name(torch.randn(4, 8), apart)


def test_the_graphs_inside_a_graph_are_in_the_name() -> None:
    def checkpointed(function: Any) -> Any:
        return lambda x: torch.utils.checkpoint.checkpoint(function, x, use_reentrant=False)

    x = torch.randn(4, 8, requires_grad=True)
    inside = (lambda x: torch.softmax(x, -1).square(), lambda x: torch.cumsum(x, -1).square())
    names = set()
    for function in inside:
        gm, inputs = captured(checkpointed(function), x)
        names.add(plan_name(gm, inputs, parse(None, None), native_rules(), True))
    assert len(names) == 2


def test_what_decides_the_regions_is_in_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    gm, inputs = captured(function, torch.randn(4, 8))
    rules = native_rules(heavy=True)

    defaults = parse(None, None)

    def name(settings: Settings = defaults, training: bool = False) -> str:
        return plan_name(gm, inputs, settings, rules, training)

    names = [name(), name(training=True), name(parse("max-autotune", None))]
    with torch.autocast("cpu", torch.bfloat16):
        names.append(name())
    with torch.no_grad():
        names.append(name())
    with torch.inference_mode():
        names.append(name())
    for owner, question, answer in (
        (torch, "get_default_dtype", torch.float64),
        (_C, "versions", {**_C.versions(), "verifier": 0}),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(owner, question, lambda answer=answer: answer)
            names.append(name())
    matmul = torch.backends.cuda.matmul
    for setting in (
        "allow_bf16_reduced_precision_reduction",
        "allow_fp16_reduced_precision_reduction",
    ):
        before = getattr(matmul, setting)
        setattr(matmul, setting, not before)
        names.append(name())
        setattr(matmul, setting, before)
    with torch.backends.cudnn.flags(allow_tf32=not torch.backends.cudnn.allow_tf32):
        names.append(name())
    torch.set_float32_matmul_precision("medium")
    names.append(name())
    torch.set_float32_matmul_precision("highest")
    torch.use_deterministic_algorithms(True)
    names.append(name())
    torch.use_deterministic_algorithms(False)
    assert len(set(names)) == len(names)
    assert name() == names[0] == name(parse(None, {"on_miss": "blocking"}))


@pytest.mark.parametrize("other", [{"verifier": 1}, {"torch": "2.10.0"}])
def test_what_others_judged_is_a_miss(
    other: dict[str, Any], forged: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    x = torch.randn(8, 45)
    compiled(function, forged)(x)
    store = _C.store()

    def stored() -> dict[str, Any]:
        """The one of these sizes; other tests use the cache too."""
        sizes = [[8, 45]]
        found = (
            r for r in store.records() if [i["sizes"] for i in r["signature"]["inputs"]] == sizes
        )
        return next(found)

    record = stored()
    place = record["key"], record["arch"]
    old = {**record, "versions": {**record["versions"], **other}}
    store.put(old, store.candidate(*place), store.binary(*place), True)
    assert record["current"] and not stored()["current"]
    for verb in ("ls", "stats"):
        assert main(["cache", verb, "--cache-dir", str(forged)]) == 0
        assert "judged by another torch or verifier" in capsys.readouterr().out
    cudaforge_backend.reset_stats()
    torch.testing.assert_close(run(forged, x, on_miss="fallback"), function(x))
    assert cudaforge_backend.stats().misses == 1
    assert cudaforge_backend.explain(function, x, cache_dir=str(forged)).regions[0].status == "miss"
    torch._dynamo.reset()
    compiled(function, forged)(x)
    assert stored()["current"]
    here = {k: v for k, v in _C.versions().items() if k != "rocksdb"}
    assert stored()["versions"] == here | {"device": record["versions"]["device"]}
