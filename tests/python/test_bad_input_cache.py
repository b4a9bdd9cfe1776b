"""Cache folders that cannot be used as they are, and damaged databases: results stay PyTorch's."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cudaforge_backend
import pytest
import torch
from conftest import RunPython
from cudaforge_backend._native import _C
from forged import compiled
from torch import Tensor
from two_regions import run_regions, told


def function(x: Tensor) -> Tensor:
    return torch.softmax(x * 3, -1)


def test_a_missing_folder_is_made(run_python: RunPython, tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b" / "c"
    result = told(run_regions(run_python, folder))
    assert result["warnings"] == []
    assert (folder / "db").is_dir()
    assert len(_C.KernelStore.open(str(folder)).wanted()) == 2


@pytest.mark.parametrize("folder", ["/proc/x", "/dev/null/x", "/proc/self/status"])
def test_an_impossible_folder(run_python: RunPython, folder: str) -> None:
    result = told(run_regions(run_python, folder))
    assert len(result["warnings"]) == 1
    assert folder in result["warnings"][0]
    assert "choose" in result["warnings"][0]


def test_an_eager_miss_that_cannot_be_recorded_counts_and_says_what_to_do(
    run_python: RunPython, tmp_path: Path
) -> None:
    (tmp_path / "lock").mkdir()
    code = (
        "import cudaforge_backend as cf, json, torch, warnings\n"
        "with warnings.catch_warnings(record=True) as warned:\n"
        "    warnings.simplefilter('always')\n"
        f"    with cf.enable(['aten::_softmax'], on_miss='record', cache_dir={str(tmp_path)!r}):\n"
        "        torch.randn(4, 31).softmax(-1)\n"
        "texts = [str(w.message) for w in warned]\n"
        "print(json.dumps({'warnings': texts, 'fallbacks': cf.stats().fallbacks}))\n"
    )
    result = json.loads(run_python(code, ready=True).stdout.splitlines()[-1])
    assert result["fallbacks"] == {"not_recorded": 1}
    (warning,) = result["warnings"]
    assert "is not recorded: " in warning and "choose a folder that you can write to" in warning


@pytest.mark.parametrize("forge", [False, True])
def test_a_plain_file_is_left_untouched(run_python: RunPython, tmp_path: Path, forge: bool) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    result = told(run_regions(run_python, file, forge))
    assert len(result["warnings"]) == 1
    assert str(file) in result["warnings"][0]
    assert file.read_text() == "mine"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
    if forge:  # kept in memory
        assert (result["forged"], result["hits"]) == (2, 2)


@pytest.fixture
def winners(forged: Path, tmp_path: Path) -> Path:
    """A folder of its own with the winner of function(8 x 24)."""
    x = torch.randn(8, 24)
    torch.testing.assert_close(compiled(function, forged)(x), function(x))
    shutil.copytree(forged, tmp_path / "copy")
    torch._dynamo.reset()
    cudaforge_backend.reset_stats()
    return tmp_path / "copy"


def drop_root_rights() -> None:
    """Root may no longer read and write what a file's mode forbids; for the rest of the process."""
    header, sets = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    libc = ctypes.CDLL(None, use_errno=True)
    libc.capget(header, sets)
    for index in range(len(sets)):
        sets[index] &= ~0b110  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
    if os.geteuid() == 0 and libc.capset(header, sets) != 0:
        os._exit(77)


_WITHOUT_RIGHTS = "from test_bad_input_cache import drop_root_rights\ndrop_root_rights()\n"


@pytest.mark.parametrize("forge", [False, True])
def test_a_read_only_folder(run_python: Any, winners: Path, forge: bool) -> None:
    before = {p: p.read_bytes() for p in winners.rglob("*") if p.is_file()}
    for path in [winners, *winners.rglob("*")]:
        path.chmod(0o500 if path.is_dir() else 0o400)
    try:
        done = run_regions(run_python, winners, forge, first=_WITHOUT_RIGHTS, check=False)
    finally:
        for path in [winners, *winners.rglob("*")]:
            path.chmod(0o700)
    if done.returncode == 77:
        pytest.skip("root cannot give up its rights here")
    assert done.returncode == 0, done.stderr[-3000:]
    result = told(done)
    assert len(result["warnings"]) == 1, result["warnings"]
    assert "ermission denied" in result["warnings"][0]
    assert "choose a folder that you can write to" in result["warnings"][0]
    assert "backend_failed" not in result["fallbacks"]
    assert {p: p.read_bytes() for p in winners.rglob("*") if p.is_file()} == before
    reason = "forge_failed" if forge else "not_recorded"
    assert set(result["fallbacks"]) == {reason}


