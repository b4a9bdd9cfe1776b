"""explain(model, *inputs): per region of a model, what is served and why."""

from __future__ import annotations

import sys
import threading
import weakref
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from types import CodeType
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from ._native import _C
from .options import DISABLED, Settings, disabled, parse
from .reasons import Reason, Status, Way
from .records import (
    input_shapes,
    label,
    needed_alignment,
    no_graph,
    no_region,
    op_names,
    retry_above_s,
    speedup_text,
    status_text,
    too_little_time,
    with_time,
)
from .records import why as why_of
from .stats import GraphWay
from .stats_text import remedies, way_text

if TYPE_CHECKING:
    from .integration.gate import Verdict


@dataclass(frozen=True)
class RegionReport:
    """One region of a model."""

    ops: str  # as "mul -> cumsum"
    shapes: tuple[str, ...]  # of the inputs, as "float32[8, 128]"
    signature: Mapping[str, Any]
    key: str
    arch: str
    status: Status
    why: str  # the status in words
    timing: Mapping[str, Any] | None  # of the record (cache/FORMAT.md); None: nothing was timed
    # A larger region_budget_s retries it. None: it had enough time.
    retry_above_s: float | None = None
    within: str | None = None  # key of the larger region without a winner that this is a part of


@dataclass(frozen=True)
class Report:
    """The regions of a model for these inputs. str() is a table for people."""

    regions: tuple[RegionReport, ...]  # with the parts that were tried of those without a winner
    left: Mapping[Reason, int]  # what PyTorch runs, by reason
    graphs: int
    training: bool  # whether these are the graphs of training
    no_graph: str = ""  # why there is no graph
    ways: tuple[GraphWay, ...] = ()  # of the timed graphs

    def to_dict(self) -> dict[str, Any]:
        """The same, JSON-serialisable."""
        return asdict(self)

    def __str__(self) -> str:
        rows = [f"graphs: {self.graphs}, regions: {len(self.regions)}"]
        if not self.graphs:
            rows.append(f"  {self.no_graph}")
        elif not self.regions:
            rows.append(f"  {no_region(self.left)}")
        elif self.training:
            rows.append(
                "gradients are on: these are training's regions; inference under no_grad has others"
            )
        rows += [f"  {way_text(way)}" for way in self.ways]
        for region in self.regions:
            rows.append(
                f"  {status_text(region.status):<9} {region.key[:12]}  "
                f"{label(region.ops, region.shapes)}"
            )
            why = with_time(f"{region.why}{_speedup(region)}", region.retry_above_s)
            rows.append(f"{'':<12}{why}")
        if short := too_little_time([region.retry_above_s for region in self.regions]):
            text, budget = short
            rows.append(
                f"  {text}: compiling with region_budget_s={budget} or more, or cudaforge warmup "
                f"--region-budget {budget}, tries again"
            )
        for reason, n in sorted(self.left.items()):
            rows.append(f"  run by PyTorch: {reason} ({n})")
        rows += [f"    {line}" for line in remedies(self.left)]
        return "\n".join(rows)


@dataclass(frozen=True)
class GraphFacts:
    """One graph of a model: the gate's verdict, None where it was not timed, and by key how often
    each region is in it; 0 where that is not known, as of regions without a kernel."""

    verdict: Verdict | None
    times: Mapping[str, int]


def _speedup(region: RegionReport) -> str:
    words = speedup_text(region.timing) if region.status == Status.HIT else ""
    return f": {words}" if words else ""


_WHY = {
    Status.HIT: "a winner is in the cache",
    Status.UNUSED: "a winner is in the cache, but the graph is no faster with it: Inductor runs it",
    "not_used": "a winner is in the cache, but the compiled graph has other strides or lost the "
    "region: Inductor runs it",
    "elsewhere": "a winner is in the cache, but this graph is divided into other regions",
    Status.NEGATIVE: "nothing was faster than PyTorch",
    Status.MISS: "not forged yet. Compiling with on_miss='blocking' (the default) makes its kernel "
    "if graph_budget_s is long enough; `cudaforge warmup` makes it without that limit",
    "not_current": "its record is from another torch or verifier. `cudaforge warmup`, or compiling "
    "with on_miss='blocking' (the default), proves and races the kernel again before it serves",
    Status.SKIPPED: "not forged, as little can be gained",
    "only_agents": "no generator makes it: `cudaforge forge SCRIPT.py:FACTORY --coder PROVIDER` "
    "has agents write its kernel",
}


