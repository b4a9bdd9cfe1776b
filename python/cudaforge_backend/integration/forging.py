"""Forges one region in this process. The search is C++ (csrc/forge/region.h); Inductor and the
clocks are Python."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from cudaforge_backend import log
from cudaforge_backend._native import _C
from cudaforge_backend.agents import Agents, Hints
from cudaforge_backend.forks import fork_safe_lock
from cudaforge_backend.reasons import Phase
from cudaforge_backend.records import (
    reason_of,
    retry_above_s,
    speedup_text,
    stayed,
    verdict,
    why_code,
)
from cudaforge_backend.stats import count_agent_call, count_forging, warn_once
from cudaforge_backend.steps import step_text

from . import headroom, rivals
from .clocks import DAY_S, Clock, cuda_clock, program_is_busy
from .ending import ForgingEndedError, may_forge, program_has_ended
from .inductors_turn import (
    Place,
    compilation_waits_for,
    inductors_turn,
    no_compilation,
    within_compilation,
)
from .room import leave_room, require_room
from .telling import Progress, making_region, tell
from .together import ElsewhereError, InGraph, NoTimeLeftError, Together, Turn

MAX_CANDIDATES = 64  # of the generators
SEARCH_SECONDS: float | None = None  # for their search; None: all but the time for races
_LOOKS_SECONDS = 0.2  # a waiting thread polls this often for signals and the program's end

# Errors of Inductor that are about the machine, not the region. Warning: for -W error.
_MACHINES_ERRORS = (ImportError, OSError, MemoryError, Warning)

_locks_guard = fork_safe_lock()
_locks: dict[Place, Any] = {}


class OtherCacheError(Exception):
    """The process no longer uses the cache that the region is forged for."""


@dataclass(frozen=True)
class Forged:
    """The result of forging one region."""

    key: str
    kind: str  # "winner", "negative" (also: its kernel was not stored), "skipped" (little to gain)
    reason: str  # why there is no winner; "" for a winner
    spent: Mapping[Phase, float] = field(default_factory=dict)  # seconds


def forge_region(
    signature: _C.Signature,
    device_index: int,
    budget_s: float,
    progress: Progress | None = None,
    *,
    beside_program: bool = False,
    within: _C.Signature | None = None,
    agents: Agents | None = None,
    hints: Hints | None = None,
    again: bool = False,
    store: _C.KernelStore | None = None,
    in_graph: InGraph | None = None,
) -> Forged:
    """Makes or finds the record of a region, and installs its winner in this process.

    budget_s: seconds for search, Inductor's compilation and races. A step that is expected to end
        later is not begun. Not counted: waiting for compilations of other threads
        (inductors_turn.py), and Inductor's first compilation in a process.
    beside_program: no thread of the program waits; the program may keep the processor busy.
    within: the larger region that this is a part of. The part must win inside it, too, because
        Inductor may fuse the rest.
    agents: write kernels after the generators, within limits of their own.
    `again`: forge even if there is a record.
    store: the cache for the record; None: the one in use at the end. OtherCacheError: it is no
        longer in use.
    in_graph: not forged if little can be gained (headroom.py). NoTimeLeftError: the graph's budget
        is too short.

    One thread at a time forges a key; a second one finds its record. Runs in a thread of its own,
    free of the caller's tracing state. Raises RuntimeError for something that this machine lacks;
    ImportError, OSError, MemoryError from Inductor; ForgingEndedError."""
    if not may_forge():
        raise ForgingEndedError
    key = signature.key
    arch = _C.arch(signature.device, device_index)
    together = None if in_graph is None else in_graph.together
    place = (key, arch)
    with _locks_guard:
        lock = _locks.setdefault(place, fork_safe_lock())
    with contextlib.ExitStack() as waiting:
        if within_compilation() or (together is not None and together.waited_for):
            waiting.enter_context(compilation_waits_for(place))
        waiting.enter_context(lock)
        # One of the processes that share the cache (as under torchrun) forges the region.
        alone = _C.store().lock_region(key, arch, 0.0)
        if alone is not None:
            waiting.callback(alone.release)
        elif not (in_graph is None or in_graph.wait or _known(key, arch, budget_s)):
            raise ElsewhereError
        with making_region(progress, signature, arch, None if agents else budget_s):
            if alone is None and (again or not _known(key, arch, budget_s)):
                alone = _wait_for_others(key, arch, budget_s, together)
                if alone is not None:
                    waiting.callback(alone.release)
            known = None if again else _known(key, arch, budget_s)
            if known is not None:
                return known
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
                    in_graph=in_graph,
                )
            )


def _known(key: str, arch: str, budget_s: float) -> Forged | None:
    """The cache's record of a region; None: forge it."""
    known = _C.store().verdict(key, arch)
    if known is None or known["stale"] or worth_more_time(known, budget_s):
        return None
    return Forged(key, known["kind"], reason_of(known))


