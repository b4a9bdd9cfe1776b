"""What agents made of regions, as a table in Markdown, from a folder that `cudaforge cache export
FOLDER --as-source` wrote:

    python tests/benchmarks/agent_report.py cache/packs/sm_90a

Rounds are in order of time, with a bar between sessions. Each is a time in microseconds, or the
verdict of an incorrect kernel (after an arrow: incorrect only when a resumed session retried it).
J: on a Judge's advice. In brackets: the kernel that the session started from, by an agent or the
generators. `advice`: for each kernel on a Judge's advice, its speed-up over the kernel that the
advice was about, both timed by the worker; a dash if one of them was incorrect.
Speed-ups are over the fastest of ATen, Inductor and the generators' kernel: `first` is that of the
first correct kernel, timed by the worker; `final` that of the winner, timed in the race. The worker
times the generators' kernel too: if it is the fastest of the three, `final` compares two clocks.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Node = Mapping[str, Any]


def is_right(node: Node) -> bool:
    """Whether it was right, and timed; one that was refused may have a time too."""
    return node["verdict"]["verdict"] == "accepted" and bool(node.get("ns"))


def round_text(node: Node) -> str:
    """One kernel: "17.2 J"."""
    text = f"{node['ns'] / 1e3:.1f}" if is_right(node) else str(node["verdict"]["verdict"])
    if (before := node.get("judged_before")) and before.get("ns"):
        text = f"{before['ns'] / 1e3:.1f} -> {text}"
    text += " J" if node.get("advice") else ""
    return f"[{text}]" if node["kind"] == "start" else text


def session_texts(nodes: Sequence[Node]) -> list[str]:
    """The rounds of each session, oldest first."""
    names = dict.fromkeys(node["session"] for node in nodes)
    return [", ".join(round_text(n) for n in nodes if n["session"] == name) for name in names]


def advice_texts(nodes: Sequence[Node]) -> list[str]:
    """What each piece of advice gained or lost, oldest first."""
    at = {(node["session"], node["id"]): node for node in nodes}
    texts = []
    for node in nodes:
        if node.get("advice"):
            parent = at.get((node["session"], node["parent"]))
            timed = parent is not None and is_right(parent) and is_right(node)
            texts.append(f"{parent['ns'] / node['ns']:.2f}" if parent and timed else "-")
    return texts


def row(folder: Path) -> str:
    """The line of one region."""
    record = json.loads((folder / "record.json").read_text())
    nodes = [
        node
        for node in json.loads((folder / "lineage.json").read_text())
        if "id" in node and node.get("answered", True) and node.get("evaluated", True)
    ]
    timing = record["variants"][0]["timing"]
    made = [n for n in nodes if n["kind"] == "start" and n["author"].startswith("generator:")]
    built_in = min((n["ns"] / 1e3 for n in made if is_right(n)), default=None)
    rivals = {"ATen": timing.get("aten_us"), "Inductor": timing.get("inductor_us")}
    rivals["built-in"] = built_in
    best = min((us, name) for name, us in rivals.items() if us)
    right = [n["ns"] / 1e3 for n in nodes if n["author"].startswith("agent:") and is_right(n)]
    rounds = sum(n["kind"] != "start" for n in nodes)
    final, bar = timing["winner_us"], " \\| "
    return (
        f"| {folder.name.rpartition('-')[0]} | {best[1]} {best[0]:.1f} | {rounds} "
        f"| {bar.join(session_texts(nodes))} | {', '.join(advice_texts(nodes)) or 'none'} "
        f"| {best[0] / right[0]:.2f} | {final:.1f} "
        f"| {best[0] / final:.2f} |"
    )


def main() -> None:
    """Prints the table of the folder that is named."""
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    names = ("region", "fastest of three, us", "rounds", "kernels, us", "advice", "first")
    print(f"| {' | '.join((*names, 'winner, us', 'final'))} |")
    print("|---|---|---|---|---|---|---|---|")
    for folder in sorted(Path(sys.argv[1]).iterdir()):
        if folder.is_dir():
            print(row(folder))


if __name__ == "__main__":
    main()
