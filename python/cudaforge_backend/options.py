"""`mode=` and `options=` of torch.compile, parsed strictly. Options win over the environment."""

from __future__ import annotations

import difflib
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, get_origin

from . import errors
from ._native import _C
from .agents import Agents
from .forks import is_forked_child

MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
ON_MISS = _C.ON_MISS
NO_LIMIT_S = 1e9  # seconds: budgets from here on are none
FORGING = ("background", "blocking")  # of ON_MISS, what forges in the program


@dataclass(frozen=True)
class Settings:
    """What one compilation is asked to do."""

    on_miss: str  # one of ON_MISS
    region_budget_s: float  # seconds for one region
    graph_budget_s: float  # seconds for all regions of one graph that is compiled
    cache_dir: str
    agents: Agents | None  # write kernels in addition to the generators
    frozen_weights: bool  # the program promises not to change its weights: see docs/options.md
    inductor: dict[str, Any]  # Inductor's config patches

    @property
    def records(self) -> bool:
        """Whether what is missing is put on the wanted list: with "background" too, as a program
        may end before it has forged."""
        return self.on_miss in ("record", "background")


OPTIONS = tuple(field.name for field in fields(Settings))


DISABLED = (
    "CUDAFORGE_DISABLE=1 is set: torch.compile with this backend is plain Inductor, eager calls "
    "are not looked up and nothing is forged; unset it"
)


def disabled() -> bool:
    """Whether CUDAFORGE_DISABLE=1 was set when the process read its environment."""
    return bool(_C.config()["disabled"])


def parse(
    mode: str | None, options: Mapping[str, Any] | None, on_miss: str = "blocking"
) -> Settings:
    """Settings out of torch.compile's arguments. `on_miss`: the default, where neither the options
    nor the environment has it. A forked child records what it would forge. Raises OptionError."""
    given = dict(options or {})
    for name in given:
        if name not in OPTIONS:
            raise _unknown_option(str(name))
    environment = _C.config()
    on_miss = _on_miss(given.get("on_miss", environment["on_miss"] or on_miss))

    agents = _agents(given.get("agents"), on_miss, options)
    if on_miss in FORGING and is_forked_child():
        on_miss, agents = "record", None

    def seconds(name: str) -> float:
        return _seconds(name, given.get(name, environment[name]))

    return Settings(
        on_miss=on_miss,
        region_budget_s=seconds("region_budget_s"),
        graph_budget_s=seconds("graph_budget_s"),
        cache_dir=_folder(given.get("cache_dir", environment["cache_dir"]), options),
        agents=agents,
        frozen_weights=_flag("frozen_weights", given.get("frozen_weights", False)),
        inductor={**_mode_patches(mode), **_inductor_patches(given.get("inductor"))},
    )


# By id of the options and relative path. The options are kept alive, so that ids stay unique: one
# entry for each function that is compiled with a relative path.
_ABSOLUTE: dict[tuple[int, str], tuple[Mapping[str, Any] | None, str]] = {}


def _absolute(path: str, options: Mapping[str, Any] | None) -> str:
    """`path`, which `options` name, from the folder that was current when they were first read.

    torch.compile gives the same dict for each graph of a function. The program may have changed its
    folder between two graphs."""
    if not path or Path(path).is_absolute():
        return path and str(Path(path))
    name = (id(options), path)
    if name not in _ABSOLUTE:
        _ABSOLUTE.setdefault(name, (options, str(Path(path).absolute())))
    return _ABSOLUTE[name][1]


def _unknown_option(name: str) -> errors.OptionError:
    from torch._inductor import config

    if name.replace("-", "_") in config.get_config_copy():
        return errors.OptionError(
            f"{name!r} is an option of Inductor's: options={{'inductor': {{{name!r}: ...}}}}"
        )
    return errors.unknown("option", name, OPTIONS)


def _on_miss(value: object) -> str:
    if not isinstance(value, str) or value not in ON_MISS:
        raise errors.unknown("value of option 'on_miss':", value, ON_MISS)
    return value


