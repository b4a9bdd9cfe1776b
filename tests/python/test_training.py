"""Real kernels inside training graphs, under every grad mode that PyTorch has."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cudaforge_backend
import pytest
import torch
from conftest import RunPython
from forged import compiled, decide_every_race
from torch import Tensor, nn
from torch.nn import functional as F


class Head(nn.Module):
    """A scale, a matrix product and a softmax: forward and backward have a region each."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(24, 24)

    def forward(self, x: Tensor) -> Tensor:
        return torch.softmax(self.linear(x) * 2, -1)


def hits() -> int:
    return cudaforge_backend.stats().hits


def expect_all_hits() -> None:
    """Regions were called, and each call was served."""
    stats = cudaforge_backend.stats()
    assert stats.hits > 0
    assert sum(region.unserved for region in stats.regions) == 0
    assert not {"launch_error", "quarantined", "backend_failed", "forge_failed"} & set(
        stats.fallbacks
    )


def gradients(model: nn.Module, output: Tensor, *inputs: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(output.square().sum(), [*inputs, *model.parameters()]))


def test_forward_and_backward_are_served(forged: Path) -> None:
    model, x = Head(), torch.randn(8, 24, requires_grad=True)
    made = compiled(model, forged)
    y = made(x)
    forward_hits = hits()
    assert forward_hits == 1
    torch.testing.assert_close(y, model(x))
    assert y.requires_grad
    mine, theirs = gradients(model, y, x), gradients(model, model(x), x)
    assert hits() > forward_hits
    torch.testing.assert_close(mine, theirs)
    expect_all_hits()


def test_only_the_parameters_require_grad(forged: Path) -> None:
    model, x = Head(), torch.randn(8, 24)
    made = compiled(model, forged)
    torch.testing.assert_close(gradients(model, made(x)), gradients(model, model(x)))
    expect_all_hits()


def test_several_steps_of_an_optimizer(forged: Path) -> None:
    torch.manual_seed(1)
    mine, theirs = Head(), Head()
    theirs.load_state_dict(mine.state_dict())
    x, target = torch.randn(8, 24), torch.randint(0, 24, (8,))
    made = compiled(mine, forged)
    for model, run in ((mine, made), (theirs, theirs)):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            F.nll_loss(torch.log(run(x) + 1e-6), target).backward()
            optimizer.step()
    torch.testing.assert_close(dict(mine.state_dict()), dict(theirs.state_dict()))
    expect_all_hits()


def test_detached_and_second_backward(forged: Path) -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        y = torch.softmax(x * 2, -1)
        return y, torch.softmax(y.detach() * 2, -1)

    x = torch.randn(8, 24, requires_grad=True)
    made = compiled(function, forged)
    y, cut = made(x)
    assert y.requires_grad
    assert not cut.requires_grad
    (first,) = torch.autograd.grad(y.square().sum(), x, retain_graph=True)
    (second,) = torch.autograd.grad(y.square().sum(), x)
    (expected,) = torch.autograd.grad(function(x)[0].square().sum(), x)
    torch.testing.assert_close(first, expected)
    torch.testing.assert_close(second, expected)
    expect_all_hits()


