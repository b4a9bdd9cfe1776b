"""stats(): what it counts, for programs and as a text for people."""

from __future__ import annotations

import json
import logging
import sys
import threading
import warnings
from dataclasses import asdict, replace
from pathlib import Path

import cudaforge_backend
import pytest
import torch
from cudaforge_backend._native import _C
from cudaforge_backend.reasons import EagerMiss, GraphOutcome, Phase, Reason, Way
from cudaforge_backend.stats import (
    EagerStats,
    GraphWay,
    RegionStats,
    count_agent_call,
    count_fallback,
    count_graph,
    count_miss,
    warn_once,
)
from cudaforge_backend.stats_text import way_text
from forged import compiled, win_every_race


def model(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x * 3, -1)


def test_misses_are_regions_and_hits_are_calls(forged: Path) -> None:
    run, x = compiled(model, forged), torch.randn(16, 91)
    for _ in range(3):
        run(x)
    stats = cudaforge_backend.stats()
    assert (stats.misses, stats.forged, stats.negative) == (1, 1, 0)
    assert (stats.hits, stats.unserved) == (3, 0)
    (region,) = (r for r in stats.regions if r.hits)
    assert (region.hits, region.unserved, region.fallbacks) == (3, 0, 0)


def test_calls_without_a_kernel_are_unserved(all_win: None) -> None:
    x = torch.randn(16, 92)
    run = torch.compile(model, backend="cudaforge")
    for _ in range(2):
        torch.testing.assert_close(run(x), model(x))
    stats = cudaforge_backend.stats()
    assert (stats.hits, stats.unserved, stats.misses) == (0, 2, 0)


def test_the_text(forged: Path) -> None:
    run, x = compiled(model, forged), torch.randn(16, 93)
    run(x)
    stats = cudaforge_backend.stats()
    assert json.loads(json.dumps(stats.to_dict())) == stats.to_dict()
    text = str(stats)
    assert text == f"{stats}" and not text.startswith("{")
    first, second, *_ = text.splitlines()
    assert first.startswith("calls: 1 served by kernels, 0 unserved; ")
    assert second == "regions: 1 missed, 1 forged to a winner, 0 to no winner"
    assert "\ngraphs: 1 run with kernels\nmaking kernels: " in text
    assert "\nrun by PyTorch: nothing that kernels are made for\ncache: " in text
    (spent,) = stats.spent
    assert spent.regions == 1 and list(spent.seconds) == list(Phase)
    taken = {phase for phase, seconds in spent.seconds.items() if seconds > 0}
    assert {"start", "inputs", "compile", "run", "compare", "race"} <= taken
    cudaforge_backend.reset_stats()
    assert "making kernels" not in str(cudaforge_backend.stats())
    (line,) = (line for line in text.splitlines() if "(float32[16, 93])" in line)
    assert line.split()[:3] == ["1", "0", "0"]


@pytest.mark.parametrize(("kernels_ms", "doubt"), [(1.5, " (not surely faster)"), (2.5, "")])
def test_a_way_in_words(kernels_ms: float, doubt: str) -> None:
    ms = {Way.INDUCTOR: 2.0, Way.KERNELS: kernels_ms}
    assert way_text(GraphWay(Way.INDUCTOR, ms, ["float32[8, 3]"])) == (
        f"Inductor 2 ms, which is served; with kernels {kernels_ms} ms{doubt}; timed with "
        "float32[8, 3]"
    )


def test_each_graph_has_its_own_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    win_every_race(monkeypatch)
    for columns in (96, 97):
        compiled(model, tmp_path)(torch.randn(16, columns))
        torch._dynamo.reset()
    spent = cudaforge_backend.stats().spent
    assert [graph.regions for graph in spent] == [1, 1]


