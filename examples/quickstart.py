"""Compiles three models with CudaForge, then runs them again from the cache in a second process.

bash examples/quickstart.sh --help
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

START = time.time()  # of this process, as near as Python lets us; torch is imported after it

import cudaforge_backend  # noqa: E402
import torch  # noqa: E402
from cudaforge_backend.measure import time_interleaved  # noqa: E402
from models import EXAMPLES, Example  # noqa: E402
from report import Progress, print_models, print_processes, print_regions  # noqa: E402

PHASES = ("inference", "train")


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="bash examples/quickstart.sh",
        description="Compile three models with CudaForge in inference and in one training step, "
        "then run them again from the cache in a second process.",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results as JSON")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument(
        "--models", default=",".join(EXAMPLES), help="comma-separated (default: %(default)s)"
    )
    parser.add_argument(
        "--phases", default=",".join(PHASES), help="comma-separated (default: %(default)s)"
    )
    parser.add_argument(
        "--region-budget", type=float, default=8.0, metavar="SECONDS",
        help="longest search for one region's kernel (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--cache-dir",
        type=str,
        metavar="DIR",
        help="kernel cache (default: $CUDAFORGE_CACHE_DIR or ~/.cache/cudaforge)",
    )
    parser.add_argument("--second", type=Path, metavar="FILE", help=argparse.SUPPRESS)
    return parser.parse_args()


def options(args: argparse.Namespace) -> dict[str, Any]:
    """What torch.compile is given: forge what is missing before the first result."""
    chosen: dict[str, Any] = {"on_miss": "blocking", "region_budget_s": args.region_budget}
    return chosen | ({"cache_dir": args.cache_dir} if args.cache_dir else {})


def step(
    module: Any, inputs: tuple[torch.Tensor, ...], phase: str, parameters: list[torch.Tensor]
) -> torch.Tensor:
    """One forward pass, or a forward and backward pass: loss and gradients as one vector."""
    if phase == "inference":
        with torch.no_grad():
            return module(*inputs)
    for parameter in parameters:
        parameter.grad = None
    loss = module(*inputs)
    loss.backward()
    return torch.cat([loss.detach().reshape(1), *(p.grad.reshape(-1) for p in parameters)])


def relative_error(value: torch.Tensor, exact: torch.Tensor) -> float:
    """Root mean square of the difference over the root mean square of the exact value."""
    difference = value.double() - exact
    return float(difference.square().mean().sqrt() / exact.square().mean().sqrt())


def doubled(
    example: Example, inputs: tuple[torch.Tensor, ...]
) -> tuple[Any, tuple[torch.Tensor, ...]]:
    """The model and inputs in float64: what every result is compared with."""
    import copy

    module = copy.deepcopy(example.model).double()
    return module, tuple(t.double() if t.is_floating_point() else t for t in inputs)


def cudaforge_results(args: argparse.Namespace, device: str) -> dict[str, torch.Tensor]:
    """The first result of each model and phase from the CudaForge backend, on the CPU."""
    results = {}
    for name in args.models.split(","):
        for phase in args.phases.split(","):
            example = EXAMPLES[name](device)
            inputs = example.inference if phase == "inference" else example.training
            torch._dynamo.reset()
            compiled = torch.compile(example.model, backend="cudaforge", options=options(args))
            value = step(compiled, inputs, phase, list(example.model.parameters()))
            results[f"{name}/{phase}"] = value.cpu()
            results.setdefault("first_result_s", torch.tensor(time.time() - START))
    return results


def measure(name: str, phase: str, device: str, args: argparse.Namespace) -> dict[str, Any]:
    """Times eager, Inductor, Inductor again (the A/A control) and CudaForge, interleaved.

    Their results are compared with float64's.
    """
    example = EXAMPLES[name](device)
    inputs = example.inference if phase == "inference" else example.training
    parameters = list(example.model.parameters())
    exact_model, exact_inputs = doubled(example, inputs)
    exact = step(exact_model, exact_inputs, phase, list(exact_model.parameters()))
    del exact_model
    torch._dynamo.reset()
    modules = {
        "eager": example.model,
        "inductor": torch.compile(example.model),
        "cudaforge": torch.compile(example.model, backend="cudaforge", options=options(args)),
    }
    errors = {
        n: relative_error(step(m, inputs, phase, parameters), exact) for n, m in modules.items()
    }
    runs = {n: (lambda m=m: step(m, inputs, phase, parameters)) for n, m in modules.items()}
    runs["control"] = runs["inductor"]
    times = time_interleaved(runs, device)
    limit = max(2 * errors["eager"], float(torch.finfo(torch.float32).eps))
    return {
        "name": name,
        "phase": phase,
        "eager_ms": times.median_ms("eager"),
        "inductor_ms": times.median_ms("inductor"),
        "cudaforge_ms": times.median_ms("cudaforge"),
        "speedup_over_inductor": times.speedup("inductor", "cudaforge"),
        "control": times.speedup("inductor", "control"),
        "error": errors["cudaforge"],
        "error_limit": limit,
    }


def machine(device: str) -> dict[str, Any]:
    """Versions and device."""
    name = torch.cuda.get_device_name() if device == "cuda" else cudaforge_backend.arch("cpu", 0)
    return {
        "python": sys.version.split()[0],
        "torch": torch.__version__,
        "device": device,
        "device_name": name,
        "cudaforge": cudaforge_backend.__version__,
        "threads": torch.get_num_threads(),
    }


def counters(first_result_s: float) -> dict[str, Any]:
    """hits, misses, forged and the start-up time of this process."""
    stats = cudaforge_backend.stats()
    return {
        "hits": stats["hits"],
        "misses": stats["misses"],
        "forged": stats["forged"],
        "first_result_s": first_result_s,
    }


def second_process(args: argparse.Namespace, device: str) -> None:
    """Runs every model from the cache; writes results and counters for the first process."""
    results = cudaforge_results(args, device)
    torch.save(
        {"results": results, "counters": counters(float(results.pop("first_result_s")))},
        args.second,
    )


def main() -> int:
    """Runs both processes and prints the tables; 1 for a wrong result or a second forging."""
    args = arguments()
    device = (
        ("cuda" if torch.cuda.is_available() else "cpu") if args.device == "auto" else args.device
    )
    if args.second:
        second_process(args, device)
        return 0
    progress = Progress()
    cudaforge_backend.set_progress(progress)
    facts = machine(device)
    cache_dir = args.cache_dir or cudaforge_backend.cache_dir()
    print(
        f"CudaForge {facts['cudaforge']}, torch {facts['torch']}, {facts['device_name']}, "
        f"{facts['threads']} threads, cache {cache_dir}",
        flush=True,
    )

    print("\nForging: one line for each region as it is decided", flush=True)
    results = cudaforge_results(args, device)
    first_result_s = float(results.pop("first_result_s"))
    regions = progress.regions(args.cache_dir)
    print(
        "\nRegions (microseconds; the speed-up is over the faster of ATen and Inductor, "
        "with its 95% interval)"
    )
    print_regions(regions)

    print("\nTiming whole models, interleaved", flush=True)
    models = []
    for name in args.models.split(","):
        for phase in args.phases.split(","):
            models.append(measure(name, phase, device, args))
            print(f"  {name} {phase} timed", flush=True)
    print("\nModels (milliseconds; A/A is Inductor against itself; errors are relative to float64)")
    print_models(models)

    print("\nA second process, from the cache", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "second.pt"
        subprocess.run([sys.executable, __file__, *sys.argv[1:], "--second", str(out)], check=True)
        second = torch.load(out)
    same = all(torch.equal(value, results[key]) for key, value in second["results"].items())
    processes = {"first_process": counters(first_result_s), "second_process": second["counters"]}
    print_processes(processes, same)

    if args.json:
        data = {
            "machine": facts,
            "models": models,
            "regions": regions,
            **processes,
            "same_numbers": same,
        }
        args.json.write_text(json.dumps(data, indent=2) + "\n")
        print(f"\nwritten: {args.json}")
    wrong = [m for m in models if not m["error"] <= m["error_limit"]]
    for model in wrong:
        print(
            f"WRONG: {model['name']} {model['phase']}: "
            f"error {model['error']:.3g} over {model['error_limit']:.3g}"
        )
    return int(bool(wrong) or second["counters"]["forged"] != 0)


if __name__ == "__main__":
    sys.exit(main())
