"""`cudaforge forge` without a Coder: the built-in generators make kernels for the wanted list."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import cudaforge_backend
import pytest
import torch
from coders import BROKEN
from command import Output, as_json, cells, facts, refusal
from cudaforge_backend import enable
from cudaforge_backend._native import _C
from cudaforge_backend.cli import main
from cudaforge_backend.cli.built_in import _again
from cudaforge_backend.cli.stores import normalized
from cudaforge_backend.integration import forging
from cudaforge_backend.records import op_names
from forged import compiled, lose_every_race, lose_for_want_of_time, win_every_race

SOFTMAX, PRODUCT = "aten::_softmax", "aten::mm"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[_C.Signature, str]]:
    """What an eager program has put on the wanted list: two softmaxes and a product. A process
    records a region once."""
    folder = str(tmp_path_factory.mktemp("recorded"))
    cudaforge_backend.reset_stats()
    with enable([SOFTMAX, PRODUCT], on_miss="record", cache_dir=folder):
        for columns in (30, 31):
            torch.randn(8, columns).softmax(-1)
        torch.randn(8, 16) @ torch.randn(16, 24)
    assert "`cudaforge forge --wanted` makes" in str(cudaforge_backend.stats())
    rows = _C.KernelStore.open(folder).wanted()
    return [(normalized(row["signature"]), row["arch"]) for row in rows]


@pytest.fixture
def folder(tmp_path: Path, recorded: list[tuple[_C.Signature, str]]) -> tuple[str, str]:
    """A cache with that wanted list, as the option of a command. A shell needs its name quoted."""
    cache = str(tmp_path / "a cache")
    _C.KernelStore.open(cache, True).add_wanted(recorded)
    return "--cache-dir", cache


def wanted(output: Output, folder: tuple[str, str]) -> dict[str, Any]:
    """What is on the list, by the columns of the first input."""
    rows = as_json(output, "cache", "wanted", *folder)
    return {str(r["signature"]["inputs"][0]["sizes"][-1]): r for r in rows}


def test_the_wanted_regions_of_an_eager_program_are_forged_and_served(
    capsys: Output, folder: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    win_every_race(monkeypatch)
    asked = wanted(capsys, folder)
    assert {columns: bool(row["only_agents"]) for columns, row in asked.items()} == {
        "30": False, "31": False, "16": True,
    }  # fmt: skip
    assert main(["cache", "wanted", *folder]) == 0
    text = capsys.readouterr().out
    marked = f"mm(float32[8, 16], float32[16, 24])\n{'':<38}only agents make it: `cudaforge forge "
    assert marked in text and text.count("only agents") == 1

    data = as_json(capsys, "forge", "--wanted", *folder)
    made = {(row["key"], row["kind"], row["verdict"], row["known"]) for row in data["regions"]}
    assert made == {(asked[n]["key"], "winner", "winner", False) for n in ("30", "31")}
    assert all(row["speedup"][1] > 1 for row in data["regions"])
    assert (data["only_agents"], data["elsewhere"]) == ([asked["16"]["key"]], 0)
    assert list(wanted(capsys, folder)) == ["16"]
    cudaforge_backend.reset_stats()
    with enable([SOFTMAX], on_miss="fallback", cache_dir=folder[1]):
        x = torch.randn(8, 30)
        torch.testing.assert_close(x.softmax(-1), torch.softmax(x.double(), -1).float())
    assert cudaforge_backend.stats().eager[SOFTMAX].hits == 1

    assert main(["forge", "--wanted", *folder]) == 0
    text = capsys.readouterr().out
    assert "forging" not in text
    assert "1 region that only agents make" in facts(text)["passed over"]


def test_one_region_is_forged_by_its_key(
    capsys: Output, folder: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    win_every_race(monkeypatch)
    asked = wanted(capsys, folder)
    key, product = asked["31"]["key"], asked["16"]["key"]
    said = refusal(capsys, "forge", key, product, *folder)
    assert "no generator makes mm(" in said and "--coder names who writes its kernel" in said
    assert main(["forge", key[:12], *folder]) == 0
    text = capsys.readouterr().out
    assert text.startswith("forging _softmax(float32[8, 31]) ...\n  winner: ")
    (row,) = [row for row in cells(text) if row[0] == key[:12]]
    assert row[1].endswith("x") and row[2] == "_softmax(float32[8, 31])"
    assert "1 winner forged, 0 with no winner, 0 decided before, " in text
    assert set(wanted(capsys, folder)) == {"30", "16"}
    (again,) = as_json(capsys, "forge", key, *folder)["regions"]
    assert (again["kind"], again["known"]) == ("winner", True)
    assert main(["forge", key, *folder]) == 0
    assert ", 1 decided before (" in capsys.readouterr().out
    assert main(["forge", key, "--only", "conv", *folder]) == 0
    none, summary, _ = capsys.readouterr().out.splitlines()
    assert "'conv'" in none and "0 winners forged, " in summary


def test_regions_with_too_little_time_are_retried_with_more(
    capsys: Output, folder: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lose_for_want_of_time(monkeypatch, raced=False)
    key = wanted(capsys, folder)["30"]["key"]
    argv = ["forge", key, "--region-budget", "2", *folder]
    assert main(argv) == 0
    text = capsys.readouterr().out
    (row,) = [row for row in cells(text) if row[0] == key[:12]]
    assert row[1] == "no winner" and row[2].startswith("_softmax(float32[8, 30])\n")
    again = ["cudaforge", "forge", key[:12], "--region-budget", "30", *folder]
    assert shlex.split(text.split("`")[-2]) == again
    for budget, known in (("2.5", True), ("31", False)):
        argv[3] = budget
        (row,) = as_json(capsys, *argv)["regions"]
        assert (row["kind"], row["known"]) == ("negative", known)


def test_the_next_run_queues_parts_of_regions_without_a_winner(
    capsys: Output, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose_every_race(monkeypatch)
    folder = ("--cache-dir", str(tmp_path))

    def run() -> list[str]:
        torch._dynamo.reset()
        compiled(lambda x: torch.softmax(x * 3, -1), tmp_path, on_miss="record")(torch.randn(9, 67))
        return [op_names(row["signature"]) for row in as_json(capsys, "cache", "wanted", *folder)]

    assert run() == ["mul -> _softmax"]
    for parts, said in ((["_softmax"], True), ([], False)):  # the part has none
        assert main(["forge", "--wanted", *folder]) == 0
        assert ("parts" in facts(capsys.readouterr().out)) == said
        assert run() == parts


@pytest.mark.parametrize(("short", "more"), [(6, []), (7, ["KEY..."])])
def test_a_command_for_a_retry_names_at_most_six_regions(short: int, more: list[str]) -> None:
    rows = [{"key": f"{n}" * 64, "retry_above_s": 3.0} for n in range(short)]
    rows.insert(2, {"key": "f" * 64, "retry_above_s": None})  # this one had time
    named = [f"{n}" * 12 for n in range(6)] + more
    again = _again(_C.config()["cache_dir"], rows, 30)
    assert again.split() == ["cudaforge", "forge", *named, "--region-budget", "30"]


def test_a_failure_leaves_the_other_regions_and_the_list(
    capsys: Output, folder: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    win_every_race(monkeypatch)
    bad = wanted(capsys, folder)["30"]["key"]
    real = forging._Forge.run

    def run(self: Any) -> Any:
        if self.key == bad:
            raise RuntimeError("no compiler")
        return real(self)

    monkeypatch.setattr(forging._Forge, "run", run)
    with pytest.warns(cudaforge_backend.CudaForgeWarning, match="no compiler"):
        data = as_json(capsys, "forge", "--wanted", *folder, code=1)
    kinds = {(r["kind"], r["verdict"]) for r in data["regions"]}
    assert kinds == {("", "no compiler"), ("winner", "winner")}
    assert set(wanted(capsys, folder)) == {"30", "16"}


def test_ctrl_c_keeps_what_is_finished(
    capsys: Output, folder: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    win_every_race(monkeypatch)
    real, begun = forging._Forge.run, []

    def run(self: Any) -> Any:
        begun.append(self.key)
        if len(begun) == 2:
            raise KeyboardInterrupt
        return real(self)

    with monkeypatch.context() as patch:
        patch.setattr(forging._Forge, "run", run)
        assert main(["forge", "--wanted", *folder]) == 130
    assert "what was finished is kept" in capsys.readouterr().err
    first, second = begun
    left = {row["key"] for row in wanted(capsys, folder).values()}
    assert second in left and first not in left
    (row,) = as_json(capsys, "forge", "--wanted", *folder)["regions"]
    assert (row["key"], row["kind"]) == (second, "winner")


def test_a_wanted_list_that_cannot_be_read_is_no_empty_one(
    folder: tuple[str, str], capsys: Output
) -> None:
    for manifest in Path(folder[1], "db").glob("MANIFEST-*"):
        manifest.write_bytes(b"x" * 64)
    assert main(["forge", "--wanted", *folder]) == 1
    assert "the cache cannot be read" in capsys.readouterr().err


def test_regions_of_other_machines_are_passed_over(
    capsys: Output, tmp_path: Path, recorded: list[tuple[_C.Signature, str]]
) -> None:
    elsewhere = [(signature, "cpu:other") for signature, _ in recorded]
    _C.KernelStore.open(str(tmp_path), True).add_wanted(elsewhere)
    data = as_json(capsys, "forge", "--wanted", "--cache-dir", str(tmp_path))
    assert (data["regions"], data["only_agents"], data["elsewhere"]) == ([], [], 3)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ([], "--wanted"),
        (["net.py:make"], "`cudaforge warmup net.py:make`"),
        (["--wanted", "--judge", "command:true"], "--judge needs a --coder"),
        (["--wanted", "--max-usd", "3"], "--max-usd needs a --coder"),
        (["--wanted", "--region-budget", "0"], "region_budget_s"),
        (["abc"], "no record or wanted region starts with 'abc'"),
    ],
)
def test_what_cannot_be_done_is_said(
    capsys: Output, tmp_path: Path, argv: list[str], said: str
) -> None:
    assert said in refusal(capsys, "forge", *argv, "--cache-dir", str(tmp_path))


def test_a_coder_writes_for_the_wanted_list(
    capsys: Output, folder: tuple[str, str], coder: Any
) -> None:
    key = wanted(capsys, folder)["16"]["key"]
    argv = ["forge", "--wanted", "--only", "mm", "--coder", coder([BROKEN], []), "--rounds", "1"]
    (region,) = as_json(capsys, *argv, "--max-time", "60", *folder)["regions"]
    assert (region["key"], len(region["rounds"])) == (key, 1)
