"""Small ATen graphs with fake values, and rules that need no C++."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from cudaforge_backend._native import _C
from cudaforge_backend.integration.rules import Rules
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

ANCHORS = (
    "aten::_softmax",
    "aten::sum.dim_IntList",
    "aten::mean.dim",
    "aten::native_layer_norm",
    "aten::native_layer_norm_backward",
)
POINTWISE = (
    "aten::mul.Tensor",
    "aten::add.Tensor",
    "aten::exp",
    "aten::rsqrt",
    "aten::relu",
    "aten::_to_copy",
)


def trace(function: Callable[..., Any], *inputs: torch.Tensor) -> fx.Graph:
    """The ATen graph of function(*inputs), values in node.meta["val"]."""
    mode = FakeTensorMode()
    fakes = [mode.from_tensor(x) for x in inputs]
    return make_fx(function)(*fakes).graph


def rules(refusal: Callable[[_C.Signature], str | None] = lambda signature: None) -> Rules:
    """Rules whose generator refuses what `refusal` gives a reason for."""
    return Rules(
        anchors=frozenset(ANCHORS),
        pointwise=frozenset(POINTWISE),
        why_not_generated=refusal,
        normalize=_C.Signature.parse,
    )


def ops(signature: _C.Signature) -> list[str]:
    """The op names in a signature, sorted, without "aten::"."""
    return sorted(op.removeprefix("aten::") for op in signature.ops)
