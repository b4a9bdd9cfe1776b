"""README.md and docs/: short pages, short lines, links that lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

from tree import ROOT

README = ROOT / "README.md"
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))
WIDTH = 120


def wide(text: str) -> list[str]:
    """Lines that are too wide for a reader's window, rows of tables excepted."""
    return [line for line in text.splitlines() if len(line) > WIDTH and line[0] != "|"]


def anchors(text: str) -> set[str]:
    """What GitHub and mkdocs name the headings of a page."""
    found = set()
    for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE):
        plain = re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower())
        found.add(plain.strip().replace(" ", "-"))
    return found


def links(text: str) -> list[str]:
    """Where a page's links lead, but for those to other hosts. Code has none."""
    prose = re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL)
    return [to for to in re.findall(r"\]\(([^)\s]+)\)", prose) if "://" not in to]


def broken(page: Path) -> list[str]:
    """The links of a page that lead to no file or no heading."""
    faults = []
    for link in links(page.read_text()):
        name, _, anchor = link.partition("#")
        to = (page.parent / name).resolve() if name else page
        if not to.exists() or (anchor and anchor not in anchors(to.read_text())):
            faults.append(link)
    return faults


def test_the_readme_is_short() -> None:
    lines = README.read_text().splitlines()
    assert len(lines) <= 120 and wide(README.read_text()) == []


def test_pages_are_short() -> None:
    lengths = {page.name: len(page.read_text().splitlines()) for page in PAGES}
    assert {name: n for name, n in lengths.items() if n >= 200} == {}
    assert {page.name: w for page in PAGES if (w := wide(page.read_text()))} == {}


def test_links_lead_somewhere() -> None:
    assert {page.name: faults for page in [README, *PAGES] if (faults := broken(page))} == {}


def test_every_page_is_found_from_the_readme_and_the_first_page() -> None:
    names = {page.name for page in PAGES} - {"index.md"}
    assert names <= {Path(link).name for link in links(README.read_text())}
    assert names <= set(links((DOCS / "index.md").read_text()))


def test_the_rules_see_faults(tmp_path: Path) -> None:
    assert wide("x" * 121) and not wide("|" + "x" * 121)
    page = tmp_path / "a.md"
    page.write_text("# One `two`, three\n[a](#one-two-three) [b](b.md) [c](#no) `[d](d.md)`\n")
    assert broken(page) == ["b.md", "#no"]
