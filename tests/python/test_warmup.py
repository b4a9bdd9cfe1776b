"""`cudaforge warmup`: what it forges, and what it says of scripts that cannot be used."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cudaforge_backend
import pytest
import torch
from command import Output, as_json, cells, facts, refusal
from conftest import RunPython
from cudaforge_backend._native import _C
from cudaforge_backend.cli import main, warmup
from cudaforge_backend.cli.warmup import _with_kernels
from cudaforge_backend.integration import gate, telling
from forged import Terminal, lose_for_want_of_time, win_every_race

SCRIPT = """
import torch
class Net(torch.nn.Module):
    def forward(self, x): return torch.softmax(x * 3, -1)
def good(): return Net(), (torch.randn(64, 128),)
def no_region(): return torch.nn.ReLU(), (torch.randn(4),)
class Recurrent(Net):
    def __init__(self):
        super().__init__()
        self.cell = torch.nn.LSTM(4, 8)
    def forward(self, x): return self.cell(x)[0]
def recurrent(): return Recurrent(), (torch.randn(2, 3, 4),)
def no_tensor(): return Net(), ("text",)
class Detached(Net):
    def forward(self, x): return x.detach() * 2
class InADict(Net):
    def forward(self, x): return {"logits": x * 2}
class Refuses(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x * 2
    @staticmethod
    def backward(ctx, grad): raise ZeroDivisionError("in the backward")
class NoBackward(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(4))
    def forward(self, x):
        torch._dynamo.graph_break()
        return Refuses.apply(self.weight)
def detached(): return Detached(), (torch.randn(4, requires_grad=True),)
def in_a_dict(): return InADict(), (torch.randn(4, requires_grad=True),)
def no_backward(): return NoBackward(), (torch.randn(4),)
class Shapes(Net):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)
    def forward(self, x): return super().forward(self.layer(x))  # of five columns
class Uncopied(Shapes):
    def __deepcopy__(self, memo): raise TypeError("there is one of me")
class Parameter(Net):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(128))
    def forward(self, x): return super().forward(x * self.weight)
def parameter(): return Parameter(), (torch.randn(8, 128),)
def shapes(): return Shapes(), (torch.randn(3, 5),)
def uncopied(): return Uncopied(), (torch.randn(3, 5),)
class Bytes(torch.nn.Module):
    def forward(self, x): return x.amax(-1)
def of_bytes(): return Bytes(), (torch.ones(4, 9, dtype=torch.int8),)
def with_arguments(size): return Net(), (torch.randn(size),)
instance = Net()
def raising(): raise ZeroDivisionError("by nothing")
def nonsense(): return 42
number = 7
"""


def raced_in_place(ways: dict[str, Any], inputs: Any, most_s: float) -> Any:
    """Replaces the gate's race: the graph with its winners is called, and is faster."""
    ways["kernels"](*inputs)

    def speedup(base: str, name: str) -> tuple[float, float, float]:
        return (1.02, 1.06, 1.1) if name == "kernels" else (0.8, 0.9, 1.0)

    return SimpleNamespace(
        speedup=speedup, median_ms=lambda name: 0.94 if name == "kernels" else 1.0
    )


@pytest.fixture
def script(tmp_path: Path) -> str:
    """A script of factories, good and bad."""
    path = tmp_path / "factories.py"
    path.write_text(SCRIPT)
    return str(path)


@pytest.mark.parametrize(
    ("factory", "said"),
    [
        ("good", "is not SCRIPT.py:FACTORY"),
        ("/nowhere/script.py:good", "there is no script"),
        ("{script}:missing", "has no function missing"),
        ("{script}:number", "has no function number"),
        ("{script}:raising", "raised ZeroDivisionError: by nothing"),
        ("{script}:nonsense", "must return (model, inputs)"),
        ("{script}:no_tensor", "the model with its inputs raised"),
        ("{script}:shapes", "cannot be multiplied"),
        ("{script}:uncopied", "a and b must have same reduction dim, but got [3, 5] X [4, 4]."),
        ("{script}:with_arguments", "takes arguments (missing a required argument: 'size')"),
        ("{script}:with_arguments", "the factory is called without arguments and returns (model, "),
        ("{script}:instance", "is a torch.nn.Module: the factory is called without arguments"),
    ],
)
def test_warmup_says_what_is_wrong(
    capsys: Output, tmp_path: Path, script: str, factory: str, said: str
) -> None:
    folder = ("--cache-dir", str(tmp_path / "cache"))
    assert said in refusal(capsys, "warmup", factory.format(script=script), *folder)


