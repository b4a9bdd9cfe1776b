"""The one place that loads the C++ part, `_C`, and tells it where things are on this machine."""

from __future__ import annotations

import importlib
import os
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from . import _C as _C

PACKAGE = Path(__file__).resolve().parent


def cuda_search_paths() -> list[str]:
    """Folders that may hold libnvrtc, libcupti and the CUDA headers: CUDAFORGE_CUDA_PATH's, then
    PyPI's, then a toolkit."""
    found = [Path(p) for p in os.environ.get("CUDAFORGE_CUDA_PATH", "").split(":") if p]
    found += [Path(p) / "nvidia" / "cu13" for p in sys.path if p]
    found += [Path(os.environ[name]) for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    found.append(Path("/usr/local/cuda"))
    return list(dict.fromkeys(str(p) for p in found if p.is_dir()))


def worker_path() -> str:
    """The worker executable: CUDAFORGE_WORKER, else the one beside this package."""
    return os.environ.get("CUDAFORGE_WORKER") or str(PACKAGE / "bin" / "cudaforge-worker")


def _load() -> Any:
    name = f"_C{sysconfig.get_config_var('EXT_SUFFIX')}"
    try:
        module = importlib.import_module("cudaforge_backend._C")
    except ImportError as error:
        there = sorted(p.name for p in PACKAGE.glob("_C*.so"))
        state = f"found {', '.join(there)} there" if there else "nothing like it is there"
        raise ImportError(
            f"cudaforge_backend cannot load its C++ part: looked for {PACKAGE / name} ({state}); "
            f"Python {sys.version.split()[0]}, torch {torch.__version__}; "
            f"the loader said: {error}. Build it for this interpreter and this torch with "
            "`pip install --no-build-isolation .` in the source folder."
        ) from None
    module.configure(cuda_search_paths(), worker_path())
    return module


if not TYPE_CHECKING:
    _C = _load()
