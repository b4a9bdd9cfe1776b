"""Which operators' eager calls are intercepted."""

from __future__ import annotations

import difflib
import fnmatch
import functools
from collections.abc import Iterable

import torch

from cudaforge_backend import errors
from cudaforge_backend._native import _C


@functools.cache
def default_ops() -> tuple[str, ...]:
    """The overloads that can have winners: reductions, softmax, norms, scans, pooling, losses,
    their backward, matrix products, convolutions and attention."""
    found: set[str] = set()
    for op in (*_C.anchor_ops(), *_C.heavy_ops()):
        found.update(_C.parts_of(op) or (op,))
    return tuple(sorted(filter(_may_intercept, found)))


def _may_intercept(op: str) -> bool:
    return not _C.parts_of(op) and _C.why_not_intercepted(op) is None


@functools.cache
def _known_ops() -> tuple[str, ...]:
    names: list[str] = torch._C._dispatch_get_all_op_names()
    return tuple(sorted(name for name in names if name.startswith("aten::")))


def chosen_ops(ops: Iterable[str]) -> tuple[str, ...]:
    """The overloads that names ("aten::_softmax") and patterns ("aten::*norm*") choose. Raises
    OptionError for a name that this PyTorch does not have or that may not be intercepted, and for a
    pattern of no overload that may."""
    if isinstance(ops, str) or not isinstance(ops, Iterable):
        what = repr(ops) if isinstance(ops, str) else f"of type {type(ops).__name__}"
        raise errors.OptionError(
            f"ops is {what}; it takes a list of names of overloads and of patterns, such as "
            "['aten::_softmax', 'aten::*norm*'], and holds for the whole program, not for a model"
        )
    found: set[str] = set()
    for op in ops:
        found.update(_chosen(op))
    if not found:
        raise errors.OptionError("ops is empty; leave it out to choose all that can have winners")
    return tuple(sorted(found))


def _chosen(op: object) -> Iterable[str]:
    if not isinstance(op, str):
        name = "aten::_softmax"
        if isinstance(op, torch._ops.OpOverload):
            name = op.name()  # type: ignore[no-untyped-call]
        raise errors.OptionError(f"ops has {op!r}; it takes names of overloads, {name!r}")
    if any(sign in op for sign in "*?["):
        matching = fnmatch.filter(_known_ops(), op)
        allowed = list(filter(_may_intercept, matching))
        if not allowed:
            none = f"{len(matching)} operators, and none of them"
            what = none if matching else "no operator that"
            raise errors.OptionError(f"the pattern {op!r} matches {what} may be intercepted")
        return allowed
    parts = _C.parts_of(op)
    allowed = list(filter(_may_intercept, parts))
    if allowed:
        return allowed
    why = _C.why_not_intercepted(parts[0] if parts else op)
    if why is None:
        return [op]
    named = {known.split(".")[0] for known in _known_ops()}
    near = [] if op.split(".")[0] in named else _near(op)
    hint = f"; did you mean {', '.join(near)}?" if near else ""
    if "::" not in op:
        hint = f"; names of overloads begin with 'aten::'{hint}"
    raise errors.OptionError(f"{op!r} may not be intercepted: {why}{hint}")


def _near(op: str) -> list[str]:
    """Overloads that may be intercepted, with names similar to `op`; the most similar first."""
    known = {name.lower(): name for name in _known_ops()}
    like = difflib.get_close_matches(op.lower(), known, n=12)
    names = [known[name] for name in like]
    return [name for name in names if _C.parts_of(name) or _may_intercept(name)][:3]