def test_misses_without_forging_say_what_makes_kernels(tmp_path: Path) -> None:
    compiled(model, tmp_path, on_miss="record")(torch.randn(16, 94))
    text = str(cudaforge_backend.stats())
    assert "\nregions: 1 missed, 0 forged to a winner, 0 to no winner\n  missed: on_miss " in text
    none = "nothing that kernels are made for"
    assert f"\ngraphs: 1 compiled by Inductor alone\nrun by PyTorch: {none}\n" in text
    count_fallback(Reason.FORGE_FAILED)  # then it was tried
    text = str(cudaforge_backend.stats())
    assert "missed: on_miss " not in text and "\n  forge_failed: the warning says why" in text


@pytest.mark.parametrize("name", ["other", "cudaforge-background", "cudaforge-eager"])
def test_the_text_says_that_kernels_are_being_made(name: str) -> None:
    count_miss("ab" * 32)
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait, name=name)
    thread.start()
    text = str(cudaforge_backend.stats())
    ended.set()
    thread.join()
    assert ("  missed: kernels are being made" in text) == (name != "other")
    assert ("  missed: on_miss " in text) == (name == "other")


def test_a_first_call_that_misses_nothing_needs_no_advice() -> None:
    seen = EagerStats(calls=1, hits=0, fallbacks=0, misses={EagerMiss.NEW: 1})
    stats = replace(cudaforge_backend.stats(), eager={"aten::_softmax": seen})
    assert "not served: new 1" in str(stats) and "on_miss" not in str(stats)
    assert str(stats).startswith(
        "calls: 0 served by kernels, 0 unserved, 1 seen for the first time"
    )


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        (Reason.DYNAMIC_SHAPE, "dynamic=False"),
        (Reason.NO_REPLY, "later process"),
        (Reason.NOT_RECORDED, "`cudaforge doctor`"),
        (Reason.UNSUPPORTED_DTYPE, "float32, "),
    ],
)
def test_reasons_that_something_can_be_done_about(reason: Reason, said: str) -> None:
    count_fallback(reason, 2)
    text = str(cudaforge_backend.stats())
    assert f"run by PyTorch: {reason} 2\n" in text
    (line,) = (line for line in text.splitlines() if line.startswith(f"  {reason}: "))
    assert said in line


def test_graphs_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "cudaforge.graph"):
        count_graph(GraphOutcome.PLAIN)
    assert "graphs: +1 plain" in [r.getMessage() for r in caplog.records]


def test_a_warning_shows_no_line_of_ours() -> None:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for _ in range(2):
            warn_once("a warning of this test")
    (warning,) = seen
    assert (warning.filename, warning.category) == ("cudaforge", cudaforge_backend.CudaForgeWarning)
    shown = warnings.formatwarning(
        warning.message, warning.category, warning.filename, warning.lineno
    )
    assert shown == "cudaforge:0: CudaForgeWarning: a warning of this test\n"


def test_a_warning_is_never_an_error(caplog: pytest.LogCaptureFixture) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            warn_once("no error of this test")
    assert [r.getMessage() for r in caplog.records] == ["cudaforge: no error of this test"]


def test_what_agents_were_asked() -> None:
    usage = {"input_tokens": 30, "output_tokens": 4, "cached_input_tokens": None}
    count_agent_call({"usage": {**usage, "cached_input_tokens": 20}, "usd": 0.5})
    count_agent_call({"usage": usage, "usd": None, "estimated": True, "error": "hung up"})
    count_agent_call({"usage": {"input_tokens": 0, "output_tokens": 0}, "usd": None, "error": "no"})
    stats = cudaforge_backend.stats()
    assert asdict(stats.agents) == {
        "calls": 3, "failed": 2, "estimated": 1, "replayed": 0, "unpriced": 1,
        "input_tokens": 60, "cached_input_tokens": 20, "output_tokens": 8, "usd": 0.5,
    }  # fmt: skip
    line = (
        "\nagents: 3 calls, 2 without a reply; about 68 tokens, $0.5000 and 1 call of unknown "
        "price\n"
    )
    assert line in str(stats)
    cudaforge_backend.reset_stats()
    stats = cudaforge_backend.stats()
    assert not any(asdict(stats.agents).values()) and "agents" not in str(stats)
    count_agent_call({"usage": usage, "usd": None, "error": "hung up"})
    assert "agents: 1 call, 1 without a reply; 34 tokens, price unknown\n" in str(
        cudaforge_backend.stats()
    )


