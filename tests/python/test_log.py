"""CUDAFORGE_LOG: its topics say on stderr what happens; without it nothing is said."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest
import torch
from conftest import RunPython
from cudaforge_backend import enable, log
from cudaforge_backend._native import _C
from eager_calls import SOFTMAX
from forged import lose_every_race

_SCRIPT = """
import torch
from cudaforge_backend.integration import headroom
headroom.LEAST_US = 0.0
x = torch.randn(64, 48)
options = {"on_miss": "blocking", "region_budget_s": 15}
torch.compile(lambda x: torch.softmax(x * 3, -1), backend="cudaforge", options=options)(x)
"""


def _lines(stderr: str, topic: str) -> list[str]:
    return [line for line in stderr.splitlines() if f" cudaforge.{topic}: " in line]


def test_every_topic_has_a_logger() -> None:
    for topic in _C.LOG_TOPICS:
        assert getattr(log, topic).name == f"cudaforge.{topic}"


def test_all_topics(run_python: RunPython, tmp_path: Path) -> None:
    done = run_python(
        _SCRIPT, CUDAFORGE_LOG="all", CUDAFORGE_CACHE_DIR=str(tmp_path / "cache"), ready=True
    )
    assert any("miss" in line and "_softmax" in line for line in _lines(done.stderr, "graph"))
    forging = _lines(done.stderr, "forge")
    said = "forging kernels for 1 region, at most"
    assert any(f"{said} 15 s each, 60 s in all" in line for line in forging)
    for words in (" forging .*_softmax", " candidate 0: ", " (no winner: |winner: ).* s$"):
        assert any(re.search(words, line) for line in forging), words
    assert not [line for line in forging if "{" in line]
    assert any(str(tmp_path / "cache") in line for line in _lines(done.stderr, "cache"))


def test_eager_calls_without_a_kernel(run_python: RunPython, tmp_path: Path) -> None:
    script = """
import torch, cudaforge_backend
from cudaforge_backend._native import _C
with cudaforge_backend.enable(on_miss="record"):
    for _ in range(2): torch.randn(64, 48).softmax(-1)
    cudaforge_backend.disable()  # which writes what was recorded
print(_C.store().wanted()[0]["key"])
"""
    done = run_python(
        script, CUDAFORGE_LOG="dispatch", CUDAFORGE_CACHE_DIR=str(tmp_path), ready=True
    )
    (line,) = _lines(done.stderr, "dispatch")
    key = done.stdout[:12]
    assert line.endswith(f"no kernel: {key}  _softmax(float32[64, 48]): not forged yet")


def test_eager_calls_without_a_kernel_and_why(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    lose_every_race(monkeypatch)
    x, y = torch.randn(64, 49), torch.randn(49, 50)
    caplog.set_level(logging.DEBUG, "cudaforge.dispatch")
    for on_miss in ("blocking", "record"):
        caplog.clear()
        with enable([SOFTMAX, "aten::mm"], on_miss=on_miss, cache_dir=str(tmp_path)):
            x.softmax(-1), x @ y
        told = [record.message for record in caplog.records if record.name.endswith("dispatch")]
        softmax, mm = (message.partition("  ")[2] for message in told)
        why = {"blocking": "not forged yet", "record": "no winner: nothing faster than ATen ("}
        assert softmax.startswith(f"_softmax(float32[64, 49]): {why[on_miss]}")
        assert mm.startswith("mm(float32[64, 49], float32[49, 50]): only agents make it (")


def test_one_topic_and_none(run_python: RunPython, tmp_path: Path) -> None:
    folder = str(tmp_path / "cache")
    script = _SCRIPT.replace("blocking", "record")
    done = run_python(script, CUDAFORGE_LOG="cache", CUDAFORGE_CACHE_DIR=folder, ready=True)
    assert any("1 of its regions" in line for line in _lines(done.stderr, "cache"))
    assert _lines(done.stderr, "graph") == _lines(done.stderr, "forge") == []
    assert "cudaforge." not in run_python(script, CUDAFORGE_CACHE_DIR=folder, ready=True).stderr
