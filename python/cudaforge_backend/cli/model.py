"""The model that SCRIPT.py:FACTORY makes, and the device that it runs on."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from pathlib import Path
from typing import Any

import torch

from .failure import failed

_FACTORY = "the factory is called without arguments and returns (model, inputs)"


def load_factory(reference: str) -> Any:
    """The function that SCRIPT.py:FACTORY names; its script is run. ValueError: what is wrong."""
    path_text, _, name = reference.rpartition(":")
    path = Path(path_text)
    if not path_text or not name:
        raise ValueError(f"{reference!r} is not SCRIPT.py:FACTORY, such as train.py:make_model")
    if not path.is_file():
        raise ValueError(f"there is no script {path}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ValueError(f"{path} is not a Python script")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # dataclasses and pickle look their module up
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise failed(str(path), error) from error
    factory = getattr(module, name, None)
    if not callable(factory):
        raise ValueError(f"{path} has no function {name}")
    if isinstance(factory, torch.nn.Module):
        raise ValueError(f"{reference} is a torch.nn.Module: {_FACTORY}")
    try:
        inspect.signature(factory).bind()
    except TypeError as error:
        raise ValueError(f"{reference} takes arguments ({error}): {_FACTORY}") from error
    except ValueError:  # a callable without a known signature
        pass
    return factory


def make_model(reference: str, device: str) -> tuple[torch.nn.Module, tuple[Any, ...]]:
    """What the factory returns, moved to `device`. ValueError: it is not (model, inputs)."""
    factory = load_factory(reference)
    try:
        made = factory()
    except Exception as error:
        raise failed(reference, error) from error
    if not isinstance(made, tuple) or len(made) != 2 or not isinstance(made[0], torch.nn.Module):
        raise ValueError(
            f"{reference} must return (model, inputs): a torch.nn.Module and a tuple of tensors"
        )
    model, inputs = made
    inputs = inputs if isinstance(inputs, tuple | list) else (inputs,)
    return model.to(device), tuple(
        i.to(device) if isinstance(i, torch.Tensor) else i for i in inputs
    )


def chosen_device(option: str, value: str) -> str:
    """ "cpu" or "cuda", of an option that takes "auto" too. ValueError: PyTorch finds no GPU."""
    device = value if value != "auto" else "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"{option} cuda, but PyTorch finds no GPU; `cudaforge doctor` says why")
    return device
