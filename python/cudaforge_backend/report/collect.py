"""Collects a report from a cache, and of a model from explain()."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from .._native import _C
from ..explain import GraphFacts, RegionReport, Report, explain_graphs
from ..records import (
    RIVALS,
    counted,
    input_shapes,
    kind_text,
    larger_region,
    not_served,
    op_names,
    program,
    summary,
    why,
)
from . import lineage
from .data import (
    Fact,
    Interval,
    Region,
    ReportData,
    TimedRow,
    Way,
    interval,
    mapping,
    number,
    text,
)
from .machine import machine, now
from .work import device_facts, roof_note, roofs_of, work_of

Facts = Mapping[str, Mapping[str, Any]]  # device_facts(), by architecture

_WAYS = {"eager": "eager", "inductor": "Inductor", "kernels": "CudaForge"}
_MOST_REGION = 2_000  # characters of its operators
_RACES = (
    "Shares are estimates and need not add up to 100%: regions are timed with cold caches, graphs "
    "with warm ones. A region without a kernel counts once."
)
_NO_GRAPHS = (
    "The cache stores timings of whole graphs under a hash of the graph. A report on the model, "
    "SCRIPT.py:FACTORY, shows them."
)


@dataclass(frozen=True)
class Source:
    """Where a report comes from: the open store, its folder, and the command that made it."""

    store: Any
    folder: str
    command: str

    def with_folder(self, *words: str) -> str:
        """A `cudaforge` command that works on the same cache."""
        return shlex.join(["cudaforge", *words, "--cache-dir", self.folder])


@dataclass(frozen=True)
class Model:
    """A model that a report is about, and what was found of it."""

    reference: str
    device: str
    train: bool
    report: Report
    graphs: tuple[GraphFacts, ...]


def look_at(reference: str, cache_dir: str, device: str, train: bool) -> Model:
    """The model of SCRIPT.py:FACTORY, run once; has the process use the cache. ValueError: it
    cannot be made or run."""
    from ..cli.failure import failed
    from ..cli.model import chosen_device, make_model

    device = chosen_device("--device", device)
    model, inputs = make_model(reference, device)
    try:
        with torch.set_grad_enabled(train):
            report, graphs = explain_graphs(model, inputs, {}, {"cache_dir": cache_dir})
    except Exception as error:
        raise failed(reference, error) from error
    return Model(reference, device, train, report, graphs)


@dataclass(frozen=True)
class _Place:
    """A region to be shown: its record or, without one, its signature."""

    key: str
    arch: str
    signature: Mapping[str, Any]
    record: Mapping[str, Any] | None
    status: str = ""
    why: str = ""
    within: str = ""
    times: int = 1
    graph_us: float | None = None  # as it is served


def of_store(source: Source, rows: Sequence[Mapping[str, Any]] | None = None) -> ReportData:
    """A report on `rows` (records, and entries of the wanted list), or on the whole cache."""
    found = [*source.store.records(), *source.store.wanted()] if rows is None else rows
    places = {}
    for row in reversed(found):  # a region's record replaces its entry on the wanted list
        record = row if "kind" in row else None
        places[row["key"], row["arch"]] = _Place(row["key"], row["arch"], row["signature"], record)
    data = _report(source, list(places.values()), "auto")
    if rows is not None and data.regions:
        one = data.regions[0]
        show = source.with_folder("cache", "show", one.key[:12])
        return replace(data, title=one.ops, subject=one.key, regions_command=show)
    return replace(
        data,
        title="Kernel cache",
        subject=source.folder,
        graphs_note=_NO_GRAPHS,
        share_of="the sum of the times of the regions, each called once. "
        "A part of a larger region is not counted twice.",
        regions=_with_shares(data.regions),
    )


def of_model(source: Source, model: Model) -> ReportData:
    """Of the regions and graphs of a model."""
    own = [
        _Place(
            key=region.key,
            arch=region.arch,
            signature=region.signature,
            record=source.store.get(region.key, region.arch),
            status=_status(region),
            why=region.why,
            within=region.within or "",
            times=_times(model.graphs, region.key),
            graph_us=_graph_us(model.graphs, region.key),
        )
        for region in model.report.regions
    ]
    left = [
        f"Run by PyTorch: {text(reason)} ({n})" for reason, n in sorted(model.report.left.items())
    ]
    how = ["--train"] if model.train else []
    warmup = shlex.join(["cudaforge", "warmup", model.reference, "--device", model.device, *how])
    timed = [graph.verdict for graph in model.graphs if graph.verdict and graph.verdict.ms]
    none = "No timing of a graph of this model is stored: `cudaforge warmup` times it."
    data = _report(source, own, model.device)
    return replace(
        data,
        title=model.reference.rpartition("/")[2],
        subject=f"{counted(model.report.graphs, 'graph')} of "
        f"{'training' if model.report.training else 'inference'}",
        notes=(*data.notes, *left),
        graphs=tuple(graph_row(f"Graph {n}", verdict) for n, verdict in enumerate(timed, 1)),
        graphs_note="" if timed else model.report.no_graph or none,
        graphs_command=f'{warmup} --cache-dir "$(mktemp -d)"',
        regions=data.regions if timed else _with_shares(data.regions),
        share_of="the time of the region's graph as it is served. " + _RACES
        if timed
        else "the sum of the times of the regions.",
    )


def graph_row(name: str, verdict: Any) -> TimedRow:
    """A graph as integration/gate.py stores its timing."""
    ratios = [
        interval(f"{_WAYS[way]} over {_WAYS[other]}", over)
        for way, others in verdict.overs.items()
        for other, over in others.items()
    ]
    inputs = [f"Timed with {text(', '.join(verdict.sizes))}."] if verdict.sizes else []
    busy = ["The machine was busy: to be timed again."] if verdict.doubtful else []
    return TimedRow(
        name=name,
        ways=tuple(Way(_WAYS[way], verdict.ms[way]) for way in _WAYS if way in verdict.ms),
        ratios=tuple(ratio for ratio in ratios if ratio is not None),
        control=interval("Inductor over itself", verdict.control),
        served=_WAYS.get(verdict.fastest, ""),
        notes=(*inputs, *busy),
    )


def _report(source: Source, places: Sequence[_Place], device: str) -> ReportData:
    """The part that is the same for a report on a model and one on a cache."""
    archs = {place.arch for place in places}
    arch, facts = device_facts(archs)
    regions, notes = _regions(source, places, {arch: facts} if facts else {})
    roofs = roofs_of(facts)
    return ReportData(
        title="",
        subject="",
        created=now(),
        command=source.command,
        machine=(*machine(device), Fact("Cache", source.folder)),
        machine_command=source.with_folder("doctor"),
        notes=notes,
        graphs=(),
        graphs_note="",
        graphs_command="",
        regions=regions,
        regions_command=source.with_folder("cache", "ls"),
        share_of="",
        headroom_note="Headroom: the share of a region's time above the least on this device."
        if facts
        else "Headroom is not known: it needs the measured limits of the GPU.",
        roofs=roofs,
        roof_note=roof_note(roofs, archs),
    )


def _regions(
    source: Source, places: Sequence[_Place], facts: Facts
) -> tuple[tuple[Region, ...], tuple[str, ...]]:
    """The regions, the slowest first, and a note where some cannot be shown."""
    regions, bad = [], 0
    for place in places:
        try:
            regions.append(_region(source, place, facts.get(place.arch, {})))
        except (ValueError, KeyError, TypeError, AttributeError, IndexError):
            bad += 1
    regions.sort(key=lambda region: -(region.us or 0.0) * region.times)
    corrupt = source.store.counters()["corrupt"]
    notes = tuple(f"{counted(n, 'record')} cannot be read." for n in [bad + corrupt] if n)
    return tuple(regions), notes


def _region(source: Source, place: _Place, facts: Mapping[str, Any]) -> Region:
    record = place.record or {}
    timing, provenance = mapping(record.get("timing")), mapping(record.get("provenance"))
    nodes = source.store.lineage(place.key, place.arch)
    signature = _C.Signature.parse(json.dumps(place.signature))
    moved, flops = work_of(signature)
    floor_us = signature.floor_us(facts) if facts else None
    us = _served_us(record, timing, place.status in ("", "winner"))
    share = us * place.times / place.graph_us if us and place.graph_us else None
    return Region(
        key=text(place.key),
        arch=text(place.arch),
        ops=text(op_names(place.signature), _MOST_REGION),
        shapes=text(", ".join(input_shapes(place.signature)), _MOST_REGION),
        status=place.status or (kind_text(record) if record else "not forged"),
        why=text(place.why or (why(record) if record else "It is on the wanted list.")),
        author=text(provenance.get("author")),
        device=text(mapping(record.get("versions")).get("device")),
        within=text(place.within or (larger_region(record) if record else "")),
        program=tuple(text(line) for line in program(place.signature)),
        times=place.times,
        aten_us=number(timing.get("aten_us")),
        inductor_us=number(timing.get("inductor_us")),
        winner_us=number(timing.get("winner_us")),
        us=us,
        speedup=_speedup(record, timing),
        share=None if place.within else share,
        floor_us=floor_us,
        headroom=max(0.0, 1 - floor_us / us) if floor_us and us else None,
        bytes=moved or None,
        flops=flops or None,
        notes=tuple(text(line) for line in not_served(summary(record))) if record else (),
        candidates=lineage.candidates_of(nodes),
        sessions=lineage.sessions_of(nodes),
        commands=_commands(source, place, signature),
    )


def _commands(source: Source, place: _Place, signature: _C.Signature) -> tuple[Fact, ...]:
    short, record = place.key[:12], place.record
    by_agents = signature.why_not_generated(place.arch) or (record and record.get("by_agent"))
    forge = source.with_folder("forge", short, *(["--coder", "PROVIDER"] if by_agents else []))
    if record is None:
        return (Fact("Make a kernel", forge),)
    found = (
        Fact("The race and its evidence", source.with_folder("cache", "show", short)),
        Fact("Every candidate", source.with_folder("lineage", short, "--source")),
    )
    if place.within or larger_region(record):  # a part is forged only with its region
        return found
    again = f"{source.with_folder('cache', 'rm', short)} && {forge}"
    return (*found, Fact("On a quiet machine: delete the record and race again", again))


def _served_us(record: Mapping[str, Any], timing: Mapping[str, Any], used: bool) -> float | None:
    """Microseconds of one call as a compiled graph runs it: the winner's where it is `used`, else
    the faster rival's."""
    if used and "compiled" in (record.get("serves") or ()):
        return number(timing.get("winner_us"))
    rivals = [number(timing.get(f"{rival}_us")) for rival in RIVALS]
    return min((us for us in rivals if us), default=None)


