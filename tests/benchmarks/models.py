"""Whole models with random weights, each compiled with CudaForge without options, in a process of
its own and with an empty cache: how long the first result takes, where that time goes, and how fast
the model is then.

    python tests/benchmarks/models.py [--filter RE] [--dtype fp32|bf16|fp16] [--batch N]
        [--training | --inference] [--list] [--small] [--device cpu|cuda] [--frozen] [--budget S]
        [--limit S] [--deadline S] [--html FILE] [--json RESULTS.jsonl]

The cases are in model_cases.py: `--list` prints them. Needs the packages transformers and timm;
cases of a missing one are not run. `--dtype`, `--batch`: of all models, instead of their own.
`--small`: models of few layers and narrow ones, for small machines. `--frozen`: inference with the
option frozen_weights.

Each result is a line of RESULTS: a case that has one there is skipped, so an interrupted run can be
continued. `--limit`: seconds for one process of a case. `--deadline`: seconds after which no case
is begun. At the end a table of all results and their geometric means, and with `--html` a page. A
case without a result counts as 1.0 in the means, as PyTorch serves then.

first      Seconds of the first call: eager, by Inductor (in the same process, after eager), by
           CudaForge (in a second process).
by phase   stats().spent of CudaForge, all graphs together.
off        The largest difference from the result in float64, with the same weights and inputs.
times      Interleaved rounds of eager, Inductor, a second Inductor and CudaForge, in milliseconds:
           medians. gain: the better of eager and Inductor over CudaForge; control: Inductor over
           itself; 95% intervals. CudaForge as a later process has it: made from what its
           cache has, between the two Inductors, as the first that a process compiles is slower.
in a row   The same of calls that begin while the GPU works on those before, as in a loop that does
           not wait for results. A call alone also has the time until its first kernel starts.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from cudaforge_backend.measure import compiled_apart
from model_cases import Case, Step, cases, step_of
from programs import DTYPES
from scores import gain_of, geometric_mean, results_in

WIDTH = 32  # of a name in the table
ROW = 8  # calls in a row
WAYS = ("eager", "inductor", "again", "cudaforge")


def _finish(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def _first(step: Step, device: str) -> tuple[float, torch.Tensor]:
    began = time.monotonic()
    out = step()
    _finish(device)
    return time.monotonic() - began, out


def run_one(case: Case, device: str, small: bool, options: dict[str, Any]) -> dict[str, Any]:
    """The results of one case. options: of CudaForge."""
    import cudaforge_backend
    from cudaforge_backend import measure
    from cudaforge_backend.reasons import Phase

    torch._dynamo.config.cache_size_limit = 64
    if device == "cuda":
        torch.zeros(1, device=device)
    cudaforge: dict[str, Any] = {"backend": "cudaforge", "options": options}
    ours = step_of(case, device, small, lambda m: torch.compile(m, **cudaforge))
    ours_s, ours_out = _first(ours, device)
    made = cudaforge_backend.stats()
    eager = step_of(case, device, small, lambda m: m)
    eager_s, eager_out = _first(eager, device)
    inductor, served, again = (
        step_of(case, device, small, partial(compiled_apart, **how))
        for how in ({"backend": "inductor"}, cudaforge, {"backend": "inductor"})
    )
    inductor_out = _first(inductor, device)[1]
    _first(served, device), _first(again, device)
    steps = {"eager": eager, "inductor": inductor, "again": again, "cudaforge": served}
    times = measure.time_interleaved(steps, device, min_rounds=20, budget_s=6.0)
    rows = {name: partial(_in_a_row, step) for name, step in steps.items()}
    in_a_row = measure.time_interleaved(rows, device, min_rounds=8, budget_s=6.0)
    exact = _first(step_of(case, device, small, lambda m: m, exact=True), device)[1]
    off = [float((out - exact).abs().max()) for out in (ours_out, eager_out, inductor_out)]
    phases = {p: sum(g.seconds[p] for g in made.spent) for p in Phase}
    called = cudaforge_backend.stats().regions
    return {
        "first": {"cudaforge": ours_s, "eager": eager_s},
        "regions": sum(g.regions for g in made.spent),
        "won": made.forged,
        "phases": phases,
        "graphs": made.graphs,
        "left": made.fallbacks,
        "ways": [way.ms for way in made.ways],
        "served": {region.region: region.hits for region in called if region.hits},
        **_gains(times, 1),
        "in_a_row": _gains(in_a_row, ROW),
        "off": off[0],
        "eager_off": off[1],
        "inductor_off": off[2],
    }


def _in_a_row(step: Step) -> None:
    for _ in range(ROW):
        step()


def _gains(times: Any, calls: int) -> dict[str, Any]:
    """Of measure.Times of so many calls each."""
    best = min(("eager", "inductor"), key=times.median_ms)
    return {
        "ms": {name: times.median_ms(name) / calls for name in WAYS},
        "best": best,
        "gain": times.speedup(best, "cudaforge"),
        "control": times.speedup("inductor", "again"),
    }


def first_of_inductor(case: Case, device: str, small: bool) -> float:
    """Seconds of Inductor's first call, in this process, with nothing compiled before."""
    if device == "cuda":
        torch.zeros(1, device=device)
    return _first(step_of(case, device, small, lambda m: torch.compile(m)), device)[0]


