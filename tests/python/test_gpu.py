"""The whole way on a GPU: forging, training, CUDA graphs, streams, threads, layouts."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cudaforge_backend
import pytest
import torch
from cudaforge_backend._native import _C
from forged import compiled
from torch import Tensor, nn
from torch.nn import functional as F

pytestmark = pytest.mark.gpu

WIDTH = 256


class Mixer(nn.Module):
    """LayerNorm, a matrix product, a softmax and a cumsum."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        h = F.gelu(self.linear(self.norm(x)))
        return torch.cumsum(F.softmax(h * 2, -1), -1) + x


def softmax_chain(x: Tensor) -> Tensor:
    return torch.softmax(x * 2, -1)


def tolerance(dtype: torch.dtype) -> dict[str, float]:
    return {"rtol": 2e-2, "atol": 2e-2} if dtype.itemsize == 2 else {"rtol": 1e-4, "atol": 1e-4}


def expect_all_hits() -> None:
    stats = cudaforge_backend.stats()
    assert stats.hits > 0
    assert sum(region.unserved for region in stats.regions) == 0
    failed = {"launch_error", "quarantined", "backend_failed", "forge_failed"}
    assert not failed & set(stats.fallbacks)


def test_the_kernels_that_come_with_it_are_proven_here(tmp_path: Path) -> None:
    packs = Path(__file__).parents[2] / "cache" / "packs"
    pack = packs / _C.arch("cuda").removeprefix("cuda:")
    if not pack.is_dir():
        pytest.skip(f"no kernels come along for {pack.name}")
    _C.use_cache(str(tmp_path))
    summary = _C.adopt_pack(str(pack))
    assert summary["problems"] == []
    assert summary["imported"] == len(list(pack.iterdir()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_inference(forged: Path, dtype: torch.dtype) -> None:
    model = Mixer().to("cuda", dtype)
    made = compiled(model, forged)
    with torch.no_grad():
        for seed in range(3):
            torch.manual_seed(seed)
            x = torch.randn(64, WIDTH, device="cuda", dtype=dtype)
            torch.testing.assert_close(made(x), model(x), **tolerance(dtype))
    expect_all_hits()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_training_step(forged: Path, dtype: torch.dtype) -> None:
    model = Mixer().to("cuda", dtype)
    made = compiled(model, forged)
    x = torch.randn(64, WIDTH, device="cuda", dtype=dtype, requires_grad=True)
    wanted = torch.autograd.grad(model(x).float().mean(), [x, *model.parameters()])
    got = torch.autograd.grad(made(x).float().mean(), [x, *model.parameters()])
    torch.testing.assert_close(got, wanted, **tolerance(dtype))
    expect_all_hits()


def test_reduce_overhead_replays_with_new_inputs(forged: Path) -> None:
    model = Mixer().cuda()
    # torch.compile takes mode or options, not both: the mode's own patch through the options.
    made = compiled(model, forged, inductor={"triton.cudagraphs": True})
    with torch.no_grad():
        for seed in range(6):  # warm-up, recording, replays
            torch.manual_seed(seed)
            x = torch.randn(64, WIDTH, device="cuda")
            torch.compiler.cudagraph_mark_step_begin()
            torch.testing.assert_close(made(x).clone(), model(x), **tolerance(torch.float32))
    expect_all_hits()


def test_mode_reduce_overhead(forged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """mode= by its own name: what is forged before is found in the environment's cache."""
    from cudaforge_backend.integration import backend

    x = torch.randn(64, WIDTH, device="cuda")
    compiled(softmax_chain, forged)(x)
    torch._dynamo.reset()
    cudaforge_backend.reset_stats()
    monkeypatch.setattr(backend, "open_cache", lambda folder: None)  # stays with `forged`
    made = torch.compile(softmax_chain, backend="cudaforge", mode="reduce-overhead")
    for seed in range(5):
        torch.manual_seed(seed)
        x = torch.randn(64, WIDTH, device="cuda")
        torch.compiler.cudagraph_mark_step_begin()
        torch.testing.assert_close(made(x).clone(), softmax_chain(x))
    expect_all_hits()


def test_side_stream(forged: Path) -> None:
    made = compiled(softmax_chain, forged)
    x = torch.randn(64, WIDTH, device="cuda")
    made(x)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        y = x
        for _ in range(20):  # each call depends on the one before: any other stream would race
            y = made(y * 3)
    torch.cuda.current_stream().wait_stream(stream)
    expected = x
    for _ in range(20):
        expected = softmax_chain(expected * 3)
    torch.testing.assert_close(y, expected)
    expect_all_hits()


_LONG = 2_000_000_000  # GPU cycles: about a second


def _never_waits(work: Callable[[], Any]) -> Any:
    """work(), warmed up, while the GPU is busy for long: it may not wait for it."""
    for _ in range(3):
        work()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")  # any synchronisation by PyTorch raises
    try:
        torch.cuda._sleep(_LONG)
        busy = torch.cuda.Event()
        busy.record()
        result = work()
        waited = busy.query()  # one by our own calls of the driver is seen here
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert not waited
    return result


def test_a_hit_does_not_synchronise(forged: Path) -> None:
    from cudaforge_backend._native import _C

    made, x = compiled(softmax_chain, forged), torch.randn(64, WIDTH, device="cuda")
    made(x)
    torch.testing.assert_close(_never_waits(lambda: made(x)), softmax_chain(x))
    (region,) = cudaforge_backend.explain(softmax_chain, x, cache_dir=str(forged)).regions
    text = _C.Signature.parse(json.dumps(region.signature)).normalized().text
    call = torch.ops.cudaforge.region_v1.default
    region_id = _C.region_id(region.key)
    (alone,) = _never_waits(lambda: call([x], region_id, text))
    torch.testing.assert_close(alone, softmax_chain(x))
    assert cudaforge_backend.stats().hits >= 9
    expect_all_hits()


def test_a_training_step_of_hits_does_not_synchronise(forged: Path) -> None:
    model = Mixer().cuda()
    made = compiled(model, forged)
    x = torch.randn(64, WIDTH, device="cuda", requires_grad=True)
    leaves = [x, *model.parameters()]
    got = _never_waits(lambda: torch.autograd.grad(made(x).mean(), leaves))
    wanted = torch.autograd.grad(model(x).mean(), leaves)
    torch.testing.assert_close(got, wanted, **tolerance(torch.float32))
    expect_all_hits()


def _capture(work: Callable[[], Any]) -> tuple[torch.cuda.CUDAGraph, Any]:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = work()
    return graph, result


def test_capture_by_hand_of_a_warm_region(forged: Path) -> None:
    made, x = compiled(softmax_chain, forged), torch.randn(64, WIDTH, device="cuda")
    made(x)
    graph, y = _capture(lambda: made(x))
    for seed in range(3):
        torch.manual_seed(seed)
        x.copy_(torch.randn_like(x))
        graph.replay()
        torch.testing.assert_close(y, softmax_chain(x))
    expect_all_hits()


def test_capture_by_hand_of_a_cold_region(forged: Path) -> None:
    """A region that this process has not seen: ATen is recorded, nothing is loaded or compiled."""
    from cudaforge_backend._native import _C

    x = torch.randn(32, WIDTH, device="cuda")
    report = cudaforge_backend.explain(softmax_chain, x, cache_dir=str(forged))
    (region,) = report.regions
    text = _C.Signature.parse(json.dumps(region.signature)).normalized().text
    call = torch.ops.cudaforge.region_v1.default
    region_id = _C.region_id(region.key)
    torch.softmax(x, -1)  # cuda libraries are up
    torch.cuda.synchronize()
    graph, outputs = _capture(lambda: call([x], region_id, text))
    for seed in range(2):
        torch.manual_seed(seed)
        x.copy_(torch.randn_like(x))
        graph.replay()
        torch.testing.assert_close(outputs[0], softmax_chain(x))
    stats = cudaforge_backend.stats()
    assert (sum(r.unserved for r in stats.regions), stats.hits) == (1, 0)


def test_two_threads(forged: Path) -> None:
    model = Mixer().cuda()
    made = compiled(model, forged)
    inputs = [torch.randn(64, WIDTH, device="cuda") for _ in range(2)]
    wrong: list[str] = []
    with torch.no_grad():
        made(inputs[0])

    def work(x: Tensor) -> None:
        try:
            with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream()):
                for _ in range(20):
                    torch.testing.assert_close(made(x), model(x), **tolerance(torch.float32))
        except Exception as error:
            wrong.append(str(error))

    torch.cuda.synchronize()
    threads = [threading.Thread(target=work, args=(x,)) for x in inputs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong[0]
    expect_all_hits()


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.randn(WIDTH, 64, device="cuda").t(),
        lambda: torch.randn(64, 2 * WIDTH, device="cuda")[:, ::2],
        lambda: torch.randn(65, WIDTH + 1, device="cuda")[1:, 1:],
        lambda: torch.randn(1, WIDTH, device="cuda").expand(64, WIDTH),
        lambda: torch.randn(2, 8, 4, 8, device="cuda").to(memory_format=torch.channels_last),
        lambda: torch.randn(0, WIDTH, device="cuda"),
    ],
    ids=["transposed", "every_second", "offset", "expanded", "channels_last", "empty"],
)
def test_layouts(forged: Path, make: Callable[[], Tensor]) -> None:
    made, x = compiled(softmax_chain, forged), make()
    got, expected = made(x), softmax_chain(x)
    torch.testing.assert_close(got, expected)
    assert got.stride() == expected.stride()


def test_special_values(forged: Path) -> None:
    nan, inf = float("nan"), float("inf")
    x = torch.randn(64, WIDTH, device="cuda")
    x[0, 3], x[1, 5], x[2, 5] = nan, inf, -inf
    x[3], x[4], x[5] = -inf, 1e-40, 0.0
    got, expected = compiled(softmax_chain, forged)(x), softmax_chain(x)
    assert torch.equal(got.isnan(), expected.isnan())
    torch.testing.assert_close(got, expected, equal_nan=True)
    expect_all_hits()


def product(a: Tensor, b: Tensor) -> Tensor:
    return a @ b


# 2^61 and more, and less than 2^-100, are computed in float32.
@pytest.mark.parametrize("exponent", [60, 0, -46, -70, -99, -101])
def test_tiny_and_huge_numbers_in_products(forged: Path, exponent: int) -> None:
    if not _C.arch("cuda").endswith("sm_90a"):
        pytest.skip("products of float32 are made for sm_90a alone")
    torch.manual_seed(0)
    a, b = torch.randn(512, 512, device="cuda"), torch.randn(512, 512, device="cuda")
    a *= 2.0**exponent
    expected = a.double() @ b.double()
    got = compiled(product, forged)(a, b)
    worst = (got - expected).abs().max() / expected.square().mean().sqrt()
    assert worst < 1e-5, worst
    expect_all_hits()


def test_two_devices(forged: Path) -> None:
    def function(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return softmax_chain(x), y.sum(-1)

    x, y = torch.randn(64, WIDTH, device="cuda"), torch.randn(4, 8)
    first, second = compiled(function, forged)(x, y)
    torch.testing.assert_close(first, softmax_chain(x))
    torch.testing.assert_close(second, y.sum(-1))
    assert cudaforge_backend.stats().fallbacks == {"mixed_devices": 1}


# An NVRTC that supports only sm_50, with all functions that are called.
_OLD_NVRTC = """
extern "C" {
int nvrtcVersion(int* major, int* minor) { *major = 12; *minor = 0; return 0; }
int nvrtcGetNumSupportedArchs(int* count) { *count = 1; return 0; }
int nvrtcGetSupportedArchs(int* archs) { *archs = 50; return 0; }
int nvrtcCreateProgram() { return 1; }
int nvrtcDestroyProgram() { return 1; }
int nvrtcCompileProgram() { return 1; }
int nvrtcGetProgramLogSize() { return 1; }
int nvrtcGetProgramLog() { return 1; }
int nvrtcGetPTXSize() { return 1; }
int nvrtcGetPTX() { return 1; }
int nvrtcGetCUBINSize() { return 1; }
int nvrtcGetCUBIN() { return 1; }
const char* nvrtcGetErrorString() { return ""; }
}
"""


def test_an_architecture_that_nvrtc_does_not_know(run_python: Any, tmp_path: Path) -> None:
    source, library = tmp_path / "nvrtc.cc", tmp_path / "lib" / "libnvrtc.so.13"
    source.write_text(_OLD_NVRTC)
    library.parent.mkdir()
    subprocess.run(["c++", "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
    done = run_python(
        "import json, os, warnings, torch, cudaforge_backend\n"
        "x = torch.randn(8192, 4096, device='cuda')\n"
        "o = {'on_miss': 'blocking', 'cache_dir': os.environ['FOLDER']}\n"
        "f = torch.compile(lambda x: torch.softmax(x, -1), backend='cudaforge', options=o)\n"
        "with warnings.catch_warnings(record=True) as seen:\n"
        "    warnings.simplefilter('always')\n"
        "    torch.testing.assert_close(f(x), torch.softmax(x, -1))\n"
        "ours = [str(w.message) for w in seen if 'CudaForge' in w.category.__name__]\n"
        "s = cudaforge_backend.stats()\n"
        "print(json.dumps([ours, s.fallbacks, s.negative + s.forged]))",
        FOLDER=str(tmp_path / "cache"),
        CUDAFORGE_CUDA_PATH=str(tmp_path),
    )
    ours, fallbacks, decided = json.loads(done.stdout.splitlines()[-1])
    assert len(ours) == 1 and "NVRTC 12.0 does not support sm_" in ours[0], ours
    assert (fallbacks, decided) == ({"forge_failed": 1}, 0)


def test_no_nvrtc(run_python: Any, tmp_path: Path) -> None:
    """With an NVRTC that has no functions, PyTorch's result comes, with one warning."""
    library = tmp_path / "lib" / "libnvrtc.so.13"
    library.parent.mkdir()
    empty = ["c++", "-shared", "-fPIC", "-x", "c++", "/dev/null", "-o", str(library)]
    subprocess.run(empty, check=True)
    done = run_python(
        "import json, os, warnings, torch, cudaforge_backend\n"
        "x = torch.randn(8192, 4096, device='cuda')\n"
        "o = {'on_miss': 'blocking', 'cache_dir': os.environ['FOLDER']}\n"
        "f = torch.compile(lambda x: torch.softmax(x, -1), backend='cudaforge', options=o)\n"
        "with warnings.catch_warnings(record=True) as seen:\n"
        "    warnings.simplefilter('always')\n"
        "    torch.testing.assert_close(f(x), torch.softmax(x, -1))\n"
        "ours = [str(w.message) for w in seen if 'CudaForge' in w.category.__name__]\n"
        "s = cudaforge_backend.stats()\n"
        "print(json.dumps([ours, s.fallbacks, s.negative, s.forged]))",
        FOLDER=str(tmp_path / "cache"),
        CUDAFORGE_CUDA_PATH=str(tmp_path),
    )
    ours, fallbacks, negative, forged = json.loads(done.stdout.splitlines()[-1])
    assert len(ours) == 1 and "has no nvrtcVersion" in ours[0], ours
    assert fallbacks == {"forge_failed": 1}
    assert (negative, forged) == (0, 0)
