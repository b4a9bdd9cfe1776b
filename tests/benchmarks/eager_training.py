"""The example transformer trained in eager mode, plainly and with cudaforge_backend.enable().

    python tests/benchmarks/eager_training.py [--device cpu|cuda] [--size tiny|example] [--steps N]
        [--rounds N] [--optimizer adamw|sgd] [--region-budget S] [--cache-dir DIR] [--every-winner]
        [--least-hits SHARE] [--json FILE]

losses     Of N steps from the same seeds: the largest difference between a training with kernels
           and one without, and what is allowed. The numerics contract of a kernel, held over the
           whole training: its losses err against those of the same training in float64 at most
           twice as much as ATen's do, or as six times what moving each parameter by a rounding unit
           at the start does to them, and an ulp. Two trainings may differ by that and ATen's error.
           `control`: the difference of two trainings without kernels.
operators  Calls, hits and misses of those N steps. The kernels were made before, in three steps
           with on_miss="blocking".
times      Interleaved rounds of plain, enabled and a second plain, in milliseconds for one step;
           ratios above 1: faster than plain.

Races are honest: PyTorch's kernels stay where nothing is faster. --every-winner takes each verified
kernel whether or not it is faster, which shows that training with them is right, and no speed.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS.parent / "examples"), str(TESTS / "python")]

import cudaforge_backend  # noqa: E402
import torch  # noqa: E402
import yardstick  # type: ignore[import-not-found]  # noqa: E402
from costs import spread  # noqa: E402
from cudaforge_backend.stats import EagerStats  # noqa: E402
from example_models import EXAMPLES, GPT  # noqa: E402
from torch import Tensor  # noqa: E402

BATCHES = 4  # a training cycles through them
WARM_STEPS = 3  # afterwards every call of a step is known
ROUND_STEPS = 4  # timed together


class Training:
    """The transformer, its optimizer and its batches; the same at the start whenever it is made.

    `dtype`: of the parameters, which are those of float32. `moved`: each of them is moved up or
    down by a rounding unit of float32, at random."""

    def __init__(
        self, args: argparse.Namespace, dtype: torch.dtype = torch.float32, moved: bool = False
    ) -> None:
        model, vocabulary, shape = make_model(args.size, args.device)
        generator = torch.Generator().manual_seed(7)
        self.model = model.to(dtype)
        if moved:
            unit = yardstick.rounding_unit(torch.float32)
            with torch.no_grad():
                for parameter in self.model.parameters():
                    parameter.copy_(yardstick.moved(parameter, unit, generator))
        make = {"adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}[args.optimizer]
        rate = {"adamw": 1e-3, "sgd": 1e-1}[args.optimizer]
        self.optimizer: Any = make(self.model.parameters(), lr=rate)
        generator.manual_seed(8)
        self.batches = [
            torch.randint(vocabulary, shape, generator=generator).to(args.device)
            for _ in range(2 * BATCHES)
        ]
        self.steps = 0

    def step(self) -> Tensor:
        """The loss of one step, on the device; nothing waits for it."""
        n = 2 * (self.steps % BATCHES)
        self.steps += 1
        self.optimizer.zero_grad()
        loss: Tensor = self.model(self.batches[n], self.batches[n + 1])
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        return loss.detach()

    def losses(self, steps: int) -> list[float]:
        """Those of the next steps."""
        return [loss.item() for loss in [self.step() for _ in range(steps)]]


def make_model(size: str, device: str) -> tuple[GPT, int, tuple[int, int]]:
    """The model, its number of tokens, and the batch and the time of its inputs."""
    torch.manual_seed(0)
    if size == "tiny":
        model = GPT(vocabulary=96, time=12, width=32, heads=2, layers=1).to(device)
        return model, 96, (3, 12)
    example = EXAMPLES["gpt"](device)
    assert isinstance(example.model, GPT)
    batch, times = example.training[0].shape
    return example.model, example.model.tokens.num_embeddings, (batch, times)


def largest(losses: list[float], others: list[float]) -> float:
    """The largest difference; infinity where one of them is NaN."""
    differences = [abs(a - b) for a, b in zip(losses, others, strict=True)]
    return math.inf if any(math.isnan(d) for d in differences) else max(differences)


def compare_losses(
    args: argparse.Namespace, enabled: Callable[[], Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Trainings from the same seeds; and the counters of the one with kernels."""
    with enabled():
        Training(args).losses(WARM_STEPS)
        made = cudaforge_backend.stats()
        cudaforge_backend.reset_stats()
        found = Training(args).losses(args.steps)
        counters = cudaforge_backend.stats().eager
    plain, again = (Training(args).losses(args.steps) for _ in range(2))
    exact = Training(args, torch.float64).losses(args.steps)
    moved = Training(args, torch.float64, moved=True).losses(args.steps)
    aten, kernels, move = (largest(losses, exact) for losses in (plain, found, moved))
    sizes = torch.tensor([move, max(abs(loss) for loss in exact)], dtype=torch.float64)
    allowed = yardstick.limit(torch.float32, aten, *sizes).item()
    losses = {
        "first": plain[0],
        "last": plain[-1],
        "difference": largest(found, plain),
        "difference_allowed": allowed + aten,
        "control_difference": largest(again, plain),
        "error": kernels,
        "error_allowed": allowed,
        "aten_error": aten,
        "within": kernels <= allowed,
    }
    return losses, operators(counters) | {
        "forged": made.forged,
        "negative": made.negative,
    }