def test_warmup_names_the_line_of_the_script(capsys: Output, tmp_path: Path, script: str) -> None:
    folder = ("--cache-dir", str(tmp_path / "cache"))
    lines = Path(script).read_text().splitlines()
    raising = 1 + next(i for i, line in enumerate(lines) if "by nothing" in line)
    assert f"({script}, line {raising})" in refusal(capsys, "warmup", f"{script}:raising", *folder)
    running = 1 + next(i for i, line in enumerate(lines) if "of five columns" in line)
    for factory in ("shapes", "uncopied"):
        said = refusal(capsys, "warmup", f"{script}:{factory}", *folder)
        assert f"({script}, line {running})" in said
    broken = tmp_path / "broken.py"
    broken.write_text("x = 1\ndef f(:\n")
    assert f"({broken}, line 2)" in refusal(capsys, "warmup", f"{broken}:f", *folder)


def test_warmup_says_what_had_too_little_time(
    capsys: Output, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    lose_for_want_of_time(monkeypatch, raced=False)
    folder = ("--device", "cpu", "--cache-dir", str(tmp_path / "cache"))
    command = ("warmup", f"{script}:good", *folder)
    assert main([*command, "--region-budget", "4"]) == 0
    text = capsys.readouterr().out
    assert "\n  no winner: out of time, not raced, " in text
    assert "0 winners forged, " in text and " with no winner, 0 decided before, " in text
    n = text.count("forging ")
    summary = facts(text)
    assert summary["no winner"] == f"out of time, not raced ({n})"
    assert "--region-budget 30 " in summary["too little time"]
    cudaforge_backend.reset_stats()
    torch._dynamo.reset()
    data = as_json(capsys, *command, "--region-budget", "6")
    assert (data["negative"], data["too_little_time"]) == (0, n)
    assert data["region_budget_to_retry_s"] == 30
    (row, *_) = as_json(capsys, "cache", "ls", "--cache-dir", str(tmp_path / "cache"))
    assert (row["verdict"], row["retry_above_s"]) == ("out of time, not raced", 6.0)
    assert main(["cache", "ls", "--cache-dir", str(tmp_path / "cache")]) == 0
    text = capsys.readouterr().out
    assert [row[2] for row in cells(text)] == ["no winner"] * n
    assert main(["cache", "show", row["key"], "--cache-dir", str(tmp_path / "cache")]) == 0
    fields = dict(cells(capsys.readouterr().out))
    assert (fields["result"], fields["why"]) == ("no winner", "out of time, not raced")
    assert "region_budget_s above 6 " in fields["too little time"] and "verified" not in fields


@pytest.mark.parametrize(
    ("factory", "said"),
    [
        ("detached", "--train needs a (first) output that requires grad"),
        ("in_a_dict", "--train needs a tensor as its (first) output, and that is of type dict"),
        ("no_backward", "differentiated) raised ZeroDivisionError: in the backward"),
        ("no_tensor", "the model with its inputs raised"),
    ],
)
def test_warmup_distinguishes_the_training_step_from_the_model(
    capsys: Output, tmp_path: Path, script: str, factory: str, said: str
) -> None:
    folder = ("--cache-dir", str(tmp_path / "cache"), "--device", "cpu")
    line = refusal(capsys, "warmup", f"{script}:{factory}", "--train", *folder)
    assert said in line
    assert ("the model runs, but the training step" in line) == (factory != "no_tensor")


def test_warmup_names_a_script_that_cannot_be_read(capsys: Output, tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("def f(:\n")
    folder = ("--cache-dir", str(tmp_path / "cache"))
    assert "raised SyntaxError" in refusal(capsys, "warmup", f"{broken}:f", *folder)


def test_warmup_refuses_a_budget_below_zero(capsys: Output, script: str) -> None:
    line = refusal(capsys, "warmup", f"{script}:good", "--region-budget", "-1")
    assert "region_budget_s" in line


def test_warmup_into_a_plain_file(capsys: Output, tmp_path: Path, script: str) -> None:
    plain = tmp_path / "plain"
    plain.write_text("mine")
    line = refusal(capsys, "warmup", f"{script}:good", "--cache-dir", str(plain))
    assert "cannot be used" in line
    assert plain.read_text() == "mine"


@pytest.mark.parametrize("promised", [False, True])
def test_warmup_with_frozen_weights(
    tmp_path: Path, script: str, monkeypatch: pytest.MonkeyPatch, promised: bool
) -> None:
    given: list[dict[str, Any]] = []
    monkeypatch.setattr(warmup, "_run_once", lambda *arguments: given.append(arguments[3]))
    asked = ["--frozen-weights"] if promised else []
    main(["warmup", f"{script}:good", "--cache-dir", str(tmp_path / "cache"), *asked])
    assert [options.get("frozen_weights", False) for options in given] == [promised]


def test_warmup_of_a_model_without_regions_says_so(
    capsys: Output, tmp_path: Path, script: str
) -> None:
    folder = ("--cache-dir", str(tmp_path / "cache"))
    assert main(["warmup", f"{script}:no_region", "--device", "cpu", *folder]) == 0
    assert "no region was found" in capsys.readouterr().out


def test_warmup_says_what_can_be_done_about_what_is_left(
    capsys: Output, tmp_path: Path, script: str
) -> None:
    folder = ("--cache-dir", str(tmp_path / "cache"))
    assert main(["warmup", f"{script}:of_bytes", "--device", "cpu", *folder]) == 0
    text = capsys.readouterr().out
    summary = facts(text)
    assert summary["run by PyTorch"] == "unsupported_dtype (1)"
    assert summary["what to do"].startswith("unsupported_dtype: ")


@pytest.mark.parametrize(
    ("factory", "more", "said"),
    [("parameter", [], True), ("parameter", ["--train"], False), ("good", [], False)],
)
def test_warmup_says_that_it_was_of_inference(
    capsys: Output,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    script: str,
    factory: str,
    more: list[str],
    said: bool,
) -> None:
    lose_for_want_of_time(monkeypatch, raced=False)
    folder = ("--cache-dir", str(tmp_path / "cache"))
    assert main(["warmup", f"{script}:{factory}", *more, "--device", "cpu", *folder]) == 0
    assert ("inference" in facts(capsys.readouterr().out)) == said


def test_warmup_of_a_model_without_graphs_says_so(
    capsys: Output, tmp_path: Path, script: str
) -> None:
    folder = ("--cache-dir", str(tmp_path / "cache"))
    assert main(["warmup", f"{script}:recurrent", "--device", "cpu", *folder]) == 0
    said = capsys.readouterr().out
    assert "Dynamo made no graph: it leaves code that calls torch.nn.LSTM to eager" in said
    assert "no region" not in said


def test_warmup_shows_at_a_terminal_that_it_goes_on(
    capsys: Output, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    """In addition to its lines, which are the same elsewhere."""
    lose_for_want_of_time(monkeypatch, raced=False)
    monkeypatch.setattr(telling, "EVERY_S", 0.01)
    monkeypatch.setenv("TERM", "xterm")
    lines = []
    for at_terminal in (False, True):
        terminal = Terminal()
        with monkeypatch.context() as patch:
            if at_terminal:
                patch.setattr(sys, "stderr", terminal)
            torch._dynamo.reset()
            cache = str(tmp_path / f"cache{at_terminal}")
            command = ("warmup", f"{script}:good", "--device", "cpu", "--cache-dir", cache)
            assert main(list(command)) == 0
        text, errors = capsys.readouterr()
        *rest, _ = text.splitlines()  # the last is the cache
        lines.append([line.split(", ")[0] for line in rest])
        assert "\r" not in text and errors == ""
    assert lines[0] == lines[1]
    shown = terminal.getvalue()
    assert "compiling the model" in shown
    assert shown.endswith("\x1b[2K")  # the bar is gone


def test_warmup_without_time_for_every_region_ends_with_3(
    capsys: Output, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    lose_for_want_of_time(monkeypatch, raced=False)
    command = ("warmup", f"{script}:good", "--device", "cpu", "--cache-dir", str(tmp_path))
    data = as_json(capsys, *command, "--graph-budget", "0.001", code=3)
    assert data["left"] == data["regions"] > 0
    torch._dynamo.reset()
    assert as_json(capsys, *command)["left"] == 0


def test_warmup_says_which_graphs_run_with_kernels(
    capsys: Output, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    win_every_race(monkeypatch)
    monkeypatch.setattr(gate, "obstacle", lambda gm, analysis, inductor: "")
    monkeypatch.setattr(gate, "_race", raced_in_place)
    command = ("warmup", f"{script}:good", "--device", "cpu", "--cache-dir", str(tmp_path))
    said = " 1 graph runs with its kernels: 1.06 times as fast as without [1.02, 1.10]\n"
    for _ in range(2):  # timed, and known to be faster
        cudaforge_backend.reset_stats()
        torch._dynamo.reset()
        assert main(command) == 0
        assert said in capsys.readouterr().out
    monkeypatch.setattr(gate, "stored", lambda name, arch: None)
    monkeypatch.setattr(gate, "obstacle", lambda gm, analysis, inductor: "a test")
    cudaforge_backend.reset_stats()
    torch._dynamo.reset()
    data = as_json(capsys, *command)
    assert (data["graphs_with_kernels"], data["graph_speedups"]) == (1, [])


def test_what_graphs_gain_is_said_in_a_line() -> None:
    gains = [(1.0, 1.1, 1.2), (1.2, 1.3, 1.4)]
    assert _with_kernels(1, []) == "1 graph runs with its kernels (1 not timed)"
    two = "2 graphs run with their kernels: 1.10 to 1.30 times as fast as without"
    assert _with_kernels(2, gains) == two
    assert _with_kernels(3, gains) == two.replace("2 g", "3 g") + " (1 not timed)"


def test_warmup_goes_on_when_its_output_is_not_read(run_python: RunPython, script: str) -> None:
    code = f"""
import os, sys
from cudaforge_backend.cli import main
from forged import win_every_race
win_every_race()
reader, writer = os.pipe()
os.close(reader)
os.dup2(writer, 1)  # what `| head` leaves behind
code = main(["warmup", {script + ":good"!r}, "--device", "cpu", "--region-budget", "8",
             "--cache-dir", {script + ".unread"!r}])
main(["cache", "stats", "--cache-dir", {script + ".unread"!r}])
sys.exit(code)
"""
    done = run_python(code)  # exit code 0
    assert "Traceback" not in done.stderr and "BrokenPipeError" not in done.stderr
    kept = _C.KernelStore.open(script + ".unread").records()
    assert [record["kind"] for record in kept] == ["winner"]


def test_warmup_decides_every_region_once(run_python: RunPython, script: str) -> None:
    code = f"""
import sys
from cudaforge_backend.cli import main
from forged import win_every_race
win_every_race()
sys.exit(main(["warmup", {script + ":good"!r}, "--device", "cpu", "--region-budget", "8", "--json",
               "--cache-dir", {script + ".cache"!r}]))
"""
    done = run_python(code, ready=True)
    assert "forging mul -> _softmax(float32[64, 128]) ...\n  winner: " in done.stderr
    first = json.loads(done.stdout)
    second = json.loads(run_python(code, ready=True).stdout)
    assert first["forged"] == first["regions"] - first["known"] == 1
    assert second["forged"] + second["negative"] == 0
    assert second["regions"] == second["known"] >= 1
    assert second["hits"] >= 1 and second["known"] == 1


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs /proc")
def test_warmup_does_not_begin_where_nothing_can_be_kept(capsys: Output, script: str) -> None:
    line = refusal(capsys, "warmup", f"{script}:good", "--cache-dir", "/proc/cudaforge")
    assert "/proc takes no writes" in line and "--cache-dir" in line
