"""`cudaforge forge` and `lineage`: a coder's kernel is proven, stored, served and shown."""

from __future__ import annotations

import fcntl
import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import cudaforge_backend
import pytest
import torch
from coders import ADVICE, BROKEN, CODER, PRODUCTS, RIGHT, WRONG
from command import as_json, facts, refusal
from cudaforge_backend._native import _C
from cudaforge_backend.agents import Agents
from cudaforge_backend.cli import main
from cudaforge_backend.errors import OptionError
from cudaforge_backend.integration import forging
from cudaforge_backend.integration.forging import Forged
from cudaforge_backend.integration.telling import tell
from cudaforge_backend.options import parse
from forged import compiled, lose_every_race, win_every_race

Output = pytest.CaptureFixture[str]

pytestmark = pytest.mark.usefixtures("lost_races")


def forge(output: Output, *argv: str) -> Any:
    """What `cudaforge forge --json` prints of the regions."""
    target = ("--target", "cpu") if any(".py:" in word for word in argv) else ()
    assert main(["forge", *argv, *target, "--json"]) == 0
    return json.loads(output.readouterr().out)["regions"]


def test_a_coders_matrix_product_is_proven_stored_served_and_shown(
    capsys: Output, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, coder: Any, script: str
) -> None:
    win_every_race(monkeypatch)
    cache = str(tmp_path / "cache")
    agents = coder(["no code at all", WRONG, RIGHT], [ADVICE])
    common = ("--cache-dir", cache, "--max-time", "120")
    named = (script, script)  # the same region twice is forged once
    hints = tmp_path / "hints.txt"
    hints.write_text("mind the bananas\n")
    common = (*common, "--hints", str(hints))
    results = forge(capsys, *named, "--coder", agents, "--judge", agents, "--rounds", "3", *common)
    assert [r["ops"] for r in results] == ["mm -> relu"]
    rounds = results[0]["rounds"]
    assert [r["verdict"] for r in rounds] == ["refused", "wrong_values", "accepted"]
    assert [r["advice"] for r in rounds] == [None, None, json.loads(ADVICE)]
    assert [(r["input_tokens"], r["output_tokens"]) for r in rounds] == [
        (100, 10), (100, 10), (200, 20),
    ]  # fmt: skip
    assert [r["usd"] for r in rounds] == [None] * 3  # it has no price
    assert all(r["seconds"] > r["device_seconds"] >= 0 for r in rounds)
    assert [r["device_seconds"] > 0 for r in rounds] == [False, True, True]
    assert results[0]["kind"] == "winner"
    ledger = results[0]["ledger"]
    assert ledger["calls"] == 3 + ledger["by_role"]["judge"]["calls"]
    assert ledger["input_tokens"] == 100 * ledger["calls"]
    assert ledger["output_tokens"] == 10 * ledger["calls"]

    # The Judge's words and the evidence reached the Coder.
    asked = [json.loads(line) for line in (tmp_path / "coder.log").read_text().splitlines()]
    assert "mind the bananas" in asked[0]["messages"][-1]["content"]
    last = next(r for r in reversed(asked) if r["role"] == "coder")["messages"][-1]["content"]
    assert "\nissue: negative values are kept\n\nplan: apply the relu\n" in last

    key = results[0]["key"]
    assert main(["lineage", key[:12], "--cache-dir", cache]) == 0
    shown = capsys.readouterr().out
    assert "judge: negative values are kept -> apply the relu" in shown
    assert "seed: refused" in shown and ": accepted, " in shown and "ended: " in shown

    x, w = torch.randn(8, 16), torch.randn(16, 24)
    made = compiled(lambda x, w: torch.relu(x @ w), cache, on_miss="fallback")
    with torch.no_grad():
        torch.testing.assert_close(made(x, w), torch.relu(x @ w))
    stats = cudaforge_backend.stats()
    assert stats.hits == 1 and stats.misses == 0, stats


