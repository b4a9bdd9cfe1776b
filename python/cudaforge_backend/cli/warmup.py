"""`cudaforge warmup`: forges what a model misses, ahead of time."""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from typing import Any

import click
import torch

from .._native import _C
from ..options import DISABLED, NO_LIMIT_S, disabled, parse
from ..reasons import GraphOutcome, Reason
from ..records import counted, find, no_graph, no_region, too_little_time, try_again
from ..stats import graph_gains
from ..stats_text import remedies
from .failure import failed
from .model import chosen_device, make_model
from .output import (
    Command,
    cache_dir_option,
    complete_files,
    json_option,
    region_budget_option,
    show,
    show_facts,
    teller,
)
from .stores import forging_cache


@click.command(
    "warmup",
    cls=Command,
    exits={
        1: "the model failed, or forging a region failed",
        3: "--graph-budget was too small for some regions; run the same command again",
    },
    reports_environment=True,
)
@click.argument("factory", metavar="SCRIPT.py:FACTORY", shell_complete=complete_files)
@click.option(
    "--device",
    type=click.Choice(["auto", "cpu", "cuda"]),
    default="auto",
    help="Where the model and its inputs are moved to (default: auto, a GPU where there is one, "
    "else the CPU).",
)
@click.option(
    "--train",
    is_flag=True,
    help="Warm the graphs of training, forward and backward, instead of that of inference: the "
    "output is summed and differentiated.",
)
@region_budget_option
@click.option(
    "--graph-budget",
    type=float,
    default=NO_LIMIT_S,
    metavar="SECONDS",
    help="Longest time for all regions of one graph (default: no limit).",
)
@click.option(
    "--frozen-weights",
    is_flag=True,
    help="Make the kernels for options={'frozen_weights': True}: the program promises not to "
    "change its weights.",
)
@cache_dir_option
@json_option
def command(
    factory: str,
    device: str,
    train: bool,
    region_budget: float | None,
    graph_budget: float,
    frozen_weights: bool,
    cache_dir: str,
    as_json: bool,
) -> int:
    """Make the kernels of a model before it is deployed.

    Compiles a model with its example inputs, and forges a kernel for every region that the cache
    does not know: of the graph of inference, or with --train of the graphs of training.

    SCRIPT.py:FACTORY names a function without arguments that returns (model, inputs): a
    torch.nn.Module and a tuple of tensors. The script is run: use only scripts that you trust.
    """
    from .. import set_progress, stats

    device = chosen_device("--device", device)
    options: dict[str, Any] = {"on_miss": "blocking", "cache_dir": cache_dir}
    options["graph_budget_s"] = graph_budget
    if region_budget is not None:
        options["region_budget_s"] = region_budget
    if frozen_weights:
        options["frozen_weights"] = True
    settings = parse(None, options)
    if disabled():
        raise ValueError(DISABLED)
    forging_cache(settings.cache_dir)
    started = time.monotonic()
    with teller(as_json, f"running {factory}") as progress:
        progress.say(f"reading {factory} ...")
        model, inputs = make_model(factory, device)
        _try_eagerly(factory, model, inputs, train)
        progress.begin("compiling the model")
        set_progress(progress)
        _run_once(factory, model, inputs, options, train)
    found, reasons, left = progress.found, progress.reasons, len(progress.left)
    counts = stats()
    stored = [record for place in progress.seen if (record := find(*place)) is not None]
    above = [record["retry_above_s"] for record in stored]
    short = too_little_time(above)
    again = try_again(above, "--region-budget ")
    data: dict[str, Any] = {
        "regions": len(found),
        "known": sum(status != "miss" for status in found.values()),
        "hits": counts.hits,
        "forged": counts.forged,
        "negative": counts.negative,
        "left": left,
        "reasons": dict(progress.why),
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
        graphs = []
        if with_kernels := data["graphs_with_kernels"]:
            graphs.append(_with_kernels(with_kernels, data["graph_speedups"]))
        if without := data["graphs_without_gain"]:
            graphs.append(f"unused: winners of {counted(without, 'graph')} no faster with them")
        if lost := data["graphs_without_use"]:
            where = f"{counted(lost, 'graph')} compiled to other strides or without the regions"
            graphs.append(f"unused: winners of {where}")
        trains = found and not train and any(p.requires_grad for p in model.parameters())
        fallbacks = sorted(counts.fallbacks.items())
        facts: dict[str, str | list[str]] = {
            "regions": f"{counted(data['forged'], 'winner')} forged, "
            f"{counted(data['negative'], 'region')} with no winner, "
            f"{data['known']} decided before, {data['seconds']:.0f} s",
            "no winner": [f"{reason} ({count})" for reason, count in sorted(reasons.items())],
            "too little time": again or "",
            "not forged": f"{counted(left, 'region')}, for want of --graph-budget: run the same "
            "command again"
            if left
            else "",
            "graphs": graphs,
            "inference": "for calls under torch.no_grad(); --train makes the kernels of other calls"
            if trains
            else "",
            "run by PyTorch": [f"{reason} ({count})" for reason, count in fallbacks],
            "what to do": remedies(counts.fallbacks),
            "cache": data["cache_dir"],
        }
        show_facts(facts)

    show(as_json, data, text)
    failed = (Reason.FORGE_FAILED, Reason.NO_MEMORY_TO_VERIFY, Reason.BACKEND_FAILED)
    if any(counts.fallbacks.get(reason, 0) for reason in failed):
        return 1
    return 3 if left else 0


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
