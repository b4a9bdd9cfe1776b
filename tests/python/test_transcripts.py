"""A recorded session is replayed without the agents that answered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from coders import ADVICE, RIGHT, WRONG
from command import Output, as_json, facts
from cudaforge_backend.cli import main
from forged import win_every_race

DATA = Path(__file__).parents[1] / "data" / "transcripts"


def test_a_recorded_session_is_replayed(
    capsys: Output, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, coder: Any, script: str
) -> None:
    win_every_race(monkeypatch)
    agents = coder([WRONG, RIGHT], [ADVICE])
    tape = tmp_path / "tape"
    prices = tmp_path / "prices.json"
    prices.write_text('{"models": {"test": {"input": 1e4, "output": 1e5}}}')
    common = ("--rounds", "2", "--target", "cpu", "--prices", str(prices))

    def forged(provider: str, cache: str) -> Any:
        told = as_json(
            capsys, "forge", script, "--coder", provider, "--judge", provider, *common,
            "--cache-dir", str(tmp_path / cache),
        )  # fmt: skip
        (result,) = told["regions"]
        (place,) = as_json(capsys, "lineage", result["key"], "--cache-dir", str(tmp_path / cache))
        sources = [node["source"] for node in place["nodes"] if "source" in node]
        return result, sources

    result, sources = forged(f"record:{tape}:{agents}", "first")
    assert [r["verdict"] for r in result["rounds"]] == ["wrong_values", "accepted"]
    assert len(list(tape.glob("*-exchange.json"))) == result["ledger"]["calls"] == 3
    (tmp_path / "coder.py").unlink()  # no agent answers now

    again, same = forged(f"replay:{tape}", "second")
    assert same == sources and len(sources) == 2
    assert [r["verdict"] for r in again["rounds"]] == ["wrong_values", "accepted"]
    assert again["kind"] == result["kind"] == "winner"
    for count in ("calls", "input_tokens", "output_tokens"):
        assert again["ledger"][count] == result["ledger"][count]
    # Nothing is spent on it.
    for name, told in (("usd", result), ("replayed_usd", again)):
        assert told["ledger"][name] == pytest.approx(3 * 2)
    assert (again["ledger"]["usd"], again["ledger"]["replayed"]) == (0, 3)
    assert [(r["usd"], r["replayed"]) for r in again["rounds"]] == [(0, 1), (0, 2)]
    argv = ("--coder", f"replay:{tape}", "--judge", f"replay:{tape}", *common)
    assert main(["forge", script, *argv, "--cache-dir", str(tmp_path / "third")]) == 0
    text = capsys.readouterr().out
    lines = text.splitlines()
    assert "    coder (replayed); so far 110 tokens as recorded, nothing spent" in lines
    assert facts(text)["cost"] == "330 tokens as recorded, nothing spent"
    assert not any("$" in line for line in lines)


@pytest.mark.gpu
@pytest.mark.parametrize("name", sorted(path.name for path in DATA.iterdir()))
def test_sessions_of_real_agents_are_replayed(capsys: Output, tmp_path: Path, name: str) -> None:
    """The agents' answers for tests/benchmarks/agent_regions.py:NAME make a correct kernel."""
    recorded = json.loads((DATA / name / "session.json").read_text())
    regions = DATA.parents[1] / "benchmarks" / "agent_regions.py"
    provider = f"replay:{DATA / name}"
    told = as_json(
        capsys, "forge", f"{regions}:{name}", "--coder", provider, "--judge", provider,
        "--target", "cuda", "--rounds", str(recorded["rounds"]), "--cache-dir", str(tmp_path),
    )  # fmt: skip
    (result,) = told["regions"]
    verdicts = [r["verdict"] for r in result["rounds"] if r["kind"] != "start"]
    assert verdicts == recorded["verdicts"], result["rounds"]
