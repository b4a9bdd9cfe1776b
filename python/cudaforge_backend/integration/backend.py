"""The backend: what torch.compile(model, backend="cudaforge") calls for each graph."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor

from cudaforge_backend import errors, log
from cudaforge_backend._native import _C
from cudaforge_backend.options import FORGING, Settings, disabled, parse
from cudaforge_backend.reasons import GraphOutcome, Phase, Reason, Way
from cudaforge_backend.records import counted
from cudaforge_backend.stats import (
    Spent,
    count_fallback,
    count_graph,
    count_graph_gain,
    graph_count,
    note_way,
    spending,
    timing_phase,
    warn_once,
)

from .graphs import Compiled
from .tracing import beside_running_programs

if TYPE_CHECKING:
    from .analysis import Analysis
    from .outcome import Outcome
    from .plan import Plan
    from .rules import Rules


def cudaforge(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Compiled:
    """Compiles one Dynamo graph with Inductor, with kernels in place of the regions that have a
    winner.

    mode: as for Inductor ("default", "reduce-overhead", "max-autotune",
    "max-autotune-no-cudagraphs"). options: on_miss ("fallback", "record", "background" or
    "blocking", the default), region_budget_s and graph_budget_s (seconds for one region and for all
    of one graph), cache_dir, agents (they write kernels, too: a dict of the fields of
    agents.Agents), frozen_weights (bool: a promise, see weights_changed()), and inductor (a dict of
    Inductor's own options). Raises OptionError for anything else. If CudaForge itself fails,
    Inductor compiles the graph, with one warning."""
    settings = parse(mode, options)
    if disabled():
        return plain(gm, example_inputs, settings)
    try:
        # Traces more often, and for longer, than Inductor.
        with beside_running_programs(), spending() as spent:
            made = _compile(gm, example_inputs, settings, spent)
    except errors.OptionError:
        raise
    except Exception as error:
        count_fallback(Reason.BACKEND_FAILED)
        warn_once(f"cudaforge failed, Inductor compiles the graph: {_one_line(error)}")
        return plain(gm, example_inputs, settings)
    return _without_kernels(gm, example_inputs, settings) if made is None else made


def plain(gm: fx.GraphModule, example_inputs: Sequence[Any], settings: Settings) -> Compiled:
    """Inductor's own result, as torch.compile's default backend makes it; counted."""
    count_graph(GraphOutcome.PLAIN)
    return _without_kernels(gm, example_inputs, settings)


def _without_kernels(
    gm: fx.GraphModule, example_inputs: Sequence[Any], settings: Settings
) -> Compiled:
    from torch._inductor.compile_fx import compile_fx

    compiled: Any = compile_fx(gm, list(example_inputs), config_patches=settings.inductor)
    return cast(Compiled, compiled)


def open_cache(cache_dir: str) -> bool:
    """Opens the cache in `cache_dir` for the process. False: it cannot be used; a cache in memory
    replaces it, with one warning."""
    problem = _C.use_cache(cache_dir)
    log.cache.debug("%s: %s", cache_dir, problem or "open")
    if problem is not None:
        warn_once(
            f"the cache {cache_dir!r} cannot be used, nothing will be kept: {problem}; choose "
            "another folder (CUDAFORGE_CACHE_DIR or the option cache_dir)"
        )
    _pass_warnings_on()
    return problem is None


def warn_of_environment() -> None:
    """Warns of the variables that cannot be used, once in the process."""
    for warning in _C.config()["warnings"]:
        warn_once(warning)


def _pass_warnings_on() -> None:
    for warning in _C.store().take_warnings():
        warn_once(warning)


def _compile(
    gm: fx.GraphModule, example_inputs: Sequence[Any], settings: Settings, spent: Spent
) -> Compiled | None:
    """The graph as it is to run, or None: as Inductor compiles it. Counts the graph."""
    from . import isa
    from .analysis import graph_reason, is_training, may_have_anchor
    from .graphs import arch_of
    from .known_graphs import plan_name, recall, remember, skipped
    from .plan import plan_graph
    from .rules import rules_for

    warn_of_environment()
    if settings.frozen_weights:
        _note_promise(gm, is_training(example_inputs))
    _C.record_unaligned(settings.on_miss != "fallback")
    # A folder that cannot be used is left as it is.
    isa.install(settings.cache_dir if open_cache(settings.cache_dir) else None)
    training = is_training(example_inputs)
    if not may_have_anchor(gm, training):
        count_graph(GraphOutcome.NO_ANCHOR)
        return None
    if why := graph_reason(gm, example_inputs, settings.inductor):
        count_fallback(why)
        if why is Reason.DYNAMIC_SHAPE:
            _warn_of_another_size()
        count_graph(GraphOutcome.PLAIN)
        return None
    arch = arch_of(example_inputs)
    forging = settings.on_miss in FORGING
    rules = rules_for(arch, settings.agents is not None)
    budget_s = settings.region_budget_s if forging else None
    name = plan_name(gm, example_inputs, settings, rules, training)
    winners = recall(name, arch, budget_s)
    if winners is not None:
        _pass_warnings_on()
        return _gated(gm, example_inputs, settings, arch, winners, None, rules, spent)
    before = skipped(name, arch) if forging else {}
    plan = plan_graph(gm, example_inputs, settings, rules, budget_s, before)
    without: Compiled | None = None  # the graph without winners, where it was compiled already
    if plan.misses() and settings.on_miss == "blocking":
        plan, without = _forge(gm, example_inputs, plan, settings, spent)
    if settings.records or forging:
        remember(name, arch, plan, settings.records)
    _pass_warnings_on()
    if not (plan.misses() and settings.on_miss == "background"):
        winners = plan.winners()
        made = _gated(
            gm, example_inputs, settings, arch, winners, plan.analysis, rules, spent, without
        )
        return made or without
    from .analysis import copy_graph
    from .background import SwappingCallable

    untouched = copy_graph(gm)
    found = plan.winners()
    first = _gated(gm, example_inputs, settings, arch, found, plan.analysis, rules, spent)
    return SwappingCallable(
        first or _without_kernels(gm, example_inputs, settings),
        plan,
        settings,
        lambda done, inputs: _swapped(untouched, inputs, settings, done.winners(), rules),
    )


def _warn_of_another_size() -> None:
    """Once, of a graph with symbolic sizes, if another graph runs with kernels."""
    if any(graph_count(how) for how in (GraphOutcome.SUBSTITUTED, GraphOutcome.SWAPPED)):
        warn_once(
            "a model was called with another size. PyTorch has compiled it for any size: it runs "
            "without kernels from now on, with the first size too. Keep sizes fixed (DataLoader's "
            "drop_last=True), or give each size its own graph and kernels: "
            "torch.compile(..., dynamic=False)"
        )


def _note_promise(gm: fx.GraphModule, training: bool) -> None:
    from .frozen import note_weights

    if training:
        warn_once(
            "frozen_weights has no effect on graphs with a backward, but on calls under "
            "torch.no_grad(): call cudaforge_backend.weights_changed() after training steps, "
            "before these"
        )
        return
    note_weights(gm)


# Time to compile a training graph with its backward (compiled at its first run), over the time to
# trace it and compile its forward. Measured: 1.3 for BERT on an H200's host.
_WITH_BACKWARD = 1.5


def _forge(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    plan: Plan,
    settings: Settings,
    spent: Spent,
) -> tuple[Plan, Compiled]:
    """Forges the misses of the plan, and compiles the graph without winners: at the same time on a
    GPU, otherwise one after the other. Shows progress. Returns the new plan and the compiled
    graph."""
    from . import gate
    from .analysis import copy_graph, is_training
    from .inductors_turn import compilations_turn, within_compilation
    from .plan import forge_misses
    from .telling import Work, making, telling_of_forging
    from .together import Beside, Together

    training = is_training(example_inputs)
    together = Together(
        settings,
        plan.misses()[0].region.device,
        waited_for=within_compilation(),
        reserved=True,
        graphs=2 if training else 1,
        timing_s=gate.SECONDS,
    )
    in_all = "" if together.budget_s is None else f", {together.budget_s:g} s in all"
    what = (
        f"kernels for {counted(len(plan.misses()), 'region')}, at most "
        f"{settings.region_budget_s:g} s each{in_all}"
    )
    fake = any(isinstance(value, FakeTensor) for value in example_inputs)
    timeable = not (fake or gate.obstacle(gm, plan.analysis, settings.inductor))

    def compile_without() -> Compiled:
        us = None
        work = Work(what="Inductor compiles the graph")
        with making(progress, work), together.compiling(), compilations_turn():
            began = time.monotonic()
            with timing_phase(Phase.GRAPH):
                compiled = _without_kernels(copy_graph(gm), example_inputs, settings)
            seconds = time.monotonic() - began
            if timeable:
                with together.turns.of_timing(), timing_phase(Phase.GRAPH), suppress(Exception):
                    us = gate.time_compiled(compiled, example_inputs, training)  # may need memory
        together.compiled(seconds * (_WITH_BACKWARD if training else 1), us)
        return compiled

    def forge() -> Plan:
        with spending(spent), beside_running_programs():
            return forge_misses(plan, settings, progress, together)

    with telling_of_forging(what, len(plan.misses()), together.clock) as progress:
        if together.at_once == 1:
            without = compile_without()
            return forge_misses(plan, settings, progress, together), without
        with Beside(forge, together) as forging:
            without = compile_without()
            return cast("Plan", forging.result()), without


def _gated(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    settings: Settings,
    arch: str,
    winners: Mapping[str, str],
    analysis: Analysis | None,
    rules: Rules,
    spent: Spent,
    without: Compiled | None = None,
) -> Compiled | None:
    """The fastest way to run the graph; None: Inductor's. Counts the graph. Only
    on_miss="blocking" times a graph without a stored verdict; in the other modes that graph runs
    with its winners.

    analysis: of the graph, if it was made already. spent: takes the seconds. without: Inductor's
    code for the graph, if it was compiled already."""
    from . import gate
    from .analysis import analyse, copy_graph, is_training
    from .telling import telling

    name = gate.name_of(gm, example_inputs, winners, settings.inductor)
    verdict = gate.stored(name, arch)
    if verdict is not None and verdict.stale and settings.on_miss == "blocking":
        verdict = None  # the graph is timed once more
    if verdict is not None and verdict.ms:
        note_way(verdict.way())
    if verdict is not None and verdict.fastest == Way.EAGER:
        count_graph(GraphOutcome.EAGER)
        return gm
    if verdict is not None and verdict.fastest == Way.INDUCTOR:
        unused = GraphOutcome.DOES_NOT_PAY if verdict.regions else GraphOutcome.NOT_USED
        count_graph(unused if winners else GraphOutcome.PLAIN)
        return None
    training = is_training(example_inputs)
    eager = False
    to_time = verdict is None and settings.on_miss == "blocking" and bool(winners or not training)
    if to_time:
        traced = analysis or analyse(gm, example_inputs, rules, settings.inductor)
        if why := gate.obstacle(gm, traced, settings.inductor):
            log.graph.debug("a graph is not timed: %s", why)
            to_time = False
        eager = not training and not gate.draws_random_numbers(traced)
        to_time = to_time and bool(winners or eager)
    if not (winners or to_time):
        count_graph(GraphOutcome.PLAIN)
        return None
    ways: dict[Way, Compiled] = {}
    outcome: Outcome | None = None
    with ExitStack() as stack:
        if to_time:
            stack.enter_context(telling("compile", winners, name))
            stack.enter_context(timing_phase(Phase.GRAPH))
        if winners:
            with_winners, outcome = substituted(
                copy_graph(gm), example_inputs, settings, winners, rules
            )
            if with_winners is None:
                if settings.on_miss != "fallback" and not settings.inductor:  # may change strides
                    gate.note_not_used(name, arch)
                return None
            if verdict is not None and verdict.speedup is not None:
                count_graph_gain(verdict.speedup)
            if not to_time:
                return with_winners
            ways[Way.KERNELS] = with_winners
        if eager:
            ways[Way.EAGER] = cast(Compiled, copy_graph(gm))
        ways[Way.INDUCTOR] = without or _without_kernels(copy_graph(gm), example_inputs, settings)
    if outcome is None:
        count_graph(GraphOutcome.PLAIN)
    return gate.GatedCallable(
        name, arch, list(winners), ways, outcome, spent, settings.graph_budget_s
    )


def substituted(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    settings: Settings,
    winners: Mapping[str, str],
    rules: Rules,
) -> tuple[Compiled | None, Outcome]:
    """Inductor's code for `gm` with these regions replaced, None if none was; and the outcome,
    counted. Takes ownership of `gm`."""
    from torch._inductor.compile_fx import compile_fx, compile_fx_inner

    from .frozen import weights_of
    from .graph_pass import SubstitutePass, kept_table
    from .outcome import Outcome
    from .tracing import own_bodies

    _C.ask_again()  # a region may have a winner by now that it had not when it was looked up
    outcome = Outcome(winners)
    substitute = SubstitutePass(winners, rules, weights_of(gm))
    with outcome.noting_loads(), own_bodies():
        compiled: Any = compile_fx(
            gm,
            list(example_inputs),
            inner_compile=outcome.noting(compile_fx_inner),
            decompositions=kept_table(rules, settings.inductor),
            config_patches={**settings.inductor, "post_grad_custom_pre_pass": substitute},
        )
    outcome.settle()
    return (None if outcome.is_lost() else cast(Compiled, compiled)), outcome


def _swapped(
    gm: fx.GraphModule,
    inputs: Sequence[Any],
    settings: Settings,
    winners: Mapping[str, str],
    rules: Rules,
) -> Compiled | None:
    from torch._dynamo.convert_frame import compile_lock

    from .analysis import copy_graph

    with compile_lock:
        return substituted(copy_graph(gm), inputs, settings, winners, rules)[0]


def _one_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"


def reset() -> None:
    """torch.compiler.reset()'s part: CUDA-graph trees of mode="reduce-overhead"."""
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        from torch._inductor.cudagraph_trees import reset_cudagraph_trees

        reset_cudagraph_trees()


cudaforge.reset = reset  # type: ignore[attr-defined]
