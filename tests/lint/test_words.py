"""Words of an English that only this project speaks: in comments, documents, messages, test names.

Readers may have English as a second language, so a comment uses the field's words ("first seen",
not "met"). The counts are a ratchet: ALLOWED may only fall, and reaches zero folder by folder.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator

import pytest
from tree import ROOT, files

# What to write instead stands behind each word.
WORDS = {
    r"told": "notified, passed, known",
    r"tell|tells|telling": "report, notify, distinguish",
    r"met": "first seen, known",
    r"wanted|wants": "requested, needed",
    r"asks? for|asked for": "requests, requires",
    r"left to": "remains, runs in PyTorch",
    r"again": "retry, a second time, or nothing",
    r"anew": "new, from scratch",
    r"of another": "from another",
    r"in common": "shared",
    r"looks? closer|closer look|looked at": "checks, re-tests",
    r"(?:comes?|came) again": "returns, is registered again",
    r"(?:comes?|came) to": "results in, amounts to",
    r"(?:gives?|gave) way": "is replaced, yields",
    r"stands? (?:before|beside|behind|in)|stood": "is before, is in",
    r"whoever|whom": "name the caller, the thread, the user",
    r"amid|amidst": "during, inside",
    r"of which|in which case": "name the noun again",
    r"such": "name it; 'such as' is fine",
    r"nobody|somebody": "no thread, another process",
    r"under way": "running, in progress",
    r"nor": "and not; one negation a sentence",
    r"lies?|lay": "is at, is in",
    r"at the least": "at least",
    r"thereof|therein|thereby": "of it, in it",
    r"goes by": "uses",
    r"beside": "next to, in addition to",
    r"by turns": "in rotation, alternately",
    r"has (?:it|them|her|him|[a-z]+) be": "makes, sets",
}

# Not counted, with the reason.
LEGITIMATE = {
    r"wanted[- ]list|cache wanted|--wanted": "the queue of regions, named by the CLI",
    r"tell right from wrong": "a reason in docs/words.md",
    r"such as|no such": "idioms that every reader knows",
    r"neither[^.;:]{1,60}? nor|comes? to it": "good English",
}

# Not counted in messages and in the names of tests either.
LEGITIMATE_IN_MESSAGES = {
    r"again": "good English in instructions: 'run it again'",
    r"wanted": "a state of a region: on the queue that the CLI calls the wanted list",
}

# Uses left in each folder. Lower a number when the test says so; never raise one.
ALLOWED = {
    "cache": 1,
    "messages: python": 6,
    "python": 1,
    "tests/python": 17,
}

_WORD = re.compile("|".join(rf"\b(?:{word})\b" for word in WORDS), re.IGNORECASE)
_FINE = re.compile("|".join(LEGITIMATE), re.IGNORECASE)
_FINE_IN_MESSAGES = re.compile("|".join(rf"\b{w}\b" for w in LEGITIMATE_IN_MESSAGES), re.IGNORECASE)
_CPP = re.compile(r'"(?:[^"\\\n]|\\.)*"|//([^\n]*)')
_PYTHON = re.compile(r'"""(.*?)"""|(?:(?<=\s)|^)# ?([^\n]*)', re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.DOTALL | re.MULTILINE)
# Comments, characters and raw literals (code of kernels) are skipped.
_CPP_STRING = re.compile(
    r"""//[^\n]*|'(?:[^'\\\n]|\\.)'|R"(\w*)\(.*?\)\1"|"((?:[^"\\\n]|\\.)*)\"""", re.DOTALL
)
_TEST = re.compile(r"\bdef (test_\w+)|\bTEST(?:_F|_P)?\(\s*\w+,\s*(\w+)\)")
_PROGRAMS = ("cache/", "csrc/", "python/cudaforge_backend/")
_OUT_OF_SCOPE = ("cache/packs/", "tests/data/", "tests/adversarial/", "csrc/forge/prompts/",
                 "csrc/forge/knowledge/", "tests/lint/test_words.py")  # fmt: skip


def prose(name: str, text: str) -> str:
    """The comments of a source, or a document without its code."""
    if not name.endswith(".md"):
        pattern = _PYTHON if name.endswith(".py") else _CPP
        text = "\n".join("".join(g or "" for g in m.groups()) for m in pattern.finditer(text))
    return _CODE.sub(" ", text)


