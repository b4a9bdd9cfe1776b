"""The shape of the tree: file sizes, top level, tests that mirror sources, unfinished work."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from tree import ROOT, files, own_kernels

SOURCE_LIMIT = 600
ROOMY = 400
TOP_LEVEL = {
    "CMakeLists.txt", "setup.py", "pyproject.toml", "csrc", "python", "cache", "tests", "examples",
    "docs", "README.md", "LICENSE", "CONTRIBUTING.md", "CHANGELOG.md",
}  # fmt: skip
TESTED_ELSEWHERE = {"binding"}  # from Python
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")


def oversized(lengths: Mapping[str, int]) -> list[str]:
    """Files over the limit; and, where more than one in ten is long, the long ones."""
    over = [name for name, n in lengths.items() if n > SOURCE_LIMIT]
    long = [name for name, n in lengths.items() if n > ROOMY]
    return sorted(set(over) | set(long if len(long) * 10 > len(lengths) else []))


def wide_comments(lines: Iterable[str]) -> list[str]:
    """Comment lines over 100 columns, which clang-format leaves as they are."""
    return [line for line in lines if len(line) > 100 and line.lstrip().startswith("//")]


def strangers(names: Iterable[str]) -> set[str]:
    """Visible top-level names that are not in TOP_LEVEL."""
    tops = {name.split("/")[0] for name in names}
    return {top for top in tops if not top.startswith(".")} - TOP_LEVEL


def untested(names: Iterable[str]) -> set[str]:
    """Folders of csrc, and cache, with C++ sources and without a test under tests/cpp."""
    parts = [name.split("/") for name in names]
    sources = {p[1] for p in parts if p[0] == "csrc" and p[-1].endswith(".cc")}
    sources |= {"cache" for p in parts if p[0] == "cache" and p[-1].endswith(".cc")}
    tests = {p[2] for p in parts if p[:2] == ["tests", "cpp"] and p[-1].endswith("_test.cc")}
    return sources - tests - TESTED_ELSEWHERE


def not_there(table: str, sources: Mapping[str, str]) -> list[str]:
    """Files and names in code type, of docs/extending.md, that the tree has no
    more; `sources` are its files' texts."""
    words = {word for text in sources.values() for word in re.findall(r"\w+", text)}
    quoted = re.findall(r"`([A-Za-z_]\w+)`", table)
    paths = re.findall(r"[\w./]+\.(?:cc|cu|h|py|md|mustache)\b", table)
    paths += [
        stem + end for stem in re.findall(r"([\w./]+)\.\{h,cc\}", table) for end in (".h", ".cc")
    ]
    known = [f"/{name}" for name in sources]
    gone = [p for p in paths if "NAME" not in p and not any(k.endswith(f"/{p}") for k in known)]
    return sorted({*gone, *(name for name in quoted if name not in words)})


def names() -> list[str]:
    """Every file of the tree, relative to its root."""
    return [str(path.relative_to(ROOT)) for path in files("")]


def test_files_are_short() -> None:
    sources = [*files(".h", ".cc", ".py", ".sh"), *own_kernels()]
    assert oversized({str(p): len(p.read_text().splitlines()) for p in sources}) == []


def test_comments_are_no_wider_than_code() -> None:
    assert wide_comments(["  // " + 95 * "x", 'x = "' + 100 * "y" + '"; // z']) == []
    assert wide_comments(["  // " + 96 * "x"]) != []
    sources = [path for path in files(".h", ".cc") if "prelude" not in path.name]  # kernels' text
    sources += own_kernels()
    wide = {str(path): wide_comments(path.read_text().splitlines()) for path in sources}
    assert {name: lines for name, lines in wide.items() if lines} == {}


def test_the_top_level_has_only_known_entries() -> None:
    assert strangers(names()) == set()


def test_every_source_folder_has_tests() -> None:
    assert untested(names()) == set()


def test_the_page_on_extending_names_what_is_there() -> None:
    assert not_there("`Gone` in a.cc, b.{h,cc}", {"x/a.cc": "", "b.h": ""}) == ["Gone", "b.cc"]
    table = (ROOT / "docs" / "extending.md").read_text()
    prose = ("README.md", "CHANGELOG.md", "docs/")  # which must not vouch for each other
    sources = {
        name: "" if name.startswith(prose) else (ROOT / name).read_text(errors="replace")
        for name in names()
    }
    assert not_there(table, sources) == []


def test_nothing_is_marked_unfinished() -> None:
    sources = [p for p in files(".h", ".cc", ".py", ".sh") if p.name != "test_tree.py"]
    assert [str(p) for p in sources if UNFINISHED.search(p.read_text())] == []


def test_an_installed_package_has_every_file(tmp_path: Path) -> None:
    ours = [name for name in names() if name.startswith("python/")]
    for name in [*ours, "setup.py", "pyproject.toml", "README.md"]:  # without what a build left
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    build = [sys.executable, "-W", "ignore", "setup.py", "-q", "build_py", "-d", "installed"]
    subprocess.run(build, cwd=tmp_path, check=True)
    missing = [
        name
        for name in ours
        if not (tmp_path / "installed" / name.removeprefix("python/")).exists()
    ]
    assert ours and missing == []


def test_the_rules_see_faults() -> None:
    assert oversized({"a.cc": 601} | {f"{i}.cc": 10 for i in range(20)}) == ["a.cc"]
    assert oversized({"a.cc": 401, "b.cc": 401, "c.cc": 10}) == ["a.cc", "b.cc"]
    assert oversized({"a.cc": 401} | {f"{i}.cc": 10 for i in range(9)}) == []
    assert strangers(["utils/x.py", "csrc/base/x.cc", ".ci/run"]) == {"utils"}
    assert untested(["csrc/llm/x.cc", "csrc/base/y.cc", "tests/cpp/base/y_test.cc"]) == {"llm"}
    assert untested(["cache/record.cc"]) == {"cache"}
    assert UNFINISHED.search("// TODO(name): later") and not UNFINISHED.search("TODOS")
