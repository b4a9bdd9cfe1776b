"""Forging of one region: search in C++, then the race against ATen and Inductor, then the
record."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from cudaforge_backend import log
from cudaforge_backend._native import _C
from cudaforge_backend.agents import Agents, Hints
from cudaforge_backend.forks import Flag, fork_safe_lock
from cudaforge_backend.options import RACING_SECONDS, RACING_SHARE
from cudaforge_backend.records import (
    DOUBTFUL,
    reason_of,
    retry_above_s,
    speedup_text,
    stayed,
    verdict,
)
from cudaforge_backend.stats import count_agent_call, count_forging, warn_once
from cudaforge_backend.steps import step_text

from . import rivals
from .clocks import cuda_clock, program_is_busy
from .ending import ForgingEndedError, may_forge, program_has_ended
from .inductors_turn import Place, compilation_waits_for, inductors_turn, within_compilation
from .telling import Progress

INPUT_SETS = 4  # rotated, so that no contestant finds its last inputs in a cache
RACE_SECONDS = 1.0  # at most, of each race
MAX_CANDIDATES = 64
_LEAST_ROUNDS = 32  # of a race that a kernel wins (csrc/measure/paired.h)
_SIGNALS_SECONDS = 0.2  # a signal that another thread was given is seen after so long at most

# Inductor's that say nothing of the region; a warning, where the program makes errors of them.
_MACHINES_ERRORS = (ImportError, OSError, MemoryError, Warning)

_locks_guard = fork_safe_lock()
_locks: dict[Place, Any] = {}


class OtherCacheError(Exception):
    """The process uses another cache than the one that a region is forged for."""


class _NoTimeLeft(Exception):
    """A step was not begun, as it would end after the region's budget."""


@dataclass(frozen=True)
class Forged:
    """What became of one region."""

    key: str
    kind: str  # of a record; of a forging "negative" too where its kernel was not stored
    reason: str  # why it is no winner, "" where it is one


def forge_region(
    signature: str,
    device_index: int,
    budget_s: float,
    progress: Progress | None = None,
    *,
    beside_program: bool = False,
    within: str = "",
    agents: Agents | None = None,
    hints: Hints | None = None,
    again: bool = False,
    store: _C.KernelStore | None = None,
) -> Forged:
    """Makes or finds the record of a region, and installs its winner in this process.

    `signature` is canonical. `budget_s` bounds the whole: search, Inductor's compilation and races,
    but not the waiting for what other threads compile (inductors_turn.py), nor Inductor's first
    compilation in a process. A step is not begun if it is expected to end later, by what the same
    step took before. `within` is the signature of a larger region that this one is a part of: a
    part must win inside it too, where Inductor may fuse what the part leaves out. `agents` write
    kernels after the generators have, within limits of their own. `again`: also where there is a
    record. `store`: the cache that the record is for; OtherCacheError where that is not in use, or
    no longer at a later step. None: the record goes to the one in use at the end. `beside_program`:
    no thread of the program waits for this, which may keep the processor busy meanwhile.

    One thread at a time forges a key; a second finds its record. Runs in a thread of its own, so
    that no tracing state of the caller's is in force. Raises what forging raises: RuntimeError for
    what this machine lacks, what Inductor ends with where that says nothing of the region
    (ImportError, OSError, MemoryError, also inside an error of Inductor's), ForgingEndedError."""
    if not may_forge():
        raise ForgingEndedError
    key = _C.signature_key(signature)
    arch = _C.arch(json.loads(signature)["device"], device_index)
    place = (key, arch)
    with _locks_guard:
        lock = _locks.setdefault(place, fork_safe_lock())
    with contextlib.ExitStack() as waiting:
        if within_compilation():
            waiting.enter_context(compilation_waits_for(place))
        with lock:
            known = _C.store().verdict(key, arch)
            if known is not None and not again and not worth_more_time(known, budget_s):
                return Forged(key, known["kind"], reason_of(known))
            if not again and _C.store().doubted_lately(key, arch):
                return Forged(key, "negative", DOUBTFUL)
            return _in_clean_thread(
                _Forge(
                    signature=signature,
                    key=key,
                    arch=arch,
                    device_index=device_index,
                    budget_s=budget_s,
                    listener=progress,
                    beside_program=beside_program,
                    within=within,
                    agents=agents,
                    hints=hints,
                    store=store,
                )
            )


