"""Forging without an option: torch.compile forges, enable() and forked children do not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import RunPython

_HEAD = """
import json, os, sys, torch, cudaforge_backend
from cudaforge_backend._native import _C
from cudaforge_backend.options import parse
from forged import win_every_race
torch.set_num_threads(1)
win_every_race()
x = torch.randn(8, 51)
def tell():
    told = dict(cudaforge_backend.stats().to_dict(), text=str(cudaforge_backend.stats()))
    told["records"] = [record["kind"] for record in _C.store().records()]
    told["wanted"] = len(_C.store().wanted())
    print(json.dumps(told))
"""
_COMPILE = """
made = torch.compile(lambda x: x.softmax(-1), backend="cudaforge")
for _ in range(2):
    torch.testing.assert_close(made(x), x.softmax(-1))
"""


def run(run_python: RunPython, cache: Path, code: str, **environment: str) -> dict[str, Any]:
    """Runs the code with an empty cache. Returns the stats that it prints."""
    given = {"CUDAFORGE_ON_MISS": "", "CUDAFORGE_GRAPH_BUDGET_S": "30", **environment}
    done = run_python(_HEAD + code, CUDAFORGE_CACHE_DIR=str(cache), ready=True, **given)
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def test_without_an_option_kernels_are_made(run_python: RunPython, tmp_path: Path) -> None:
    told = run(run_python, tmp_path, _COMPILE + "tell()")
    assert (told["misses"], told["forged"], told["hits"]) == (1, 1, 2)
    assert told["records"] == ["winner"] and told["wanted"] == 0
    again = run(run_python, tmp_path, _COMPILE + "tell()")
    assert (again["misses"], again["forged"], again["hits"]) == (0, 0, 2)


def test_a_mode_makes_kernels_too(run_python: RunPython, tmp_path: Path) -> None:
    code = _COMPILE.replace('"cudaforge"', '"cudaforge", mode="max-autotune-no-cudagraphs"')
    assert run(run_python, tmp_path, code + "tell()")["forged"] == 1


def test_what_the_budget_left_needs_no_other_on_miss(run_python: RunPython, tmp_path: Path) -> None:
    told = run(run_python, tmp_path, _COMPILE + "tell()", CUDAFORGE_GRAPH_BUDGET_S="0.01")
    assert (told["misses"], told["forged"], told["negative"]) == (1, 0, 0)
    assert told["fallbacks"] == {"graph_budget": 1} and told["wanted"] == 1
    assert "\n  graph_budget: " in told["text"] and "\n  missed: " not in told["text"]


@pytest.mark.parametrize(("on_miss", "wanted"), [("fallback", 0), ("record", 1)])
def test_the_variable_wins_over_the_default(
    run_python: RunPython, tmp_path: Path, on_miss: str, wanted: int
) -> None:
    told = run(run_python, tmp_path, _COMPILE + "tell()", CUDAFORGE_ON_MISS=on_miss)
    assert (told["misses"], told["forged"], told["negative"]) == (1, 0, 0)
    assert told["records"] == [] and told["wanted"] == wanted


def test_enable_alone_makes_nothing(run_python: RunPython, tmp_path: Path) -> None:
    code = """
cudaforge_backend.enable()
for _ in range(2):
    x.softmax(-1)
cudaforge_backend.disable()
tell()
"""
    told = run(run_python, tmp_path, code)
    assert told["eager"]["aten::_softmax"]["calls"] == 2
    assert (told["misses"], told["forged"], told["negative"]) == (1, 0, 0)
    assert told["records"] == [] and told["wanted"] == 1
    assert "\n  missed: on_miss is " in told["text"]


def test_a_forked_child_makes_nothing(run_python: RunPython, tmp_path: Path) -> None:
    code = """
pid = os.fork()
if not pid:
    with torch.no_grad():
        cudaforge_backend.enable(["aten::_softmax"])
        x.softmax(-1)
    cudaforge_backend.disable()
    assert parse(None, None).on_miss == "record"
    tell()
    sys.stdout.flush()
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
assert parse(None, None).on_miss == "blocking"
"""
    told = run(run_python, tmp_path, code)
    assert told["misses"] == 1 and told["records"] == []
    assert "\n  missed: a forked child forges nothing" in told["text"]
