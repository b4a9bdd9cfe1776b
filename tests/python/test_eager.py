"""Eager calls that are looked up: enable() and disable()."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import cudaforge_backend
import pytest
import torch
import torch.nn.functional as F
from conftest import RunPython
from cudaforge_backend import OptionError, disable, enable
from cudaforge_backend._native import _C
from cudaforge_backend.errors import CudaForgeWarning
from cudaforge_backend.integration.eager_ops import default_ops
from eager_calls import SOFTMAX, seen
from torch import Tensor
from torch._subclasses import FakeTensorMode


def test_a_call_with_a_winner_is_served(blocking: dict[str, Any], device: str) -> None:
    x = torch.randn(16, 50, device=device)
    expected = x.softmax(-1)
    with enable([SOFTMAX], **blocking):
        for _ in range(3):
            torch.testing.assert_close(x.softmax(-1), expected)
        assert asdict(seen()) == {"calls": 3, "hits": 2, "fallbacks": 0, "misses": {"new": 1}}
        text = str(cudaforge_backend.stats())
        assert f"eager {SOFTMAX}: 3 calls, 2 served by kernels" in text
    x.softmax(-1)
    assert seen().calls == 3


def test_another_default_dtype_is_warned_of() -> None:
    torch.set_default_dtype(torch.float64)
    try:
        with pytest.warns(CudaForgeWarning, match="default dtype .* torch.float64"):
            enable([SOFTMAX])
    finally:
        torch.set_default_dtype(torch.float32)
        disable()


def test_disable_restores_what_was_there() -> None:
    ops = ["aten::_softmax", "aten::sum.dim_IntList", "aten::native_layer_norm"]
    before = [torch._C._dispatch_dump(op) for op in ops]
    enable(ops)
    assert _C.intercepted() == sorted(ops)
    assert [torch._C._dispatch_dump(op) for op in ops] != before
    disable()
    assert _C.intercepted() == []
    assert [torch._C._dispatch_dump(op) for op in ops] == before
    disable()


def test_a_with_restores_what_was_in_force() -> None:
    enable([SOFTMAX])
    with enable(["aten::mm"]) as mm:
        assert _C.intercepted() == ["aten::mm"]
        with enable(["aten::bmm"]):
            assert _C.intercepted() == ["aten::bmm"]
            with disable(), mm:
                assert _C.intercepted() == ["aten::mm"]
            assert _C.intercepted() == ["aten::bmm"]
        enable(["aten::bmm"])
        assert _C.intercepted() == ["aten::bmm"]
    assert _C.intercepted() == [SOFTMAX]
    with mm, mm:
        disable()
        assert _C.intercepted() == []
    assert _C.intercepted() == [SOFTMAX]
    disable()
    assert _C.intercepted() == []


def test_a_with_may_end_before_one_that_began_in_it() -> None:
    """As in tasks of asyncio, and in generators that are closed late."""
    enable([SOFTMAX])
    first = enable(["aten::mm"])
    first.__enter__()
    with disable():
        first.__exit__()
        assert _C.intercepted() == []
    assert _C.intercepted() == [SOFTMAX]


@pytest.mark.parametrize("inside", [enable, disable])
def test_another_thread_changes_nothing_inside_a_with(inside: Any) -> None:
    kept = enable(["aten::mm"])
    with ThreadPoolExecutor(1) as other, inside():
        intercepted = _C.intercepted()
        for change in (lambda: enable([SOFTMAX]), disable, kept.__enter__):
            with pytest.raises(RuntimeError, match="another thread"):
                other.submit(change).result()
        assert _C.intercepted() == intercepted
    assert _C.intercepted() == ["aten::mm"]
    new = inside()
    with ThreadPoolExecutor(1) as other:
        other.submit(new.__enter__).result()
        with pytest.raises(RuntimeError, match="another thread"):
            inside().__enter__()
        other.submit(new.__exit__).result()


def test_an_enable_that_fails_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    enable([SOFTMAX])
    intercept = _C.intercept

    def fail(ops: list[str]) -> None:
        if ops == ["aten::mm"]:
            raise RuntimeError("no")
        intercept(ops)

    monkeypatch.setattr(_C, "intercept", fail)
    with pytest.raises(RuntimeError, match="no"):
        enable(["aten::mm"])
    assert _C.intercepted() == [SOFTMAX]


def test_an_unknown_option_is_named() -> None:
    with pytest.raises(OptionError, match="unknown option 'inductor'"):
        enable(inductor={})


def test_gradients_and_their_own_ops(blocking: dict[str, Any], device: str) -> None:
    backward = "aten::_softmax_backward_data"
    x = torch.randn(8, 40, device=device, requires_grad=True)
    weights = torch.randn(8, 40, device=device)

    def gradient() -> Tensor:
        (found,) = torch.autograd.grad((x.softmax(-1) * weights).sum(), x)
        return found

    expected = gradient()
    with enable([SOFTMAX, backward], **blocking):
        for _ in range(2):
            torch.testing.assert_close(gradient(), expected)
        assert seen().hits == seen(backward).hits == 1


def test_what_stands_above_the_kernels_goes_on(blocking: dict[str, Any]) -> None:
    x = torch.randn(4, 8, 32)
    functions = {
        "vmap": torch.vmap(lambda row: row.softmax(-1)),
        "grad": torch.func.grad(lambda value: value.softmax(-1)[0, 0, 0]),
        "no_grad": torch.no_grad()(lambda value: value.softmax(-1)),
        "inference": torch.inference_mode()(lambda value: value.softmax(-1)),
        "transposed": lambda value: value.transpose(0, 2).softmax(-1),
        "half": lambda value: value.half().softmax(-1),
        "to float": lambda value: value.half().softmax(-1, dtype=torch.float32),
    }
    for name, function in functions.items():
        expected = function(x)
        with enable([SOFTMAX], **blocking):
            for _ in range(2):
                torch.testing.assert_close(function(x), expected, msg=name)
    assert asdict(seen()) == {"calls": 14, "hits": 10, "fallbacks": 0, "misses": {"new": 4}}


def test_autocast_goes_on(blocking: dict[str, Any], device: str) -> None:
    x = torch.randn(4, 8, 32, device=device)
    with torch.autocast(device, torch.bfloat16):
        expected = (x @ x.mT).softmax(-1)
        with enable([SOFTMAX, "aten::bmm"], **blocking):
            for _ in range(3):
                torch.testing.assert_close((x @ x.mT).softmax(-1), expected)
    assert expected.dtype == (torch.float32 if device == "cuda" else torch.bfloat16)
    assert seen().hits == 2


def test_fake_tensors_and_exports_are_not_intercepted() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.softmax(-1)

    with enable([SOFTMAX]):
        with FakeTensorMode():
            assert torch.empty(4, 8).softmax(-1).shape == (4, 8)
        torch.export.export(Model(), (torch.randn(4, 8),))
        assert seen().calls == 0


def test_what_no_region_holds_runs_as_before(tmp_path: Path) -> None:
    total = "aten::sum.dim_IntList"
    value = torch.randn(2, 3, dtype=torch.complex64)
    expected = value.sum(-1)
    with enable([total], cache_dir=str(tmp_path)):
        for _ in range(2):
            assert torch.equal(value.sum(-1), expected)
    assert seen(total).misses == {"new": 1, "unsupported": 1}
    _C.flush_eager_misses()
    assert _C.store().wanted() == []


def test_errors_are_pytorchs(tmp_path: Path) -> None:
    value = torch.randn(2, 3, dtype=torch.complex64)
    with enable([SOFTMAX], cache_dir=str(tmp_path)), pytest.raises(RuntimeError, match="Complex"):
        value.softmax(-1)
    assert seen().misses == {"new": 1}


def test_what_a_kernel_of_pytorchs_calls_is_not_looked_up(device: str, tmp_path: Path) -> None:
    inner = "aten::amax"  # which logsumexp is made of
    x = torch.randn(6, 31, device=device)
    with enable(["aten::logsumexp", inner], cache_dir=str(tmp_path)):
        x.logsumexp(-1)
        assert (seen(inner).calls, seen("aten::logsumexp").calls) == (0, 1)
        x.amax(-1)
        assert seen(inner).calls == 1


def test_outputs_that_are_absent_stay_so(blocking: dict[str, Any]) -> None:
    op = "aten::native_layer_norm_backward"
    x = torch.randn(6, 16, requires_grad=True)
    weight = torch.rand(16)

    def gradient() -> Tensor:
        (found,) = torch.autograd.grad(F.layer_norm(x, (16,), weight).square().sum(), x)
        return found

    expected = gradient()
    with enable([op], **blocking):
        for _ in range(2):
            torch.testing.assert_close(gradient(), expected)
    assert seen(op).hits == 1


def test_infinite_gradients_become_nan_where_atens_do(blocking: dict[str, Any]) -> None:
    op = "aten::native_layer_norm_backward"
    x = torch.randn(3, 12, 32, requires_grad=True)
    weight = torch.rand(32)
    given = torch.randn(3, 12, 32)
    given[..., 7] = torch.inf

    def gradient() -> Tensor:
        (found,) = torch.autograd.grad(F.layer_norm(x, (32,), weight), x, given)
        return found

    expected = gradient()
    assert 0 < expected.isnan().sum() < expected.numel()
    with enable([op], **blocking):
        for _ in range(2):
            assert torch.equal(gradient().nan_to_num(), expected.nan_to_num())
    assert seen(op).hits == 1


def test_labels_out_of_range_raise_pytorchs_error(blocking: dict[str, Any]) -> None:
    forward, backward = "aten::nll_loss_forward", "aten::nll_loss_backward"
    x = torch.randn(6, 50, requires_grad=True)
    labels = torch.tensor([3, 0, 49, -100, 7, 7])
    wrong = torch.tensor([3, 0, 50, -100, 7, 7])
    kept = torch.ops.aten.nll_loss_forward(x.detach(), labels, None, 1, -100)[1]
    expected = F.nll_loss(x, labels)
    with enable([forward, backward], **blocking):
        for _ in range(2):
            torch.testing.assert_close(F.nll_loss(x, labels), expected)
            F.nll_loss(x, labels).backward()  # type: ignore[no-untyped-call]
        with pytest.raises(IndexError, match="out of bounds"):
            F.nll_loss(x, wrong)
        with pytest.raises(IndexError, match="out of bounds"):
            torch.ops.aten.nll_loss_backward(torch.ones(()), x.detach(), wrong, None, 1, -100, kept)
    assert seen(forward).hits == 3 and seen(backward).hits == 1
    assert seen(forward).fallbacks == seen(backward).fallbacks == 1
    assert cudaforge_backend.stats().fallbacks["labels"] == 2


def test_running_statistics_are_changed_once_and_never_by_a_kernel(tmp_path: Path) -> None:
    x = torch.randn(8, 4)
    ops = ["aten::native_batch_norm", "aten::batch_norm_update_stats"]

    def statistics() -> list[Tensor]:
        found = [torch.zeros(4), torch.ones(4), torch.zeros(4), torch.ones(4)]
        torch.native_batch_norm(x, None, None, *found[:2], True, 0.1, 1e-5)
        torch.batch_norm_update_stats(x, *found[2:], 0.1)
        return found

    expected = statistics()
    with enable(ops, on_miss="record", cache_dir=str(tmp_path)):
        for _ in range(2):
            assert all(map(torch.equal, statistics(), expected))
    assert [seen(op).misses for op in ops] == [{"new": 1, "unsupported": 1}] * 2
    assert _C.store().wanted("") == []


def test_a_relative_cache_dir_is_of_the_folder_at_enable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with enable([SOFTMAX], on_miss="record", cache_dir="kernels"):
        monkeypatch.chdir(tmp_path / "elsewhere")
        torch.randn(3, 54).softmax(-1)
    assert (tmp_path / "kernels" / "db").is_dir()


def test_threads_call_while_another_enables_and_disables(blocking: dict[str, Any]) -> None:
    ops = [SOFTMAX, "aten::sum.dim_IntList", "aten::cumsum"]
    inputs = [torch.randn(8, 33) for _ in range(4)]
    expected = [(x.softmax(-1), x.sum(-1), x.cumsum(-1)) for x in inputs]
    with enable(ops, **blocking):
        for x in inputs:
            x.softmax(-1), x.sum(-1), x.cumsum(-1)
    wrong: list[str] = []
    ended = threading.Event()

    def call(number: int) -> None:
        x, right = inputs[number % 4], expected[number % 4]
        while not ended.is_set():
            for found, value in zip((x.softmax(-1), x.sum(-1), x.cumsum(-1)), right, strict=True):
                if not torch.allclose(found, value, atol=1e-5):
                    wrong.append(str(found - value))

    threads = [threading.Thread(target=call, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(50):
            enable(ops, **blocking)
            deadline, enough = time.monotonic() + 20, seen().hits + len(threads)
            while seen().hits < enough:
                assert time.monotonic() < deadline
                time.sleep(1e-3)
            disable()
            deadline, before = time.monotonic() + 20, -1
            while before != (before := seen().calls):  # while calls are running
                assert time.monotonic() < deadline
                time.sleep(0.02)
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    assert wrong == []


_AT_IMPORT = """
import os
import torch, cudaforge_backend
from cudaforge_backend._native import _C
print(len(_C.intercepted()))
pid = os.fork()
value = torch.randn(4, 9).softmax(-1).sum()
if pid == 0:
    os._exit(int(abs(value.item() - 4) > 1e-4))
print(os.waitpid(pid, 0)[1])
"""


def test_the_environment_enables_at_import(run_python: RunPython, tmp_path: Path) -> None:
    folder = {"CUDAFORGE_CACHE_DIR": str(tmp_path)}
    told = run_python(_AT_IMPORT, CUDAFORGE_EAGER="1", **folder).stdout.split()
    assert told == [str(len(default_ops())), "0"]
    off = {"CUDAFORGE_EAGER": "1", "CUDAFORGE_DISABLE": "1", **folder}
    assert run_python(_AT_IMPORT, **off).stdout.split() == ["0", "0"]
    told = run_python("import cudaforge_backend; print(cudaforge_backend.enable())", **off).stdout
    assert told.startswith("<Interception of enable(), without effect: ")
