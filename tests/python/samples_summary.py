"""What a run of test_eager_samples.py says at its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any


def samples_summary(told: Sequence[dict[str, Any]]) -> list[str]:
    """Lines for people. `told`: of each test, its operator, dtype and device, `samples`,
    `mismatches`, `left_out` samples (1 where they could not be made) and `why`, `warnings`, and
    `overloads`, by name: calls and hits. Tests that reached no intercepted overload count only
    where something was left out; an overload has the samples and mismatches of those that reached
    it."""
    if not told:
        return []
    reached = [one for one in told if one["overloads"]]
    by_overload: dict[str, Counter[str]] = {}
    for one in reached:
        for overload, seen in one["overloads"].items():
            counts = {name: one[name] for name in ("samples", "mismatches")}
            by_overload.setdefault(overload, Counter()).update(counts | seen)
    wrong = [one for one in reached if one["mismatches"]]
    lines = ["", "PyTorch's samples of intercepted operators:"]
    lines += [
        f"  {name}: {n['samples']} samples, {n['calls']} calls, {n['hits']} hits, "
        f"{n['mismatches']} mismatches"
        for name, n in sorted(by_overload.items())
    ]
    for dtype in dict.fromkeys(one["dtype"] for one in reached):
        of = [one for one in reached if one["dtype"] == dtype]
        lines.append(f"  {dtype}: {_totals(of)}")
    lines += [f"  MISMATCH: {one['op']}, {one['dtype']}, {one['device']}" for one in wrong]
    left = [one for one in told if one["left_out"]]
    lines += [
        f"  left out, as PyTorch cannot make or run them: {one['left_out']} of {one['op']}, "
        f"{one['dtype']}, {one['device']}: {one['why']}"
        for one in left
    ]
    lines += [f"  warned: {text}" for text in sorted({w for one in told for w in one["warnings"]})]
    return [*lines, f"  in all: {_totals(reached)}, {sum(o['left_out'] for o in left)} left out"]


def _totals(tests: Sequence[dict[str, Any]]) -> str:
    served = sum(seen["hits"] for one in tests for seen in one["overloads"].values())
    return (
        f"{len({one['op'] for one in tests})} operators, {sum(o['samples'] for o in tests)} "
        f"samples, {served} hits, {sum(o['mismatches'] for o in tests)} mismatches"
    )
