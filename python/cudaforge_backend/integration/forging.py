"""Forging of one region: search in C++, then the race against ATen and Inductor, then the record."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .._native import _C
from ..stats import count_forging, warn_once
from . import rivals

Progress = Callable[[Mapping[str, Any]], None]

INPUT_SETS = 4  # rotated, so that no contestant finds its last inputs in a cache
RACE_SECONDS = 4.0  # at most, of each race
MAX_CANDIDATES = 64
_QUEUED_CYCLES = 2_000_000  # about 1 ms of GPU clock: the host is ahead when the timed work starts

_locks_guard = threading.Lock()
_locks: dict[tuple[str, str], threading.Lock] = {}


@dataclass(frozen=True)
class Forged:
    """What became of one region."""

    key: str
    kind: str  # "winner" or "negative"
    reason: str  # why there is no winner, "" where there is one
    from_cache: bool
    seconds: float


def forge_region(
    signature: str,
    device_index: int,
    budget_s: float,
    progress: Progress | None = None,
    compile_lock: bool = False,
) -> Forged:
    """Makes or finds the record of a region, and installs its winner in this process.

    `signature` is canonical. One thread at a time forges a key; a second finds its record. With
    `compile_lock`, Inductor runs under Dynamo's lock (a thread beside the program's own needs that; a
    thread that a compilation waits for must not ask for it). Runs in a thread of its own, so that no
    tracing state of the caller's is in force. Raises ForgeError's causes as they come."""
    key = _C.signature_key(signature)
    arch = _C.arch(json.loads(signature)["device"], device_index)
    with _locks_guard:
        lock = _locks.setdefault((key, arch), threading.Lock())
    with lock:
        known = _C.store().get(key, arch)
        if known is not None:
            return Forged(key, known["kind"], _reason(known), True, 0.0)
        return _in_clean_thread(
            lambda: _Forge(signature, key, arch, device_index, budget_s, progress, compile_lock).run()
        )


def _reason(record: Mapping[str, Any]) -> str:
    return str((record.get("provenance") or {}).get("reason", ""))


def _in_clean_thread(work: Callable[[], Forged]) -> Forged:
    result: list[Forged] = []
    failure: list[BaseException] = []

    def body() -> None:
        try:
            with torch.no_grad():
                result.append(work())
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=body, name="cudaforge-forge", daemon=True)
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return result[0]


class _Forge:
    def __init__(
        self,
        signature: str,
        key: str,
        arch: str,
        device_index: int,
        budget_s: float,
        progress: Progress | None,
        compile_lock: bool,
    ) -> None:
        self.signature = signature
        self.key = key
        self.arch = arch
        self.device = rivals.device_of(signature, device_index)
        self.device_index = device_index
        self.budget_s = budget_s
        self.progress = progress or (lambda event: None)
        self.compile_lock = compile_lock
        self.region_id = _C.region_id(key)
        self.started = time.monotonic()

    def run(self) -> Forged:
        self.progress({"event": "start", "key": self.key, "ops": _C.describe(self.signature)})
        found = _C.search(
            self.signature, self.device_index, self.budget_s, MAX_CANDIDATES, self._candidate_event
        )
        for node in found["lineage"]:
            _C.store().append_lineage(self.key, self.arch, node)
        if found["candidate"] is None:
            return self._negative(found, found["reason"], {})
        _C.install(self.signature, self.device_index, found["candidate"], found["binary"])
        promoted = False
        try:
            verdict, timing = self._race_all()
            promoted = bool(verdict["promoted"])
        finally:
            if not promoted:
                _C.uninstall(self.signature, self.device_index)
        if not promoted:
            return self._negative(found, verdict["reason"], timing)
        self._put("winner", found, timing, "")
        count_forging("forged")
        return self._end("winner", "", timing)

    def _candidate_event(self, event: Mapping[str, Any]) -> None:
        self.progress({"key": self.key, **event})

    def _race_all(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Against ATen first: Inductor is compiled only for a candidate that beats ATen."""
        winner = rivals.operator_call(self.signature, self.region_id)
        aten = rivals.aten_call(self.signature)
        first = self._race([("winner", winner), ("aten", aten)])
        if not first["promoted"]:
            return first, _timing(first)
        try:
            inductor = self._compile_inductor()
        except Exception as error:  # a region that Inductor cannot compile has one rival less
            warn_once(f"Inductor could not compile {_C.describe(self.signature)}: {error}")
            return first, _timing(first)
        final = self._race([("winner", winner), ("aten", aten), ("inductor", inductor)])
        return final, _timing(final)

    def _compile_inductor(self) -> rivals.Call:
        if not self.compile_lock:
            return rivals.inductor_call(self.signature, self.device)
        from torch._dynamo.convert_frame import compile_lock

        with compile_lock:
            return rivals.inductor_call(self.signature, self.device)

    def _race(self, contestants: Sequence[tuple[str, rivals.Call]]) -> dict[str, Any]:
        sets = [rivals.make_inputs(self.signature, self.device, seed) for seed in range(INPUT_SETS)]
        for _, call in contestants:
            for inputs in sets:
                call(inputs)

        def sampled(call: rivals.Call) -> Callable[[int], None]:
            def run(sample: int) -> None:
                call(sets[sample % INPUT_SETS])

            return run

        verdict: dict[str, Any] = _C.race(
            [name for name, _ in contestants],
            [sampled(call) for _, call in contestants],
            self.device.type,
            self.device_index,
            min(RACE_SECONDS, self.budget_s),
            cuda_clock(self.device) if self.device.type == "cuda" else None,
        )
        return verdict

    def _negative(self, found: Mapping[str, Any], reason: str, timing: dict[str, Any]) -> Forged:
        self._put("negative", found, timing, reason)
        count_forging("negative")
        return self._end("negative", reason, timing)

    def _put(
        self, kind: str, found: Mapping[str, Any], timing: dict[str, Any], reason: str
    ) -> None:
        winner = kind == "winner"
        provenance = {
            "author": found["author"] if winner else "",
            "candidates": len(found["lineage"]),
            "created": int(time.time()),
            "reason": reason,
            "seconds": time.monotonic() - self.started,
        }
        _C.store().put(
            {
                "kind": kind,
                "key": self.key,
                "arch": self.arch,
                "signature": json.loads(self.signature),
                "candidate": found["candidate"] if winner else None,
                "verification": found["verification"],
                "timing": timing,
                "provenance": provenance,
                "versions": _C.versions(),
            },
            found["binary"] if winner else b"",
        )
        _C.store().remove_wanted(self.key, self.arch)

    def _end(self, kind: str, reason: str, timing: dict[str, Any]) -> Forged:
        seconds = time.monotonic() - self.started
        self.progress(
            {"event": "end", "key": self.key, "kind": kind, "reason": reason, "timing": timing}
            | {"ops": _C.describe(self.signature), "seconds": seconds}
        )
        return Forged(self.key, kind, reason, False, seconds)


