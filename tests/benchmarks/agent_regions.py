"""Twelve regions of different kinds on which agents are tried, float32 and bfloat16, each a model:

    cudaforge forge tests/benchmarks/agent_regions.py:NAME --coder PROVIDER --judge PROVIDER

NAME is a function below. Random weights, seed 0; sizes are those of an H200's working day, none
larger than what is verified in seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

Example = tuple[torch.nn.Module, tuple[torch.Tensor, ...]]


class _Model(torch.nn.Module):
    """A function of tensors as a model."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(*inputs)


def _example(function: Callable[..., Any], *shapes: tuple[int, ...], dtype: torch.dtype) -> Example:
    generator = torch.Generator().manual_seed(0)
    inputs = tuple(torch.randn(shape, generator=generator).to(dtype) for shape in shapes)
    return _Model(function), inputs


def linear_gelu() -> Example:
    """A float32 matrix product with bias and GELU after it."""

    def run(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return F.gelu(F.linear(x, weight, bias))

    return _example(run, (2048, 2048), (2048, 2048), (2048,), dtype=torch.float32)


def attention() -> Example:
    """Causal attention in float32."""

    def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    return _example(run, *[(4, 16, 1024, 64)] * 3, dtype=torch.float32)


def depthwise_convolution() -> Example:
    """ConvNeXt's 7x7 depthwise convolution, bfloat16."""

    def run(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return F.conv2d(x, weight, bias, padding=3, groups=384)

    return _example(run, (32, 384, 28, 28), (384, 1, 7, 7), (384,), dtype=torch.bfloat16)


def convolution_3d() -> Example:
    """A first layer on volumes: three channels in, ReLU after it, float32."""

    def run(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return F.relu(F.conv3d(x, weight, bias, padding=1))

    return _example(run, (8, 3, 32, 64, 64), (32, 3, 3, 3, 3), (32,), dtype=torch.float32)


def long_softmax() -> Example:
    """Softmax over few, long rows, bfloat16."""
    return _example(lambda x: torch.softmax(x, -1), (32, 131072), dtype=torch.bfloat16)


def layer_norm() -> Example:
    """LayerNorm of a sum, bfloat16."""

    def run(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x + y, (1024,), w, b)

    return _example(run, (8192, 1024), (8192, 1024), (1024,), (1024,), dtype=torch.bfloat16)


def cumsum() -> Example:
    """A running sum over long rows, float32."""
    return _example(lambda x: torch.cumsum(x, -1), (128, 65536), dtype=torch.float32)


def max_pool() -> Example:
    """A ResNet's pooling after its first layer, bfloat16."""
    return _example(lambda x: F.max_pool2d(x, 3, 2, 1), (32, 64, 112, 112), dtype=torch.bfloat16)


def cross_entropy() -> Example:
    """Cross-entropy over a language model's vocabulary, float32."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn((1024, 50257), generator=generator)
    target = torch.randint(0, 50257, (1024,), generator=generator)
    return _Model(F.cross_entropy), (logits, target)


def group_norm() -> Example:
    """GroupNorm and SiLU of a diffusion model, bfloat16."""

    def run(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return F.silu(F.group_norm(x, 32, weight, bias))

    return _example(run, (8, 320, 64, 64), (320,), (320,), dtype=torch.bfloat16)


def rnn_cell() -> Example:
    """One step of a recurrent network, float32: two small products, a sum, tanh."""

    def run(
        x: torch.Tensor, h: torch.Tensor, w_x: torch.Tensor, w_h: torch.Tensor, b: torch.Tensor
    ) -> torch.Tensor:
        return torch.tanh(F.linear(x, w_x, b) + F.linear(h, w_h))

    return _example(
        run, (64, 1024), (64, 1024), (1024, 1024), (1024, 1024), (1024,), dtype=torch.float32
    )


def argmax() -> Example:
    """The largest element of few, long rows, float32."""
    return _example(lambda x: torch.argmax(x, -1), (32, 262144), dtype=torch.float32)


ALL = (
    linear_gelu, attention, depthwise_convolution, convolution_3d, long_softmax, layer_norm,
    cumsum, max_pool, cross_entropy, group_norm, rnn_cell, argmax,
)  # fmt: skip