def _wait_for_others(
    key: str, arch: str, budget_s: float, together: Together | None
) -> _C.RegionLock | None:
    """Waits until no other process forges the region: as long as the graph has time, or else for
    `budget_s`. None: another process still forges it."""
    began = time.monotonic()
    alone = None
    while alone is None and (together is not None or time.monotonic() - began < budget_s):
        if program_has_ended() or (together is not None and together.stopped):
            raise ForgingEndedError
        if together is not None and together.left_s() < 0:
            raise NoTimeLeftError
        alone = _C.store().lock_region(key, arch, _LOOKS_SECONDS)
    return alone


def worth_more_time(record: Mapping[str, Any], budget_s: float) -> bool:
    """Whether to retry a negative entry that had too little time: there is much more time now, or
    it is more than a day old (the machine may have been busy)."""
    above = retry_above_s(record)
    if above is None:
        return False
    created = (record["provenance"] or {}).get("created", 0)
    return budget_s > above or time.time() - created > DAY_S


def _in_clean_thread(forge: _Forge) -> Forged:
    if program_has_ended():
        raise ForgingEndedError
    result: list[Forged] = []
    failure: list[BaseException] = []
    ended = threading.Event()

    def body() -> None:
        try:
            with torch.no_grad(), _C.OwnWork():
                result.append(forge.run())
        except BaseException as error:
            failure.append(error)
        finally:
            ended.set()

    # Not a daemon: the process aborts if the interpreter ends while a thread runs C++.
    thread = threading.Thread(target=body, name="cudaforge-forge", daemon=False)
    try:
        thread.start()
        while not ended.wait(_LOOKS_SECONDS):
            if program_has_ended():
                _wait_for_step(ended, "the program has ended")
    except BaseException:  # Ctrl-C: keep the key's lock until the thread ends or a second Ctrl-C
        forge.interrupt()
        if thread.is_alive():
            _wait_for_step(ended, "interrupted")
        raise
    thread.join()
    if failure and program_has_ended():  # the interpreter's end makes running work fail
        raise ForgingEndedError from failure[0]
    if failure:
        raise failure[0]
    return result[0]


def _wait_for_step(ended: threading.Event, why: str) -> None:
    """Waits for a forging that ends at its next step; logs a line if that takes over 1 s."""
    if not ended.wait(1.0):
        log.forge.warning(
            "cudaforge: %s; the current step is finished first (where Inductor compiles, up to "
            "half a minute on a CPU)",
            why,
        )
        ended.wait()