def worth_more_time(record: Mapping[str, Any], budget_s: float) -> bool:
    """Whether a negative entry came of too little time and there is now clearly more of it."""
    above = retry_above_s(record)
    return above is not None and budget_s > above


def _in_clean_thread(forge: _Forge) -> Forged:
    if program_has_ended():
        raise ForgingEndedError
    result: list[Forged] = []
    failure: list[BaseException] = []
    ended = Flag()

    def body() -> None:
        try:
            with torch.no_grad(), _C.OwnWork():
                result.append(forge.run())
        except BaseException as error:
            failure.append(error)
        finally:
            ended.set()

    # Not a daemon: the interpreter would end while it is in C++, and that aborts the process.
    thread = threading.Thread(target=body, name="cudaforge-forge", daemon=False)
    try:
        thread.start()
        if not _wait(thread, ended, until_program_ends=True):
            _wait_for_step(thread, ended, "the program has ended")
    except BaseException:  # Ctrl-C: the key is kept until the thread has ended, or a second Ctrl-C
        forge.interrupt()
        with contextlib.suppress(ForgingEndedError):
            _wait_for_step(thread, ended, "interrupted")
        raise
    thread.join()
    if failure and program_has_ended():  # which takes threads and more away from what runs
        raise ForgingEndedError from failure[0]
    if failure:
        raise failure[0]
    return result[0]


def _wait_for_step(thread: threading.Thread, ended: Flag, why: str) -> None:
    """Waits for a forging that ends at its next step; says so where that takes long."""
    if not _wait(thread, ended, 1.0):
        log.forge.warning(
            "cudaforge: %s; the step under way is finished first (where Inductor compiles, up to "
            "half a minute on a CPU)",
            why,
        )
        _wait(thread, ended)


def _wait(
    thread: threading.Thread,
    ended: Flag,
    seconds: float = math.inf,
    until_program_ends: bool = False,
) -> bool:
    """Whether a thread, which sets `ended` last, has ended. Waits `seconds` at most, and with
    `until_program_ends` no longer than the program runs. Raises ForgingEndedError where there is no
    such thread: in a child that a signal's handler has forked, or where an interrupt came and it
    has not begun."""
    until = time.monotonic() + seconds
    while not ended.wait(min(_SIGNALS_SECONDS, max(0.0, until - time.monotonic()))):
        if not thread.is_alive() and not ended.is_set():
            raise ForgingEndedError
        if time.monotonic() >= until or (until_program_ends and program_has_ended()):
            return ended.is_set()
    return True


