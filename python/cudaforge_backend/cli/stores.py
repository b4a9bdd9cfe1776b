"""The cache that a command works on: opened, written to, looked up in."""

from __future__ import annotations

import contextlib
import json
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .._native import _C
from ..records import counted, op_names

_WHOLE_KEY = re.compile("[0-9a-f]{64}")


def cannot_write(folder: Path) -> str:
    """Why nothing can be stored in `folder`, "" where it can (the folder need not exist)."""
    there = next(path for path in (folder, *folder.parents) if path.exists())
    if not there.is_dir():
        return f"{there} is no folder"
    try:
        with tempfile.TemporaryFile(dir=there):
            return ""
    except OSError as error:
        return f"{there} takes no writes ({error.strerror})"


def forging_cache(cache_dir: str) -> None:
    """Has the process use the cache in `cache_dir`. OSError: nothing can be stored there."""
    folder = Path(cache_dir).absolute()
    problem = _C.use_cache(cache_dir) or cannot_write(folder)
    if problem:
        raise OSError(
            f"the cache {folder} cannot be used: {problem}; choose another folder with --cache-dir"
        )


def open_store(cache_dir: str, writable: bool = False) -> Any:
    """The cache in a folder. OSError: it cannot be read."""
    store = _C.KernelStore.open(cache_dir, writable)
    _check_readable(store)
    return store


def _check_readable(store: Any) -> None:
    problem = store.health()
    if problem is not None:
        raise OSError(f"the cache cannot be read: {problem}")


def damaged(store: Any) -> str:
    """A line on the records that records() of `store`, just opened, has passed over; "" where there
    were none."""
    number = store.counters()["corrupt"]
    if not number:
        return ""
    return (
        f"{counted(number, 'record')} {'is' if number == 1 else 'are'} damaged or of another "
        "record format, and not served. To be rid of them: cudaforge cache export FILE, which "
        "takes the others; remove the folder; import FILE"
    )


def unreadable(store: Any, key: str, arch: str) -> list[str]:
    """Architectures on which `store` has a record of the whole `key` that cannot be read; `arch`:
    of that one only. Looked for are this machine's and those of the other records."""
    if not _WHOLE_KEY.fullmatch(key):
        return []
    archs = {arch} if arch else {record["arch"] for record in store.records()} | archs_here()
    return sorted(one for one in archs if _is_unreadable(store, key, one))


def _is_unreadable(store: Any, key: str, arch: str) -> bool:
    before = store.counters()
    if store.get(key, arch) is not None:
        return False
    after = store.counters()
    return any(after[name] > before[name] for name in ("hits", "corrupt", "errors"))


def archs_here() -> set[str]:
    """The architectures of this machine's devices."""
    archs = set()
    for device in ("cpu", "cuda"):
        with contextlib.suppress(RuntimeError):  # no such device
            archs.add(_C.arch(device))
    return archs


def of_key(store: Any, start: str, arch: str = "", wanted: bool = True) -> list[dict[str, Any]]:
    """The records of the one key that begins with `start`, one for each architecture. With
    `wanted`, also its entries on the wanted list. KeyError: no key, or several, begin with it."""
    stored = [*store.records(arch), *(store.wanted(arch) if wanted else ())]
    found = [record for record in stored if record["key"].startswith(start)]
    if not found:
        if start and not wanted:
            _refuse_wanted(store, start, arch)
        what = ("no record or wanted region" if wanted else "no record") + (arch and f" on {arch}")
        lists = "`cudaforge cache ls` lists them"
        if wanted:
            lists = "`cudaforge cache ls` and `cudaforge cache wanted` list them"
        raise KeyError(f"{what} starts with {start!r}; {lists}")
    keys = {record["key"] for record in found}
    if len(keys) > 1 or not start:
        raise _ambiguous(start, len(keys))
    return found


def _refuse_wanted(store: Any, start: str, arch: str) -> None:
    """KeyError if the key of a region on the wanted list begins with `start`."""
    like = {row["key"] for row in store.wanted(arch) if row["key"].startswith(start)}
    if len(like) > 1:
        raise _ambiguous(start, len(like))
    if like:
        raise KeyError(
            f"the region {start!r} is wanted and has no record yet: `cudaforge forge --wanted` "
            "makes its kernel where a generator can, `cudaforge cache wanted` shows what it is"
        )


def _ambiguous(start: str, keys: int) -> KeyError:
    return KeyError(f"{start!r} is the start of {counted(keys, 'key')}; give more digits")


def normalized(signature: Mapping[str, Any]) -> _C.Signature:
    """A stored signature, as this torch makes it."""
    return _C.Signature.parse(json.dumps(signature)).normalized()


def is_asked(only: str | None, signature: _C.Signature) -> bool:
    """Whether --only OP, or its absence, takes the region."""
    return not only or only in op_names(signature.to_dict())


def nothing_asked(only: str | None, there: bool) -> str:
    """Why there is nothing to forge. `there`: regions are named or on the wanted list, but --only
    excludes them all."""
    if there:
        return f"no region that is named or wanted has {only!r} among its operators"
    return "no region is named, and the wanted list has none for this machine"


def wanted_here(store: Any) -> tuple[list[_C.Signature], int]:
    """The signatures of this machine's regions on the wanted list, the earliest request first, and
    the number of regions of other machines. OSError: the cache cannot be read."""
    _check_readable(store)
    mine = archs_here()
    rows = sorted(store.wanted(), key=lambda row: row["first_seen"])
    here = [normalized(row["signature"]) for row in rows if row["arch"] in mine]
    return here, len(rows) - len(here)
