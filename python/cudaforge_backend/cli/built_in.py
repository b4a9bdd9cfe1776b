"""`cudaforge forge` without a Coder: the built-in generators make the kernels of single regions."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .._native import _C
from ..heartbeat import Teller
from ..options import Settings, parse
from ..records import (
    counted,
    find,
    input_shapes,
    kind_text,
    label,
    op_names,
    too_little_time,
    with_time,
)
from .output import show, show_facts, table, teller
from .stores import (
    forging_cache,
    is_asked,
    normalized,
    nothing_asked,
    of_key,
    wanted_here,
)

_KEYS = 6  # in a command that is shown
_KEPT = ("kind", "serves", "verdict", "reason", "speedup", "retry_above_s")


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What `cudaforge forge` forges: the regions that `what` names (KEYs and scripts), with
    `wanted` those on the wanted list, with `only` those with this word in their operations."""

    what: tuple[str, ...]
    wanted: bool
    only: str | None
    region_budget: float | None
    cache_dir: str
    as_json: bool


def run(asked: Asked) -> int:
    """0 when every region that was taken is decided: has a winner, or none."""
    settings = settings_of(asked)
    forging_cache(settings.cache_dir)
    named, wanted, elsewhere = _regions(asked)
    regions = [one for one in dict.fromkeys((*named, *wanted)) if is_asked(asked.only, one)]
    left = [one for one in regions if one.why_not_generated(_arch(one))]
    taken = [one for one in regions if one not in left]
    started = time.monotonic()
    with teller(asked.as_json, "forging") as progress:
        rows = [_forge(signature, settings, progress) for signature in taken]
    short = too_little_time([row["retry_above_s"] for row in rows])
    seconds = time.monotonic() - started
    data = {
        "regions": rows,
        "only_agents": [signature.key for signature in left],
        "elsewhere": elsewhere,
        "region_budget_to_retry_s": short[1] if short else None,
        "seconds": seconds,
        "cache_dir": _C.store().location(),
    }

    def text() -> None:
        table(("Key", "Result", "Region"), map(_cells, rows))
        if not regions:
            print(nothing_asked(asked.only, bool(named or wanted)))
        again = ""
        if short:
            again = f"{short[0]}: `{_again(asked.cache_dir, rows, short[1])}` tries again"
        passed_over = []
        if left:
            passed_over.append(f"{counted(len(left), 'region')} that only agents make "
                               "(`cudaforge cache wanted` marks them; use --coder)")  # fmt: skip
        if elsewhere:
            passed_over.append(f"{counted(elsewhere, 'region')} of other machines")
        lost = sum(_may_have_parts(row) for row in rows)
        facts: dict[str, str | list[str]] = {
            "regions": _summary(rows, seconds),
            "too little time": again,
            "parts": f"of {counted(lost, 'region')} with no winner: a compiled program puts them "
            "on the list when it runs next; then forge --wanted again"
            if lost
            else "",
            "passed over": passed_over,
            "cache": _C.store().location(),
        }
        show_facts(facts)

    show(asked.as_json, data, text)
    return int(any(row["kind"] == "" for row in rows))


def settings_of(asked: Asked) -> Settings:
    """The options that the command forges with."""
    options: dict[str, Any] = {"on_miss": "blocking", "cache_dir": asked.cache_dir}
    if asked.region_budget is not None:
        options["region_budget_s"] = asked.region_budget
    return parse(None, options)


def _arch(signature: _C.Signature) -> str:
    return _C.arch(signature.device, 0)


def _regions(asked: Asked) -> tuple[list[_C.Signature], list[_C.Signature], int]:
    """The signatures that KEYs name, those of the wanted list, and how many of that are of other
    machines. ValueError: a KEY that no generator makes."""
    named = [normalized(of_key(_C.store(), key)[0]["signature"]) for key in asked.what]
    for signature in named:
        if why := signature.why_not_generated(_arch(signature)):
            raise ValueError(
                f"no generator makes {signature.describe()}: {why}; --coder names who writes its "
                "kernel"
            )
    return named, *(wanted_here(_C.store()) if asked.wanted else ([], 0))


def _forge(signature: _C.Signature, settings: Settings, progress: Teller) -> dict[str, Any]:
    """One region decided, as on_miss="blocking" does; its row of the table."""
    from ..integration.plan import failure, forge_one, verdict_of

    key, arch, region = signature.key, _arch(signature), signature.to_dict()
    known = not verdict_of(key, arch, settings.region_budget_s).is_to_be_forged
    decided = known or forge_one(signature, 0, settings, progress)
    record: Mapping[str, Any] | None = find(key, arch) if decided else None
    empty = {"kind": "", "serves": [], "verdict": failure(key) or "not stored", "reason": ""}
    kept = record or {**empty, "speedup": None, "retry_above_s": None}
    return {
        "key": key,
        "arch": arch,
        "ops": op_names(region),
        "shapes": input_shapes(region),
        **{name: kept[name] for name in _KEPT},
        "known": known,
    }


def _may_have_parts(row: Mapping[str, Any]) -> bool:
    """Whether a region that has just ended without a winner is of several operations."""
    return row["kind"] == "negative" and not row["known"] and " -> " in row["ops"]


def _again(cache_dir: str, rows: Sequence[Mapping[str, Any]], budget: int) -> str:
    """The command that retries the regions that had too little time."""
    keys = [row["key"][:12] for row in rows if row["retry_above_s"] is not None]
    shown = [*keys[:_KEYS], "KEY..."] if len(keys) > _KEYS else keys
    is_default = cache_dir == _C.config()["cache_dir"]
    folder = [] if is_default else ["--cache-dir", shlex.quote(cache_dir)]
    return " ".join(["cudaforge", "forge", *shown, "--region-budget", str(budget), *folder])


def _cells(row: Mapping[str, Any]) -> tuple[str | list[str], ...]:
    """A row of the table."""
    region = label(row["ops"], row["shapes"])
    if "compiled" in row["serves"]:
        return row["key"][:12], f"{row['speedup'][1]:.2f}x", region
    words = with_time(row["verdict"], row["retry_above_s"])
    return row["key"][:12], kind_text(row) or "failed", [region, words]


def _summary(rows: Sequence[Mapping[str, Any]], seconds: float) -> str:
    known = sum(row["known"] for row in rows)
    kinds = [row["kind"] for row in rows if not row["known"]]
    failed = f", {kinds.count('')} failed" if "" in kinds else ""
    again = " (cudaforge cache rm KEY makes it again)" if known else ""
    return (
        f"{counted(kinds.count('winner'), 'winner')} forged, {kinds.count('negative')} with no "
        f"winner{failed}, {known} decided before{again}, {seconds:.0f} s"
    )