def _child(case: Case, way: str, limit: float, fresh: str) -> dict[str, Any]:
    """What a process of its own prints, with empty caches below the folder `fresh` and no setting
    of how much is forged."""
    ours = ("ON_MISS", "REGION_BUDGET_S", "GRAPH_BUDGET_S")
    env = {**os.environ, **dict.fromkeys([f"CUDAFORGE_{name}" for name in ours], "")}
    env |= {"TORCHINDUCTOR_CACHE_DIR": f"{fresh}/inductor", "CUDAFORGE_CACHE_DIR": f"{fresh}/ours"}
    try:
        done = subprocess.run(
            [sys.executable, __file__, *sys.argv[1:], "--child", case.name, way],
            capture_output=True, text=True, timeout=limit, env=env, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return {"error": f"not done after {limit:g} s"}
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        return {"error": (done.stderr.strip().splitlines() or ["?"])[-1]}
    result: dict[str, Any] = json.loads(lines[-1])
    return result


def _row(result: dict[str, Any]) -> str:
    if "error" in result:
        return f"{result['name']:<{WIDTH}} {result['error']}"
    first = result["first"]
    spent = ", ".join(f"{p} {s:.1f}" for p, s in result["phases"].items() if s >= 0.05)
    off = f"off {result['off']:.2g} (eager {result['eager_off']:.2g}, "
    off += f"Inductor {result['inductor_off']:.2g})"
    return (
        f"{result['name']:<{WIDTH}} first {first['cudaforge']:.1f} s "
        f"(Inductor {first['inductor']:.1f}, eager {first['eager']:.1f}); "
        f"{result['regions']} regions, {result['won']} won; {spent}\n"
        f"{'':<{WIDTH}} ms: {_timed(result)}; {off}\n"
        f"{'':<{WIDTH}} ms of {ROW} in a row: {_timed(result['in_a_row'])}"
    )


def _timed(gains: dict[str, Any]) -> str:
    ms, (low, gain, high) = gains["ms"], gains["gain"]
    return (
        f"eager {ms['eager']:.2f}, Inductor {ms['inductor']:.2f}, CudaForge {ms['cudaforge']:.2f}; "
        f"gain {gain:.3f} [{low:.3f}, {high:.3f}] over {gains['best']}, "
        f"control [{gains['control'][0]:.3f}, {gains['control'][2]:.3f}]"
    )


def _notes(result: dict[str, Any]) -> list[str]:
    """Facts of a result for a page, in addition to its times."""
    if "error" in result:
        return []
    labels = {"cudaforge": "CudaForge", "inductor": "Inductor"}
    first = ", ".join(f"{labels.get(way, way)} {s:.1f} s" for way, s in result["first"].items())
    regions = f"Regions forged: {result['regions']}, won: {result['won']}"
    return [f"First call: {first}.", f"{regions}; largest difference {result['off']:.2g}."]


def run_case(case: Case, limit: float) -> dict[str, Any]:
    """The results of one case, from two processes; `error` where one of them had none."""
    about = {"name": case.name, **dataclasses.asdict(case)}
    with tempfile.TemporaryDirectory() as folder:
        alone = _child(case, "inductor", limit, f"{folder}/i")
        if "error" in alone:
            return {**about, **alone}
        result = _child(case, "cudaforge", limit, f"{folder}/c")
    if "error" not in result:
        result["first"]["inductor"] = alone["inductor"]
    return {**about, **result}


def means(results: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Geometric means over all results, and by type, inference and training."""
    groups = {"all": list(results)}
    for r in results:
        way = "training" if r["training"] else "inference"
        groups.setdefault(f"{way} {r['dtype']}", []).append(r)
    yield (
        f"{'geometric means':<18} {'number':>6} {'no result':>9} {'over best':>9} {'in a row':>8} "
        f"{'A/A':>6}"
    )
    for name, of in groups.items():
        gains = [g for r in of if (g := gain_of(r)) is not None]
        controls = [r["control"][1] for r in of if "control" in r]
        control = f"{geometric_mean(controls):.3f}" if controls else "-"
        row = geometric_mean([r["in_a_row"]["gain"][1] if "in_a_row" in r else 1.0 for r in of])
        yield (
            f"{name:<18} {len(of):>6} {len(of) - len(controls):>9} {geometric_mean(gains):>9.3f} "
            f"{row:>8.3f} {control:>6}"
        )
    if lost := [r["name"] for r in results if "error" in r]:
        yield f"{len(lost)} of {len(results)} have no result and count as 1.0: {', '.join(lost)}"


def options_of(args: argparse.Namespace, case: Case) -> dict[str, Any]:
    """CudaForge's options for a case."""
    options: dict[str, Any] = {"region_budget_s": args.budget} if args.budget else {}
    return {**options, "frozen_weights": True} if args.frozen and not case.training else options


def chosen(args: argparse.Namespace) -> list[Case]:
    """The cases that the arguments name."""
    named = cases(args.dtype, args.batch, args.training, args.small)
    return [case for case in named if re.search(args.filter, case.name)]


def parsed() -> argparse.Namespace:
    """The arguments of the command."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--filter", default="", metavar="RE", help="cases whose name matches")
    parser.add_argument("--dtype", choices=DTYPES)
    parser.add_argument("--batch", type=int)
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--training", action="store_true", default=None, help="training steps alone")
    how.add_argument("--inference", action="store_false", dest="training", help="inference alone")
    parser.add_argument("--list", action="store_true", help="print the cases, run none")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--frozen", action="store_true", help="weights that do not change")
    parser.add_argument("--budget", type=float, help="seconds for a region")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds for one process")
    parser.add_argument("--deadline", type=float, default=math.inf, help="seconds to begin within")
    parser.add_argument("--json", type=Path, metavar="RESULTS.jsonl")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write the results as a page")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    return parser.parse_args()


def run_all(args: argparse.Namespace, mine: Sequence[Case]) -> list[dict[str, Any]]:
    """The results of these cases; runs those that have none, until the deadline."""
    # What results depend on, apart from the case.
    run = [args.device, args.small, args.frozen, args.budget]
    known = {result["name"]: result for result in results_in(args.json, run)}
    began = time.monotonic()
    for case in mine:
        if case.name in known or time.monotonic() - began >= args.deadline:
            continue
        result = known[case.name] = {**run_case(case, args.limit), "run": run}
        print(_row(result), flush=True)
        if args.json:
            with args.json.open("a") as out:
                out.write(json.dumps(result) + "\n")
    return [known[case.name] for case in mine if case.name in known]


def main() -> None:
    """See the module."""
    args = parsed()
    found = chosen(args)
    if args.child:
        name, way = args.child
        (case,) = (case for case in found if case.name == name)
        if way == "inductor":
            print(json.dumps({"inductor": first_of_inductor(case, args.device, args.small)}))
        else:
            print(json.dumps(run_one(case, args.device, args.small, options_of(args, case))))
        return
    if args.list:
        for case in found:
            print(case.name + (f"  (needs {case.missing})" if case.missing else ""))
        return
    if not found:
        raise SystemExit("no case matches: see --list")
    mine = [case for case in found if not case.missing]
    results = run_all(args, mine)
    print("\n".join(["", *map(_row, results), "", *means(results)]))
    if left := len(mine) - len(results):
        print(f"{left} of {len(mine)} were not begun before the deadline")
    for package in sorted({case.missing for case in found} - {""}):
        names = ", ".join(case.name for case in found if case.missing == package)
        print(f"Not run, as {package} is not installed: {names}")
    if args.html:
        from page import timed_row, write_page

        rows = [timed_row(result, _notes(result)) for result in results]
        write_page(args.html, "Whole models", rows, args.device)


if __name__ == "__main__":
    main()
