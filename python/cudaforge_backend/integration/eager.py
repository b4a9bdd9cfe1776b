"""Eager calls: chosen ATen operators are looked up on their way through PyTorch's dispatcher
(csrc/dispatch/eager.h)."""

from __future__ import annotations

import atexit
import difflib
import fnmatch
import functools
import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Self

import torch

from cudaforge_backend import errors, log
from cudaforge_backend._native import _C
from cudaforge_backend.locks import ForkSafeLock
from cudaforge_backend.options import Settings, disabled, parse

from .backend import open_cache

OPTIONS = ("on_miss", "region_budget_s", "cache_dir", "agents")

# Overloads that are made of others, by what is intercepted where they are named.
_PARTS = {
    "aten::cross_entropy_loss": ("aten::_log_softmax", "aten::nll_loss_forward"),
    "aten::group_norm": ("aten::native_group_norm",),
    "aten::layer_norm": ("aten::native_layer_norm",),
    "aten::log_softmax.int": ("aten::_log_softmax",),
    "aten::max_pool2d": ("aten::max_pool2d_with_indices",),
    "aten::rms_norm": ("aten::_fused_rms_norm",),
    "aten::softmax.int": ("aten::_softmax",),
    "aten::linear": ("aten::addmm", "aten::mm"),
    "aten::matmul": ("aten::bmm", "aten::mm"),
}


@dataclass(frozen=True)
class _State:
    ops: tuple[str, ...]
    settings: Settings


class Interception:
    """What enable() returns. As a context manager, its end brings back what was before it."""

    def __init__(self, before: _State | None) -> None:
        self._before = before

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        _become(self._before)


_lock = ForkSafeLock()
_state: _State | None = None
atexit.register(_C.flush_eager_misses)


def enable(ops: Iterable[str] | None = None, **options: Any) -> Interception:
    """Has eager calls of ATen operators, of programs that do not compile, looked up in the kernel
    cache: a call with a winner is served by it, any other runs as before.

    `ops`: overloads ("aten::_softmax") and patterns ("aten::*norm*"); None: those that winners can
    exist for. `options`: on_miss, region_budget_s, cache_dir and agents, as torch.compile's for
    this backend; what is missing is recorded, or forged in the background, or at once.

    Holds for the process until disable(); asked for anew, it replaces what was asked for before. As
    a context manager, `with enable(...):`, its end brings back what was before it. Thread-safe.
    Raises OptionError for an unknown option, and for an operator that is not known or may not be
    intercepted (a view, one that changes its arguments or draws random numbers)."""
    for name in options:
        if name not in OPTIONS:
            raise errors.unknown("option", name, OPTIONS)
    settings = parse(None, options)
    names = default_ops() if ops is None else chosen_ops(ops)
    before = _state
    if not disabled():
        _become(_State(names, settings))
    return Interception(before)


def disable() -> None:
    """Has eager calls of every operator run as PyTorch alone would run them."""
    _become(None)


def _become(state: _State | None) -> None:
    global _state
    with _lock:
        if state is None:
            _C.intercept([])
            _C.on_eager_miss(False, None)
        _C.flush_eager_misses()  # to the cache that they were meant for
        if state is not None:
            open_cache(state.settings.cache_dir)
            _C.on_eager_miss(state.settings.on_miss == "record", _on_miss(state.settings))
            _C.intercept(list(state.ops))
        _state = state


@functools.cache
def default_ops() -> tuple[str, ...]:
    """The overloads that winners can exist for: reductions, softmax, norms, scans, pooling, losses,
    their backward, matrix products and convolutions; and those that write their results to out
    arguments, where they have kernels of their own."""
    found: set[str] = set()
    for op in (*_C.anchor_ops(), *_C.agent_anchor_ops()):
        found.update((op, *filter(None, [_C.out_variant_of(op)])))
    return tuple(sorted(op for op in found if _C.can_intercept(op) is None))


@functools.cache
def _known_ops() -> tuple[str, ...]:
    names: list[str] = torch._C._dispatch_get_all_op_names()
    return tuple(sorted(name for name in names if name.startswith("aten::")))


def chosen_ops(ops: Iterable[str]) -> tuple[str, ...]:
    """The overloads that names ("aten::_softmax") and patterns ("aten::*norm*") choose. Raises
    OptionError for a name that this PyTorch does not have or that may not be intercepted, and for a
    pattern of no overload that may."""
    if isinstance(ops, str):
        raise errors.OptionError(f"ops is {ops!r}; it takes a list, such as [{ops!r}]")
    found: set[str] = set()
    for op in ops:
        found.update(_chosen(op))
    return tuple(sorted(found))


def _chosen(op: object) -> Iterable[str]:
    if not isinstance(op, str):
        raise errors.OptionError(f"ops has {op!r}; it takes names of overloads, 'aten::_softmax'")
    if any(sign in op for sign in "*?["):
        matching = fnmatch.filter(_known_ops(), op)
        allowed = [name for name in matching if _C.can_intercept(name) is None]
        if not allowed:
            what = f"{len(matching)} operators, none of which" if matching else "no operator that"
            raise errors.OptionError(f"the pattern {op!r} matches {what} may be intercepted")
        return allowed
    if op in _PARTS:
        return _PARTS[op]
    why = _C.can_intercept(op)
    if why is None:
        return [op]
    near = [] if op in _known_ops() else difflib.get_close_matches(op, _known_ops())
    hint = f"; did you mean {', '.join(near)}?" if near else ""
    raise errors.OptionError(f"{op!r} may not be intercepted: {why}{hint}")


def _on_miss(settings: Settings) -> Callable[[str, int], None] | None:
    """What is told of a call that is met for the first time and has no winner, beside its being
    recorded; None: nobody. Forked children are served, and forge nothing: they cannot write to the
    cache."""
    forge: Callable[[str, int], None] | None = None
    if settings.on_miss == "blocking":
        forge = functools.partial(_forge, settings=settings, compile_lock=False)
    elif settings.on_miss == "background":
        forge = _Queue(settings).add
    if forge is None and not log.dispatch.isEnabledFor(logging.DEBUG):
        return None
    process = os.getpid()

    def told(signature: str, device_index: int) -> None:
        log.dispatch.debug("no kernel: %s", _C.describe(signature))
        if forge is not None and os.getpid() == process:
            forge(signature, device_index)

    return told


def _forge(signature: str, device_index: int, settings: Settings, compile_lock: bool) -> None:
    from .plan import current_progress, forge_one

    if settings.agents is not None or _C.can_generate(signature) is None:
        forge_one(signature, device_index, settings, compile_lock, current_progress())


class _Queue:
    """Forges what is added, one region after the other, in a thread that ends with the last."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._waiting: deque[tuple[str, int]] = deque()
        self._works = False
        self._lock = ForkSafeLock()

    def add(self, signature: str, device_index: int) -> None:
        """A region that is to be forged."""
        with self._lock:
            self._waiting.append((signature, device_index))
            if self._works:
                return
            self._works = True
        # A program that ends waits for the step under way: see forging.py.
        threading.Thread(target=self._work, name="cudaforge-eager", daemon=False).start()

    def _work(self) -> None:
        while threading.main_thread().is_alive():
            with self._lock:
                if not self._waiting:
                    self._works = False
                    return
                signature, device_index = self._waiting.popleft()
            _forge(signature, device_index, self._settings, compile_lock=True)
