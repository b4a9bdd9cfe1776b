"""The file of hints: what is taken of it, and when."""

from __future__ import annotations

from pathlib import Path

from command import Output
from cudaforge_backend.cli.hints import Hints


def test_whole_lines_are_taken_once(tmp_path: Path) -> None:
    file = tmp_path / "hints.txt"
    file.write_text("first\n\nsec")
    hints = Hints(str(file), typed=False)
    assert hints.take() == ["first"]
    assert hints.take() == []
    with file.open("a") as more:
        more.write("ond\nthird\n")
    assert hints.take() == ["second", "third"]


def test_a_rewritten_file_is_read_from_its_start(tmp_path: Path) -> None:
    file = tmp_path / "hints.txt"
    file.write_text("first\nsecond\n")
    hints = Hints(str(file), typed=False)
    assert hints.take() == ["first", "second"]
    for text in ("third\n", "first\n", "a longer line than all before it\nfirst\n"):
        file.write_text(text)
        assert hints.take() == text.splitlines()


def test_a_file_that_comes_later_is_said_to_be_missing(capsys: Output, tmp_path: Path) -> None:
    file = tmp_path / "hints.txt"
    hints = Hints(str(file), typed=False)
    assert capsys.readouterr().err == (
        f"cudaforge: there is no {file} yet: it is looked for again before each prompt\n"
    )
    assert hints.take() == []
    file.write_text("first\n")
    assert hints.take() == ["first"]
    Hints(str(file), typed=False)
    assert capsys.readouterr().err == ""
