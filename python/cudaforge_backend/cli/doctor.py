"""`cudaforge doctor`: what this machine offers, and what to do about what is missing."""

from __future__ import annotations

import argparse
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict, cast

import torch

from .._native import _C
from .output import add_cache_dir, add_json, cache_dir, cannot_write, show

# Without these nothing works; the others only narrow what can be forged.
NEEDED = frozenset({"torch", "worker", "cache", "host compiler"})


class Check(TypedDict):
    """One line: what was looked at, whether it is fine, what was found, what to do."""

    name: str
    ok: bool
    detail: str
    advice: str


def add(verbs: Any) -> None:
    """Registers the command."""
    command = verbs.add_parser(
        "doctor", help="check versions, GPU, compilers and the cache, and say what to do"
    )
    add_cache_dir(command)
    add_json(command)
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """0 when everything that is needed is there; a missing GPU is no fault on a CPU machine."""
    found = cast("list[Check]", _C.capabilities())
    checks = [_versions(), _environment(), _worker(), *found, _cache(cache_dir(args))]
    show(args, checks, lambda: _print(checks))
    return int(any(not check["ok"] for check in checks if check["name"] in NEEDED))


def _print(checks: Sequence[Mapping[str, Any]]) -> None:
    for check in checks:
        print(f"{'ok     ' if check['ok'] else 'MISSING'} {check['name']:<14} {check['detail']}")
        if check["advice"]:
            print(f"        {'':<14} {check['advice']}")


def _versions() -> Check:
    built = _C.versions()["torch"].split("+")[0]
    running = torch.__version__.split("+")[0]
    detail = (
        f"cudaforge {_C.versions()['cudaforge']}, torch {torch.__version__}, "
        f"Python {platform.python_version()}"
    )
    same = built == running
    advice = (
        "" if same else f"built for torch {built}: build cudaforge again, or install torch=={built}"
    )
    return Check(name="torch", ok=same, detail=detail, advice=advice)


def _worker() -> Check:
    path = Path(_C.worker_path())
    there = path.is_file()
    advice = (
        ""
        if there
        else "build again (pip install .), or set CUDAFORGE_WORKER to the program's path"
    )
    return Check(name="worker", ok=there, detail=str(path), advice=advice)


def _environment() -> Check:
    wrong = _C.config()["warnings"]
    detail = "; ".join(wrong) or "every CUDAFORGE_ variable is known and used"
    return Check(
        name="environment",
        ok=not wrong,
        detail=detail,
        advice="see README.md, Environment" if wrong else "",
    )


def _cache(folder: str) -> Check:
    try:
        store = _C.KernelStore.open(folder)
    except (OSError, RuntimeError, NotImplementedError) as error:
        advice = "choose another folder with CUDAFORGE_CACHE_DIR"
        return Check(name="cache", ok=False, detail=f"{folder}: {error}", advice=advice)
    problem = store.health()
    if why := cannot_write(Path(folder).absolute()):
        detail = f"{folder}: {why}; kernels are neither kept nor listed"
        advice = "choose a folder that you can write to with CUDAFORGE_CACHE_DIR"
        return Check(name="cache", ok=False, detail=detail, advice=advice)
    detail = f"RocksDB {_C.versions()['rocksdb']}, {folder}, {len(store.records())} records"
    if problem is None:
        return Check(name="cache", ok=True, detail=detail, advice="")
    return Check(
        name="cache",
        ok=False,
        detail=f"{folder}: {problem}",
        advice="nothing is lost: the next kernel that is stored moves the damaged files aside",
    )
