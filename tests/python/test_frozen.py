"""options={"frozen_weights": True}: which inputs of a graph are frozen, and what the promise means
for compiled models."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import cudaforge_backend
import pytest
import torch
from cudaforge_backend._native import _C
from cudaforge_backend.integration import analysis, backend, frozen, known_graphs, rules
from cudaforge_backend.integration.graph_pass import SubstitutePass
from cudaforge_backend.integration.partition import find_regions
from cudaforge_backend.options import parse
from forged import compiled
from torch import Tensor, fx, nn

HEAVY = dataclasses.replace(
    rules.native_rules(heavy=True, agents=True), why_not_generated=lambda signature: None
)


class Weights(nn.Module):
    """Products with all kinds of tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(32, 32)
        self.register_buffer("kept", torch.randn(32, 32))
        self.register_buffer("changed", torch.randn(32, 32))
        self.attribute = torch.randn(32, 32)

    def forward(self, x: Tensor, y: Tensor) -> list[Tensor]:
        products = {
            "parameter": self.linear(x),
            "buffer": x @ self.kept,
            "part of a buffer": x[:, :16] @ self.kept[:16],
            "changed": x @ self.changed,
            "attribute": x @ self.attribute,
            "input": x @ y,
            "computed": x @ (self.kept * 2),
        }
        self.changed.add_(1)
        return list(products.values())


def frozen_inputs(signature: _C.Signature) -> list[int]:
    inputs = signature.to_dict()["inputs"]
    return [i for i, spec in enumerate(inputs) if spec.get("frozen")]


