"""Compiles three models with CudaForge, then runs them from the cache in a second process.

bash examples/quickstart.sh --help
"""

from __future__ import annotations

import argparse
import copy
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

START = time.time()  # of this process, as near as Python lets us; torch is imported after it

import cudaforge_backend  # noqa: E402
import torch  # noqa: E402
from arguments import arguments  # noqa: E402
from cudaforge_backend._native import _C  # noqa: E402
from cudaforge_backend.measure import compiled_apart, time_interleaved  # noqa: E402
from cudaforge_backend.options import parse  # noqa: E402
from cudaforge_backend.reasons import GraphOutcome  # noqa: E402
from cudaforge_backend.records import counted  # noqa: E402
from example_models import EXAMPLES, Example  # noqa: E402
from report import Progress, print_models, print_processes, print_regions  # noqa: E402

SAME = 1e-5  # sums over threads and atomics may round differently from one run to the next


def options(args: argparse.Namespace) -> dict[str, Any]:
    """What torch.compile is given: time to make all kernels before the first result."""
    given: dict[str, Any] = {"region_budget_s": args.region_budget}
    given["graph_budget_s"] = 3600.0  # all that there is, as `cudaforge warmup` would make it
    return given | ({"cache_dir": args.cache_dir} if args.cache_dir else {})


def step(
    module: Any, inputs: tuple[torch.Tensor, ...], phase: str, parameters: Sequence[torch.Tensor]
) -> torch.Tensor:
    """One forward pass, or a forward and backward pass: loss and gradients as one vector."""
    if phase == "inference":
        with torch.no_grad():
            output: torch.Tensor = module(*inputs)
        return output
    for parameter in parameters:
        parameter.grad = None
    loss = module(*inputs)
    loss.backward()
    gradients = [p.grad.reshape(-1) for p in parameters if p.grad is not None]
    return torch.cat([loss.detach().reshape(1), *gradients])


def relative_error(value: torch.Tensor, exact: torch.Tensor) -> float:
    """Root mean square of the difference over the root mean square of the exact value."""
    difference = value.double() - exact
    return float(difference.square().mean().sqrt() / exact.square().mean().sqrt())


def doubled(
    example: Example, inputs: tuple[torch.Tensor, ...]
) -> tuple[Any, tuple[torch.Tensor, ...]]:
    """The model and inputs in float64: what every result is compared with."""
    module = copy.deepcopy(example.model).double()
    return module, tuple(t.double() if t.is_floating_point() else t for t in inputs)


@dataclass
class Run:
    """What the models gave in this process: results on the CPU, substituted graphs by name."""

    results: dict[str, torch.Tensor] = field(default_factory=dict)
    substituted: dict[str, int] = field(default_factory=dict)
    first_result_s: float = 0.0
    counters: Counter[str] = field(default_factory=Counter)  # until the first results


def prepare(name: str, phase: str, device: str) -> tuple[Example, tuple[torch.Tensor, ...]]:
    """The model in the mode of the phase, and its inputs."""
    example = EXAMPLES[name](device)
    example.model.train(phase == "train")
    return example, example.inference if phase == "inference" else example.training


def run_all(
    args: argparse.Namespace,
    device: str,
    progress: Progress,
    after: Callable[[str, str, bool], None] | None = None,
) -> Run:
    """The first result of each model and phase from the CudaForge backend. Calls `after` with each
    model, phase, and whether it runs with kernels."""
    run = Run()
    for name, phase in chosen(args):
        progress.tell(f"{name} {phase}", f"compiling {name} {phase}")
        example, inputs = prepare(name, phase, device)
        torch._dynamo.reset()
        before, counted_before = with_winners(), counters()
        compiled = torch.compile(example.model, backend="cudaforge", options=options(args))
        value = step(compiled, inputs, phase, list(example.model.parameters()))
        run.results[f"{name}/{phase}"] = value.cpu()
        run.substituted[f"{name}/{phase}"] = with_winners() - before
        run.first_result_s = run.first_result_s or time.time() - START
        run.counters.update(counters())
        run.counters.subtract(counted_before)
        if after is not None:
            after(name, phase, run.substituted[f"{name}/{phase}"] > 0)
    return run


def with_winners() -> int:
    """Graphs of this process that run with winners: those that did not gain by them do not."""
    graphs = cudaforge_backend.stats().graphs
    return graphs.get(GraphOutcome.SUBSTITUTED, 0)


def chosen(args: argparse.Namespace) -> list[tuple[str, str]]:
    """The requested models and phases."""
    return [(name, phase) for name in args.models for phase in args.phases]