def test_a_coder_forges_what_a_compilation_misses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, coder: Any
) -> None:
    win_every_race(monkeypatch)
    prices = tmp_path / "prices.json"
    prices.write_text('{"models": {"test": {"input": 1e4, "output": 1e5}}}')
    agents = {"coder": coder([RIGHT], []), "rounds": 1, "seconds": 120, "prices_file": str(prices)}
    made = compiled(lambda x, w: torch.relu(x @ w), tmp_path / "cache", agents=agents)
    x, w = torch.randn(8, 16), torch.randn(16, 24)
    with torch.no_grad():
        torch.testing.assert_close(made(x, w), torch.relu(x @ w))
    stats = cudaforge_backend.stats()
    assert (stats.hits, stats.forged) == (1, 1), stats
    spent = {"calls": 1, "failed": 0, "estimated": 0, "replayed": 0, "unpriced": 0, "usd": 2}
    spent |= {"input_tokens": 100, "cached_input_tokens": 0, "output_tokens": 10}
    assert asdict(stats.agents) == spent
    assert "\nagents: 1 call; 110 tokens, $2.0000\n" in str(stats)


def test_regions_that_agents_won_are_passed_over_unless_requested(
    capsys: Output, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, coder: Any, script: str
) -> None:
    win_every_race(monkeypatch)
    log = tmp_path / "coder.log"
    argv = ("--coder", coder([RIGHT], []), "--rounds", "1", "--cache-dir", str(tmp_path / "cache"))
    (first,) = forge(capsys, script, *argv)
    assert (first["kind"], first["known"]) == ("winner", False)
    (known,) = forge(capsys, script, *argv)
    assert (known["kind"], known["known"], known["rounds"]) == ("winner", True, [])
    assert known["timing"] == first["timing"] and len(log.read_text().splitlines()) == 1
    assert main(["forge", script, *argv, "--target", "cpu"]) == 0
    text = capsys.readouterr().out
    reading, line, *_ = text.splitlines()
    assert reading == f"reading {script} ..."
    assert line.endswith(": passed over, its winner is by agents (--again: goes on from it)")
    assert facts(text)["regions"] == "1: 0 won, 1 passed over"
    assert facts(text)["cost"].startswith("0 tokens")
    for asked, *more in ([script, "--again"], [known["key"]], [script, known["key"]]):
        before = len(log.read_text().splitlines())
        (again,) = forge(capsys, asked, *more, *argv)
        assert not again["known"] and len(log.read_text().splitlines()) == before + 1


