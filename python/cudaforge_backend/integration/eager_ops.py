"""Which operators' eager calls are intercepted."""

from __future__ import annotations

import difflib
import fnmatch
import functools
from collections.abc import Iterable

import torch

from cudaforge_backend import errors
from cudaforge_backend._native import _C

# Overloads that are made of others, by what is intercepted where they are named.
_PARTS = {
    "aten::avg_pool1d": ("aten::avg_pool2d",),
    "aten::conv1d": ("aten::convolution",),
    "aten::conv2d": ("aten::convolution",),
    "aten::conv3d": ("aten::convolution",),
    "aten::cross_entropy_loss": ("aten::_log_softmax", "aten::nll_loss_forward"),
    "aten::group_norm": ("aten::native_group_norm",),
    "aten::layer_norm": ("aten::native_layer_norm",),
    "aten::log_softmax.int": ("aten::_log_softmax",),
    "aten::max_pool2d": ("aten::max_pool2d_with_indices",),
    "aten::mean": ("aten::mean.dim",),
    "aten::rms_norm": ("aten::_fused_rms_norm",),
    "aten::softmax.int": ("aten::_softmax",),
    "aten::std": ("aten::std.correction",),
    "aten::std.dim": ("aten::std.correction",),
    "aten::sum": ("aten::sum.dim_IntList",),
    "aten::var": ("aten::var.correction",),
    "aten::var.dim": ("aten::var.correction",),
    "aten::linear": ("aten::addmm", "aten::mm"),
    "aten::matmul": ("aten::bmm", "aten::mm"),
    "aten::scaled_dot_product_attention": (
        "aten::_scaled_dot_product_cudnn_attention",
        "aten::_scaled_dot_product_efficient_attention",
        "aten::_scaled_dot_product_flash_attention_for_cpu",
    ),
}


@functools.cache
def default_ops() -> tuple[str, ...]:
    """The overloads that winners can exist for: reductions, softmax, norms, scans, pooling, losses,
    their backward, matrix products, convolutions and attention; and those that write their results
    to out arguments, where they have kernels of their own."""
    found: set[str] = set()
    for op in (*_C.anchor_ops(), *_C.agent_anchor_ops()):
        found.update((*_PARTS.get(op, (op,)), *filter(None, [_C.out_variant_of(op)])))
    return tuple(sorted(filter(_may_intercept, found)))


def _may_intercept(op: str) -> bool:
    return op not in _PARTS and _C.can_intercept(op) is None


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
        raise errors.OptionError("ops is empty; without it, what winners can exist for is chosen")
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
            what = f"{len(matching)} operators, none of which" if matching else "no operator that"
            raise errors.OptionError(f"the pattern {op!r} matches {what} may be intercepted")
        return allowed
    if op in _PARTS:
        allowed = list(filter(_may_intercept, _PARTS[op]))
        if allowed:
            return allowed
    why = _C.can_intercept(_PARTS.get(op, (op,))[0])
    if why is None:
        return [op]
    named = {known.split(".")[0] for known in _known_ops()}
    near = [] if op.split(".")[0] in named else _near(op)
    hint = f"; did you mean {', '.join(near)}?" if near else ""
    if "::" not in op:
        hint = f"; names of overloads begin with 'aten::'{hint}"
    raise errors.OptionError(f"{op!r} may not be intercepted: {why}{hint}")


def _near(op: str) -> list[str]:
    """Overloads that may be intercepted and whose names are like `op`, the likest first."""
    known = {name.lower(): name for name in _known_ops()}
    like = difflib.get_close_matches(op.lower(), known, n=12)
    names = [known[name] for name in like]
    return [name for name in names if name in _PARTS or _may_intercept(name)][:3]
