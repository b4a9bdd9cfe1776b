"""A verdict that was taken back: in the lineage, and where a session is told of."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from command import Output
from cudaforge_backend._native import _C
from cudaforge_backend.cli.forge import _Teller
from cudaforge_backend.cli.lineage import tree

SOFTMAX = next((Path(__file__).parents[2] / "cache" / "packs" / "sm_90a").glob("softmax-*"))


def test_a_kernel_that_was_refused_when_it_was_run_again_shows_both_verdicts() -> None:
    node = {
        "session": "0123456789", "id": 0, "parent": None, "kind": "seed",
        "verdict": {"verdict": "wrong_values", "message": "output 0 is wrong"},
        "judged_before": {"verdict": "accepted", "ns": 22500.0},
    }  # fmt: skip
    assert list(tree([node]))[1:] == [
        "  0 seed: wrong_values (output 0 is wrong; accepted with 22.5 us when it was first run)"
    ]


def test_a_start_from_near_and_a_verdict_that_is_taken_back_are_told(capsys: Output) -> None:
    region = json.loads((SOFTMAX / "record.json").read_text())["signature"]
    told = _Teller(_C.normalize(json.dumps(region)), sys.stdout)
    told({"event": "round", "round": 0, "kind": "start", "parent": None, "near": "ab" * 32})
    told(
        {
            "event": "rejudged",
            "round": 0,
            "before": "accepted",
            "verdict": "wrong_values",
            "message": "output 0 is wrong",
        }
    )
    assert capsys.readouterr().out.splitlines()[1:] == [
        "  round 0: start, from the nearest region, abababababab",
        "  round 0 was accepted and is now wrong_values: output 0 is wrong",
    ]
