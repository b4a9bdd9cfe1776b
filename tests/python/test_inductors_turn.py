"""Inductor's turn: who waits for whom, how long, and what ends the waiting."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from another_thread import another_thread
from cudaforge_backend._native import _C
from cudaforge_backend.integration import inductors_turn
from cudaforge_backend.integration.inductors_turn import compilation_waits_for, within_compilation
from torch._dynamo.convert_frame import compile_lock

PLACE = ("a key", "an architecture")


def take(
    most_s: float | None = None,
    *,
    has_lock: bool = False,
    go_on: Callable[[], None] = lambda: None,
    place: tuple[str, str] = PLACE,
) -> tuple[bool, float]:
    """Has the turn once: whether Dynamo's lock came with it, and how long that took."""
    turn = inductors_turn.inductors_turn(place, has_lock=has_lock, most_s=most_s, go_on=go_on)
    with turn as waited:
        assert inductors_turn._turn._is_owned()
        return compile_lock._is_owned(), waited


@pytest.fixture(autouse=True)
def _nothing_is_left_held() -> Iterator[None]:
    yield
    with another_thread(compile_lock), another_thread(inductors_turn._turn):
        assert not inductors_turn._waited_for


def test_dynamos_lock_comes_with_the_turn() -> None:
    assert not within_compilation()
    with compile_lock:
        assert within_compilation()
    assert take()[0]
    assert not take(has_lock=True)[0]  # whoever waits for the forging has it


def test_dynamos_lock_is_waited_for() -> None:
    with another_thread(compile_lock) as done:
        threading.Timer(0.3, done.set).start()
        held, waited = take()
    assert held and waited > 0.2


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
            assert not take(0.2, place=("another key", "an architecture"))[0]  # but for its limit
    assert take()[0]


def test_the_turn_is_waited_for() -> None:
    with another_thread(inductors_turn._turn) as done:
        threading.Timer(0.3, done.set).start()
        held, waited = take(0.0)
    assert held and waited > 0.2


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


def test_no_fork_is_made_meanwhile() -> None:
    waits = []

    def fork() -> None:
        begun = time.monotonic()
        _C.before_fork(0.2)
        _C.after_fork_in_parent()
        waits.append(time.monotonic() - begun >= 0.2)

    turn = inductors_turn.inductors_turn(PLACE, has_lock=False, most_s=None, go_on=lambda: None)
    with turn:
        thread = threading.Thread(target=fork)
        thread.start()
        thread.join()
    assert waits == [True]
