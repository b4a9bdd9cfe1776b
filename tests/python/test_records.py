"""Records as texts for people."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from cudaforge_backend import records
from cudaforge_backend.records import (
    NOT_CURRENT,
    clipped,
    differences,
    label,
    printable,
    program,
    verdict,
    why_no_kernel,
)


def spec(*sizes: int, dtype: str = "float32") -> dict[str, Any]:
    return {"dtype": dtype, "sizes": list(sizes), "strides": [1] * len(sizes), "alignment": 16}


def norm_backward(asked: bool) -> dict[str, Any]:
    """A signature with a node of three outputs. `asked`: whether the last two are requested."""
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


def test_outputs_that_are_not_requested() -> None:
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
    ("serves", "speedup", "said"),
    [
        ([], [0.8, 0.9, 1.0], "nothing faster than Inductor"),
        ([], [0.8, 1.1, 1.3], "nothing surely faster than Inductor"),
        ([], [1.01, 1.05, 1.1], "nothing surely faster than Inductor"),
        (["eager"], [0.8, 0.9, 0.99], "faster than ATen, slower than Inductor"),
        (["eager"], [0.8, 0.9, 1.1], "faster than ATen, not surely than Inductor"),
        (["eager"], None, "faster than ATen, not surely than Inductor"),
    ],
)
def test_a_verdict_says_no_more_than_was_measured(
    serves: list[str], speedup: Any, said: str
) -> None:
    timing = {"best_rival": "inductor", "speedup": speedup}
    provenance = {"why": "not_faster"}
    record = {"serves": serves, "timing": timing, "provenance": provenance, "doubtful": 0}
    assert verdict(record) == said


LATE = "calls ran without it: a new enable(), compilation or process uses it"
LATE_FOR_EAGER = "eager calls ran without it: a new enable() or process uses it"
MEASURED = "0.90 times as fast as Inductor [0.80, 0.99]"
FOR_EAGER = "for eager: faster than ATen, slower than Inductor (0.900x Inductor)"


@pytest.mark.parametrize(
    ("serves", "current", "said"),
    [
        (["compiled"], True, f"the cache has its kernel now; these {LATE}"),
        (["compiled"], False, f"winner: {MEASURED}; {NOT_CURRENT}"),
        (["eager"], True, f"{FOR_EAGER}; {LATE_FOR_EAGER}"),
        (["eager"], False, f"{FOR_EAGER}; {NOT_CURRENT}"),
        ([], True, "no winner: nothing faster than Inductor (0.900x Inductor)"),
        (None, True, ""),
    ],
)
def test_why_calls_had_no_kernel(
    serves: list[str] | None, current: bool, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = serves is not None and {
        "key": "ab" * 32,
        "arch": "cpu",
        "kind": "winner" if serves else "negative",
        "serves": serves,
        "signature": norm_backward(True),
        "timing": {"best_rival": "inductor", "speedup": [0.8, 0.9, 0.99]},
        "provenance": {"why": "not_faster", "reason": "0.900x Inductor"},
        "current": current,
        "doubtful": 0,
    }
    cache = SimpleNamespace(get=lambda key, arch: record or None)
    monkeypatch.setattr(records, "_C", SimpleNamespace(store=lambda: cache))
    assert why_no_kernel("ab" * 32, "cpu") == said


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
