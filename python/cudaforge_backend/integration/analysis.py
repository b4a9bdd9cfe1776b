"""The graphs that Inductor would get for a Dynamo graph: one AOT trace, as the real compilation
will do it, compiling nothing."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree

from cudaforge_backend._native import _C
from cudaforge_backend.reasons import Reason
from cudaforge_backend.torch_compat import keep_sources

from .frozen import mark_traced, weights_of
from .fx_signature import tensor_reason
from .graph_pass import kept_table
from .partition import Take, find_regions, take_all
from .rules import Rules
from .sink_views import sink_views
from .tracing import own_bodies

_PLAIN_TENSORS = (torch.Tensor, torch.nn.Parameter, FakeTensor)


@dataclass
class Analysis:
    """The graphs of forward and backward that the custom pass will see, each with the bodies that
    its torch.cond(), loops and nested regions call, which the pass sees as well."""

    modules: list[fx.GraphModule]
    rules: Rules
    writes_to_leaf: bool = True  # whether an input that requires grad is written to; True: unknown

    def graphs(self) -> Iterator[fx.Graph]:
        """All of them, bodies first, as Inductor gives them to the pass."""
        for module in self.modules:
            for nested in _with_bodies(module):
                yield nested.graph

    def targets(self) -> Iterator[Any]:
        """What their nodes call."""
        for graph in self.graphs():
            yield from (node.target for node in graph.nodes if node.op == "call_function")

    def regions(self, take: Take = take_all) -> tuple[Counter[str], Counter[Reason]]:
        """How often a region with which key is in them, and why anchors were left; `take`, which is
        find_regions', sees the regions themselves."""
        times: Counter[str] = Counter()
        left: Counter[Reason] = Counter()
        otherwise = {id(body.graph) for module in self.modules for body in _cut_otherwise(module)}
        for graph in self.graphs():
            if id(graph) in otherwise:
                refused, _ = find_regions(graph, self.rules)
                left.update(Reason.STRIDES for _ in refused)
                continue
            found, reasons = find_regions(graph, self.rules, take)
            left.update(reasons)
            times.update(region.key for region in found)
        return times, left


def _with_bodies(gm: fx.GraphModule) -> Iterator[fx.GraphModule]:
    """The graphs that higher-order operators of `gm` call, and theirs; then `gm`."""
    called = {node.target for node in gm.graph.find_nodes(op="get_attr")}
    for name, child in gm.named_children():
        if name in called and isinstance(child, fx.GraphModule):
            yield from _with_bodies(child)
    yield gm


# Operators that call their first argument with slices, by the argument that is sliced.
_SLICED = {"map_impl": 1, "scan": 2}


def _cut_otherwise(gm: fx.GraphModule) -> Iterator[fx.GraphModule]:
    """Bodies whose slices have other strides than in the trace. Inductor slices the loop's input in
    place, so that kernels for the traced strides would never be called."""
    for nested in _with_bodies(gm):
        for node in nested.graph.nodes:
            at = _SLICED.get(getattr(node.target, "__name__", ""))
            if at is None or not isinstance(node.target, torch._ops.HigherOrderOperator):
                continue
            body = getattr(nested, node.args[0].target)
            given = body.graph.find_nodes(op="placeholder")
            given = given[len(pytree.tree_leaves(node.args[1:at])) :]
            whole = pytree.tree_leaves(node.args[at])
            pairs = zip(whole, given, strict=False)
            if any(not _lie_alike(all_.meta["val"][0], one.meta["val"]) for all_, one in pairs):
                yield body


