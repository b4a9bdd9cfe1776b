"""`cudaforge warmup`: forges what a model misses, ahead of time."""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Sequence
from typing import Any

import torch

from .._native import _C
from ..options import DISABLED, disabled, parse
from ..reasons import GraphOutcome, Reason
from ..records import counted, find, no_graph, no_region, too_little_time, try_again
from ..stats import graph_gains
from ..stats_text import remedies
from .failure import failed
from .model import chosen_device, make_model
from .output import add_cache_dir, add_json, cache_dir, show, teller
from .stores import forging_cache

_ENDLESS = 1e9  # seconds


def add(verbs: Any) -> None:
    """Registers the command."""
    command = verbs.add_parser(
        "warmup",
        help="forge what a model misses, before it is deployed",
        description="Compiles a model with its example inputs, forging a kernel for every region "
        "that the cache does not know: those of the graph of inference, or with --train those of "
        "the graphs of training. SCRIPT.py:FACTORY names a function "
        "without arguments that returns (model, inputs): a torch.nn.Module and a tuple of "
        "tensors. The script is run: use only scripts that you trust.",
    )
    command.add_argument(
        "factory",
        metavar="SCRIPT.py:FACTORY",
        help="a script, and the function in it that makes the model and its inputs",
    )
    command.add_argument(
        "--device",
        choices=("auto", "cpu", "cuda"),
        default="auto",
        help="where the model and its inputs are moved to (default: auto, a GPU where there is "
        "one, else the CPU)",
    )
    command.add_argument(
        "--train",
        action="store_true",
        help="warm the graphs of training, forward and backward, instead of that of inference: the "
        "output is summed and differentiated",
    )
    command.add_argument(
        "--region-budget",
        type=float,
        metavar="SECONDS",
        help="longest time for one region (default: CUDAFORGE_REGION_BUDGET_S or 30)",
    )
    command.add_argument(
        "--graph-budget",
        type=float,
        default=_ENDLESS,
        metavar="SECONDS",
        help="longest time for all regions of one graph (default: no limit)",
    )
    add_cache_dir(command)
    add_json(command)
    command.set_defaults(run=run, tells_warnings=True)


def run(args: argparse.Namespace) -> int:
    """0 when the model ran and every miss was decided."""
    from .. import set_progress, stats

    device = chosen_device("--device", args.device)
    options: dict[str, Any] = {"on_miss": "blocking", "cache_dir": cache_dir(args)}
    options["graph_budget_s"] = args.graph_budget
    if args.region_budget is not None:
        options["region_budget_s"] = args.region_budget
    settings = parse(None, options)
    if disabled():
        raise ValueError(DISABLED)
    forging_cache(settings.cache_dir)
    started = time.monotonic()
    with teller(args, f"running {args.factory}") as told:
        told.say(f"reading {args.factory} ...")
        model, inputs = make_model(args.factory, device)
        _try_eagerly(args.factory, model, inputs, args.train)
        told.begin("compiling the model")
        set_progress(told)
        _run_once(args.factory, model, inputs, options, args.train)
    found, reasons = told.found, told.reasons
    counts = stats()
    stored = [record for place in told.met if (record := find(*place)) is not None]
    above = [record["retry_above_s"] for record in stored]
    short = too_little_time(above)
    again = try_again(above, "--region-budget ")
    data: dict[str, Any] = {
        "regions": len(found),
        "known": sum(status != "miss" for status in found.values()),
        "hits": counts.hits,
        "forged": counts.forged,
        "negative": counts.negative,
        "reasons": dict(reasons),
        "too_little_time": sum(seconds is not None for seconds in above),
        "region_budget_to_retry_s": short[1] if short else None,
        "fallbacks": counts.fallbacks,
        "graphs_with_kernels": counts.graphs.get(GraphOutcome.SUBSTITUTED, 0),
        "graph_speedups": graph_gains(),
        "graphs_without_gain": counts.graphs.get(GraphOutcome.DOES_NOT_PAY, 0),
        "graphs_without_use": counts.graphs.get(GraphOutcome.NOT_USED, 0),
        "seconds": time.monotonic() - started,
        "cache_dir": _C.store().location(),
    }

    def text() -> None:
        if not found:
            print(no_region(counts.fallbacks) if counts.graphs else no_graph(model))
        print(
            f"{counted(data['forged'], 'winner')} forged, "
            f"{counted(data['negative'], 'region')} with no winner, "
            f"{data['known']} decided before, {data['seconds']:.0f} s; cache {data['cache_dir']}"
        )
        for reason, count in sorted(reasons.items()):
            print(f"  no winner: {reason} ({count})")
        if again:
            print(f"  {again}")
        if with_kernels := data["graphs_with_kernels"]:
            print(f"  {_with_kernels(with_kernels, data['graph_speedups'])}")
        if without := data["graphs_without_gain"]:
            print(f"  unused: winners of {counted(without, 'graph')} no faster with them")
        if lost := data["graphs_without_use"]:
            graphs = counted(lost, "graph")
            print(f"  unused: winners of {graphs} compiled to other strides or without the regions")
        if found and not args.train and any(p.requires_grad for p in model.parameters()):
            print("  this is inference, for calls under torch.no_grad(); --train makes the kernels "
                  "of calls outside it")  # fmt: skip
        for reason, count in sorted(counts.fallbacks.items()):
            print(f"  left to PyTorch: {reason} ({count})")
        for line in remedies(counts.fallbacks):
            print(f"    {line}")

    show(args, data, text)
    failed = (Reason.FORGE_FAILED, Reason.NO_MEMORY_TO_VERIFY, Reason.BACKEND_FAILED)
    return int(any(counts.fallbacks.get(reason, 0) for reason in failed))