def explain(
    model: Any,
    *inputs: Any,
    cache_dir: str | None = None,
    agents: bool = False,
    frozen_weights: bool = False,
    **kwargs: Any,
) -> Report:
    """What torch.compile(model, backend="cudaforge") finds for model(*inputs, **kwargs).

    Runs the model once, eagerly below Dynamo's graphs, and forges and compiles nothing for it.
    Threads that the model starts, and functions that it compiles itself, run as ever. Gradients on
    and an input or parameter that requires them: training's regions are listed, the backward's too.
    Graph timings and skipped regions are those of compilations without `mode` and options of
    Inductor's. `agents`: also the regions around matrix products, convolutions and attention that
    only agents make kernels for (`cudaforge forge`). `frozen_weights`: the regions of a model that
    is compiled with that option. `cache_dir` overrides the environment's; as with torch.compile's
    option, it is the process's cache from then on. What the program has compiled stays as it is; a
    function that Dynamo no longer compiles (its recompile_limit) has no graph."""
    options: dict[str, Any] = {"frozen_weights": frozen_weights}
    if cache_dir is not None:
        options["cache_dir"] = cache_dir
    return explain_graphs(model, inputs, kwargs, options, agents=agents)[0]


def explain_graphs(
    model: Any,
    inputs: Sequence[Any],
    kwargs: Mapping[str, Any],
    options: Mapping[str, Any],
    agents: bool = False,
) -> tuple[Report, tuple[GraphFacts, ...]]:
    """As explain(), with the facts of each graph that has regions. options: torch.compile's."""
    from .integration.analysis import is_training
    from .integration.backend import open_cache, warn_of_environment

    if not callable(model):
        raise TypeError(f"explain takes a model and its inputs; got {type(model).__name__}")
    if disabled():
        return Report((), {}, 0, training=False, no_graph=DISABLED), ()
    warn_of_environment()
    settings = parse(None, options)
    open_cache(settings.cache_dir)
    regions: list[RegionReport] = []
    left: Counter[Reason] = Counter()
    graphs = 0
    training = False
    facts: list[GraphFacts] = []

    def inspect(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Any:
        nonlocal graphs, training
        graphs += 1
        training = training or is_training(example_inputs)
        found, reasons = _inspect(gm, example_inputs, settings, agents, facts)
        known = {region.key for region in regions}
        regions.extend(region for region in found if region.key not in known)
        left.update(reasons)
        return gm.forward

    # Of a module that torch.compile has wrapped, itself: a graph's name is that of its own code.
    model = getattr(model, "_orig_mod", model)
    # As own work this thread's eager calls are PyTorch's, neither counted nor forged.
    with _leaving_no_trace(), _not_compiled(model), _C.OwnWork():
        compiled: Any = torch.compile(model, backend=inspect)
        compiled(*inputs, **kwargs)
    why = "" if graphs else no_graph(model)
    ways = tuple(fact.verdict.way() for fact in facts if fact.verdict and fact.verdict.ms)
    return Report(tuple(regions), dict(left), graphs, training, why, ways), tuple(facts)


@contextmanager
def _not_compiled(model: Any) -> Iterator[None]:
    """Has a module that was compiled in place (`module.compile()`) run as it is."""
    compiled = getattr(model, "_compiled_call_impl", None)
    if compiled is None:
        yield
        return
    model._compiled_call_impl = None
    try:
        yield
    finally:
        model._compiled_call_impl = compiled


@contextmanager
def _leaving_no_trace() -> Iterator[None]:
    """Dynamo compiles as in a fresh process. Earlier compilations stay. What is compiled here is
    removed at the end and does not count towards recompile_limit."""
    from torch._C._dynamo.eval_frame import _debug_get_cache_entry_list, reset_code
    from torch._dynamo import pgo
    from torch._dynamo.convert_frame import compile_lock, register_bytecode_hook
    from torch._dynamo.guards import DeletedGuardManagerWrapper
    from torch._guards import CompileContext

    thread = threading.get_ident()
    codes: dict[int, CodeType] = {}  # those that were compiled, by identity
    ids = set()  # of their compilations

    def note(code: CodeType, new_code: CodeType) -> None:
        if threading.get_ident() == thread:
            codes[id(code)] = code
            ids.add(CompileContext.current_compile_id())

    hook = register_bytecode_hook(note)
    sizes = pgo._CODE_STATE  # seen so far: Dynamo uses symbols for sizes that change
    pgo._CODE_STATE = defaultdict(pgo.CodeState)
    try:
        with torch._dynamo.config.patch(
            recompile_limit=sys.maxsize, accumulated_recompile_limit=sys.maxsize
        ):
            yield
    finally:
        pgo._CODE_STATE = sizes
        hook.remove()
        with compile_lock:
            for code in codes.values():
                entries = _debug_get_cache_entry_list(code)
                ours = [entry for entry in entries if entry.compile_id in ids]
                if len(ours) == len(entries):
                    reset_code(code)
                    continue
                for entry in ours:
                    dead = DeletedGuardManagerWrapper("cudaforge_backend.explain() has ended")
                    # Dynamo counts entries that match the same objects; no local has this name.
                    dead.id_matched_objs = {"": weakref.ref(dead)}
                    state = entry.guard_manager.extra_state
                    assert state is not None
                    state.invalidate(entry, dead)


def _inspect(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    settings: Settings,
    agents: bool,
    facts: list[GraphFacts],
) -> tuple[list[RegionReport], Counter[Reason]]:
    """Reports of the regions, and why anchors were left; adds to `facts`."""
    from .integration import gate
    from .integration.analysis import analyse, graph_reason, is_training, may_have_anchor
    from .integration.frozen import note_weights
    from .integration.graphs import arch_of
    from .integration.known_graphs import plan_name, skipped
    from .integration.plan import failure, plan_analysis, tried_besides
    from .integration.rules import rules_for
    from .integration.tracing import beside_running_programs

    training = is_training(example_inputs)
    if settings.frozen_weights and not training:
        note_weights(gm)
    if not may_have_anchor(gm, training):
        return [], Counter({Reason.NO_ANCHOR: 1})
    if refused := graph_reason(gm, example_inputs, {}):
        return [], Counter({refused: 1})
    arch = arch_of(example_inputs)
    with beside_running_programs():
        analysis = analyse(gm, example_inputs, rules_for(arch, agents))
    name = plan_name(gm, example_inputs, settings, analysis.rules, training)
    plan = plan_analysis(analysis, skipped=skipped(name, arch))
    verdict = gate.stored(gate.name_of(gm, example_inputs, plan.winners(), {}), arch)
    keys = [known.region.key for known in plan.regions]
    facts.append(GraphFacts(verdict, {key: plan.times.get(key, 0) for key in keys}))
    reports = []
    planned = len(plan.regions)
    for index, known in enumerate([*plan.regions, *tried_besides(plan)]):
        status = known.status
        region = known.region
        used = verdict is None or region.key in verdict.regions
        elsewhere = index >= planned and status == Status.HIT
        if elsewhere or (
            status == Status.HIT and verdict and not (verdict.fastest == Way.KERNELS and used)
        ):
            status = Status.UNUSED
        signature = region.signature.to_dict()
        record = _C.store().get(region.key, known.arch)
        why = why_of(record) if record and status == Status.NEGATIVE else _WHY[status]
        if status == Status.MISS and record and not record["current"]:
            why = _WHY["not_current"]
        if record and record["serves"] == ["eager"] and status == Status.NEGATIVE:
            why += "; eager calls are served by its kernel"
        kernel = _C.store().candidate(region.key, known.arch) if status == Status.HIT else None
        if alignment := needed_alignment(signature, kernel):
            why += f"; it needs {alignment}: other data go to the kernel for unaligned data, if any"
        if status == Status.UNUSED and not used:
            why = _WHY["not_used"]
        if status == Status.MISS and region.by_agents:
            why = _WHY["only_agents"]
        if elsewhere:
            why = _WHY["elsewhere"]
        if status == Status.SKIPPED:
            why = f"{_WHY[status]}: {known.reason}"
        if status == Status.MISS and (failed := failure(region.key)) is not None:
            why = f"forging it failed in this process: {failed}"
        reports.append(
            RegionReport(
                ops=op_names(signature),
                shapes=tuple(input_shapes(signature)),
                signature=signature,
                key=region.key,
                arch=known.arch,
                status=status,
                why=why,
                timing=record["timing"] if record and status != Status.MISS else None,
                retry_above_s=retry_above_s(record) if record and status != Status.MISS else None,
                within=known.within.key if known.within else None,
            )
        )
    return reports, Counter(plan.left)
