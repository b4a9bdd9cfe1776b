"""Runs a stage of the tests, unless it passed before and all that it depends on is the same.

    stage.py [--all] NAME STORE REPORTS FILE... -- COMMAND...

REPORTS is a pattern of the XML reports that COMMAND writes. What a stage depends on: the contents
of the FILEs (of a folder: of all in it that git does not ignore), the shared libraries that they
load, the command, and the machine. Where git cannot list a folder, or a FILE changes meanwhile,
nothing is kept. A pass is kept in the folder STORE with its reports, which come back when the stage
is not run; a failure forgets it. `--all` runs the stage in any case. The exit status is COMMAND's,
0 where it was not run.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

# Environment variables that tests, torch or compilers read begin with one of these.
VARIABLES = (
    "CUDA", "TORCH", "PYTORCH", "OMP_", "MKL_", "GOMP_", "PYTHON", "PYTEST_ADDOPTS", "GTEST_",
    "LD_", "CXX", "PATH", "TMPDIR", "XDG_CACHE_HOME",
)  # fmt: skip


def output(*command: str | Path) -> str:
    """What a command prints; nothing where there is no such command."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout
    except OSError:
        return ""


def machine() -> list[str]:
    """What results depend on besides files: interpreter, packages, processor, GPUs, compilers,
    variables."""
    import torch

    cpu = Path("/proc/cpuinfo").read_text().splitlines()
    driver = Path("/proc/driver/nvidia/version")
    compilers = {os.environ.get(name) for name in ("CUDAFORGE_CXX", "CXX")} | {"g++", "clang++"}
    gpus = range(torch.cuda.device_count())
    return [
        *(sys.version, sys.prefix, platform.platform(), f"user {os.geteuid()}"),
        *sorted(f"{d.name} {d.version}" for d in importlib.metadata.distributions()),
        *sorted({line for line in cpu if line.startswith(("model name", "flags"))}),
        f"{len(os.sched_getaffinity(0))} processors",
        *(str(torch.cuda.get_device_properties(index)) for index in gpus),
        driver.read_text() if driver.exists() else "no driver",
        *(output(name, "--version") for name in sorted(filter(None, compilers))),
        f"ldb: {shutil.which('ldb')}",
        *sorted(f"{k}={v}" for k, v in os.environ.items() if k.startswith(VARIABLES)),
    ]


def contents(path: Path) -> list[Path]:
    """`path`, or every file in the folder that git does not ignore. Raises if git fails."""
    if not path.is_dir():
        return [path]
    names = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=path, capture_output=True, text=True, check=True,
    ).stdout.split("\0")  # fmt: skip
    return [file for name in sorted(set(names)) if (file := path / name).is_file()]


def fingerprint(inputs: Sequence[Path], command: Sequence[str], facts: Sequence[str]) -> str | None:
    """A hash of all that a stage depends on; None where that is not known."""
    whole = hashlib.sha256(repr((command, facts)).encode())
    programs = []
    try:
        for file in (file for path in inputs for file in contents(path)):
            data = file.read_bytes()
            whole.update(repr((str(file), hashlib.sha256(data).hexdigest())).encode())
            if data[:4] == b"\x7fELF":
                programs.append(file)
    except (OSError, subprocess.CalledProcessError):
        return None
    # Large and many: a library is what it was where its size and time are.
    words = set(output("ldd", *programs).split()) if programs else set()
    for name in sorted(word for word in words if word.startswith("/") and Path(word).is_file()):
        state = Path(name).stat()
        whole.update(repr((name, state.st_size, state.st_mtime_ns)).encode())
    return whole.hexdigest()


def run(
    name: str,
    store: Path,
    reports: Path,
    inputs: Sequence[Path],
    command: Sequence[str],
    run_all: bool = False,
) -> int:
    """The stage's exit status."""
    facts = machine()
    now = fingerprint(inputs, command, facts)
    passed = store / "fingerprint"
    reports.parent.mkdir(parents=True, exist_ok=True)
    for report in reports.parent.glob(reports.name):
        report.unlink()
    if not run_all and now and passed.exists() and passed.read_text() == now:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(passed.stat().st_mtime))
        print(f"{name}: unchanged since it passed on {when}; tests/run.sh --all runs it again")
        for report in store.glob("*.xml"):
            shutil.copy2(report, reports.parent)  # with its time, by which summary.py knows it
        return 0
    shutil.rmtree(store, ignore_errors=True)
    status = subprocess.run(command, check=False).returncode
    if status != 0:
        return status
    if now is None or now != fingerprint(inputs, command, facts):
        print(f"{name}: passed; what it depends on changed meanwhile or is not known: not kept")
        return 0
    store.mkdir(parents=True)
    for report in reports.parent.glob(reports.name):
        shutil.copy2(report, store)
    passed.write_text(now)  # last: what was cut off before is not there
    return 0


def main() -> int:
    """See the top of the file."""
    arguments = sys.argv[1:]
    run_all = arguments[0] == "--all"
    name, store, reports, *rest = arguments[run_all:]
    split = rest.index("--")
    inputs = [Path(word) for word in rest[:split]]
    return run(name, Path(store), Path(reports), inputs, rest[split + 1 :], run_all)


if __name__ == "__main__":
    sys.exit(main())