def test_winners_of_a_read_only_folder_are_served(run_python: Any, winners: Path) -> None:
    for path in [winners, *winners.rglob("*")]:
        path.chmod(0o500 if path.is_dir() else 0o400)
    given: dict[str, Any] = {"first": _WITHOUT_RIGHTS, "check": False}
    try:
        done = run_regions(run_python, winners, columns=24, scales=(3,), **given)
    finally:
        for path in [winners, *winners.rglob("*")]:
            path.chmod(0o700)
    if done.returncode == 77:
        pytest.skip("root cannot give up its rights here")
    assert done.returncode == 0, done.stderr[-3000:]
    assert told(done)["hits"] == 1
    assert told(done)["warnings"] == []


def _files(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


@pytest.mark.parametrize("what", ["CURRENT", "MANIFEST", ".sst"])
def test_a_model_on_a_damaged_database(winners: Path, what: str) -> None:
    for path in (winners / "db").iterdir():
        if what in path.name:
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    x = torch.randn(8, 24)
    with pytest.warns(cudaforge_backend.CudaForgeWarning) as seen:
        made = compiled(function, winners)
        torch.testing.assert_close(made(x), function(x))
        torch.testing.assert_close(made(x), function(x))
    ours = [w for w in seen if w.category is cudaforge_backend.CudaForgeWarning]
    assert any(str(winners) in str(w.message) for w in ours)
    assert len({str(w.message) for w in ours}) == len(ours)
    stats = cudaforge_backend.stats()
    assert stats.cache["corrupt"] + stats.cache["errors"] > 0
    assert stats.forged == 1  # a new kernel was made and stored
    assert stats.hits == 2
    assert (winners / "db.damaged-1").is_dir()  # nothing is thrown away


def test_a_newer_format_is_left_alone(run_python: RunPython, tmp_path: Path) -> None:
    folder = tmp_path / "newer"
    make = (
        "import os, cudaforge_backend\n"
        "from cudaforge_backend._native import _C\n"
        "_C.KernelStore.open(os.environ['FOLDER'], True).put_graph('0' * 64, 'cpu:x', {})"
    )
    run_python(make, FOLDER=str(folder), ready=True)
    if shutil.which("ldb") is None:
        pytest.skip("needs ldb (rocksdb-tools) to write another format")
    subprocess.run(
        ["ldb", f"--db={folder}/db", "--column_family=meta", "put", "format", "999"], check=True
    )
    before = _files(folder)
    result = told(run_regions(run_python, folder))
    assert len(result["warnings"]) == 1
    assert "newer" in result["warnings"][0]
    assert _files(folder) == before


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "cudaforge-test", str(folder)]
    if subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("cannot mount a small file system here")
    yield folder
    _C.use_cache(os.environ["CUDAFORGE_CACHE_DIR"])
    subprocess.run(["umount", str(folder)], check=True)


def test_a_disk_that_is_full_under_a_cache(run_python: RunPython, small_disk: Path) -> None:
    cache = small_disk / "cache"
    assert told(run_regions(run_python, cache, forge=True, scales=(3,)))["forged"] == 1
    with pytest.raises(OSError, match="No space left"), (small_disk / "filler").open("wb", 0) as f:
        while True:
            f.write(bytes(4096))
    result = told(run_regions(run_python, cache))
    assert result["hits"] == 1
    assert result["fallbacks"] == {"not_recorded": 1}
    (warning,) = result["warnings"]
    assert "No space left" in warning
    (small_disk / "filler").unlink()
    result = told(run_regions(run_python, cache))
    assert (result["hits"], result["warnings"]) == (1, [])


@pytest.mark.parametrize("forge", [False, True])
def test_a_full_disk(run_python: RunPython, small_disk: Path, forge: bool) -> None:
    (small_disk / "filler").write_bytes(bytes((1 << 20) - 8192))
    result = told(run_regions(run_python, small_disk, forge))
    assert 1 <= len(result["warnings"]) <= 2, result["warnings"]
    assert set(result["fallbacks"]) <= {"forge_failed" if forge else "not_recorded"}
    (small_disk / "filler").unlink()
    result = told(run_regions(run_python, small_disk, forge=True))
    assert result["hits"] == 2
