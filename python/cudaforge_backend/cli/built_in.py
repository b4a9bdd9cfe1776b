"""`cudaforge forge` without a Coder: the built-in generators make the kernels of single regions."""

from __future__ import annotations

import argparse
import shlex
import time
from collections.abc import Mapping, Sequence
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
    printable,
    too_little_time,
    with_time,
)
from .output import cache_dir, show, teller
from .stores import (
    forging_cache,
    is_asked,
    normalized,
    nothing_asked,
    of_key,
    wanted_here,
)

_INDENT = 25  # where the regions of the table begin
_KEYS = 6  # in a command that is shown
_KEPT = ("kind", "serves", "verdict", "reason", "speedup", "retry_above_s")


def run(args: argparse.Namespace) -> int:
    """0 when every region that was taken is decided: has a winner, or none."""
    settings = settings_of(args)
    forging_cache(settings.cache_dir)
    named, wanted, elsewhere = _regions(args)
    asked = [one for one in dict.fromkeys((*named, *wanted)) if is_asked(args.only, one)]
    left = [one for one in asked if one.why_not_generated(_arch(one))]
    taken = [one for one in asked if one not in left]
    started = time.monotonic()
    with teller(args, "forging") as told:
        rows = [_forge(signature, settings, told) for signature in taken]
    short = too_little_time([row["retry_above_s"] for row in rows])
    data = {
        "regions": rows,
        "only_agents": [signature.key for signature in left],
        "elsewhere": elsewhere,
        "region_budget_to_retry_s": short[1] if short else None,
        "seconds": time.monotonic() - started,
        "cache_dir": _C.store().location(),
    }

    def text() -> None:
        _print_table(rows)
        if not asked:
            print(nothing_asked(args.only, bool(named or wanted)))
        print(_summary(rows, data))
        if short:
            print(f"  {short[0]}: `{_again(args, rows, short[1])}` tries again")
        if lost := sum(_may_have_parts(row) for row in rows):
            print(f"  parts of {counted(lost, 'region')} with no winner: a compiled program puts "
                  "them on the list when it runs next; then forge --wanted again")  # fmt: skip
        if left:
            print(f"  passed over: {counted(len(left), 'region')} that only agents make "
                  "(`cudaforge cache wanted` marks them; --coder names who writes)")  # fmt: skip
        if elsewhere:
            print(f"  passed over: {counted(elsewhere, 'region')} of other machines")

    show(args, data, text)
    return int(any(row["kind"] == "" for row in rows))


def settings_of(args: argparse.Namespace) -> Settings:
    """What the command is to forge with."""
    options: dict[str, Any] = {"on_miss": "blocking", "cache_dir": cache_dir(args)}
    if args.region_budget is not None:
        options["region_budget_s"] = args.region_budget
    return parse(None, options)


def _arch(signature: _C.Signature) -> str:
    return _C.arch(signature.device, 0)


def _regions(args: argparse.Namespace) -> tuple[list[_C.Signature], list[_C.Signature], int]:
    """The signatures that KEYs name, those of the wanted list, and how many of that are of other
    machines. ValueError: a KEY that no generator makes."""
    named = [normalized(of_key(_C.store(), key)[0]["signature"]) for key in args.what]
    for signature in named:
        if why := signature.why_not_generated(_arch(signature)):
            raise ValueError(
                f"no generator makes {signature.describe()}: {why}; --coder names who writes its "
                "kernel"
            )
    return named, *(wanted_here(_C.store()) if args.wanted else ([], 0))


def _forge(signature: _C.Signature, settings: Settings, told: Teller) -> dict[str, Any]:
    """One region decided, as on_miss="blocking" does; its row of the table."""
    from ..integration.plan import failure, forge_one, verdict_of

    key, arch, region = signature.key, _arch(signature), signature.to_dict()
    known = not verdict_of(key, arch, settings.region_budget_s).is_to_be_forged
    decided = known or forge_one(signature, 0, settings, told)
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


def _again(args: argparse.Namespace, rows: Sequence[Mapping[str, Any]], budget: int) -> str:
    """The command that tries regions again which had too little time."""
    keys = [row["key"][:12] for row in rows if row["retry_above_s"] is not None]
    shown = [*keys[:_KEYS], "KEY..."] if len(keys) > _KEYS else keys
    folder = ["--cache-dir", shlex.quote(args.cache_dir)] if args.cache_dir else []
    return " ".join(["cudaforge", "forge", *shown, "--region-budget", str(budget), *folder])


def _print_table(rows: Sequence[Mapping[str, Any]]) -> None:
    for row in rows:
        won = "compiled" in row["serves"]
        gain = f"{row['speedup'][1]:.2f}x" if won else kind_text(row) or "failed"
        print(printable(f"{row['key'][:12]}  {gain:>9}  {label(row['ops'], row['shapes'])}"))
        if not won:
            words = with_time(row["verdict"], row["retry_above_s"])
            print(printable(f"{'':<{_INDENT}}{words}"))


def _summary(rows: Sequence[Mapping[str, Any]], data: Mapping[str, Any]) -> str:
    known = sum(row["known"] for row in rows)
    kinds = [row["kind"] for row in rows if not row["known"]]
    failed = f", {kinds.count('')} failed" if "" in kinds else ""
    anew = " (cudaforge cache rm KEY makes it anew)" if known else ""
    return (
        f"{counted(len(rows), 'region')}: {counted(kinds.count('winner'), 'winner')} forged, "
        f"{kinds.count('negative')} with no winner{failed}, {known} decided before{anew}, "
        f"{data['seconds']:.0f} s; cache {data['cache_dir']}"
    )
