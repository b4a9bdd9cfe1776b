"""Workloads of a file, each compiled with CudaForge in a process of its own: which of its regions
were judged, with which results, and its time next to PyTorch's and Inductor's.

    python tests/benchmarks/workloads.py FILE.jsonl [--draw N --seed S] [--only WORDS ...]
        [--shard I/N] [--device cpu|cuda] [--shrink K] [--region-budget S] [--limit S]
        [--stop-after S] [--cache-dir DIR] [--no-times] [--html FILE] --out RESULTS.jsonl

A line of FILE is a workload: `args` (name, kind, shape, dtype, stride, init), `nodes` (calls of
ATen in order), `outputs`. `--draw` takes N of them by the seed, `--only` those whose id has one of
the words. `--shrink` divides the leading dimension of every input by K, for small machines: what
PyTorch then refuses is marked "refused".

Each result is a line of RESULTS: a workload that has one there is skipped, so a run that was
cut short is gone on with. `--stop-after`: seconds after which no workload is begun. At the end a
table of all results, and with `--html` a page.

judged     Every region has a verdict, a winner or why none, and none of these is want of time; or
           it was skipped, as a kernel could hardly make the graph faster.
off        The largest difference from float64, of CudaForge, of PyTorch and (with times) of
           Inductor, over the root-mean-square of the output.
times      Interleaved rounds of eager, Inductor, a second Inductor and CudaForge, in milliseconds:
           medians. gain: the better of eager and Inductor over CudaForge; control: Inductor over
           itself; 95% intervals. CudaForge as a later process has it: made from what its
           cache has, between the two Inductors, as the first that a process compiles is slower.
phases     stats().spent of CudaForge, all graphs together, in seconds.
"""

from __future__ import annotations

import argparse
import json
import operator
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from cudaforge_backend.measure import compiled_apart

Workload = dict[str, Any]
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


class Program(torch.nn.Module):
    """A workload as a model. Parameters and buffers are the model's, the rest its inputs."""

    def __init__(self, workload: Workload, device: str, shrink: int) -> None:
        super().__init__()
        self.workload = workload
        self.device = device
        self.inputs: list[torch.Tensor] = []
        self.names: list[str] = []
        generator = torch.Generator(device).manual_seed(0)
        for arg in workload["args"]:
            tensor = _filled(arg, shrink if arg["kind"] == "input" else 1, generator)
            if arg["kind"] in ("parameter", "buffer"):
                self.register_buffer(f"of_{arg['name']}", tensor)
            else:
                self.inputs.append(tensor)
                self.names.append(arg["name"])

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The workload's outputs."""
        return outputs_of(self.workload, self.device, self.values(inputs))

    def values(self, inputs: Sequence[torch.Tensor]) -> dict[str, Any]:
        """All tensors that the calls begin with, by name."""
        own = {name.removeprefix("of_"): tensor for name, tensor in self.named_buffers()}
        return own | dict(zip(self.names, inputs, strict=True))


