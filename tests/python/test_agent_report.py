"""tests/benchmarks/agent_report.py, and the tables of cache/packs/README.md that it made."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKS = ROOT / "cache" / "packs"
FEEDBACK = ROOT / "tests" / "data" / "feedback"


def rows(folder: Path) -> list[str]:
    """The lines of the table, without its head."""
    report = ROOT / "tests" / "benchmarks" / "agent_report.py"
    command = [sys.executable, str(report), str(folder)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[
        2:
    ]


@pytest.mark.parametrize(
    "folder",
    [PACKS / "sm_90a", FEEDBACK / "no_judge", FEEDBACK / "no_metrics"],
    ids=lambda folder: folder.name,
)
def test_what_the_packs_say_of_their_rounds_is_what_the_report_says(folder: Path) -> None:
    told = (PACKS / "README.md").read_text().splitlines()
    made = rows(folder)
    assert len(made) == sum(path.is_dir() for path in folder.iterdir()) > 0
    assert [row for row in made if row not in told] == []


def test_a_withdrawn_verdict_is_shown_after_the_first(tmp_path: Path) -> None:
    (softmax,) = (PACKS / "sm_90a").glob("softmax-*")
    shutil.copytree(softmax, tmp_path / "packs" / softmax.name)
    file = tmp_path / "packs" / softmax.name / "lineage.json"
    nodes = json.loads(file.read_text())
    second = next(node for node in nodes if node.get("id") == 1)
    first = f"{second['ns'] / 1e3:.1f}"
    second["judged_before"] = {"verdict": "accepted", "ns": second.pop("ns")}
    second["verdict"] = {"verdict": "wrong_values"}
    file.write_text(json.dumps(nodes))
    (row,) = rows(tmp_path / "packs")
    assert f", {first} -> wrong_values J, " in row
