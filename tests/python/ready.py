"""Processes that begin with torch and Inductor imported: a tenth of a second in place of four.

A server that has imported only preloaded.py forks each of them. A process has its own environment,
standard output and standard error, and has not yet imported cudaforge_backend. Not for tests of
environment variables that torch reads at import, or of an interpreter's exit."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
import threading
import traceback
import types
from collections.abc import Mapping
from multiprocessing import forkserver
from pathlib import Path

import pytest

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["preloaded"])
_STARTING = threading.Lock()


def _serve(code: str, environment: Mapping[str, str], path: list[str], out: str, err: str) -> None:
    for descriptor, name in ((1, out), (2, err)):
        file = os.open(name, os.O_WRONLY)
        os.dup2(file, descriptor)
        os.close(file)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:] = path
    sys.argv = ["-c"]
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        exec(compile(code, "<string>", "exec"), main.__dict__)
    except Exception:
        traceback.print_exc()
        sys.exit(1)


def run(
    code: str, environment: Mapping[str, str], timeout: float
) -> subprocess.CompletedProcess[str]:
    """Runs a script to its end. Raises subprocess.TimeoutExpired."""
    with _STARTING, pytest.MonkeyPatch.context() as patch:  # where the server finds preloaded.py
        patch.setenv("PYTHONPATH", str(Path(__file__).parent))
        forkserver.ensure_running()
    with tempfile.NamedTemporaryFile("r") as out, tempfile.NamedTemporaryFile("r") as err:
        given = (code, dict(environment), list(sys.path), out.name, err.name)
        process = _FORKS.Process(target=_serve, args=given)
        process.start()
        process.join(timeout)
        if process.exitcode is None:
            process.kill()
            raise subprocess.TimeoutExpired(["-c"], timeout)
        return subprocess.CompletedProcess(["-c"], process.exitcode, out.read(), err.read())
