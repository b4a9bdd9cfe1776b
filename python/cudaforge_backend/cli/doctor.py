"""`cudaforge doctor`: what this machine offers, and what to do about what is missing."""

from __future__ import annotations

import argparse
import os
import platform
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict

import torch

from .. import torch_compat
from .._native import _C
from ..options import DISABLED, disabled
from .output import add_cache_dir, add_json, cache_dir, show
from .stores import cannot_write, damaged

# Without these nothing works; the others only narrow what can be forged.
NEEDED = frozenset({"torch", "worker", "verifier", "cache", "host compiler"})


State = Literal["ok", "missing", "broken", "not used"]


class Check(TypedDict):
    """One line: what was looked at, how it stands, what was found, what to do. "missing": it is not
    there; "broken": it is there and cannot be used as it is; "not used": one of these two, and
    nothing on this machine would use it. `detail` has a line for each thing that was found. `ok` is
    whether the state is "ok". `searched`, of nvrtc: the folders that may hold CUDA's libraries, the
    first to try first."""

    name: str
    state: State
    ok: bool
    detail: str
    advice: str
    searched: NotRequired[list[str]]


def check(name: str, state: State, detail: str, advice: str = "") -> Check:
    """A Check; without advice where it is fine."""
    return Check(name=name, state=state, ok=state == "ok", detail=detail, advice=advice)


def add(verbs: Any) -> None:
    """Registers the command."""
    command = verbs.add_parser(
        "doctor",
        help="check versions, GPU, compilers and the cache, and say what to do",
        description="Looks at what this machine offers, a line for each thing, with what to do "
        "about what is missing. The exit status is 0 when all is there that CudaForge needs; a "
        "machine without a GPU lacks nothing.",
    )
    add_cache_dir(command)
    add_json(command)
    command.set_defaults(run=run, tells_warnings=True)


def run(args: argparse.Namespace) -> int:
    """0 when everything that is needed is there; a missing GPU is no fault on a CPU machine."""
    print("looking at compilers, GPU and cache ...", file=sys.stderr, flush=True)
    checks = [_versions(), _environment(), *_programs(), *_native(), _python_h()]
    checks.append(_cache(cache_dir(args)))
    show(args, checks, lambda: _print(checks))
    return int(any(not check["ok"] for check in checks if check["name"] in NEEDED))


def _print(checks: Sequence[Mapping[str, Any]]) -> None:
    for one in checks:
        first, *others = one["detail"].split("\n")
        print(f"{one['state']:<8}  {one['name']:<14} {first}")
        for line in others:
            print(f"{'':<10}{'':<14} {line}")
        if one["advice"]:
            print(f"{'':<10}{'':<14} {one['advice']}")


def _native() -> list[Check]:
    """What the C++ part finds: compiler, CPU counters, isolation, driver, gpu, nvrtc and so on."""
    found = {one["name"]: one for one in _C.capabilities()}
    driver = found["driver"]["state"] == "ok"
    checks = []
    for name, one in found.items():
        if name in ("nvrtc", "nvjitlink", "cupti") and one["state"] != "ok" and not driver:
            what = "not there" if one["state"] == "missing" else one["detail"]
            checks.append(check(name, "not used", f"{what}; only kernels for a GPU need it"))
        else:
            checks.append(check(**one))
        if name == "nvrtc":
            checks[-1]["searched"] = _C.cuda_search_paths()
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
            return check("torch", "broken", f"{detail}, and without {', '.join(lacking)}", advice)
        detail += "; all that it takes from PyTorch is there"
    if built == running:
        return check("torch", "ok", detail)
    advice = f"built for torch {built}: build cudaforge again, or install torch=={built}"
    return check("torch", "broken", detail, advice)


def _programs() -> list[Check]:
    again = "build again (pip install .)"
    worker = _program("worker", _C.worker_path(), f"{again}, or set CUDAFORGE_WORKER to its path")
    return [worker, _program("verifier", _C.verifier_path(), again)]


def _program(name: str, place: str, advice: str) -> Check:
    path = Path(place)
    if path.is_file() and os.access(path, os.X_OK):
        return check(name, "ok", str(path))
    state: State = "broken" if path.exists() else "missing"
    detail = f"{path} is no program" if path.exists() else str(path)
    return check(name, state, detail, advice)


def _environment() -> Check:
    if wrong := _C.config()["warnings"]:
        advice = "correct these variables or unset them; CudaForge goes on as if they were not set"
        return check("environment", "broken", "\n".join(wrong), advice)
    if disabled():
        return check("environment", "ok", DISABLED)
    return check("environment", "ok", "every CUDAFORGE_ variable is known and used")


def _python_h() -> Check:
    """Inductor's kernels for a CPU, and Triton's launchers, are compiled with Python's header."""
    path = Path(sysconfig.get_paths()["include"]) / "Python.h"
    if path.is_file():
        return check("Python.h", "ok", str(path))
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    advice = f"torch.compile needs it, with any backend: install python{version}-dev"
    return check("Python.h", "missing", str(path), advice)


def _cache(folder: str) -> Check:
    advice = "choose another folder, one that you can write to, with CUDAFORGE_CACHE_DIR"
    try:
        store = _C.KernelStore.open(folder)
        number = len(store.records())
    except (OSError, RuntimeError, NotImplementedError) as error:
        return check("cache", "broken", f"{folder}: {error}", advice)
    why = cannot_write(Path(folder).absolute())
    if why and not Path(folder).is_dir():
        return check("cache", "broken", f"{folder}: {why}; no kernel is kept", advice)
    detail = f"RocksDB {_C.versions()['rocksdb']}, {folder}, {number} records"
    if why:
        detail += f"\nread-only ({why}): its kernels are served, and none is added"
    if passed_over := damaged(store):
        what, _, advice = passed_over.partition(". ")
        return check("cache", "broken", f"{detail}\n{what}", advice)
    return check("cache", "ok", detail)