@dataclass(kw_only=True, eq=False)
class _Forge:
    """The forging of one region, from now on; see forge_region."""

    signature: _C.Signature
    key: str
    arch: str
    device_index: int
    budget_s: float
    listener: Progress | None
    beside_program: bool
    within: _C.Signature | None
    agents: Agents | None = None
    hints: Hints | None = None
    store: _C.KernelStore | None = None
    in_graph: InGraph | None = None
    stop: bool = False  # set by another thread: the forging ends at its next step

    def __post_init__(self) -> None:
        self.text = self.signature.describe()
        self.together = None if self.in_graph is None else self.in_graph.together
        self.device = rivals.signature_device(self.signature, self.device_index)
        self.started = time.monotonic()
        self._before: dict[Phase, float] = {}  # seconds by phase, before the forge in C++ began
        self._waited_s = 0.0  # for other threads' compilations
        self._cancel = _C.Cancel() if self.together is None else self.together.cancel
        self._by_inductor: rivals.Call | None = None  # the region itself, once it was compiled

    def interrupt(self) -> None:
        """Ends another thread's forging soon; what it found is kept."""
        self.stop = True
        self._cancel.set()

    def run(self) -> Forged:
        try:
            return self._run()
        except NoTimeLeftError as error:
            raise NoTimeLeftError(self._before) from error

    def _run(self) -> Forged:
        if why := self._why_little():
            return Forged(self.key, "skipped", why, self._before)
        self.progress({"event": "start", "key": self.key, "arch": self.arch, "region": self.text})
        if self.together is None or self.together.at_once == 1:  # else when the device is free
            require_room(self.signature, self.device)
        made, stored, spent = _C.forge_region(
            self.signature,
            self.device_index,
            self,
            self.budget_s - sum(self._before.values()),
            MAX_CANDIDATES,
            self._cancel,
            self.within,
            None if self.agents is None else self.agents.settings(),
            self.hints,
            SEARCH_SECONDS,
        )
        end = self._end(made, stored)
        count_forging("forged" if end["kind"] == "winner" else end["kind"])
        self.progress(end)
        seconds = Counter({Phase(phase): s for phase, s in spent.items()})
        seconds.update(self._before)
        return Forged(self.key, end["kind"], end["reason"], seconds)

    def _why_little(self) -> str:
        """Why little can be gained by a kernel; "" if a kernel may pay or this cannot be
        measured."""
        if self.in_graph is None or self.together is None:
            return ""
        # For products, convolutions and attention Inductor mostly calls ATen, so ATen's time is
        # enough. For other regions Inductor's time decides, and we wait for it.
        heavy = not rivals.HEAVY.isdisjoint(self.signature.ops)
        graph_us = self.together.graph_us(None if heavy else self.go_on)
        if heavy and graph_us is None:
            return ""
        self._require_time()
        calls = {"aten": self.aten(self.signature)}
        if not heavy and self.device.type == "cuda":
            began, waited = time.monotonic(), self._waited_s
            call, _, _ = self.inductor(self.signature, "", self.budget_s)
            if call is not None:
                calls["inductor"] = self._by_inductor = call
            self._before[Phase.RIVAL] = time.monotonic() - began - (self._waited_s - waited)
        turn = self.take_turn(race=True)
        began = time.monotonic()
        try:
            floor_us = headroom.floor_us(self.signature, self.device, self.arch)
            us = headroom.rival_us(self.signature, self.device, calls)
        except torch.OutOfMemoryError:
            return ""
        finally:
            self._before[Phase.RACE] = time.monotonic() - began
            if turn is not None:
                turn.end()
        if us is None:
            return ""
        why = headroom.why_little(self.in_graph.times, us, floor_us, graph_us)
        log.forge.debug(
            "%s takes %.1f us, %d times, at least %.1f; its graph %s: %s",
            *(self.key[:12], us, self.in_graph.times, floor_us, graph_us, why or "forged"),
        )
        return why

    def _require_time(self) -> None:
        """NoTimeLeftError: the graph's remaining budget is too short."""
        least_s = min(self.budget_s, rivals.least_seconds(self.device))
        if self.together is not None and self.together.left_s() < least_s:
            raise NoTimeLeftError

    def _end(self, made: dict[str, Any], stored: bool) -> dict[str, Any]:
        """The event "end"."""
        there = None if stored else _C.store().get(self.key, self.arch)
        kept = there if there is not None and "compiled" in there["serves"] else None
        event: dict[str, Any] = {
            "event": "end",
            "key": self.key,
            "region": self.text,
            "kind": made["kind"] if kept is None else "negative",
            "serves": made["serves"] if kept is None else [],
            "verdict": verdict(made),
            "why": why_code(made),
            "reason": reason_of(made),
            "timing": made["timing"],
            "seconds": time.monotonic() - self.started,
            "kept": None if kept is None else stayed(kept),
        }
        if kept is not None and made["kind"] != "negative":
            event["verdict"] = "not faster than the kernel in the cache"
            event["why"] = "not_faster"
            event["reason"] = speedup_text(made["timing"], made["serves"])
        return event

    def progress(self, event: Mapping[str, Any]) -> None:
        self.go_on()
        if log.forge.isEnabledFor(logging.DEBUG):
            log.forge.debug("%s %s", self.key[:12], step_text(event))
        tell(event, self.listener)

    # What the forge in C++ asks of this program: _ForgeHost in _C.pyi.

    def tell(self, event: dict[str, Any]) -> None:
        if event["event"] == "call":
            count_agent_call(event)
        self.progress({"key": self.key, **event})

    def take_turn(self, race: bool) -> Turn | None:
        if self.in_graph is None or self.together is None or self.together.at_once == 1:
            return None
        with contextlib.ExitStack() as held:
            if race:  # by Python's calls, which a compilation in another thread would delay
                held.enter_context(no_compilation(self.go_on))
            held.enter_context(self.together.turns.take(race, self.in_graph.number, self.go_on))
            turn = Turn(held.pop_all(), self.together.left_s())
        if not race:
            try:
                self._require_time()
                require_room(self.signature, self.device)
            except BaseException:
                turn.end()
                raise
        return turn

    def go_on(self) -> None:
        stopped = self.stop or (self.together is not None and self.together.stopped)
        if stopped or program_has_ended():
            raise ForgingEndedError
        if self.store is not None and _C.store() is not self.store:
            raise OtherCacheError

    def inputs(self, signature: _C.Signature, seed: int) -> list[torch.Tensor]:
        if seed == 0:  # the first of a race's
            leave_room(self.device, signature)
        return rivals.make_inputs(signature, self.device, seed)

    def winner(self, signature: _C.Signature) -> rivals.Call:
        return rivals.operator_call(signature, _C.region_id(signature.key))

    def aten(self, signature: _C.Signature) -> rivals.Call:
        return rivals.aten_call(signature)

    def inductor(
        self, signature: _C.Signature, part: str, left_s: float
    ) -> tuple[rivals.Call | None, bool, float]:
        """Nothing for what Inductor leaves to ATen. Waits for its turn, which takes no time of the
        region's; where the program waits for the forging, it is taken off what Dynamo's lock is
        waited for, which is the region's budget at most."""
        if not part and self._by_inductor is not None and signature.key == self.key:
            return self._by_inductor, True, 0.0
        if not part and rivals.is_product_alone(signature, self.arch):
            asked = {} if self.together is None else self.together.inductor
            if not rivals.chooses_kernels(asked):
                return None, True, 0.0
        began = time.monotonic()
        with inductors_turn(
            (self.key, self.arch),
            most_s=None if self.beside_program else self.budget_s - self._waited_s,
            go_on=self.go_on,
        ) as waited:
            waited += rivals.first_compilation(self.device)
            self._waited_s += waited
            left_s -= time.monotonic() - began - waited
            if self.together is not None:
                left_s = min(left_s, self.together.left_s())
            if left_s <= rivals.compile_seconds(self.device):
                return None, False, waited
            try:
                call = rivals.timed(
                    self.device, lambda: rivals.inductor_call(signature, self.device, part)
                )
            except Exception as error:
                self.go_on()  # a program that ends lets Inductor start no threads
                inner = getattr(error, "inner_exception", error)
                if part or isinstance(inner, _MACHINES_ERRORS):
                    raise
                warn_once(f"Inductor could not compile {signature.describe()}: {error}")
                return None, True, waited
        return call, True, waited

    def clock(self) -> Clock | None:
        return cuda_clock(self.device) if self.device.type == "cuda" else None

    def is_busy(self) -> bool:
        """Whether the program keeps the processor busy while this runs. A kernel of one thread then
        looks faster than those of PyTorch, whose threads wait for each other."""
        return self.beside_program and self.device.type == "cpu" and program_is_busy()
