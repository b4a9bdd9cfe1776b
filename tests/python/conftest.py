"""One process, one Inductor cache and one kernel cache a session; fresh counters for each test."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

_FOLDER = tempfile.TemporaryDirectory(prefix="cudaforge-tests-", ignore_cleanup_errors=True)
_SESSION = Path(_FOLDER.name)
if importlib.util.find_spec("cudaforge_backend") is None:  # not installed: the source folder's
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))
# The processes of a run under xdist inherit this one's environment, and so one folder for all.
_SHARED = Path(os.environ.setdefault("CACHES_OF_ALL_TESTS", str(_SESSION)))
# Read when torch and cudaforge_backend are imported, hence before them.
os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(_SHARED / "inductor")
os.environ["CUDAFORGE_CACHE_DIR"] = str(_SESSION / "cache")
_SAMPLES = _SHARED / "samples"  # of test_eager_samples.py
os.environ["OMP_WAIT_POLICY"] = "PASSIVE"  # processes side by side: a thread that waits sleeps
os.environ["TORCHINDUCTOR_VEC_ISA_OK"] = "1"  # spares each compiling process ten seconds of probing
os.environ["CUDAFORGE_ON_MISS"] = "record"  # a test that forges sets it
for _name in ("CUDAFORGE_DISABLE", "CUDAFORGE_REGION_BUDGET_S", "CUDAFORGE_GRAPH_BUDGET_S"):
    os.environ.pop(_name, None)

import cudaforge_backend  # noqa: E402
import ready as ready_processes  # noqa: E402
import torch  # noqa: E402
from coders import CODER, MODEL  # noqa: E402
from cudaforge_backend.integration import headroom, known_graphs, plan  # noqa: E402
from forged import lose_every_race, win_every_race  # noqa: E402
from samples_summary import samples_summary  # noqa: E402


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests marked `gpu` are skipped where there is none."""
    if not torch.cuda.is_available():
        for item in items:
            if "gpu" in item.keywords:
                item.add_marker(pytest.mark.skip(reason="needs a GPU"))


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(headroom, "LEAST_US", 0.0)  # small tensors will do
    torch.manual_seed(0)
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    cudaforge_backend.reset_stats()
    yield
    cudaforge_backend.disable()
    cudaforge_backend.set_progress(None)
    torch._dynamo.reset()


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> str:
    """The device of tensors: a test with this fixture runs on both."""
    return str(request.param)


@pytest.fixture
def all_win(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every region counts as a hit; without a kernel its operator runs ATen. Tests the graph."""
    for module in (plan, known_graphs):
        monkeypatch.setattr(
            module, "verdict_of", lambda key, arch, budget_s: plan.Said("hit", "test", "")
        )


@pytest.fixture
def forged(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a cache in which every region gets a real kernel; one for the session, so that
    each region is made once. Use it with forged.compiled."""
    win_every_race(monkeypatch)
    return _SESSION / "forged"


@pytest.fixture
def lost_races(monkeypatch: pytest.MonkeyPatch) -> None:
    """No kernel is faster than its rivals, which takes no time to find out."""
    lose_every_race(monkeypatch)


@pytest.fixture
def samples_cache() -> Path:
    """The folder of the cache for PyTorch's samples: many operators have the same regions."""
    return _SAMPLES


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """What came of PyTorch's samples, of all processes together."""
    reports = [r for group in terminalreporter.stats.values() for r in group]
    told = [
        value
        for report in reports
        if getattr(report, "when", "") == "call"
        for name, value in report.user_properties
        if name == "eager_samples"
    ]
    for line in samples_summary(told):
        terminalreporter.write_line(line)


@pytest.fixture
def blocking(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    """Options of enable() under which the first call of every shape makes its kernel."""
    win_every_race(monkeypatch)
    return {"on_miss": "blocking", "cache_dir": str(tmp_path)}


RunPython = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run_python() -> RunPython:
    """Runs a script in a fresh process with the session's environment. `ready`: one that begins
    with torch imported, see ready.py."""

    def run(
        code: str,
        check: bool = True,
        ready: bool = False,
        **environment: str,
    ) -> Any:
        env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | environment
        # On a GPU machine Inductor's import initialises CUDA, which no forked process may use.
        if ready and not Path("/dev/nvidiactl").exists():
            done = ready_processes.run(code, env, timeout=300)
        else:
            done = subprocess.run(
                [sys.executable, "-c", code],
                env=env,
                capture_output=True,
                text=True,
                timeout=300,
            )
        assert not check or done.returncode == 0, done.stderr[-4000:]
        return done

    return run


@pytest.fixture
def coder(tmp_path: Path) -> Callable[..., str]:
    """Makes the provider that plays a Coder's and a Judge's replies."""

    def make(replies: list[str], judge: list[str]) -> str:
        script = tmp_path / "coder.py"
        script.write_text(CODER)
        script.with_suffix(".json").write_text(json.dumps({"coder": replies, "judge": judge}))
        return f"command:{sys.executable} {script}"

    return make


@pytest.fixture
def script(tmp_path: Path) -> str:
    """A model with one matrix product."""
    path = tmp_path / "net.py"
    path.write_text(MODEL)
    return f"{path}:make"
