"""Workloads of files, each compiled with CudaForge in a process of its own and with empty caches:
the verdicts on its regions, and its time next to those of PyTorch and Inductor.

    python tests/benchmarks/workloads.py FILE.jsonl|SCRIPT.py:FACTORY ... [--filter RE]
        [--dtype fp32|bf16|fp16] [--against eager,inductor,max-autotune] [--draw N --seed S]
        [--shard I/N] [--device cpu|cuda] [--shrink K] [--budget S] [--limit S] [--deadline S]
        [--warm] [--cache-dir DIR] [--no-times] [--html FILE] [--plot OUT.png]
        [--json RESULTS.jsonl]

A line of FILE is a workload: `args` (name, kind, shape, dtype, stride, init), `nodes` (calls of
ATen in order), `outputs`. SCRIPT.py:FACTORY makes a model and its inputs, as for `cudaforge
warmup`. On several GPUs as many workloads run at once. `--shrink` divides the leading dimension of
every input by K, for small machines: what PyTorch then refuses is marked "refused".

Each result is a line of RESULTS: a workload that has one there is skipped, so an interrupted run
can be continued. `--deadline`: seconds after which no workload is begun. At the end a table of all
results, their geometric means by file and by kind, and with `--html` a page. A workload without a
result counts as 1.0 in the means, as PyTorch serves then.

judged     Every region has a verdict, a winner or why none, and none of these is want of time; or
           it was skipped, as a kernel could hardly make the graph faster.
off        The largest difference from float64, of CudaForge, of PyTorch and (with times) of
           Inductor, over the root-mean-square of the output. Of large work on some rows of the
           leading dimension, if they do not depend on each other (see accuracy.py).
times      Interleaved rounds of eager, Inductor, max-autotune (without CUDA graphs), a second
           Inductor and CudaForge, in milliseconds: medians of device time with cold caches; with
           --warm, and on a CPU, of a call with warm ones. gain: the better of eager and Inductor
           over CudaForge; over_tuned: max-autotune over CudaForge; control: Inductor over itself;
           95% intervals. CudaForge as a later process has it: made from what its cache has,
           between the two Inductors, as the first that a process compiles is slower.
floor_ms   The least time on this GPU, by its measured rates (see scores.floor_ms).
phases     stats().spent of CudaForge, all graphs together, in seconds.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import os
import queue
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import torch
from accuracy import off_from_exact
from cudaforge_backend.measure import compiled_apart
from programs import DTYPES, Made, Program, Workload, make_program, read_workloads
from scores import floor_ms, kind_of, plot, results_in, summary, work_of

RIVALS = ("eager", "inductor", "max-autotune")
RECORDED = (
    "key",
    "ops",
    "shapes",
    "verdict",
    "reason",
    "author",
    "speedup",
    "speedup_over_aten",
    "retry_above_s",
)  # of a region's record


def run_one(workload: Workload, args: argparse.Namespace) -> dict[str, Any]:
    """One workload, in this process."""
    import cudaforge_backend
    from cudaforge_backend.reasons import Phase, Reason
    from cudaforge_backend.records import find

    began = time.monotonic()
    result: dict[str, Any] = {"id": workload["id"]}
    program = make_program(workload, args.device, args.shrink, DTYPES.get(args.dtype, "")).eval()
    seen: dict[str, str] = {}

    def note(event: Any) -> None:
        if isinstance(event, cudaforge_backend.RegionFound):
            seen[event.key] = event.arch

    with torch.no_grad():
        try:
            right = program(*program.inputs)
        except (RuntimeError, IndexError) as error:
            return {**result, "refused": str(error).splitlines()[0]}
        cudaforge_backend.set_progress(note)
        options: dict[str, Any] = {}
        if args.budget:
            options["region_budget_s"] = args.budget
        if args.cache_dir:
            options["cache_dir"] = args.cache_dir
        compiled = torch.compile(program, backend="cudaforge", options=options)
        have = compiled(*program.inputs)
        result["forge_s"] = round(time.monotonic() - began, 1)
        regions = []
        for key, arch in seen.items():
            found = find(key, arch)
            regions.append(
                {"key": key} if found is None else {name: found[name] for name in RECORDED}  # type: ignore[literal-required]
            )
        result["regions"] = regions
        counts = cudaforge_backend.stats()
        unrecorded = sum(1 for r in regions if len(r) == 1)
        result["judged"] = unrecorded <= counts.fallbacks.get(Reason.LITTLE_TO_GAIN, 0) and all(
            r.get("retry_above_s") is None for r in regions
        )
        result["fallbacks"] = counts.fallbacks
        result["graphs"] = counts.graphs
        spent = counts.spent
        result["phases"] = {p: round(sum(g.seconds[p] for g in spent), 2) for p in Phase}
        answers = [have, right]
        if not args.no_times:
            calls = _calls(program, args, options)
            answers.append(calls["inductor"](*program.inputs))
        off = off_from_exact(program, right, answers)
        result["off"] = off.worst if off else None
        result["off_rows"] = off.rows if off else None
        answers.clear()
        if not args.no_times:
            result |= _times(program, calls, args)
    result["seconds"] = round(time.monotonic() - began, 1)
    return result


def _calls(
    program: Program | Made, args: argparse.Namespace, options: dict[str, Any]
) -> dict[str, Callable[..., Any]]:
    """The ways to run the program, compiled: all requested rivals, and CudaForge's."""
    calls: dict[str, Callable[..., Any]] = {"eager": program, "inductor": compiled_apart(program)}
    if "max-autotune" in args.against:
        mode = "max-autotune-no-cudagraphs"
        calls["max-autotune"] = compiled_apart(program, mode=mode)
    calls["cudaforge"] = compiled_apart(program, backend="cudaforge", options=options)
    calls["again"] = compiled_apart(program)
    for call in calls.values():
        call(*program.inputs)
    return calls


