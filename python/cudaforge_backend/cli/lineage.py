"""`cudaforge lineage`: every kernel that was tried for a region, as a tree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click
from rich.tree import Tree

from ..records import clipped, counted, not_served, printable, result_text, summary
from .output import Command, cache_dir_option, draw, json_option, show
from .stores import of_key, open_store

Node = Mapping[str, Any]

_WHOSE_TIMES = "these times are from the search; `cudaforge cache show KEY` has those of the race"


@click.command("lineage", cls=Command)
@click.argument("key")
@click.option(
    "--source",
    is_flag=True,
    help="With the source of each kernel of agents. The generators' are made again, not stored.",
)
@cache_dir_option
@json_option
def command(key: str, source: bool, cache_dir: str, as_json: bool) -> int:
    """Show every kernel that was tried for a region.

    KEY is the first digits of the region's key. The generators' kernels are counted by verdict.
    Agents' kernels are a tree, each with its verdict, its time, the documents of the knowledge base
    that its agents had, and the Judge's words. The result of the race comes last.
    """
    store = open_store(cache_dir)
    places = {(r["key"], r["arch"]) for r in of_key(store, key)}
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
            drawn = tree(f"{place['key'][:12]} on {place['arch']}", place["nodes"], source)
            if place["result"] is None:
                drawn.add("no record: the region is only on the wanted list")
            else:
                drawn.add(_lines([place["result"], *not_served(place["record"])]))
            draw(drawn)
        if any(_is_time(node.get("ns")) for place in data for node in place["nodes"]):
            print(_WHOSE_TIMES)

    show(as_json, data, text)
    return 0


def tree(name: str, nodes: Sequence[Node], source: bool = False) -> Tree:
    """One region's lineage."""
    drawn = Tree(printable(name))
    made = [node for node in nodes if "session" not in node]
    if made:
        verdicts = Counter(_word(node) for node in made)
        counts = ", ".join(f"{n} {word}" for word, n in verdicts.most_common())
        right = [n["ns"] for n in made if _word(n) == "accepted" and _is_time(n.get("ns"))]
        best = f"; the fastest right one {min(right) / 1e3:.1f} us" if right else ""
        lines = [f"generators: {counted(len(made), 'candidate')}: {counts}{best}"]
        if source:
            lines.append("their sources are not stored: --json has the params that make them again")
        drawn.add(_lines(lines))
    for session in dict.fromkeys(node["session"] for node in nodes if "session" in node):
        own = [node for node in nodes if node.get("session") == session]
        branches: dict[int | None, Tree] = {None: drawn.add(printable(f"session {session[:8]}"))}
        for node in sorted((one for one in own if "id" in one), key=lambda one: one["id"]):
            branch = branches.get(node.get("parent"), branches[None])
            branches[node["id"]] = branch.add(_lines(_text(node, source)))
        for node in own:
            if node.get("kind") == "end":
                branches[None].add(printable(f"ended: {node['reason']}"))
    return drawn


def _is_time(ns: object) -> bool:
    return isinstance(ns, float | int)


def _word(node: Node) -> str:
    return str((node.get("verdict") or {}).get("verdict", "?"))


def _lines(lines: Iterable[str]) -> str:
    return "\n".join(map(printable, lines))


def _text(node: Node, source: bool) -> list[str]:
    """The lines of one kernel of agents."""
    ns, rival = node.get("ns"), node.get("rival_ns")
    time = f", {ns / 1e3:.1f} us" if isinstance(ns, float | int) else ""
    if isinstance(ns, float | int) and ns > 0 and isinstance(rival, float | int):
        time += f", about {rival / ns:.2f} times as fast as what it had to beat"
    lines = [f"{node['id']} {node['kind']}: {_verdict(node)}{time}"]
    given = (name for sent in node.get("prompts") or () for name in sent.get("documents") or ())
    if documents := ", ".join(dict.fromkeys(map(str, given))):
        lines.append(f"documents: {documents}")
    if advice := node.get("advice"):
        lines.append(f"judge: {advice['issue']} -> {advice['plan']}")
    if source and node.get("source"):
        lines += (f"| {line}" for line in str(node["source"]).splitlines())
    return lines


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
