"""tests/stage.py and tests/summary.py: a stage that passed is skipped while nothing changed."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tree import ROOT

REPORT = "<testsuite><testcase name='a'/><testcase name='b'><skipped/></testcase></testsuite>"


class Stage:
    """A stage that adds a line to a log, writes a report and ends with the status in a file."""

    def __init__(self, folder: Path, module: Any) -> None:
        self.folder, self.module = folder, module
        self.checkout, self.log = folder / "checkout", folder / "log"
        self.reports = folder / "test-reports"
        self.status, self.meanwhile = 0, ""
        self.checkout.mkdir()
        subprocess.run(["git", "init", "-q", self.checkout], check=True)
        (self.checkout / ".gitignore").write_text("ignored\n")
        (self.checkout / "a").write_text("1")

    def run(self, run_all: bool = False) -> bool:
        """Whether the command was run."""
        before = self.runs()
        work = f"echo run >>{self.log}; . {self.folder}/meanwhile; "
        work += f'echo "{REPORT}" >{self.reports}/x.xml; exit $(cat {self.folder}/status)'
        (self.folder / "status").write_text(str(self.status))
        (self.folder / "meanwhile").write_text(self.meanwhile)
        self.result = self.module.run(
            "fake",
            self.folder / "passed",
            self.reports / "x*.xml",
            [self.checkout, Path("/bin/true")],
            ["sh", "-c", work],
            run_all,
        )
        assert self.runs() in (before, before + 1)
        return self.runs() > before

    def runs(self) -> int:
        return len(self.log.read_text().splitlines()) if self.log.exists() else 0


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    monkeypatch.syspath_prepend(str(ROOT / "tests"))
    module = importlib.import_module("stage")
    monkeypatch.setattr(module, "machine", lambda: ["a machine"])
    return Stage(tmp_path, module)


def test_a_passed_stage_is_not_rerun(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    assert stage.run() and stage.result == 0
    assert capsys.readouterr().out == ""
    for _ in range(2):
        assert not stage.run() and stage.result == 0
        assert "fake: unchanged since it passed on 20" in capsys.readouterr().out
    assert stage.run(run_all=True)
    assert not stage.run()


def test_a_failure_is_never_kept(stage: Stage) -> None:
    stage.status = 3
    assert stage.run() and stage.result == 3
    assert stage.run() and stage.result == 3
    stage.status = 0
    assert stage.run() and not stage.run()
    stage.status = 3
    assert stage.run(run_all=True)
    assert stage.run() and stage.result == 3  # the pass before is forgotten


def test_any_change_reruns_the_stage(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    assert stage.run()
    (stage.checkout / "a").write_text("2")
    assert stage.run() and not stage.run()
    (stage.checkout / "new").write_text("")
    assert stage.run() and not stage.run()
    (stage.checkout / "new").rename(stage.checkout / "renamed")
    assert stage.run() and not stage.run()
    (stage.checkout / "ignored").write_text("")
    (stage.checkout / "a").touch()
    assert not stage.run()
    monkeypatch.setattr(stage.module, "machine", lambda: ["another machine"])
    assert stage.run() and not stage.run()
    monkeypatch.setattr(stage.module, "output", lambda *command: "libx => /bin/sh")
    assert stage.run() and not stage.run()  # another shared library


def test_a_change_while_it_runs_is_not_kept(stage: Stage) -> None:
    stage.meanwhile = f"echo 3 >{stage.checkout}/a"
    assert stage.run()
    stage.meanwhile = ""
    (stage.checkout / "a").write_text("1")  # as it was when the stage began
    assert stage.run() and not stage.run()


def test_without_git_nothing_is_kept(stage: Stage) -> None:
    (stage.checkout / ".git").rename(stage.folder / "git")
    assert stage.run() and stage.run()


def test_reports_come_back(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    assert stage.run()
    (stage.reports / "x.xml").write_text("of another run")
    (stage.reports / "x2.xml").write_text("of another run")
    assert not stage.run()
    assert [p.name for p in stage.reports.iterdir()] == ["x.xml"]
    made = (stage.reports / "x.xml").stat().st_mtime

    def summary(start: float) -> list[str]:
        script = [sys.executable, ROOT / "tests" / "summary.py", stage.folder, str(start)]
        done = subprocess.run(script, capture_output=True, text=True, check=True)
        return done.stdout.splitlines()

    for start, words in ((made - 1, ""), (made + 1, ", earlier results")):
        cpp, python, title, *slowest = summary(start)
        assert title == "the slowest tests:" and len(slowest) == 2
        assert cpp.split()[:5] == ["C++", "1", "passed", "0", "failed"]
        assert cpp.endswith("1 skipped for other reasons" + words)
        assert python.endswith("other reasons")


def test_the_machine_has_its_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tests"))
    machine = importlib.import_module("stage").machine
    monkeypatch.delenv("CUDAFORGE_ON_MISS", raising=False)
    before = machine()
    assert before == machine()
    assert any(fact.startswith("torch 2.") for fact in before)
    assert any(fact.startswith("model name") for fact in before) or os.uname().machine != "x86_64"
    monkeypatch.setenv("CUDAFORGE_ON_MISS", "blocking")
    assert set(machine()) - set(before) == {"CUDAFORGE_ON_MISS=blocking"}
