"""explain(): reports for inference and training, as data and as text."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cudaforge_backend
import pytest
import torch
from cudaforge_backend._native import _C
from cudaforge_backend.integration import analysis, forging, gate, plan
from cudaforge_backend.records import no_region
from forged import compiled, lose_for_want_of_time


def model(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x * 3, -1) + 1


def test_inference(tmp_path: Path) -> None:
    report = cudaforge_backend.explain(model, torch.randn(4, 9), cache_dir=str(tmp_path))
    data = json.loads(json.dumps(report.to_dict()))
    assert data["graphs"] == report.graphs == 1
    (region,) = report.regions
    assert data["regions"][0]["key"] == region.key and len(region.key) == 64
    assert region.status == "miss"
    assert "not forged" in region.why
    assert region.ops == "mul -> _softmax -> add"
    assert region.shapes == ("float32[4, 9]",)
    assert region.signature["nodes"][0]["op"] == "aten::mul.Tensor"


def test_it_ends_no_compiled_call_of_other_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dynamo refuses calls of compiled functions while a trace is marked, in every thread."""
    allowed: list[bool] = []
    real = analysis.analyse

    def analyse(*args: Any, **kwargs: Any) -> Any:
        allowed.append(not torch._dynamo.config.error_on_nested_fx_trace)
        return real(*args, **kwargs)

    monkeypatch.setattr(analysis, "analyse", analyse)
    cudaforge_backend.explain(model, torch.randn(4, 9), cache_dir=str(tmp_path))
    assert allowed == [True]


def test_it_takes_a_model() -> None:
    with pytest.raises(TypeError, match="explain takes a model and its inputs; got Tensor"):
        cudaforge_backend.explain(torch.randn(4, 9))


def test_its_run_is_no_eager_call_of_the_program(tmp_path: Path) -> None:
    x = torch.randn(4, 51)
    with cudaforge_backend.enable(on_miss="blocking", cache_dir=str(tmp_path)):
        report = cudaforge_backend.explain(model, x, cache_dir=str(tmp_path))
    assert [region.status for region in report.regions] == ["miss"]
    stats = cudaforge_backend.stats()
    assert (stats.eager, stats.forged + stats.negative) == ({}, 0)


def broken(x: torch.Tensor) -> torch.Tensor:
    y = torch.softmax(x * 3, -1)
    torch._dynamo.graph_break()
    return y.cumsum(-1)


