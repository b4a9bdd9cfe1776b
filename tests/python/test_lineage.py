"""`cudaforge lineage`, and a verdict that was taken back, also in the report of a session."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest
import torch
from command import Output, as_json, cells
from cudaforge_backend._native import _C
from cudaforge_backend.cli import main
from cudaforge_backend.cli.forge import _Teller
from cudaforge_backend.cli.lineage import tree
from cudaforge_backend.cli.stores import normalized
from cudaforge_backend.integration.telling import tell
from forged import compiled, lose_every_race, win_every_race
from rich.console import Console


def lines(nodes: list[dict[str, object]], source: bool = False) -> list[str]:
    """What `lineage` prints below a region, without the branches of the tree."""
    made = io.StringIO()
    Console(file=made, width=1000).print(tree("", nodes, source))
    return [line.lstrip(" │├└─").rstrip() for line in made.getvalue().splitlines()[1:]]


SOFTMAX = next((Path(__file__).parents[2] / "cache" / "packs" / "sm_90a").glob("softmax-*"))


def test_a_kernel_that_was_refused_on_a_rerun_shows_both_verdicts() -> None:
    node = {
        "session": "0123456789", "id": 0, "parent": None, "kind": "seed",
        "verdict": {"verdict": "wrong_values", "message": "output 0 is wrong"},
        "judged_before": {"verdict": "accepted", "ns": 22500.0},
    }  # fmt: skip
    assert lines([node])[1:] == [
        "0 seed: wrong_values (output 0 is wrong; accepted with 22.5 us when it was first run)"
    ]


def test_the_documents_that_agents_were_given_are_named() -> None:
    node = {
        "session": "0123456789", "id": 0, "parent": None, "kind": "seed",
        "verdict": {"verdict": "accepted"}, "advice": {"issue": "slow", "plan": "unroll"},
        "prompts": [
            {"name": "judge_optimize", "documents": ["cpu/vectors", "cpu/caches"]},
            {"name": "coder_optimize", "documents": ["cpu/caches", "cpu/threads"]},
        ],
    }  # fmt: skip
    named = "documents: cpu/vectors, cpu/caches, cpu/threads"
    advice = "judge: slow -> unroll"
    assert lines([node])[1:] == ["0 seed: accepted", named, advice]
    node["prompts"] = [{"name": "coder_seed", "documents": []}]
    assert lines([node])[1:] == ["0 seed: accepted", advice]


def generated(verdict: str, ns: float | None) -> dict[str, object]:
    node: dict[str, object] = {"author": "generator:rows", "verdict": {"verdict": verdict}}
    return node if ns is None else {**node, "ns": ns}


def test_kernels_of_the_generators_are_counted_by_verdict() -> None:
    wrong = generated("wrong_values", 1000.0)
    assert lines([wrong]) == ["generators: 1 candidate: 1 wrong_values"]
    slow = generated("too_slow", 3500.0)
    right = [slow, slow, wrong, generated("compile_error", None), generated("accepted", 2500.0)]
    counts = "2 too_slow, 1 wrong_values, 1 compile_error, 1 accepted"
    said = f"generators: 5 candidates: {counts}; the fastest right one 2.5 us"
    assert lines(right) == [said]
    first, second = lines(right, source=True)
    assert first == said and "not stored" in second and "params" in second


def test_why_no_candidate_was_right_is_shown(capsys: Output, tmp_path: Path) -> None:
    record = json.loads((SOFTMAX / "record.json").read_text())
    reason = "no candidate was right: tried every candidate; the fastest: output 0: element 3 is 2"
    arch = _C.arch("cpu")
    store = _C.KernelStore.open(str(tmp_path), True)
    shown = {
        "kind": "negative", "key": record["key"], "arch": arch, "signature": record["signature"],
        "verification": {}, "timing": {}, "versions": _C.versions(),
        "provenance": {"candidates_tried": 1, "why": "none_right", "reason": reason},
    }  # fmt: skip
    store.put(shown, None, b"")
    argv = ["cache", "show", record["key"][:12], "--cache-dir", str(tmp_path)]
    assert main(argv) == 0
    assert dict(cells(capsys.readouterr().out))["why"] == f"no right candidate\n{reason}"


def test_a_nearby_start_and_a_withdrawn_verdict_are_reported(capsys: Output) -> None:
    region = json.loads((SOFTMAX / "record.json").read_text())["signature"]
    told = _Teller(normalized(region), sys.stdout)
    tell({"event": "round", "round": 0, "kind": "start", "parent": None, "near": "ab" * 32}, told)
    tell(
        {
            "event": "rejudged",
            "round": 0,
            "before": "accepted",
            "verdict": "wrong_values",
            "message": "output 0 is wrong",
        },
        told,
    )
    assert capsys.readouterr().out.splitlines()[1:] == [
        "  round 0: start, from the nearest region, abababababab",
        "  round 0 was accepted and is now wrong_values: output 0 is wrong",
    ]


@pytest.mark.parametrize("won", [True, False])
def test_a_lineage_ends_with_the_result_of_the_race(
    capsys: Output, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, won: bool
) -> None:
    (win_every_race if won else lose_every_race)(monkeypatch)
    compiled(lambda x: torch.softmax(x * 3, -1), tmp_path)(torch.randn(4, 61))
    folder = ("--cache-dir", str(tmp_path))
    row, *_ = as_json(capsys, "cache", "ls", *folder)
    (place,) = as_json(capsys, "lineage", row["key"], *folder)
    assert place["record"] == {k: v for k, v in row.items() if k != "differs"}
    assert main(["lineage", row["key"], *folder]) == 0
    *_, result, whose = capsys.readouterr().out.splitlines()
    assert result.endswith(f" {place['result']}") and whose
    assert (" no winner: " in result) != won and ("times as fast as" in result) == won


def test_a_kernel_stands_below_the_one_that_it_improves(capsys: Output) -> None:
    made = [
        {"session": "01" * 8, "id": id_, "parent": parent, "kind": "seed",
         "verdict": {"verdict": "accepted"}}
        for id_, parent in ((0, None), (1, 0), (2, 1), (3, 0), (4, 9))  # 9 is lost
    ]  # fmt: skip
    (session,) = tree("region", made).children
    first, lost = session.children
    assert [len(child.children) for child in first.children] == [1, 0]
    assert "4 seed" in str(lost.label)
