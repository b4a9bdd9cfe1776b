"""Arrows between folders point one way, and foreign headers stay in their rooms."""

from __future__ import annotations

import itertools
import re

import pytest
from tree import ROOT, files


def closure(below: dict[str, set[str]]) -> dict[str, set[str]]:
    """Everything that each name stands on, directly or not."""

    def reach(name: str) -> set[str]:
        return below[name].union(*(reach(other) for other in below[name]))

    return {name: reach(name) for name in below}


def picture(text: str) -> dict[str, set[str]]:
    """The other folders that each folder may include. `text` has chains like "base <- {a, b} <- c",
    one a line or with four spaces between them."""
    below: dict[str, set[str]] = {}
    for chain in re.split(r" {4,}|\n", text):
        links = [set(re.findall(r"\w+", link)) for link in chain.split(" <- ")]
        if len(links) == 1:
            continue
        for lower, upper in itertools.pairwise([set(), *links]):
            for name in upper:
                below.setdefault(name, set()).update(lower)
    return closure(below)


LAYERS = picture((ROOT / "docs" / "architecture.md").read_text())
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
SOURCES = [p for p in files(".h", ".cc") if p.relative_to(ROOT).parts[0] in ("csrc", "cache")]


def folder_of(path: str) -> str:
    """`base` of csrc/base/json.h, `cache` of cache/record.h."""
    parts = path.split("/")
    return parts[1] if parts[0] == "csrc" else parts[0]


def layer_faults(relative: str, text: str) -> list[str]:
    """Includes of `text`, the content of file `relative`, that break a rule."""
    faults = []
    folder = folder_of(relative)
    name = relative.rsplit("/", 1)[1]
    for kind, target in INCLUDE.findall(text):
        if kind == '"':
            other = target.split("/")[0]
            if other not in LAYERS:
                faults.append(f'{relative}: "{target}" is not in a folder of this project')
            elif other != folder and other not in LAYERS[folder]:
                faults.append(f"{relative}: {folder} may not include {other} ({target})")
            continue
        first = target.split("/")[0]
        is_torch = first in ("ATen", "c10", "torch")
        may_torch = folder in ("dispatch", "runtime", "binding")
        may_torch |= folder in ("signature", "verify") and "aten" in name
        if is_torch and not may_torch:
            faults.append(f"{relative}: torch has no place in this file ({target})")
        if (first in ("pybind11", "Python.h")) and folder != "binding":
            faults.append(f"{relative}: only binding knows Python ({target})")
        if first == "rocksdb" and not relative.startswith("cache/"):
            faults.append(f"{relative}: only cache knows RocksDB ({target})")
        if first in ("cuda.h", "cuda_runtime.h", "nvrtc.h", "cupti.h"):
            faults.append(f"{relative}: CUDA is loaded at run time, without its headers ({target})")
    return faults


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_includes_point_down(path) -> None:  # noqa: ANN001
    assert layer_faults(str(path.relative_to(ROOT)), path.read_text()) == []


def test_rocksdb_is_included_by_its_own_files_alone() -> None:
    users = {p.stem for p in SOURCES if "<rocksdb/" in p.read_text()}
    assert users == {"rocks_db"}


def test_cmake_links_as_the_picture_shows() -> None:
    text = (ROOT / "CMakeLists.txt").read_text()
    modules = re.findall(r"^cudaforge_module\((\w+) ([\w/]+)(.*)\)", text, re.MULTILINE)
    folder = {target: path.rsplit("/", 1)[-1] for target, path, _ in modules}
    links = {folder[name]: {folder[n] for n in names.split()} for name, _, names in modules}
    assert closure(links) == {name: LAYERS[name] for name in links}


def test_the_picture_is_read() -> None:
    assert picture("base <- {a, b} <- c    a <- d <- e") == {
        "base": set(), "a": {"base"}, "b": {"base"}, "c": {"base", "a", "b"},
        "d": {"base", "a"}, "e": {"base", "a", "d"},
    }  # fmt: skip
    folders = {p.relative_to(ROOT).parts[0:2] for p in SOURCES}
    assert set(LAYERS) == {"cache" if f[0] == "cache" else f[1] for f in folders}


def test_the_rule_sees_faults() -> None:
    assert layer_faults("csrc/base/x.cc", '#include "forge/forge.h"\n')
    assert layer_faults("csrc/forge/x_aten.cc", "#include <ATen/ATen.h>\n")
    assert layer_faults("csrc/verify/x.cc", "#include <c10/core/Device.h>\n")
    assert not layer_faults("csrc/verify/x_aten.cc", "#include <c10/core/Device.h>\n")
    assert layer_faults("csrc/forge/x.cc", "#include <rocksdb/db.h>\n")
    assert layer_faults("csrc/dispatch/x.cc", "#include <pybind11/pybind11.h>\n")
    assert layer_faults("cache/x.cc", '#include "kernel/candidate.h"\n')
    assert layer_faults("csrc/target/x.cc", "#include <cuda.h>\n")
    assert not layer_faults("csrc/forge/x.cc", '#include "cache/record.h"\n#include <vector>\n')
