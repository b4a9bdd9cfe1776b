"""PyTorch's own samples (OpInfo) of matrix products, enlarged until there are kernels for them: in
graphs the same results and gradients as without."""

from __future__ import annotations

import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cudaforge_backend
import pytest
import torch
from forged import compiled
from opinfos import Comparison, op_infos, results, samples
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

OPS = [
    "mm", "addmm", "bmm", "baddbmm", "addbmm", "matmul", "einsum", "tensordot",
    "nn.functional.linear", "linalg.multi_dot",
]  # fmt: skip
DTYPES = [torch.float32, torch.bfloat16, torch.float16]
MOST = 1 << 25  # numbers in a tensor


def larger(size: int) -> int:
    """Equal sizes stay equal; three of these are a product for which kernels are made."""
    return size if size < 2 else 256 + 8 * size


def enlarged(sample: Any) -> Any:
    """The sample with more of everything, and tensors in the same order in memory."""
    generator = torch.Generator().manual_seed(0)

    def enlarge(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        sizes = [larger(size) for size in value.shape]
        order = sorted(range(value.dim()), key=lambda d: -value.stride(d))
        kept = [sizes[d] if value.stride(d) or value.shape[d] < 2 else 1 for d in order]
        made = torch.randn(kept, generator=generator).to(value.device, value.dtype)
        made = made.permute([order.index(d) for d in range(value.dim())]).expand(sizes)
        return made.requires_grad_(value.requires_grad)

    parts = tree_map(enlarge, (sample.input, sample.args, sample.kwargs))
    return types.SimpleNamespace(input=parts[0], args=parts[1], kwargs=parts[2])


def enlarged_samples(info: Any, device: str, dtype: torch.dtype) -> Iterator[Any]:
    for sample in samples(info, device, dtype):
        given = tree_leaves((sample.input, sample.args))
        sizes = [[larger(n) for n in x.shape] for x in given if isinstance(x, Tensor)]
        if max(torch.Size(one).numel() for one in sizes) <= MOST:
            yield enlarged(sample)


class Compiled:
    """An OpInfo whose operator is compiled, its kernels forged into `cache`."""

    def __init__(self, info: Any, cache: Path) -> None:
        self.name = info.name
        self._call = compiled(info.op, cache)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(*args, **kwargs)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype).removeprefix("torch."))
@pytest.mark.parametrize("name", OPS)
def test_samples_give_what_they_give_without(forged: Path, name: str, dtype: torch.dtype) -> None:
    info, wrong, hits = op_infos()[name], [], 0
    for sample in enlarged_samples(info, "cuda", dtype):
        comparison = Comparison(info, sample, dtype)
        torch._dynamo.reset()
        cudaforge_backend.reset_stats()
        found = results(Compiled(info, forged), sample)
        wrong += [text for text in [comparison.difference(found)] if text]
        hits += sum(region.hits for region in cudaforge_backend.stats().regions)
    assert wrong == []
    assert hits > 0


def test_samples_stay_of_their_kind_when_enlarged() -> None:
    x = torch.randn(5, 10).t()
    wide = torch.randn(5, 1).expand(5, 20)
    sample = types.SimpleNamespace(input=x, args=(wide, "ij,jk"), kwargs={"beta": 2})
    made = enlarged(sample)
    assert made.input.shape == (336, 296) and made.input.stride() == (1, 336)
    assert made.args[0].shape == (296, 416) and made.args[0].stride() == (1, 0)
    assert made.args[1] == "ij,jk" and made.kwargs == {"beta": 2}
