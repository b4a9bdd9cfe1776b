"""What a workload needs at least, and what the results of many say together."""

from __future__ import annotations

import importlib
import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from cudaforge_backend.reasons import GraphOutcome

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


def gain_of(result: Result) -> float | None:
    """Its gain over the best rival: 1.0 without a result, as PyTorch serves then; None: the
    workload was run without times."""
    if "ms" in result:
        return float(result["gain"][1])
    return 1.0 if _lost(result) else None


def summary(results: Sequence[Result]) -> Iterator[str]:
    """Geometric means over all results, by file where there are several, by kind, and over those
    that run without kernels. A workload without a result counts as 1.0 in the first two."""
    counted = [r for r in results if gain_of(r) is not None]
    timed = [r for r in counted if "ms" in r]
    groups = {"all": counted}
    files = _grouped(counted, "file")
    groups |= files if len(files) > 1 else {}
    groups |= _grouped(timed, "kind") | {
        "without kernels": [r for r in timed if not _runs_with_kernels(r)]
    }
    width = max(16, *map(len, groups))
    yield (
        f"{'geometric means':<{width}} {'number':>6} {'no result':>9} {'over best':>9} "
        f"{'max-autotune':>12} {'of floor':>8} {'A/A':>6} {'least':>6} {'below 0.98':>10} "
        f"{'kernels':>7} {'first s':>7}"
    )
    yield from (f"{name:<{width}} {_means(of)}" for name, of in groups.items() if of)
    if lost := [r for r in results if _lost(r)]:
        why = ", ".join(f"{r['id'][:40]} ({_lost(r)})" for r in lost)
        yield f"{len(lost)} of {len(results)} have no result and count as 1.0: {why}"
    if untimed := len(results) - len(counted):
        yield f"{untimed} of {len(results)} were not timed and are in no mean"


def _grouped(results: Sequence[Result], field: str) -> dict[str, list[Result]]:
    groups: dict[str, list[Result]] = {}
    for r in results:
        groups.setdefault(r.get(field, "?"), []).append(r)
    return groups


def _means(results: Sequence[Result]) -> str:
    """The row of a group of summary()."""
    gains = [g for r in results if (g := gain_of(r)) is not None]
    timed = [r for r in results if "ms" in r]
    lost = len(results) - len(timed)
    tuned = [r["over_tuned"][1] for r in timed if r.get("over_tuned")]
    tuned += [1.0] * lost if tuned else []
    floors = [r["floor_ms"] / r["ms"]["cudaforge"] for r in timed if r.get("floor_ms")]
    controls = [r["control"][1] for r in timed]
    firsts = sorted(r["forge_s"] for r in timed)
    first = f"{firsts[len(firsts) // 2]:.1f}" if firsts else "-"
    return (
        f"{len(results):>6} {lost:>9} {geometric_mean(gains):>9.3f} {_or_dash(tuned):>12} "
        f"{_or_dash(floors):>8} {_or_dash(controls):>6} {min(gains):>6.3f} "
        f"{sum(g < 0.98 for g in gains):>10} {sum(map(_runs_with_kernels, timed)):>7} {first:>7}"
    )


def _runs_with_kernels(result: Result) -> bool:
    return bool(result["graphs"].get(GraphOutcome.SUBSTITUTED))


def _or_dash(ratios: Sequence[float]) -> str:
    return f"{geometric_mean(ratios):.3f}" if ratios else "-"


def _lost(result: Result) -> str:
    """Why there is no result: "refused" by PyTorch, "failed" or "error"; "" where there is one."""
    return next((word for word in ("refused", "failed", "error") if word in result), "")


def results_in(file: Path | None, run: Sequence[Any]) -> list[dict[str, Any]]:
    """The results in a file, if it exists, of runs like this one. run: what results depend on,
    apart from what names them; each has it as `run`."""
    lines = file.read_text().splitlines() if file and file.exists() else []
    return [r for r in map(json.loads, lines) if r.get("run", list(run)) == list(run)]


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
