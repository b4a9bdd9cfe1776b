"""Data that begin anywhere: views of NumPy's arrays, buffers, memory maps and files of weights."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cudaforge_backend
import numpy as np
import pytest
import torch
from cudaforge_backend._native import _C
from cudaforge_backend.records import needed_alignment
from forged import compiled, win_every_race
from torch import Tensor, nn

ROWS, COLUMNS = 8, 1003


def softmax(x: Tensor) -> Tensor:
    return torch.softmax(x * 2, -1)


def from_numpy(folder: Path) -> Tensor:
    signal = np.random.default_rng(0).normal(size=ROWS * COLUMNS + 1).astype(np.float32)
    return torch.from_numpy(signal[1:])


def from_buffer(folder: Path) -> Tensor:
    buffer = bytearray(np.ones(ROWS * COLUMNS + 1, np.float32).tobytes())
    return torch.frombuffer(buffer, dtype=torch.float32, offset=4)


def from_memory_map(folder: Path) -> Tensor:
    size = (ROWS * COLUMNS,)
    mapped = np.memmap(folder / "map", dtype=np.float32, mode="w+", offset=8, shape=size)
    mapped[:] = 0.5
    return torch.from_numpy(mapped)


SOURCES = [from_numpy, from_buffer, from_memory_map]


@pytest.mark.parametrize("source", SOURCES)
def test_a_compiled_graph_is_served(
    forged: Path, tmp_path: Path, source: Callable[[Path], Tensor]
) -> None:
    x = source(tmp_path).view(ROWS, COLUMNS)
    assert x.data_ptr() % 16 != 0
    made = compiled(softmax, forged)
    for _ in range(2):
        torch.testing.assert_close(made(x), softmax(x))
    stats = cudaforge_backend.stats()
    assert (stats.hits, stats.fallbacks) == (2, {})
    report = cudaforge_backend.explain(softmax, x, cache_dir=str(forged))
    assert [region.status for region in report.regions] == ["hit"]


def test_eager_calls_of_all_offsets_are_one_region(forged: Path) -> None:
    signal = np.random.default_rng(0).normal(size=ROWS * COLUMNS + 4).astype(np.float32)
    with cudaforge_backend.enable(["aten::_softmax"], on_miss="blocking", cache_dir=str(forged)):
        for begin in (0, 1, 2, 3, 4):
            x = torch.from_numpy(signal[begin : begin + ROWS * COLUMNS]).view(ROWS, COLUMNS)
            torch.testing.assert_close(x.softmax(-1).sum(-1), torch.ones(ROWS))
    stats = cudaforge_backend.stats()
    assert len([r for r in stats.regions if r.hits]) == 1
    assert (stats.hits, stats.fallbacks) == (4, {})  # the first call is PyTorch's own


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(64)
        self.linear = nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        return torch.softmax(self.linear(self.norm(x)), -1)


def test_weights_mapped_by_safetensors(forged: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    model = Block().eval()
    file = tmp_path / "weights.safetensors"
    for padding in range(64):  # the length of the header decides where the data begin
        save_file(model.state_dict(), file, metadata={"padding": "x" * padding})
        weights = load_file(file)
        if all(w.data_ptr() % 16 == 8 for w in weights.values()):
            break
    else:
        pytest.fail("no header puts the weights at addresses that are not aligned")
    model.load_state_dict(weights, assign=True)
    x = torch.randn(4, 64)
    with torch.no_grad():
        made = compiled(model, forged)
        torch.testing.assert_close(made(x), model(x))
    stats = cudaforge_backend.stats()
    assert stats.hits >= 1 and stats.fallbacks == {}


def test_what_a_kernel_needs_of_its_inputs_is_said() -> None:
    signature = {"inputs": [{"alignment": 4}, {"alignment": 16}]}
    rules = [{"aligned": 64, "in": 0}, {"aligned": 16, "in": 1}]
    assert needed_alignment(signature, {"constraints": rules}) == "in0 at multiples of 64 bytes"
    assert needed_alignment(signature, None) == ""


@pytest.mark.gpu
class TestOnGpu:
    def test_slices_and_shared_memory_are_served(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        win_every_race(monkeypatch)
        made = compiled(softmax, tmp_path)
        whole = torch.randn(ROWS * COLUMNS + 1, device="cuda")
        sliced = whole[1:].view(ROWS, COLUMNS)
        shared = torch.from_dlpack(whole[1:]).view(ROWS, COLUMNS)  # its storage begins there
        assert shared.storage_offset() == 0 and shared.data_ptr() % 16 != 0
        for x in (whole[:-1].view(ROWS, COLUMNS), sliced, shared):
            torch.testing.assert_close(made(x), softmax(x))
        stats = cudaforge_backend.stats()
        assert (stats.hits, stats.fallbacks) == (3, {})

    def test_the_kernel_that_needs_no_alignment_serves_what_is_not_aligned(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        win_every_race(monkeypatch)
        whole = torch.randn(ROWS * COLUMNS + 1, device="cuda")
        aligned = whole[:-1].view(ROWS, COLUMNS)
        report = cudaforge_backend.explain(softmax, aligned, cache_dir=str(tmp_path))
        (region,) = report.regions
        text = _C.Signature.parse(json.dumps(region.signature)).normalized().text

        def call(x: Tensor) -> Any:
            return torch.ops.cudaforge.region_v1([x], _C.region_id(region.key), text)[0]

        compiled(softmax, tmp_path)(aligned)
        unaligned = whole[1:].view(ROWS, COLUMNS)
        torch.testing.assert_close(call(unaligned), softmax(unaligned))
        assert cudaforge_backend.stats().fallbacks == {"alignment": 1}
        _C.flush_eager_misses()
        (wanted,) = _C.store().wanted()
        torch._dynamo.reset()
        cudaforge_backend.reset_stats()
        made = compiled(softmax, tmp_path)
        torch.testing.assert_close(made(unaligned), softmax(unaligned))
        torch.testing.assert_close(call(unaligned), softmax(unaligned))
        stats = cudaforge_backend.stats()
        assert (stats.hits, stats.fallbacks) == (2, {})
        assert [r.key for r in stats.regions if r.hits] == [wanted["key"]]