@dataclass(kw_only=True, eq=False)
class _Forge:
    """The forging of one region, from now on; see forge_region."""

    signature: str
    key: str
    arch: str
    device_index: int
    budget_s: float
    listener: Progress | None
    beside_program: bool
    within: str
    agents: Agents | None = None
    hints: Hints | None = None
    store: _C.KernelStore | None = None
    stop: bool = False  # set by another thread: the forging ends at its next step

    def __post_init__(self) -> None:
        self.text = _C.describe(self.signature)
        self.device = rivals.signature_device(self.signature, self.device_index)
        self.region_id = _C.region_id(self.key)
        self.started = time.monotonic()
        self._agents_seconds = 0.0  # within limits of their own, not the region's
        self._others_seconds = 0.0  # of waiting for other threads' compilations
        self._was_busy = False
        self._unbounded = False  # nothing is left undone for want of time
        self._cancel = _C.Cancel()

    def interrupt(self) -> None:
        """Has another thread's forging end: soon, and with all kept that is found."""
        self.stop = True
        self._cancel.set()

    def run(self) -> Forged:
        self.progress({"event": "start", "key": self.key, "arch": self.arch, "region": self.text})
        outcome = self._search()
        if self.agents is not None:
            outcome = self._ask(self.agents, outcome)
        assert outcome is not None  # a region that no generator makes is forged by agents alone
        if outcome.found:
            with self._on_trial(outcome) as trial:
                self._look_at_program()
                promotion = self._race_all()
                self._look_at_program()
                end = self._conclude(outcome, promotion)
                if promotion is not None and (promotion.promoted or end["kind"] == "winner"):
                    trial.promote(promotion.promoted, promotion.eager)
        else:
            end = self._conclude(outcome, None)
        count_forging("forged" if end["kind"] == "winner" else end["kind"])
        self.progress(end)
        return Forged(self.key, end["kind"], end["reason"])

    def _search(self) -> _C.SearchOutcome | None:
        """What the generators find; None where they cannot make the region."""
        if _C.can_generate(self.signature, self.arch) is not None and self.agents is not None:
            return None
        return _C.search(
            self.signature,
            self.device_index,
            self.budget_s - min(RACING_SECONDS, RACING_SHARE * self.budget_s),
            self.budget_s,
            MAX_CANDIDATES,
            self._candidate_event,
        )

    def _ask(self, agents: Agents, built_in: _C.SearchOutcome | None) -> _C.SearchOutcome:
        """What the agents come to, who begin with what the generators found."""
        began, others = time.monotonic(), self._others_seconds
        self._unbounded = True  # until the agents have ended
        self._stage("rivals")
        rival, us = self._fastest_rival(built_in if built_in and built_in.found else None)
        found = _C.agents(
            self.signature,
            self.device_index,
            agents.settings(rival, us),
            built_in,
            self._cancel,
            self.hints,
            self._candidate_event,
        )
        self._end_if_asked()
        self._agents_seconds = time.monotonic() - began - (self._others_seconds - others)
        self._unbounded = False
        return found

    def _fastest_rival(self, built_in: _C.SearchOutcome | None) -> tuple[str, float]:
        """What there is to beat and its microseconds: ATen, Inductor or the generators' kernel."""
        contestants = [("aten", rivals.aten_call(self.signature)), *self._inductor(self.signature)]
        with contextlib.ExitStack() as on_trial:
            if built_in is not None:
                on_trial.enter_context(self._on_trial(built_in))
                call = rivals.operator_call(self.signature, self.region_id)
                contestants.insert(0, ("built-in", call))
            if len(contestants) == 1:  # Inductor cannot compile it: a race takes two
                contestants.append(contestants[0])
            times = self._race(contestants, self.signature).times_us()
        return min(zip([name for name, _ in contestants], times, strict=True), key=lambda t: t[1])

    def _on_trial(self, outcome: _C.SearchOutcome) -> _C.KernelOnTrial:
        """While it is entered, the operator runs what was found, in this thread alone."""
        return _C.KernelOnTrial(self.signature, self.device_index, outcome)

    def _conclude(
        self, outcome: _C.SearchOutcome, promotion: _C.Promotion | None
    ) -> dict[str, Any]:
        """Stores the record; the event "end"."""
        self._check_store()
        made, stored = _C.conclude(
            self.signature,
            self.device_index,
            outcome,
            promotion,
            self.budget_s,
            self._seconds(),
            self._was_busy,
        )
        there = None if stored else _C.store().get(self.key, self.arch)
        kept = there if there is not None and "compiled" in there["serves"] else None
        event: dict[str, Any] = {
            "event": "end",
            "key": self.key,
            "region": self.text,
            "kind": made["kind"] if kept is None else "negative",
            "serves": made["serves"] if kept is None else [],
            "verdict": verdict(made),
            "reason": reason_of(made),
            "timing": made["timing"],
            "seconds": self._seconds(),
            "kept": None if kept is None else stayed(kept),
        }
        if kept is not None and made["kind"] != "negative":
            event["verdict"] = "not faster than the kernel in the cache"
            event["reason"] = speedup_text(made["timing"], made["serves"])
        return event

    def _seconds(self) -> float:
        return time.monotonic() - self.started

    def _left(self) -> float:
        return self.budget_s - (self._seconds() - self._agents_seconds - self._others_seconds)

    def _check_time(self, takes_s: float) -> None:
        """Raises _NoTimeLeft where a step that takes so long would end after the budget."""
        if not self._unbounded and self._left() <= takes_s:
            raise _NoTimeLeft

    def progress(self, event: Mapping[str, Any]) -> None:
        self._end_if_asked()
        if log.forge.isEnabledFor(logging.DEBUG):
            log.forge.debug("%s %s", self.key[:12], step_text(event))
        if self.listener is not None:
            self.listener(event)

    def _stage(self, name: str, **more: str) -> None:
        self.progress({"event": "stage", "key": self.key, "stage": name, **more})

    def _end_if_asked(self) -> None:
        if self.stop or program_has_ended():
            raise ForgingEndedError
        self._check_store()

    def _check_store(self) -> None:
        if self.store is not None and _C.store() is not self.store:
            raise OtherCacheError

    def _candidate_event(self, event: Mapping[str, Any]) -> None:
        if event["event"] == "call":
            count_agent_call(event)
        self.progress({"key": self.key, **event})

    def _race_all(self) -> _C.Promotion | None:
        """The race against ATen and Inductor, and, for a part that wins it, the one inside the
        larger region. None where there is no time for all of it."""
        try:
            return self._race_within_time()
        except _NoTimeLeft:
            return None

    def _race_within_time(self) -> _C.Promotion:
        self._end_if_asked()
        self._check_time(0.0)
        contestants = [
            ("winner", rivals.operator_call(self.signature, self.region_id)),
            ("aten", rivals.aten_call(self.signature)),
        ]
        self._stage("compile")
        contestants += self._inductor(self.signature)
        self._stage("race")
        alone = self._race(contestants, self.signature)
        if not (alone.promoted and self.within):
            return alone
        self._end_if_asked()
        self._check_time(0.0)
        return alone.placed_in(_C.signature_key(self.within), self._race_within())

    def _race_within(self) -> _C.Promotion:
        """The larger region by Inductor with this part replaced, by ATen and by Inductor."""
        whole = self.within
        self._stage("compile", within=_C.signature_key(whole))
        winner = self._compile(lambda: rivals.inductor_call(whole, self.device, self.key))
        contestants = [("winner", winner), ("aten", rivals.aten_call(whole))]
        contestants += self._inductor(whole)
        self._stage("race", within=_C.signature_key(whole))
        return self._race(contestants, whole)

    def _inductor(self, signature: str) -> list[tuple[str, rivals.Call]]:
        """Inductor's kernel for a region as a contestant; none where it cannot compile the region,
        which then has one rival less. Raises what says nothing of the region."""
        try:
            call = self._compile(lambda: rivals.inductor_call(signature, self.device))
        except _NoTimeLeft:
            raise
        except Exception as error:
            self._end_if_asked()  # a program that ends lets Inductor start no threads
            if isinstance(getattr(error, "inner_exception", error), _MACHINES_ERRORS):
                raise
            warn_once(f"Inductor could not compile {_C.describe(signature)}: {error}")
            return []
        return [("inductor", call)]

    def _compile(self, make: Callable[[], rivals.Call]) -> rivals.Call:
        """A contestant that Inductor makes. Waiting takes no time of the region's; where the
        program waits for the forging, it is taken off what Dynamo's lock is waited for, which is
        the region's budget at most."""
        with inductors_turn(
            (self.key, self.arch),
            most_s=None if self.beside_program else self.budget_s - self._others_seconds,
            go_on=self._end_if_asked,
        ) as waited:
            self._others_seconds += waited + rivals.first_compilation(self.device)
            self._check_time(rivals.compile_seconds(self.device))
            return rivals.timed(self.device, make)

    def _race(
        self,
        contestants: Sequence[tuple[str, rivals.Call]],
        signature: str,
    ) -> _C.Promotion:
        # An eager call may be all of a region of one operator, and is served by what is raced.
        one_call = contestants[0][0] == "winner" and len(json.loads(signature)["nodes"]) == 1
        sets = [rivals.make_inputs(signature, self.device, seed) for seed in range(INPUT_SETS)]
        for index, inputs in enumerate(sets):
            began = time.monotonic()
            for _, call in contestants:
                call(inputs)
            rivals.synchronize(self.device)
            if index == 1:  # the first calls load kernels and choose among Inductor's
                self._check_time((time.monotonic() - began) * (INPUT_SETS - 2 + _LEAST_ROUNDS))

        def sampled(call: rivals.Call) -> Callable[[int], None]:
            def run(sample: int) -> None:
                call(sets[sample % INPUT_SETS])

            return run

        return _C.race(
            [name for name, _ in contestants],
            [sampled(call) for _, call in contestants],
            self.device.type,
            self.device_index,
            min(RACE_SECONDS, max(self._left(), 0.0)),
            cuda_clock(self.device) if self.device.type == "cuda" else None,
            one_call,
        )

    def _look_at_program(self) -> None:
        """Notes whether the program beside which this runs keeps the processor busy: a kernel of
        one thread then looks faster than those of PyTorch, whose threads wait for each other."""
        if self.beside_program and self.device.type == "cpu":
            self._was_busy = self._was_busy or program_is_busy()
