"""torch.compile(backend="cudaforge"): results, fallbacks, and graphs left exactly to Inductor."""

from __future__ import annotations

import os
import re
import threading
import warnings
from collections.abc import Callable
from typing import Any

import cudaforge_backend
import pytest
import torch
from conftest import RunPython
from cudaforge_backend.integration import backend, plan
from cudaforge_backend.options import MODES
from torch import Tensor, nn
from torch._inductor import compile_fx
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch._inductor.utils import run_and_get_code
from torch.nn import functional as F


class Block(nn.Module):
    """Norm, matrix product, RMS norm and softmax: several regions, forward and backward."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(32)
        self.linear = nn.Linear(32, 32)
        self.scale = nn.Parameter(torch.ones(32))

    def forward(self, x: Tensor) -> Tensor:
        h = F.gelu(self.linear(self.norm(x)))
        h = h * torch.rsqrt((h * h).mean(-1, keepdim=True) + 1e-5) * self.scale
        return F.softmax(h * 2, -1) + x


def softmax_chain(x: Tensor) -> Tensor:
    return torch.softmax(x * 2, -1) + 1


def compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    made: Callable[..., Any] = torch.compile(function, backend="cudaforge", options=options or None)
    return made


def fallbacks() -> dict[str, int]:
    return cudaforge_backend.stats().fallbacks


def graphs(kind: str) -> int:
    return cudaforge_backend.stats().graphs.get(kind, 0)


def code_of(function: Callable[..., Any], backend_name: str, *inputs: Tensor) -> list[str]:
    return code_made_by(torch.compile(function, backend=backend_name), *inputs)


def code_made_by(run: Callable[..., Any], *inputs: Tensor) -> list[str]:
    torch._dynamo.reset()
    with torch._inductor.config.patch(force_disable_caches=True):
        _, code = run_and_get_code(run, *inputs)
    return [re.sub(r"AOT ID: .*", "", text) for text in code if "def call" in text]


@pytest.mark.parametrize(
    ("function", "outcome"),
    [(lambda x: (x * 2).relu() + 1, "no_anchor"), (softmax_chain, "plain")],
)
def test_without_winners_the_code_is_inductors(function: Callable[..., Any], outcome: str) -> None:
    x = torch.randn(8, 32)
    assert code_of(function, "cudaforge", x) == code_of(function, "inductor", x)
    assert cudaforge_backend.stats().graphs == {outcome: 1}


def test_without_winners_the_code_is_inductors_in_training() -> None:
    block, x = Block(), torch.randn(8, 32, requires_grad=True)
    parameters = [x, *block.parameters()]

    def code(backend_name: str) -> list[str]:
        step = torch.compile(block, backend=backend_name)

        def train() -> tuple[Tensor, ...]:
            return torch.autograd.grad(step(x).square().sum(), parameters)

        return code_made_by(train)

    ours = code("cudaforge")
    assert len(ours) == 2  # the forward and the backward graph
    assert ours == code("inductor")
    assert graphs("plain") == 1


@pytest.mark.parametrize("training", [False, True])
def test_inductor_receives_which_inputs_are_parameters(
    all_win: None, monkeypatch: pytest.MonkeyPatch, training: bool
) -> None:
    """It looks at the addresses of others in every call, and CUDA graphs copy them."""
    told: list[int] = []
    compile_graph = compile_fx._InProcessFxCompile.codegen_and_compile

    def note(self: Any, gm: Any, inputs: Any, check: Any, kwargs: Any) -> Any:
        told.append(len(kwargs["static_input_idxs"]))
        return compile_graph(self, gm, inputs, check, kwargs)

    monkeypatch.setattr(compile_fx._InProcessFxCompile, "codegen_and_compile", note)
    block, x = Block(), torch.randn(8, 32)
    with torch.set_grad_enabled(training):
        code_made_by(torch.compile(block, backend="cudaforge"), x)
    assert told and set(told) == {len(list(block.parameters()))}


def test_a_graph_without_an_anchor_is_not_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "analyse", None)
    x = torch.randn(8)
    assert torch.equal(compiled(lambda x: x * 2 + 1)(x), x * 2 + 1)
    assert graphs("no_anchor") == 1
    assert not fallbacks()


def test_substituted_code_calls_the_operator(all_win: None) -> None:
    assert any(
        "cudaforge.region_v1" in c for c in code_of(softmax_chain, "cudaforge", torch.randn(8, 32))
    )


def test_forward_and_backward_equal_eager(all_win: None) -> None:
    model, x = Block(), torch.randn(8, 32, requires_grad=True)
    expected = model(x)
    wanted = torch.autograd.grad(expected.square().sum(), [x, *model.parameters()])
    got = compiled(model)(x)
    torch.testing.assert_close(got, expected)
    grads = torch.autograd.grad(got.square().sum(), [x, *model.parameters()])
    for mine, theirs in zip(grads, wanted, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)
    assert graphs("substituted") == 1
    stats = cudaforge_backend.stats()  # no kernel behind these winners: each call ran ATen
    assert stats.unserved >= 3 and stats.misses == 0


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_inference(all_win: None, mode: Callable[[], Any]) -> None:
    model, x = Block(), torch.randn(8, 32)
    with mode():
        torch.testing.assert_close(compiled(model)(x), model(x))
    assert graphs("substituted") == 1


def test_autocast(all_win: None) -> None:
    model, x = Block(), torch.randn(8, 32)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(compiled(model)(x), model(x), rtol=2e-2, atol=2e-2)


def test_a_second_batch_size(all_win: None) -> None:
    made = compiled(softmax_chain)

    def call(rows: int) -> None:
        x = torch.randn(rows, 32)
        torch.testing.assert_close(made(x), softmax_chain(x))

    call(8)
    with pytest.warns(cudaforge_backend.CudaForgeWarning, match="called with another size"):
        call(5)
    call(3)
    assert fallbacks() == {"dynamic_shape": 1}
    call(8)  # in the graph for any size, which calls no operator of ours
    assert cudaforge_backend.stats().unserved == 1


def test_graph_break(all_win: None) -> None:
    def function(x: Tensor) -> Tensor:
        y = softmax_chain(x)
        torch._dynamo.graph_break()
        return y.cumsum(-1) * 2

    x = torch.randn(8, 32)
    torch.testing.assert_close(compiled(function)(x), function(x))


def test_mutated_input(all_win: None) -> None:
    def function(x: Tensor) -> Tensor:
        y = torch.softmax(x, -1)
        x.mul_(2)
        return y + torch.softmax(x, -1)

    x = torch.randn(8, 32)
    mine, theirs = x.clone(), x.clone()
    torch.testing.assert_close(compiled(function)(mine), function(theirs))
    torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize(
    "x",
    [
        torch.randn(32, 8).t(),
        torch.randn(2, 8, 4, 4).to(memory_format=torch.channels_last),
        torch.randn(9, 33)[1:, 1:],
        torch.randn(1, 32).expand(8, 32),
        torch.randn(0, 32),
        torch.tensor([float("nan"), float("inf"), -float("inf"), 1e-40]).expand(4, 4),
    ],
    ids=["transposed", "channels_last", "offset", "expanded", "empty", "special"],
)
def test_layouts_and_values(all_win: None, x: Tensor) -> None:
    got, expected = compiled(softmax_chain)(x), softmax_chain(x)
    torch.testing.assert_close(got, expected, equal_nan=True)
    assert got.stride() == expected.stride()


def test_complex_input_is_inductors_and_counted(all_win: None) -> None:
    x = torch.randn(4, 8, dtype=torch.complex64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        got = compiled(lambda x: x.sum(-1) * 2)(x)
    torch.testing.assert_close(got, x.sum(-1) * 2)
    assert graphs("substituted") == 0


def test_sparse_input_is_no_error(all_win: None) -> None:
    x = torch.eye(4).to_sparse()
    torch.testing.assert_close(
        compiled(lambda x: torch.sparse.sum(x, -1).to_dense())(x), torch.ones(4)
    )


def test_dynamic_shapes_are_inductors_and_counted(all_win: None) -> None:
    made = torch.compile(softmax_chain, backend="cudaforge", dynamic=True)
    x = torch.randn(8, 32)
    torch.testing.assert_close(made(x), softmax_chain(x))
    assert fallbacks() == {"dynamic_shape": 1}
    assert "dynamic=False" in str(cudaforge_backend.stats())


def test_our_own_failure_is_one_warning_and_inductors_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*args: object) -> None:
        raise RuntimeError("broken for this test")

    monkeypatch.setattr(plan, "analyse", broken)
    x = torch.randn(8, 61)  # no other test's graph
    with pytest.warns(cudaforge_backend.CudaForgeWarning, match="broken for this test"):
        torch.testing.assert_close(compiled(softmax_chain)(x), softmax_chain(x))
    assert fallbacks() == {"backend_failed": 1}
    assert graphs("plain") == 1


def test_a_pass_of_the_users_is_kept(all_win: None) -> None:
    from torch._inductor import config

    class Seen(CustomGraphPass):
        graphs = 0

        def __call__(self, graph: torch.fx.Graph) -> None:
            self.graphs += 1

        def uuid(self) -> str:
            return "seen"

    seen, x = Seen(), torch.randn(8, 62)
    with config.patch(post_grad_custom_pre_pass=seen):
        torch.testing.assert_close(compiled(softmax_chain)(x), softmax_chain(x))
    assert seen.graphs == 1
    assert fallbacks() == {"custom_graph_pass": 1}


def test_threads(all_win: None) -> None:
    made, inputs = compiled(softmax_chain), [torch.randn(8, 32) for _ in range(4)]
    made(inputs[0])
    results: dict[int, Tensor] = {}

    def work(i: int) -> None:
        for _ in range(20):
            results[i] = made(inputs[i])

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i, x in enumerate(inputs):
        torch.testing.assert_close(results[i], softmax_chain(x))


def test_fork(all_win: None) -> None:
    torch.set_num_threads(1)  # OpenMP's own threads do not survive a fork
    made, x = compiled(softmax_chain), torch.randn(8, 32)
    made(x)
    child = os.fork()
    if child == 0:
        os._exit(0 if torch.allclose(made(x), softmax_chain(x)) else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def test_record_fills_the_wanted_list_and_fallback_does_not(tmp_path: Any) -> None:
    x = torch.randn(8, 37)
    compiled(softmax_chain, on_miss="fallback", cache_dir=str(tmp_path / "a"))(x)
    assert backend._C.store().wanted() == []
    torch._dynamo.reset()
    compiled(softmax_chain, on_miss="record", cache_dir=str(tmp_path / "b"))(x)
    assert len(backend._C.store().wanted()) == 1


def test_a_plain_file_as_cache_is_left_untouched(tmp_path: Any) -> None:
    (tmp_path / "file").write_text("mine")
    x = torch.randn(8, 32)
    with pytest.warns(cudaforge_backend.CudaForgeWarning, match="cannot be used"):
        got = compiled(softmax_chain, cache_dir=str(tmp_path / "file"))(x)
    torch.testing.assert_close(got, softmax_chain(x))
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("broken", [False, True])
def test_warnings_that_are_errors_fail_no_program(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, broken: bool
) -> None:
    """Neither that the cache cannot be used, nor that compiling with kernels failed."""
    (tmp_path / "file").write_text("mine")
    if broken:
        monkeypatch.setattr(backend, "_C", None)
    x = torch.randn(8, 33)
    with warnings.catch_warnings():
        warnings.simplefilter("error", cudaforge_backend.CudaForgeWarning)
        got = compiled(softmax_chain, cache_dir=str(tmp_path / "file" / str(broken)))(x)
    torch.testing.assert_close(got, softmax_chain(x))
    assert cudaforge_backend.stats().graphs == {"plain": 1}


def test_disabled_touches_no_file(run_python: Any, tmp_path: Any) -> None:
    run_python(
        "import torch, cudaforge_backend\n"
        "f = torch.compile(lambda x: torch.softmax(x, -1), backend='cudaforge')\n"
        "f(torch.randn(4, 8))\n"
        "assert cudaforge_backend.stats().graphs == {'plain': 1}",
        CUDAFORGE_DISABLE="1",
        CUDAFORGE_CACHE_DIR=str(tmp_path / "cache"),
        ready=True,
    )
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("together", [True, False])
def test_first_calls_in_several_threads(run_python: RunPython, together: bool) -> None:
    start = "[t.start() for t in threads]; [t.join() for t in threads]"
    if not together:
        start = "[(t.start(), t.join()) for t in threads]"
    done = run_python(
        "import threading, cudaforge_backend, torch\n"
        "x = torch.randn(64, 48)\n"
        "f = torch.compile(lambda x: torch.softmax(x * 3, -1), backend='cudaforge')\n"
        "def call():\n"
        "    torch.testing.assert_close(f(x), torch.softmax(x * 3, -1))\n"
        "    print('right')\n"
        f"threads = [threading.Thread(target=call) for _ in range(3)]\n{start}\n",
        ready=True,
    )
    assert done.stdout.count("right") == 3


def test_settings_under_which_nothing_is_served() -> None:
    x = torch.randn(8, 63)
    options = {"inductor": {"cpp_wrapper": True}}
    made = torch.compile(softmax_chain, backend="cudaforge", options=options)
    torch.testing.assert_close(made(x), softmax_chain(x))
    assert fallbacks() == {"cpp_wrapper": 1}
    torch._dynamo.reset()
    torch.set_default_dtype(torch.float64)
    try:
        torch.testing.assert_close(compiled(softmax_chain)(x), softmax_chain(x))
    finally:
        torch.set_default_dtype(torch.float32)
    assert fallbacks() == {"cpp_wrapper": 1, "default_dtype": 1}


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_runs(mode: str) -> None:
    x = torch.randn(8, 64)
    made = torch.compile(softmax_chain, backend="cudaforge", mode=mode)
    torch.testing.assert_close(made(x), softmax_chain(x))
    assert fallbacks() == {}
