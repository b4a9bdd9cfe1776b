"""`cudaforge forge` at a terminal: it is interrupted, and a person says something."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from coders import ADVICE, BROKEN, CODER, WRONG
from command import Output, as_json
from cudaforge_backend import AgentStep, Event
from cudaforge_backend.cli import main
from cudaforge_backend.cli.forge import _Teller

# The command in a process that Ctrl-C ends, also where this one was started to ignore it.
_MAIN = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from cudaforge_backend.cli import main
sys.exit(main(sys.argv[1:]))
"""
_LONGEST_S = 240  # of a process, which would else never end where a test fails


def gated(folder: Path, request: int) -> Path:
    """Delays the coder's reply to that request until the test writes into the returned pipe."""
    gate = folder / "gate"
    os.mkfifo(gate)
    waits = f"if made == {request}: open({str(gate)!r}).read()\n"
    (folder / "coder.py").write_text(CODER.replace("own = ", f"{waits}own = "))
    return gate


@contextmanager
def waiting_at(gate: Path, process: subprocess.Popen[str]) -> Iterator[None]:
    """Once the coder waits at `gate`, which stays closed: a signal to the group of its parent may
    still end a process that has just begun."""
    descriptor = -1
    while descriptor < 0:
        try:
            descriptor = os.open(gate, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            if error.errno != errno.ENXIO or process.poll() is not None:
                raise
            time.sleep(0.01)
    try:
        yield
    finally:
        os.close(descriptor)


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    """Two descriptors: what is written to the first is typed at the second."""
    both = os.openpty()
    yield both
    for descriptor in both:
        os.close(descriptor)


@contextmanager
def running(stdin: int, *argv: str) -> Iterator[subprocess.Popen[str]]:
    """The command in a process and a group of its own, killed when the test is over."""
    process = subprocess.Popen(
        [sys.executable, "-c", _MAIN, *argv],
        stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    watchdog = threading.Timer(_LONGEST_S, process.kill)
    watchdog.start()
    try:
        with process:
            try:
                yield process
            finally:
                process.kill()
    finally:
        watchdog.cancel()


def read_until(process: subprocess.Popen[str], words: str) -> None:
    """Reads lines of its output up to the next that has these words."""
    assert process.stdout is not None
    assert any(words in line for line in process.stdout), process.communicate()[1]


def test_ctrl_c_ends_a_session_that_the_same_command_goes_on_with(
    capsys: Output, tmp_path: Path, coder: Any, script: str, terminal: tuple[int, int]
) -> None:
    cache = ("--cache-dir", str(tmp_path / "cache"))
    provider = coder([WRONG, "no code at all"], [])
    argv = ["forge", script, "--coder", provider, "--target", "cpu", *cache, "--rounds", "2"]
    gate = gated(tmp_path, request=2)
    with running(terminal[1], *argv) as process:
        for _ in range(2):
            read_until(process, "asking the coder")
        with waiting_at(gate, process):
            os.killpg(process.pid, signal.SIGINT)  # as a terminal does
            _, told = process.communicate()
    assert process.returncode == 130, told
    assert told.splitlines()[-1] == (
        "cudaforge: interrupted; what was finished is kept, and the same command goes on from it"
    )

    (wanted,) = as_json(capsys, "cache", "wanted", *cache)
    (place,) = as_json(capsys, "lineage", wanted["key"], *cache)
    assert place["nodes"][0]["verdict"]["verdict"] == "wrong_values"
    (tmp_path / "coder.py").write_text(CODER)
    assert main(argv) == 0
    assert "goes on with an interrupted session of " in capsys.readouterr().out
    (place,) = as_json(capsys, "lineage", wanted["key"], *cache)
    assert len({node["session"] for node in place["nodes"]}) == 1
    judged = [n["verdict"]["verdict"] for n in place["nodes"] if n.get("answered", "id" in n)]
    assert judged == ["wrong_values", "refused"]


@pytest.mark.parametrize("last", [1, 2, 3])
def test_what_was_paid_before_ctrl_c_is_counted(
    capsys: Output, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, coder: Any, script: str,
    last: int,
) -> None:  # fmt: skip
    provider = coder([WRONG], [ADVICE])
    argv = ["forge", script, "--coder", provider, "--judge", provider, "--rounds", "2"]
    argv += ["--target", "cpu", "--cache-dir", str(tmp_path / "cache")]
    log, show = tmp_path / "coder.log", _Teller.__call__

    def interrupted(self: _Teller, event: Event) -> None:
        called = isinstance(event, AgentStep) and event.step == "call"
        if called and len(log.read_text().splitlines()) == last:
            raise KeyboardInterrupt
        show(self, event)

    with monkeypatch.context() as patch:
        patch.setattr(_Teller, "__call__", interrupted)
        assert main(argv) == 130
    capsys.readouterr()
    assert len(log.read_text().splitlines()) == last
    total = as_json(capsys, *argv)["total"]
    asked = len(log.read_text().splitlines())
    assert (total["calls"], total["input_tokens"]) == (asked, 100 * asked)
    assert total["estimated"] == total["failed"] == 0


def test_a_line_that_is_typed_is_in_the_next_prompt(
    tmp_path: Path, coder: Any, script: str, terminal: tuple[int, int]
) -> None:
    cache = ("--cache-dir", str(tmp_path / "cache"))
    provider = coder([BROKEN], [])
    argv = ["forge", script, "--coder", provider, "--target", "cpu", *cache, "--rounds", "2"]
    gate = gated(tmp_path, request=1)
    with running(terminal[1], *argv) as process:
        read_until(process, "asking the coder")
        os.write(terminal[0], b"mind the bananas\n")
        read_until(process, "for the next prompt: mind the bananas")
        gate.write_text("go on")
        _, told = process.communicate()
    assert process.returncode == 0, told
    asked = [json.loads(line) for line in (tmp_path / "coder.log").read_text().splitlines()]
    told_of = ["mind the bananas" in request["messages"][-1]["content"] for request in asked]
    assert told_of == [False, True]
    assert "bananas" not in told


def test_unused_hint_lines_are_reported_after_ctrl_c(
    tmp_path: Path, coder: Any, script: str, terminal: tuple[int, int]
) -> None:
    cache = ("--cache-dir", str(tmp_path / "cache"))
    provider = coder([BROKEN], [])
    gate = gated(tmp_path, request=1)
    with running(
        terminal[1], "forge", script, "--coder", provider, "--target", "cpu", *cache
    ) as process:
        read_until(process, "asking the coder")
        os.write(terminal[0], b"mind the bananas\nand the pears\n")
        read_until(process, "for the next prompt: and the pears")
        with waiting_at(gate, process):
            os.killpg(process.pid, signal.SIGINT)
            _, told = process.communicate()
    assert process.returncode == 130, told
    assert told.splitlines()[-2] == (
        "cudaforge: typed, but in no prompt: mind the bananas; and the pears"
    )
