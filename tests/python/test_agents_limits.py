"""The limits of `cudaforge forge`: they hold for all regions of a command together."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from coders import BROKEN, CODER, PRODUCTS
from command import Output, as_json, facts
from cudaforge_backend.agents import Agents
from cudaforge_backend.cli import main
from cudaforge_backend.cli.limits import Limits

pytestmark = pytest.mark.usefixtures("lost_races")

PRICES = {"models": {"test": {"input": 1, "output": 1}, "command:*": {"input": 1, "output": 1}}}


def arguments(folder: Path, coder: Any, tokens: int, *more: str) -> list[str]:
    """`cudaforge forge` of three regions, one round each, by a coder that counts so many tokens."""
    (folder / "net.py").write_text(PRODUCTS)
    provider = coder([BROKEN], [])
    (folder / "coder.py").write_text(
        CODER.replace('"input_tokens": 100', f'"input_tokens": {tokens}')
    )
    (folder / "prices.json").write_text(json.dumps(PRICES))
    return [
        "forge", f"{folder}/net.py:make", "--coder", provider, "--rounds", "1", "--target", "cpu",
        "--cache-dir", str(folder / "cache"), "--prices", str(folder / "prices.json"), *more,
    ]  # fmt: skip


@pytest.mark.parametrize("limit", [("--max-tokens", "100000"), ("--max-usd", "0.1")])
@pytest.mark.parametrize(("tokens", "begun"), [(100_000, 1), (99_500, 2), (49_500, 3)])
def test_what_a_region_spent_the_next_cannot(
    capsys: Output, tmp_path: Path, coder: Any, limit: tuple[str, str], tokens: int, begun: int
) -> None:
    told = as_json(capsys, *arguments(tmp_path, coder, tokens, *limit))
    regions = told["regions"]
    assert sum(region["ledger"] is not None for region in regions) == begun
    calls = [region["ledger"]["calls"] if region["ledger"] else 0 for region in regions]
    assert calls == ([1, 1, 0] if tokens == 49_500 else [1, 0, 0])
    assert [region["limited"] for region in regions] == [not made for made in calls]
    assert all(region["answered"] for region in regions)
    assert regions[2]["end"] == (f"{limit[0]} is spent" if begun < 3 else regions[2]["reason"])
    asked = [json.loads(line) for line in (tmp_path / "coder.log").read_text().splitlines()]
    assert len(asked) == told["total"]["calls"] == sum(calls)
    assert told["total"]["input_tokens"] == tokens * sum(calls)


def test_regions_passed_over_for_a_limit_are_reported_in_one_line(
    capsys: Output, tmp_path: Path, coder: Any
) -> None:
    assert main(arguments(tmp_path, coder, 100_000, "--max-tokens", "100000")) == 0
    told = capsys.readouterr()
    assert told.err == ""
    assert "passed over, as --max-tokens is spent: 2 regions" in told.out.splitlines()
    summary = facts(told.out)
    assert summary["regions"] == "3: 0 won, 2 passed over"
    assert summary["cost"] == "100010 tokens, $0.1000"


def test_a_limit_below_the_first_call_is_a_failure(
    capsys: Output, tmp_path: Path, coder: Any
) -> None:
    assert main(arguments(tmp_path, coder, 100, "--max-tokens", "1")) == 1
    told = capsys.readouterr()
    summary = facts(told.out)
    assert summary["regions"] == "3: 0 won, 2 passed over, 1 without a reply"
    assert summary["cost"] == "0 tokens, $0.0000"
    assert told.err.startswith(
        "cudaforge: no reply for 1 region, the last: the tokens of the budget are spent"
    )


def test_time_is_for_each_region_unless_it_is_given() -> None:
    agents = Agents(coder="openai:m", seconds=100, tokens=50)
    ledger = {"wall_seconds": 60.0, "input_tokens": 10, "output_tokens": 5, "usd": 4.0}
    ledger["replayed_usd"] = 5.0  # a limit counts what a recording would have cost
    each, whole = Limits(agents, whole_time=False), Limits(agents, whole_time=True)
    for limits, left in ((each, 100), (whole, 40)):
        limits.charge(ledger, "")
        assert (limits.for_region().seconds, limits.for_region().tokens) == (left, 35)
        assert (limits.for_region().usd, limits.spent) == (0, "")
        limits.charge(ledger, "")
    assert (each.spent, whole.spent) == ("", "--max-time")
    each.charge(ledger, "seconds")
    assert (each.spent, each.are_too_little("seconds")) == ("", False)
