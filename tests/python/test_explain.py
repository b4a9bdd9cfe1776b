"""explain(): JSON-serialisable reports for inference and training."""

from __future__ import annotations

import json
from pathlib import Path

import cudaforge_backend
import torch


def model(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x * 3, -1) + 1


def test_inference(tmp_path: Path) -> None:
    report = cudaforge_backend.explain(model, torch.randn(4, 9), cache_dir=str(tmp_path))
    assert json.loads(json.dumps(report)) == report
    assert report["graphs"] == 1
    (region,) = report["regions"]
    assert region["status"] == "miss"
    assert "not forged" in region["why"]
    assert region["shapes"] == ["float32[4, 9]"]
    assert len(region["key"]) == 64
    assert region["signature"]["nodes"][0]["op"] == "aten::mul.Tensor"


def test_training_has_the_backward_too(tmp_path: Path) -> None:
    x = torch.randn(4, 9, requires_grad=True)
    report = cudaforge_backend.explain(model, x, cache_dir=str(tmp_path))
    ops = [n["op"] for r in report["regions"] for n in r["signature"]["nodes"]]
    assert {"aten::_softmax", "aten::_softmax_backward_data"} <= set(ops)


def test_reasons_for_what_is_left(tmp_path: Path) -> None:
    report = cudaforge_backend.explain(
        lambda x: x.sum(-1), torch.randn(4, 9, dtype=torch.complex64), cache_dir=str(tmp_path)
    )
    assert report["regions"] == []
    assert report["left"]
