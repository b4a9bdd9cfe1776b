"""GPU memory that the program leaves free, and what is made with little of it."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import cudaforge_backend
import pytest
import torch
from cudaforge_backend._native import _C
from cudaforge_backend.integration import plan, room
from cudaforge_backend.integration.room import has_room, leave_room, require_room
from cudaforge_backend.options import parse
from forged import win_every_race
from test_forging import softmax

MIB = 1 << 20
GPU = torch.device("cuda", 0)


def relu(device: str, mib: int) -> _C.Signature:
    """Of one input of that size."""
    tensor = {"dtype": "float32", "sizes": [mib * MIB // 4], "strides": [1]}
    node = {"op": "aten::relu", "args": [{"in": 0}], "kwargs": {}, "outputs": [tensor]}
    region = {
        "format": 1,
        "device": device,
        "inputs": [{**tensor, "alignment": 16}],
        "nodes": [node],
        "outputs": [{"node": 0, "out": 0}],
        "aliases": [],
        "numerics": {"deterministic": False},
    }
    return _C.Signature.parse(json.dumps(region))


class Gpu:
    """Stands for a GPU of 100 GiB and PyTorch's allocator."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.free_mib = 50_000
        self.kept_mib = 0
        self.waits = False
        self.ended = 0
        patch = monkeypatch.setattr
        patch(torch.cuda, "mem_get_info", lambda _: (self.free_mib * MIB, 100 << 30))
        patch(torch.cuda, "memory_reserved", lambda _: (1000 + self.kept_mib) * MIB)
        patch(torch.cuda, "memory_allocated", lambda _: 1000 * MIB)
        patch(_C, "verifier_waits", lambda kind, index: self.waits)
        patch(_C, "end_waiting_verifiers", self.end)

    def end(self) -> None:
        self.ended += 1


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    return Gpu(monkeypatch)


def test_bytes_of_a_signature() -> None:
    assert relu("cpu", 64).bytes == (64 * MIB, 64 * MIB)


def test_the_needed_memory_is_reported_by_part(gpu: Gpu) -> None:
    gpu.free_mib = 1024
    with pytest.raises(MemoryError) as raised:
        require_room(relu("cuda", 64), GPU)
    text = str(raised.value)
    for part in ("1656 MiB", "processes 1400 MiB", "256 MiB", "640 MiB", "1024 MiB are free"):
        assert part in text, text


@pytest.mark.parametrize(
    ("waits", "kept_mib", "need_mib"), [(False, 0, 1656), (True, 0, 640), (True, 384, 256)]
)
def test_what_is_there_already_is_not_needed(
    gpu: Gpu, waits: bool, kept_mib: int, need_mib: int
) -> None:
    gpu.waits, gpu.kept_mib = waits, kept_mib
    gpu.free_mib = need_mib
    assert has_room(relu("cuda", 64), GPU)
    gpu.free_mib = need_mib - 1
    assert not has_room(relu("cuda", 64), GPU)


def test_of_large_inputs_a_race_takes_two_sets(gpu: Gpu) -> None:
    gpu.waits = True
    gpu.free_mib = max(2 * 600, 2 * 300 + 2 * 300 + 256)
    assert has_room(relu("cuda", 300), GPU)
    gpu.free_mib -= 1
    assert not has_room(relu("cuda", 300), GPU)


def test_a_cpu_is_not_asked(gpu: Gpu) -> None:
    gpu.free_mib = 0
    require_room(relu("cpu", 64), torch.device("cpu"))
    leave_room(torch.device("cpu"))
    assert gpu.ended == 0


@pytest.mark.parametrize(("free_mib", "ended"), [(6000, 1), (7000, 0)])
def test_verifiers_do_not_wait_where_little_is_free(gpu: Gpu, free_mib: int, ended: int) -> None:
    gpu.free_mib = free_mib
    leave_room(GPU)
    assert gpu.ended == ended


def test_verifiers_do_not_wait_where_a_race_needs_their_memory(gpu: Gpu) -> None:
    """Even where more than a sixteenth is free."""
    race_mib = 2 * 8000 + 2 * 8000 + 256
    gpu.free_mib = race_mib
    leave_room(GPU, relu("cuda", 8000))
    assert gpu.ended == 0
    gpu.free_mib = race_mib - 1
    leave_room(GPU, relu("cuda", 8000))
    assert gpu.ended == 1


def test_a_region_without_room_runs_in_pytorch_and_is_retried(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With one warning, a counter of its own, and no record."""

    def no_room(signature: _C.Signature, device: torch.device) -> None:
        raise MemoryError("it needs 9 MiB")

    win_every_race(monkeypatch)
    monkeypatch.setattr("cudaforge_backend.integration.forging.require_room", no_room)
    assert _C.use_cache(str(tmp_path)) is None
    settings = parse(None, {"on_miss": "blocking", "cache_dir": str(tmp_path)})
    regions = [softmax(columns) for columns in (90, 91)]
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        assert not any(plan.forge_one(region, 0, settings) for region in regions)
    told = [str(w.message) for w in seen if "too little memory is free to verify" in str(w.message)]
    assert len(told) == 1 and "it needs 9 MiB" in told[0]
    stats = cudaforge_backend.stats()
    assert stats.fallbacks == {"no_memory_to_verify": 2}
    assert (stats.forged, stats.negative) == (0, 0)
    assert _C.store().get(regions[0].key, _C.arch("cpu")) is None
    monkeypatch.setattr("cudaforge_backend.integration.forging.require_room", room.require_room)
    assert plan.forge_one(regions[0], 0, settings)
    assert cudaforge_backend.stats().forged == 1
