"""The only place that loads the C++ part, `_C`. Passes it the paths on this machine."""

from __future__ import annotations

import importlib
import re
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import torch

if TYPE_CHECKING:
    from . import _C as _C

PACKAGE = Path(__file__).resolve().parent
BUILT_FOR = PACKAGE / "built_for_torch.txt"  # written by the build: "2.11.0+cu130"


def _cuda_folders() -> list[str]:
    """PyPI's packages of CUDA."""
    folders = [Path(p).absolute() / "nvidia" / "cu13" for p in sys.path if p]
    return [str(p) for p in folders if p.is_dir()]


def _built_for() -> str:
    """The torch that the C++ part was built for, without "+cu130"; "" where nothing says it."""
    try:
        return _release(BUILT_FOR.read_text())
    except OSError:
        return ""


def _release(version: str) -> str:
    return version.strip().partition("+")[0]


# wheel: setuptools before 70.1, which new environments of Python 3.11 have, needs it.
_INSTALL = "pip install wheel && pip install --no-build-isolation --no-deps"


def build_again() -> str:
    """How to build for the torch that is installed."""
    source = PACKAGE.parents[1]
    if (source / "CMakeLists.txt").exists():  # the package of a checkout
        return f"`{_INSTALL} -e {source}` builds it again"
    return f"`{_INSTALL} .` in its source folder builds it again"


def other_torch(built_for: str) -> str:
    """How to make build and torch match: rebuild, or install the torch that it was built for."""
    on_index = re.fullmatch(r"[0-9.]+", built_for)  # no nightly or source build
    other = f"; `pip install torch=={built_for}` brings the other torch back" if on_index else ""
    return f"{build_again()}{other}"


def _wrong_torch(built_for: str) -> str:
    """One line: which torch is needed, which one is there, and how to get it."""
    return (
        f"cudaforge_backend was built for torch {built_for}, and torch "
        f"{_release(torch.__version__)} is installed: {other_torch(built_for)}"
    )


def _fail(message: str) -> NoReturn:
    """Ends the import; of the `cudaforge` command the process, without a traceback."""
    as_module = sys.argv[:1] == ["-m"] and "cudaforge_backend" in sys.orig_argv
    if as_module or (sys.argv and Path(sys.argv[0]).name == "cudaforge"):
        raise SystemExit(f"cudaforge: {message}") from None
    raise ImportError(message) from None


def _load() -> Any:
    built_for, found = _built_for(), _release(torch.__version__)
    wrong_torch = _wrong_torch(built_for) if built_for not in ("", found) else ""
    # C++ parts for one minor version of torch cannot be loaded with another.
    if wrong_torch and built_for.split(".")[:2] != found.split(".")[:2]:
        _fail(wrong_torch)
    name = f"_C{sysconfig.get_config_var('EXT_SUFFIX')}"
    try:
        module = importlib.import_module("cudaforge_backend._C")
    except ImportError as error:
        there = sorted(p.name for p in PACKAGE.glob("_C*.so"))
        state = f"found {', '.join(there)} there" if there else "nothing like it is there"
        what = wrong_torch or f"cudaforge_backend cannot load its C++ part: {build_again()}"
        _fail(
            f"{what}\nLooked for {PACKAGE / name} ({state}); Python {sys.version.split()[0]}, "
            f"torch {torch.__version__}; the loader said: {error}"
        )
    libtorch = Path(torch.__file__).parent / "lib"
    module.configure(_cuda_folders(), str(PACKAGE / "bin"), str(libtorch))
    return module


if not TYPE_CHECKING:
    _C = _load()
