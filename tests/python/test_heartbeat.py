"""Progress lines for people."""

from __future__ import annotations

import io
import logging
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import cudaforge_backend
import pytest
import torch
from conftest import RunPython
from cudaforge_backend import heartbeat, records
from cudaforge_backend.cli.output import table
from cudaforge_backend.integration import telling
from cudaforge_backend.integration.telling import tell
from cudaforge_backend.progress import Ended, Started
from cudaforge_backend.records import counted
from cudaforge_backend.terminal import ProgressBar
from forged import Terminal, compiled, lose_for_want_of_time, wait_for

END = {
    "event": "end", "region": "", "kind": "negative", "serves": [], "why": "none_right",
    "verdict": "no right candidate", "reason": "", "timing": {}, "seconds": 1.0, "kept": None,
}  # fmt: skip
WON = {**END, "kind": "winner", "serves": ["compiled"], "verdict": "winner", "why": ""}


def start(key: str) -> dict[str, Any]:
    return {"event": "start", "key": key, "arch": "cpu:none", "region": f"sum({key})"}


def test_regions_that_are_forged_at_once_are_distinguished() -> None:
    lines: list[str] = []
    with heartbeat.Teller(lines.append, "forging", (Started, Ended)) as told:
        for raw in (start("a"), start("b"), start("c"), {**WON, "key": "b"}, {**END, "key": "a"}):
            tell(raw, told)
    assert lines[:3] == [f"forging sum({key}) ..." for key in "abc"]
    assert [line.split(",")[0] for line in lines[3:]] == [
        "  winner", "  no winner: no right candidate",
    ]  # fmt: skip
    assert told.kinds == {"winner": 1, "negative": 1}
    assert told.reasons == {"no right candidate": 1}
    said = r"forged 3 regions \(.*\): 1 winner, 1 with no winner, 1 failed \(\d+ s\)"
    assert re.fullmatch(said, told.summary())


