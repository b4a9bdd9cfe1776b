"""tests/benchmarks/costs.py: when a cost is within its limit, over it, and undecided."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
_SPEC = importlib.util.spec_from_file_location("costs", ROOT / "tests" / "benchmarks" / "costs.py")
assert _SPEC and _SPEC.loader
costs: Any = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(costs)


def around(low: float, median: float, high: float) -> Mapping[str, float]:
    return {"low": low, "median": median, "high": high}


QUIET = around(-0.01, 0.0, 0.01)


@pytest.mark.parametrize(
    ("cost", "control", "said"),
    [
        (around(0.1, 0.15, 0.2), QUIET, ""),
        (around(0.4, 0.5, 0.6), QUIET, "OVER"),
        (around(0.2, 0.25, 0.4), QUIET, "undecided"),  # the spread covers the limit
        (around(0.2, 0.35, 0.4), QUIET, "undecided"),
        (around(0.1, 0.15, 0.2), around(-0.1, 0.0, 0.2), "undecided"),  # as far as the limit is
        (around(0.1, 0.15, 0.2), around(-0.2, 0.0, 0.1), "undecided"),
        (around(0.4, 0.5, 0.6), around(-0.1, 0.2, 0.4), "undecided"),
        (around(-0.9, -0.8, -0.7), around(-0.9, -0.8, -0.7), ""),
        (around(0.31, 0.5, 0.6), around(0.0, 0.05, 0.1), "OVER"),
    ],
)
def test_a_verdict_takes_a_measurement_that_allows_one(
    cost: Mapping[str, float], control: Mapping[str, float], said: str
) -> None:
    (line,) = costs.against_limits("import", {"over_s": cost, "control_s": control})
    assert line.startswith(f"import over_s: {cost['median']:.3g} (")
    assert line.rpartition(" of at most 0.3")[2] == (f", {said}" if said else "")


def test_both_callers_have_limits_for_hits_and_negative_entries() -> None:
    figures = [f"{c}_{s}_over_us" for c in ("python", "cpp") for s in ("negative", "hit")]
    result = {f"{caller}_native_again_over_us": QUIET for caller in ("python", "cpp")}
    result |= {figure: around(n + 0.4, n + 0.5, n + 0.6) for n, figure in enumerate(figures)}
    lines = costs.against_limits("eager_call", result)
    assert [line.split(":")[0] for line in lines] == [f"eager_call {name}" for name in figures]
    assert [line.rpartition(" of at most ")[2] for line in lines] == [
        "0.3, OVER", "1, OVER", "0.3, OVER", "1, OVER",
    ]  # fmt: skip


def test_the_control_of_a_ratio_is_one() -> None:
    result = {"first": around(1.01, 1.02, 1.03), "control": around(0.99, 1.0, 1.01)}
    assert costs.against_limits("compile", result)[0].endswith(" of at most 1.05")
    result["control"] = around(0.96, 1.0, 1.01)
    assert costs.against_limits("compile", result)[0].endswith(", undecided")


def test_a_cost_without_a_control_is_judged_by_its_spread() -> None:
    for high, said in ((49, "50"), (51, "50, undecided")):
        result = {"milliseconds": around(30, 40, high)}
        assert costs.against_limits("open_cache", result)[0].endswith(f" of at most {said}")