def _times(
    program: Program | Made, calls: dict[str, Callable[..., Any]], args: argparse.Namespace
) -> dict[str, Any]:
    """The fields of a result about times."""
    from cudaforge_backend.measure import time_interleaved

    runs = {name: partial(call, *program.inputs) for name, call in calls.items()}
    times = time_interleaved(runs, args.device, cold=args.device == "cuda" and not args.warm)
    best = min(
        (name for name in ("eager", "inductor") if name in args.against), key=times.median_ms
    )
    tensors = [*program.inputs, *program.parameters(), *program.buffers()]
    work = work_of(lambda: program(*program.inputs), tensors)
    dtype = next((x.dtype for x in tensors if x.is_floating_point()), torch.float32)
    return {
        "ms": {name: round(times.median_ms(name), 4) for name in calls},
        "best": best,
        "gain": times.speedup(best, "cudaforge"),
        "over_tuned": times.speedup("max-autotune", "cudaforge")
        if "max-autotune" in calls
        else None,
        "control": times.speedup("inductor", "again"),
        "work": work,
        "kind": kind_of(work),
        "floor_ms": floor_ms(work, dtype, device_facts(args.device)),
    }


def device_facts(device: str) -> dict[str, Any]:
    """The measured rates of this machine's GPU; none of a CPU."""
    from cudaforge_backend._native import _C

    return _C.device_facts("cuda", 0) if device == "cuda" else {}


