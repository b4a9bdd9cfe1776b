"""A second process finds the kernels, the FX graphs and the AOTAutograd entries of the first; two
at once forge into one cache."""

from __future__ import annotations

import fcntl
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cudaforge_backend
import torch
from conftest import RunPython
from cudaforge_backend._native import _C
from two_regions import run_regions, told

_SCRIPT = """
import json, sys, torch, cudaforge_backend
from torch._dynamo.utils import counters

torch.manual_seed(0)
w = torch.randn(64, requires_grad=True)
x = torch.randn(32, 64)
def f(x, w):
    return torch.log_softmax(x * w, -1).square().mean()
options = {"on_miss": "blocking", "region_budget_s": 3, "cache_dir": sys.argv[1]}
out = torch.compile(f, backend="cudaforge", options=options)(x, w)
out.backward()
s = cudaforge_backend.stats()
print(json.dumps({
    "out": out.item(), "grad": w.grad.sum().item(), "forged": s.forged,
    "negative": s.negative,
    "graphs": s.graphs, "fallbacks": s.fallbacks,
    "fx": [counters["inductor"][f"fxgraph_cache_{k}"] for k in ("hit", "miss", "bypass")],
    "aot": [counters["aot_autograd"][f"autograd_cache_{k}"] for k in ("hit", "miss")],
}))
"""


def test_blocking_then_cached(run_python: RunPython, tmp_path: Path) -> None:
    script = _SCRIPT.replace("sys.argv[1]", repr(str(tmp_path / "cache")))
    first = json.loads(run_python(script, ready=True).stdout.splitlines()[-1])
    second = json.loads(run_python(script, ready=True).stdout.splitlines()[-1])
    assert first["forged"] + first["negative"] >= 2
    assert "forge_failed" not in first["fallbacks"]
    assert (second["forged"], second["negative"]) == (0, 0)
    assert abs(second["out"] - first["out"]) < 1e-5
    assert abs(second["grad"] - first["grad"]) < 1e-4
    gated = ["does_not_pay_in_place" in process["graphs"] for process in (first, second)]
    assert gated[0] == gated[1]  # the verdict on the graph as a whole is kept too


_SUBSTITUTED = """
import json, torch, cudaforge_backend
from dataclasses import replace
from torch._dynamo.utils import counters
from cudaforge_backend.integration import plan
real = plan.look_up
plan.look_up = lambda region, budget_s=None: replace(real(region), status="hit", checksum="test")
x = torch.randn(32, 48, requires_grad=True)
torch.compile(lambda x: torch.softmax(x * 3, -1).square(), backend="cudaforge")(x).sum().backward()
print(json.dumps({
    "graphs": cudaforge_backend.stats().graphs,
    "fx": [counters["inductor"][f"fxgraph_cache_{k}"] for k in ("hit", "miss", "bypass")],
    "aot": [counters["aot_autograd"][f"autograd_cache_{k}"] for k in ("hit", "miss")],
}))
"""


def test_inductors_caches_hit(run_python: RunPython) -> None:
    first = json.loads(run_python(_SUBSTITUTED, ready=True).stdout.splitlines()[-1])
    second = json.loads(run_python(_SUBSTITUTED, ready=True).stdout.splitlines()[-1])
    assert first["graphs"] == second["graphs"] == {"substituted": 1}
    assert first["fx"] == [0, 2, 0]
    assert second["fx"] == [2, 0, 0]
    assert second["aot"] == [1, 0]


