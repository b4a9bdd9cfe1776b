"""`cudaforge cache`: what is stored, and carrying it to another machine."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Any

import click

from .._native import _C
from ..records import (
    DOUBTFUL,
    NOT_CURRENT,
    counted,
    differences,
    input_shapes,
    kind_text,
    label,
    larger_region,
    not_served,
    op_names,
    printable,
    program,
    speedup_text,
    summary,
    why,
    why_code,
    with_time,
)
from .output import Group, cache_dir_option, json_option, say, show, table
from .stores import archs_here, damaged, normalized, of_key, open_store, unreadable

_OF_KIND = {"winner": "winners", "negative": "negatives"}
_COUNTS = (*_OF_KIND.values(), "bytes", "not_current", "doubtful")
_LANGUAGES = {"cpu": "C++", "cuda": "CUDA", "ptx": "PTX", "library": "JSON for cuBLASLt"}


_arch_option = click.option(
    "--arch",
    default="",
    help='One architecture, such as "cuda:sm_90a" or "cpu:x86-64-v4+1f0c93ab" (default: all). The '
    "digits of a CPU's stand for its exact instruction set.",
)


@click.group("cache", cls=Group)
def command() -> None:
    """List, show, delete, export and import kernels."""


def _nothing(folder: str, arch: str, what: str) -> str:
    """That a listing is empty, and what would not be."""
    if not Path(folder).exists():
        return f"there is no cache in {folder}"
    store = open_store(folder)
    nothing = f"the cache {folder} has no {what}" + (arch and f" for {arch}")
    wanted = len(store.wanted(arch)) if what != "wanted regions" else 0
    if wanted:
        are = "is" if wanted == 1 else "are"
        nothing += f"; {counted(wanted, 'region')} {are} wanted, see `cudaforge cache wanted`"
    if arch:
        if others := sorted({record["arch"] for record in store.records()}):
            nothing += f"; it has {', '.join(others)}"
        if not arch.startswith(("cuda:", "cpu:")):
            nothing += '; architectures begin with "cuda:" or "cpu:"'
    return nothing


@command.command("ls")
@_arch_option
@cache_dir_option
@json_option
def list_records(arch: str, cache_dir: str, as_json: bool) -> int:
    """List the records: one line for each region, winner or not."""
    store = open_store(cache_dir)
    records = store.records(arch)
    passed_over = damaged(store)
    rows = [
        {**summary(record), "differs": differs}
        for record, differs in zip(records, _apart(records), strict=True)
    ]

    def text() -> None:
        table(("Key", "Device", "Result", "Region"), map(_cells, rows))
        if not rows:
            print(_nothing(cache_dir, arch, "records"))
        if passed_over:
            print(passed_over)

    if as_json and passed_over:
        print(passed_over, file=sys.stderr)
    show(as_json, rows, text)
    return 0


def _cells(row: Mapping[str, Any]) -> tuple[str | list[str], ...]:
    """A row of `ls`."""
    speedup, won = row["speedup"], "compiled" in row["serves"]
    lines = [label(row["ops"], row["shapes"]), row["differs"]]
    if not won:
        over = row["speedup_over_aten"] if row["serves"] else None
        words = row["verdict"] + (f": {over[1]:.2f}x of ATen" if over else "")
        lines.append(with_time(words, row["retry_above_s"]))
    lines += not_served(row)  # type: ignore[arg-type]
    gain = f"{speedup[1]:.2f}x" if won and speedup else kind_text(row)
    return row["key"][:12], row["arch"], gain, [line for line in lines if line]


def _apart(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """For each record: how it differs from those on its architecture with the same ops and inputs.
    "" if there are none."""
    shown = [(f"{r['arch']} {_region(r['signature'])}", r["signature"]) for r in records]
    return ["; ".join(lines) for lines in differences(shown)]


def _region(signature: Mapping[str, Any]) -> str:
    return label(op_names(signature), input_shapes(signature))


def _to_make_anew(record: Mapping[str, Any], here: Set[str]) -> _C.Signature | None:
    """The signature of a record's region, None where this build and machine make none, and
    for a part of a larger region, which is forged only with that region."""
    if record["arch"] not in here or larger_region(record):
        return None
    try:
        return normalized(record["signature"])
    except (ValueError, RuntimeError):
        return None


@command.command("rm")
@click.argument("key")
@_arch_option
@cache_dir_option
@json_option
def remove(key: str, arch: str, cache_dir: str, as_json: bool) -> int:
    """Delete a region's record.

    KEY is the first digits of the region's key. A damaged record needs all 64. The region goes on
    the wanted list, to be forged again; run rm twice to remove it from that list too. Parts of
    larger regions, regions of other machines and damaged records are only deleted.
    """
    # The record has the only copy of the region's signature. A part of a larger region is not
    # listed: forging by its key would race it by itself.
    store = open_store(cache_dir, writable=True)
    lost = unreadable(store, key, arch)
    try:
        found = of_key(store, key, arch)
    except KeyError:
        if not lost:
            raise
        found = []
    records = [row for row in found if "kind" in row]
    places = {record["arch"] for record in records} | set(lost)
    unwanted = [row for row in found if "kind" not in row and row["arch"] not in places]
    here = archs_here()
    rows: list[dict[str, Any]] = []
    for record in records:
        signature = _to_make_anew(record, here)
        store.delete(record["key"], record["arch"])
        if signature:
            store.add_wanted([(signature, record["arch"])])
        agents = bool(signature and signature.why_not_generated(record["arch"]))
        within = larger_region(record) or None
        rows.append(
            {**summary(record), "wanted": bool(signature), "only_agents": agents, "within": within}
        )
    for place in lost:
        store.delete(key, place)
    for row in unwanted:
        store.remove_wanted(row["key"], row["arch"])

    def text() -> None:
        for place in lost:
            say(f"removed: damaged or of another record format, {key[:12]} on {place}")
        for row in rows:
            region = label(row["ops"], row["shapes"])
            say(f"removed: {kind_text(row)}, {row['key'][:12]} on {row['arch']}, {region}")
            if row["wanted"]:
                coder = " --coder PROVIDER" if row["only_agents"] else ""
                say(f"wanted now: `cudaforge forge {row['key'][:12]}{coder}` makes it again")
            if row["within"]:
                say(
                    f"it is a part of region {row['within'][:12]} and is forged only with it: run "
                    "`cudaforge warmup`, or the model with on_miss='blocking' (the default)"
                )
        for row in unwanted:
            region = _region(row["signature"])
            say(f"not wanted any more: {row['key'][:12]} on {row['arch']}, {region}")

    removed = [{"key": key, "arch": place, "kind": "damaged"} for place in lost]
    removed += [{"key": row["key"], "arch": row["arch"], "kind": "wanted"} for row in unwanted]
    show(as_json, [*rows, *removed], text)
    return 0


@command.command("show")
@click.argument("key")
@click.option("--source", is_flag=True, help="The kernel's source too.")
@cache_dir_option
@json_option
def show_region(key: str, source: bool, cache_dir: str, as_json: bool) -> int:
    """Show one region: signature, verification, timing, number of tries.

    KEY is the first digits of the region's key.
    """
    store = open_store(cache_dir)
    found = of_key(store, key, wanted=False)
    data = [
        {
            **r,
            "candidate": _candidate(store.candidate(r["key"], r["arch"]), source),
            "lineage": store.lineage(r["key"], r["arch"]),
        }
        for r in found
    ]

    def text() -> None:
        for record in data:
            _print_record(record)

    show(as_json, data, text)
    return 0


def _candidate(stored: Any, with_source: bool) -> dict[str, Any] | None:
    """A kernel's candidate with the number of lines of its source; `code` only if `with_source`.
    None if there is no candidate, or it is damaged."""
    if not isinstance(stored, dict):
        return None
    code, language = stored.get("code"), stored.get("language")
    if not isinstance(code, str) or not isinstance(language, str):
        return None
    kept = {name: value for name, value in stored.items() if with_source or name != "code"}
    return kept | {"code_lines": len(code.splitlines())}


def _print_record(record: dict[str, Any]) -> None:
    row = summary(record)
    fields: list[tuple[str, str | list[str]]] = [
        ("region", label(row["ops"], row["shapes"], whole=True)),
        ("key", row["key"]),
        ("device", row["arch"]),
        ("result", kind_text(row)),
        *(("", said) for said in not_served(row)),
    ]
    if "compiled" not in row["serves"]:
        words, reason = why(record), row["reason"]
        more = reason not in words and why_code(record) != "not_raced"
        fields.append(("why", [words, reason] if more else words))
    if row["retry_above_s"] is not None:
        above = f"a region_budget_s above {row['retry_above_s']:g} tries it again"
        fields.append(("too little time", above))
    if row["created"]:
        made = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(row["created"]))
        tried = (record["provenance"] or {}).get("candidates_tried", 0)
        fields.append(("made", f"{made} by {row['author'] or 'nobody'}; candidates tried: {tried}"))
    fields.append(("computes", program(record["signature"])))
    times = (row["aten_us"], row["inductor_us"], row["winner_us"])
    for rival, us in zip(("ATen", "Inductor", "kernel"), times, strict=True):
        fields.append((rival, "not timed" if us is None else f"{us:.1f} us"))
    rivals = ("the faster of ATen and Inductor", "ATen, which eager calls run")
    for rival, speedup in zip(rivals, (row["speedup"], row["speedup_over_aten"]), strict=True):
        if speedup:
            low, median, high = speedup
            words = f"{median:.2f} (95% interval {low:.2f} to {high:.2f}) over {rival}"
            fields.append(("speed-up", words))
    for variant in record["variants"]:
        if variant["contract"]:
            words = f"{variant['contract']}: {speedup_text(variant['timing'])}"
            fields.append(("for sizes", words))
    cases = (record["verification"] or {}).get("cases")
    if cases and row["kind"] != "negative":
        words = f"against ATen and float64 on {len(cases)} input sets: {', '.join(cases)}"
        fields.append(("verified", words))
    candidate = record["candidate"]
    if candidate and "code" not in candidate:
        language = _LANGUAGES.get(candidate["language"], candidate["language"])
        words = f"{candidate['code_lines']} lines of {language}; --source prints them"
        fields.append(("source", words))
    elif not candidate and row["kind"] != "negative":
        words = f"damaged; `cudaforge cache rm {row['key']}` deletes the record"
        fields.append(("source", words))
    table(("", ""), fields)
    if candidate and "code" in candidate:
        print(printable(f"\n{candidate['code']}", kept="\n\t"))


@command.command("wanted")
@_arch_option
@cache_dir_option
@json_option
def list_wanted(arch: str, cache_dir: str, as_json: bool) -> int:
    """List the queue of regions to forge, the oldest first.

    It has regions that programs requested or that were removed, and that were not forged yet, or
    only on a busy machine or for another torch or verifier. `cudaforge forge --wanted` forges those
    that generators make.
    """
    store = open_store(cache_dir)
    rows = []
    for row in sorted(store.wanted(arch), key=lambda row: row["first_seen"]):
        record = store.get(row["key"], row["arch"])
        why = normalized(row["signature"]).why_not_generated(row["arch"])
        record_row = None if record is None else summary(record)
        rows.append({**row, "record": record_row, "only_agents": why})

    def text() -> None:
        cells = []
        for row, differs in zip(rows, _apart(rows), strict=True):
            lines = [_region(row["signature"]), differs]
            if row["only_agents"]:
                lines.append("only agents make it: `cudaforge forge KEY --coder PROVIDER`")
            lines += not_served(row["record"]) if row["record"] else ()
            cells.append((row["key"][:12], row["arch"], [line for line in lines if line]))
        table(("Key", "Device", "Region"), cells)
        if not rows:
            print(_nothing(cache_dir, arch, "wanted regions"))

    show(as_json, rows, text)
    return 0


@command.command("stats")
@cache_dir_option
@json_option
def print_stats(cache_dir: str, as_json: bool) -> int:
    """Count records by architecture, and find damaged ones."""
    store = open_store(cache_dir)
    archs: dict[str, dict[str, int]] = {}
    for record in store.records():
        entry = archs.setdefault(record["arch"], dict.fromkeys(_COUNTS, 0))
        entry[_OF_KIND[record["kind"]]] += 1
        entry["bytes"] += record["binary_bytes"]
        entry["not_current"] += not record["current"]
        entry["doubtful"] += record["doubtful"] != 0
    passed_over = damaged(store)
    data = {
        "location": store.location(),
        "archs": archs,
        "damaged": store.counters()["corrupt"],
        "wanted": len(store.wanted()),
        "counters": store.counters(),
    }

    def text() -> None:
        print(data["location"])
        cells: list[tuple[str, str | list[str]]] = []
        for arch, entry in archs.items():
            lines = [
                f"{counted(entry['winners'], 'winner')}, "
                f"{counted(entry['negatives'], 'region')} with no winner, "
                f"{entry['bytes']} bytes of binaries"
            ]
            if entry["not_current"]:
                lines.append(f"{entry['not_current']} of them {NOT_CURRENT}")
            if entry["doubtful"]:
                lines.append(f"{entry['doubtful']} of them {DOUBTFUL}")
            cells.append((arch, lines))
        how = (
            " (`cudaforge cache wanted` lists them, `cudaforge forge --wanted` forges those that "
            "generators make)"
        )
        cells.append(("wanted", f"{data['wanted']}{how if data['wanted'] else ''}"))
        table(("", ""), cells)
        print(passed_over or "no record is damaged or of another record format")

    show(as_json, data, text)
    return 0


@command.command(
    "export", exits={1: "there was nothing to write; with --as-source, also: a kernel was rejected"}
)
@click.argument("file", type=click.Path(readable=False))
@click.option(
    "--as-source",
    is_flag=True,
    help="FILE is a folder: the kernels alone, each with its source and evidence as text.",
)
@_arch_option
@cache_dir_option
@json_option
def export(file: str, as_source: bool, arch: str, cache_dir: str, as_json: bool) -> int:
    """Write records to a pack, or kernels to a folder.

    A pack is one file with checksums. A FILE that is there is replaced.
    """
    if as_source:
        return _export_sources(file, arch, cache_dir, as_json)
    folder = Path(file).absolute().parent
    if not folder.is_dir():
        raise OSError(f"cannot write {file}: there is no folder {folder}")
    result = _C.export_pack(open_store(cache_dir), file, arch)
    written = result["exported"] + result["without_winner"]
    reason = "" if written else _nothing(cache_dir, arch, "records")

    def text() -> None:
        print(
            f"{file}: {reason or counted(result['exported'], 'kernel')}"
            + (f", {counted(result['without_winner'], 'region')} with no winner" * bool(written))
        )

    show(as_json, {**result, "reason": reason}, text)
    return int(not written)


def _export_sources(file: str, arch: str, cache_dir: str, as_json: bool) -> int:
    """1 when there was nothing to write or a kernel was rejected."""
    result: Any = _C.export_sources(open_store(cache_dir), file, arch)
    exported, rejected = result["exported"], result["rejected"]
    reason = "" if exported or rejected else _nothing(cache_dir, arch, "kernels")

    def text() -> None:
        for problem in result["problems"]:
            _say_rejected(problem)
        written = f"{counted(exported, 'kernel')}, a folder each" + (
            f", {rejected} rejected" * bool(rejected)
        )
        print(f"{file}: {reason or written}")

    show(as_json, {**result, "reason": reason}, text)
    return int(not exported or rejected > 0)


@command.command("import", exits={1: "a kernel was rejected, or FILE cannot be read"})
@click.argument("file", type=click.Path(readable=False))
@click.option(
    "--replace",
    is_flag=True,
    help="Also where this torch and verifier judged a kernel that is stored already (default: that "
    "one stays, whatever speed-up FILE claims).",
)
@cache_dir_option
@json_option
def import_(file: str, replace: bool, cache_dir: str, as_json: bool) -> int:
    """Verify the kernels of a pack or folder; store them.

    FILE is written by `cudaforge cache export`. Kernels that fail on this machine are rejected. Its
    regions without a winner are stored too.
    """
    problem = _C.use_cache(cache_dir)
    if problem is not None:
        raise OSError(f"the cache cannot be used: {problem}")
    if not Path(file).exists():
        raise OSError(f"there is no {file}; `cudaforge cache export` makes such files")
    reasons: Counter[str] = Counter()

    def report(what: str, line: str) -> None:
        if what == "rejected":
            reason = line.partition(": ")[2]
            reasons[reason] += 1
            if reasons[reason] == 1:
                _say_rejected(line)
        else:
            stays = "; the kernel in the cache stays" if what == "kept" else ""
            print(f"  {line} verified{stays}", flush=True)

    result = _C.adopt_pack(file, None if as_json else report, replace)

    def text() -> None:
        for reason, times in reasons.items():
            if times > 1:
                _say_rejected(f"{times - 1} more, each: {reason}")
        print(
            f"{counted(result['imported'], 'kernel')} verified and stored, "
            f"{counted(result['without_winner'], 'region')} with no winner stored, "
            f"{result['kept_existing']} kept what was there, {result['rejected']} rejected"
        )
        if result["imported"]:
            no_winner = ", such as regions with no winner, which a folder does not have,"
            print(
                "`cudaforge warmup` with your model forges only what is still missing"
                + no_winner * Path(file).is_dir()
                + " and finds out whether its graphs gain by these kernels on this machine"
            )

    show(as_json, result, text)
    return int(result["rejected"] > 0)


def _say_rejected(problem: str) -> None:
    """Prints which record was rejected and why; further lines of a compiler stand indented."""
    text = printable(problem, kept="\n").replace("\n", "\n      ")
    print(f"  rejected: {text}", flush=True)