def measure(
    name: str, phase: str, device: str, args: argparse.Namespace, winners: bool
) -> dict[str, Any]:
    """Times eager, Inductor, Inductor on a copy (the A/A control) and CudaForge, interleaved.

    Their results are compared with float64's.
    """
    example, inputs = prepare(name, phase, device)
    parameters = list(example.model.parameters())
    exact_model, exact_inputs = doubled(example, inputs)
    exact = step(exact_model, exact_inputs, phase, list(exact_model.parameters()))
    del exact_model
    torch._dynamo.reset()
    modules = {
        "eager": example.model,
        "inductor": compiled_apart(example.model),
        "cudaforge": torch.compile(example.model, backend="cudaforge", options=options(args)),
    }
    errors = {
        n: relative_error(step(m, inputs, phase, parameters), exact) for n, m in modules.items()
    }
    twin = copy.deepcopy(example.model)  # compiled by itself: what a second compilation varies by
    modules["control"] = compiled_apart(twin)
    own = {n: parameters for n in modules} | {"control": list(twin.parameters())}
    runs = {n: (lambda n=n: step(modules[n], inputs, phase, own[n])) for n in modules}
    times = time_interleaved(runs, device)
    # What has no kernel is Inductor's, whose own error may be many times eager PyTorch's.
    allowed = 2 * errors["eager"] + min(errors["inductor"], 100 * errors["eager"])
    limit = max(allowed, float(torch.finfo(torch.float32).eps))
    return {
        "name": name,
        "phase": phase,
        "eager_ms": times.median_ms("eager"),
        "inductor_ms": times.median_ms("inductor"),
        "cudaforge_ms": times.median_ms("cudaforge"),
        "speedup_over_inductor": times.speedup("inductor", "cudaforge"),
        "control": times.speedup("inductor", "control"),
        "error": errors["cudaforge"],
        "eager_error": errors["eager"],
        "inductor_error": errors["inductor"],
        "error_limit": limit,
        "winners": winners,
    }


def machine(device: str) -> dict[str, Any]:
    """Versions and device."""
    name = torch.cuda.get_device_name() if device == "cuda" else _C.arch("cpu")
    return {
        "python": sys.version.split()[0],
        "torch": torch.__version__,
        "device": device,
        "device_name": name,
        "cudaforge": cudaforge_backend.__version__,
        "threads": torch.get_num_threads(),
    }


def counters() -> dict[str, int]:
    """Calls served and not, regions that the cache did not know, regions forged."""
    stats = cudaforge_backend.stats()
    names = ("hits", "misses", "unserved", "forged", "negative")
    return {name: getattr(stats, name) for name in names}


def totals(run: Run, progress: Progress) -> dict[str, Any]:
    """The totals of one process, up to its first results."""
    return {
        **run.counters,
        "regions_with_winner": len(progress.known["hit"]),
        "regions_known_without": len(progress.known["negative"]),
        "first_result_s": run.first_result_s,
    }


def second_process(args: argparse.Namespace, device: str, progress: Progress) -> None:
    """Runs every model from the cache; writes results, counters and the keys that it missed and
    forged."""
    run = run_all(args, device, progress)
    told = {
        "results": run.results,
        "counters": totals(run, progress),
        "missed": progress.known["miss"],
        "forged": progress.forged(),
    }
    torch.save(told, args.second)


