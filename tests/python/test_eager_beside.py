"""Intercepted eager calls together with forked children, workers of a data loader, deterministic
algorithms and the profiler."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import cudaforge_backend
import pytest
import torch
from conftest import RunPython
from cudaforge_backend import enable
from cudaforge_backend._native import _C
from eager_calls import SOFTMAX, seen
from forged import compiled, win_every_race

_WORKERS = """
import torch, cudaforge_backend
from torch.utils.data import DataLoader, Dataset
from forged import win_every_race
win_every_race()
torch.set_num_threads(1)

def seen():
    counts = cudaforge_backend.stats()
    return counts.eager["aten::_softmax"].hits, counts.forged

class Rows(Dataset):
    def __len__(self): return 8
    def __getitem__(self, n):
        torch.manual_seed(n)
        rows = torch.randn(4, 39)
        unknown = torch.randn(3, 41 + n)
        before, forged = seen()
        found = rows.softmax(-1), unknown.softmax(-1)
        hits, now = seen()
        right = all(
            torch.allclose(got, given.double().softmax(-1).float(), atol=1e-6)
            for got, given in zip(found, (rows, unknown))
        )
        return torch.tensor([right, hits - before, now - forged])

cudaforge_backend.enable(["aten::_softmax"], on_miss="blocking", cache_dir=FOLDER)
for _ in range(2): torch.randn(4, 39).softmax(-1)
mine = seen()
loader = DataLoader(Rows(), batch_size=2, num_workers=2, multiprocessing_context="fork", timeout=60)
print(torch.cat(list(loader)).tolist() == [[1, 1, 0]] * 8, mine, seen() == mine)
"""


def test_workers_of_a_data_loader_are_served(run_python: RunPython, tmp_path: Path) -> None:
    """Each item: right results, one call served by the kernel that the parent has, none forged."""
    told = run_python(f"FOLDER = {str(tmp_path)!r}{_WORKERS}").stdout
    assert told.split("\n") == ["True (1, 1) True", ""]


@pytest.fixture
def other_library() -> Iterator[torch.library.Library]:
    """Another library's overrides of operators; they end with the test."""
    library = torch.library.Library("aten", "IMPL")
    yield library
    library._destroy()


def _sevens(x: torch.Tensor, dim: int, half_to_float: bool) -> torch.Tensor:
    return torch.full_like(x, 7)


@pytest.mark.filterwarnings("ignore:Warning only once for all operators")
def test_another_override_is_what_misses_get(
    other_library: torch.library.Library, tmp_path: Path
) -> None:
    x = torch.randn(4, 43)
    other_library.impl("_softmax", _sevens, "CPU")
    with enable([SOFTMAX], on_miss="fallback", cache_dir=str(tmp_path)):
        for _ in range(2):
            assert torch.equal(x.softmax(-1), torch.full_like(x, 7))
        assert seen().misses == {"new": 1, "no_kernel": 1}
    assert torch.equal(x.softmax(-1), torch.full_like(x, 7))
    other_library._destroy()
    torch.testing.assert_close(x.softmax(-1), x.double().softmax(-1).float())


@pytest.mark.filterwarnings("ignore:Warning only once for all operators")
def test_an_override_that_is_registered_a_second_time_runs(tmp_path: Path) -> None:
    x = torch.randn(4, 43)
    for value in (7.0, 8.0):
        with torch.library._scoped_library("aten", "IMPL") as library:
            library.impl("_softmax", lambda x, *_, v=value: torch.full_like(x, v), "CPU")
            with enable([SOFTMAX], on_miss="fallback", cache_dir=str(tmp_path)):
                assert torch.equal(x.softmax(-1), torch.full_like(x, value))