def _seconds(name: str, value: object) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    try:
        seconds = float(value) if number else math.nan  # type: ignore[arg-type]
        shown = repr(value)
    except OverflowError:  # so large an int may have no decimal text either
        seconds, shown = math.inf, "an integer that no float holds"
    if not math.isfinite(seconds) or seconds <= 0:
        raise errors.OptionError(
            f"option {name!r} is {shown}; it takes a finite number of seconds above 0"
        )
    return seconds


def _flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise errors.OptionError(f"option {name!r} is {value!r}; it takes True or False")
    return value


def _folder(value: object, options: Mapping[str, Any] | None) -> str:
    if not isinstance(value, str) or not value:
        raise errors.OptionError(f"option 'cache_dir' is {value!r}; it takes the path of a folder")
    try:
        named = b"\0" not in os.fsencode(value)
    except UnicodeEncodeError:
        named = False
    if not named:
        raise errors.OptionError(f"option 'cache_dir' is {value!r}, which no folder can be named")
    return _absolute(value, options)


def _shape(value: object) -> str:
    """A value in an error's words; of a dict the keys alone, as it may hold a provider's key."""
    if isinstance(value, Mapping):
        return "a dict of " + (", ".join(map(str, value)) or "nothing")
    return repr(value)


def _agents(value: object, on_miss: str, options: Mapping[str, Any] | None) -> Agents | None:
    if value is None:
        return None
    known = [field.name for field in fields(Agents)]
    for name in value if isinstance(value, Mapping) else ():
        if name not in known:
            raise errors.unknown("key of option 'agents':", name, known)
    if not isinstance(value, Mapping) or "coder" not in value:
        raise errors.OptionError(
            f"option 'agents' is {_shape(value)}; it takes a dict with at least 'coder', such as "
            "{'coder': 'openai:gpt-5', 'judge': 'anthropic:claude-opus-4-5', 'rounds': 5, 'usd': 2}"
        )
    if on_miss not in FORGING:
        raise errors.OptionError(
            f"option 'agents' forges what is missing, and on_miss is {on_miss!r}; give it with "
            "on_miss 'blocking' or 'background'"
        )
    agents = Agents(**value)
    agents = replace(agents, prices_file=_absolute(agents.prices_file, options))
    try:
        _C.check_agents(agents.settings())
    except Exception as error:
        raise errors.OptionError(f"option 'agents': {error}") from error
    return agents


def _mode_patches(mode: str | None) -> dict[str, Any]:
    if mode is None or mode == "default":
        return {}
    if mode not in MODES:
        raise errors.unknown("mode", mode, MODES)
    from torch._inductor import list_mode_options

    return dict(list_mode_options(mode))


def _inductor_patches(value: object) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise errors.OptionError(
            f"option 'inductor' is {value!r}; it takes a dict of Inductor's own options"
        )
    from torch._inductor import config

    known = config.get_config_copy()
    patches = {str(name).replace("-", "_"): item for name, item in value.items()}
    for name in patches:
        if name not in known:
            near = difflib.get_close_matches(name, known)
            raise errors.OptionError(
                f"unknown option of 'inductor' {name!r}"
                + (f"; did you mean {', '.join(near)}?" if near else "")
                + "; torch._inductor.list_options() has them all"
            )
        if name == "post_grad_custom_pre_pass":
            raise errors.OptionError(
                "'post_grad_custom_pre_pass' of Inductor is taken by cudaforge"
            )
        kind = config.get_type(name)  # type: ignore[attr-defined]
        if not _may_be(patches[name], kind):
            given = type(patches[name]).__name__
            raise errors.OptionError(
                f"option {name!r} of 'inductor' is of type {given}; it takes {kind.__name__}"
            )
    return patches


def _may_be(value: object, kind: Any) -> bool:
    """Whether torch.compile's own options would take the value for one of this type. Of generic
    types, and of an option that is None by default, nothing is known."""
    unknown = not isinstance(kind, type) or get_origin(kind) is not None or kind is type(None)
    return unknown or isinstance(value, kind)
