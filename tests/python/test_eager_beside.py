"""Eager calls that are looked up, beside what else a program does: workers of a data loader, other
overrides of the operator, deterministic algorithms, the profiler."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cudaforge_backend
import pytest
import torch
from conftest import RunPython
from cudaforge_backend import enable
from eager_calls import SOFTMAX, seen
from forged import compiled, win_every_race
from torch import Tensor

_WORKERS = """
import torch, cudaforge_backend
from torch.utils.data import DataLoader, Dataset
from forged import win_every_race
win_every_race()
torch.set_num_threads(1)

def seen():
    counts = cudaforge_backend.stats()
    return counts["eager"]["aten::_softmax"]["hits"], counts["forged"]

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
    """Somebody else's overrides of operators; they end with the test."""
    library = torch.library.Library("aten", "IMPL")
    yield library
    library._destroy()


def _sevens(x: Tensor, dim: int, half_to_float: bool) -> Tensor:
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
        assert seen()["misses"] == {"new": 1, "no_kernel": 1}
    assert torch.equal(x.softmax(-1), torch.full_like(x, 7))
    other_library._destroy()
    torch.testing.assert_close(x.softmax(-1), x.double().softmax(-1).float())


@pytest.mark.filterwarnings("ignore:Warning only once for all operators")
def test_an_override_made_later_comes_first(
    other_library: torch.library.Library, tmp_path: Path
) -> None:
    x = torch.randn(4, 44)
    with enable([SOFTMAX], on_miss="fallback", cache_dir=str(tmp_path)):
        other_library.impl("_softmax", _sevens, "CPU")
        assert torch.equal(x.softmax(-1), torch.full_like(x, 7))
        assert seen()["calls"] == 0
    assert torch.equal(x.softmax(-1), torch.full_like(x, 7))
    with enable([SOFTMAX], on_miss="fallback", cache_dir=str(tmp_path)):  # now before it
        assert torch.equal(x.softmax(-1), torch.full_like(x, 7))
        assert seen()["calls"] == 1
    other_library._destroy()
    torch.testing.assert_close(x.softmax(-1), x.double().softmax(-1).float())


def test_deterministic_algorithms_have_kernels_of_their_own(
    blocking: dict[str, Any], device: str
) -> None:
    x = torch.randn(8, 46, device=device)
    expected = x.softmax(-1)
    with enable([SOFTMAX], **blocking):
        try:
            for deterministic in (False, True, False):
                torch.use_deterministic_algorithms(deterministic)
                for _ in range(2):
                    torch.testing.assert_close(x.softmax(-1), expected)
        finally:
            torch.use_deterministic_algorithms(False)
    assert seen() == {"calls": 6, "hits": 4, "fallbacks": 0, "misses": {"new": 2}}


def test_a_profiler_names_operator_and_kernel(blocking: dict[str, Any], device: str) -> None:
    x = torch.randn(8, 47, device=device)
    with enable([SOFTMAX], **blocking):
        x.softmax(-1)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            x.softmax(-1)
    ranges = [event.key for event in profile.key_averages() if event.key.startswith("cudaforge::")]
    (key,) = {
        region["key"][:12] for region in cudaforge_backend.stats()["regions"] if region["hits"]
    }
    assert ranges == [f"cudaforge::{SOFTMAX} {key}"]


@pytest.mark.parametrize("on_miss", ["blocking", "fallback"])
def test_a_compiled_graph_is_not_intercepted_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, on_miss: str
) -> None:
    win_every_race(monkeypatch)
    made = compiled(lambda x: (x * 2).softmax(-1), tmp_path, on_miss=on_miss)
    x = torch.randn(16, 45 + len(on_miss))
    with enable([SOFTMAX], on_miss="fallback", cache_dir=str(tmp_path)):
        for _ in range(2):
            torch.testing.assert_close(made(x), (x * 2).softmax(-1))
        assert cudaforge_backend.stats()["hits"] == 2 * (on_miss == "blocking")
    assert seen()["calls"] == 2  # those that the results were compared with
