"""Differences between PyTorch releases. The code tests for features, not versions. Those of C++:
csrc/signature/torch_compat.h."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import fx

# The first and the last minor release that this source is tested with; pyproject.toml has them too.
TESTED = ((2, 11), (2, 15))

# What the package uses of PyTorch outside its documented interface, by module.
UNDOCUMENTED = {
    "torch._C._dynamo.eval_frame": ("_debug_get_cache_entry_list", "reset_code"),
    "torch._dynamo": ("config", "pgo"),
    "torch._dynamo.backends": ("registry",),
    "torch._dynamo.convert_frame": ("compile_lock", "register_bytecode_hook"),
    "torch._dynamo.guards": ("DeletedGuardManagerWrapper",),
    "torch._dynamo.utils": ("counters",),
    "torch._functorch": ("config",),
    "torch._guards": ("CompileContext", "HopDispatchSetCache", "TracingContext"),
    "torch._inductor": ("config", "cpu_vec_isa", "list_mode_options"),
    "torch._inductor.compile_fx": ("compile_fx", "compile_fx_inner"),
    "torch._inductor.cudagraph_trees": ("reset_cudagraph_trees",),
    "torch._inductor.custom_graph_pass": ("CustomGraphPass",),
    "torch._inductor.decomposition": ("select_decomp_table",),
    "torch._inductor.fx_passes.post_grad": ("reorder_for_locality",),
    "torch._inductor.output_code": ("CompiledFxGraph",),
    "torch._inductor.pattern_matcher": ("stable_topological_sort",),
    "torch._inductor.runtime.cache_dir_utils": ("cache_dir", "default_cache_dir"),
    "torch._inductor.virtualized": ("V",),
    "torch._subclasses.fake_tensor": ("FakeTensor", "FakeTensorMode"),
}

_PARAMETERS, _SOURCE = "_param_name_to_source", "_dynamo_source"  # of a graph, of its inputs


class Table(dict[Any, Callable[..., Any]]):
    """A table of decompositions that is known by a text. PyTorch 2.15 pickles the table for the key
    of its caches, and some functions in it cannot be pickled: nothing would be cached."""

    def __init__(self, table: Mapping[Any, Callable[..., Any]], name: str) -> None:
        """`name`: the same in every process for the same table, under one configuration of
        Inductor's, which is in the key, too."""
        super().__init__(table)
        self._name = name

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (self._name,)


def _given(table: Table) -> Table:
    return table


def with_picklable_table(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The keyword arguments of compile_fx_inner that caches can be keyed by. PyTorch 2.12 gives a
    function inside a function as `get_decomp_fn`, which cannot be pickled: nothing would be cached,
    and each graph would log a traceback."""
    table = arguments.get("get_decomp_fn", lambda: None)()
    if not isinstance(table, Table):
        return dict(arguments)
    return {**arguments, "get_decomp_fn": functools.partial(_given, table)}


def keep_sources(graph: fx.GraphModule, copied: fx.GraphModule) -> None:
    """Notes in a copy of a Dynamo graph where its inputs come from; copying nodes and metadata does
    not do this. Without it AOTAutograd takes no input for a parameter: compiled code checks the
    address of each one in every call, and CUDA graphs copy them all."""
    inputs = graph.graph.find_nodes(op="placeholder"), copied.graph.find_nodes(op="placeholder")
    pairs = list(zip(*inputs, strict=True))
    if hasattr(graph, _PARAMETERS) and all(hasattr(node, _SOURCE) for node, _ in pairs):
        setattr(copied, _PARAMETERS, getattr(graph, _PARAMETERS))
        for node, made in pairs:
            setattr(made, _SOURCE, getattr(node, _SOURCE))


def lacking() -> list[str]:
    """The names of UNDOCUMENTED that this PyTorch does not have. Imports Inductor."""
    names = [f"{module}.{name}" for module, of in UNDOCUMENTED.items() for name in of]
    return [name for name in names if not _is_there(name)]


def _is_there(name: str) -> bool:
    module, _, last = name.rpartition(".")
    try:
        return hasattr(importlib.import_module(module), last) or bool(importlib.import_module(name))
    except ImportError:
        return False


def is_newer(release: str) -> bool:
    """Whether a release of PyTorch, such as "2.16.0", is newer than those tested."""
    return tuple(int(part) for part in release.split(".")[:2]) > TESTED[1]