_FORKED = """
import os, torch, cudaforge_backend
from forged import join_threads, win_every_race
win_every_race()
torch.set_num_threads(1)
options = {"on_miss": "blocking", "cache_dir": FOLDER}
cudaforge_backend.enable(["aten::_softmax"], **options)
x = torch.randn(4, 36)
for _ in range(2): x.softmax(-1)
pid = os.fork()
x.softmax(-1), torch.randn(4, 37).softmax(-1)
seen = cudaforge_backend.stats()
served = seen.eager["aten::_softmax"].hits
print(pid == 0, served, seen.forged, seen.fallbacks, flush=True)
if pid == 0: os._exit(0)
os.waitpid(pid, 0)
"""


def test_a_forked_child_is_served_and_forges_nothing(run_python: RunPython, tmp_path: Path) -> None:
    told = run_python(f"FOLDER = {str(tmp_path)!r}{_FORKED}").stdout.split("\n")
    assert sorted(told) == ["", "False 2 2 {}", "True 2 1 {}"]


_RECORDS = """
import os, sys, torch
from cudaforge_backend import disable, enable
torch.set_num_threads(1)
enable(["aten::_softmax"], on_miss="record", cache_dir=FOLDER + PARENTS)
torch.randn(4, 51).softmax(-1)
pid = os.fork()
if pid == 0:
    torch.randn(4, 52).softmax(-1)  # a child does not inherit the parent's enable()
    enable(["aten::_softmax"], on_miss="blocking", cache_dir=FOLDER + CHILDS)  # forges nothing
    torch.randn(4, 53).softmax(-1)
    disable()
    sys.exit()
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


@pytest.mark.parametrize(("parents", "childs"), [("/parent", "/child"), ("/both", "/both")])
def test_a_forked_child_records_its_own_misses(
    run_python: RunPython, tmp_path: Path, parents: str, childs: str
) -> None:
    head = f"FOLDER, PARENTS, CHILDS = {str(tmp_path)!r}, {parents!r}, {childs!r}"
    assert run_python(head + _RECORDS, CUDA_VISIBLE_DEVICES="").stderr == ""
    recorded = {
        (folder, wanted["signature"]["inputs"][0]["sizes"][1])
        for folder in (parents, childs)
        for wanted in _C.KernelStore.open(f"{tmp_path}{folder}").wanted()
    }
    if parents == childs:
        assert recorded == {(parents, 51), (parents, 53)}
    else:
        assert recorded == {(parents, 51), (childs, 53)}


_STARTED = """
import multiprocessing, torch, cudaforge_backend

def record(folder):
    torch.set_num_threads(1)
    cudaforge_backend.enable(["aten::_softmax"], on_miss="record", cache_dir=folder)
    torch.randn(4, 56).softmax(-1)

if __name__ == "__main__":
    if IN_PARENT:
        record(FOLDER + "/parents")
    child = multiprocessing.get_context(METHOD).Process(target=record, args=(FOLDER + "/childs",))
    child.start()
    child.join()
    raise SystemExit(child.exitcode)
"""


@pytest.mark.parametrize(
    ("method", "in_parent"),
    [("fork", False), ("fork", True), ("forkserver", False), ("spawn", False)],
)
def test_a_child_of_multiprocessing_writes_what_it_recorded_before_it_ends(
    tmp_path: Path, method: str, in_parent: bool
) -> None:
    script = tmp_path / "script.py"
    head = f"FOLDER, METHOD, IN_PARENT = {str(tmp_path)!r}, {method!r}, {in_parent}"
    script.write_text(head + _STARTED)
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(sys.path),
        "CUDA_VISIBLE_DEVICES": "",
    }
    subprocess.run([sys.executable, str(script)], check=True, timeout=120, env=environment)
    for name in ("childs", "parents") if in_parent else ("childs",):
        assert len(_C.KernelStore.open(str(tmp_path / name)).wanted()) == 1, name


_LEAVES = """
import os, sys, torch, cudaforge_backend
from cudaforge_backend import disable, enable
torch.set_num_threads(1)
enable(["aten::_softmax"], on_miss=ON_MISS, cache_dir=FOLDER)
with disable():
    pid = os.fork()
if pid == 0:
    torch.randn(4, 55).softmax(-1)
    disable()
    assert cudaforge_backend.stats().fallbacks == {}
    sys.exit()
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