def operators(counters: Mapping[str, EagerStats]) -> dict[str, Any]:
    """The counters of the overloads that were called, and the share of their calls that kernels
    served: of all calls, and of those of overloads that have kernels (None: no overload has)."""
    called = {name: seen for name, seen in counters.items() if seen.calls}
    served = [seen for seen in called.values() if seen.hits]

    def share(of: list[Any]) -> float | None:
        calls = sum(seen.calls for seen in of)
        return sum(seen.hits for seen in of) / calls if calls else None

    return {
        "overloads": {name: asdict(seen) for name, seen in called.items()},
        "share": share(list(called.values())),
        "share_where_kernels": share(served),
    }


def time_steps(args: argparse.Namespace, enabled: Callable[[], Any]) -> dict[str, Any]:
    """Milliseconds for one step, by state, and ratios of rounds."""
    training = Training(args)
    states = ["plain", "enabled", "plain_again"]
    times: dict[str, list[float]] = {state: [] for state in states}

    def timed() -> float:
        training.step()
        if args.device == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(ROUND_STEPS):
            training.step()
        if args.device == "cuda":
            torch.cuda.synchronize()
        return (time.perf_counter() - start) / ROUND_STEPS * 1e3

    training.losses(WARM_STEPS)
    for n in range(args.rounds):
        for state in states[n % len(states) :] + states[: n % len(states)]:
            if state == "enabled":
                with enabled():
                    times[state].append(timed())
            else:
                times[state].append(timed())
    plain = times["plain"]
    result: dict[str, Any] = {f"{state}_ms": spread(times[state]) for state in states}
    for name, state in (("ratio", "enabled"), ("control_ratio", "plain_again")):
        result[name] = spread([p / t for p, t in zip(plain, times[state], strict=True)])
    return result


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--size", choices=("tiny", "example"), default="example")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=9, help="2 or more")
    parser.add_argument("--optimizer", choices=("adamw", "sgd"), default="adamw")
    parser.add_argument("--region-budget", type=float, default=30.0, help="seconds")
    parser.add_argument("--cache-dir", help="else an empty one")
    parser.add_argument("--every-winner", action="store_true")
    parser.add_argument(
        "--least-hits", type=float, default=0.0, help="end with 1 where fewer of all calls are hits"
    )
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def report(results: dict[str, Any]) -> None:
    """The results, for people."""
    losses, ops, times = results["losses"], results["operators"], results["times"]
    print(
        f"losses {losses['first']:.6f} ... {losses['last']:.6f}: largest difference "
        f"{losses['difference']:.3g} of at most {losses['difference_allowed']:.3g} "
        f"(plain against plain: {losses['control_difference']:.3g}); largest error against float64 "
        f"{losses['error']:.3g} of at most {losses['error_allowed']:.3g} "
        f"(ATen's: {losses['aten_error']:.3g}){'' if losses['within'] else ', OVER'}"
    )
    print(f"regions: {ops['forged']} with a kernel, {ops['negative']} without")
    for name, seen in ops["overloads"].items():
        misses = ", ".join(f"{n} {reason}" for reason, n in seen["misses"].items())
        print(f"  {name}: {seen['calls']} calls, {seen['hits']} hits, misses: {misses or 'none'}")
    shares = [
        "no operator" if share is None else f"{share:.1%}"
        for share in (ops["share"], ops["share_where_kernels"])
    ]
    print(f"hits: {shares[0]} of all calls, {shares[1]} of those of operators that have kernels")
    for name in ("plain_ms", "enabled_ms", "plain_again_ms", "ratio", "control_ratio"):
        low, middle, high = (times[name][part] for part in ("low", "median", "high"))
        print(f"{name}: {middle:.4g} [{low:.4g}, {high:.4g}]")


def main() -> int:
    """Prints what came of it; 1 where losses differ by more than is allowed, or hits are too
    few."""
    args = parse()
    if args.every_winner:
        importlib.import_module("forged").win_every_race()
    with tempfile.TemporaryDirectory() as empty:
        options = {
            "on_miss": "blocking",
            "region_budget_s": args.region_budget,
            "cache_dir": args.cache_dir or empty,
        }

        def enabled() -> Any:
            return cudaforge_backend.enable(**options)

        losses, ops = compare_losses(args, enabled)
        times = time_steps(args, enabled)
    settings = {name: value for name, value in vars(args).items() if name != "json"}
    machine = {
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name() if args.device == "cuda" else "cpu",
    }
    results = {
        "settings": settings,
        "machine": machine,
        "losses": losses,
        "operators": ops,
        "times": times,
    }
    report(results)
    if args.json:
        args.json.write_text(json.dumps(results, indent=2) + "\n")
    return int(not losses["within"] or (ops["share"] or 0.0) < args.least_hits)


if __name__ == "__main__":
    sys.exit(main())