def messages(name: str, text: str) -> str:
    """The string literals of a source. One without a blank is a name, not a message."""
    if name.endswith(".py"):
        nodes = list(ast.walk(ast.parse(text)))
        docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        constants = (n for n in nodes if isinstance(n, ast.Constant) and id(n) not in docstrings)
        found = [c.value for c in constants if isinstance(c.value, str)]
    else:
        joined = re.sub(r'"\s*\n\s*"', "", text)
        found = [m[2] for m in _CPP_STRING.finditer(joined) if m[2]]
    shown = _CODE.sub(" ", ";\n".join(text for text in found if " " in text))
    return _FINE_IN_MESSAGES.sub(" ", shown)


def names_of_tests(text: str) -> str:
    """The names of tests as words: "a thread may wait; Wait Ends"."""
    names = "; ".join(m[1] or m[2] for m in _TEST.finditer(text)).replace("_", " ")
    return _FINE_IN_MESSAGES.sub(" ", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", names))


def odd_words(text: str) -> list[str]:
    """The words of WORDS in a text, in lower case, line breaks as blanks."""
    flat = re.sub(r"\s+", " ", text)
    return [found[0].lower() for found in _WORD.finditer(_FINE.sub(" ", flat))]


def folder_of(name: str) -> str:
    """A row of ALLOWED: "csrc", "tests/cpp", or "documents"."""
    if name.endswith(".md"):
        return "documents"
    parts = name.split("/")
    return "/".join(parts[:2] if parts[0] == "tests" and len(parts) > 2 else parts[:1])


def counted() -> Iterator[tuple[str, str, list[str]]]:
    """(row of ALLOWED, file, its words) for every file in scope."""
    for path in files(".h", ".cc", ".cuh", ".py", ".md"):
        name = path.relative_to(ROOT).as_posix()
        if name.startswith(_OUT_OF_SCOPE):
            continue
        text = path.read_text(encoding="utf-8")
        yield folder_of(name), name, odd_words(prose(name, text))
        if name.startswith(_PROGRAMS) and not name.endswith(".md"):
            yield f"messages: {name.split('/')[0]}", name, odd_words(messages(name, text))
        elif name.startswith("tests/"):
            yield "test names", name, odd_words(names_of_tests(text))


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.h", "int told;  // Told of it,\n// of\n// which.", ["told", "of which"]),
        ("a.cc", 'f("// told");  // the wanted list', []),
        ("a.py", 'x = "told"  # told\n"""Such as met."""', ["told", "met"]),
        ("a.md", "`told` met\n```\ntold\n```\n", ["met"]),
    ],
)
def test_words_are_found_in_prose(name: str, text: str, words: list[str]) -> None:
    assert odd_words(prose(name, text)) == words


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        (
            "a.cc",
            'f("told"); g(\'"\', "run it again, none of "\n  "which");  // "a met"',
            ["of which"],
        ),
        ("a.cc", 'f(R"(code met)", "a \\"met\\" b")', ["met"]),
        ("a.py", '"""Was met."""\nf(f"{x} was " "met", "told", "see `a told`")  # told', ["met"]),
    ],
)
def test_words_are_found_in_messages(name: str, text: str, words: list[str]) -> None:
    assert odd_words(messages(name, text)) == words


def test_words_are_found_in_names_of_tests() -> None:
    text = "def test_a_row_is_met(x):\ndef told():\nTEST_F(Told,\n  RowOfWhichAgain) {"
    assert odd_words(names_of_tests(text)) == ["met", "of which"]


def test_the_words_become_fewer() -> None:
    totals: Counter[str] = Counter()
    worst: dict[str, list[str]] = {}
    for folder, name, words in counted():
        totals[folder] += len(words)
        if words:
            worst.setdefault(folder, []).append(f"{name}: {', '.join(sorted(set(words)))}")
    for folder in sorted({*totals, *ALLOWED}):
        count, allowed = totals[folder], ALLOWED.get(folder, 0)
        lines = "\n  ".join(worst.get(folder, ["none"])[:40])
        assert count <= allowed, (
            f"{folder}: {count} uses, {allowed} allowed. WORDS says what to write:\n  {lines}"
        )
        assert count == allowed, f"fewer words, well done: in ALLOWED write {folder!r}: {count}"