@pytest.mark.parametrize("on_miss", ["record", "background", "blocking"])
def test_a_forked_child_does_not_record_its_parents_misses(
    run_python: RunPython, tmp_path: Path, on_miss: str
) -> None:
    head = f"FOLDER, ON_MISS = {str(tmp_path)!r}, {on_miss!r}"
    assert run_python(head + _LEAVES, CUDA_VISIBLE_DEVICES="").stderr == ""
    store = _C.KernelStore.open(str(tmp_path))
    assert (list(store.wanted()), list(store.records())) == ([], [])


_MIDST = """
import os, threading, torch
from cudaforge_backend import disable, enable
from cudaforge_backend._native import _C
from cudaforge_backend.integration import eager
torch.set_num_threads(1)
begun, done = threading.Event(), threading.Event()

def enabling():
    with eager._lock:
        begun.set()
        done.wait(60)

thread = threading.Thread(target=enabling)
thread.start()
begun.wait(60)
pid = os.fork()
if pid == 0:
    enable(["aten::_softmax"], on_miss="fallback", cache_dir=FOLDER)
    os._exit(0 if _C.intercepted() == ["aten::_softmax"] else 1)
done.set()
thread.join()
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


def test_a_child_forked_while_another_thread_enables_does_so_itself(
    run_python: RunPython, tmp_path: Path
) -> None:
    run_python(f"FOLDER = {str(tmp_path)!r}{_MIDST}", CUDA_VISIBLE_DEVICES="")


def test_a_tensor_whose_memory_was_given_back_is_pytorchs_error(
    blocking: dict[str, Any], device: str
) -> None:
    x = torch.randn(8, 48, device=device)
    with enable([SOFTMAX], **blocking):
        for _ in range(2):
            x.softmax(-1)
        assert seen().hits == 1
        x.untyped_storage().resize_(0)
        with pytest.raises(RuntimeError, match="its data is not allocated"):
            x.softmax(-1)


def test_deterministic_algorithms_have_kernels_of_their_own(
    blocking: dict[str, Any], device: str
) -> None:
    x = torch.randn(8, 46, device=device)
    expected = x.softmax(-1)
    with enable([SOFTMAX], **blocking):
        try:
            # warn_only has no meaning without deterministic.
            settings = [(False, False), (True, False), (True, True), (False, True)]
            for deterministic, warn_only in settings * 2:
                torch.use_deterministic_algorithms(deterministic, warn_only=warn_only)
                for _ in range(2):
                    torch.testing.assert_close(x.softmax(-1), expected)
        finally:
            torch.use_deterministic_algorithms(False)
    assert asdict(seen()) == {"calls": 16, "hits": 13, "fallbacks": 0, "misses": {"new": 3}}


def test_a_profiler_names_operator_and_kernel(blocking: dict[str, Any], device: str) -> None:
    x = torch.randn(8, 47, device=device)
    with enable([SOFTMAX], **blocking):
        x.softmax(-1)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            x.softmax(-1)
    ranges = [event.key for event in profile.key_averages() if event.key.startswith("cudaforge::")]
    (key,) = {region.key[:12] for region in cudaforge_backend.stats().regions if region.hits}
    assert ranges == [f"cudaforge::{SOFTMAX} {key}"]


@pytest.mark.parametrize("on_miss", ["blocking", "fallback"])
def test_a_compiled_graph_is_not_intercepted_a_second_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, on_miss: str
) -> None:
    win_every_race(monkeypatch)
    made = compiled(lambda x: (x * 2).softmax(-1), tmp_path, on_miss=on_miss)
    x = torch.randn(16, 45 + len(on_miss))
    with enable([SOFTMAX], on_miss="fallback", cache_dir=str(tmp_path)):
        for _ in range(2):
            torch.testing.assert_close(made(x), (x * 2).softmax(-1))
        assert cudaforge_backend.stats().hits == 2 * (on_miss == "blocking")
    assert seen().calls == 2  # those that the results were compared with
