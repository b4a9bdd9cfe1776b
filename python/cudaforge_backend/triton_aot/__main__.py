"""`python -I triton_aot`: see __init__.py."""

import importlib
import sys
import types
from pathlib import Path

_NAME = "cudaforge_triton_aot"
_FOLDER = Path(__file__).resolve().parent

# The files are a package of this name, and on no path where they could stand for other modules.
sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != _FOLDER]
sys.modules[_NAME] = types.ModuleType(_NAME)
sys.modules[_NAME].__path__ = [str(_FOLDER)]
importlib.import_module(f"{_NAME}.program").main()