def _timing(verdict: Mapping[str, Any]) -> dict[str, Any]:
    """The record's timing out of a race: medians in microseconds, and the speed-up's interval."""
    medians = verdict["median_ns"]
    return {
        "aten_us": medians["aten"] / 1e3,
        "inductor_us": medians["inductor"] / 1e3 if "inductor" in medians else None,
        "winner_us": medians["winner"] / 1e3,
        "best_rival": verdict["best_rival"],
        "speedup": verdict["speedup"],
    }


def cuda_clock(device: torch.device) -> Callable[[Callable[[], None]], float]:
    """Nanoseconds of device time for one call of work, caches cold: events behind enough queued work
    that the host's own time does not show."""
    properties = torch.cuda.get_device_properties(device)
    evict = torch.empty(2 * properties.L2_cache_size + (64 << 20), dtype=torch.uint8, device=device)
    begin = torch.cuda.Event(enable_timing=True)
    end = torch.cuda.Event(enable_timing=True)

    def clock(work: Callable[[], None]) -> float:
        with torch.cuda.device(device):
            torch.cuda._sleep(_QUEUED_CYCLES)
            evict.zero_()
            begin.record()
            work()
            end.record()
            end.synchronize()
            return float(begin.elapsed_time(end)) * 1e6

    return clock
