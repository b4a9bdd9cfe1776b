"""clang-format, clang-tidy, ruff, mypy and shellcheck find nothing.

Their versions are pinned in tests/requirements.txt.
"""

from __future__ import annotations

import concurrent.futures
import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

from tree import ROOT, files, own_kernels

TOOLS = Path(sys.executable).parent
BUILD = Path(os.environ.get("CUDAFORGE_BUILD_DIR", ROOT / "build" / "cmake"))


def run(*command: str | Path) -> None:
    """Fails with the tool's own words."""
    done = subprocess.run(
        [str(part) for part in command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{done.stdout[-8000:]}{done.stderr[-2000:]}"


def test_clang_format() -> None:
    run(TOOLS / "clang-format", "--dry-run", "-Werror", *files(".h", ".cc"), *own_kernels())


def test_ruff() -> None:
    run(TOOLS / "ruff", "check", ".")


def test_ruff_format() -> None:
    run(TOOLS / "ruff", "format", "--check", ".")


def test_mypy() -> None:
    run(TOOLS / "mypy")


def test_shellcheck() -> None:
    run(TOOLS / "shellcheck", "-x", "-e", "SC1091", *files(".sh", ".ci/run"))


def torch_free_sources() -> set[Path]:
    """Sources that parse in seconds; one libtorch file takes most of a minute."""
    rooms = ("dispatch", "runtime", "binding")
    sources = [p for p in files(".cc") if p.relative_to(ROOT).parts[0] in ("csrc", "cache")]
    return {p for p in sources if "aten" not in p.name and p.parent.name not in rooms}


def units() -> dict[Path, list[Path]]:
    """What the build compiles of those: the file it names to the compiler, and the sources in it
    (several in a unity build)."""
    wanted = torch_free_sources()
    found = {}
    for entry in json.loads((BUILD / "compile_commands.json").read_text()):
        unit = Path(entry["file"])
        sources = [unit]
        if unit not in wanted:
            included = re.findall(r'^#include "(.+)"$', unit.read_text(), re.MULTILINE)
            sources = [Path(os.path.normpath(unit.parent / name)) for name in included]
        if sources and wanted.issuperset(sources):
            found[unit] = sources
    assert {source for sources in found.values() for source in sources} == wanted
    return found


def test_clang_tidy() -> None:
    """Checks each unit once per content: a stamp under the build folder remembers a clean one.

    The options are g++'s: clang ignores unknown warnings, g++'s precompiled headers, and what g++'s
    own headers call."""
    common = hashlib.sha256()
    rules = (ROOT / ".clang-tidy", ROOT / "tests" / "requirements.txt", Path(__file__))
    for path in (*files(".h"), *rules):
        common.update(path.read_bytes())
    stamps = BUILD / "tidy"
    stamps.mkdir(parents=True, exist_ok=True)
    builtin = subprocess.run(
        ["g++", "-print-file-name=include"], capture_output=True, text=True, check=True
    ).stdout.strip()
    off = ("ignored-gch", "unknown-warning-option", "deprecated-declarations")  # in its headers
    extra = [f"--extra-arg={e}" for e in (*(f"-Wno-{w}" for w in off), f"-isystem{builtin}")]

    def check(unit: Path, sources: list[Path]) -> str:
        content = b"".join(source.read_bytes() for source in sources)
        stamp = stamps / hashlib.sha256(common.digest() + content).hexdigest()
        if stamp.exists():
            return ""
        config = f"--config-file={ROOT / '.clang-tidy'}"
        command = [TOOLS / "clang-tidy", "-p", BUILD, "--quiet", config, *extra, unit]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            stamp.touch()
            return ""
        return done.stdout or f"{unit}: clang-tidy failed ({done.returncode}): {done.stderr}"

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        found = units()
        findings = [text for text in pool.map(check, found, found.values()) if text]
    assert not findings, "\n".join(findings)[-8000:]