def at_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Has standard output and standard error be a terminal. Not a fixture: pytest captures a test's
    output after its fixtures."""
    shown = Terminal()
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, shown)
    monkeypatch.setattr("cudaforge_backend.terminal._LEAST_S", 0.0)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    return shown


def test_what_a_program_prints_stands_above_the_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = at_terminal(monkeypatch)
    bar = ProgressBar("cudaforge: ")
    bar.show(Started(what="forging a\x1b[2J" + "x" * 100, regions=2, regions_done=1))
    print("from the program " + "y" * 100)
    print("UserWarning: be careful", file=sys.stderr)
    bar.leave("the end " + "z" * 100)
    assert sys.stdout is sys.stderr is terminal
    drawn = [re.sub(r"\x1b\[[0-9;]*m", "", piece) for piece in terminal.getvalue().split("\r")]
    assert all(len(piece.removeprefix("\x1b[2K").splitlines()[-1]) <= 80 for piece in drawn[1:3])
    assert drawn[0].startswith("cudaforge") and "1/2 regions; forging a\\x1b[2J" in drawn[0]
    (printed,) = (piece for piece in drawn if "from the program" in piece)
    assert printed.startswith(f"\x1b[2Kfrom the program {'y' * 100}\n")
    (warned,) = (piece for piece in drawn if "be careful" in piece)
    assert warned.startswith("\x1b[2KUserWarning: be careful\n")
    assert drawn[-1].endswith(f"\x1b[2Kcudaforge: the end {'z' * 100}\n")


def test_output_that_is_no_terminal_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = at_terminal(monkeypatch)
    file = io.StringIO()
    monkeypatch.setattr(sys, "stdout", file)
    bar = ProgressBar()
    bar.show(Started(what="forging"))
    print("from the program")
    bar.stop()
    assert file.getvalue() == "from the program\n"
    assert "from the program" not in terminal.getvalue()


def test_one_bar_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = at_terminal(monkeypatch)
    first, second = ProgressBar(), ProgressBar()
    first.show(Started(what="forging a"))
    second.show(Started(what="forging b"))
    second.stop()
    assert "forging b" not in terminal.getvalue() and sys.stderr is not terminal
    first.stop()
    second.show(Started(what="forging b"))
    assert "forging b" in terminal.getvalue()
    second.stop()
    assert sys.stderr is terminal


def test_a_terminal_that_is_gone_fails_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = at_terminal(monkeypatch)

    def write(text: str) -> int:
        raise OSError("gone")

    monkeypatch.setattr(terminal, "write", write)
    with heartbeat.Teller(None, "forging", bar=ProgressBar()) as told:
        tell({"event": "stage", "key": "a", "stage": "race"}, told)
        tell(start("a"), told)
        told.conclude()
    assert sys.stderr is sys.stdout is terminal


def test_a_forked_child_has_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = at_terminal(monkeypatch)
    bar = ProgressBar()
    bar.show(Started(what="forging a"))
    child = os.fork()
    if child == 0:
        bar.show(Started(what="forging b"))
        bar.leave("the end")
        clean = sys.stdout is sys.stderr is terminal and "forging b" not in terminal.getvalue()
        os._exit(0 if clean else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert sys.stderr is not terminal
    bar.stop()


@pytest.mark.parametrize("no_color", ["", "1"])
def test_colours_are_for_terminals_that_want_them(
    monkeypatch: pytest.MonkeyPatch, no_color: str
) -> None:
    terminal = at_terminal(monkeypatch)
    monkeypatch.setenv("NO_COLOR", no_color)
    table(("State", "Part"), [("ok", "x" * 300)])
    assert ("\x1b[" in terminal.getvalue()) != bool(no_color)
    assert terminal.getvalue().count("x") == 300 and len(terminal.getvalue().splitlines()) > 4
    monkeypatch.setattr(sys, "stdout", file := io.StringIO())
    table(("State", "Part"), [("ok", "x" * 300)])
    assert file.getvalue() == f"ok  {'x' * 300}\n"


def test_the_bar_shows_what_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = at_terminal(monkeypatch)
    monkeypatch.setattr(telling, "EVERY_S", 0.02)
    monkeypatch.setenv("COLUMNS", "200")
    with heartbeat.Teller(None, "forging", bar=ProgressBar()) as told:
        wait_for(lambda: "forging" in terminal.getvalue())
        work = telling.Work(what="", key="a", arch="x", text="sum(a)", is_region=True)
        work.left_s = lambda: 9.0
        with telling.making(told, work):
            tell(start("a"), told)
            best = {"verdict": "accepted", "best": True, "ns": 2500.0}
            tell({"event": "candidate", "key": "a", "index": 0, **best}, told)
            tell({"event": "stage", "key": "a", "stage": "race"}, told)
            known = "0/1 region, 9 s left at most, best 2.5 us of 1 tried; "
            race = "sum(a): the best kernel races ATen and Inductor"
            wait_for(lambda: terminal.getvalue().count(f"{known}{race}") >= 2)
    assert sys.stderr is terminal


_FORGES = """
import pytest, torch
from forged import compiled, lose_every_race
lose_every_race(pytest.MonkeyPatch())
made = compiled(lambda x: torch.softmax(x * 3, -1), FOLDER, graph_budget_s=90)
made(torch.randn(4, 67))
made(torch.randn(4, 67))
"""


def test_a_terminal_has_one_line_and_a_summary(tmp_path: Path) -> None:
    shown, own = os.openpty()
    script = f"FOLDER = {str(tmp_path)!r}{_FORGES}"
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        stderr=own,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "CUDAFORGE_LOG": ""},
    )
    os.close(own)
    text = ""
    try:
        while piece := os.read(shown, 4096):
            text += piece.decode()
    except OSError:  # how Linux reports the end
        pass
    os.close(shown)
    assert process.wait() == 0
    summary, *others = [piece for piece in text.split("\r") if "cudaforge: forged " in piece]
    assert "with no winner" in summary and others == []
    assert "/1 region, " in text and " s left at most" in text


def test_a_pipe_stays_silent(tmp_path: Path, run_python: RunPython) -> None:
    done = run_python(f"FOLDER = {str(tmp_path)!r}{_FORGES}", CUDAFORGE_LOG="")
    assert done.stdout == "" and "cudaforge" not in done.stderr


def forge(folder: Path, columns: int) -> None:
    compiled(lambda x: torch.softmax(x * 3, -1), folder)(torch.randn(4, columns))


@pytest.mark.parametrize("level", [logging.WARNING, logging.INFO, logging.DEBUG])
def test_the_log_has_what_begins_and_what_came_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, level: int
) -> None:
    """Also with a log of every step; nothing without a listener."""
    lose_for_want_of_time(monkeypatch, raced=False)
    with caplog.at_level(level, "cudaforge.forge"):
        forge(tmp_path, 61)
    ours = [r for r in caplog.records if r.name == "cudaforge.forge"]
    said = [r.getMessage() for r in ours if r.levelno == logging.INFO]
    assert any(r.levelno == logging.DEBUG for r in ours) == (level == logging.DEBUG)
    if level == logging.WARNING:
        assert ours == []
        return
    first, last = said
    assert first.startswith("forging kernels for 1 region, at most 30 s each, 600 s in all")
    counts = re.match(r"forged (\d+) regions \(.*\): 0 winners, (\d+) with no winner \(", last)
    n = cudaforge_backend.stats().negative
    again = f"; {counted(n, 'region')} had too little time: "
    assert re.search(f"{again}region_budget_s=\\d+ or more tries again$", last)
    assert counts and int(counts[1]) == int(counts[2]) == n


def test_the_retry_budget_suffices_for_all_regions() -> None:
    said = "2 regions had too little time: region_budget_s="
    for above, budget in (([9.0, None, 4.5], 30), ([9.0, 45.0], 46)):
        again = records.try_again(above, "region_budget_s=")
        assert again == f"{said}{budget} or more tries again"
    assert records.try_again([None], "region_budget_s=") is None


def test_blocking_forging_with_a_callback_says_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lose_for_want_of_time(monkeypatch, raced=False)
    cudaforge_backend.set_progress(lambda event: None)
    with caplog.at_level(logging.INFO):
        forge(tmp_path, 63)
    assert not [r for r in caplog.records if r.name == "cudaforge.forge"]
