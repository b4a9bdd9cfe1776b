"""`cudaforge warmup`: forges what a model misses, ahead of time."""

from __future__ import annotations

import argparse
import copy
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

import torch

from .._native import _C
from ..heartbeat import GRAPH_STEPS, Heartbeat
from ..options import DISABLED, disabled, parse
from ..records import counted, find, no_graph, no_region, too_little_time, try_again
from ..stats import graph_gains, remedies
from ..steps import step_text
from .failure import failed
from .model import chosen_device, make_model
from .output import add_cache_dir, add_json, cache_dir, show
from .stores import forging_cache

_ENDLESS = 1e9  # seconds


def add(verbs: Any) -> None:
    """Registers the command."""
    command = verbs.add_parser(
        "warmup",
        help="forge what a model misses, before it is deployed",
        description="Compiles a model with its example inputs, forging a kernel for every region "
        "that the cache does not know: those of the graph without gradients, or with --train those "
        "of the forward and backward graphs of training. SCRIPT.py:FACTORY names a function "
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
        help="warm the backward graph too: the output is summed and differentiated",
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
    doing = f"running {args.factory}"
    stream = sys.stderr if args.json else sys.stdout
    with Teller(stream, doing, "compiling the model") as told:
        told.say(f"reading {args.factory} ...")
        model, inputs = make_model(args.factory, device)
        _try_eagerly(args.factory, model, inputs, args.train)
        told.begin("compiling the model")
        set_progress(told)
        _run_once(args.factory, model, inputs, options, args.train)
    found, reasons = told.found, told.reasons
    counts = stats()
    stored = [record for place in told.met if (record := find(*place)) is not None]
    raced = [(record["speedup"] is not None, record["retry_above_s"]) for record in stored]
    short = too_little_time(raced)
    again = try_again(raced, settings.region_budget_s, "--region-budget ")
    data: dict[str, Any] = {
        "regions": len(found),
        "known": sum(status != "miss" for status in found.values()),
        "hits": counts["hits"],
        "forged": counts["forged"],
        "negative": counts["negative"],
        "reasons": dict(reasons),
        "too_little_time": sum(record["retry_above_s"] is not None for record in stored),
        "region_budget_to_retry_s": short[1] if short else None,
        "fallbacks": counts["fallbacks"],
        "graphs_with_kernels": counts["graphs"].get("substituted", 0)
        - counts["fallbacks"].get("gate_failed", 0),
        "graph_speedups": graph_gains(),
        "graphs_without_gain": counts["graphs"].get("does_not_pay_in_place", 0),
        "graphs_without_use": counts["graphs"].get("winners_not_used", 0),
        "seconds": time.monotonic() - started,
        "cache_dir": _C.store().location(),
    }

    def text() -> None:
        if not found:
            print(no_region(counts["fallbacks"]) if counts["graphs"] else no_graph(model))
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
        for reason, count in sorted(counts["fallbacks"].items()):
            print(f"  left to PyTorch: {reason} ({count})")
        for line in remedies(counts["fallbacks"]):
            print(f"    {line}")

    show(args, data, text)
    undecided = counts["fallbacks"].get("forge_failed", 0) + counts["fallbacks"].get(
        "backend_failed", 0
    )
    return int(undecided > 0)


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


class Teller(Heartbeat):
    """Told of every step: keeps count of regions, and prints a line when a region begins and ends
    and when work in between takes long."""

    def __init__(self, stream: TextIO, doing: str, between: str) -> None:
        """`doing`: what goes on now; `between`: what goes on after a region."""
        self.found: dict[str, str] = {}  # key to status when the model was compiled
        self.met: dict[tuple[str, str], None] = {}  # keys and architectures, of parts too
        self.reasons: Counter[str] = Counter()  # why there is no winner
        self._stream = stream
        self._read = True  # until nobody does
        self._tried = 0
        self._between = between
        super().__init__(lambda text: self.say(f"    {text}"), doing)

    def say(self, line: str) -> None:
        """A line, unless nobody reads any more."""
        if self._read:
            try:
                print(line, file=self._stream, flush=True)
            except BrokenPipeError:  # the forging goes on
                self._read = False

    def __call__(self, event: Mapping[str, Any]) -> None:
        """See cudaforge_backend.set_progress for the events."""
        kind = event["event"]
        if kind in ("region", "start"):
            self.met[event["key"], event["arch"]] = None
        if kind == "region":
            self.found.setdefault(event["key"], event["status"])
        elif kind == "start":
            self._tried = 0
            self.say(step_text(event))
            self.begin("trying candidates")
        elif kind == "candidate":
            self._tried += 1
            self.go_on(f"{counted(self._tried, 'candidate')} tried, then the race")
        elif kind == "stage":
            self.go_on(f"{counted(self._tried, 'candidate')} tried, {step_text(event)}")
        elif kind == "end":
            self._end(event)
            self.begin(self._between)
        elif kind == "graph":
            doing = GRAPH_STEPS[event["step"]]
            self.say(f"{doing} ...")
            self.begin(doing)

    def _end(self, event: Mapping[str, Any]) -> None:
        verdict = event["verdict"]
        if "compiled" not in event["serves"]:
            within = event["why"] == "not_within"
            self.reasons["faster alone, not within a larger region" if within else verdict] += 1
        self.say(f"  {step_text(event)}")
