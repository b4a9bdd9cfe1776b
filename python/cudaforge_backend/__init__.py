"""CudaForge: a PyTorch backend that serves verified, generated kernels from a cache.

    model = torch.compile(model, backend="cudaforge")

The first call of each graph makes the kernels that the cache does not have, for graph_budget_s (60
seconds) at most; the option on_miss changes that.

Importing this package loads the C++ part, registers the operator cudaforge::region (which cached
graphs call) and the backend; nothing of Inductor is imported before a graph is compiled.
"""

from __future__ import annotations

import difflib
import os
import threading
from collections.abc import Callable, Mapping
from typing import Any

import torch

from ._native import _C
from .errors import CudaForgeError, CudaForgeWarning, OptionError
from .explain import Report, explain
from .integration.backend import cudaforge, warn_of_environment
from .integration.eager import Interception, disable, enable
from .log import install as _install_log
from .stats import Stats, reset_stats, stats

__version__: str = _C.versions()["cudaforge"]

__all__ = [
    "CudaForgeError",
    "CudaForgeWarning",
    "Interception",
    "OptionError",
    "Report",
    "Stats",
    "cudaforge",
    "disable",
    "enable",
    "explain",
    "reset_stats",
    "set_progress",
    "stats",
]


def set_progress(callback: Callable[[Mapping[str, Any]], None] | None) -> None:
    """Has `callback` told of every step of forging in this process; None ends that.

    Events are dicts: {"event": "region", "key", "arch", "region", "status"} for each region of a
    graph, status "hit", "negative" or "miss"; then for each that is forged {"event": "start",
    "key", "arch", "region"}, {"event": "candidate", "key", "index", "verdict", "params", "best",
    "ns"}, {"event": "verified", "key", "index", "verdict", "ns"} and {"event": "end", "key",
    "region", "kind", "serves", "verdict", "why", "reason", "timing", "seconds", "kept"}, kind
    "winner" where its kernel was stored, else "negative", serves out of "compiled" and "eager"; all
    are of this forging but for "kept", which is None or {"author", "by_agent", "timing"} of the
    winner that was in the cache and stays. {"event": "stage", "key", "stage"} says what is done:
    "compile", Inductor compiles what the kernel is to beat, and "race", they are raced, both with
    "within", the key of a larger region, where they are done inside it; "rivals", before agents
    write, the rivals are compiled and timed. There is no "ns" where nothing was timed. Other events
    may come with later versions.
    Where agents write kernels, {"event": "rival", "key", "rival", "us"} says what they are to beat;
    then come "resumed" of a session that goes on, and of each "round", which names its "kind", the
    Judge's "advice" ("issue" and "plan", or its "silence"), "ask" and "call" of each question
    ("role"; "usage", "usd", "seconds"), and the "candidate"; "rejudged" ("round", "before",
    "verdict", "message") of a kernel of an earlier session that is not right any more; at last
    "agents_end" with its "reason" and the "ledger".
    {"event": "left", "regions", "graph_budget_s"} names the regions of a graph for which that time
    did not suffice.
    With on_miss="blocking", the default, then {"event": "graph", "step", "regions"} for each graph
    that is to be timed with its winners (their keys are the regions): step "compile" when it is
    compiled with them and without, "race" when it is called first and timed, which compiles its
    backward.
    "region" and the last "verdict" are for people: "mul -> cumsum(float32[8, 128])", "nothing
    faster than ATen"."""
    from .integration.telling import set_progress as set_callback

    if callback is not None and not callable(callback):
        raise TypeError(f"set_progress takes a function of one event, or None; got {callback!r}")
    set_callback(callback)


def _register() -> None:
    """Makes the name known to Dynamo where no entry point does (a source folder on PYTHONPATH)."""
    from importlib.metadata import entry_points

    if any(entry_points(group="torch_dynamo_backends", name="cudaforge")):
        return  # Dynamo finds and registers it; doing so twice is an error there
    from torch._dynamo.backends import registry

    if "cudaforge" not in registry._COMPILER_FNS:
        registry.register_backend(cudaforge, name="cudaforge")


def _keep_device_guard() -> None:
    """Without a GPU, entering FakeTensorMode has torch 2.11 install a CUDA device guard that lives
    as long as the first thread to do so, and crash in the next thread. This one lives on."""
    if torch.cuda.device_count() > 0:
        return
    ensure = torch._C._ensureCUDADeviceGuardSet
    if threading.current_thread() is threading.main_thread():
        ensure()
        return
    done = threading.Event()

    def park() -> None:
        ensure()
        done.set()
        threading.Event().wait()

    threading.Thread(target=park, name="cudaforge-device-guard", daemon=True).start()
    done.wait()


_register()
_install_log()
_keep_device_guard()
if _C.config()["eager"]:
    enable()
elif difflib.get_close_matches("CUDAFORGE_EAGER", os.environ, cutoff=0.85):
    warn_of_environment()  # set to something else, or misspelled
