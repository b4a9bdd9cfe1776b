"""The shape of the tree: file sizes, top level, tests that mirror sources, unfinished work."""

from __future__ import annotations

import re

from tree import ROOT, files

SOURCE_LIMIT = 600
ROOMY = 400
TOP_LEVEL = {
    "CMakeLists.txt", "setup.py", "pyproject.toml", "csrc", "python", "cache", "tests", "examples",
    "README.md", "LICENSE", "CONTRIBUTING.md", "CHANGELOG.md",
}  # fmt: skip
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")


def lengths() -> dict[str, int]:
    """Lines of every source file."""
    sources = files(".h", ".cc", ".py", ".sh")
    return {str(p.relative_to(ROOT)): len(p.read_text().splitlines()) for p in sources}


def test_no_file_is_longer_than_the_limit() -> None:
    assert {name: n for name, n in lengths().items() if n > SOURCE_LIMIT} == {}


def test_nine_files_in_ten_are_short() -> None:
    counted = lengths()
    long = [name for name, n in counted.items() if n > ROOMY]
    assert len(long) <= len(counted) // 10, sorted(long)


def test_top_level_is_what_the_design_says() -> None:
    visible = {p.relative_to(ROOT).parts[0] for p in files("")}
    assert {name for name in visible if not name.startswith(".")} <= TOP_LEVEL


def test_every_source_folder_has_tests() -> None:
    folders = {p.parent.name for p in files(".cc") if p.relative_to(ROOT).parts[0] == "csrc"}
    folders -= {
        "binding",
        "cuda",
        "cpu",
    }  # binding is tested from Python; the other two under target
    tested = {p.parent.name for p in files("_test.cc")}
    assert folders <= tested, folders - tested


def test_nothing_is_marked_unfinished() -> None:
    sources = [p for p in files(".h", ".cc", ".py", ".sh") if p.name != "test_tree.py"]
    marked = [str(p.relative_to(ROOT)) for p in sources if UNFINISHED.search(p.read_text())]
    assert marked == []
