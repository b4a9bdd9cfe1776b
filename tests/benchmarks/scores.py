"""What a workload needs at least, and what the results of many say together."""

from __future__ import annotations

import importlib
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

Result = Mapping[str, Any]

_KINDS = ("convolution", "attention")
_PRODUCTS = ("mm", "bmm", "addmm", "baddbmm")


def work_of(run: Callable[[], Sequence[torch.Tensor]], inputs: Sequence[torch.Tensor]) -> Result:
    """What a call of `run` must move and compute. bytes: of `inputs` (with parameters) and outputs,
    each once. flops: by kind, as torch.utils.flop_counter counts them: matrix products,
    convolutions and attention alone."""
    from torch.utils.flop_counter import FlopCounterMode

    counter = FlopCounterMode(display=False)
    with counter:
        outputs = run()
    flops: dict[str, int] = defaultdict(int)
    for op, count in counter.get_flop_counts().get("Global", {}).items():
        flops[_kind_of(str(op))] += int(count)
    storages = {x.untyped_storage().data_ptr(): x for x in (*inputs, *outputs)}
    moved = sum(x.numel() * x.element_size() for x in storages.values())
    return {"bytes": moved, "flops": dict(flops)}


def _kind_of(op: str) -> str:
    if any(op.endswith(f".{name}") for name in _PRODUCTS):
        return "product"
    return next((kind for kind in _KINDS if kind in op), "other")


def kind_of(work: Result) -> str:
    """The kind with most of the operations; "memory" without any."""
    flops = work["flops"]
    return max(flops, key=flops.__getitem__) if flops else "memory"


def floor_ms(work: Result, dtype: torch.dtype, facts: Result) -> float | None:
    """The least milliseconds on a device with these measured rates (csrc/target/target.h); None
    without them. Products of float32 take three of float16 on tensor cores; convolutions of float32
    may use TF32, whose rate is half of float16's."""
    bandwidth = facts.get("bandwidth_gb_s")
    if not bandwidth:
        return None
    seconds = work["bytes"] / (bandwidth * 1e9)
    cores, tensor = facts.get("fp32_tflops") or 0.0, facts.get("fp16_tensor_tflops") or 0.0
    operations = 0.0
    for kind, count in work["flops"].items():
        if dtype.itemsize == 2 and tensor:
            rate = tensor
        elif kind == "convolution" and torch.backends.cudnn.allow_tf32:
            rate = max(cores, tensor / 2)
        else:
            rate = max(cores, tensor / 3)
        if rate:
            operations += count / (rate * 1e12)
    return float(max(seconds, operations)) * 1e3


def geometric_mean(ratios: Sequence[float]) -> float:
    """NaN of none."""
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else math.nan


def summary(results: Sequence[Result]) -> Iterator[str]:
    """Geometric means over all results, and by kind; how many have no times."""
    timed = [r for r in results if "ms" in r]
    rows: dict[str, list[Result]] = {"all": timed}
    for r in timed:
        rows.setdefault(r.get("kind", "?"), []).append(r)
    yield (
        f"{'geometric means':<16} {'number':>6} {'over best':>10} {'max-autotune':>12} "
        f"{'of floor':>9} {'least':>7} {'below 0.98':>10} {'won':>4} {'first s':>8}"
    )
    for name, of in rows.items():
        if not of:
            continue
        gains = [r["gain"][1] for r in of]
        tuned = [r["over_tuned"][1] for r in of if r.get("over_tuned")]
        floors = [r["floor_ms"] / r["ms"]["cudaforge"] for r in of if r.get("floor_ms")]
        won = sum(any(g.get("verdict") == "winner" for g in r["regions"]) for r in of)
        firsts = sorted(r["forge_s"] for r in of)
        yield (
            f"{name:<16} {len(of):>6} {geometric_mean(gains):>10.3f} {_or_dash(tuned):>12} "
            f"{_or_dash(floors):>9} {min(gains):>7.3f} {sum(g < 0.98 for g in gains):>10} "
            f"{won:>4} {firsts[len(firsts) // 2]:>8.1f}"
        )
    if missing := [r for r in results if "ms" not in r]:
        why = ", ".join(f"{r['id'][:40]} ({_why(r)})" for r in missing)
        yield f"{len(missing)} of {len(results)} have no times and are in no mean: {why}"


def _or_dash(ratios: Sequence[float]) -> str:
    return f"{geometric_mean(ratios):.3f}" if ratios else "-"


def _why(result: Result) -> str:
    return next((word for word in ("refused", "failed") if word in result), "not timed")


def plot(results: Sequence[Result], facts: Result, file: Path) -> None:
    """A roofline of the products and convolutions, as PNG: operations a second over operations a
    byte, of the better of eager and Inductor and of CudaForge. ImportError: no matplotlib."""
    pyplot: Any = importlib.import_module("matplotlib.pyplot")
    shown = [r for r in results if "ms" in r and sum(r["work"]["flops"].values())]
    figure, axes = pyplot.subplots(figsize=(9, 6))
    for label, way in (("better of eager and Inductor", ""), ("CudaForge", "cudaforge")):
        points = [_point(r, way or r["best"]) for r in shown]
        axes.scatter([x for x, _ in points], [y for _, y in points], s=14, label=label)
    bandwidth = facts.get("bandwidth_gb_s")
    xs = [x for r in shown for x, _ in [_point(r, "cudaforge")]] or [1.0]
    ends = (min(xs) / 2, max(xs) * 2)
    if bandwidth:
        axes.plot(ends, [x * bandwidth / 1e3 for x in ends], "k-", lw=0.8, label="memory")
    for name in ("fp32_tflops", "fp16_tensor_tflops"):
        if rate := facts.get(name):
            axes.plot(ends, [rate, rate], "--", lw=0.8, label=name)
    axes.set(xscale="log", yscale="log", xlabel="operations a byte", ylabel="TFLOP/s")
    axes.legend()
    figure.savefig(file, dpi=150)


def _point(result: Result, way: str) -> tuple[float, float]:
    work = result["work"]
    flops = sum(work["flops"].values())
    return flops / max(work["bytes"], 1), flops / (result["ms"][way] * 1e9)
