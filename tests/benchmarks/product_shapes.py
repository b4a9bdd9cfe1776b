"""Workloads of matrix products for workloads.py, a line of JSON each.

    python tests/benchmarks/product_shapes.py squares > squares.jsonl
    python tests/benchmarks/product_shapes.py odd [--number N] [--seed S] > odd.jsonl

squares: mm of 1024, 2048, 4096 and 8192 a side. odd: mm, addmm, bmm and baddbmm of sizes that are
multiples of nothing, in every layout, alone or followed by an activation, a residual or both; the
same for the same seed.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator
from typing import Any

SQUARES = (1024, 2048, 4096, 8192)
LEAST, MOST = 64, 4096  # a side
LEAST_SUM, MOST_SUM = 32, 8192
MOST_BATCH = 32
LEAST_WORK = 1 << 26  # multiplications: smaller ones take as long as their launches
MOST_NUMBERS = 1 << 27  # in a tensor


def tensor(
    name: str, shape: list[int], by_columns: bool = False, kind: str = "input"
) -> dict[str, Any]:
    """A tensor of normal numbers; by_columns: the last two dimensions are transposed in memory."""
    made = {"name": name, "kind": kind, "shape": shape, "dtype": "float32"}
    if by_columns:
        rows, columns = shape[-2:]
        made["stride"] = [*([rows * columns] * (len(shape) - 2)), 1, rows]
    return {**made, "init": {"normal": 1.0}}


def call(name: str, op: str, *operands: str) -> dict[str, Any]:
    args = [{"ref": operand} for operand in operands]
    return {"name": name, "op": f"aten.{op}", "args": args, "kwargs": {}}


def square(n: int) -> dict[str, Any]:
    args = [tensor("a", [n, n]), tensor("b", [n, n], kind="parameter")]
    return {"id": f"mm-{n}", "args": args, "nodes": [call("mm", "mm.default", "a", "b")],
            "outputs": [{"ref": "mm"}]}  # fmt: skip


def odd(number: int, draw: random.Random) -> dict[str, Any]:
    """One product of any shape, and what follows it."""

    def size(least: int, most: int) -> int:
        return int(least * (most / least) ** draw.random())

    while True:
        batch = draw.choice([0, 0, size(2, MOST_BATCH)])
        m, n, k = size(LEAST, MOST), size(LEAST, MOST), size(LEAST_SUM, MOST_SUM)
        matrices = max(batch, 1)
        largest = matrices * max(m * k, k * n, m * n)
        if m * n * k * matrices >= LEAST_WORK and largest <= MOST_NUMBERS:
            break
    leading = [batch] if batch else []
    # --shrink makes inputs smaller: the batch of both, or rows of the first.
    right = "input" if batch else "parameter"
    args = [
        tensor("a", [*leading, m, k], draw.random() < 0.5),
        tensor("b", [*leading, k, n], draw.random() < 0.5, right),
    ]
    adds = draw.random() < 0.5
    if adds:
        args.insert(0, tensor("bias", [n], kind="parameter"))
    op = ("baddbmm" if adds else "bmm") if batch else ("addmm" if adds else "mm")
    nodes = [call("sum", f"{op}.default", *(arg["name"] for arg in args))]
    if draw.random() < 0.5:
        nodes.append(call("active", draw.choice(["relu", "gelu", "silu"]) + ".default", "sum"))
    if draw.random() < 0.5:
        args.append(tensor("residual", [*leading, m, n]))
        nodes.append(call("out", "add.Tensor", nodes[-1]["name"], "residual"))
    ops = "-".join(node["op"].split(".")[1] for node in nodes)
    sizes = "x".join(str(one) for one in (*leading, m, k, n))
    return {"id": f"odd-{number:02}-{ops}-{sizes}", "args": args, "nodes": nodes,
            "outputs": [{"ref": nodes[-1]["name"]}]}  # fmt: skip


def workloads(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    if args.which == "squares":
        yield from map(square, SQUARES)
        return
    draw = random.Random(args.seed)
    for number in range(args.number):
        yield odd(number, draw)


def main() -> None:
    parser = argparse.ArgumentParser(description="Workloads of matrix products.")
    parser.add_argument("which", choices=("squares", "odd"))
    parser.add_argument("--number", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    for workload in workloads(parser.parse_args()):
        print(json.dumps(workload))


if __name__ == "__main__":
    main()
