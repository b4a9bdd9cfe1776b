"""Forging on a machine that lacks something, and workers that fail: a message, PyTorch's result."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

import pytest
from conftest import RunPython

_SCRIPT = """
import json, os, threading, time, warnings, torch, cudaforge_backend
from cudaforge_backend._native import _C
from forged import win_every_race
win_every_race()
exec(os.environ.get("FIRST", ""))
x = torch.randn(8, 27)
options = {"on_miss": "blocking", "cache_dir": os.environ["FOLDER"], "region_budget_s": 120}
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    for scale in (3, 4):
        f = lambda x: torch.softmax(x * scale, -1)
        made = torch.compile(f, backend="cudaforge", options=options)
        torch.testing.assert_close(made(x), f(x))
        torch._dynamo.reset()
s = cudaforge_backend.stats()
print(json.dumps({
    "warnings": [str(w.message) for w in seen if w.category is cudaforge_backend.CudaForgeWarning],
    "hits": s["hits"], "forged": s["forged"], "negative": s["negative"],
    "fallbacks": s["fallbacks"], "records": len(_C.store().records()),
}))
"""


def told(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize(
    ("environment", "named"),
    [
        ({"CUDAFORGE_CXX": "/nonexistent/g++"}, "/nonexistent/g++"),
        ({"CUDAFORGE_WORKER": "/nonexistent/worker"}, "/nonexistent/worker"),
        ({"CUDAFORGE_WORKER": "/bin/false"}, "/bin/false"),
        ({"CUDAFORGE_WORKER": "/bin/cat"}, "/bin/cat"),
    ],
    ids=["no_compiler", "no_worker", "worker_ends", "worker_of_another_kind"],
)
def test_nothing_can_be_made(
    run_python: RunPython, tmp_path: Any, environment: dict[str, str], named: str
) -> None:
    result = told(run_python(_SCRIPT, FOLDER=str(tmp_path / "cache"), **environment))
    assert len(result["warnings"]) == 1, result["warnings"]
    assert named in result["warnings"][0]
    assert result["fallbacks"] == {"forge_failed": 2}
    # The machine's fault is nobody's verdict: the next process, with a compiler, starts anew.
    assert (result["negative"], result["records"]) == (0, 0)
    after = told(run_python(_SCRIPT, FOLDER=str(tmp_path / "cache")))
    assert after["forged"] == after["hits"] > 0


# Kills every worker of this process for as long as the file exists.
_KILLER = """
import pathlib, signal
def kill():
    me = os.getpid()
    while os.path.exists(os.environ["KILL"]):
        for task in os.listdir("/proc/self/task"):
            try:
                children = pathlib.Path(f"/proc/self/task/{task}/children").read_text().split()
                for child in children:
                    if "cudaforge-worker" in pathlib.Path(f"/proc/{child}/cmdline").read_text():
                        os.kill(int(child), signal.SIGKILL)
            except OSError:
                pass
        time.sleep(0.05)
threading.Thread(target=kill, daemon=True).start()
"""


def test_workers_that_are_killed(run_python: RunPython, tmp_path: Any) -> None:
    (tmp_path / "kill").touch()
    result = told(
        run_python(
            _SCRIPT,
            FOLDER=str(tmp_path / "cache"),
            FIRST=_KILLER,
            KILL=str(tmp_path / "kill"),
        )
    )
    # Regions and, where one ended without a winner, its parts.
    assert result["forged"] + result["negative"] + result["fallbacks"].get("forge_failed", 0) >= 2
    assert result["hits"] == result["forged"]
    assert len(result["warnings"]) <= 2


def test_an_exception_in_our_progress_callback(run_python: RunPython, tmp_path: Any) -> None:
    first = "def fail(event):\n    raise ValueError('from the callback')\n"
    first += "cudaforge_backend.set_progress(fail)"
    result = told(run_python(_SCRIPT, FOLDER=str(tmp_path / "cache"), FIRST=first))
    assert len(result["warnings"]) == 1, result["warnings"]
    assert "from the callback" in result["warnings"][0]


def test_the_worker_alone_says_what_it_is() -> None:
    from cudaforge_backend._native import worker_path

    done = subprocess.run([worker_path()], capture_output=True, text=True, env=dict(os.environ))
    assert done.returncode == 2
    assert "is started by CudaForge" in done.stderr


def test_capabilities_say_what_is_missing(run_python: RunPython, tmp_path: Any) -> None:
    done = run_python(
        "import json\nfrom cudaforge_backend._native import _C\n"
        "print(json.dumps(_C.capabilities()))",
        CUDAFORGE_CXX="/nonexistent/g++",
        CUDAFORGE_CUDA_PATH=str(tmp_path),
    )
    lacking = [c for c in json.loads(done.stdout.splitlines()[-1]) if not c["ok"]]
    assert any("/nonexistent/g++" in json.dumps(c) for c in lacking)
    assert all(c["advice"] for c in lacking)