def _speedup(record: Mapping[str, Any], timing: Mapping[str, Any]) -> Interval | None:
    """Of the best kernel over the faster rival; of one that serves eager calls alone over ATen."""
    if record.get("serves") == ["eager"] and timing.get("speedup_over_aten"):
        return interval("ATen", timing["speedup_over_aten"])
    rival = text(timing.get("best_rival"), 60)
    return interval(RIVALS.get(rival, rival), timing.get("speedup"))


def _with_shares(regions: Sequence[Region]) -> tuple[Region, ...]:
    """With the share of each in the sum of all; parts of larger regions have none."""
    total = sum(region.us or 0.0 for region in regions if not region.within)
    return tuple(
        replace(region, share=region.us / total)
        if region.us and total and not region.within
        else region
        for region in regions
    )


def _status(region: RegionReport) -> str:
    """As in a report on a cache, of explain()'s status."""
    words = {"hit": "winner", "negative": "no winner", "miss": "not forged"}
    return words.get(region.status, region.status)


def _times(graphs: Sequence[GraphFacts], key: str) -> int:
    return max(1, sum(graph.times.get(key, 0) for graph in graphs))


def _graph_us(graphs: Sequence[GraphFacts], key: str) -> float | None:
    """Microseconds of the graphs that have the region, as they are served; None where one of them
    was not timed."""
    us = 0.0
    for graph in graphs:
        if key in graph.times:
            if not graph.verdict or graph.verdict.fastest not in graph.verdict.ms:
                return None
            us += graph.verdict.ms[graph.verdict.fastest] * 1e3
    return us or None
