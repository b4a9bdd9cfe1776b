"""Products of half types on a GPU by NVIDIA's library, with its fastest algorithm."""

from __future__ import annotations

from pathlib import Path

import cudaforge_backend
import pytest
import torch
from cudaforge_backend._native import _C
from forged import compiled
from torch import Tensor, nn

pytestmark = pytest.mark.gpu

K = 1004  # rows that do not begin at 16 bytes: the generated kernels cannot read them


class Block(nn.Module):
    """A linear layer and the residual after it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(K, 768)

    def forward(self, x: Tensor, residual: Tensor) -> Tensor:
        return self.layer(x) + residual


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_layer_with_a_residual(forged: Path, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    block = Block().cuda().to(dtype)
    made = compiled(block, forged)
    x, residual = (torch.randn(4, 512, n, device="cuda", dtype=dtype) for n in (K, 768))
    with torch.no_grad():
        for _ in range(2):
            got = made(x, residual)
        plain = block(x, residual)
        wanted = block.double()(x.double(), residual.double())
    error, usual = ((y.double() - wanted).abs().max().item() for y in (got, plain))
    assert error <= 2 * usual
    served = [region for region in cudaforge_backend.stats().regions if region.hits > 0]
    assert len(served) == 1
    record = _C.store().get(served[0].key, _C.arch("cuda"))
    assert record is not None
    assert record["provenance"]["author"] == "generator:library"
    assert record["versions"]["cublaslt"].isdigit()
    # Float16 may overflow where ATen adds the residual after rounding: only the layer is served.
    nodes = record["signature"]["nodes"]
    assert len(nodes) == (2 if dtype == torch.bfloat16 else 1)