def traced(model: Callable[..., Any], *inputs: Tensor, note: bool = True) -> list[list[int]]:
    """The frozen inputs of each product of the model, in order."""
    found: list[list[int]] = []

    def inspect(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Any:
        if note:
            frozen.note_weights(gm)
        for graph in analysis.analyse(gm, example_inputs, HEAVY).graphs():
            regions, _ = find_regions(
                graph, HEAVY, lambda region, within: region.signature.ops.count("aten::mm") <= 1
            )
            found.extend(
                frozen_inputs(region.signature)
                for region in regions
                if "mm" in region.signature.describe()
            )
        return gm

    with torch.no_grad():
        torch.compile(model, backend=inspect)(*inputs)
    return found


def test_weights_that_do_not_change_are_frozen() -> None:
    x, y = torch.randn(8, 32), torch.randn(32, 32)
    assert traced(Weights(), x, y) == [[2], [1], [1], [], [], [], []]
    torch._dynamo.reset()
    assert traced(Weights(), x, y, note=False) == [[]] * 7


def test_views_that_inductor_passes_on_are_frozen() -> None:
    cube = nn.Parameter(torch.randn(4, 8, 32))
    views: list[tuple[Callable[[Tensor], Tensor], bool]] = [
        (lambda w: w.view(32, 32), True),
        (lambda w: w.view(32, 32).t(), True),
        (lambda w: w[:, 1].t(), True),
        (lambda w: w.permute(1, 0, 2).reshape(32, 32), False),  # a copy
        (lambda w: w.permute(2, 0, 1).flatten(1).t(), False),  # merges what is not contiguous
        (lambda w: w.view(32, 32) + 1, False),
    ]
    for view, is_frozen in views:
        torch._dynamo.reset()
        x = torch.randn(8, view(cube).shape[0])
        found = traced(lambda x, view=view: x @ view(cube), x)
        assert found == [[1] if is_frozen else []]


def test_a_parameter_of_no_module_is_a_weight() -> None:
    weight, constant = nn.Parameter(torch.randn(32, 32)), torch.randn(32, 32)
    assert traced(lambda x: x @ weight + x @ constant, torch.randn(8, 32)) == [[1], []]


def test_keys_differ_by_the_promise_alone() -> None:
    keys: dict[bool, set[str]] = {}
    for note in (False, True):
        torch._dynamo.reset()

        def inspect(gm: fx.GraphModule, example_inputs: Sequence[Any], note: bool = note) -> Any:
            if note:
                frozen.note_weights(gm)
            graphs = analysis.analyse(gm, example_inputs, HEAVY).graphs()
            regions = [region for graph in graphs for region in find_regions(graph, HEAVY)[0]]
            keys[note] = {region.key for region in regions}
            return gm

        with torch.no_grad():
            torch.compile(nn.Linear(32, 32), backend=inspect)(torch.randn(8, 32))
    assert len(keys[True]) == 1 and keys[True].isdisjoint(keys[False])


def test_inductors_caches_distinguish_frozen_weights() -> None:
    winners = {"a" * 64: "1"}
    uuids = {
        SubstitutePass(winners, HEAVY, weights).uuid()
        for weights in (None, frozen.Weights((), 2), frozen.Weights((0,), 2))
    }
    assert len(uuids) == 3


def test_plans_of_graphs_distinguish_frozen_weights() -> None:
    gm = fx.symbolic_trace(nn.Linear(4, 4))
    settings = parse(None, {"frozen_weights": True})

    def name() -> str:
        return known_graphs.plan_name(gm, [torch.randn(2, 4)], settings, HEAVY, False)

    before = name()
    frozen.note_weights(gm)
    assert name() != before


@pytest.mark.parametrize("value", [1, "yes", None])
def test_the_option_takes_a_bool(value: Any) -> None:
    assert not parse(None, None).frozen_weights
    assert parse(None, {"frozen_weights": True}).frozen_weights
    with pytest.raises(cudaforge_backend.OptionError, match="frozen_weights"):
        parse(None, {"frozen_weights": value})


def test_eager_calls_have_no_such_option() -> None:
    with pytest.raises(cudaforge_backend.OptionError, match="frozen_weights"):
        cudaforge_backend.enable(frozen_weights=True)


def test_training_ignores_it_with_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(backend, "warn_once", said.append)
    model = nn.Sequential(nn.Linear(4, 4), nn.Softmax(-1))
    made = compiled(model, tmp_path, on_miss="fallback", frozen_weights=True)
    x = torch.randn(2, 4)
    torch.testing.assert_close(made(x), model(x))
    assert len(said) == 1 and "frozen_weights" in said[0]
    with torch.no_grad():
        torch.testing.assert_close(made(x), model(x))
    assert len(said) == 1


def test_graphs_run_with_frozen_weights(
    tmp_path: Path, all_win: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without kernels, ATen computes the regions. The call has the frozen signature."""
    monkeypatch.setattr(rules, "rules_for", lambda arch, agents: HEAVY)
    model = nn.Linear(32, 32)
    x = torch.randn(8, 32)
    keys = set()
    for promised in (False, True):
        torch._dynamo.reset()
        cudaforge_backend.reset_stats()
        made = compiled(model, tmp_path, on_miss="fallback", frozen_weights=promised)
        with torch.no_grad():
            torch.testing.assert_close(made(x), model(x))
        (region,) = (r for r in cudaforge_backend.stats().regions if r.unserved)
        keys.add(region.key)
    assert len(keys) == 2


@pytest.mark.parametrize("promised", [False, True])
def test_explain_lists_regions_with_frozen_weights(
    promised: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "rules_for", lambda arch, agents: HEAVY)
    with torch.no_grad():
        report = cudaforge_backend.explain(
            nn.Linear(32, 32), torch.randn(8, 32), cache_dir=str(tmp_path), frozen_weights=promised
        )
    (region,) = report.regions
    assert any(given.get("frozen") for given in region.signature["inputs"]) == promised


def test_weights_changed_counts_forms() -> None:
    kept = cudaforge_backend.stats().prepared["kept"]
    assert cudaforge_backend.weights_changed() <= kept


@pytest.fixture
def layer() -> nn.Linear:
    if not _C.generates_heavy_ops(_C.arch("cuda")):
        pytest.skip(f"no generator makes products for {_C.arch('cuda')}")
    return nn.Linear(512, 640, device="cuda").requires_grad_(False)


def served(layer: nn.Linear, cache: Path, **options: Any) -> tuple[Any, Tensor]:
    """The compiled layer, which a kernel serves, and an input."""
    x = torch.randn(1024, 512, device="cuda")
    made = compiled(layer, cache, frozen_weights=True, **options)
    expect_close(made(x), layer(x))
    expect_close(made(x), layer(x))
    cudaforge_backend.reset_stats()
    expect_close(made(x), layer(x))
    assert cudaforge_backend.stats().hits == 1
    assert cudaforge_backend.stats().prepared["per_call"] == 0
    return made, x


def expect_close(got: Tensor, wanted: Tensor) -> None:
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-4)


def change(layer: nn.Linear) -> None:
    """New values, in a way that leaves the version counters alone."""
    layer.weight.data.copy_(torch.randn_like(layer.weight))


@pytest.mark.gpu
def test_forms_are_made_on_request(forged: Path, layer: nn.Linear) -> None:
    made, x = served(layer, forged)
    before = made(x)
    change(layer)
    assert torch.equal(made(x), before), "the promise was broken"
    assert cudaforge_backend.weights_changed() >= 1
    expect_close(made(x), layer(x))
    cudaforge_backend.reset_stats()
    streams = [torch.cuda.Stream() for _ in range(3)]
    for stream in streams:
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            expect_close(made(x), layer(x))
    assert cudaforge_backend.stats().prepared["made"] == 0


@pytest.mark.gpu
def test_captured_graphs_see_weights_that_changed(forged: Path, layer: nn.Linear) -> None:
    made, x = served(layer, forged)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = made(x)
        with pytest.raises(RuntimeError, match="captured"):
            cudaforge_backend.weights_changed()
    graph.replay()
    expect_close(y, layer(x))
    change(layer)
    cudaforge_backend.weights_changed()
    graph.replay()
    expect_close(y, layer(x))
    # The form outlives the weight, as the graph has its address.
    wanted = layer(x)
    layer.weight.data = torch.zeros_like(layer.weight)
    cudaforge_backend.weights_changed()
    graph.replay()
    expect_close(y, wanted)
    expect_close(made(x), layer(x))


@pytest.mark.gpu
def test_a_capture_without_a_form_prepares_inside(forged: Path, layer: nn.Linear) -> None:
    made, x = served(layer, forged)
    layer.weight.data = torch.randn_like(layer.weight)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = made(x)
    assert cudaforge_backend.stats().prepared["per_call"] == 1
    graph.replay()
    expect_close(y, layer(x))
    change(layer)
    graph.replay()  # the graph itself prepares the weight
    expect_close(y, layer(x))


@pytest.mark.gpu
def test_inductors_cuda_graphs(forged: Path, layer: nn.Linear) -> None:
    made, x = served(layer, forged)  # forges the kernel
    torch._dynamo.reset()
    made = compiled(layer, forged, frozen_weights=True, inductor={"triton.cudagraphs": True})
    for _ in range(4):
        expect_close(made(x).clone(), layer(x))
    change(layer)
    cudaforge_backend.weights_changed()
    expect_close(made(x).clone(), layer(x))


@pytest.mark.gpu
def test_forms_of_dead_weights_are_freed(forged: Path, layer: nn.Linear) -> None:
    made, x = served(layer, forged)
    before = cudaforge_backend.stats().prepared
    layer.weight.data = torch.randn_like(layer.weight)
    expect_close(made(x), layer(x))
    after = cudaforge_backend.stats().prepared
    assert (after["kept"], after["bytes"]) == (before["kept"], before["bytes"])


@pytest.mark.gpu
def test_the_promise_is_part_of_the_record(forged: Path, layer: nn.Linear) -> None:
    """A frozen region has a record of its own, with the time to prepare."""
    served(layer, forged)
    (region,) = (r for r in cudaforge_backend.stats().regions if r.hits)
    record = _C.store().get(region.key, _C.arch("cuda"))
    assert record is not None and record["timing"]["prepare_us"] > 0


class Projections(nn.Module):
    """Query, key and value of one input."""

    def __init__(self) -> None:
        super().__init__()
        self.each = nn.ModuleList(nn.Linear(512, 768) for _ in range(3))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return tuple(layer(x) for layer in self.each)


@pytest.mark.gpu
def test_several_weights_have_one_form(forged: Path) -> None:
    torch.manual_seed(0)
    model = Projections().cuda()
    made = compiled(model, forged, frozen_weights=True)
    x = torch.randn(1024, 512, device="cuda")
    with torch.no_grad():
        made(x)
        cudaforge_backend.reset_stats()
        kept = cudaforge_backend.stats().prepared["kept"]
        for one, wanted in zip(made(x), model(x), strict=True):
            expect_close(one, wanted)
        assert cudaforge_backend.stats().hits == 1
        assert cudaforge_backend.stats().prepared["kept"] == kept
        model.each[1].weight.data.mul_(2)  # its version counter stays
        assert cudaforge_backend.weights_changed() >= 1
        for one, wanted in zip(made(x), model(x), strict=True):
            expect_close(one, wanted)
