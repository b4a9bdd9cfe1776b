"""Forging on a machine that lacks something, and workers that fail: a message, PyTorch's result."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from conftest import RunPython
from two_regions import run_regions, told


@pytest.mark.parametrize(
    ("environment", "named"),
    [
        ({"CUDAFORGE_CXX": "/nonexistent/g++"}, "/nonexistent/g++"),
        ({"CUDAFORGE_WORKER": "/nonexistent/worker"}, "/nonexistent/worker"),
        ({"CUDAFORGE_WORKER": "/bin/false"}, "/bin/false"),
        ({"CUDAFORGE_WORKER": "/bin/cat"}, "/bin/cat"),
    ],
    ids=["no_compiler", "no_worker", "worker_ends", "worker_of_another_kind"],
)
def test_nothing_can_be_made(
    run_python: RunPython, tmp_path: Path, environment: dict[str, str], named: str
) -> None:
    result = told(run_regions(run_python, tmp_path / "cache", forge=True, **environment))
    assert len(result["warnings"]) == 1, result["warnings"]
    assert named in result["warnings"][0]
    assert result["fallbacks"] == {"forge_failed": 2}
    # The machine's fault is no verdict: the next process has a compiler and forges the region.
    assert (result["negative"], result["records"]) == (0, [])
    after = told(run_regions(run_python, tmp_path / "cache", forge=True))
    assert after["forged"] == after["hits"] > 0


def test_an_architecture_that_nvrtc_does_not_know(run_python: RunPython, tmp_path: Path) -> None:
    """The error of a worker that cannot start on a GPU unknown to NVRTC."""
    said = "NVRTC 12.0 does not support sm_999 (it supports sm_90); update nvidia-cuda-nvrtc"
    first = f"def refuse(*given): raise RuntimeError({said!r})\n_C.forge_region = refuse"
    result = told(run_regions(run_python, tmp_path / "cache", forge=True, first=first))
    assert len(result["warnings"]) == 1 and said in result["warnings"][0], result["warnings"]
    assert result["fallbacks"] == {"forge_failed": 2}
    assert (result["negative"], result["records"]) == (0, [])


# A compiler that ends the worker which called it: each of the first LIMIT times.
_KILLER = """#!/bin/sh
if grep -q cudaforge-worker /proc/$PPID/cmdline && [ "$(cat {log} | wc -l)" -lt {limit} ]; then
  echo killed >>{log}
  kill -9 $PPID
  exit 1
fi
exec g++ "$@"
"""
# Writes the verdict on every candidate to a file.
_LISTEN = """
def listen(event):
    if isinstance(event, cudaforge_backend.Candidate) and not event.proven:
        with open({path!r}, "a") as file:
            print(event.verdict, file=file)
cudaforge_backend.set_progress(listen)
"""


@pytest.mark.parametrize("limit", [1, 1000], ids=["once", "always"])
def test_workers_that_are_killed(run_python: RunPython, tmp_path: Path, limit: int) -> None:
    """A killed worker is no candidate's fault: retried, and never a negative entry."""
    log, verdicts, cxx = tmp_path / "log", tmp_path / "verdicts", tmp_path / "g++"
    log.touch()
    verdicts.touch()
    cxx.write_text(_KILLER.format(log=log, limit=limit))
    cxx.chmod(0o755)
    first = _LISTEN.format(path=str(verdicts))
    environment = {"CUDAFORGE_CXX": str(cxx)}
    done = run_regions(run_python, tmp_path / "cache", True, first=first, **environment)
    result, judged = told(done), verdicts.read_text().split()
    counts = (result["forged"], result["hits"], result["negative"])
    kills = len(log.read_text().split())
    if limit == 1:
        assert len(judged) == 4 and set(judged) <= {"accepted", "too_slow"}
        assert (counts, kills) == ((2, 2, 0), 1)
        assert (result["warnings"], result["fallbacks"]) == ([], {})
    else:
        assert (judged, counts, kills) == ([], (0, 0, 0), 4)  # two regions, each tried twice
        assert result["fallbacks"] == {"forge_failed": 2}
        assert len(result["warnings"]) == 1
        assert "the compiling process ended twice: signal 9" in result["warnings"][0]


def test_an_exception_in_our_progress_callback(run_python: RunPython, tmp_path: Path) -> None:
    first = "def fail(event):\n    raise ValueError('from the callback')\n"
    first += "cudaforge_backend.set_progress(fail)"
    result = told(run_regions(run_python, tmp_path / "cache", forge=True, first=first))
    assert len(result["warnings"]) == 1, result["warnings"]
    assert "from the callback" in result["warnings"][0]


def test_the_worker_alone_says_what_it_is() -> None:
    from cudaforge_backend._native import _C

    done = subprocess.run([_C.worker_path()], capture_output=True, text=True, env=dict(os.environ))
    assert done.returncode == 2
    assert "is started by CudaForge" in done.stderr


def test_capabilities_say_what_is_missing(run_python: RunPython, tmp_path: Path) -> None:
    done = run_python(
        "import json\nfrom cudaforge_backend._native import _C\n"
        "print(json.dumps(_C.capabilities()))",
        CUDAFORGE_CXX="/nonexistent/g++",
        CUDAFORGE_CUDA_PATH=str(tmp_path),
        ready=True,
    )
    lacking = [c for c in json.loads(done.stdout.splitlines()[-1]) if c["state"] != "ok"]
    (compiler,) = (c for c in lacking if c["name"] == "host compiler")
    assert compiler["state"] == "missing" and "/nonexistent/g++" in compiler["detail"]
    assert all(c["advice"] for c in lacking)
