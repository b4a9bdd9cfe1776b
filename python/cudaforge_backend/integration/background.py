"""on_miss="background": the first code of a graph runs until there are winners; then code with
them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch

from cudaforge_backend.forks import fork_safe_lock
from cudaforge_backend.options import Settings
from cudaforge_backend.reasons import GraphOutcome, Reason
from cudaforge_backend.stats import count_fallback, count_graph, spending, warn_once

from .graphs import Compiled
from .plan import Plan, forge_misses
from .telling import tell_of_failed_background, telling_in_background
from .together import Together
from .tracing import beside_running_programs


class SwappingCallable:
    """Runs `first`. Once the forging thread has a winner, the next call compiles the graph with it,
    and later calls run that code. Calls under saved-tensor hooks always run `first`: activation
    checkpointing runs a graph a second time and must save the same tensors. Thread-safe. If
    compiling fails, `first` stays."""

    def __init__(
        self,
        first: Compiled,
        plan: Plan,
        settings: Settings,
        compile_substituted: Callable[[Plan, Sequence[Any]], Compiled | None],
    ) -> None:
        self._first = self._current = first
        self._ready: Plan | None = None
        self._compile = compile_substituted
        self._lock = fork_safe_lock()  # guards the taking of _ready
        self.thread = threading.Thread(
            target=self._forge, args=(plan, settings), name="cudaforge-background", daemon=False
        )  # at its end the program waits for the current step: see forging.py
        self.thread.start()

    def __call__(self, *args: Any) -> Any:
        if torch._C._autograd._top_saved_tensors_default_hooks(True) is not None:
            return self._first(*args)
        if self._ready is not None:
            self._swap(args)
        return self._current(*args)

    def _forge(self, plan: Plan, settings: Settings) -> None:
        try:
            devices = [known.region.device for known in plan.misses()] or [torch.device("cpu")]
            together = Together(settings, devices[0], waited_for=False, reserved=False)
            misses = len(plan.misses())
            with spending(), telling_in_background(misses, together.clock) as progress:
                done = forge_misses(plan, settings, progress, together, beside_program=True)
        except Exception as error:
            tell_of_failed_background(error)
            return
        if done.winners() != plan.winners():
            self._ready = done

    def _swap(self, args: Sequence[Any]) -> None:
        with self._lock:
            plan, self._ready = self._ready, None
        if plan is None:  # another thread swaps
            return
        try:
            with beside_running_programs():
                compiled = self._compile(plan, args)
            if compiled is not None:  # None: the graph lost its winners
                self._current = compiled
                count_graph(GraphOutcome.SWAPPED)
        except Exception as error:
            count_fallback(Reason.SWAP_FAILED)
            warn_once(f"the graph with new winners did not compile, the old one stays: {error}")
