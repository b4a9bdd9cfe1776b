"""Who is told of forging, and of the compiling and timing after it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from cudaforge_backend import log
from cudaforge_backend.heartbeat import Teller
from cudaforge_backend.records import status_text
from cudaforge_backend.stats import count_fallback, count_miss, warn_once
from cudaforge_backend.steps import GRAPH_STEPS

Progress = Callable[[Mapping[str, Any]], None]

_progress: list[Progress] = []
_told_of_background = False


def set_progress(callback: Progress | None) -> None:
    """Who is told of forging in this process; cudaforge_backend.set_progress has the events."""
    _progress[:] = [callback] if callback is not None else []


def current_progress() -> Progress | None:
    """The callback that set_progress was given last."""
    return _progress[0] if _progress else None


def tell_region(key: str, arch: str, text: str, status: str) -> None:
    """Counts a miss, and gives the event {"event": "region", "key", "arch", "region", "status"}: a
    graph has this region."""
    log.graph.debug("%s %s: %s", status_text(status), key[:12], text)
    if status == "miss":
        count_miss(key)
    progress = current_progress()
    if progress is not None:
        progress({"event": "region", "key": key, "arch": arch, "region": text, "status": status})


def tell_of_background() -> None:
    """Says, once in the process, that kernels are forged in the background; not to a program with a
    callback, which is told of every step."""
    global _told_of_background
    if current_progress() is None and not _told_of_background:
        _told_of_background = True
        log.forge.warning(
            "cudaforge: forging kernels in the background; CUDAFORGE_LOG=forge or "
            "cudaforge_backend.set_progress() shows each step, cudaforge_backend.stats() what is "
            "missing"
        )


def tell_of_failed_background(error: Exception) -> None:
    """Counts and warns of a thread's forging that failed."""
    count_fallback("background_failed")
    warn_once(f"forging in the background failed, PyTorch's own kernels run: {error}")


@contextmanager
def _told(doing: str) -> Iterator[Progress]:
    """The callback that set_progress was given, else one that logs now and then that `doing` goes
    on."""
    progress = current_progress()
    if progress is not None:
        yield progress
        return
    # By logging's last resort, to stderr.
    with Teller(lambda line: log.forge.warning("cudaforge: %s", line), doing) as teller:
        yield teller


@contextmanager
def telling(step: str, regions: Iterable[str]) -> Iterator[None]:
    """Gives the event "graph" of a graph with these regions, at the beginning of that step."""
    with _told(GRAPH_STEPS[step]) as progress:
        progress({"event": "graph", "step": step, "regions": sorted(regions)})
        yield


@contextmanager
def telling_of_forging(what: str) -> Iterator[Progress]:
    """Gives who is told of the forging of `what`. A program without a callback is told that it
    begins, now and then that it goes on, and what came of it."""
    with _told("forging") as progress:
        own = progress if isinstance(progress, Teller) and current_progress() is None else None
        if own is not None:
            own.say(
                f"forging {what}; CUDAFORGE_LOG=forge or cudaforge_backend.set_progress() shows "
                "each step"
            )
        yield progress
        if own is not None:
            own.say(own.summary())
