"""PyTorch's own samples (OpInfo) of intercepted operators: the same results and gradients as
without.

By default some operators in float32, and some of those in other dtypes. EAGER_EVERY_SAMPLE=1:
every OpInfo that reaches an intercepted operator, in every dtype that it supports here;
EAGER_SAMPLES: of each how many. A run that is ended by one SIGINT (timeout --foreground -s INT 570
python -m pytest -n 16 ...) says in its summary how far it came."""

from __future__ import annotations

import os
import types
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cudaforge_backend
import pytest
import torch
from cudaforge_backend import disable, enable
from cudaforge_backend.errors import CudaForgeWarning
from cudaforge_backend.integration import forging
from forged import win_every_race
from opinfos import Comparison, every_case, op_infos, results, samples
from samples_summary import samples_summary

EVERY = os.environ.get("EAGER_EVERY_SAMPLE") == "1"

OPS = [
    "amax", "argmax", "cumprod", "cumsum", "log_softmax", "logsumexp", "mean",
    "nn.functional.avg_pool2d", "nn.functional.cross_entropy", "nn.functional.group_norm",
    "nn.functional.layer_norm", "nn.functional.max_pool2d", "softmax", "sum", "var",
]  # fmt: skip

OTHER_DTYPES = {
    torch.bfloat16: ["softmax", "sum", "nn.functional.max_pool2d"],
    torch.float16: ["var", "nn.functional.layer_norm"],
    torch.float64: ["mean", "cumprod"],
    torch.int64: ["amax", "cumsum"],
    torch.int32: ["sum"],
    torch.bool: ["amax", "sum"],
}


def some_cases() -> Iterator[tuple[str, torch.dtype]]:
    for dtype, names in {torch.float32: OPS, **OTHER_DTYPES}.items():
        for name in names:
            yield name, dtype


def cases() -> list[Any]:
    """Device, operator and dtype of each test."""
    found = []
    for device in ("cpu", "cuda"):
        here = device == "cpu" or torch.cuda.is_available()
        if EVERY and not here:
            continue
        marks = [pytest.mark.gpu] if device == "cuda" else []
        for name, dtype in every_case(device) if EVERY else some_cases():
            label = f"{name}-{str(dtype).removeprefix('torch.')}-{device}"
            found.append(pytest.param(device, name, dtype, id=label, marks=marks))
    return found


def counts() -> dict[str, dict[str, int]]:
    """Calls and hits of each overload that was called."""
    seen = cudaforge_backend.stats().eager.items()
    return {op: {"calls": n.calls, "hits": n.hits} for op, n in seen}


def attempt(info: Any, sample: Any) -> list[torch.Tensor] | str:
    """The results; a text where PyTorch raises, which it does not without."""
    try:
        return results(info, sample)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


@pytest.mark.parametrize(("device", "name", "dtype"), cases())
def test_samples_give_what_they_give_without(
    device: str,
    name: str,
    dtype: torch.dtype,
    samples_cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
) -> None:
    told: dict[str, Any] = {"op": name, "dtype": str(dtype).removeprefix("torch.")}
    told |= {"device": device, "samples": 0, "left_out": 0, "why": "", "overloads": {}}
    told |= {"mismatches": 0, "warnings": []}
    record_property("eager_samples", told)
    win_every_race(monkeypatch)
    monkeypatch.setattr(forging, "MAX_CANDIDATES", 1)  # test_ops.py has them all
    info, wrong = op_infos()[name], []
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", CudaForgeWarning)
        try:
            chosen = samples(info, device, dtype)
        except Exception as error:
            told |= {"left_out": 1, "why": f"{type(error).__name__}: {error}"[:200]}
            return
        compared = []
        for sample in chosen:
            try:
                compared.append((sample, Comparison(info, sample, dtype)))
            except Exception as error:  # PyTorch's: it cannot do this one here
                told["left_out"] += 1
                told["why"] = f"{type(error).__name__}: {error}"[:200]
        cudaforge_backend.reset_stats()
        with enable(on_miss="blocking", region_budget_s=30, cache_dir=str(samples_cache)):
            # The second time by the kernels that the first has made.
            found = [[attempt(info, sample) for _ in range(2)] for sample, _ in compared]
        told["overloads"] = counts()
        disable()
        for (_, comparison), runs in zip(compared, found, strict=True):
            told["samples"] += 1
            differences = [
                run if isinstance(run, str) else comparison.difference(run) for run in runs
            ]
            wrong += [text for text in differences if text][:1]
    told["mismatches"] = len(wrong)
    told["warnings"] = sorted({str(one.message) for one in warned})[:4]
    assert wrong == []
    # Of one or two samples none may be of a kind that there is a generator for.
    if (name, dtype) in some_cases() and (not EVERY or told["samples"] > 2):
        assert told["samples"] and any(n["hits"] for n in told["overloads"].values())
    if not EVERY:
        assert told["warnings"] == []  # of a kernel that fails at a call


