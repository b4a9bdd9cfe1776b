"""tests/benchmarks/eager_training.py on a very small transformer: training with kernels has the
same losses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

SHARE = 0.9  # of the calls of operators with kernels, when every shape is known
MANY = 5  # of the overloads of a step for which there are generators


def test_training_with_kernels_has_the_same_losses(device: str, tmp_path: Path) -> None:
    benchmark, report = ROOT / "tests" / "benchmarks" / "eager_training.py", tmp_path / "report"
    few = ["--size=tiny", "--steps=8", "--rounds=2", "--region-budget=20"]
    few += ["--every-winner", "--least-hits=0.4"]
    done = subprocess.run(
        [sys.executable, str(benchmark), f"--device={device}", *few, f"--json={report}"],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    told = json.loads(report.read_text())
    losses, operators = told["losses"], told["operators"]
    assert losses["within"] and losses["difference"] <= losses["difference_allowed"] < 1e-2
    assert losses["first"] > losses["last"]
    assert operators["share_where_kernels"] > SHARE
    served = {name for name, seen in operators["overloads"].items() if seen["hits"]}
    assert len(served) >= MANY, operators
    assert all("new" not in seen["misses"] for seen in operators["overloads"].values())
    assert set(told["times"]) == {
        "plain_ms", "enabled_ms", "plain_again_ms", "ratio", "control_ratio"
    }  # fmt: skip
    assert "hits: " in done.stdout and "control_ratio: " in done.stdout