def run_in_process(workload: Workload, args: argparse.Namespace, gpu: str) -> dict[str, Any]:
    """One workload, in a process of its own, on the GPU of that number; what ended that where it
    had no result."""
    began = time.monotonic()
    command = [sys.executable, __file__, *sys.argv[1:], "--one", workload["id"]]
    with tempfile.TemporaryDirectory() as fresh:
        env = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": f"{fresh}/inductor"}
        env |= {"CUDA_VISIBLE_DEVICES": gpu} if gpu else {}
        env |= {} if args.cache_dir else {"CUDAFORGE_CACHE_DIR": f"{fresh}/ours"}
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=args.limit, env=env, check=False
            )
        except subprocess.TimeoutExpired:
            return {"id": workload["id"], "failed": f"no result within {args.limit:g} s"}
    lines = done.stdout.strip().splitlines()
    if done.returncode == 0 and lines and lines[-1].startswith("{"):
        result: dict[str, Any] = json.loads(lines[-1])
        return result
    words = (done.stderr.strip() or done.stdout.strip()).splitlines()[-3:]
    return {
        "id": workload["id"],
        "failed": f"exit {done.returncode}: " + " / ".join(words),
        "seconds": round(time.monotonic() - began, 1),
    }


def chosen(args: argparse.Namespace) -> list[Workload]:
    """The workloads that the arguments name."""
    workloads = [w for w in read_workloads(args.files) if re.search(args.filter, w["id"])]
    if args.draw:
        workloads = random.Random(args.seed).sample(workloads, min(args.draw, len(workloads)))
    index, count = (int(n) for n in args.shard.split("/"))
    return workloads[index::count]


def gpus() -> list[str]:
    """Numbers of the GPUs that this program may use; [""] without any."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [name for name in visible.split(",") if name] or [""]
    return [str(n) for n in range(torch.cuda.device_count())] or [""]


def table(results: Sequence[dict[str, Any]]) -> Iterator[str]:
    """A line for each result, and one of all."""
    for r in results:
        if "refused" in r or "failed" in r:
            yield f"{r['id'][:44]:44}  {'refused' if 'refused' in r else 'FAILED'}: " + r.get(
                "refused", r.get("failed", "")
            )
            continue
        won = sum(1 for region in r["regions"] if region.get("verdict") == "winner")
        line = f"{r['id'][:44]:44}  regions {len(r['regions'])} won {won}"
        line += "  judged" if r["judged"] else "  NOT JUDGED"
        if r["off"]:
            line += f"  off {r['off'][0]:.1e} (PyTorch {r['off'][1]:.1e}"
            line += f", Inductor {r['off'][2]:.1e})" if len(r["off"]) > 2 else ")"
            if rows := r.get("off_rows"):
                line += f" on {rows[0]} of {rows[1]} rows"
        if "ms" in r:
            low, middle, high = r["gain"]
            line += f"  {r['best']} {r['ms'][r['best']]:.3f} -> {r['ms']['cudaforge']:.3f} ms"
            line += f" (floor {r['floor_ms']:.3f})" if r.get("floor_ms") else ""
            line += f"  {middle:.3f} [{low:.3f}, {high:.3f}]"
            line += f"  control [{r['control'][0]:.3f}, {r['control'][2]:.3f}]"
            if tuned := r.get("over_tuned"):
                line += f"  over max-autotune {tuned[1]:.3f} [{tuned[0]:.3f}, {tuned[2]:.3f}]"
        yield line + f"  first {r['forge_s']:.0f} s"
    ran = [r for r in results if "regions" in r]
    judged = sum(1 for r in ran if r["judged"])
    yield f"{len(results)} workloads: {len(ran)} ran, {judged} of them judged in all regions"


def notes(result: dict[str, Any]) -> list[str]:
    """Facts of a result for a page, in addition to its times."""
    if "regions" not in result:
        return []
    won = sum(1 for region in result["regions"] if region.get("verdict") == "winner")
    judged = "all judged" if result["judged"] else "not all judged"
    said = [f"Regions: {len(result['regions'])}, won: {won}, {judged}."]
    if result["off"]:
        rows = result.get("off_rows")
        on = f" (on {rows[0]} of {rows[1]} rows)" if rows else ""
        said += [f"Off by {result['off'][0]:.1e}, PyTorch by {result['off'][1]:.1e}{on}."]
    return [*said, f"First result after {result['forge_s']:.0f} s."]


def rivals(text: str) -> tuple[str, ...]:
    """The names in --against."""
    names = tuple(text.split(","))
    if not {"eager", "inductor"} & set(names) or not set(names) <= set(RIVALS):
        raise argparse.ArgumentTypeError(
            f"takes {', '.join(RIVALS)}, one of the first two at least"
        )
    return names


def parsed() -> argparse.Namespace:
    """The arguments of the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", metavar="FILE.jsonl|SCRIPT.py:FACTORY")
    parser.add_argument("--filter", default="", metavar="RE", help="workloads whose id matches")
    parser.add_argument("--dtype", choices=DTYPES, help="of what is float32 in the files")
    parser.add_argument("--against", type=rivals, default=rivals("eager,inductor"))
    parser.add_argument("--draw", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--shard", default="0/1")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--shrink", type=int, default=1)
    parser.add_argument("--budget", type=float, help="seconds for a region")
    parser.add_argument("--limit", type=float, default=600.0)
    parser.add_argument("--deadline", type=float, default=math.inf, help="seconds to begin within")
    parser.add_argument("--warm", action="store_true", help="time calls with warm caches")
    parser.add_argument("--cache-dir", default="")
    parser.add_argument("--no-times", action="store_true")
    parser.add_argument("--json", type=Path, metavar="RESULTS.jsonl")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write the results as a page")
    parser.add_argument("--plot", type=Path, metavar="OUT.png", help="draw a roofline (matplotlib)")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.plot and importlib.util.find_spec("matplotlib") is None:
        parser.error("--plot needs matplotlib: pip install matplotlib")
    return args


