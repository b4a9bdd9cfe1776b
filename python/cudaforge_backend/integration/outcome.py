"""What became of a graph's winners: whether the code that Inductor made calls them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from cudaforge_backend._native import _C
from cudaforge_backend.stats import count_graph


class Outcome:
    """Of one graph that is compiled with winners. The pass may find other regions than were
    planned, such as those of other strides, and does not run where the code comes from Inductor's
    caches: what tells is the code itself. Counts the graph by it, and anew when a backward, which
    is compiled with the first backward(), has more."""

    def __init__(self, winners: Iterable[str]) -> None:
        self._ids = {key: str(_C.region_id(key)) for key in winners}
        self._called: set[str] = set()
        self._awaits_backward = False
        self._how: str | None = None  # it is counted as this

    def is_lost(self) -> bool:
        """Whether no winner is called, and none can be any more."""
        return not self._called and not self._awaits_backward

    def become(self, how: str) -> None:
        """Counts the graph as this (see Stats.graphs), and no more as what it was counted as."""
        if self._how is not None:
            count_graph(self._how, -1)
        count_graph(how)
        self._how = how

    def settle(self) -> None:
        """Counts the graph by what is known now."""
        self.become("substituted" if self._called else "winners_not_used")

    def noting(self, inner_compile: Callable[..., Any]) -> Callable[..., Any]:
        """`inner_compile`, which makes the code of forward and backward, watched."""

        def compile_noted(*args: Any, **kwargs: Any) -> Any:
            made = inner_compile(*args, **kwargs)
            self._awaits_backward = not (kwargs.get("is_inference") or kwargs.get("is_backward"))
            self._note(made)
            return made

        return compile_noted

    @contextmanager
    def noting_loads(self) -> Iterator[None]:
        """Watches what this thread takes from AOTAutograd's cache, which compiles nothing."""
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
        if found and self._how == "winners_not_used":
            self.become("substituted")
        self._called |= found