def _with_kernels(graphs: int, speedups: Sequence[tuple[float, float, float]]) -> str:
    """How many graphs run with kernels, and what those that were timed gain by them."""
    text = f"{counted(graphs, 'graph')} {'runs with its' if graphs == 1 else 'run with their'}"
    text += " kernels"
    medians = [median for _, median, _ in speedups]
    if len(speedups) == 1:
        low, median, high = speedups[0]
        text += f": {median:.2f} times as fast as without [{low:.2f}, {high:.2f}]"
    elif speedups:
        text += f": {min(medians):.2f} to {max(medians):.2f} times as fast as without"
    timed = min(len(speedups), graphs)
    return text + f" ({graphs - timed} not timed)" * (timed < graphs)


def _try_eagerly(
    factory: str, model: torch.nn.Module, inputs: tuple[Any, ...], train: bool
) -> None:
    """Runs a copy of the model as it is, so that one which cannot run says so before minutes of
    forging. Nothing where there can be no copy, or no room for one."""
    try:
        model, inputs = copy.deepcopy((model, inputs))
    except Exception:
        return
    try:
        with torch.set_grad_enabled(train):
            model(*inputs)
    except torch.OutOfMemoryError:
        return
    except Exception as error:
        raise failed(f"{factory}: the model with its inputs", error) from error


def _run_once(
    factory: str,
    model: torch.nn.Module,
    inputs: tuple[Any, ...],
    options: dict[str, Any],
    train: bool,
) -> None:
    """The model compiled and run. ValueError: what is wrong with it, or with its training step."""
    from .. import cudaforge

    compiled = torch.compile(model, backend=cudaforge, options=options)
    try:
        with torch.set_grad_enabled(train):
            output = compiled(*inputs)
    except Exception as error:
        raise failed(f"{factory}: the model with its inputs", error) from error
    if not train:
        return
    first = output[0] if isinstance(output, tuple | list) and output else output
    step = f"{factory}: the model runs, but the training step of --train"
    if not isinstance(first, torch.Tensor):
        raise ValueError(
            f"{step} needs a tensor as its (first) output, and that is of type "
            f"{type(first).__name__}"
        )
    if not first.requires_grad:
        raise ValueError(
            f"{step} needs a (first) output that requires grad, and neither a parameter that it "
            "depends on nor an input does"
        )
    try:
        torch.autograd.backward(first.float().sum())
    except Exception as error:
        raise failed(f"{step} (the output is summed and differentiated)", error) from error
