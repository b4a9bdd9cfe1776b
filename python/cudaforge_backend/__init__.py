"""CudaForge: a PyTorch backend that serves verified, generated kernels from a cache.

    model = torch.compile(model, backend="cudaforge")

The first call of each graph makes the kernels that the cache does not have, for graph_budget_s (60
seconds) at most; the option on_miss changes that.

Importing this package loads the C++ part, registers the operator cudaforge::region_v1 (which cached
graphs call) and the backend; nothing of Inductor is imported before a graph is compiled.
"""

from __future__ import annotations

import difflib
import os
import threading
from collections.abc import Callable
from typing import Any

import torch

from ._native import _C
from .errors import CudaForgeError, CudaForgeWarning, OptionError
from .explain import Report, explain
from .integration.backend import cudaforge, warn_of_environment
from .integration.eager import Interception, disable, enable
from .log import install as _install_log
from .progress import (
    AgentStep,
    Candidate,
    Ended,
    Event,
    GraphStep,
    RegionFound,
    RegionsLeft,
    Stage,
    Started,
    StillGoing,
)
from .stats import Stats, reset_stats, stats

__version__: str = _C.versions()["cudaforge"]

__all__ = [
    "AgentStep",
    "Candidate",
    "CudaForgeError",
    "CudaForgeWarning",
    "Ended",
    "Event",
    "GraphStep",
    "Interception",
    "OptionError",
    "RegionFound",
    "RegionsLeft",
    "Report",
    "Stage",
    "Started",
    "Stats",
    "StillGoing",
    "cudaforge",
    "disable",
    "enable",
    "explain",
    "reset_stats",
    "set_progress",
    "stats",
    "weights_changed",
]


def weights_changed() -> int:
    """For models compiled with options={"frozen_weights": True}: makes the kept forms of weights
    from their present values, in place. Returns how many.

    Call it after parameters or buffers of a compiled model have changed, before the model is called
    or a captured CUDA graph of it is replayed. Waits for the devices. Raises RuntimeError if a form
    could not be made, or during the capture of a CUDA graph. Thread-safe."""
    return _C.weights_changed()


def set_progress(callback: Callable[[Any], None] | None) -> None:
    """Registers `callback` for every step of forging in this process. None removes it.

    It takes one event, a frozen dataclass of cudaforge_backend.progress. The class Event has the
    fields that all events share. The kinds, in their order for one region:

    | kind | when |
    |---|---|
    | RegionFound | a graph has the region |
    | Started | forging begins |
    | Candidate | a candidate was judged |
    | Stage | its rivals are compiled, or the kernel races them |
    | AgentStep | an agent is called, or has replied |
    | Ended | forging ends with a verdict |
    | RegionsLeft | the graph's budget did not suffice for the remaining regions |
    | GraphStep | after its regions, with on_miss="blocking": the graph is timed |
    | StillGoing | no other event for a second |

    While anything is forged, compiled or timed, an event comes at least every two seconds. Several
    threads call the callback, one at a time. Forging waits for each call. A callback must not
    compile, and must not wait for a thread that forges. An exception in it ends the forging of the
    region, with a warning; PyTorch runs the region."""
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
