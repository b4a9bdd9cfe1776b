"""What replacing regions does to a graph."""

from __future__ import annotations

import torch
from cudaforge_backend.integration.graph_pass import SubstitutePass, replace_region
from cudaforge_backend.integration.partition import Region, find_regions
from graphs import ops, rules, trace
from torch import fx


def test_a_region_reads_what_the_one_before_left() -> None:
    graph = trace(lambda x: torch.softmax(torch.softmax(x, -1), 0), torch.randn(4, 8))

    def take(region: Region, within: Region | None) -> bool:
        return ops(region.signature) == ["_softmax"]

    regions, _ = find_regions(graph, rules(), take)
    assert len(regions) == 2
    renamed: dict[fx.Node, fx.Node] = {}
    for region in regions:
        replace_region(graph, region, renamed)
    graph.lint()  # type: ignore[no-untyped-call]
    first, second = (n for n in graph.nodes if n.target is torch.ops.cudaforge.region_v1.default)
    assert first.args[0] == [next(iter(graph.nodes))]
    assert [source.args[0] for source in second.args[0]] == [first]


def test_inductors_caches_distinguish_winners() -> None:
    """What Inductor keeps under a pass's uuid is the graph with these very winners."""
    winners = {"a" * 64: "1", "b" * 64: "2"}
    uuid = SubstitutePass(winners, rules()).uuid()
    assert SubstitutePass(dict(reversed(winners.items())), rules()).uuid() == uuid
    others = [{}, {"a" * 64: "1"}, winners | {"b" * 64: "3"}, winners | {"c" * 64: "2"}]
    uuids = {SubstitutePass(other, rules()).uuid() for other in others}
    assert len(uuids) == len(others) and uuid not in uuids