def test_a_replayed_call_costs_nothing() -> None:
    usage = {"input_tokens": 30, "output_tokens": 4}
    count_agent_call({"usage": usage, "usd": 0.5, "replayed": True})
    count_agent_call({"usage": usage, "usd": None, "replayed": True})
    stats = cudaforge_backend.stats()
    spent = stats.agents
    assert (spent.calls, spent.replayed, spent.unpriced, spent.usd) == (2, 2, 0, 0)
    assert "\nagents: 2 calls; 68 tokens as recorded, nothing spent\n" in str(stats)


def test_the_text_of_nothing() -> None:
    stats = replace(cudaforge_backend.stats(), regions=[])
    assert "graphs: none\n" in str(stats) and "regions that were called" not in str(stats)


def test_the_text_names_the_regions_that_were_served_most() -> None:
    regions = [
        RegionStats(
            key=f"{n:064x}",
            region=f"sum(float32[{n}])",
            device="cpu",
            hits=n % 30,
            unserved=2,
            fallbacks=1,
            saved_ns=1e6,
            quarantined="it failed" if n == 0 else None,
        )
        for n in range(60)
    ]
    stats = replace(cudaforge_backend.stats(), regions=regions)
    lines = str(stats).partition("regions that were called:\n")[2].splitlines()
    assert "sum(float32[0])" in lines[1] and "it failed" in lines[2]
    assert [int(line.split()[0]) for line in lines[3:-1]] == sorted(
        [29, 28, 27, 26, 25, 24, 23, 22, 21] * 2 + [20], reverse=True
    )
    assert lines[-1].split() == ["400", "80", "40", "40.0", "ms", "of", "40", "more"]


def test_the_regions_that_are_shown_say_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """In any order of calls."""
    stats_module = sys.modules["cudaforge_backend.stats"]
    monkeypatch.setattr(stats_module, "why_no_kernel", lambda key, arch: f"because of {key}")
    regions = [
        {
            "key": f"{n:02}",
            "describe": f"sum(float32[{n}])",
            "device": "cpu",
            "hits": int(n == 40),
            "unserved": n,
            "fallbacks": 0,
            "saved_ns": 0.0,
            "quarantined": "it failed" if n == 5 else None,
        }
        for n in range(1, 41)
    ]
    monkeypatch.setattr(_C, "stats", lambda: {"regions": regions})
    text = str(cudaforge_backend.stats())
    rows = text.partition("regions that were called:\n")[2].splitlines()[1:]
    assert rows[1].strip() == "not served any more: it failed"
    assert rows[2].endswith("sum(float32[40])")  # it has a kernel
    reasons = [row.strip() for row in rows[4::2]]
    assert reasons == [f"because of {n:02}" for n in range(39, 21, -1)]


def test_the_text_says_what_is_not_served_any_more() -> None:
    regions = [
        RegionStats(
            key="ab" * 32,
            region="sum(float32[8])",
            device="cpu",
            hits=2,
            unserved=0,
            fallbacks=1,
            saved_ns=2.5e6,
            quarantined="it failed",
        )
    ]
    stats = replace(cudaforge_backend.stats(), regions=regions)
    text = str(stats)
    assert "2.5 ms  abababababab  sum(float32[8])" in text
    assert "not served any more: it failed" in text


def test_the_intercepted_overloads_are_counted() -> None:
    assert "are looked up" not in str(cudaforge_backend.stats())
    with cudaforge_backend.enable(["aten::_softmax"]):
        text = str(cudaforge_backend.stats())
    assert "\neager calls are looked up: 1 overload\n" in f"{text}\n"


def test_each_reason_is_documented() -> None:
    words = (Path(__file__).parents[2] / "docs" / "words.md").read_text()
    for name in (*Reason, *GraphOutcome, *EagerMiss, *Phase):
        assert f"`{name}`" in words