def start_second(args: argparse.Namespace) -> dict[str, Any]:
    """Runs the second process; what it wrote."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "second.pt"
        subprocess.run([sys.executable, __file__, *sys.argv[1:], "--second", str(out)], check=True)
        second: dict[str, Any] = torch.load(out)
    return second


def main() -> int:
    """Runs both processes and prints the tables; 1 for a wrong result, or where the cache did not
    serve the second process."""
    args = arguments()
    device = (
        ("cuda" if torch.cuda.is_available() else "cpu") if args.device == "auto" else args.device
    )
    if device == "cuda" and not torch.cuda.is_available():
        sys.exit("--device cuda, but PyTorch finds no GPU; `cudaforge doctor` says why")
    with Progress() as progress:
        cudaforge_backend.set_progress(progress)
        if args.second:
            second_process(args, device, progress)
            return 0
        return both_processes(args, device, progress)


def both_processes(args: argparse.Namespace, device: str, progress: Progress) -> int:
    """See main()."""
    facts = machine(device)
    print(
        f"CudaForge {facts['cudaforge']}, torch {facts['torch']}, {facts['device_name']}, "
        f"{facts['threads']} threads, cache {parse(None, options(args)).cache_dir}\n\n"
        "Each model: a line for each region as it is decided, then a table of its regions\n"
        "(microseconds), then its times (milliseconds). A speed-up is the median of pairs that\n"
        "were timed in turns, with its 95% interval: of a region over the faster of ATen and\n"
        "Inductor, of a model over Inductor. A/A is Inductor against itself. A region is not\n"
        "served if its graph is no faster with it. Errors are relative to float64; the limit is\n"
        "twice eager PyTorch's error, plus Inductor's.\n",
        flush=True,
    )
    models: list[dict[str, Any]] = []
    shown: set[str] = set()  # keys of regions

    def measured(name: str, phase: str, winners: bool) -> None:
        served = {r.key for r in cudaforge_backend.stats().regions if r.hits}
        new = [r for r in progress.regions(served) if r["key"] not in shown]
        skipped = progress.skipped() - shown
        shown.update(skipped, (r["key"] for r in new))
        print_regions(new)
        if skipped:
            number = counted(len(skipped), "region")
            print(f"  {number} skipped: little can be gained (explain() says why)")
        progress.tell("", f"compiling and timing {name} {phase}")
        models.append(measure(name, phase, device, args, winners))
        print_models(models[-1:])
        print(flush=True)

    first = run_all(args, device, progress, measured)
    regions = progress.regions({r.key for r in cudaforge_backend.stats().regions if r.hits})
    if len(models) > 1:
        print("All models")
        print_models(models)

    progress.tell("\nA second process, from the cache", "the second process runs")
    second = start_second(args)
    differences = {
        key: relative_error(value, first.results[key].double())
        for key, value in second["results"].items()
    }
    difference = max(differences.values())
    processes = {"first_process": totals(first, progress), "second_process": second["counters"]}
    lost = lost_regions(regions, second["missed"], second["forged"])
    print_processes(processes, difference)

    if args.json:
        data = {
            "machine": facts,
            "models": models,
            "regions": regions,
            **processes,
            "difference": difference,
        }
        args.json.write_text(json.dumps(data, indent=2) + "\n")
        print(f"\nwritten: {args.json}")
    kept = _C.store().location() != "memory"
    found = failures(models, differences, second["counters"], lost, kept)
    for line in found:
        print(f"WRONG: {line}")
    if not found:
        own = Path(sys.prefix) == Path(__file__).resolve().parent.parent / ".venv"
        where = " (`source .venv/bin/activate`)" if own else ""
        print(
            f'\nNext, in this environment{where}: torch.compile(model, backend="cudaforge") in a\n'
            "program of yours, or cudaforge_backend.enable() in one that does not compile;\n"
            "`cudaforge cache ls` lists what was made here. docs/using.md has more."
        )
    return int(bool(found))


def lost_regions(regions: Sequence[Mapping[str, Any]], missed: Set[str], forged: Set[str]) -> int:
    """How many regions the cache should have given the second process. `missed`: keys of graphs'
    regions; `forged`: keys of parts, too. A part forged for the first time is not lost."""
    return len(({region["key"] for region in regions} & forged) | missed)


def failures(
    models: Sequence[Mapping[str, Any]],
    differences: Mapping[str, float],
    second: Mapping[str, Any],
    lost: int,
    kept: bool,
) -> list[str]:
    """What makes the quickstart fail, a line each: errors over their limit, two processes that
    differ (`differences`: by model and phase), a cache that keeps nothing, a second process that
    it did not serve (`lost`: of lost_regions).

    cuDNN may take another algorithm in another process, which makes a difference of the size of
    the model's own error: in TF32, more than a thousandth.
    """
    lines, limits = [], {}
    for m in models:
        if not m["error"] <= m["error_limit"]:  # NaN too
            name = f"{m['name']} {m['phase']}"
            lines.append(f"{name}: error {m['error']:.3g} over {m['error_limit']:.3g}")
        limits[f"{m['name']}/{m['phase']}"] = max(SAME, m["error_limit"])
    for key, value in differences.items():
        if not value <= limits[key]:
            lines.append(
                f"the two processes differ by {value:.3g} in {key}, over {limits[key]:.3g}"
            )
    if not kept:
        lines.append("the cache could not be used, so nothing was kept: see the warning above")
    elif lost:
        lines.append(
            f"the cache did not give the second process {counted(lost, 'region')} that it should "
            "have had"
        )
    if second["unserved"]:
        lines.append(f"the second process found no kernel in {second['unserved']} calls")
    return lines


if __name__ == "__main__":
    sys.exit(main())