def test_a_coder_without_a_kernel_leaves_the_winner_and_has_won_nothing(
    capsys: Output, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, coder: Any, script: str
) -> None:
    win_every_race(monkeypatch)
    common = ("--rounds", "1", "--cache-dir", str(tmp_path / "cache"))
    (first,) = forge(capsys, script, "--coder", coder([RIGHT], []), *common)
    lose_every_race(monkeypatch)
    argv = (script, "--again", "--coder", coder(["no code at all"], []), *common)
    (again,) = forge(capsys, *argv)
    assert [r["verdict"] for r in again["rounds"]] == ["accepted", "refused"]
    assert all(("ns" in r) and (r["ns"] is None) == (i == 1) for i, r in enumerate(again["rounds"]))
    assert (again["kind"], again["verdict"]) == ("negative", "nothing faster than ATen")
    assert again["kept"]["timing"] == first["timing"] and again["kept"]["by_agent"]
    own = again["timing"]
    assert own["aten_us"] < own["winner_us"] and own["speedup"][1] < 1
    assert main(["forge", *argv, "--target", "cpu"]) == 0
    text = capsys.readouterr().out
    (end,) = (line for line in text.splitlines() if "the kernel in the cache stays" in line)
    assert end.startswith("  no winner: nothing faster than ATen (0.")
    low, median, high = first["timing"]["speedup"]
    was = f"{median:.2f} times as fast as ATen [{low:.2f}, {high:.2f}], by an agent"
    assert f"; the kernel in the cache stays: {was}, " in end
    assert facts(text)["regions"] == "1: 0 won, 0 passed over"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"agents": "openai:gpt-5"}, "takes a dict"),
        ({"agents": {"coder": "openai:gpt-5", "round": 3}}, "'round'"),
        ({"agents": {"coderr": "openai:gpt-5"}}, "'coderr'.* coder, judge, "),
        ({"agents": {"judge": "openai:gpt-5"}}, "at least 'coder'"),
        ({"agents": {"coder": "gpt-5"}}, "openai:MODEL"),
        ({"agents": {"coder": "mailbox:/tmp"}, "on_miss": "record"}, "on_miss 'blocking'"),
    ],
)
def test_bad_agents_of_a_compilation(options: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        parse(None, {"on_miss": "blocking", **options})


def test_a_cache_without_agents_winners_looks_for_no_heavy_regions(tmp_path: Path) -> None:
    made = compiled(lambda x, w: torch.relu(x @ w), tmp_path, on_miss="record")
    x, w = torch.randn(8, 16), torch.randn(16, 24)
    with torch.no_grad():
        torch.testing.assert_close(made(x, w), torch.relu(x @ w))
    assert cudaforge_backend.stats().misses == 0
    assert _C.store().wanted("") == []


def test_a_region_of_the_generators_starts_from_their_kernel(
    capsys: Output, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, coder: Any
) -> None:
    win_every_race(monkeypatch)
    path = tmp_path / "softmax.py"
    path.write_text(
        "import torch\ndef make(): return torch.nn.Softmax(-1), (torch.randn(64, 128),)\n"
    )
    agents = coder(["no code at all"], [ADVICE])
    results = forge(
        capsys, f"{path}:make", "--coder", agents, "--rounds", "1",
        "--cache-dir", str(tmp_path / "cache"),
    )  # fmt: skip
    first = results[0]["rounds"][0]
    assert (first["kind"], first["verdict"]) == ("start", "accepted")
    assert first["speedup"] == 1.0  # it is itself the rival, and timed once
    assert results[0]["kind"] == "winner"  # the generators' own


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--coder", "gpt-5"), "openai:MODEL"),
        (("--coder", "command:/no/such/program", "--rounds", "0"), "rounds"),
        (("--coder", "openai:unknown-model"), "OPENAI_API_KEY"),
        (("--coder", "mailbox:MAIL", "--max-usd", "1"), "prices.json has none for mailbox:"),
        (("--coder", "mailbox:MAIL", "--prices", "/no/such/file"), "/no/such/file"),
    ],
)
def test_what_cannot_be_is_said_before_any_call(
    capsys: Output,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    script: str,
    arguments: tuple[str, ...],
    said: str,
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    arguments = tuple(word.replace("MAIL", str(tmp_path / "mail")) for word in arguments)
    argv = ["forge", script, *arguments, "--target", "cpu", "--cache-dir", str(tmp_path / "c")]
    assert main(argv) == 1
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"coder": ""}, "no coder"),
        ({"seconds": 0}, "seconds is 0; it takes a number above 0"),
        ({"seconds": float("nan")}, "seconds is nan; it takes a number above 0"),
        ({"seconds": float("inf")}, "seconds is too large"),
        ({"usd": -1}, "usd is -1; it takes 0"),
        ({"usd": 10**400}, "usd is too large"),
        ({"rounds": "3"}, "rounds is '3'; it takes a whole number"),
        ({"rounds": 2**31}, "rounds is too large; it takes at most 2147483647"),
        ({"tokens": 2**63}, "tokens is too large"),
        ({"metrics": "no"}, "metrics is 'no'; it takes True or False"),
        ({"resume": "x"}, "resume is 'x'; it takes True or False"),
    ],
)
def test_agents_that_cannot_be(given: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        Agents(**{"coder": "openai:gpt-5", **given})


def test_the_largest_limits_are_taken(tmp_path: Path) -> None:
    most = {"rounds": 2**31 - 1, "seconds": 1e12, "tokens": 2**63 - 1, "usd": 0}
    agents = Agents(coder=f"mailbox:{tmp_path}", **most)  # type: ignore[arg-type]
    _C.check_agents(agents.settings())


def test_a_coder_that_cannot_be_reached_is_no_verdict_about_the_region(
    capsys: Output, tmp_path: Path, script: str
) -> None:
    cache = str(tmp_path / "cache")
    argv = ["forge", script, "--coder", "command:false", "--target", "cpu", "--cache-dir", cache]
    assert main(argv) == 1
    assert "the Coder gave no reply" in capsys.readouterr().err
    store = _C.KernelStore.open(cache)
    assert store.records() == []
    (wanted,) = store.wanted()  # so that its key is found
    assert main(["lineage", wanted["key"][:12], "--cache-dir", cache]) == 0
    assert "seed: no reply (unavailable: command:false" in capsys.readouterr().out


def test_parts_of_a_region_without_a_winner_are_reported_as_parts(
    capsys: Output, tmp_path: Path, script: str
) -> None:
    folder = ("--cache-dir", str(tmp_path / "cache"))
    argv = ["forge", script, "--coder", "command:false", "--target", "cpu", *folder]
    assert main(argv) == 1
    assert "a part of" not in capsys.readouterr().out
    (wanted,) = as_json(capsys, "cache", "wanted", *folder)
    lost = {
        "kind": "negative", "key": wanted["key"], "arch": wanted["arch"],
        "signature": wanted["signature"], "verification": {}, "timing": {},
        "provenance": {"reason": "a test"}, "versions": _C.versions(),
    }  # fmt: skip
    _C.store().put(lost, None, b"")
    assert main(argv) == 1
    told = capsys.readouterr().out
    said = f"  a part of {wanted['key'][:12]}, which has no winner: forged by itself\n"
    assert told.count(said) == 1
    heading = told.partition(said)[0].splitlines()[-1]
    assert heading.endswith("  mm(float32[8, 16], float32[16, 24])")
    regions = as_json(capsys, *argv, code=1)["regions"]
    assert {region["ops"]: region["within"] for region in regions} == {
        "mm -> relu": None, "mm": wanted["key"],
    }  # fmt: skip


def test_two_regions_in_a_row_without_a_reply_are_enough(capsys: Output, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(PRODUCTS)
    argv = ["forge", f"{tmp_path}/net.py:make", "--coder", "command:false", "--target", "cpu"]
    assert main([*argv, "--cache-dir", str(tmp_path / "cache")]) == 1
    told = capsys.readouterr()
    summary = facts(told.out)
    assert summary["regions"] == "2: 0 won, 0 passed over, 2 without a reply"
    assert summary["cost"] == "0 tokens, $0.0000"
    assert told.err.startswith("cudaforge: no reply for 2 regions, the last: the Coder gave no ")
    assert told.err.endswith("; not begun after it: 1 region\n")


def test_replies_without_a_candidate_leave_regions_on_the_wanted_list(
    capsys: Output, tmp_path: Path, coder: Any
) -> None:
    (tmp_path / "net.py").write_text(PRODUCTS)
    common = ("--rounds", "1", "--cache-dir", str(tmp_path / "cache"))
    argv = ["forge", f"{tmp_path}/net.py:make", "--target", "cpu", *common]
    assert main([*argv, "--coder", coder(["no code at all"], [])]) == 1
    told = capsys.readouterr()
    summary = facts(told.out)
    assert summary["regions"] == "3: 0 won, 0 passed over, 3 without a candidate"
    assert summary["cost"].startswith("330 tokens, ")
    (line,) = told.err.splitlines()
    assert line.startswith("cudaforge: no candidate for 3 regions, the last: ")
    assert "(1)" in line and "no block of source" in line
    assert _C.store().records() == [] and len(_C.store().wanted()) == 3
    told = as_json(capsys, "forge", "--wanted", "--coder", coder([BROKEN], []), *common)
    assert [(r["kind"], r["answered"]) for r in told["regions"]] == [("negative", True)] * 3
    assert len(_C.store().records()) == 3 and _C.store().wanted() == []


def test_unreadable_counters_are_reported_once(
    capsys: Output, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = {
        "calls": 1, "failed": 0, "estimated": 0, "replayed": 0, "unpriced": 0, "input_tokens": 0,
        "cached_input_tokens": 0, "output_tokens": 0, "usd": 0.0, "replayed_usd": 0.0,
        "seconds": 0.0, "wall_seconds": 0.0, "device_seconds": 0.0,
    }  # fmt: skip

    def play(
        signature: _C.Signature, device: int, budget_s: float, told: Any, **settings: Any
    ) -> Forged:
        judged = {"event": "candidate", "verdict": "accepted", "best": True, "usd": 0.0}
        tell({**judged, "round": 0}, told)
        why = "no hardware counters: perf_event_open: Operation not permitted"
        tell({**judged, "round": 1, "no_counters": why}, told)
        end = {"event": "agents_end", "reason": "made as many rounds as the budget allows (2)"}
        tell({**end, "limit": "", "ledger": ledger, "answered": True}, told)
        return Forged(signature.key, "negative", "")

    monkeypatch.setattr(forging, "forge_region", play)
    (tmp_path / "net.py").write_text(PRODUCTS)
    argv = ["forge", f"{tmp_path}/net.py:make", "--coder", "command:false", "--target", "cpu"]
    argv += ["--cache-dir", str(tmp_path / "cache")]
    assert main(argv) == 0
    lines = capsys.readouterr().out.splitlines()
    (told,) = (line for line in lines if line.lstrip().startswith("no hardware counters"))
    assert told == (
        "    no hardware counters: Judge and Coder go without cycles, instructions, cache and "
        "branch misses (perf_event_open: Operation not permitted)"
    )
    assert main([*argv, "--json"]) == 0
    printed = capsys.readouterr()
    assert told in printed.err
    for region in json.loads(printed.out)["regions"]:
        first, second = region["rounds"]
        assert "no_counters" not in first and "not permitted" in second["no_counters"]


def test_a_region_without_a_reply_is_reported_with_the_others(
    capsys: Output, tmp_path: Path, coder: Any
) -> None:
    (tmp_path / "net.py").write_text(PRODUCTS)
    provider = coder([BROKEN], [])
    odd = CODER.replace("own = ", "if made != 2: sys.exit(1)\nown = ")
    (tmp_path / "coder.py").write_text(odd)
    told = as_json(
        capsys, "forge", f"{tmp_path}/net.py:make", "--coder", provider, "--rounds", "1",
        "--target", "cpu", "--cache-dir", str(tmp_path / "cache"), code=1,
    )  # fmt: skip
    results = told["regions"]
    assert [(r["kind"], r["answered"]) for r in results] == [
        ("", False),
        ("negative", True),
        ("", False),
    ]
    assert "the Coder gave no reply" in results[0]["reason"]
    assert [r["ledger"]["failed"] for r in results] == [1, 0, 1]
    for what, sum_of_it in told["total"].items():
        assert sum_of_it == pytest.approx(sum(r["ledger"][what] for r in results)), what


@pytest.mark.parametrize(
    ("priced", "dollars"),
    [
        ("test", ("$2.0000", "$2.0000 and 1 call of unknown price")),
        ("other", ("price unknown",) * 2),
    ],
)
def test_estimated_tokens_and_unknown_prices_are_marked(
    capsys: Output, tmp_path: Path, coder: Any, script: str, priced: str, dollars: tuple[str, str]
) -> None:
    prices = tmp_path / "prices.json"
    prices.write_text(json.dumps({"models": {priced: {"input": 1e4, "output": 1e5}}}))
    provider = coder([BROKEN], [])
    other = 'model = "test"\nif made == 2: usage, model = {}, "unheard"\nprint('
    odd = CODER.replace("print(", other).replace('"model": "test"', '"model": model')
    (tmp_path / "coder.py").write_text(odd)
    argv = ["forge", script, "--coder", provider, "--rounds", "2", "--target", "cpu"]
    assert main([*argv, "--cache-dir", str(tmp_path / "cache"), "--prices", str(prices)]) == 0
    text = capsys.readouterr().out
    lines = text.splitlines()
    first, second = (line.partition("; so far ")[2] for line in lines if "so far" in line)
    assert first == f"110 tokens, {dollars[0]}"
    assert second.startswith("about ") and second.endswith(f" tokens, {dollars[1]}")
    assert facts(text)["cost"] == second


@pytest.mark.parametrize(
    ("model", "priced"),
    [
        ("gpt-5", True),
        ("gpt-5-2025-08-07", True),
        ("gpt-5-pro", False),
        ("gpt-5-pro-2025-10-06", False),
        ("gpt-5-mini", True),
        ("o3", True),
        ("o3-pro", False),
        ("claude-sonnet-4-5-20250929", True),
        ("claude-sonnet-4-9", False),
        ("deepseek-chat-pro", False),
    ],
)
def test_a_model_has_the_price_of_its_own_name(model: str, priced: bool) -> None:
    settings = Agents(coder=f"openai:{model}", coder_key="k" * 20, usd=1).settings()
    if priced:
        _C.check_agents(settings)
    else:
        with pytest.raises(ValueError, match=f"has none for openai:{model}"):
            _C.check_agents(settings)


def test_triton_for_a_cpu_is_refused_before_any_work(
    capsys: Output, tmp_path: Path, script: str
) -> None:
    pytest.importorskip("triton")
    argv = ["forge", script, "--coder", "command:false", "--language", "triton", "--target", "cpu"]
    assert main([*argv, "--cache-dir", str(tmp_path / "cache")]) == 1
    told = capsys.readouterr()
    assert told.out == f"reading {script} ...\n"
    assert told.err.startswith("cudaforge: kernels in Triton are for a GPU; on the cpu: mm -> relu")


def sessions(cache: str) -> list[str]:
    """The session of each round that the cache has."""
    store = _C.KernelStore.open(cache)
    (place,) = {(r["key"], r["arch"]) for r in [*store.records(), *store.wanted()]}
    return [node["session"] for node in store.lineage(*place) if "id" in node]


@pytest.mark.parametrize("beside", [False, True])
def test_a_killed_session_goes_on_unless_another_process_works_on_the_region(
    tmp_path: Path, coder: Any, script: str, beside: bool
) -> None:
    cache = str(tmp_path / "cache")
    provider = coder([WRONG], [])
    program = tmp_path / "coder.py"
    kill = "if made == 2: __import__('os').kill(__import__('os').getppid(), 9)"
    program.write_text(CODER.replace("own = ", f"{kill}\nown = "))
    argv = ["forge", script, "--coder", provider, "--target", "cpu", "--cache-dir", cache]
    command = [sys.executable, "-m", "cudaforge_backend", *argv, "--rounds", "3"]
    killed = subprocess.run(command, capture_output=True, text=True)
    assert killed.returncode == -9, killed.stderr
    program.write_text(CODER)

    (wanted,) = _C.KernelStore.open(cache).wanted()
    with (tmp_path / "cache" / "sessions" / f"{wanted['key']} {wanted['arch']}").open() as lock:
        if beside:
            fcntl.flock(lock, fcntl.LOCK_EX)
        assert main([*argv, "--rounds", "2"]) == 0
    found = sessions(cache)
    assert (len(set(found)), len(found)) == ((2, 3) if beside else (1, 2))


@pytest.mark.parametrize("option", [("--target", "cpu"), ("--train",)])
def test_options_of_models_need_a_script(
    capsys: Output, tmp_path: Path, option: tuple[str, ...]
) -> None:
    for what in ("0123", "--wanted"):
        argv = ("forge", what, "--coder", "command:true", "--cache-dir", str(tmp_path), *option)
        said = f"cudaforge: {option[0]} is of models and needs a SCRIPT.py:FACTORY\n"
        assert refusal(capsys, *argv) == said


def test_where_nothing_is_to_be_forged_it_says_why(
    capsys: Output, tmp_path: Path, script: str
) -> None:
    argv = ("--cache-dir", str(tmp_path / "cache"), "--coder", "command:false")
    assert main(["forge", "--wanted", *argv]) == 0
    none, *summary = capsys.readouterr().out.splitlines()
    assert none == "no region is named, and the wanted list has none for this machine"
    assert facts("\n".join(summary))["regions"] == "0: 0 won, 0 passed over"
    assert main(["forge", script, "--only", "conv", *argv]) == 0
    _, none, *_ = capsys.readouterr().out.splitlines()
    assert none == "no region that is named or wanted has 'conv' among its operators"


def test_an_unknown_key(capsys: Output, tmp_path: Path) -> None:
    folder = ("--cache-dir", str(tmp_path / "c"))
    assert main(["forge", "0123", "--coder", "command:true", *folder]) == 1
    assert "no record or wanted region starts with '0123'" in capsys.readouterr().err
    assert main(["lineage", "0123", *folder]) == 1
    assert "no record or wanted region starts with '0123'" in capsys.readouterr().err
