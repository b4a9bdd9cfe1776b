"""Which records serve eager calls, and which of them serve nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import cudaforge_backend
import pytest
import torch
from command import cells
from conftest import RunPython
from cudaforge_backend import enable
from cudaforge_backend.cli import main
from cudaforge_backend.integration import forging, gate
from eager_calls import SOFTMAX, seen
from forged import decide_every_race, join_threads, win_every_race


def test_what_loses_to_inductor_alone_serves_eager_calls(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    decide_every_race(monkeypatch, 1e-4, 4e-4, inductor_s=0)
    monkeypatch.setattr(gate, "obstacle", lambda gm, analysis, inductor: "a test")
    x = torch.randn(16, 51)
    expected = x.softmax(-1)
    folder = {"cache_dir": str(tmp_path)}
    with enable([SOFTMAX], on_miss="blocking", **folder):
        for _ in range(3):
            torch.testing.assert_close(x.softmax(-1), expected)
    assert seen().hits == 2
    stats = cudaforge_backend.stats()
    assert (stats.forged, stats.negative) == (1, 0)
    # Compiled graphs do without it.
    options = {"on_miss": "blocking", **folder}
    model = torch.compile(lambda x: x.softmax(-1), backend="cudaforge", options=options)
    torch.testing.assert_close(model(x), expected)
    after = cudaforge_backend.stats()
    assert (after.hits, after.forged, after.graphs) == (2, 1, {"plain": 1})
    (region,) = cudaforge_backend.explain(lambda x: x.softmax(-1), x, **folder).regions
    why = "faster than ATen, slower than Inductor ("
    assert region.status == "negative" and region.why.startswith(why)
    assert re.search(r"\(\d.* times as fast as ATen \[.*\]; ", region.why)
    assert region.why.endswith("); eager calls are served by its kernel")
    assert main(["cache", "ls", "--cache-dir", str(tmp_path)]) == 0
    ((key, _, result, lines),) = cells(capsys.readouterr().out)
    assert (key, result) == (region.key[:12], "for eager") and lines.endswith("x of ATen")
    assert main(["cache", "show", region.key, "--cache-dir", str(tmp_path)]) == 0
    rows = cells(capsys.readouterr().out)
    names = [name for name, _ in rows]
    assert "too little time" not in names and "verified" in names
    assert names.count("speed-up") == 2  # over the faster rival, and over ATen


@pytest.mark.parametrize("busy", [True, False])
def test_a_winner_from_a_busy_machine_serves_and_stays_wanted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, run_python: RunPython, busy: bool
) -> None:
    win_every_race(monkeypatch)
    monkeypatch.setattr(forging, "program_is_busy", lambda: busy)
    x = torch.randn(16, 52 + busy)  # a process has one kernel of a shape
    with enable([SOFTMAX], on_miss="background", cache_dir=str(tmp_path)):
        x.softmax(-1)
        join_threads("cudaforge-eager")
        x.softmax(-1)
        assert seen().hits == 1
    given = f"FOLDER, COLUMNS = {str(tmp_path)!r}, {52 + busy}\n"
    shown = run_python(given + _AFTER_A_BUSY_PROGRAM, ready=True).stdout.split()
    assert shown == (["2", "1"] if busy else ["2", "0"])


_AFTER_A_BUSY_PROGRAM = """
import torch, cudaforge_backend
from cudaforge_backend._native import _C
with cudaforge_backend.enable(["aten::_softmax"], on_miss="record", cache_dir=FOLDER):
    for _ in range(3): torch.randn(16, COLUMNS).softmax(-1)
print(cudaforge_backend.stats().eager["aten::_softmax"].hits, len(_C.store().wanted()))
"""
