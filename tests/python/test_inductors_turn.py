"""Inductor's turn: which thread waits for which, how long, and what ends the wait."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from cudaforge_backend.integration import inductors_turn
from cudaforge_backend.integration.inductors_turn import compilation_waits_for, within_compilation
from others import another_thread
from torch._dynamo.convert_frame import compile_lock

PLACE = ("a key", "an architecture")


def take(
    most_s: float | None = None,
    *,
    go_on: Callable[[], None] = lambda: None,
    place: tuple[str, str] = PLACE,
) -> tuple[bool, float]:
    """Has the turn once: whether Dynamo's lock came with it, and how long that took."""
    turn = inductors_turn.inductors_turn(place, most_s=most_s, go_on=go_on)
    with turn as waited:
        assert inductors_turn._turn._is_owned()
        return compile_lock._is_owned(), waited


class _AtThirdCall:
    def __init__(self, call: Callable[[], object]) -> None:
        self.calls, self.call = 0, call

    def __call__(self) -> None:
        self.calls += 1
        if self.calls == 3:
            self.call()


@pytest.fixture(autouse=True)
def _nothing_is_left_held() -> Iterator[None]:
    yield
    with another_thread(compile_lock), another_thread(inductors_turn._turn):
        assert inductors_turn._waited_for == []


def test_dynamos_lock_comes_with_the_turn() -> None:
    assert not within_compilation()
    with compile_lock:
        assert within_compilation()
    assert take()[0]


def test_dynamos_lock_is_waited_for() -> None:
    with another_thread(compile_lock) as done:
        held, waited = take(go_on=_AtThirdCall(done.set))
    assert held and waited > 0.15  # two looks


@pytest.mark.parametrize("most_s", [0.2, -1.0])
def test_dynamos_lock_is_waited_for_within_a_limit(most_s: float) -> None:
    with another_thread(compile_lock):
        held, waited = take(most_s)
    assert not held and waited > most_s


def test_dynamos_lock_is_not_waited_for_where_its_holder_waits() -> None:
    with another_thread(compile_lock):
        with compilation_waits_for(PLACE):
            with compilation_waits_for(PLACE):
                assert not take()[0]
            assert not take()[0]
            held, waited = take(0.2, place=("another key", "an architecture"))
            assert not held and waited > 0.2  # for its limit
    assert take()[0]


def test_waiting_for_dynamos_lock_ends_when_its_holder_waits() -> None:
    with contextlib.ExitStack() as begins, another_thread(compile_lock):
        waits = compilation_waits_for(PLACE)
        held, waited = take(10.0, go_on=_AtThirdCall(lambda: begins.enter_context(waits)))
    assert not held and waited < 5


def test_the_turn_is_waited_for() -> None:
    with another_thread(inductors_turn._turn) as done:
        held, waited = take(0.0, go_on=_AtThirdCall(done.set))
    assert held and waited > 0.05  # one look; the first was for Dynamo's lock


@pytest.mark.parametrize("of", [compile_lock, inductors_turn._turn])
def test_what_go_on_raises_ends_the_waiting(of: Any) -> None:
    class EndedError(Exception):
        pass

    end = time.monotonic() + 0.3

    def go_on() -> None:
        if time.monotonic() > end:
            raise EndedError

    with another_thread(of), pytest.raises(EndedError):
        take(go_on=go_on)
