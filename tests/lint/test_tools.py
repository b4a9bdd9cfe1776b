"""clang-format, clang-tidy, ruff, mypy and shellcheck find nothing.

Their versions are pinned in tests/requirements.txt.
"""

from __future__ import annotations

import concurrent.futures
import hashlib
import os
import subprocess
import sys
from pathlib import Path

from tree import ROOT, files

TOOLS = Path(sys.executable).parent
BUILD = Path(os.environ.get("CUDAFORGE_BUILD_DIR", ROOT / "build" / "cmake"))


def run(*command: str | Path) -> None:
    """Fails with the tool's own words."""
    done = subprocess.run(
        [str(part) for part in command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{done.stdout[-8000:]}{done.stderr[-2000:]}"


def test_clang_format() -> None:
    run(TOOLS / "clang-format", "--dry-run", "-Werror", *files(".h", ".cc"))


def test_ruff() -> None:
    run(TOOLS / "ruff", "check", ".")


def test_ruff_format() -> None:
    run(TOOLS / "ruff", "format", "--check", ".")


def test_mypy() -> None:
    run(TOOLS / "mypy")


def test_shellcheck() -> None:
    run(TOOLS / "shellcheck", "-x", "-e", "SC1091", *files(".sh", ".ci/run"))


def torch_free_sources() -> list[Path]:
    """Sources that parse in seconds; one libtorch file takes most of a minute."""
    rooms = ("dispatch", "binding")
    sources = [p for p in files(".cc") if p.relative_to(ROOT).parts[0] in ("csrc", "cache")]
    return [p for p in sources if "aten" not in p.name and p.parent.name not in rooms]


def test_clang_tidy() -> None:
    """Checks each file once per content: a stamp under the build folder remembers a clean one.

    Precompiled headers, some of the warning options and what its own headers may call are g++'s."""
    headers = hashlib.sha256()
    for path in [
        *files(".h"),
        ROOT / ".clang-tidy",
        ROOT / "tests" / "requirements.txt",
        Path(__file__),
    ]:
        headers.update(path.read_bytes())
    stamps = BUILD / "tidy"
    stamps.mkdir(parents=True, exist_ok=True)
    builtin = subprocess.run(
        ["g++", "-print-file-name=include"], capture_output=True, text=True, check=True
    ).stdout.strip()

    def check(path: Path) -> str:
        digest = hashlib.sha256(headers.digest() + path.read_bytes()).hexdigest()
        stamp = stamps / digest
        if stamp.exists():
            return ""
        off = ("ignored-gch", "unknown-warning-option", "deprecated-declarations")  # in its headers
        extra = (*(f"-Wno-{warning}" for warning in off), f"-isystem{builtin}")
        done = subprocess.run(
            [
                TOOLS / "clang-tidy",
                "-p",
                BUILD,
                "--quiet",
                *(f"--extra-arg={e}" for e in extra),
                path,
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode == 0:
            stamp.touch()
            return ""
        return done.stdout or f"{path}: clang-tidy failed ({done.returncode}): {done.stderr}"

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        findings = [text for text in pool.map(check, torch_free_sources()) if text]
    assert not findings, "\n".join(findings)[-8000:]
