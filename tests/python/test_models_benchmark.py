"""The benchmark of whole models: its cases, its means, and a run on a CPU with stand-ins for the
packages that models come from."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import model_cases  # noqa: E402
import models  # noqa: E402

TRANSFORMERS = """
import torch

class BertConfig:
    def __init__(self, **size):
        pass

class BertModel(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.rows = torch.nn.Embedding(30522, 8)
        self.last = torch.nn.Linear(8, 4)
        self.drop = torch.nn.Dropout(0.5)

    def forward(self, tokens):
        return (self.drop(torch.softmax(self.last(self.rows(tokens)), -1)),)
"""


def test_the_cases() -> None:
    found = list(model_cases.cases())
    names = {case.name for case in found}
    assert len(names) == len(found)
    for model in ("gpt2", "llama-4-layers", "bert", "t5-encoder", "vit-b16", "resnet50"):
        types = {(case.dtype, case.training) for case in found if case.model == model}
        steps = {("fp32", True)} if model != "resnet50" else set()
        assert types == {("fp32", False), ("bf16", False)} | steps
    assert {
        "gpt2-fp32-8x512", "llama-8-layers-fp32-4x512", "llama-4-layers-fp32-4x1024",
        "bert-fp32-32x128", "bert-fp32-32x128-training", "t5-encoder-bf16-8x512",
        "resnet50-bf16-32x224",
    } <= names  # fmt: skip


def test_cases_of_one_type_and_batch() -> None:
    found = list(model_cases.cases("fp16", 3, small=True))
    assert {(c.dtype, c.batch, c.length) for c in found} == {("fp16", 3, model_cases.SMALL_LENGTH)}
    assert {c.model for c in found} == set(model_cases.MODELS)
    steps = list(model_cases.cases(training=True))
    assert steps and all(c.training for c in steps)
    calls = list(model_cases.cases(training=False))
    assert calls and not any(c.training for c in calls)
    assert len(calls) + len(steps) == len(list(model_cases.cases()))


@pytest.mark.parametrize("training", [False, True])
def test_a_step_is_the_same_each_time(monkeypatch: pytest.MonkeyPatch, training: bool) -> None:
    def make(_: Any, small: bool) -> torch.nn.Module:
        layers = (torch.nn.Flatten(), torch.nn.Dropout(0.5), torch.nn.Linear(48, 6))
        return torch.nn.Sequential(*layers)

    monkeypatch.setitem(model_cases.MODELS, "own", model_cases.Model("json", make, 5, 4))
    case = model_cases.Case("own", "bf16", 5, 4, training)
    made: list[torch.nn.Module] = []

    def kept(model: torch.nn.Module) -> torch.nn.Module:
        made.append(model)
        return model

    one, other = (model_cases.step_of(case, "cpu", True, kept) for _ in range(2))
    out = one()
    assert out.dtype == torch.bfloat16 and not out.requires_grad
    torch.testing.assert_close(out, other(), rtol=0, atol=0)
    assert all(model.training == training for model in made)
    assert all(p.grad is None for model in made for p in model.parameters())


def result(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "dtype": "fp32", "training": False, **more}


def test_a_case_without_a_result_counts_as_one() -> None:
    timed: dict[str, Any] = {"ms": {}, "gain": (3.9, 4.0, 4.1), "control": (0.9, 1.0, 1.1)}
    timed["in_a_row"] = {**timed, "gain": (8.9, 9.0, 9.1)}
    found = [result("a", **timed), result("b", error="killed"), result("c", **timed)]
    found[2] |= {"dtype": "bf16", "training": True}
    _, everything, inference, training, lost = models.means(found)
    assert everything.split() == ["all", "3", "1", "2.520", "4.327", "1.000"]
    assert inference.split() == ["inference", "fp32", "2", "1", "2.000", "3.000", "1.000"]
    assert training.split() == ["training", "bf16", "1", "0", "4.000", "9.000", "1.000"]
    assert lost.startswith("1 of 3") and lost.endswith("b")


# ---- The command ----


def run(folder: Path, *options: str) -> str:
    """What the command prints, with a package "transformers" that has one small model."""
    (folder / "transformers.py").write_text(TRANSFORMERS)
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, str(BENCHMARKS / "models.py"), "--device", "cpu", "--small"]
    done = subprocess.run(
        [*command, *options], capture_output=True, text=True, timeout=300,
        env={**os.environ, "PYTHONPATH": path}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_list_runs_nothing(tmp_path: Path) -> None:
    printed = run(tmp_path, "--list", "--filter", "bert|t5-", "--dtype", "fp16", "--inference")
    assert printed.splitlines() == ["bert-fp16-2x64", "t5-encoder-fp16-2x64"]


def test_a_run_is_resumed_and_what_fails_is_kept(tmp_path: Path) -> None:
    out = tmp_path / "results.jsonl"
    options = ["--filter", "bert|t5-", "--training", "--budget", "2", "--json", str(out)]
    printed = run(tmp_path, *options, "--deadline", "0")
    assert not out.exists() and "2 of 2 were not begun" in printed
    run(tmp_path, *options, "--html", str(tmp_path / "page.html"))
    bert, t5 = map(json.loads, out.read_text().splitlines())
    for timed in (bert, bert["in_a_row"]):
        assert set(timed["ms"]) == {"eager", "inductor", "again", "cudaforge"}
        assert 0 < timed["gain"][0] <= timed["gain"][1] <= timed["gain"][2]
    assert set(bert["first"]) == {"eager", "inductor", "cudaforge"}
    assert 0 < bert["off"] < 1e-5 and 0 < bert["eager_off"] < 1e-5
    assert (bert["dtype"], bert["training"]) == ("fp32", True)
    assert t5["name"] == "t5-encoder-fp32-2x64-training" and "error" in t5  # the package lacks it
    assert (tmp_path / "page.html").stat().st_size > 0
    before = out.read_text()
    printed = run(tmp_path, *options)
    assert out.read_text() == before and "1 of 2 have no result" in printed