@pytest.mark.parametrize("function", [model, broken, torch.nn.LayerNorm(9)])
def test_what_is_compiled_stays_so(
    tmp_path: Path, function: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    rows: list[object] = []  # of what each graph is compiled for

    def backend(gm: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> object:
        rows.append(inputs[-1].shape[0])
        return gm.forward

    torch._dynamo.reset()
    ours = torch.compile(function, backend=backend)
    ours(torch.randn(4, 9))
    n = len(rows)
    graphs = set()
    for size in range(3, 14):  # more than Dynamo's recompile_limit; 4 is among them
        report = cudaforge_backend.explain(function, torch.randn(size, 9), cache_dir=str(tmp_path))
        graphs.add(
            (
                report.graphs,
                {size} == {r.signature["inputs"][0]["sizes"][0] for r in report.regions},
            )
        )
    assert graphs == {(n, True)}
    ours(torch.randn(4, 9))
    assert len(rows) == n
    for size in (5, 6):  # compiled once, for every size
        ours(torch.randn(size, 9))
    assert len(rows) == 2 * n
    torch._dynamo.reset()


def test_a_compiled_module_is_explained_as_what_it_is(forged: Path) -> None:
    """Wrapped by torch.compile, and compiled in place; both stay so."""
    x = torch.randn(6, 37)
    plain = torch.nn.Sequential(torch.nn.Softmax(-1), torch.nn.LayerNorm(37))
    expected = cudaforge_backend.explain(plain, x, cache_dir=str(forged)).to_dict()
    assert expected["graphs"] == 1
    wrapped = torch.compile(plain, backend="eager")
    assert cudaforge_backend.explain(wrapped, x, cache_dir=str(forged)).to_dict() == expected

    class Own(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.softmax(x * 2, -1)

    graphs = 0

    def backend(gm: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> object:
        nonlocal graphs
        graphs += 1
        return gm.forward

    own = Own()
    own.compile(backend=backend)
    report = cudaforge_backend.explain(own, x, cache_dir=str(forged))
    assert (report.graphs, len(report.regions), graphs) == (1, 1, 0)
    own(x)
    assert graphs == 1


def test_it_leaves_no_size_behind(tmp_path: Path) -> None:
    sizes: list[object] = []

    def backend(gm: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> object:
        sizes.append(inputs[0].shape[0])
        return gm.forward

    torch._dynamo.reset()
    cudaforge_backend.explain(model, torch.randn(4, 9), cache_dir=str(tmp_path))
    torch.compile(model, backend=backend)(torch.randn(5, 9))
    assert sizes == [5]


def test_a_model_that_dynamo_no_longer_compiles_says_so(tmp_path: Path) -> None:
    torch._dynamo.reset()
    ours = torch.compile(model, backend="eager", dynamic=False)
    with torch._dynamo.config.patch(recompile_limit=1):
        for size in (3, 4):
            ours(torch.randn(size, 9))
    report = cudaforge_backend.explain(model, torch.randn(5, 9), cache_dir=str(tmp_path))
    assert report.graphs == 0 and "Dynamo made no graph: " in str(report)
    torch._dynamo.reset()


class Recurrent(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = torch.nn.GRU(4, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.cell(x)[0]


def test_a_recurrent_model_reports_why_it_has_no_graph(tmp_path: Path) -> None:
    report = cudaforge_backend.explain(Recurrent(), torch.randn(2, 3, 4), cache_dir=str(tmp_path))
    assert report.graphs == 0 and "torch.nn.GRU to eager PyTorch" in report.no_graph
    assert report.no_graph in str(report)


def test_as_text(forged: Path) -> None:
    x = torch.randn(16, 77)
    compiled(model, forged)(x)
    text = str(cudaforge_backend.explain(model, x, cache_dir=str(forged)))
    first, second, third = text.splitlines()
    assert first == "graphs: 1, regions: 1"
    assert second.split()[0] == "hit" and "mul -> _softmax -> add(float32[16, 77])" in second
    assert "a winner is in the cache: " in third and " times as fast as ATen [" in third


def test_winners_that_do_not_pay_in_place_are_unused(
    forged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.randn(16, 78)
    compiled(model, forged)(x)
    asked: list[str] = []
    monkeypatch.setattr(gate, "stored", lambda name, arch: asked.append(name))
    torch._dynamo.reset()
    compiled(model, forged)(x)
    (region,) = cudaforge_backend.explain(model, x, cache_dir=str(forged)).regions
    assert region.status == "hit"
    assert len(asked) == 2 and asked[0] == asked[1]  # the graph that the backend asks about
    verdict = gate.Verdict(False, frozenset({region.key}))
    monkeypatch.setattr(gate, "stored", lambda name, arch: verdict)
    report = cudaforge_backend.explain(model, x, cache_dir=str(forged))
    assert report.regions[0].status == "unused"
    assert "no faster with it" in str(report) and "times as fast" not in str(report)


def test_a_wrapped_module_is_asked_about_by_the_name_that_the_backend_gives_its_graph(
    forged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Module(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.softmax(x * 3, -1) + 1

    x = torch.randn(16, 79)
    wrapped = compiled(Module(), forged)
    wrapped(x)
    asked: list[str] = []
    monkeypatch.setattr(gate, "stored", lambda name, arch: asked.append(name))
    torch._dynamo.reset()
    wrapped(x)
    assert cudaforge_backend.explain(wrapped, x, cache_dir=str(forged)).regions[0].status == "hit"
    assert len(asked) == 2 and asked[0] == asked[1]


@pytest.mark.parametrize("raced", [True, False])
def test_a_region_that_had_too_little_time_says_how_much_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raced: bool
) -> None:
    lose_for_want_of_time(monkeypatch, raced)
    x = torch.randn(16, 80)
    compiled(model, tmp_path, region_budget_s=4)(x)
    report = cudaforge_backend.explain(model, x, cache_dir=str(tmp_path))
    assert {region.status for region in report.regions} == {"negative"}
    assert {region.retry_above_s for region in report.regions} == {6.0}
    n = len(report.regions)
    text = str(report)
    words = "nothing faster than ATen (" if raced else "out of time, not raced"
    assert text.count(words) == n and text.count("  no winner ") == n
    assert " had too little time: " in text
    assert "region_budget_s=30 or more" in text and "--region-budget 30," in text
    assert text.count("; too little time\n") == n


def test_training_has_the_backward_too(tmp_path: Path) -> None:
    x = torch.randn(4, 9, requires_grad=True)
    report = cudaforge_backend.explain(model, x, cache_dir=str(tmp_path))
    ops = [n["op"] for r in report.regions for n in r.signature["nodes"]]
    assert {"aten::_softmax", "aten::_softmax_backward_data"} <= set(ops)


def test_every_part_that_was_forged_is_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forge(signature: _C.Signature, *args: object, **options: object) -> forging.Forged:
        record = {
            "kind": "negative", "key": signature.key, "arch": _C.arch("cpu"),
            "signature": signature.to_dict(), "verification": {}, "timing": {},
            "provenance": {"reason": "a test"}, "versions": _C.versions(),
        }  # fmt: skip
        _C.store().put(record, None, b"")
        return forging.Forged(signature.key, "negative", "a test")

    monkeypatch.setattr(plan, "forge_region", forge)
    layers = [torch.nn.Linear(12, 16), torch.nn.LayerNorm(16), torch.nn.GELU()]
    net = torch.nn.Sequential(*layers, torch.nn.Linear(16, 5))

    def loss(x: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(net(x), label)

    inputs = torch.randn(8, 12), torch.randint(5, (8,))
    compiled(loss, tmp_path)(*inputs)
    stored = {record["key"] for record in _C.store().records()}
    report = cudaforge_backend.explain(loss, *inputs, cache_dir=str(tmp_path))
    assert [region.status for region in report.regions] == ["negative"] * len(stored)
    assert {region.key for region in report.regions} == stored
    # One that is no region of the graph as it is now divided.
    analysis = [region.ops for region in report.regions]
    assert "_log_softmax_backward_data -> sum" in analysis


def test_reasons_for_what_is_left(tmp_path: Path) -> None:
    report = cudaforge_backend.explain(
        lambda x: x.sum(-1), torch.randn(4, 9, dtype=torch.complex64), cache_dir=str(tmp_path)
    )
    assert report.regions == ()
    assert report.left
    assert all(f"run by PyTorch: {reason}" in str(report) for reason in report.left)
    assert "no region was found" in str(report)


def test_what_can_be_done_about_what_is_left_is_said(tmp_path: Path) -> None:
    x = torch.ones(4, 9, dtype=torch.int8)
    report = cudaforge_backend.explain(lambda x: x.amax(-1), x, cache_dir=str(tmp_path))
    said = "  run by PyTorch: unsupported_dtype (1)\n    unsupported_dtype: kernels are made for "
    assert said in str(report)


def test_a_model_without_regions_says_so(tmp_path: Path) -> None:
    report = cudaforge_backend.explain(torch.relu, torch.randn(4), cache_dir=str(tmp_path))
    _, said, *_ = str(report).splitlines()
    assert said == f"  {no_region([])}" and "no built-in generator makes" in said


def test_it_says_whose_regions_they_are(tmp_path: Path) -> None:
    layer, x = torch.nn.LayerNorm(16), torch.randn(4, 16)
    report = cudaforge_backend.explain(layer, x, cache_dir=str(tmp_path))
    assert report.training and "gradients are on" in str(report)
    with torch.no_grad():
        report = cudaforge_backend.explain(layer, x, cache_dir=str(tmp_path))
    assert not report.training and "gradients are on" not in str(report)


def test_what_torch_is_set_to_is_a_reason(tmp_path: Path) -> None:
    torch.set_default_dtype(torch.float64)
    try:
        report = cudaforge_backend.explain(model, torch.randn(4, 9), cache_dir=str(tmp_path))
    finally:
        torch.set_default_dtype(torch.float32)
    assert report.regions == () and report.left == {"default_dtype": 1}


def test_a_miss_whose_forging_failed_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object, **options: object) -> None:
        raise RuntimeError("there is no compiler")

    monkeypatch.setattr(plan, "forge_region", fail)
    x = torch.randn(16, 79)
    torch._dynamo.reset()
    options = {"on_miss": "blocking", "cache_dir": str(tmp_path)}
    with pytest.warns(cudaforge_backend.CudaForgeWarning, match="there is no compiler"):
        torch.compile(model, backend="cudaforge", options=options)(x)
    (region,) = cudaforge_backend.explain(model, x, cache_dir=str(tmp_path)).regions
    assert (region.status, region.why) == (
        "miss",
        "forging it failed in this process: there is no compiler",
    )
