"""`cudaforge doctor`: what this machine offers, and what to do about what is missing."""

from __future__ import annotations

import os
import platform
import sys
import sysconfig
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import click
import torch

from .. import torch_compat
from .._native import _C, build_again, other_torch
from ..options import DISABLED, disabled
from .output import Command, cache_dir_option, json_option, show, table
from .stores import cannot_write, damaged

# Without these nothing works; the others only narrow what can be forged.
NEEDED = frozenset({"torch", "worker", "verifier", "cache", "host compiler"})


class State(StrEnum):
    """What was found of a part of this machine."""

    OK = "ok"
    MISSING = "missing"  # not there
    BROKEN = "broken"  # there, and cannot be used as it is
    NOT_USED = "not used"  # missing or broken, and nothing on this machine would use it


@dataclass(frozen=True)
class Check:
    """One part of this machine. `detail` has a line for each thing that was found, `advice` says
    what to do. `searched`: of nvrtc, the folders that may hold CUDA's libraries, in order."""

    name: str
    state: State
    detail: str
    advice: str = ""
    searched: tuple[str, ...] | None = None

    def to_json(self) -> dict[str, Any]:
        """With `ok`: whether the state is "ok"."""
        return {
            "name": self.name,
            "state": self.state,
            "ok": self.state is State.OK,
            "detail": self.detail,
            "advice": self.advice,
            **({} if self.searched is None else {"searched": self.searched}),
        }


@click.command(
    "doctor",
    cls=Command,
    exits={
        0: "everything is there that CudaForge needs",
        1: "PyTorch's release, the worker, the verifier, the cache or the host compiler is not as "
        "needed",
    },
    reports_environment=True,
)
@cache_dir_option
@json_option
def command(cache_dir: str, as_json: bool) -> int:
    """Check versions, GPU, compilers and the cache, and say what to do.

    Prints a line for each part, with what to do about what is missing. A machine without a GPU
    lacks nothing.
    """
    print("looking at compilers, GPU and cache ...", file=sys.stderr, flush=True)
    checks = [_versions(), _environment(), *_programs(), *_native(), _python_h()]
    checks.append(_cache(cache_dir))

    def text() -> None:
        rows = [(c.state, c.name, [*c.detail.splitlines(), *c.advice.splitlines()]) for c in checks]
        table(("State", "Part", "Found, and what to do"), rows)

    show(as_json, [check.to_json() for check in checks], text)
    return int(any(check.state is not State.OK for check in checks if check.name in NEEDED))


def _native() -> list[Check]:
    """What the C++ part finds: compiler, CPU counters, isolation, driver, gpu, nvrtc and so on."""
    found = {one["name"]: one for one in _C.capabilities()}
    driver = State(found["driver"]["state"])
    checks = []
    for name, one in found.items():
        state, detail, advice = State(one["state"]), one["detail"], one["advice"]
        of_gpu = name in ("nvrtc", "nvjitlink", "cupti")
        if of_gpu and state is not State.OK and driver is not State.OK:
            what = "not there" if state is State.MISSING else detail
            state, detail, advice = State.NOT_USED, f"{what}; only kernels for a GPU need it", ""
        searched = tuple(_C.cuda_search_paths()) if name == "nvrtc" else None
        checks.append(Check(name, state, detail, advice, searched))
    return checks


def _versions() -> Check:
    built = _C.versions()["torch"].split("+")[0]
    running = torch.__version__.split("+")[0]
    detail = (
        f"cudaforge {_C.versions()['cudaforge']}, torch {torch.__version__}, "
        f"Python {platform.python_version()}"
    )
    if torch_compat.is_newer(running):
        lacking = torch_compat.lacking()
        tested = " to ".join(f"{major}.{minor}" for major, minor in torch_compat.TESTED)
        detail += f"\nnewer than the releases that CudaForge is tested with, {tested}"
        if lacking:
            advice = f"install torch {tested}"
            detail += f", and without {', '.join(lacking)}"
            return Check("torch", State.BROKEN, detail, advice)
        detail += "; all that it takes from PyTorch is there"
    if built.split(".")[:2] == running.split(".")[:2]:  # as the import demands it
        return Check("torch", State.OK, detail)
    return Check("torch", State.BROKEN, f"{detail}\nbuilt for torch {built}", other_torch(built))


def _programs() -> list[Check]:
    again = build_again()
    worker = _program("worker", _C.worker_path(), f"{again}; or set CUDAFORGE_WORKER to its path")
    return [worker, _program("verifier", _C.verifier_path(), again)]


def _program(name: str, place: str, advice: str) -> Check:
    path = Path(place)
    if path.is_file() and os.access(path, os.X_OK):
        return Check(name, State.OK, str(path))
    if path.exists():
        return Check(name, State.BROKEN, f"{path} is no program", advice)
    return Check(name, State.MISSING, str(path), advice)


def _environment() -> Check:
    if wrong := _C.config()["warnings"]:
        advice = "correct these variables or unset them; CudaForge goes on as if they were not set"
        return Check("environment", State.BROKEN, "\n".join(wrong), advice)
    if disabled():
        return Check("environment", State.OK, DISABLED)
    return Check("environment", State.OK, "every CUDAFORGE_ variable is known and used")


def _python_h() -> Check:
    """Inductor's kernels for a CPU, and Triton's launchers, are compiled with Python's header."""
    path = Path(sysconfig.get_paths()["include"]) / "Python.h"
    if path.is_file():
        return Check("Python.h", State.OK, str(path))
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    advice = f"torch.compile needs it, with any backend: install python{version}-dev"
    return Check("Python.h", State.MISSING, str(path), advice)


def _cache(folder: str) -> Check:
    advice = "choose another folder, one that you can write to, with CUDAFORGE_CACHE_DIR"
    try:
        store = _C.KernelStore.open(folder)
        number = len(store.records())
    except (OSError, RuntimeError, NotImplementedError) as error:
        return Check("cache", State.BROKEN, f"{folder}: {error}", advice)
    why = cannot_write(Path(folder).absolute())
    if why and not Path(folder).is_dir():
        return Check("cache", State.BROKEN, f"{folder}: {why}; no kernel is kept", advice)
    detail = f"RocksDB {_C.versions()['rocksdb']}, {folder}, {number} records"
    if why:
        detail += f"\nread-only ({why}): its kernels are served, and none is added"
    if passed_over := damaged(store):
        what, _, advice = passed_over.partition(". ")
        return Check("cache", State.BROKEN, f"{detail}\n{what}", advice)
    return Check("cache", State.OK, detail)
