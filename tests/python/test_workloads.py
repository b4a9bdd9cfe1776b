"""The benchmark of workloads: what it reads, what it makes of results, one run on a CPU."""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import accuracy  # noqa: E402
import product_shapes  # noqa: E402
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
        "gain": (gain - 0.1, gain, gain + 0.1), "control": (0.99, 1.0, 1.01), "forge_s": 3.0,
        "regions": [{"verdict": "winner"}], "graphs": {"substituted": 1},
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


def test_odd_products_are_workloads() -> None:
    drawn = [product_shapes.odd(n, random.Random(n)) for n in range(8)]
    assert drawn == [product_shapes.odd(n, random.Random(n)) for n in range(8)]
    assert len({json.dumps(one["nodes"]) for one in drawn}) > 4
    for workload in drawn:
        args = workload["args"]
        assert max(math.prod(arg["shape"]) for arg in args) <= product_shapes.MOST_NUMBERS
        small = [{**arg, "shape": [1 + n // 500 for n in arg["shape"]]} for arg in args]
        for arg, made in zip(args, small, strict=True):
            if "stride" in arg:
                rows, columns = made["shape"][-2:]
                leading = [rows * columns] * (len(made["shape"]) - 2)
                made["stride"] = [*leading, 1, rows]
        program = programs.make_program({**workload, "args": small}, "cpu", 1, "")
        (out,), (exact,) = program(*program.inputs), program.exact()
        torch.testing.assert_close(out.double(), exact, rtol=1e-3, atol=1e-3)


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


def cells(row: str) -> dict[str, str]:
    """The row of a group of scores.summary, whose name is one word, by column."""
    names = ("group", "number", "lost", "gain", "tuned", "floor", "control", "least", "below")
    return dict(zip(names, row.split(), strict=False))


def test_a_workload_without_a_result_counts_as_one() -> None:
    timed = [result(4.0), result(0.5, kind="memory", graphs={"eager": 1})]
    lost = [{"id": "lost", "failed": "exit 1"}, {"id": "odd", "refused": "shape"}]
    _, everything, product, memory, idle, missing = scores.summary([*timed, *lost])
    assert cells(everything)["number"] == "4" and cells(everything)["lost"] == "2"
    assert float(cells(everything)["gain"]) == pytest.approx(2**0.25, abs=1e-3)
    assert cells(product)["gain"] == "4.000" and cells(product)["lost"] == "0"
    assert cells(memory)["below"] == "1" and idle.split()[2] == "1" and "0.500" in idle
    assert missing.startswith("2 of 4") and "lost (failed), odd (refused)" in missing
    assert math.isnan(scores.geometric_mean([]))


def test_max_autotune_has_its_own_mean() -> None:
    timed = [result(2.0, over_tuned=(3.9, 4.0, 4.1)), {"id": "lost", "failed": "exit 1"}]
    everything = next(row for row in scores.summary(timed) if row.startswith("all"))
    assert cells(everything)["tuned"] == "2.000"
    assert cells(everything)["gain"] == f"{2**0.5:.3f}"


def test_means_by_file_where_there_are_several() -> None:
    one, other = result(2.0, file="one.jsonl"), result(3.0, file="other.jsonl")
    lost = {"id": "lost", "file": "other.jsonl", "failed": "exit 1"}
    rows = {cells(row)["group"]: cells(row) for row in scores.summary([one, other, lost])}
    assert rows["one.jsonl"]["gain"] == "2.000"
    assert (rows["other.jsonl"]["number"], rows["other.jsonl"]["gain"]) == ("2", f"{3**0.5:.3f}")
    assert "one.jsonl" not in {cells(row)["group"] for row in scores.summary([one])}


def test_workloads_without_times_are_in_no_mean() -> None:
    untimed = {"id": "u", "regions": [], "judged": True, "forge_s": 1.0}
    _, everything, *_, last = scores.summary([result(2.0), untimed])
    assert cells(everything)["number"] == "1" and cells(everything)["gain"] == "2.000"
    assert last.startswith("1 of 2")


def test_two_workloads_of_one_name_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "w.jsonl"
    file.write_text(json.dumps(TINY) + "\n")
    (workload,) = programs.read_workloads([str(file)])
    assert workload["file"] == "w.jsonl"
    with pytest.raises(ValueError, match="tiny-softmax"):
        programs.read_workloads([str(file), str(file)])


# ---- Errors ----


def of_calls(shapes: dict[str, list[int]], *nodes: dict[str, Any]) -> programs.Program:
    """A program whose inputs are random; its output is what the last call gives."""
    args = [
        {"name": name, "kind": "input", "shape": shape, "dtype": "float32", "init": {"normal": 1}}
        for name, shape in shapes.items()
    ]
    outputs = [{"ref": nodes[-1]["name"]}]
    workload = {"id": "w", "args": args, "nodes": list(nodes), "outputs": outputs}
    return programs.Program(workload, "cpu", 1)


def call(op: str, *args: Any) -> dict[str, Any]:
    return {"name": "out", "op": f"aten.{op}", "args": list(args)}


A, B = {"ref": "a"}, {"ref": "b"}


@pytest.mark.parametrize(
    ("program", "by_rows"),
    [
        (of_calls({"a": [64, 9]}, call("softmax.int", A, -1)), True),
        (of_calls({"a": [64, 64], "b": [64, 64]}, call("mm.default", A, B)), True),
        (of_calls({"a": [64, 9], "b": [64, 9]}, call("add.Tensor", A, B)), True),
        (of_calls({"a": [64, 9]}, call("softmax.int", A, 0)), False),
        (of_calls({"a": [64, 9]}, call("argsort.default", A, 0)), False),
        (of_calls({"a": [64, 9]}, call("mean.default", A)), False),
        (of_calls({"a": [64, 10]}, call("view.default", A, [64, 2, 5])), False),
    ],
    ids=["softmax", "square-mm", "add", "over-rows", "indices", "scalar", "fixed-shape"],
)
def test_large_work_is_compared_on_rows_that_do_not_depend_on_each_other(
    program: programs.Program, by_rows: bool
) -> None:
    eager = program(*program.inputs)
    off = accuracy.off_from_exact(program, eager, [eager], large=300)
    assert off is not None and (off.rows is not None) == by_rows and off.worst[0] < 1e-5
    if off.rows:
        assert 2 <= off.rows[0] < off.rows[1] == 64
    small = accuracy.off_from_exact(program, eager, [eager])
    assert small is not None and small.rows is None


def test_errors_in_the_first_and_last_row_and_of_what_is_not_finite() -> None:
    program = of_calls({"a": [64, 9]}, call("softmax.int", A, -1))
    eager = program(*program.inputs)
    answers = [[eager[0].clone()] for _ in range(3)]
    answers[0][0][0, 0] += 1.0
    answers[1][0][63, 8] = math.nan
    answers[2][0][63, 8] = math.inf
    for large in (300, accuracy.LARGE):
        off = accuracy.off_from_exact(program, eager, answers, large)
        assert off is not None and off.worst[0] > 0.5
        assert off.worst[1:] == [math.inf, math.inf]


# ---- The command ----


def test_rivals_are_checked() -> None:
    assert workloads.rivals("inductor,max-autotune") == ("inductor", "max-autotune")
    for wrong in ("max-autotune", "eager,triton"):
        with pytest.raises(Exception, match="takes eager, inductor, max-autotune"):
            workloads.rivals(wrong)


def results_of(folder: Path, *options: str) -> tuple[list[dict[str, Any]], str]:
    """Runs two workloads. "other" has a result already. Returns all results and the output."""
    file, out = folder / "w.jsonl", folder / "results.jsonl"
    file.write_text(json.dumps(TINY) + "\n" + json.dumps(TINY | {"id": "other"}) + "\n")
    had = result(2.0, id="other", judged=True, off=None, control=[1, 1, 1])
    out.write_text(json.dumps(had) + "\n")
    command = [sys.executable, str(BENCHMARKS / "workloads.py"), str(file), "--device", "cpu"]
    command += ["--budget", "3", "--cache-dir", str(folder / "cache"), "--json", str(out), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in out.read_text().splitlines()], done.stdout


def test_a_run_is_resumed(tmp_path: Path) -> None:
    (other, tiny), printed = results_of(tmp_path)
    assert (other["id"], tiny["id"]) == ("other", "tiny-softmax")
    assert set(tiny["ms"]) == {"eager", "inductor", "again", "cudaforge"}
    assert tiny["kind"] == "product" and tiny["floor_ms"] is None and len(tiny["off"]) == 3
    assert max(tiny["off"]) < 1e-5 and tiny["off_rows"] is None and "geometric means" in printed


def test_results_of_other_runs_are_not_this_runs(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    made = [{"id": "same", "run": ["bf16"]}, {"id": "other", "run": ["fp32"]}, {"id": "old"}]
    file.write_text("".join(json.dumps(one) + "\n" for one in made))
    assert [r["id"] for r in scores.results_in(file, ["bf16"])] == ["same", "old"]
    assert scores.results_in(tmp_path / "none", ["bf16"]) == scores.results_in(None, []) == []


def test_nothing_begins_after_the_deadline(tmp_path: Path) -> None:
    found, printed = results_of(tmp_path, "--deadline", "0")
    assert [r["id"] for r in found] == ["other"]
    assert "geometric means" in printed and "1 of 2 were not begun" in printed
