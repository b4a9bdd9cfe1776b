"""Misses of eager calls: counting, logging, and forging their kernels."""

from __future__ import annotations

import functools
import logging
import threading
from collections import deque
from collections.abc import Callable

from cudaforge_backend import log
from cudaforge_backend._native import _C
from cudaforge_backend.forks import fork_safe_lock
from cudaforge_backend.options import Settings
from cudaforge_backend.records import why_no_kernel
from cudaforge_backend.stats import count_miss

from .ending import may_forge, program_has_ended
from .telling import (
    tell_of_failed_background,
    telling_in_background,
    telling_of_forging,
)

# Called with the region's signature, the architecture and the device's index.
MissCallback = Callable[[_C.Signature, str, int], None]


def on_miss(settings: Settings, queue: Queue | None) -> MissCallback:
    """The callback for the first call of a region without a kernel."""
    forge: MissCallback | None = None
    if settings.on_miss == "blocking":
        forge = functools.partial(_forge_at_once, settings)
    elif queue is not None:
        forge = queue.add

    def missed(signature: _C.Signature, arch: str, device_index: int) -> None:
        key = signature.key
        if log.dispatch.isEnabledFor(logging.DEBUG):
            region, why = signature.describe(), _why(signature, arch)
            log.dispatch.debug("no kernel: %s  %s: %s", key[:12], region, why)
        if _C.store().verdict(key, arch) is None:
            count_miss(key)
        if forge is not None:
            forge(signature, arch, device_index)

    return missed


def _why(signature: _C.Signature, arch: str) -> str:
    """Why calls of a region have no kernel."""
    if why := why_no_kernel(signature.key, arch):
        return why
    refused = signature.why_not_generated(arch)
    return f"only agents make it ({refused})" if refused else "not forged yet"


def _can_forge(signature: _C.Signature, arch: str, settings: Settings) -> bool:
    return settings.agents is not None or signature.why_not_generated(arch) is None


def _forge_at_once(
    settings: Settings, signature: _C.Signature, arch: str, device_index: int
) -> None:
    if not (may_forge() and _can_forge(signature, arch, settings)):
        return
    from .plan import forge_one, verdict_of

    if not verdict_of(signature.key, arch, settings.region_budget_s).is_to_be_forged:
        return  # before a progress line is shown
    what = f"a kernel for {signature.describe()}, at most {settings.region_budget_s:g} s"
    with telling_of_forging(what) as progress:
        forge_one(signature, device_index, settings, progress)


class Queue:
    """Forges the added regions, one at a time, in a thread that ends with the last, into the cache
    that is open when the queue is made."""

    _turn = fork_safe_lock()  # one queue at a time forges

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._store = _C.store()
        self._ended = False
        self._waiting: deque[tuple[_C.Signature, str, int]] = deque()
        self._works = False
        self._lock = fork_safe_lock()  # guards _waiting and _works

    def add(self, signature: _C.Signature, arch: str, device_index: int) -> None:
        """Adds a region."""
        with self._lock:
            if self._ended or not may_forge():
                return
            self._waiting.append((signature, arch, device_index))
            if self._works:
                return
            self._works = True
        try:
            # At its end the program waits for the current step: see forging.py.
            threading.Thread(target=self._work, name="cudaforge-eager", daemon=False).start()
        except Exception:
            with self._lock:
                self._works = False  # the next add() retries
            raise

    def end(self) -> None:
        """Begins no other region. The current one is finished, if the cache stays open."""
        self._ended = True  # one assignment: needs no lock

    def _work(self) -> None:
        while not program_has_ended():
            with self._lock:
                if self._ended or not self._waiting:
                    self._works = False
                    return
                signature, arch, device_index = self._waiting.popleft()
            try:
                with self._turn:
                    self._forge(signature, arch, device_index)
            except Exception as error:
                tell_of_failed_background(error)

    def _forge(self, signature: _C.Signature, arch: str, device_index: int) -> None:
        from .plan import forge_one

        if _can_forge(signature, arch, self._settings):
            _C.flush_eager_misses()  # later, it would be requested despite its record
            with telling_in_background() as progress:
                forge_one(
                    signature,
                    device_index,
                    self._settings,
                    progress,
                    beside_program=True,
                    store=self._store,
                )
