"""The benchmark of workloads: what it reads, what it makes of results, one run on a CPU."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import programs  # noqa: E402
import scores  # noqa: E402
import workloads  # noqa: E402

TINY = {
    "id": "tiny-softmax",
    "args": [
        {"name": "x", "kind": "input", "shape": [8, 31], "dtype": "float32", "init": {"normal": 1}},
        {"name": "w", "kind": "parameter", "shape": [31, 16], "dtype": "float32",
         "init": {"uniform": [0, 1]}},
    ],
    "nodes": [
        {"name": "y", "op": "aten.mm.default", "args": [{"ref": "x"}, {"ref": "w"}]},
        {"name": "z", "op": "aten.softmax.int", "args": [{"ref": "y"}, -1]},
    ],
    "outputs": [{"ref": "z"}],
}  # fmt: skip


def result(gain: float, **more: Any) -> dict[str, Any]:
    return {
        "id": "w", "ms": {"eager": gain, "inductor": 2.0 * gain, "cudaforge": 1.0}, "best": "eager",
        "gain": (gain - 0.1, gain, gain + 0.1), "regions": [{"verdict": "winner"}], "forge_s": 3.0,
        "kind": "product", "floor_ms": 0.5, "work": {"bytes": 8, "flops": {"product": 16}}, **more,
    }  # fmt: skip


@pytest.mark.parametrize(("dtype", "made"), [("", torch.float32), ("bfloat16", torch.bfloat16)])
def test_a_workload_becomes_a_model(dtype: str, made: torch.dtype) -> None:
    program = programs.make_program(TINY, "cpu", 2, dtype)
    (x,) = program.inputs
    assert (x.shape, x.dtype) == ((4, 31), made)
    (out,), (exact,) = program(x), program.exact()
    assert (out.dtype, exact.dtype) == (made, torch.float64)
    torch.testing.assert_close(out.double(), exact, rtol=0.05, atol=0.01)


def test_a_factory_is_a_workload(tmp_path: Path) -> None:
    script = tmp_path / "model.py"
    script.write_text(
        "import torch\ndef make():\n    return torch.nn.Linear(4, 2), (torch.ones(3, 4),)\n"
    )
    (workload,) = programs.read_workloads([f"{script}:make"])
    program = programs.make_program(workload, "cpu", 1, "bfloat16")
    (out,), (exact,) = program(*program.inputs), program.exact()
    assert (out.shape, out.dtype, exact.dtype) == ((3, 2), torch.bfloat16, torch.float64)


def test_the_work_of_a_product() -> None:
    program = programs.make_program(TINY, "cpu", 1, "")
    tensors = [*program.inputs, *program.buffers()]
    work = scores.work_of(lambda: program(*program.inputs), tensors)
    assert work == {"bytes": 4 * (8 * 31 + 31 * 16 + 8 * 16), "flops": {"product": 2 * 8 * 31 * 16}}
    assert scores.kind_of(work) == "product" and scores.kind_of({"flops": {}}) == "memory"


def test_the_floor_is_the_slower_of_memory_and_operations() -> None:
    facts = {"bandwidth_gb_s": 1.0, "fp32_tflops": 1.0, "fp16_tensor_tflops": 6.0}
    work = {"bytes": 1e9, "flops": {"product": 8e12}}
    assert scores.floor_ms(work, torch.float32, facts) == pytest.approx(4000.0)  # 6 / 3
    assert scores.floor_ms(work, torch.float16, facts) == pytest.approx(8e3 / 6)
    assert scores.floor_ms({**work, "flops": {}}, torch.float32, facts) == pytest.approx(1000.0)
    assert scores.floor_ms(work, torch.float32, {}) is None


def test_results_without_times_are_named_and_in_no_mean() -> None:
    found = [result(2.0), result(0.5, kind="memory"), {"id": "lost", "failed": "exit 1"}]
    _, everything, product, memory, missing = scores.summary(found)
    assert everything.split()[:3] == ["all", "2", "1.000"] and product.split()[2] == "2.000"
    assert memory.split()[6] == "1"  # below 0.98
    assert missing.startswith("1 of 3 have no times") and "lost (failed)" in missing
    assert math.isnan(scores.geometric_mean([]))


def test_rivals_are_checked() -> None:
    assert workloads.rivals("inductor,max-autotune") == ("inductor", "max-autotune")
    for wrong in ("max-autotune", "eager,triton"):
        with pytest.raises(Exception, match="takes eager, inductor, max-autotune"):
            workloads.rivals(wrong)


def test_a_run_is_resumed(tmp_path: Path) -> None:
    file, out = tmp_path / "w.jsonl", tmp_path / "results.jsonl"
    file.write_text(json.dumps(TINY) + "\n" + json.dumps(TINY | {"id": "other"}) + "\n")
    out.write_text(json.dumps(result(2.0, id="other", judged=True, off=None, control=[1, 1, 1])))
    with out.open("a") as more:
        more.write("\n")
    command = [sys.executable, str(BENCHMARKS / "workloads.py"), str(file), "--device", "cpu"]
    command += ["--budget", "3", "--cache-dir", str(tmp_path / "cache"), "--json", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    other, tiny = map(json.loads, out.read_text().splitlines())
    assert (other["id"], tiny["id"]) == ("other", "tiny-softmax")
    assert set(tiny["ms"]) == {"eager", "inductor", "again", "cudaforge"}
    assert tiny["kind"] == "product" and tiny["floor_ms"] is None and len(tiny["off"]) == 3
    assert max(tiny["off"]) < 1e-5 and "geometric means" in done.stdout