def test_a_graph_that_was_timed_keeps_its_backward_for_another(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The first backward of all, the timing's, decides how AOTAutograd compiles it."""

    def function(x: Tensor, w: Tensor) -> Tensor:
        return torch.softmax((x @ w).sin() * 2, -1).exp()

    decide_every_race(monkeypatch, 0, 1e-4)
    x, w = torch.randn(8, 24, requires_grad=True), torch.randn(24, 24, requires_grad=True)
    y = compiled(function, tmp_path, on_miss="blocking")(x, w)
    assert cudaforge_backend.stats().ways
    first = torch.autograd.grad(y.square().sum(), [x, w], retain_graph=True)
    second = torch.autograd.grad(y.square().sum(), [x, w])
    torch.testing.assert_close(first, second)


_AFTER_ANOTHER = """
import pytest, torch, cudaforge_backend
from cudaforge_backend.integration import gate
from forged import compiled, win_every_race
def function(x, w):
    return torch.softmax((x @ w).sin() * 2, -1).exp().square().sum()
torch.manual_seed(0)
x, w = torch.randn(8, 24, requires_grad=True), torch.randn(24, 24, requires_grad=True)
decided = gate.obstacle
win_every_race(pytest.MonkeyPatch())
gate.obstacle = decided
made = compiled(function, FOLDER, graph_budget_s=BUDGET)
made(x, w).backward()
stats = cudaforge_backend.stats()
print(stats.forged, len(stats.ways), stats.fallbacks, x.grad.sum().item())
"""


def test_a_backward_in_pytorchs_cache_can_be_timed(run_python: RunPython, tmp_path: Path) -> None:
    """That of a process without time for the kernels, whose backward ran once a forward."""
    shown = []
    for budget in (0.01, 500):
        head = f"FOLDER, BUDGET = {str(tmp_path / 'cache')!r}, {budget}"
        done = run_python(
            f"{head}{_AFTER_ANOTHER}", TORCHINDUCTOR_CACHE_DIR=str(tmp_path / "inductor")
        )
        shown.append(done.stdout.split(maxsplit=2))
        assert "could not be timed" not in done.stderr
    assert [line[:2] for line in shown] == [["0", "0"], [shown[1][0], "1"]]
    assert int(shown[1][0]) > 0 and "gate_failed" not in shown[1][2]


def softmax_chain(x: Tensor) -> Tensor:
    return torch.softmax(x * 2, -1)


def test_an_option_of_inductors_changes_the_decompositions(forged: Path) -> None:
    def function(x: Tensor) -> Tensor:
        return torch.nn.functional.dropout(torch.softmax(x, -1), 0.5)

    x = torch.randn(8, 24)
    made = compiled(function, forged, inductor={"fallback_random": True})
    drawn = []
    for run in (function, made):
        torch.manual_seed(1)
        drawn.append(run(x))
    torch.testing.assert_close(drawn[1], drawn[0])  # the same elements dropped
    assert hits() == 1


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_grad_modes(forged: Path, mode: Callable[[], Any]) -> None:
    made, x = compiled(softmax_chain, forged), torch.randn(8, 24, requires_grad=True)
    expected = softmax_chain(x).detach()
    with mode():
        for _ in range(2):
            y = made(x)
            assert y.requires_grad == (mode is torch.enable_grad)
            torch.testing.assert_close(y.detach(), expected)
    assert hits() == 2
    expect_all_hits()


def test_one_compiled_model_under_changing_modes(forged: Path) -> None:
    made, x = compiled(softmax_chain, forged), torch.randn(8, 24, requires_grad=True)
    expected = softmax_chain(x).detach()
    for mode in (torch.enable_grad, torch.no_grad, torch.inference_mode, torch.enable_grad):
        with mode():
            torch.testing.assert_close(made(x).detach(), expected)
    plain = x.detach()
    torch.testing.assert_close(made(plain), expected)
    expect_all_hits()


@pytest.mark.parametrize("train", [False, True])
def test_autocast(forged: Path, train: bool) -> None:
    model, x = Head(), torch.randn(8, 24, requires_grad=train)
    made = compiled(model, forged)
    with torch.set_grad_enabled(train), torch.autocast("cpu", dtype=torch.bfloat16):
        mine, theirs = made(x), model(x)
    torch.testing.assert_close(mine, theirs, rtol=2e-2, atol=2e-2)
    if train:
        for a, b in zip(gradients(model, mine, x), gradients(model, theirs, x), strict=True):
            torch.testing.assert_close(a, b, rtol=5e-2, atol=5e-2)
    expect_all_hits()


def test_functional_call_with_another_state_dict(forged: Path) -> None:
    model, other, x = Head(), Head(), torch.randn(8, 24)
    made = compiled(lambda state, x: torch.func.functional_call(model, state, (x,)), forged)
    for state in (dict(model.named_parameters()), dict(other.named_parameters())):
        torch.testing.assert_close(made(state, x), torch.func.functional_call(model, state, (x,)))
    expect_all_hits()


def test_a_loaded_state_dict_is_seen(forged: Path) -> None:
    model, other, x = Head(), Head(), torch.randn(8, 24)
    made = compiled(model, forged)
    made(x)
    model.load_state_dict(other.state_dict())
    torch.testing.assert_close(made(x), other(x))
    expect_all_hits()


def test_graph_breaks_in_training(forged: Path) -> None:
    def function(x: Tensor) -> Tensor:
        y = torch.softmax(x * 2, -1)
        torch._dynamo.graph_break()
        return torch.softmax(y * 2, -1)

    made, x = compiled(function, forged), torch.randn(8, 24, requires_grad=True)
    y = made(x)
    torch.testing.assert_close(y, function(x))
    (mine,) = torch.autograd.grad(y.square().sum(), x)
    (theirs,) = torch.autograd.grad(function(x).square().sum(), x)
    torch.testing.assert_close(mine, theirs)
    assert hits() >= 4
    expect_all_hits()


def test_checkpointing(forged: Path) -> None:
    from torch.utils.checkpoint import checkpoint

    def function(x: Tensor) -> Any:
        return checkpoint(softmax_chain, x, use_reentrant=False)

    made, x = compiled(function, forged), torch.randn(8, 24, requires_grad=True)
    (mine,) = torch.autograd.grad(made(x).square().sum(), x)
    (theirs,) = torch.autograd.grad(softmax_chain(x).square().sum(), x)
    torch.testing.assert_close(mine, theirs)


def test_threads_share_one_compiled_model(forged: Path) -> None:
    model = Head()
    made = compiled(model, forged)
    inputs = [torch.randn(8, 24, requires_grad=True) for _ in range(4)]
    expected = [gradients(model, model(x), x) for x in inputs]
    gradients(model, made(inputs[0]), inputs[0])
    wrong: list[str] = []

    def work(i: int) -> None:
        for _ in range(10):
            try:
                got = gradients(model, made(inputs[i]), inputs[i])
                torch.testing.assert_close(got, expected[i])
            except Exception as error:
                wrong.append(str(error))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong[0]
    expect_all_hits()


_FORKED = """
import os, signal, sys, torch, cudaforge_backend
from forged import compiled, win_every_race
win_every_race()
torch.set_num_threads(THREADS)
f = lambda x: torch.softmax(x * 2, -1)
made, x = compiled(f, FOLDER), torch.randn(512, 1024)
torch.testing.assert_close(made(x), f(x))
served = cudaforge_backend.stats().hits
assert served > 0
child = os.fork()
if child == 0:
    signal.alarm(100)  # ends a child that hangs
    status = 1
    try:
        torch.set_num_threads(1)
        torch.testing.assert_close(made(x), f(x))
        status = 0 if cudaforge_backend.stats().hits == served + 1 else 2
    finally:
        os._exit(status)
ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
torch.testing.assert_close(made(x), f(x))  # the parent goes on
sys.exit(ended)
"""


@pytest.mark.parametrize("threads", [1, 2])
def test_a_forked_child_is_served(run_python: RunPython, tmp_path: Path, threads: int) -> None:
    """The child runs PyTorch in one thread: if the parent used several, GNU OpenMP hangs in a child
    that does (torch.softmax alone does). A changed number of threads makes Dynamo recompile, which
    Inductor cannot do in the child of a process that uses CUDA."""
    head = f"FOLDER, THREADS = {str(tmp_path)!r}, {threads}"
    run_python(head + _FORKED, CUDA_VISIBLE_DEVICES="")


_FORKED_COMPILES = """
import os, signal, sys, torch
torch.set_num_threads(1)
options = {"on_miss": "fallback", "cache_dir": FOLDER}
f, g = lambda x: torch.softmax(x * 2, -1), lambda x: torch.softmax(x * 5, -1) + 1
x = torch.randn(16, 64)
torch.compile(f, backend="cudaforge", options=options)(x)
child = os.fork()
if child == 0:
    signal.alarm(200)  # ends a child that hangs
    status = 1
    try:
        torch.testing.assert_close(torch.compile(g, backend="cudaforge", options=options)(x), g(x))
        status = 0
    finally:
        os._exit(status)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.parametrize("compile_threads", ["1", "2"])
def test_a_forked_child_compiles(
    run_python: RunPython, tmp_path: Path, compile_threads: str
) -> None:
    run_python(
        f"FOLDER = {str(tmp_path)!r}{_FORKED_COMPILES}",
        CUDA_VISIBLE_DEVICES="",
        TORCHINDUCTOR_COMPILE_THREADS=compile_threads,
        TORCHINDUCTOR_CACHE_DIR=str(tmp_path / "inductor"),
    )


@pytest.mark.parametrize(
    ("dynamic", "served"),
    [(None, [2, 0, 0, 0]), (False, [2, 2, 2, 2])],
)
def test_a_second_batch_size(forged: Path, dynamic: bool | None, served: list[int]) -> None:
    """The graph for all sizes, which has no regions, runs the first size too."""
    options = {"on_miss": "blocking", "cache_dir": str(forged)}
    made = torch.compile(softmax_chain, backend="cudaforge", dynamic=dynamic, options=options)
    found = []
    for rows in (8, 5, 3, 8):
        before = hits()
        x = torch.randn(rows, 24, requires_grad=True)
        y = made(x)
        torch.testing.assert_close(y, softmax_chain(x))
        (mine,) = torch.autograd.grad(y.square().sum(), x)
        (theirs,) = torch.autograd.grad(softmax_chain(x).square().sum(), x)
        torch.testing.assert_close(mine, theirs)
        found.append(hits() - before)
    assert found == served
    left = cudaforge_backend.stats().fallbacks.get("dynamic_shape", 0)
    assert (left > 0) == (dynamic is None)  # and Inductor ran it
