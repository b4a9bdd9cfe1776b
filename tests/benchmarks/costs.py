"""Costs of CudaForge where it should cost nothing: ratios and differences from interleaved runs.

    python tests/benchmarks/costs.py [--device cpu|cuda] [--only NAME,...] [--rounds N]
                                      [--json FILE]

region_call   one cudaforge::region_v1 call that hits, against the ATen operator it replaces, in us
eager_call    one eager call of an intercepted operator, against the same call without interception,
              in us: with a winner and with a negative entry, from Python and from C++ (a
              TorchScript loop); and a call that is first seen and recorded
enable        entering and leaving enable() with the default operators, in us; and the extra time of
              the next call of one of them, compared with the call after it
import        `import torch, cudaforge_backend` against `import torch`, seconds
open_cache    opening a cache of 1,000 winners of 20 KB and reading them all, milliseconds
compile       compiling a graph that has an anchor but no winner, against plain Inductor, seconds:
              the first time ever, and in a later process with a kernel cache that knows the graph;
              four kinds, interleaved, each round starting with a different one; medians with 95%
              intervals

At the end each cost is compared with its limit: nothing if it is within, OVER if it is above,
undecided in two cases. Either the limit is inside the spread (the middle half of the rounds; for
`compile`, the 95% interval). Or the median is no farther from the limit than the spread of the
control (the same measured twice, A/A) is from no difference. open_cache has no control, enable no
limit. An undecided cost needs a quieter machine or more rounds.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import cudaforge_backend
import torch
from cudaforge_backend._native import _C

SOFTMAX_OP = "aten::_softmax"
SOFTMAX = {
    "format": 1, "aliases": [], "numerics": {"deterministic": False},
    "nodes": [{"op": SOFTMAX_OP, "args": [{"in": 0}, -1, False], "kwargs": {}}],
    "outputs": [{"node": 0, "out": 0}],
}  # fmt: skip

_COLUMNS = itertools.count(100)  # of shapes that are new to this process


def softmax_signature(device: str, rows: int, columns: int) -> _C.Signature:
    """The signature of a contiguous float32 softmax over the last dimension."""
    spec = {"dtype": "float32", "sizes": [rows, columns], "strides": [columns, 1]}
    node = {**SOFTMAX["nodes"][0], "outputs": [spec]}  # type: ignore[index]
    region = {**SOFTMAX, "device": device, "inputs": [{**spec, "alignment": 16}], "nodes": [node]}
    return _C.Signature.parse(json.dumps(region)).normalized()


def served_softmax(device: str) -> _C.Signature:
    """Makes this process's kernel for a softmax over [4, 16], from the generators; its signature.
    From here on PyTorch has one thread: the barriers of a pool are no part of a call."""
    torch.set_num_threads(1)
    signature = softmax_signature(device, 4, 16)
    made, *_ = _C.forge_region(signature, 0, _AlwaysWins(), 20.0, 1, _C.Cancel())
    if made["kind"] != "winner":
        raise RuntimeError(made["provenance"]["reason"])
    return signature


class _AlwaysWins:
    """A host (_ForgeHost in _C.pyi) in whose races ATen sleeps."""

    def tell(self, event: dict[str, Any]) -> None: ...
    def go_on(self) -> None: ...
    def take_turn(self, race: bool) -> None: ...
    def inputs(self, signature: _C.Signature, seed: int) -> list[torch.Tensor]:
        return [torch.empty(0)] * len(signature.inputs)

    def winner(self, signature: _C.Signature) -> Callable[[Any], None]:
        return lambda inputs: None

    def aten(self, signature: _C.Signature) -> Callable[[Any], None]:
        return lambda inputs: time.sleep(1e-4)

    def inductor(self, *_: Any) -> tuple[None, bool, float]:
        return None, True, 0.0

    def clock(self) -> Callable[[Callable[[], None], object], float]:
        def clock(work: Callable[[], None], warm: object) -> float:
            start = time.perf_counter_ns()
            work()
            return float(time.perf_counter_ns() - start)

        return clock

    def is_busy(self) -> bool:
        return False


def spread(values: list[float]) -> dict[str, float]:
    """Median and the middle half."""
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return {"low": low, "median": middle, "high": high}


def interval(values: list[float]) -> dict[str, float]:
    """The median and its 95% interval, by the bootstrap: medians of 4,000 resamples."""
    draw = random.Random(0)
    medians = [statistics.median(draw.choices(values, k=len(values))) for _ in range(4000)]
    cuts = statistics.quantiles(medians, n=40)
    return {"low": cuts[0], "median": statistics.median(values), "high": cuts[-1]}


def region_call(device: str) -> dict[str, Any]:
    """A hit on a tiny tensor: the call is all there is. Rounds of 2,000 calls, interleaved."""
    signature = served_softmax(device)
    region = torch.ops.cudaforge.region_v1.default
    aten = torch.ops.aten._softmax.default
    number = _C.region_id(signature.key)
    x = torch.randn(4, 16, device=device)
    calls: dict[str, Callable[[], Any]] = {
        "aten": lambda: aten(x, -1, False),
        "region": lambda: region([x], number, signature.text),
        "aten_again": lambda: aten(x, -1, False),
    }
    times: dict[str, list[float]] = {name: [] for name in calls}
    cudaforge_backend.reset_stats()
    for _ in range(60):
        for name, call in calls.items():
            if device == "cuda":
                torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(2000):
                call()
            times[name].append((time.perf_counter() - start) / 2000 * 1e6)
    hits = cudaforge_backend.stats().hits
    over = [r - a for r, a in zip(times["region"], times["aten"], strict=True)]
    control = [r - a for r, a in zip(times["aten_again"], times["aten"], strict=True)]
    return {
        "aten_us": spread(times["aten"]),
        "region_us": spread(times["region"]),
        "over_us": spread(over),
        "control_us": spread(control),
        "hits": hits,
    }


EAGER_LOOP = """
def loop(x: Tensor, n: int) -> Tensor:
    y = x
    for _ in range(n):
        y = torch._softmax(y, -1, False)
    return y