def outputs_of(workload: Workload, device: str, values: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """The outputs of the workload's calls, which start from `values`."""

    for node in workload["nodes"]:
        args = [_value(arg, device, values) for arg in node["args"]]
        kwargs = {name: _value(arg, device, values) for name, arg in node.get("kwargs", {}).items()}
        values[node["name"]] = _called(node["op"])(*args, **kwargs)
    return tuple(_value(output, device, values) for output in workload["outputs"])


def _value(of: Any, device: str, values: dict[str, Any]) -> Any:
    """What an argument in the file stands for."""
    if isinstance(of, list):
        return [_value(one, device, values) for one in of]
    if not isinstance(of, dict):
        return of
    if "ref" in of:
        return values[of["ref"]]
    if "dtype" in of:
        return getattr(torch, of["dtype"])
    if "device" in of:
        return torch.device(device)
    if "float" in of:
        return float(of["float"])
    raise ValueError(f"an argument of a kind that this reader does not know: {of}")


def _called(op: str) -> Callable[..., Any]:
    if op == "getitem":
        return operator.getitem
    _, name, overload = op.split(".")
    return getattr(getattr(torch.ops.aten, name), overload)  # type: ignore[no-any-return]


def _filled(arg: dict[str, Any], shrink: int, generator: torch.Generator) -> torch.Tensor:
    shape = list(arg["shape"])
    if shape and shrink > 1:
        shape[0] = max(1, shape[0] // shrink)
    dtype = getattr(torch, arg["dtype"])
    init: dict[str, Any] = arg["init"] if isinstance(arg["init"], dict) else {arg["init"]: 0}
    kind, how = next(iter(init.items()))
    made = torch.empty(shape, device=generator.device)
    if kind == "uniform":
        made.uniform_(*how, generator=generator)
    elif kind == "normal":
        made.normal_(0, how, generator=generator)
    elif kind == "integers":
        made = torch.randint(how[0], how[1], shape, generator=generator, device=generator.device)
    elif kind == "bool":
        made = torch.rand(shape, generator=generator, device=generator.device) < how
    else:
        made.fill_(how)
    made = made.to(dtype)
    if "stride" not in arg or shrink > 1:
        return made
    strided = torch.empty_strided(shape, arg["stride"], dtype=dtype, device=generator.device)
    return strided.copy_(made)


def run_one(workload: Workload, args: argparse.Namespace) -> dict[str, Any]:
    """One workload, in this process."""
    import cudaforge_backend
    from cudaforge_backend.measure import time_interleaved
    from cudaforge_backend.reasons import Phase, Reason
    from cudaforge_backend.records import find

    began = time.monotonic()
    result: dict[str, Any] = {"id": workload["id"]}
    program = Program(workload, args.device, args.shrink).eval()
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
        if args.region_budget:
            options["region_budget_s"] = args.region_budget
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
        results = [have, right]
        if not args.no_times:
            inductor = compiled_apart(program)
            results.append(inductor(*program.inputs))
            compiled = compiled_apart(program, backend="cudaforge", options=options)
            again = compiled_apart(program)
            compiled(*program.inputs), again(*program.inputs)
        result["off"] = _off(program, results)
        results.clear()
        if not args.no_times:
            calls: dict[str, Callable[..., Any]] = {
                "eager": program,
                "inductor": inductor,
                "again": again,
                "cudaforge": compiled,
            }
            times = time_interleaved(
                {name: partial(call, *program.inputs) for name, call in calls.items()}, args.device
            )
            result["ms"] = {name: round(times.median_ms(name), 4) for name in calls}
            result["best"] = min(("eager", "inductor"), key=times.median_ms)
            result["gain"] = times.speedup(result["best"], "cudaforge")
            result["control"] = times.speedup("inductor", "again")
    result["seconds"] = round(time.monotonic() - began, 1)
    return result


def _off(program: Program, answers: Sequence[Sequence[torch.Tensor]]) -> list[float] | None:
    """How far answers are from float64; None where that needs more memory than there is."""
    try:
        values = {
            name: x.double() if x.is_floating_point() else x
            for name, x in program.values(program.inputs).items()
        }
        oracle = outputs_of(program.workload, program.device, values)
    except (RuntimeError, MemoryError):
        return None
    off = []
    for answer in answers:
        worst = 0.0
        for have, right in zip(answer, oracle, strict=True):
            if not have.is_floating_point():
                continue
            size = float(right.square().mean().sqrt()) or 1.0
            worst = max(worst, float((have.double() - right).abs().max()) / size)
        off.append(worst)
    return off


def run_in_process(workload: Workload, args: argparse.Namespace) -> dict[str, Any]:
    """One workload, in a process of its own; what ended that where it had no result."""
    began = time.monotonic()
    command = [sys.executable, __file__, *sys.argv[1:], "--one", workload["id"]]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=args.limit)
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
    workloads = [json.loads(line) for line in Path(args.file).read_text().splitlines() if line]
    if args.only:
        workloads = [w for w in workloads if any(word in w["id"] for word in args.only)]
    if args.draw:
        workloads = random.Random(args.seed).sample(workloads, min(args.draw, len(workloads)))
    index, count = (int(n) for n in args.shard.split("/"))
    return workloads[index::count]


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
        if "ms" in r:
            low, middle, high = r["gain"]
            line += f"  {r['best']} {r['ms'][r['best']]:.3f} -> {r['ms']['cudaforge']:.3f} ms"
            line += f"  {middle:.3f} [{low:.3f}, {high:.3f}]"
            line += f"  control [{r['control'][0]:.3f}, {r['control'][2]:.3f}]"
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
        said += [f"Off by {result['off'][0]:.1e}, PyTorch by {result['off'][1]:.1e}."]
    return [*said, f"First result after {result['forge_s']:.0f} s."]


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file")
    parser.add_argument("--draw", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", default=[])
    parser.add_argument("--shard", default="0/1")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--shrink", type=int, default=1)
    parser.add_argument("--region-budget", type=float)
    parser.add_argument("--limit", type=float, default=600.0)
    parser.add_argument("--stop-after", type=float, default=float("inf"))
    parser.add_argument("--cache-dir", default="")
    parser.add_argument("--no-times", action="store_true")
    parser.add_argument("--out", required=True)
    parser.add_argument("--html", type=Path, metavar="FILE", help="write the results as a page")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        (workload,) = (w for w in chosen(args) if w["id"] == args.one)
        print(json.dumps(run_one(workload, args)))
        return
    out = Path(args.out)
    known = out.read_text().splitlines() if out.exists() else []
    results = {r["id"]: r for r in map(json.loads, known)}
    began = time.monotonic()
    mine = chosen(args)
    for workload in mine:
        if workload["id"] in results:
            continue
        if time.monotonic() - began > args.stop_after:
            break
        result = run_in_process(workload, args)
        results[workload["id"]] = result
        with out.open("a") as file:
            file.write(json.dumps(result) + "\n")
        print(next(table([result])), flush=True)
    print()
    all_of_them = [results[w["id"]] for w in mine if w["id"] in results]
    for line in table(all_of_them):
        print(line)
    if args.html:
        from page import timed_row, write_page

        rows = [timed_row(result, notes(result)) for result in all_of_them]
        write_page(args.html, "Workloads", rows, args.device)


if __name__ == "__main__":
    main()