def test_the_comparison_sees_faults() -> None:
    info = op_infos()["softmax"]
    x = torch.randn(4, 6, requires_grad=True)
    sample = types.SimpleNamespace(input=x, args=(-1,), kwargs={})
    comparison = Comparison(info, sample, torch.float32)
    right = comparison.expected
    assert len(right) == 2
    assert comparison.difference([value.clone() for value in right]) == ""
    spoiled = right[0].clone()
    spoiled.view(-1)[0] = float("nan")
    others = [
        [right[0]],
        [right[0] * 1.001, right[1]],
        [right[0], right[1] + 1e-4],
        [right[0].double(), right[1]],
        [right[0].mT.contiguous().mT, right[1]],
        [spoiled, right[1]],
    ]
    assert all(comparison.difference(other) for other in others)


def test_numbers_that_cancel_are_held_to_the_contract() -> None:
    """The sum of a large number, its opposite and small ones: ATen itself is far off, and another
    order of addition as far."""
    info = op_infos()["sum"]
    x = torch.cat([torch.randn(4000) * 1e4, torch.tensor([3e4])])
    x[-1] -= x.double().sum().float()
    sample = types.SimpleNamespace(input=x, args=(), kwargs={})
    comparison = Comparison(info, sample, torch.float32)
    backwards, true = x.flip(0).cumsum(0)[-1], x.double().sum()
    with pytest.raises(AssertionError):
        torch.testing.assert_close(backwards, comparison.expected[0])
    assert comparison.difference([backwards]) == ""
    assert comparison.difference([(true + 100).float()]) != ""


class WeightedMean:
    name = "weighted mean"

    def __call__(self, x: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        return (x * (weights / weights.sum())).sum(-1)


def test_a_tensor_in_a_coarser_dtype_sets_the_limits() -> None:
    """cov in float64 has samples with weights in float32: their sum is rounded to that."""
    x, weights = torch.randn(4, 300, dtype=torch.float64), torch.rand(300, dtype=torch.float64)
    for dtype, bearable, wrong in (
        (torch.float32, 1e-7, 1e-2),
        (torch.float64, 1e-16, 1e-8),
    ):
        sample = types.SimpleNamespace(input=x, args=(weights.to(dtype),), kwargs={})
        comparison = Comparison(WeightedMean(), sample, torch.float64)
        right = comparison.expected[0]
        assert right.dtype == torch.float64
        assert comparison.difference([right * (1 + bearable)]) == ""
        assert comparison.difference([right * (1 + wrong)]) != ""


def test_the_summary_adds_up() -> None:
    one = {"op": "a", "dtype": "float32", "device": "cpu", "samples": 3, "left_out": 0, "why": ""}
    one |= {"mismatches": 0, "warnings": [], "overloads": {"aten::a": {"calls": 6, "hits": 3}}}
    two = one | {"dtype": "float64", "mismatches": 1, "warnings": ["slow"]}
    none = one | {"op": "b", "overloads": {}}
    left = none | {"op": "c", "samples": 0, "left_out": 1, "why": "no"}
    assert samples_summary([]) == []
    lines = samples_summary([one, two, none, left])
    assert lines[2:] == [
        "  aten::a: 6 samples, 12 calls, 6 hits, 1 mismatches",
        "  float32: 1 operators, 3 samples, 3 hits, 0 mismatches",
        "  float64: 1 operators, 3 samples, 3 hits, 1 mismatches",
        "  MISMATCH: a, float64, cpu",
        "  left out, as PyTorch cannot make or run them: 1 of c, float32, cpu: no",
        "  warned: slow",
        "  in all: 1 operators, 6 samples, 6 hits, 1 mismatches, 1 left out",
    ]
