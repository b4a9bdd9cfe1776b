"""Agents on a GPU: their kernels' counters, and Triton."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from cudaforge_backend._native import _C
from forged import compiled

pytestmark = pytest.mark.gpu


PRODUCT = """```json
{"launches": [{"kernel": "rows", "args": [{"in": 0}, {"in": 1}, {"out": 0}],
               "grid": ["8", "1", "1"],
               "block": ["24", "1", "1"], "cluster": ["1", "1", "1"], "dynamic_shared_bytes": "0"}],
 "scratch_bytes": [], "constraints": []}
```
```cuda
extern "C" __global__ void rows(const float* x, const float* w, float* out) {
  double sum = 0;
  for (int k = 0; k < 16; ++k) {
    sum += static_cast<double>(x[blockIdx.x * 16 + k]) * w[k * 24 + threadIdx.x];
  }
  const float value = static_cast<float>(sum);
  out[blockIdx.x * 24 + threadIdx.x] = value < 0 ? 0.0f : value;
}
```
"""


def seed() -> dict[str, Any]:
    """The node of the first kernel that was written for the only region."""
    (record,) = _C.store().records()
    nodes = _C.store().lineage(record["key"], record["arch"])
    (node,) = [node for node in nodes if node.get("kind") == "seed"]
    return node


def test_counters_are_read_while_the_program_profiles_itself(
    tmp_path: Path, coder: Callable[..., str]
) -> None:
    """Agents' counters come from the worker process: torch.profiler, which uses the same library,
    goes on in this one."""
    cache = str(tmp_path / "cache")
    agents = {"coder": coder([PRODUCT], []), "rounds": 1, "seconds": 120}
    x, w = torch.randn(8, 16, device="cuda"), torch.randn(16, 24, device="cuda")
    made = compiled(lambda x, w: torch.relu(x @ w), cache, agents=agents)
    with torch.profiler.profile() as profiler, torch.no_grad():
        made(x, w)
        torch.softmax(x, -1)
        torch.cuda.synchronize()
    kernels = {e.name for e in profiler.events() if e.device_type.name == "CUDA"}
    assert any("softmax" in name.lower() for name in kernels), kernels
    node = seed()
    assert node["verdict"]["verdict"] == "accepted", node["verdict"]
    assert node["profile"]["metrics"]["dram__bytes_read.sum"] > 0, node["profile"]


def test_the_contracts_example_in_triton_is_right(
    tmp_path: Path, coder: Callable[..., str]
) -> None:
    pytest.importorskip("triton")
    contract = Path(__file__).parents[2] / "csrc" / "forge" / "knowledge" / "contract" / "triton.md"
    reply = contract.read_text().partition("### An example")[2]
    agents = {"coder": coder([reply], []), "rounds": 1, "seconds": 120, "language": "triton"}
    x = torch.randn(256, 1003, device="cuda")
    made = compiled(lambda x: torch.softmax(x, -1), str(tmp_path / "cache"), agents=agents)
    with torch.no_grad():
        torch.testing.assert_close(made(x), torch.softmax(x, -1))
    nodes = [n for r in _C.store().records() for n in _C.store().lineage(r["key"], r["arch"])]
    (node,) = [n for n in nodes if n.get("author", "").startswith("agent:") and "source" in n]
    assert node["verdict"]["verdict"] == "accepted", node["verdict"]
    assert node["params"]["triton"]["source"].startswith("import triton")
