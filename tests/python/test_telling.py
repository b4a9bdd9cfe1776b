"""Who is told of forging."""

from __future__ import annotations

from collections.abc import Iterator

import cudaforge_backend
import pytest
from cudaforge_backend.errors import CudaForgeWarning
from cudaforge_backend.integration.telling import tell_of_failed_background


@pytest.fixture(autouse=True)
def fresh_counters() -> Iterator[None]:
    cudaforge_backend.reset_stats()
    yield
    cudaforge_backend.reset_stats()


def test_a_failure_in_the_background_is_counted_and_warned_of_once() -> None:
    with pytest.warns(CudaForgeWarning, match="forging in the background failed, .*: no disk") as w:
        for _ in range(2):
            tell_of_failed_background(OSError("no disk of test_telling"))
    assert len(w) == 1
    assert cudaforge_backend.stats()["fallbacks"] == {"background_failed": 2}
