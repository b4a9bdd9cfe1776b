"""What became of a graph's winners: whether the code that Inductor made calls them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from cudaforge_backend._native import _C
from cudaforge_backend.reasons import GraphOutcome
from cudaforge_backend.stats import count_graph
from cudaforge_backend.torch_compat import with_picklable_table


class Outcome:
    """What became of one graph that is compiled with winners. The generated code decides: the pass
    may find other regions than the plan (other strides), and does not run if the code comes from
    Inductor's caches. Counts the graph, and recounts it if its backward, compiled at the first
    backward(), calls more kernels."""

    def __init__(self, winners: Iterable[str]) -> None:
        self._ids = {key: str(_C.region_id(key)) for key in winners}
        self._called: set[str] = set()
        self._awaits_backward = False
        self._how: GraphOutcome | None = None  # it is counted as this

    def is_lost(self) -> bool:
        """Whether no winner is called, and the backward cannot add one."""
        return not self._called and not self._awaits_backward

    def become(self, how: GraphOutcome) -> None:
        """Counts the graph under `how` instead of its earlier outcome."""
        if self._how is not None:
            count_graph(self._how, -1)
        count_graph(how)
        self._how = how

    def settle(self) -> None:
        """Counts the graph by what its code calls so far."""
        self.become(GraphOutcome.SUBSTITUTED if self._called else GraphOutcome.NOT_USED)

    def noting(self, inner_compile: Callable[..., Any]) -> Callable[..., Any]:
        """Wraps `inner_compile`, and reads the code of forward and backward that it returns."""

        def compile_noted(*args: Any, **kwargs: Any) -> Any:
            made = inner_compile(*args, **with_picklable_table(kwargs))
            self._awaits_backward = not (kwargs.get("is_inference") or kwargs.get("is_backward"))
            self._note(made)
            return made

        return compile_noted

    @contextmanager
    def noting_loads(self) -> Iterator[None]:
        """Reads the code that this thread loads from AOTAutograd's cache."""
        from torch._inductor.output_code import CompiledFxGraph

        thread = threading.get_ident()
        real = CompiledFxGraph.post_compile

        def post_compile(graph: Any, *args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() == thread:
                self._note(graph)
            return real(graph, *args, **kwargs)

        CompiledFxGraph.post_compile = post_compile  # type: ignore[assignment, method-assign]
        try:
            yield
        finally:
            CompiledFxGraph.post_compile = real  # type: ignore[method-assign]

    def _note(self, made: Any) -> None:
        code = getattr(made, "source_code", "")  # a graph that calls nothing has none
        found = {key for key, number in self._ids.items() if number in code}
        if found and self._how == GraphOutcome.NOT_USED:
            self.become(GraphOutcome.SUBSTITUTED)
        self._called |= found
