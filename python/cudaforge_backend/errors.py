"""The package's exceptions and warnings."""

from __future__ import annotations

from collections.abc import Iterable


class CudaForgeError(Exception):
    """Base of this package's own exceptions."""


class OptionError(CudaForgeError, ValueError):
    """An unknown option, value or mode; the message lists the known ones."""


class CudaForgeWarning(UserWarning):
    """Something failed and PyTorch's own code runs. Each message appears once in a process."""


def unknown(kind: str, given: object, known: Iterable[str]) -> OptionError:
    """An OptionError that names `given` and lists `known`."""
    return OptionError(f"unknown {kind} {given!r}; known: {', '.join(known)}")
