"""Who is told of forging."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import cudaforge_backend
import pytest
from cudaforge_backend.errors import CudaForgeWarning
from cudaforge_backend.integration.telling import tell_of_failed_background
from cudaforge_backend.stats import warn_once


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


def test_a_warning_that_is_an_error_does_not_end_the_thread() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", CudaForgeWarning)
        with pytest.raises(CudaForgeWarning):
            warn_once("to others it is one")
        tell_of_failed_background(OSError("the second disk of test_telling"))
    assert cudaforge_backend.stats()["fallbacks"] == {"background_failed": 1}