def test_two_processes_forge_at_once(run_python: RunPython, tmp_path: Path) -> None:
    """They share one region. Nothing is lost, and nothing is made twice."""
    folder = tmp_path / "cache"
    meet = f"""
import pathlib
pathlib.Path({str(tmp_path)!r}, "ready-" + str(os.getpid())).touch()
while len(list(pathlib.Path({str(tmp_path)!r}).glob("ready-*"))) < 2:
    time.sleep(0.01)
"""

    def forge(scales: tuple[int, int]) -> dict[str, object]:
        return told(run_regions(run_python, folder, True, scales=scales, first=meet))

    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(forge, [(2, 3), (3, 4)]))
    for result in results:
        assert (result["warnings"], result["fallbacks"], result["hits"]) == ([], {}, 2)
    after = told(run_regions(run_python, folder, True, scales=(2, 3, 4)))
    assert (after["forged"], after["negative"], after["hits"]) == (0, 0, 3)
    store = _C.KernelStore.open(str(folder))
    records = store.records()
    assert [record["kind"] for record in records] == ["winner"] * 3
    for record in records:
        place = (record["key"], record["arch"])
        assert len(store.binary(*place)) == record["binary_bytes"] > 0
        assert store.candidate(*place) is not None and store.lineage(*place)
    counters = store.counters()
    assert (counters["corrupt"], counters["errors"]) == (0, 0)


_AT_ONCE = """
import time, torch, cudaforge_backend
from pathlib import Path
from forged import compiled, win_every_race
win_every_race()
(FOLDER / str(NUMBER)).touch()
while len([one for one in FOLDER.iterdir() if one.is_file()]) < 2:
    time.sleep(0.01)
x = torch.randn(8, 88)
made = compiled(lambda x: (x * 2).softmax(-1), FOLDER / "cache")
assert torch.allclose(made(x), (x * 2).softmax(-1))
stats = cudaforge_backend.stats()
print(stats.forged, stats.hits)
"""


_ELSEWHERE = """
import json, torch, cudaforge_backend
from pathlib import Path
from cudaforge_backend._native import _C
from forged import compiled, win_every_race
import pytest
win_every_race(pytest.MonkeyPatch())
told = []
def note(event):
    told.append(type(event).__name__ + " " + event.text.split("(")[0])
    if told[-1] == "Ended cumsum":  # the other one, while the first is forged elsewhere
        (FOLDER / "release").touch()
cudaforge_backend.set_progress(note)
x = torch.randn(8, 89)
made = compiled(lambda x: (x.softmax(-1), x.cumsum(-1)), FOLDER / "cache")
made(x)
forged = [one for one in told if one.startswith(("Started", "Ended"))]
print(forged, sorted((FOLDER / "cache" / "forging").iterdir()))
"""


def test_what_another_process_forges_is_waited_for_at_the_end(
    run_python: RunPython, tmp_path: Path
) -> None:
    x = torch.randn(8, 89)
    report = cudaforge_backend.explain(lambda x: (x.softmax(-1), x.cumsum(-1)), x)
    softmax = next(region for region in report.regions if "_softmax" in region.ops)
    folder = tmp_path / "cache" / "forging"
    folder.mkdir(parents=True)
    lock = (folder / f"{softmax.key} {softmax.arch}").open("w")
    fcntl.flock(lock, fcntl.LOCK_EX)  # as the other one would

    def release() -> None:
        while not (tmp_path / "release").exists():
            time.sleep(0.01)
        lock.close()

    thread = threading.Thread(target=release)
    thread.start()
    try:
        head = f"from pathlib import Path\nFOLDER = Path({str(tmp_path)!r})"
        shown = run_python(f"{head}{_ELSEWHERE}", ready=True).stdout
    finally:
        (tmp_path / "release").touch()
        thread.join()
    order = ["Started cumsum", "Ended cumsum", "Started _softmax", "Ended _softmax"]
    assert shown == f"{order} []\n"  # and no file is left of the locks


def test_of_processes_that_start_together_one_forges_a_region(
    run_python: RunPython, tmp_path: Path
) -> None:
    def run(number: int) -> str:
        head = f"from pathlib import Path\nFOLDER, NUMBER = Path({str(tmp_path)!r}), {number}"
        return run_python(f"{head}{_AT_ONCE}").stdout

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(run, range(2))) == ["0 1\n", "1 1\n"]
