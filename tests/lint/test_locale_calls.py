"""Numbers and characters are the same in every locale: csrc and cache call nothing that obeys it.

A program may set a locale with a decimal comma (Qt programs set the user's) or with grouped digits
(std::locale::global). Kernels, keys and records must not change with it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

from test_tools import BUILD
from tree import ROOT, files, own_kernels

# Where a call that would be refused elsewhere is right: the locale is the classic one there.
EXEMPT = {
    "csrc/base/check.h": {"sstream", "ostringstream", "ostream"},
    "csrc/base/json.cc": {"Json::parse", "sax_parse"},
}
INSTEAD = {
    r"v?[dfs]?n?w?printf|v?asprintf": "Significant, Fixed, HexFloat or Cat of base/text.h",
    r"strto(?:[dfl]|ld|ll|ul|ull|[iu]max)|ato(?:[fil]|ll)|sto(?:[dfil]|ld|ll|ul|ull)"
    r"|v?[fs]?scanf": "ParseDouble or ParseInteger of base/text.h",
    r"[io]?(?:string|f)stream|sstream|i?ostream|istream|iomanip|cout|cerr|clog": (
        "Cat or Split of base/text.h, ReadFile of base/file.h"
    ),
    r"is(?:alnum|alpha|blank|cntrl|digit|graph|lower|print|punct|space|upper|xdigit)"
    r"|to(?:lower|upper)": "IsLetter or IsDigit of base/text.h",
    r"strf?[pf]time|(?:put|get)_(?:time|money)|strcoll|strxfrm|regex": "code without the locale",
    r"setlocale|locale::global": "nothing: the locale is the program's",
    r"[Jj]son::parse|sax_parse": "ParseJson or LenientCopy of base/json.h",
}
# What is no code: literals, in raw form too, and comments.
NO_CODE = re.compile(
    r'R"(?P<mark>\w*)\(.*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*"|(?<!\w)\'(?:\\.|[^\'\\\n])+\''
    r"|//[^\n]*|/\*.*?\*/",
    re.DOTALL,
)
# Of std::to_string, the overloads for floating-point numbers alone: g++ never inlines it.
FLOATS = "__gnu_cxx::__to_xstring<"


def obeying(name: str, text: str) -> list[str]:
    """The uses in a file of what obeys the locale: "NAME:LINE: WORD; use ..."."""
    code = NO_CODE.sub(lambda found: "\n" * found[0].count("\n"), text)
    faults = []
    for n, line in enumerate(code.splitlines(), 1):
        for words, instead in INSTEAD.items():
            for found in re.finditer(rf"(?<![\w.>])(?:{words})\b(?!::)", line):
                if found[0] not in EXEMPT.get(name, ()):
                    faults.append(f"{name}:{n}: {found[0]} obeys the locale; use {instead}")
    return faults


def formatting_floats(objects: Iterable[Path]) -> list[str]:
    """Those of the object files and libraries in which std::to_string writes a floating-point
    number."""
    return [
        str(path)
        for path in objects
        if FLOATS
        in subprocess.run(["nm", "-C", path], capture_output=True, text=True, check=True).stdout
    ]


def test_sources_call_nothing_that_obeys_the_locale() -> None:
    faults = []
    for path in [*files(".h", ".cc"), *own_kernels()]:
        name = str(path.relative_to(ROOT))
        if name.startswith(("csrc/", "cache/")):
            faults += obeying(name, path.read_text())
    assert faults == []


def test_no_floating_point_number_goes_through_to_string() -> None:
    """Use Significant or Fixed of base/text.h."""
    objects = [*BUILD.glob("lib*.a"), *BUILD.glob("CMakeFiles/_C.dir/**/*.o")]
    assert len(objects) > 10
    assert formatting_floats(objects) == []


def test_the_rules_see_faults(tmp_path: Path) -> None:
    for line in (
        'std::snprintf(text, 9, "%g", x);', "printf(x);", "double d = strtod(s, &end);",
        "::atof(s)", "std::stoi(s)", "sscanf(s)", "std::ostringstream out;", "std::ifstream f(p);",
        "#include <sstream>", "#include <iostream>", "std::isdigit(c)", "isspace(c)",
        "std::tolower(c)", "std::regex r;", "strftime(b)", 'setlocale(LC_ALL, "");',
        "Json::parse(text)", "std::all_of(a, b, isalnum);",
    ):  # fmt: skip
        assert len(obeying("csrc/x.cc", line)) == 1, line
    for line in (
        "std::to_string(n)", "// printf", '"printf(x)"', 'R"cpu(\nprintf(x);\n)cpu"', "IsDigit(c)",
        "/* isspace */", "cuStreamCreate(&stream)", "store(x)", "stream_->run(1'000);",
    ):  # fmt: skip
        assert obeying("csrc/x.cc", line) == [], line
    assert obeying("csrc/x.cc", "\n\natof(s)")[0].startswith("csrc/x.cc:3: atof obeys the locale")
    assert obeying("csrc/base/json.cc", "Json::parse(text)") == []
    source = tmp_path / "x.cc"
    for kind, found in (("double", True), ("float", True), ("int", False), ("size_t", False)):
        source.write_text(
            f"#include <string>\nstd::string F({kind} x) {{ return std::to_string(x); }}\n"
        )
        subprocess.run(["g++", "-O2", "-c", source, "-o", tmp_path / "x.o"], check=True)
        assert bool(formatting_floats([tmp_path / "x.o"])) == found, kind
