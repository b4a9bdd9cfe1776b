"""The program: a child process with limits compiles, and its parent says what came of it."""

from __future__ import annotations

import ctypes
import json
import os
import re
import resource
import signal
import sys
import tempfile
import types
from pathlib import Path
from typing import Any

from .check import FILE, Refused
from .compilation import REQUEST_BYTES, Request, compile_kernel, parse_request

FILE_BYTES = 512 * 1024 * 1024  # the longest file that a step may write
CPU_SECONDS = 60
WALL_SECONDS = 100  # a busy machine; less than timeout_ms in csrc/forge/agent/triton.h
ADDRESS_BYTES = 16 * 1024**3
ERROR_LETTERS = 2000


def _diagnostics(folder: Path) -> str:
    """What the compiler's passes wrote about the kernel."""
    try:
        text = (folder / "stderr").read_bytes()[:1_000_000].decode("utf-8", "replace")
    except OSError:
        return ""
    found: list[str] = []
    for line in text.splitlines():
        if re.search(r"\berror: |LLVM ERROR|Assertion .* failed", line):
            line = re.sub(rf"^.*?{re.escape(FILE)}\"?:(\d+):\d+: error: ", r"line \1: ", line)
            if line.strip()[:300] not in found:
                found.append(line.strip()[:300])
    return "; ".join(found[:5])


def _limit(kind: int, soft: int, hard: int) -> None:
    _, most = resource.getrlimit(kind)
    if most != resource.RLIM_INFINITY:
        soft, hard = min(soft, most), min(hard, most)
    resource.setrlimit(kind, (soft, hard))


def _confine(folder: Path) -> None:
    """Limits, an environment without settings of Triton's, and no file but in the folder."""
    os.setsid()
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
    _limit(resource.RLIMIT_CORE, 0, 0)
    _limit(resource.RLIMIT_CPU, CPU_SECONDS, CPU_SECONDS + 1)
    _limit(resource.RLIMIT_AS, ADDRESS_BYTES, ADDRESS_BYTES)
    _limit(resource.RLIMIT_FSIZE, FILE_BYTES, FILE_BYTES)
    kept = ["LANG", "LC_ALL", "LD_LIBRARY_PATH", "PATH"]
    kept += ["TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH"]
    environment = {name: os.environ[name] for name in kept if name in os.environ}
    os.environ.clear()
    os.environ.update(environment)
    os.environ.update(dict.fromkeys(("HOME", "TMPDIR", "TRITON_HOME"), str(folder)))
    os.environ["TRITON_CACHE_DIR"] = str(folder / "cache")
    os.environ["TRITON_DISABLE_LINE_INFO"] = "1"  # the PTX depends on nothing but the request
    tempfile.tempdir = str(folder)
    os.chdir(folder)
    nothing = os.open(os.devnull, os.O_RDWR)
    said = os.open(folder / "stderr", os.O_WRONLY | os.O_CREAT, 0o600)
    for descriptor, target in ((nothing, 0), (nothing, 1), (said, 2)):
        os.dup2(descriptor, target)
    sys.setrecursionlimit(4000)


def _child(request: Request, folder: Path) -> None:
    """Writes the answer into the folder."""
    try:
        _confine(folder)
        answer = compile_kernel(request)
    except Refused as error:
        answer = {"ok": False, "error": str(error)}
    except BaseException as error:
        answer = {"ok": False, "error": f"{type(error).__name__}: {error}"}
    (folder / "unfinished").write_text(json.dumps(answer))
    (folder / "unfinished").rename(folder / "answer")


def _ended(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    if code in (-signal.SIGXCPU, -signal.SIGKILL):
        return f"the compilation took more than {CPU_SECONDS} s or too much memory"
    return f"the Triton compiler crashed ({signal.Signals(-code).name if code < 0 else code})"


def answer(request: Request) -> dict[str, Any]:
    """What the child answers, or why it did not."""
    with tempfile.TemporaryDirectory(prefix="cudaforge-triton-") as name:
        folder = Path(name)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                for number in (signal.SIGALRM, signal.SIGTERM, signal.SIGINT):
                    signal.signal(number, signal.SIG_DFL)
                _child(request, folder)
                code = 0
            finally:
                os._exit(code)
        signal.alarm(WALL_SECONDS)
        try:
            _, status = os.waitpid(child, 0)
        except TimeoutError:
            return {"ok": False, "error": f"the compilation took more than {WALL_SECONDS} s"}
        finally:
            signal.alarm(0)
            _kill(child)
        try:
            found: dict[str, Any] = json.loads((folder / "answer").read_bytes())
        except (OSError, ValueError):
            found = {"ok": False, "error": _ended(status)}
        if not found["ok"] and (more := _diagnostics(folder)):
            found["error"] = f"{found['error']}; {more}"
        return found


def _kill(child: int) -> None:
    """The child and what it started."""
    for kill, number in ((os.killpg, child), (os.kill, child)):
        try:
            kill(number, signal.SIGKILL)
        except OSError:
            continue


def _on_signal(number: int, frame: types.FrameType | None) -> None:
    raise TimeoutError if number == signal.SIGALRM else SystemExit(1)


def main() -> None:
    for number in (signal.SIGALRM, signal.SIGTERM):
        signal.signal(number, _on_signal)
    try:
        found = answer(parse_request(sys.stdin.buffer.read(REQUEST_BYTES + 1)))
    except Refused as error:
        found = {"ok": False, "error": str(error)}
    except Exception as error:
        found = {"ok": False, "error": f"{type(error).__name__}: {error}"}
    if not found["ok"] and len(found["error"]) > ERROR_LETTERS:
        found["error"] = found["error"][: ERROR_LETTERS - 3] + "..."
    sys.stdout.write(json.dumps(found) + "\n")
