"""Records as texts for people."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cudaforge_backend
import pytest
import torch
from cudaforge_backend.cli import main
from cudaforge_backend.records import clipped, differences, label, printable, program, verdict
from eager_calls import SOFTMAX
from forged import win_every_race


def spec(*sizes: int, dtype: str = "float32") -> dict[str, Any]:
    return {"dtype": dtype, "sizes": list(sizes), "strides": [1] * len(sizes), "alignment": 16}


def norm_backward(asked: bool) -> dict[str, Any]:
    """A signature with a node of three outputs; the last two are there or not asked for."""
    rest = [spec(8), spec(8)] if asked else [None, None]
    node = {
        "op": "aten::native_layer_norm_backward",
        "args": [{"in": 0}, [8], [True, asked, asked]],
        "kwargs": {},
        "outputs": [spec(4, 8), *rest],
    }
    return {
        "inputs": [spec(4, 8)],
        "nodes": [node],
        "outputs": [{"node": 0, "out": 0}],
        "aliases": [],
        "numerics": {},
    }


def test_outputs_that_are_not_asked_for() -> None:
    lines = program(norm_backward(False))
    assert lines[1].endswith("-> float32[4, 8], None, None")
    apart = differences([("norm", norm_backward(True)), ("norm", norm_backward(False))])
    assert any("None" in line for line in apart[1])
    assert all("None" not in line for line in apart[0])


def test_what_a_terminal_would_obey_is_made_visible() -> None:
    assert printable("\x1b]0;a\x07\r\n\t\x9b\u202e\x7f") == r"\x1b]0;a\x07\r\n\t\x9b\u202e\x7f"
    assert printable("größer → 1.5x µs") == "größer → 1.5x µs"
    assert printable("a\n\tb\x1b", kept="\n\t") == "a\n\tb\\x1b"


@pytest.mark.parametrize(
    ("kind", "speedup", "said"),
    [
        ("negative", [0.8, 0.9, 1.0], "nothing faster than Inductor"),
        ("negative", [0.8, 1.1, 1.3], "nothing surely faster than Inductor"),
        ("negative", [1.01, 1.05, 1.1], "nothing surely faster than Inductor"),
        ("eager_only", [0.8, 0.9, 0.99], "faster than ATen, slower than Inductor"),
        ("eager_only", [0.8, 0.9, 1.1], "faster than ATen, not surely than Inductor"),
        ("eager_only", None, "faster than ATen, not surely than Inductor"),
    ],
)
def test_a_verdict_says_no_more_than_was_measured(kind: str, speedup: Any, said: str) -> None:
    timing = {"best_rival": "inductor", "speedup": speedup}
    assert verdict({"kind": kind, "timing": timing, "provenance": None}) == said


def test_calls_before_their_kernel_are_said_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    win_every_race(monkeypatch)
    with cudaforge_backend.enable([SOFTMAX], on_miss="record", cache_dir=str(tmp_path)):
        for _ in range(2):
            torch.randn(6, 56).softmax(-1)
    assert "ran without it" not in str(cudaforge_backend.stats())
    assert main(["forge", "--wanted", "--cache-dir", str(tmp_path)]) == 0
    _, why = str(cudaforge_backend.stats()).split("  _softmax(float32[6, 56])\n")
    assert why.strip() == "the cache has its kernel now; these calls ran without it"


def test_messages_are_cut_at_a_word() -> None:
    message = "output 0: 12 elements are wrong (error allowed here: 4.3368086e-19)"
    assert clipped(message) == message
    assert clipped("x" * 123 + f" {message} {message}") == "x" * 123 + f" {message} ..."
    assert clipped("x" * 200) == "x" * 200
    assert clipped("x" * 201) == "x" * 196 + " ..."
    assert clipped(f"{'x' * 196} 1.5e-19") == f"{'x' * 196} ..."


def test_long_regions_are_cut_in_the_middle() -> None:
    ops = [f"op{i}" for i in range(26)]
    shapes = [f"float32[{i}]" for i in range(6)]
    cut = "op0 -> op1 -> op2 -> op3 -> (18 more) -> op22 -> op23 -> op24 -> op25"
    given = "float32[0], float32[1], float32[2], 3 more"
    assert label(" -> ".join(ops), shapes) == f"{cut}({given})"
    whole = f"{' -> '.join(ops)}({', '.join(shapes)})"
    assert label(" -> ".join(ops), shapes, whole=True) == whole
    assert label("mul -> sum", shapes[:4]) == f"mul -> sum({', '.join(shapes[:4])})"
