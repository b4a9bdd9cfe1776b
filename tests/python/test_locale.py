"""A program may set a locale with a decimal comma and with grouped digits, as Qt does."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import RunPython

NAME = "de_DE.UTF-8"
# Sets the locale of C and of C++: Python's setlocale sets that of C alone.
SETTER = f"""
#include <locale>
extern "C" void SetLocale() {{ std::locale::global(std::locale("{NAME}")); }}
"""
# 0.3 would be written 0,3; the length and its multiples 12.345.
SCRIPT = """
import sys, torch, cudaforge_backend
from cudaforge_backend._native import _C
from forged import win_every_race

win_every_race()
cache, device = sys.argv[1:]
f = lambda x: torch.softmax(x * 0.3, -1)
x = torch.randn(8, 12345, device=device)
options = {"on_miss": "blocking", "cache_dir": cache}
made = torch.compile(f, backend="cudaforge", options=options)
for _ in range(2):
    torch.testing.assert_close(made(x), f(x))
stats = cudaforge_backend.stats()
print(stats.forged, stats.hits, stats.fallbacks, _C.config()["region_budget_s"])
"""
GERMAN = f"""
import ctypes, locale
locale.setlocale(locale.LC_ALL, "{NAME}")
ctypes.CDLL("SETTER").SetLocale()
assert locale.str(0.5) == "0,5"
"""


@pytest.fixture
def german(tmp_path: Path) -> dict[str, str]:
    """A folder of locales in the environment, with a German one made for this test: machines have
    few, and the process's own are fixed."""
    if shutil.which("localedef") is None:
        pytest.skip("needs localedef")
    folder = tmp_path / "locales"
    folder.mkdir()
    made = subprocess.run(
        ["localedef", "-i", "de_DE", "-f", "UTF-8", folder / NAME], capture_output=True, text=True
    )
    if made.returncode != 0:
        pytest.skip(f"needs the sources of locales (Debian's package locales): {made.stderr}")
    return {"LOCPATH": str(folder)}


def test_kernels_are_made_and_served(
    run_python: RunPython, german: dict[str, str], tmp_path: Path, device: str
) -> None:
    source, library = tmp_path / "setter.cc", tmp_path / "setter.so"
    source.write_text(SETTER)
    subprocess.run(["g++", "-shared", "-fPIC", source, "-o", library], check=True)
    preamble = GERMAN.replace("SETTER", str(library))
    arguments = f"import sys; sys.argv[1:] = [{str(tmp_path / 'cache')!r}, {device!r}]\n"
    environment = german | {"CUDAFORGE_REGION_BUDGET_S": "22.5"}
    under = run_python(preamble + arguments + SCRIPT, **environment)
    assert under.stdout.split() == ["1", "2", "{}", "22.5"]
    # A process without the locale finds what the other one stored, under the same key.
    plain = run_python(arguments + SCRIPT, CUDAFORGE_REGION_BUDGET_S="22.5")
    assert plain.stdout.split() == ["0", "2", "{}", "22.5"]
