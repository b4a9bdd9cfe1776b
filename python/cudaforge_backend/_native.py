"""The one place that loads the C++ part, `_C`, and tells it where things are on this machine."""

from __future__ import annotations

import importlib
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from . import _C as _C

PACKAGE = Path(__file__).resolve().parent


def _cuda_folders() -> list[str]:
    """PyPI's packages of CUDA."""
    folders = [Path(p).absolute() / "nvidia" / "cu13" for p in sys.path if p]
    return [str(p) for p in folders if p.is_dir()]


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
    module.configure(_cuda_folders(), str(PACKAGE / "bin" / "cudaforge-worker"))
    return module


if not TYPE_CHECKING:
    _C = _load()
