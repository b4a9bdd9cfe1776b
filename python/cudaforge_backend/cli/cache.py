"""`cudaforge cache`: what is stored, and carrying it to another machine."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

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
from .output import add_cache_dir, add_json, cache_dir, show
from .stores import archs_here, damaged, normalized, of_key, open_store, unreadable

Run = Callable[[argparse.Namespace], int]
Arguments = Callable[[argparse.ArgumentParser], None]

_OF_KIND = {"winner": "winners", "negative": "negatives"}
_COUNTS = (*_OF_KIND.values(), "bytes", "not_current", "doubtful")
_INDENT = 49  # where the regions of `ls` begin
_LANGUAGES = {"cpu": "C++", "cuda": "CUDA", "ptx": "PTX"}


def _nothing(args: argparse.Namespace, what: str) -> str:
    """That a listing is empty, and what would not be."""
    folder = cache_dir(args)
    if not Path(folder).exists():
        return f"there is no cache in {folder}"
    store = open_store(args)
    nothing = f"the cache {folder} has no {what}" + (args.arch and f" for {args.arch}")
    wanted = len(store.wanted(args.arch)) if what != "wanted regions" else 0
    if wanted:
        are = "is" if wanted == 1 else "are"
        nothing += f"; {counted(wanted, 'region')} {are} wanted, see `cudaforge cache wanted`"
    if args.arch:
        if others := sorted({record["arch"] for record in store.records()}):
            nothing += f"; it has {', '.join(others)}"
        if not args.arch.startswith(("cuda:", "cpu:")):
            nothing += '; architectures begin with "cuda:" or "cpu:"'
    return nothing


def _say(line: str) -> None:
    """Prints a line with texts of records in it, which may come from anywhere."""
    print(printable(line))


def run_ls(args: argparse.Namespace) -> int:
    """One line a record, and what tells it from others that look the same."""
    store = open_store(args)
    records = store.records(args.arch)
    passed_over = damaged(store)
    rows = [summary(r) for r in records]
    apart = _apart(records)

    def text() -> None:
        for row, differs in zip(rows, apart, strict=True):
            speedup, won = row["speedup"], "compiled" in row["serves"]
            gain = f"{speedup[1]:.2f}x" if won and speedup else kind_text(row)
            region = label(row["ops"], row["shapes"])
            _say(f"{row['key'][:12]}  {row['arch']:<22}  {gain:>9}  {region}")
            if differs:
                _say(f"{'':<{_INDENT}}{differs}")
            if not won:
                over = row["speedup_over_aten"] if row["serves"] else None
                words = row["verdict"] + (f": {over[1]:.2f}x of ATen" if over else "")
                _say(f"{'':<{_INDENT}}{with_time(words, row['retry_above_s'])}")
            for said in not_served(row):
                _say(f"{'':<{_INDENT}}{said}")
        if not rows:
            print(_nothing(args, "records"))
        if passed_over:
            print(passed_over)

    listed = [{**row, "differs": differs} for row, differs in zip(rows, apart, strict=True)]
    if args.json and passed_over:
        print(passed_over, file=sys.stderr)
    show(args, listed, text)
    return 0


def _apart(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """What tells each record from those on its architecture whose ops and inputs read the same, ""
    where there are none."""
    shown = [(f"{r['arch']} {_region(r['signature'])}", r["signature"]) for r in records]
    return ["; ".join(lines) for lines in differences(shown)]


def _region(signature: Mapping[str, Any]) -> str:
    return label(op_names(signature), input_shapes(signature))


def _to_make_anew(record: Mapping[str, Any], here: Set[str]) -> _C.Signature | None:
    """The signature of a record's region, None where this build and machine make none, and
    for a part of a larger region, which is judged inside that region alone."""
    if record["arch"] not in here or larger_region(record):
        return None
    try:
        return normalized(record["signature"])
    except (ValueError, RuntimeError):
        return None


def run_rm(args: argparse.Namespace) -> int:
    """Deletes the records of one key, on every architecture or on one; those that cannot be read
    where the key is whole. What can be made anew here is wanted then: the record had the only copy
    of the region's signature. Not a part of a larger region, which forging by its key would race by
    itself. A region that is wanted and has no record is not wanted any more."""
    store = open_store(args, writable=True)
    lost = unreadable(store, args.key, args.arch)
    try:
        found = of_key(store, args.key, args.arch)
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
    for arch in lost:
        store.delete(args.key, arch)
    for row in unwanted:
        store.remove_wanted(row["key"], row["arch"])

    def text() -> None:
        for arch in lost:
            _say(f"removed: damaged or of another record format, {args.key[:12]} on {arch}")
        for row in rows:
            region = label(row["ops"], row["shapes"])
            kind = kind_text(row)
            _say(f"removed: {kind}, {row['key'][:12]} on {row['arch']}, {region}")
            if row["wanted"]:
                coder = " --coder PROVIDER" if row["only_agents"] else ""
                _say(f"wanted now: `cudaforge forge {row['key'][:12]}{coder}` makes it anew")
            if row["within"]:
                _say(
                    f"a part of region {row['within'][:12]}, inside which alone it is judged: "
                    "`cudaforge warmup` or a run that forges (on_miss='blocking', the default) "
                    "makes it anew"
                )

        for row in unwanted:
            region = _region(row["signature"])
            _say(f"not wanted any more: {row['key'][:12]} on {row['arch']}, {region}")

    removed = [{"key": args.key, "arch": arch, "kind": "damaged"} for arch in lost]
    removed += [{"key": row["key"], "arch": row["arch"], "kind": "wanted"} for row in unwanted]
    show(args, [*rows, *removed], text)
    return 0


def run_show(args: argparse.Namespace) -> int:
    """One region in full; the key may be cut short as long as it is unique."""
    store = open_store(args)
    found = of_key(store, args.key, wanted=False)
    data = [
        {
            **r,
            "candidate": _candidate(store.candidate(r["key"], r["arch"]), args.source),
            "lineage": store.lineage(r["key"], r["arch"]),
        }
        for r in found
    ]

    def text() -> None:
        for record in data:
            _print_record(record)

    show(args, data, text)
    return 0


def _candidate(stored: Any, with_source: bool) -> dict[str, Any] | None:
    """A kernel's candidate with the number of its source's lines; its `code` only if asked for.
    None where there is none, or it is damaged."""
    if not isinstance(stored, dict):
        return None
    code, language = stored.get("code"), stored.get("language")
    if not isinstance(code, str) or not isinstance(language, str):
        return None
    kept = {name: value for name, value in stored.items() if with_source or name != "code"}
    return kept | {"code_lines": len(code.splitlines())}


def _print_record(record: dict[str, Any]) -> None:
    row = summary(record)
    _say(label(row["ops"], row["shapes"], whole=True))
    _say(f"key {row['key']} on {row['arch']}: {kind_text(row)}")
    for said in not_served(row):
        print(said)
    if "compiled" not in row["serves"]:
        words = why(record)
        _say(f"why: {words}")
        reason = row["reason"]
        if reason not in words and why_code(record) != "not_raced":
            _say(f"  {reason}")
    if row["retry_above_s"] is not None:
        above = row["retry_above_s"]
        _say(f"too little time: a region_budget_s above {above:g} tries it again")
    if row["created"]:
        made = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(row["created"]))
        tried = (record["provenance"] or {}).get("candidates_tried", 0)
        _say(f"made {made} by {row['author'] or 'nobody'}; candidates tried: {tried}")
    print("computes:")
    for line in program(record["signature"]):
        _say(f"  {line}")
    for rival, us in (
        ("ATen", row["aten_us"]),
        ("Inductor", row["inductor_us"]),
        ("kernel", row["winner_us"]),
    ):
        _say(f"{rival}: {'not timed' if us is None else f'{us:.1f} microseconds'}")
    rivals = ("the faster of ATen and Inductor", "ATen, which eager calls run")
    for rival, speedup in zip(rivals, (row["speedup"], row["speedup_over_aten"]), strict=True):
        if speedup:
            low, median, high = speedup
            _say(f"speed-up over {rival}: {median:.2f} (95% interval {low:.2f} to {high:.2f})")
    for variant in record["variants"]:
        if variant["contract"]:
            _say(f"for sizes {variant['contract']}: {speedup_text(variant['timing'])}")
    cases = (record["verification"] or {}).get("cases")
    if cases and row["kind"] != "negative":
        _say(f"verified against ATen and float64 on {len(cases)} input sets: {', '.join(cases)}")
    if candidate := record["candidate"]:
        if "code" in candidate:
            print(printable(f"\n{candidate['code']}", kept="\n\t"))
        else:
            language = _LANGUAGES.get(candidate["language"], candidate["language"])
            _say(f"source: {candidate['code_lines']} lines of {language}; --source prints them")
    elif row["kind"] != "negative":
        print(f"source: damaged; `cudaforge cache rm {row['key']}` forgets the record")


def run_wanted(args: argparse.Namespace) -> int:
    """One line a region, the one that was asked for first on top, and what only agents make."""
    store = open_store(args)
    rows = []
    for row in sorted(store.wanted(args.arch), key=lambda row: row["first_seen"]):
        record = store.get(row["key"], row["arch"])
        why = normalized(row["signature"]).why_not_generated(row["arch"])
        record_row = None if record is None else summary(record)
        rows.append({**row, "record": record_row, "only_agents": why})

    def text() -> None:
        for row, differs in zip(rows, _apart(rows), strict=True):
            _say(f"{row['key'][:12]}  {row['arch']:<22}  {_region(row['signature'])}")
            if differs:
                _say(f"{'':<38}{differs}")
            if row["only_agents"]:
                _say(f"{'':<38}only agents make it: `cudaforge forge KEY --coder PROVIDER`")
            for said in not_served(row["record"]) if row["record"] else ():
                _say(f"{'':<38}{said}")
        if not rows:
            print(_nothing(args, "wanted regions"))

    show(args, rows, text)
    return 0


def run_stats(args: argparse.Namespace) -> int:
    """Counts by architecture."""
    store = open_store(args)
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
        for arch, entry in archs.items():
            print(
                f"{arch:<18} {counted(entry['winners'], 'winner')}, "
                f"{counted(entry['negatives'], 'region')} with no winner, "
                f"{entry['bytes']} bytes of binaries"
            )
            if entry["not_current"]:
                print(f"{'':<18} {entry['not_current']} of them {NOT_CURRENT}")
            if entry["doubtful"]:
                print(f"{'':<18} {entry['doubtful']} of them {DOUBTFUL}")
        how = (
            " (`cudaforge cache wanted` lists them, `cudaforge forge --wanted` forges those that "
            "generators make)"
        )
        print(f"wanted: {data['wanted']}{how if data['wanted'] else ''}")
        print(passed_over or "no record is damaged or of another record format")

    show(args, data, text)
    return 0


def run_export(args: argparse.Namespace) -> int:
    """Writes the pack; 1 when there was nothing to write."""
    if args.as_source:
        return _export_sources(args)
    folder = Path(args.file).absolute().parent
    if not folder.is_dir():
        raise OSError(f"cannot write {args.file}: there is no folder {folder}")
    result = _C.export_pack(open_store(args), args.file, args.arch)
    written = result["exported"] + result["without_winner"]
    reason = "" if written else _nothing(args, "records")

    def text() -> None:
        print(
            f"{args.file}: {reason or counted(result['exported'], 'kernel')}"
            + (f", {counted(result['without_winner'], 'region')} with no winner" * bool(written))
        )

    show(args, {**result, "reason": reason}, text)
    return int(not written)


def _export_sources(args: argparse.Namespace) -> int:
    """Writes the folders; 1 when there was nothing to write or a kernel was rejected."""
    result: Any = _C.export_sources(open_store(args), args.file, args.arch)
    exported, rejected = result["exported"], result["rejected"]
    reason = "" if exported or rejected else _nothing(args, "kernels")

    def text() -> None:
        for problem in result["problems"]:
            _say_rejected(problem)
        written = f"{counted(exported, 'kernel')}, a folder each" + (
            f", {rejected} rejected" * bool(rejected)
        )
        print(f"{args.file}: {reason or written}")

    show(args, {**result, "reason": reason}, text)
    return int(not exported or rejected > 0)


def run_import(args: argparse.Namespace) -> int:
    """Verifies, then stores; 1 when a kernel was rejected."""
    problem = _C.use_cache(cache_dir(args))
    if problem is not None:
        raise OSError(f"the cache cannot be used: {problem}")
    if not Path(args.file).exists():
        raise OSError(f"there is no {args.file}; `cudaforge cache export` makes such files")
    reasons: Counter[str] = Counter()

    def tell(what: str, line: str) -> None:
        if what == "rejected":
            reason = line.partition(": ")[2]
            reasons[reason] += 1
            if reasons[reason] == 1:
                _say_rejected(line)
        else:
            stays = "; the kernel in the cache stays" if what == "kept" else ""
            print(f"  {line} verified{stays}", flush=True)

    result = _C.adopt_pack(args.file, None if args.json else tell, args.replace)

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
                + no_winner * Path(args.file).is_dir()
                + " and finds out whether its graphs gain by these kernels on this machine"
            )

    show(args, result, text)
    return int(result["rejected"] > 0)


def _say_rejected(problem: str) -> None:
    """Prints which record was rejected and why; further lines of a compiler stand indented."""
    text = printable(problem, kept="\n").replace("\n", "\n      ")
    print(f"  rejected: {text}", flush=True)


def _arch(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--arch",
        default="",
        help='one architecture, such as "cuda:sm_90a" or "cpu:x86-64-v4+1f0c93ab" (default: all); '
        "the digits of a CPU's stand for the exact instruction set of the processor",
    )


def _key(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("key", help="the key, or its first digits")


def _key_to_forget(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "key", help="the key, or its first digits; all 64 for a record that cannot be read"
    )


def _source(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--source", action="store_true", help="the kernel's source too")


def _file_to_write(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "file", metavar="FILE", help="the pack to write; one that is there is replaced"
    )
    verb.add_argument(
        "--as-source",
        action="store_true",
        help="FILE is a folder: the kernels alone, each with its source and evidence as text",
    )


def _file_to_read(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "file", metavar="FILE", help="what `cudaforge cache export` wrote: a file or a folder"
    )
    verb.add_argument(
        "--replace",
        action="store_true",
        help="also where this torch and verifier judged a kernel that is stored already (default: "
        "that one stays, whatever speed-up FILE claims)",
    )


# Name, what it does, the function, its own arguments.
VERBS: tuple[tuple[str, str, Run, tuple[Arguments, ...]], ...] = (
    ("ls", "list the records: one line for each region, winner or not", run_ls, (_arch,)),
    (
        "show",
        "everything about one region: signature, verification, timing, tries; source if asked",
        run_show,
        (_key, _source),
    ),
    (
        "rm",
        "delete the record of one region, winner or not, and put the region on the wanted list "
        "(not a part of a larger region, one of another machine, or a damaged one); a region that "
        "is on that list and has no record is taken off it",
        run_rm,
        (_key_to_forget, _arch),
    ),
    (
        "wanted",
        "list the regions that programs asked for, or that were removed, and that are not forged "
        "yet, or only on a busy machine or for another torch or verifier; `cudaforge forge "
        "--wanted` forges those that generators make",
        run_wanted,
        (_arch,),
    ),
    ("stats", "counts by architecture, and whether the files are sound", run_stats, ()),
    (
        "export",
        "write the records to one checksummed file, or the kernels to a folder (--as-source)",
        run_export,
        (_file_to_write, _arch),
    ),
    (
        "import",
        "verify the kernels of a file or folder on this machine, store those that pass and what "
        "had no winner",
        run_import,
        (_file_to_read,),
    ),
)


def add(verbs: Any) -> None:
    """Registers the command and its verbs."""
    command = verbs.add_parser(
        "cache",
        help="list, show, forget, export and import stored kernels; what is wanted; statistics",
    )
    inner = command.add_subparsers(dest="cache_verb", required=True, metavar="VERB")
    for name, text, run, arguments in VERBS:
        verb = inner.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        add_cache_dir(verb)
        add_json(verb)
        for argument in arguments:
            argument(verb)
        verb.set_defaults(run=run)
