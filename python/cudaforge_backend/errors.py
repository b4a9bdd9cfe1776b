"""What can go wrong, as exceptions a caller can name."""

from __future__ import annotations

from collections.abc import Iterable


class CudaForgeError(Exception):
    """Base of this package's own exceptions."""


class OptionError(CudaForgeError, ValueError):
    """An option, a value or a mode that is not known; the message lists the known ones."""


class CudaForgeWarning(UserWarning):
    """Something did not work and PyTorch's own way was taken; each message appears once a
    process."""


def unknown(kind: str, given: object, known: Iterable[str]) -> OptionError:
    """An OptionError that names `given` and lists `known`."""
    return OptionError(f"unknown {kind} {given!r}; known: {', '.join(known)}")