"""


def eager_call(device: str) -> dict[str, Any]:
    """Tiny tensors. Rounds of 2,000 calls, interleaved: each state is brought about before its
    round, and the operator is as PyTorch has it in the rounds of "native" and "native_again"."""
    served_softmax(device)
    scripted = torch.jit.CompilationUnit(EAGER_LOOP).loop
    aten = torch.ops.aten._softmax.default

    def from_python(x: torch.Tensor, n: int) -> None:
        for _ in range(n):
            aten(x, -1, False)

    served, negative = (torch.randn(4, n, device=device) for n in (16, 17))
    states = {
        "native": ([], served),
        "hit": ([SOFTMAX_OP], served),
        "native_again": ([], served),
        "native_of_negative": ([], negative),
        "negative": ([SOFTMAX_OP], negative),
    }
    callers = {"python": from_python, "cpp": scripted}
    times: dict[str, list[float]] = {f"{c}_{s}": [] for c in callers for s in states}
    _C.on_eager_miss(False, None)
    cudaforge_backend.reset_stats()
    for _ in range(40):
        for state, (ops, x) in states.items():
            _C.intercept(ops)
            for caller, calls in callers.items():
                calls(x, 10)
                if device == "cuda":
                    torch.cuda.synchronize()
                start = time.perf_counter()
                calls(x, 2000)
                times[f"{caller}_{state}"].append((time.perf_counter() - start) / 2000 * 1e6)
    hits = cudaforge_backend.stats().eager[SOFTMAX_OP].hits
    result: dict[str, Any] = {"hits": hits}
    for caller in callers:
        result[f"{caller}_native_us"] = spread(times[f"{caller}_native"])
        for state, base in (
            ("hit", "native"), ("native_again", "native"), ("negative", "native_of_negative"),
        ):  # fmt: skip
            pairs = zip(times[f"{caller}_{state}"], times[f"{caller}_{base}"], strict=True)
            result[f"{caller}_{state}_over_us"] = spread([t - b for t, b in pairs])
        result[f"{caller}_recorded_over_us"] = recorded_call(device, callers[caller])
    return result


def recorded_call(device: str, calls: Callable[[torch.Tensor, int], Any]) -> dict[str, float]:
    """The first calls of 100 shapes with enable()'s default, record, against the same calls where
    the operator is not intercepted, in us. calls(x, n) calls it n times."""
    with (
        tempfile.TemporaryDirectory() as folder,
        cudaforge_backend.enable([SOFTMAX_OP], cache_dir=folder),
    ):
        over = []
        for _ in range(100):
            x = torch.randn(4, next(_COLUMNS), device=device)
            taken = []
            for ops in ([], [], [SOFTMAX_OP]):  # the first one has memory for the result
                _C.intercept(ops)
                start = time.perf_counter()
                calls(x, 1)
                taken.append((time.perf_counter() - start) * 1e6)
            over.append(taken[2] - taken[1])
    return spread(over)


def enable(device: str) -> dict[str, Any]:
    """100 rounds after one that opens the cache, with a softmax that has a winner."""
    x = torch.randn(4, 16, device=device)
    served_softmax(device)
    rounds = []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(101):
            marks = [time.perf_counter()]
            with cudaforge_backend.enable(cache_dir=folder):
                marks.append(time.perf_counter())
                for _ in range(2):
                    x.softmax(-1)
                    marks.append(time.perf_counter())
            marks.append(time.perf_counter())
            rounds.append([(end - start) * 1e6 for start, end in itertools.pairwise(marks)])
    entered, first, second, left = zip(*rounds[1:], strict=True)
    over = [f - s for f, s in zip(first, second, strict=True)]
    told = {"enter_us": entered, "leave_us": left, "next_call_over_us": over}
    return {name: spread([*values]) for name, values in told.items()}


def import_seconds() -> dict[str, Any]:
    """Seven rounds of fresh processes; "control" is torch alone once more."""
    rounds = []
    for _ in range(7):
        taken = []
        for statement in ("import torch", "import torch, cudaforge_backend", "import torch"):
            start = time.perf_counter()
            subprocess.run([sys.executable, "-c", statement], check=True)
            taken.append(time.perf_counter() - start)
        rounds.append(taken)
    return {
        "torch_s": spread([torch_s for torch_s, _, _ in rounds]),
        "over_s": spread([ours - torch_s for torch_s, ours, _ in rounds]),
        "control_s": spread([again - torch_s for torch_s, _, again in rounds]),
    }


def evidence(rows: int, columns: int) -> dict[str, Any]:
    """The rest of a real record of a softmax, without its signature and kernel."""
    cases = ["normal", "row_scales", "special_values", "mixed", "nan_operands", "infinite_operands"]
    report = [
        {
            "aten_max_error": 0.06230265791157663 + n, "aten_rms_error": 0.002889080797103335,
            "case": case, "elements": rows * columns, "max_limit": 0.1869079737347299 + n,
            "output": 0, "rms_limit": 0.09779898647848721, "rule": "tolerance",
        }
        for n, case in enumerate(cases)
    ]  # fmt: skip
    params = {
        "model": "", "node": 1, "session": os.urandom(16).hex(),
        "prompt_sha256": os.urandom(32).hex(),
    }  # fmt: skip
    return {
        "verification": {
            "cases": cases,
            "poisons": [255, 43],
            "report": {"aten_deterministic": True, "cases": report},
        },
        "timing": {
            "aten_us": 39.48799893260002, "best_rival": "inductor",
            "inductor_us": 18.49599927663803, "rounds": 130,
            "speedup": [1.0844157131634433, 1.0895553822913886, 1.094890599334988],
            "winner_us": 16.96000061929226,
        },
        "provenance": {
            "author": "agent:command:python3", "budget_s": 30.0, "candidates_tried": 3,
            "created": 1795368550, "forge_seconds": 20.933126661999978, "params": params,
        },
    }  # fmt: skip


def open_cache(count: int = 1000) -> dict[str, Any]:
    """Writes `count` winners, then reads them all in a fresh store."""
    with tempfile.TemporaryDirectory() as folder:
        writer = _C.KernelStore.open(folder, True)
        records = []
        for rows in range(1, count + 1):
            signature = softmax_signature("cpu", rows, 16)
            record = {
                "kind": "winner", "key": signature.key, "arch": "cpu:x86-64-v3",
                "signature": signature.to_dict(), **evidence(rows, 16),
                "versions": _C.versions(),
            }  # fmt: skip
            records.append((record, os.urandom(20_000)))
        for record, binary in records:
            writer.put(record, {"code": "x" * 4000}, binary)
        del writer
        taken = []
        for _ in range(5):
            start = time.perf_counter()
            store = _C.KernelStore.open(folder)
            found = sum(store.verdict(r["key"], r["arch"]) is not None for r, _ in records)
            taken.append((time.perf_counter() - start) * 1e3)
            if found != count:
                raise RuntimeError(f"{found} of {count} records came back")
    return {"milliseconds": spread(taken), "records": count}


COMPILE = """
import os, sys, time, torch
os.environ["TORCHINDUCTOR_VEC_ISA_OK"] = "1"
class M(torch.nn.Module):
    def __init__(self):
        super().__init__()
        block = lambda: [torch.nn.Linear(64, 64), torch.nn.LayerNorm(64), torch.nn.GELU()]
        self.layers = torch.nn.Sequential(*(layer for _ in range(4) for layer in block()))
    def forward(self, x): return torch.softmax(self.layers(x), -1)
