"""What `cudaforge forge` may spend on all its regions together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..agents import Agents

_OPTIONS = {"seconds": "--max-time", "tokens": "--max-tokens", "usd": "--max-usd"}
_LEAST = {"seconds": 0.001, "tokens": 1, "usd": 0}  # less than this is nothing


class Limits:
    """The limits of a command, and what is left of them."""

    def __init__(self, agents: Agents, whole_time: bool) -> None:
        """`whole_time`: the seconds of `agents` are for all regions, not for each."""
        self._agents = agents
        shared = {"seconds": whole_time, "tokens": agents.tokens > 0, "usd": agents.usd > 0}
        self._left: dict[str, Any] = {
            name: getattr(agents, name) for name, is_shared in shared.items() if is_shared
        }
        self.spent = ""  # the option whose limit leaves too little for another region
        self._is_whole = True  # nothing was spent yet

    def for_region(self) -> Agents:
        """What the next region may spend. REQUIRES: no limit is spent."""
        return replace(self._agents, **self._left)

    def are_too_little(self, limit: str) -> bool:
        """Whether the setting that left a region no room for a call did so because of what the
        regions before it have spent."""
        return limit in self._left and not self._is_whole

    def charge(self, ledger: Mapping[str, Any], limit: str) -> None:
        """Takes off what a region cost. `limit`: its setting that left no room for a call, if any
        did."""
        tokens = ledger["input_tokens"] + ledger["output_tokens"]
        usd = ledger["usd"] + ledger["replayed_usd"]  # so that a recording ends where it did
        cost = {"seconds": ledger["wall_seconds"], "tokens": tokens, "usd": usd}
        self._is_whole = self._is_whole and tokens == 0
        for name in self._left:
            self._left[name] -= cost[name]
            if limit == name or self._left[name] <= 0 or self._left[name] < _LEAST[name]:
                self.spent = self.spent or _OPTIONS[name]