def _lie_alike(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors of one shape have their elements in the same places."""
    strides = zip(a.shape, a.stride(), b.stride(), strict=True)
    return all(n == 1 or s == t for n, s, t in strides)


def _names(gm: fx.GraphModule) -> Iterator[str]:
    for module in gm.modules():
        if not isinstance(module, fx.GraphModule):
            yield type(module).__name__
            continue
        for node in module.graph.nodes:
            if node.op in ("call_function", "call_method"):
                target = node.target
                yield (
                    target if isinstance(target, str) else getattr(target, "__name__", str(target))
                )


def is_training(example_inputs: Sequence[object]) -> bool:
    """Whether a graph with these inputs will have a backward."""
    return torch.is_grad_enabled() and any(
        isinstance(v, torch.Tensor) and v.requires_grad for v in example_inputs
    )


def may_have_anchor(gm: fx.GraphModule, training: bool) -> bool:
    """False only if no op of the graph can become an anchor. Cheap and generous: a false alarm
    costs one trace, but a graph that this rejects is never analysed. In training, every graph with
    a call may have an anchor, because the gradient of any broadcast is a sum."""
    names = [name.lower() for name in _names(gm)]
    if training:
        return any(not name.startswith("_guard") for name in names)
    words = _C.anchor_words()
    return any(word in name for name in names for word in words)


def graph_reason(
    gm: fx.GraphModule, example_inputs: Sequence[object], inductor: Mapping[str, Any]
) -> Reason | None:
    """Why no region of a graph with these inputs, compiled with these options of Inductor's, can be
    taken; None when some may."""
    if _takes_subclass(gm):
        return Reason.TENSOR_SUBCLASS
    for value in example_inputs:
        if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
            return Reason.DYNAMIC_SHAPE
        if isinstance(value, torch.Tensor):
            if any(not isinstance(n, int) for n in value.shape):
                return Reason.DYNAMIC_SHAPE
            reason = tensor_reason(value)
            if reason in (Reason.TENSOR_SUBCLASS, Reason.SPARSE_LAYOUT):
                return reason
            if value.is_conj() or value.is_neg():
                return Reason.LAZY_CONJUGATE
    tensors = [v for v in example_inputs if isinstance(v, torch.Tensor)]
    if not tensors:
        return Reason.NO_TENSOR_INPUTS
    if len({v.device for v in tensors if v.dim()}) > 1:
        return Reason.MIXED_DEVICES
    if any(v.device.type not in ("cpu", "cuda") for v in tensors):
        return Reason.DEVICE
    return _settings_reason(inductor)


def _takes_subclass(gm: fx.GraphModule) -> bool:
    """Whether an input is of a class of its own, which its fake value does not show: AOTAutograd's
    check of custom operators refuses it when the graph runs."""
    for node in gm.graph.find_nodes(op="placeholder"):
        value = getattr(node.meta.get("grapharg"), "example", None)
        kind = type(value.data) if isinstance(value, torch.nn.Parameter) else type(value)
        if isinstance(value, torch.Tensor) and kind not in _PLAIN_TENSORS:
            return True
    return False


def _settings_reason(inductor: Mapping[str, Any]) -> Reason | None:
    """A setting of torch under which regions cannot be served; None where there is none."""
    from torch._inductor import config

    if config.post_grad_custom_pre_pass is not None:  # Inductor's only place for one before its own
        return Reason.CUSTOM_GRAPH_PASS
    if inductor.get("cpp_wrapper", config.cpp_wrapper):
        return Reason.CPP_WRAPPER  # it writes the operator's string argument into C++ as it is
    if torch.get_default_dtype() != torch.float32:
        return Reason.DEFAULT_DTYPE  # what a Python float with an integer tensor becomes
    return None


def copy_graph(gm: fx.GraphModule) -> fx.GraphModule:
    """A graph module of its own over the same parameters: compile_fx takes ownership of what it
    gets."""
    made = fx.GraphModule(gm, copy.deepcopy(gm.graph))
    made.meta.update(gm.meta)
    keep_sources(gm, made)
    return made


class _Captured(Exception):
    """Ends a compilation whose graphs have been seen."""


def analyse(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    rules: Rules,
    patches: Mapping[str, Any] | None = None,
) -> Analysis:
    """Traces a copy of `gm` through AOTAutograd with Inductor's passes and the anchors kept whole.
    Raises what tracing raises."""
    import torch._functorch.config as functorch_config
    from torch._inductor.compile_fx import compile_fx

    analysis = Analysis([], rules)

    def capture(graph_module: fx.GraphModule, inputs: Sequence[Any], **kwargs: Any) -> Any:
        if kwargs.get("is_inference"):
            mark_traced(graph_module.graph, weights_of(gm))
        _as_post_grad(graph_module, bool(kwargs.get("is_inference")))
        for nested in _with_bodies(graph_module):
            sink_views(nested.graph, rules)
        analysis.writes_to_leaf = _writes_to_leaf()
        analysis.modules.append(graph_module)
        if kwargs.get("is_inference") or len(analysis.modules) == 2:  # forward and backward
            raise _Captured
        return _unused

    try:
        with (
            functorch_config.patch(
                enable_autograd_cache=False, force_non_lazy_backward_lowering=True
            ),
            _quiet_counters(),
            own_bodies(),
        ):
            compile_fx(
                copy_graph(gm),
                list(example_inputs),
                inner_compile=capture,
                config_patches={"post_grad_custom_pre_pass": None, **(patches or {})},
                decompositions=kept_table(rules, patches or {}),
            )
    except _Captured:
        pass
    return analysis


def _writes_to_leaf() -> bool:
    context = torch._guards.TracingContext.try_get()
    metadata = context.fw_metadata if context is not None else None
    if metadata is None:
        return True
    return any(info.mutates_data and info.requires_grad for info in metadata.input_info)


def _unused(*_: Any) -> Any:
    raise AssertionError("the result of an analysis is never called")


def _as_post_grad(gm: fx.GraphModule, is_inference: bool) -> None:
    """What Inductor does to a graph before its custom pass, as far as it changes the partition."""
    from torch._inductor import config
    from torch._inductor.fx_passes.post_grad import reorder_for_locality

    for nested in _with_bodies(gm):
        if config.dce:
            nested.graph.eliminate_dead_code()
        if is_inference and config.reorder_for_locality:
            reorder_for_locality(nested.graph)


class _quiet_counters:
    """Keeps an analysis out of Dynamo's counters, which users and tests read as the compiler's
    own."""

    def __enter__(self) -> None:
        from torch._dynamo.utils import counters

        self.saved = {name: Counter(values) for name, values in counters.items()}

    def __exit__(self, *_: object) -> None:
        from torch._dynamo.utils import counters

        counters.clear()
        counters.update(self.saved)
