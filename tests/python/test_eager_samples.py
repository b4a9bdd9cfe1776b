"""PyTorch's own samples (OpInfo) of intercepted operators: the same results and gradients as
without."""

from __future__ import annotations

import sys
import types
import unittest
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cudaforge_backend
import pytest
import torch
from cudaforge_backend import disable, enable
from forged import win_every_race
from torch import Tensor

# Only PyTorch's own test classes are made with it.
sys.modules.setdefault(
    "expecttest",
    types.SimpleNamespace(TestCase=unittest.TestCase),  # type: ignore[arg-type]
)

SAMPLES = 4  # of each operator: each shape has kernels to be made

OPS = [
    "amax", "argmax", "cumprod", "cumsum", "log_softmax", "logsumexp", "mean",
    "nn.functional.avg_pool2d", "nn.functional.cross_entropy", "nn.functional.group_norm",
    "nn.functional.layer_norm", "nn.functional.max_pool2d", "softmax", "sum", "var",
]  # fmt: skip


def samples(name: str, device: str, dtype: torch.dtype) -> Iterator[Any]:
    """Some sample inputs of an operator, evenly spread over all that PyTorch has."""
    from torch.testing._internal.common_methods_invocations import op_db

    info = next(one for one in op_db if one.name == name)
    found = list(info.sample_inputs(device, dtype, requires_grad=info.supports_autograd))
    for sample in found[:: -(-len(found) // SAMPLES)]:
        yield info, sample


def results(info: Any, sample: Any) -> list[Tensor]:
    """What the operator gives for a sample, and the gradients of its sum."""
    made = info(sample.input, *sample.args, **sample.kwargs)
    outputs = [v for v in (made if isinstance(made, tuple | list) else [made]) if v is not None]
    leaves = [v for v in (sample.input, *sample.args) if isinstance(v, Tensor) and v.requires_grad]
    floating = [v for v in outputs if v.requires_grad]
    if not (leaves and floating):
        return [v.detach() for v in outputs]
    total = sum(v.sum() for v in floating)
    gradients = torch.autograd.grad(total, leaves, allow_unused=True)  # type: ignore[arg-type]
    return [v.detach() for v in outputs] + [g for g in gradients if g is not None]


@pytest.mark.parametrize("name", OPS)
def test_samples_give_what_they_give_without(
    name: str, device: str, forged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    win_every_race(monkeypatch)
    tried = 0
    for info, sample in samples(name, device, torch.float32):
        expected = results(info, sample)
        with enable(on_miss="blocking", region_budget_s=2, cache_dir=str(forged)):
            for _ in range(2):  # the second time by the kernels that the first has made
                for found, right in zip(results(info, sample), expected, strict=True):
                    torch.testing.assert_close(found, right)
        tried += 1
    disable()
    hits = sum(one["hits"] for one in cudaforge_backend.stats()["eager"].values())
    print(f"{name} on {device}: {tried} samples, {hits} hits, 0 mismatches")
    assert tried and hits