def how(args: argparse.Namespace) -> list[Any]:
    """What results depend on, apart from the workload."""
    return [args.dtype, args.device, args.shrink, args.warm, args.budget, sorted(args.against)]


def run_all(
    args: argparse.Namespace, mine: Sequence[Workload], known: dict[str, Any]
) -> list[dict[str, Any]]:
    """The results of these workloads, with the name of their `file`. Runs those that have none, one
    at a time on each GPU; those that were not begun before the deadline are left out."""
    places: queue.SimpleQueue[str] = queue.SimpleQueue()
    found = gpus() if args.device == "cuda" else [""]
    for gpu in found:
        places.put(gpu)
    began = time.monotonic()

    def run(workload: Workload) -> None:
        if time.monotonic() - began >= args.deadline:
            return
        gpu = places.get()
        try:
            result = run_in_process(workload, args, gpu)
        finally:
            places.put(gpu)
        known[workload["id"]] = result = {**result, "run": how(args)}
        if args.json:
            with args.json.open("a") as file:
                file.write(json.dumps(result) + "\n")
        print(next(table([result])), flush=True)

    with ThreadPoolExecutor(len(found)) as pool:
        list(pool.map(run, [w for w in mine if w["id"] not in known]))
    return [{**known[w["id"]], "file": w["file"]} for w in mine if w["id"] in known]


def main() -> None:
    """See the module."""
    args = parsed()
    try:
        mine = chosen(args)
    except (OSError, ValueError) as error:
        raise SystemExit(str(error)) from error
    if args.one:
        (workload,) = (w for w in mine if w["id"] == args.one)
        print(json.dumps(run_one(workload, args)))
        return
    results = run_all(args, mine, {r["id"]: r for r in results_in(args.json, how(args))})
    print()
    for line in [*table(results), "", *summary(results)]:
        print(line)
    if left := len(mine) - len(results):
        print(f"{left} of {len(mine)} were not begun before the deadline")
    if args.plot:
        plot(results, device_facts(args.device), args.plot)
    if args.html:
        from page import timed_row, write_page

        rows = [timed_row(result, notes(result)) for result in results]
        write_page(args.html, "Workloads", rows, args.device)


if __name__ == "__main__":
    main()
