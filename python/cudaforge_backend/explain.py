"""explain(model, *inputs): per region of a model, what is served and why."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any, TypedDict

import torch
from torch import fx

from ._native import _C
from .options import parse
from .records import input_shapes, op_names


class RegionReport(TypedDict):
    """One region. `status` is "hit", "negative" or "miss"; `why` says it in words."""

    ops: str
    shapes: list[str]
    signature: dict[str, Any]
    key: str
    arch: str
    status: str
    why: str
    timing: dict[str, Any] | None


class Report(TypedDict):
    """All regions of a model for these inputs, and what was left to Inductor, by reason."""

    regions: list[RegionReport]
    left: dict[str, int]
    graphs: int


_WHY = {
    "hit": "a winner is in the cache",
    "negative": "nothing beat PyTorch",
    "miss": "not forged yet: use on_miss='blocking' or 'background', or cudaforge warmup",
}


def explain(model: Any, *inputs: Any, cache_dir: str | None = None, **kwargs: Any) -> Report:
    """What torch.compile(model, backend="cudaforge") finds for model(*inputs, **kwargs).

    Runs the model once, eagerly below Dynamo's graphs; forges and compiles nothing. Gradients on
    and an input or parameter that requires them: the backward's regions are listed too. `cache_dir`
    overrides the environment's."""
    from .integration.backend import open_cache

    open_cache(parse(None, {} if cache_dir is None else {"cache_dir": cache_dir}).cache_dir)
    regions: list[RegionReport] = []
    left: Counter[str] = Counter()
    graphs = 0

    def inspect(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Any:
        nonlocal graphs
        graphs += 1
        found, reasons = _inspect(gm, example_inputs)
        known = {region["key"] for region in regions}
        regions.extend(region for region in found if region["key"] not in known)
        left.update(reasons)
        return gm.forward

    torch._dynamo.reset()
    try:
        compiled: Any = torch.compile(model, backend=inspect)
        compiled(*inputs, **kwargs)
    finally:
        torch._dynamo.reset()
    return Report(regions=regions, left=dict(left), graphs=graphs)


def _inspect(
    gm: fx.GraphModule, example_inputs: Sequence[Any]
) -> tuple[list[RegionReport], Counter[str]]:
    from .integration.analysis import analyse, graph_reason
    from .integration.plan import plan_analysis
    from .integration.rules import native_rules

    reason = graph_reason(example_inputs)
    if reason is not None:
        return [], Counter({reason: 1})
    plan = plan_analysis(analyse(gm, example_inputs, native_rules()))
    reports = []
    for known in plan.regions:
        region = known.region
        signature = json.loads(region.signature)
        record = _C.store().get(region.key, known.arch)
        reports.append(
            RegionReport(
                ops=op_names(signature),
                shapes=input_shapes(signature),
                signature=signature,
                key=region.key,
                arch=known.arch,
                status=known.status,
                why=known.reason or _WHY[known.status],
                timing=record["timing"] if record else None,
            )
        )
    return reports, Counter(plan.left)
