"""Whether the processor is quiet."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from cudaforge_backend.integration import clocks


class Clock:
    """The clocks of a program whose threads take so many cores while this one sleeps, one number a
    look at them."""

    def __init__(self, cores: Sequence[float]) -> None:
        self.cores = [rate for look in cores for rate in (0.0, look)]  # first it lets them settle
        self.now = self.worked = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.worked += seconds * self.cores.pop(0)

    def monotonic(self) -> float:
        return self.now

    def process_time(self) -> float:
        return self.worked


@pytest.mark.parametrize(
    ("cores", "busy"),
    [([0], False), ([1, 1, 1], True), ([4, 1, 0.25], True), ([1, 0.15], False), ([1, 1, 0], False)],
)
def test_a_program_is_busy_whose_threads_work_at_every_look(
    monkeypatch: pytest.MonkeyPatch, cores: list[float], busy: bool
) -> None:
    clock = Clock(cores)
    monkeypatch.setattr(clocks, "time", clock)
    assert clocks.program_is_busy() is busy
    assert clock.cores == []
