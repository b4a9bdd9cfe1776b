"""Forging of one region in this program: the forge itself is C++ (csrc/forge/region.h), Inductor
and the clocks are Python's."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from cudaforge_backend import log
from cudaforge_backend._native import _C
from cudaforge_backend.agents import Agents, Hints
from cudaforge_backend.forks import fork_safe_lock
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
SEARCH_SECONDS: float | None = None  # for their search; None: all that the races leave
_LOOKS_SECONDS = 0.2  # how often who waits looks for signals, and whether the program has ended

# Inductor's that say nothing of the region; a warning, where the program makes errors of them.
_MACHINES_ERRORS = (ImportError, OSError, MemoryError, Warning)

_locks_guard = fork_safe_lock()
_locks: dict[Place, Any] = {}


class OtherCacheError(Exception):
    """The process uses another cache than the one that a region is forged for."""


@dataclass(frozen=True)
class Forged:
    """What became of one region."""

    key: str
    # Of a record, or "skipped": little can be gained. "negative" too where the kernel of a forging
    # was not stored.
    kind: str
    reason: str  # why it is no winner, "" where it is one
    spent: Mapping[str, float] = field(
        default_factory=dict
    )  # seconds by phase, where it was forged


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

    `budget_s` bounds the whole: search, Inductor's compilation and races,
    but not the waiting for what other threads compile (inductors_turn.py), nor Inductor's first
    compilation in a process. A step is not begun if it is expected to end later, by what the same
    step took before. `within` is a larger region that this one is a part of: a
    part must win inside it too, where Inductor may fuse what the part leaves out. `agents` write
    kernels after the generators have, within limits of their own. `again`: also where there is a
    record. `store`: the cache that the record is for; OtherCacheError where that is not in use, or
    no longer at a later step. None: the record goes to the one in use at the end. `beside_program`:
    no thread of the program waits for this, which may keep the processor busy meanwhile.
    `in_graph`: it is one of a graph, not forged where little can be gained by it (headroom.py);
    NoTimeLeftError is raised where the graph's time does not suffice.

    One thread at a time forges a key; a second finds its record. Runs in a thread of its own, so
    that no tracing state of the caller's is in force. Raises what forging raises: RuntimeError for
    what this machine lacks, what Inductor ends with where that says nothing of the region
    (ImportError, OSError, MemoryError, also inside an error of Inductor's), ForgingEndedError."""
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
        # Of the processes that have the cache in use, such as those of torchrun, one forges it.
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
    """What the cache has of a region, None where that is to be forged."""
    known = _C.store().verdict(key, arch)
    if known is None or known["stale"] or worth_more_time(known, budget_s):
        return None
    return Forged(key, known["kind"], reason_of(known))


def _wait_for_others(
    key: str, arch: str, budget_s: float, together: Together | None
) -> _C.RegionLock | None:
    """Waits until no other process forges the region: of a graph as long as that has time, else as
    long as forging it may take. None: one still does."""
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
    """Whether a negative entry came of too little time, and there is now clearly more of it or that
    was more than a day ago: the machine may have been busy then."""
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

    # Not a daemon: the interpreter would end while it is in C++, and that aborts the process.
    thread = threading.Thread(target=body, name="cudaforge-forge", daemon=False)
    try:
        thread.start()
        while not ended.wait(_LOOKS_SECONDS):
            if program_has_ended():
                _wait_for_step(ended, "the program has ended")
    except BaseException:  # Ctrl-C: the key is kept until the thread has ended, or a second Ctrl-C
        forge.interrupt()
        if thread.is_alive():
            _wait_for_step(ended, "interrupted")
        raise
    thread.join()
    if failure and program_has_ended():  # which takes threads and more away from what runs
        raise ForgingEndedError from failure[0]
    if failure:
        raise failure[0]
    return result[0]


def _wait_for_step(ended: threading.Event, why: str) -> None:
    """Waits for a forging that ends at its next step; says so where that takes long."""
    if not ended.wait(1.0):
        log.forge.warning(
            "cudaforge: %s; the step under way is finished first (where Inductor compiles, up to "
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
        self._before: dict[str, float] = {}  # seconds by phase, before the forge in C++ began
        self._waited_s = 0.0  # for other threads' compilations
        self._cancel = _C.Cancel() if self.together is None else self.together.cancel
        self._by_inductor: rivals.Call | None = None  # the region itself, once it was compiled

    def interrupt(self) -> None:
        """Has another thread's forging end: soon, and with all kept that is found."""
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
        for phase, seconds in self._before.items():
            spent[phase] = spent.get(phase, 0.0) + seconds
        return Forged(self.key, end["kind"], end["reason"], spent)

    def _why_little(self) -> str:
        """Why nothing is to be gained by a kernel, "" where something may be. What cannot be
        measured is no reason."""
        if self.in_graph is None or self.together is None:
            return ""
        # Beside a product, a convolution or attention Inductor does what ATen does, but for a part
        # of the time that is small; of other regions its time decides, and is waited for.
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
            self._before["rival"] = time.monotonic() - began - (self._waited_s - waited)
        turn = self.take_turn(race=True)
        began = time.monotonic()
        try:
            floor_us = headroom.floor_us(self.signature, self.device, self.arch)
            us = headroom.rival_us(self.signature, self.device, calls)
        except torch.OutOfMemoryError:
            return ""
        finally:
            self._before["race"] = time.monotonic() - began
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
        """NoTimeLeftError where the graph's time does not suffice any more."""
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
        """Whether the program beside which this runs keeps the processor busy: a kernel of one
        thread then looks faster than those of PyTorch, whose threads wait for each other."""
        return self.beside_program and self.device.type == "cpu" and program_is_busy()
