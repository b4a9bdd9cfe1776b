"""What replacing regions does to a graph."""

from __future__ import annotations

import torch
from cudaforge_backend.integration.graph_pass import replace_region
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
    first, second = (n for n in graph.nodes if n.target is torch.ops.cudaforge.region.default)
    assert first.args[0] == [next(iter(graph.nodes))]
    assert [source.args[0] for source in second.args[0]] == [first]
