"""Settings of agents: the Coder writes kernels, the Judge advises, within limits."""

from __future__ import annotations

import importlib.util
import os
import sys
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ._native import _C
from .errors import OptionError

# Default prices; they change, so edit the file. A name matches whole, or a model's dated snapshots;
# other names with the same beginning ("-pro") may cost more.
PRICES = Path(__file__).with_name("prices.json")

_TRITON = Path(__file__).with_name("triton_aot")  # a program of its own

_LIMITS = _C.agent_limits()

# The least and the most of each limit.
_RANGES = {
    "rounds": (1, 2**31 - 1),
    "seconds": (0.001, 10**12),
    "tokens": (0, 2**63 - 1),
    "usd": (0, 10**12),
}

Hints = Callable[[], list[str]]  # a person's new hints since the last call


@dataclass(frozen=True)
class Agents:
    """The agents' session for one region. coder, judge: providers such as "openai:MODEL"
    (`cudaforge forge --help` lists them). Without a judge the coder sees verdicts and measurements
    only. The first limit that is reached ends the session; 0 tokens or dollars: no limit."""

    coder: str
    judge: str = ""
    language: str = ""  # "triton" (must be installed); "": CUDA C++, on a CPU C++
    strategy: str = _C.strategies()[0]  # which kernel the next round starts from
    metrics: bool = True  # hardware counters in the prompts
    rounds: int = _LIMITS["rounds"]
    seconds: float = _LIMITS["seconds"]
    tokens: int = _LIMITS["tokens"]
    usd: float = _LIMITS["usd"]
    prices_file: str = str(PRICES)
    resume: bool = True  # continue an interrupted session
    # Keys for HTTP providers. "": CUDAFORGE_CODER_API_KEY and CUDAFORGE_JUDGE_API_KEY, or else the
    # provider's own variable.
    coder_key: str = field(default="", repr=False)
    judge_key: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        if not self.coder:
            raise OptionError("there is no coder; it takes a provider such as openai:MODEL")
        for name, (least, most) in _RANGES.items():
            value = getattr(self, name)
            whole = name in ("rounds", "tokens")
            if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
                raise OptionError(f"{name} is {value!r}; it takes a {'whole ' * whole}number")
            if not value >= least:
                kind = "a number above 0" if least else "0 (no limit) or more"
                raise OptionError(f"{name} is {value}; it takes {kind}")
            if value > most:
                raise OptionError(f"{name} is too large; it takes at most {most}")
        for name in ("metrics", "resume"):
            if not isinstance(getattr(self, name), bool):
                raise OptionError(f"{name} is {getattr(self, name)!r}; it takes True or False")
        if self.language not in ("", "triton"):
            raise OptionError(f'language is {self.language!r}; it takes "" or "triton"')
        if self.language and importlib.util.find_spec("triton") is None:
            raise OptionError("language is 'triton', which is not installed: pip install triton")
        for name in ("coder", "judge", "strategy", "prices_file"):
            if not isinstance(getattr(self, name), str):
                raise OptionError(f"{name} is {getattr(self, name)!r}; it takes a text")
        for name in ("coder_key", "judge_key"):
            if not isinstance(getattr(self, name), str):
                raise OptionError(f"{name} is no text")

    def settings(self) -> dict[str, Any]:
        """As a dict for _C.forge_region."""
        variables = _C.provider_variables()
        environment = {name: os.environ[name] for name in variables if name in os.environ}
        return {
            **asdict(self),
            "coder_key": self.coder_key or os.environ.get("CUDAFORGE_CODER_API_KEY", ""),
            "judge_key": self.judge_key or os.environ.get("CUDAFORGE_JUDGE_API_KEY", ""),
            "session": uuid.uuid4().hex,
            "environment": environment,
            "triton": [sys.executable, "-I", str(_TRITON)] if self.language else [],
        }
