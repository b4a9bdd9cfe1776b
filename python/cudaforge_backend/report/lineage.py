"""The kernels that were tried for a region, from the nodes of its lineage."""

from __future__ import annotations

import difflib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..steps import call_cost, cost_text
from .data import (
    MOST_SOURCE,
    Candidate,
    Round,
    Session,
    mapping,
    microseconds,
    number,
    sequence,
    text,
)

Node = Mapping[str, Any]
_MOST_PARAMS = 400  # characters
_MOST_LINES = 4_000  # of a source that is compared


def candidates_of(nodes: Sequence[Node]) -> tuple[Candidate, ...]:
    """The generators' kernels."""
    return tuple(
        Candidate(
            author=text(node.get("author")),
            verdict=verdict_of(node),
            message=_message(node),
            us=microseconds(node.get("ns")),
            seconds=number(node.get("seconds")),
            params=text(json.dumps(node.get("params"), separators=(", ", ": ")), _MOST_PARAMS),
        )
        for node in nodes
        if isinstance(node, Mapping) and "session" not in node
    )


def sessions_of(nodes: Sequence[Node]) -> tuple[Session, ...]:
    """The sessions of agents, in the order in which they began."""
    by_name: dict[str, list[Node]] = {}
    for node in nodes:
        if isinstance(node, Mapping) and "session" in node:
            by_name.setdefault(text(node["session"]), []).append(node)
    return tuple(_session(name, own) for name, own in by_name.items())


def verdict_of(node: Node) -> str:
    """The verdict of a node in a word or a few."""
    if node.get("answered", True) is False:
        return "no reply"
    if node.get("evaluated", True) is False:
        return "not judged"
    return text(mapping(node.get("verdict")).get("verdict", "?"), 60)


def in_tree_order(nodes: Sequence[Node]) -> Iterator[tuple[Node, int]]:
    """Each node of a session with its depth, parents first. A node whose parent is missing, or
    that is its own ancestor, counts as a first one."""
    by_id = {whole(node.get("id")): node for node in nodes}  # a later node replaces an earlier one
    children: dict[int | None, list[int]] = {}
    for own in by_id:
        parent = whole(by_id[own].get("parent"))
        at = parent if parent in by_id and parent != own else None
        children.setdefault(at, []).append(own if own is not None else -1)
    seen: set[int] = set()
    for first in [*children.get(None, []), *(own for own in by_id if own is not None)]:
        waiting = [(first, 0)]
        while waiting:
            own, depth = waiting.pop()
            if own in seen or own not in by_id:
                continue
            seen.add(own)
            yield by_id[own], depth
            waiting += [(child, depth + 1) for child in reversed(children.get(own, []))]


def whole(value: object) -> int | None:
    """A whole number from outside, else None."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def diff(before: str, after: str) -> tuple[str, ...]:
    """Lines of a unified diff with three lines of context, without the names of files."""
    old, new = before.splitlines()[:_MOST_LINES], after.splitlines()[:_MOST_LINES]
    return tuple(difflib.unified_diff(old, new, lineterm="", n=3))[2:]


def _session(name: str, nodes: Sequence[Node]) -> Session:
    rounds = [node for node in nodes if whole(node.get("id")) is not None]
    sources = {
        own: text(node.get("source"), MOST_SOURCE)
        for node in rounds
        if (own := whole(node.get("id"))) is not None
    }
    parents = {whole(node.get("id")): whole(node.get("parent")) for node in rounds}
    ends = [text(node.get("reason")) for node in nodes if node.get("kind") == "end"]
    calls = [call for node in rounds for call in sequence(node.get("calls"))]
    return Session(
        name=name,
        end=ends[-1] if ends else "",
        cost=_cost(calls),
        rounds=tuple(
            _round(node, depth, sources, _ancestor(node, parents, sources))
            for node, depth in in_tree_order(rounds)
        ),
    )


def _ancestor(
    node: Node, parents: Mapping[int | None, int | None], sources: Mapping[int, str]
) -> int | None:
    """The nearest ancestor of a round whose source is stored."""
    seen = {whole(node.get("id"))}
    at = whole(node.get("parent"))
    while at is not None and at not in seen:
        if sources.get(at):
            return at
        seen.add(at)
        at = parents.get(at)
    return None


def _round(node: Node, depth: int, sources: Mapping[int, str], ancestor: int | None) -> Round:
    own, parent = whole(node.get("id")) or 0, whole(node.get("parent"))
    source, before = sources.get(own, ""), "" if ancestor is None else sources[ancestor]
    advice = mapping(node.get("advice"))
    prompts = [mapping(prompt) for prompt in sequence(node.get("prompts"))]
    documents = [text(d) for prompt in prompts for d in sequence(prompt.get("documents"))]
    return Round(
        id=own,
        parent=parent,
        depth=depth,
        kind=text(node.get("kind"), 60),
        verdict=verdict_of(node),
        message=_message(node),
        us=microseconds(node.get("ns")),
        rival_us=microseconds(node.get("rival_ns")),
        issue=text(advice.get("issue")),
        plan=text(advice.get("plan")),
        cost=_cost(sequence(node.get("calls"))),
        seconds=number(node.get("seconds")),
        documents=tuple(dict.fromkeys(documents)),
        language=text(node.get("language"), 60),
        source=source,
        reply="" if source else text(node.get("reply")),
        diff_of=ancestor if source else None,
        diff=diff(before, source) if source and before else (),
    )


def _message(node: Node) -> str:
    """What the verdict adds in words: its message, a duplicate, an earlier verdict."""
    words = [text(mapping(node.get("verdict")).get("message"))]
    if (earlier := node.get("duplicate_of")) is not None:
        words.append(f"the same kernel as round {text(earlier, 20)}")
    if before := mapping(node.get("judged_before")):
        words.append(f"{text(before.get('verdict'), 60)} when it was first run")
    if silence := text(node.get("silence")):
        words.append(f"no advice: {silence}")
    return "; ".join(word for word in words if word)


def _cost(calls: Sequence[Any]) -> str:
    """The cost of calls, as `cudaforge forge` shows it; "" of none."""
    total: Counter[str] = Counter()
    for call in map(mapping, calls):
        usage = mapping(call.get("usage"))
        tokens = ("input_tokens", "cached_input_tokens", "output_tokens")
        counts = {name: number(usage.get(name)) or 0 for name in tokens}
        total.update(call_cost({**call, "usage": counts, "usd": number(call.get("usd"))}))
    return cost_text(total) if calls else ""