m = M().to(sys.argv[2]); x = torch.randn(32, 64, device=sys.argv[2])
torch.compile(torch.nn.Linear(4, 4).to(sys.argv[2]))(torch.randn(2, 4, device=sys.argv[2]))
start = time.perf_counter()
with torch.no_grad(): torch.compile(m, backend=sys.argv[1])(x)
print(time.perf_counter() - start)
"""


def compile_once(device: str, backend: str, kernels: Path) -> float:
    """Seconds of one compilation in a fresh process with an empty Inductor cache. Kernels that are
    missing are not made."""
    with tempfile.TemporaryDirectory() as inductor:
        caches = {"TORCHINDUCTOR_CACHE_DIR": inductor, "CUDAFORGE_CACHE_DIR": str(kernels)}
        caches["CUDAFORGE_ON_MISS"] = "record"
        done = subprocess.run(
            [sys.executable, "-c", COMPILE, backend, device],
            env={**os.environ, **caches},
            check=True,
            capture_output=True,
            text=True,
        )
    return float(done.stdout.split()[-1])


def compile_seconds(device: str, rounds: int) -> Any:
    """Each round has one of each name. "first" has an empty kernel cache; an earlier process filled
    the cache of the third. "control" is Inductor a second time."""
    names = ["inductor", "first", "again", "control"]
    times: dict[str, list[float]] = {name: [] for name in names}
    with tempfile.TemporaryDirectory() as kept:
        folder = Path(kept)
        compile_once(device, "cudaforge", folder / "again")
        for n in range(rounds):
            kernels = {"first": folder / f"first{n}", "again": folder / "again"}
            for name in names[n % len(names) :] + names[: n % len(names)]:
                backend = "cudaforge" if name in kernels else "inductor"
                place = kernels.get(name, folder / "none")
                times[name].append(compile_once(device, backend, place))
    base = times["inductor"]
    ratios = {
        name: interval([t / b for t, b in zip(times[name], base, strict=True)])
        for name in names
        if name != "inductor"
    }
    return {"inductor_s": interval(base), "rounds": rounds, **ratios}


class Limit(NamedTuple):
    """What a cost may be at most: the figure of the results that it is read from, and its control,
    "" where there is none; `none` is what the control is where nothing differs."""

    figure: str
    most: float
    control: str = ""
    none: float = 0.0


class Cost(NamedTuple):
    """How a cost is measured, and what it may be at most."""

    measure: Callable[[argparse.Namespace], Any]
    limits: list[Limit]


COSTS = {
    "region_call": Cost(
        lambda args: region_call(args.device), [Limit("over_us", 1.5, "control_us")]
    ),
    "eager_call": Cost(
        lambda args: eager_call(args.device),
        [
            Limit(f"{caller}_{state}_over_us", most, f"{caller}_native_again_over_us")
            for caller in ("python", "cpp")
            for state, most in (("negative", 0.3), ("hit", 1.0))
        ],
    ),
    "enable": Cost(lambda args: enable(args.device), []),
    "import": Cost(lambda args: import_seconds(), [Limit("over_s", 0.3, "control_s")]),
    "open_cache": Cost(lambda args: open_cache(), [Limit("milliseconds", 50.0)]),
    "compile": Cost(
        lambda args: compile_seconds(args.device, args.rounds),
        [Limit("first", 1.05, "control", none=1.0)],
    ),
}


def verdict(limit: Limit, result: Any) -> str:
    """ "", "OVER" or "undecided", by the rule of this file's docstring."""
    cost = result[limit.figure]
    if cost["low"] <= limit.most < cost["high"]:
        return "undecided"
    if limit.control:
        same = result[limit.control]
        noise = max(abs(same[end] - limit.none) for end in ("low", "high"))
        if abs(cost["median"] - limit.most) <= noise:
            return "undecided"
    return "OVER" if cost["low"] > limit.most else ""


def against_limits(name: str, result: Any) -> list[str]:
    """A line each: "open_cache milliseconds: 41 (38 to 47) of at most 50"."""
    lines = []
    for limit in COSTS[name].limits:
        cost = result[limit.figure]
        said = verdict(limit, result)
        measured = f"{cost['median']:.3g} ({cost['low']:.3g} to {cost['high']:.3g})"
        most = f"{limit.most:g}{said and f', {said}'}"
        lines.append(f"{name} {limit.figure}: {measured} of at most {most}")
    return lines


def main() -> None:
    """Prints one line per cost, then each against its limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--only", default=",".join(COSTS))
    parser.add_argument("--rounds", type=int, default=7, help="of `compile`")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    results = {}
    for name in args.only.split(","):
        results[name] = COSTS[name].measure(args)
        print(name, json.dumps(results[name]), flush=True)
    for name, result in results.items():
        for line in against_limits(name, result):
            print(line)
    if args.json:
        args.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
