"""`cudaforge lineage`: every kernel that was tried for a region, as a tree."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..records import clipped, counted, not_served, printable, result_text, summary
from .output import add_cache_dir, add_json, show
from .stores import of_key, open_store

Node = Mapping[str, Any]

_WHOSE_TIMES = (
    "times of single kernels are the worker's, of the search; `cudaforge cache show` has the race's"
)


def add(verbs: Any) -> None:
    """Registers the command."""
    command = verbs.add_parser(
        "lineage",
        help="show every kernel that was tried for a region",
        description="The kernels that were tried for one region: those of the generators in a "
        "line, counted by verdict, those of agents as a tree, each with its verdict, its time, the "
        "documents of the knowledge base that its agents were told of and the Judge's words; then "
        "what the race came to.",
    )
    command.add_argument("key", metavar="KEY", help="the first digits of a region's key")
    command.add_argument("--source", action="store_true", help="with the source of each kernel of "
                         "agents; the generators' are made anew, not stored")  # fmt: skip
    add_cache_dir(command)
    add_json(command)
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Prints the lineage of the one region whose key begins so."""
    store = open_store(args)
    places = {(r["key"], r["arch"]) for r in of_key(store, args.key)}
    data = []
    for key, arch in sorted(places):
        record = store.get(key, arch)
        data.append(
            {
                "key": key,
                "arch": arch,
                "nodes": store.lineage(key, arch),
                "record": None if record is None else summary(record),
                "result": None if record is None else result_text(record),
            }
        )

    def text() -> None:
        for place in data:
            print(f"{place['key'][:12]} on {place['arch']}")
            for line in tree(place["nodes"], args.source):
                print(f"  {printable(line)}")
            if place["result"] is None:
                print("  no record: the region is only wanted")
                continue
            print(f"  {printable(place['result'])}")
            for line in not_served(place["record"]):
                print(f"    {line}")
        if any(_is_time(node.get("ns")) for place in data for node in place["nodes"]):
            print(_WHOSE_TIMES)

    show(args, data, text)
    return 0


def tree(nodes: Sequence[Node], source: bool = False) -> Iterator[str]:
    """The lines of one region's lineage."""
    made = [node for node in nodes if "session" not in node]
    if made:
        verdicts = Counter(_word(node) for node in made)
        counts = ", ".join(f"{n} {word}" for word, n in verdicts.most_common())
        right = [n["ns"] for n in made if _word(n) == "accepted" and _is_time(n.get("ns"))]
        best = f"; the fastest right one {min(right) / 1e3:.1f} us" if right else ""
        yield f"generators: {counted(len(made), 'candidate')}: {counts}{best}"
        if source:
            yield "  their sources are not stored: they are made anew from the params (--json)"
    for session in dict.fromkeys(node["session"] for node in nodes if "session" in node):
        own = [node for node in nodes if node.get("session") == session]
        yield f"session {session[:8]}"
        children: dict[int | None, list[Node]] = {}
        for node in own:
            if "id" in node:
                children.setdefault(node.get("parent"), []).append(node)
        yield from _below(children, None, 1, source)
        for node in own:
            if node.get("kind") == "end":
                yield f"  ended: {node['reason']}"


def _is_time(ns: object) -> bool:
    return isinstance(ns, float | int)


def _word(node: Node) -> str:
    return str((node.get("verdict") or {}).get("verdict", "?"))


def _below(
    children: Mapping[int | None, Sequence[Node]], parent: int | None, depth: int, source: bool
) -> Iterator[str]:
    for node in children.get(parent, ()):
        indent = "  " * depth
        ns, rival = node.get("ns"), node.get("rival_ns")
        time = f", {ns / 1e3:.1f} us" if isinstance(ns, float | int) else ""
        if isinstance(ns, float | int) and ns > 0 and isinstance(rival, float | int):
            time += f", about {rival / ns:.2f} times as fast as what it had to beat"
        yield f"{indent}{node['id']} {node['kind']}: {_verdict(node)}{time}"
        told = (name for sent in node.get("prompts") or () for name in sent.get("documents") or ())
        if documents := ", ".join(dict.fromkeys(map(str, told))):
            yield f"{indent}    told of: {documents}"
        if advice := node.get("advice"):
            yield f"{indent}    judge: {advice['issue']} -> {advice['plan']}"
        if source and node.get("source"):
            yield from (f"{indent}    | {line}" for line in str(node["source"]).splitlines())
        yield from _below(children, node["id"], depth + 1, source)


def _verdict(node: Node) -> str:
    """The verdict in a word, and why where there is more to say."""
    verdict = node.get("verdict") or {}
    word = _word(node)
    if not node.get("answered", True):
        word = "no reply"
    elif not node.get("evaluated", True):
        word = "not judged"
    elif (earlier := node.get("duplicate_of")) is not None:
        word += f", as of {earlier}"
    said = str(verdict.get("message", ""))
    for again in ("no reply: ", "the Coder gave no reply: "):
        said = said.removeprefix(again)
    lines = said.splitlines()
    words = [clipped(lines[0])] if lines and word != "accepted" else []
    if before := node.get("judged_before"):
        ns = before.get("ns")
        time = f" with {ns / 1e3:.1f} us" if isinstance(ns, float | int) else ""
        words.append(f"{before.get('verdict', '?')}{time} when it was first run")
    return f"{word} ({'; '.join(words)})" if words else word
