"""The quickstart, on one small model: it ends well, and its JSON has what it promises."""

from __future__ import annotations

import importlib
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from coders import RIGHT
from command import Output, as_json
from conftest import RunPython
from cudaforge_backend import RegionFound, Started

ROOT = Path(__file__).resolve().parents[2]

MODEL_FIELDS = {"name", "phase", "eager_ms", "inductor_ms", "cudaforge_ms", "error", "error_limit"}
REGION_FIELDS = {"key", "ops", "shapes", "verdict", "aten_us", "inductor_us", "winner_us"}
PROCESS_FIELDS = {"hits", "misses", "forged", "first_result_s"}


def quickstart(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "examples" / "quickstart.py"), *arguments],
        env=os.environ | {"CUDAFORGE_ON_MISS": ""},
        capture_output=True,
        text=True,
        timeout=900,
    )


def tables(text: str, column: str) -> list[list[str]]:
    """The lines of each table whose first column has this name."""
    found = []
    lines = text.splitlines()
    for i, line in enumerate(lines):
        if line.split()[:1] == [column] and line.startswith("  "):
            rows = itertools.takewhile(lambda row: row.startswith("  "), lines[i + 1 :])
            found.append([row for row in rows if "the machine was busy" not in row])
    return found


def ratio(interval: Sequence[float] | None) -> str:
    if interval is None:
        return " - "
    low, median, high = interval
    return f" {median:.2f} [{low:.2f}, {high:.2f}] "


def expect_tables(text: str, data: dict[str, Any]) -> None:
    """What is printed are the numbers of the JSON, each in its own column."""
    shown = list(itertools.chain(*tables(text, "ATen")))
    for line, region in zip(shown, data["regions"], strict=True):
        columns = [region[f"{name}_us"] for name in ("aten", "inductor", "winner")]
        assert line.split()[:3] == ["-" if us is None else f"{us:.1f}" for us in columns]
        assert ratio(region["speedup"]) in line
        assert f" {region['verdict']}: {region['ops']}(" in line
    shown = tables(text, "eager")[-1]
    for line, model in zip(shown, data["models"], strict=True):
        times = [model[f"{name}_ms"] for name in ("eager", "inductor", "cudaforge")]
        assert line.split()[:5] == [model["name"], model["phase"], *(f"{ms:.3f}" for ms in times)]
        over, control = ratio(model["speedup_over_inductor"]), ratio(model["control"])
        assert 0 < line.index(over) <= line.rindex(control)
        assert line.split("]")[2].split()[0] == f"{model['error']:.2e}"
    (shown,) = tables(text, "hits")
    for line, name in zip(shown, ("first", "second"), strict=False):
        process = data[f"{name}_process"]
        known = process["regions_with_winner"] + process["regions_known_without"]
        counts = [process["hits"], known, process["misses"], process["forged"]]
        assert line.split()[:6] == [name, "process", *map(str, counts)]


def test_the_columns_of_the_tables(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    report = importlib.import_module("report")
    region = {"key": "a", "ops": "sum", "shapes": ["float32[8]"], "verdict": "winner"}
    region |= {"aten_us": 8.0, "inductor_us": 6.0, "winner_us": 2.0, "speedup": [2.5, 3.0, 3.5]}
    model = {"name": "gpt", "phase": "train", "eager_ms": 5.0, "inductor_ms": 4.0}
    model |= {"cudaforge_ms": 3.0, "speedup_over_inductor": [1.2, 1.3, 1.4]}
    model |= {"control": [0.9, 1.0, 1.1], "error": 1e-6, "error_limit": 2e-6, "winners": True}
    report.print_regions([region | {"origin": "forged", "served": True}])
    report.print_models([model, model | {"name": "mixer", "control": [0.95, 0.98, 0.996]}])
    regions, line, models, second, _, told = capsys.readouterr().out.splitlines()
    assert regions.split()[:4] == ["ATen", "Inductor", "kernel", "speed-up"]
    assert (
        line.split() == "8.0 6.0 2.0 3.00 [2.50, 3.50] forged yes winner: sum(float32[8])".split()
    )
    assert models.split()[:6] == ["eager", "Inductor", "CudaForge", "over", "Inductor", "A/A"]
    words = "gpt train 5.000 4.000 3.000 1.30 [1.20, 1.40] 1.00 [0.90, 1.10] 1.00e-06 (2.00e-06)"
    assert second.split() == words.split()
    assert "busy" in told and "gpt train" in told and "mixer" not in told
    bounds = [(0.95, 1.05), (1.004, 1.1), (0.9, 0.99), (1.01, 1.05), (0.94, 1.05)]
    assert [report.quiet(low, 1.0, high) for low, high in bounds] == [True] * 2 + [False] * 3


def test_quickstart(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    done = quickstart(
        *("--device", "cpu", "--models", "mixer", "--phases", "inference"),
        *("--region-budget", "1", "--cache-dir", str(tmp_path / "cache"), "--json", str(out)),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    data = json.loads(out.read_text())
    (model,) = data["models"]
    assert set(model) >= MODEL_FIELDS and (model["name"], model["phase"]) == ("mixer", "inference")
    assert 0 < model["error"] <= model["error_limit"]
    assert min(model[f"{name}_ms"] for name in ("eager", "inductor", "cudaforge")) > 0
    assert data["machine"]["device"] == "cpu" and data["machine"]["torch"] == torch.__version__
    assert len(data["regions"]) >= 2
    for region in data["regions"]:
        assert set(region) >= REGION_FIELDS | {"speedup", "origin", "served"}
        assert region["origin"] == "forged"
        if region["verdict"] == "winner":
            low, median, high = region["speedup"]
            assert 1.03 < low <= median <= high
    first, second = data["first_process"], data["second_process"]
    assert first["forged"] + first["negative"] == len(data["regions"])
    assert first["misses"] >= len(data["regions"])  # some by which little can be gained
    assert (second["hits"] > 0) == any(region["served"] for region in data["regions"])
    assert set(first) >= PROCESS_FIELDS and set(second) >= PROCESS_FIELDS
    assert (second["misses"], second["forged"]) == (0, 0)
    assert second["regions_with_winner"] == sum(
        region["verdict"] == "winner" for region in data["regions"]
    )
    expect_tables(done.stdout, data)
    assert "first process" in done.stdout and "second process" in done.stdout


def small_quickstart(
    run_python: RunPython, folder: Path, races: str, code: int = 0
) -> tuple[str, dict[str, Any]]:
    """The quickstart of one small model, its races `won` or `disturbed`: what it printed, and its
    JSON. It must end with `code`."""
    out = folder / "out.json"
    arguments = ["--device", "cpu", "--models", "mixer", "--phases", "inference"]
    arguments += ["--region-budget", "30", "--cache-dir", str(folder / "cache")]
    arguments += ["--json", str(out)]
    script = f"import sys; sys.argv = {['', *arguments]}\nimport small_quickstart"
    done = run_python(script, check=False, ready=True, RACES=races, CUDAFORGE_ON_MISS="")
    assert done.returncode == code, done.stdout + done.stderr
    data = json.loads(out.read_text())
    expect_tables(done.stdout, data)
    return done.stdout, data


def test_the_second_process_uses_results_from_a_busy_machine(
    run_python: RunPython, tmp_path: Path
) -> None:
    text, data = small_quickstart(run_python, tmp_path, "disturbed")
    assert {r["verdict"] for r in data["regions"]} == {"the machine was too busy for a race"}
    assert all(region["doubtful"] for region in data["regions"])
    second = data["second_process"]
    assert second["misses"] == second["forged"] == second["negative"] == 0
    assert "no winner: the machine was too busy for a race" in text
    assert "WRONG" not in text


def test_quickstart_serves_the_winners_of_the_first_process(
    run_python: RunPython, tmp_path: Path
) -> None:
    _, data = small_quickstart(run_python, tmp_path, "won")
    for region in data["regions"]:  # races between 0.1 ms and nothing
        assert region["speedup"][1] > 3 and region["aten_us"] > 3 * region["winner_us"]
    assert all(region["verdict"] == "winner" and region["served"] for region in data["regions"])
    first, second = data["first_process"], data["second_process"]
    assert first["forged"] == second["regions_with_winner"] == len(data["regions"]) >= 2
    assert second["hits"] >= len(data["regions"])
    assert (second["misses"], second["forged"]) == (0, 0)
    (model,) = data["models"]
    assert 0 < model["error"] <= model["error_limit"]


_BUSY = """
set -euo pipefail
text=$(sed -n '/^doing()/,/^}/p; /^busy()/,/^}/p' examples/environment.sh)
eval "${text/every=20/every=1}"
busy sleeping "$1" bash -c 'echo "[6/12] Linking"; sleep 3; echo said; exit 7' || echo "status $?"
busy resting "$1" echo done
"""


def test_the_set_up_shows_how_far_it_is(tmp_path: Path) -> None:
    log = tmp_path / "log"
    command = ["bash", "-c", _BUSY, "bash", str(log)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60)
    first, *_, status, last = done.stdout.splitlines()
    assert first.startswith("   sleeping, ") and first.endswith(f"[{'#' * 12}{' ' * 12}] 6 of 12")
    assert (status, last) == ("status 7", "   resting took 0 s")
    assert (done.returncode, done.stderr) == (0, "[6/12] Linking\nsaid\n")
    assert log.read_text() == "done\n"


def test_help_needs_nothing() -> None:
    script = ROOT / "examples" / "quickstart.sh"
    done = subprocess.run(["bash", str(script), "--help"], capture_output=True, text=True)
    assert done.returncode == 0 and "--region-budget" in done.stdout


def test_the_named_models_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    arguments, models = map(importlib.import_module, ("arguments", "example_models"))
    assert tuple(models.EXAMPLES) == arguments.MODELS


GOOD = {"name": "gpt", "phase": "train", "error": 1e-6, "error_limit": 2e-6}
SERVED = {"unserved": 0}
LOST = "the cache did not give the second process 1 region that it should have had"
NOT_KEPT = "the cache could not be used, so nothing was kept: see the warning above"


@pytest.mark.parametrize(
    ("model", "difference", "second", "said"),
    [
        ({}, 0.0, {}, None),
        ({}, 9e-6, {}, None),
        ({"error": 2.1e-6}, 0.0, {}, "gpt train: error 2.1e-06 over 2e-06"),
        ({"error": float("nan")}, 0.0, {}, "gpt train: error nan over 2e-06"),
        ({}, 1.1e-5, {}, "the two processes differ by 1.1e-05 in gpt/train, over 1e-05"),
        ({}, float("nan"), {}, "the two processes differ by nan in gpt/train, over 1e-05"),
        ({}, 0.0, {"unserved": 3}, "the second process found no kernel in 3 calls"),
    ],
)
def test_what_fails_the_quickstart(
    monkeypatch: pytest.MonkeyPatch,
    model: dict[str, float],
    difference: float,
    second: dict[str, int],
    said: str | None,
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    quickstart = importlib.import_module("quickstart")
    lines = quickstart.failures(
        [GOOD | model], {"gpt/train": difference}, SERVED | second, lost=0, kept=True
    )
    assert lines == ([] if said is None else [said])


@pytest.mark.parametrize(
    ("lost", "kept", "said"),
    [(0, True, []), (1, True, [LOST]), (0, False, [NOT_KEPT]), (1, False, [NOT_KEPT])],
)
def test_a_cache_that_does_not_serve_fails_the_quickstart(
    monkeypatch: pytest.MonkeyPatch, lost: int, kept: bool, said: list[str]
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    quickstart = importlib.import_module("quickstart")
    assert quickstart.failures([GOOD], {"gpt/train": 0.0}, SERVED, lost, kept) == said


@pytest.mark.parametrize(
    ("missed", "forged", "lost"),
    [
        ("", "", 0),
        ("", "n", 0),  # a part that the first process did not reach
        ("d", "d", 1),
        ("de", "de", 2),
        ("", "e", 1),  # a part that the first process decided
        ("n", "", 1),  # a graph's region that the first process did not know
    ],
)
def test_what_the_second_process_should_have_found(
    monkeypatch: pytest.MonkeyPatch, missed: str, forged: str, lost: int
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    quickstart = importlib.import_module("quickstart")
    regions = [{"key": key} for key in "de"]
    assert quickstart.lost_regions(regions, set(missed), set(forged)) == lost


def test_a_cache_that_keeps_nothing_fails_the_quickstart(
    run_python: RunPython, tmp_path: Path
) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "db").touch()
    text, _ = small_quickstart(run_python, tmp_path, "won", code=1)
    assert f"WRONG: {NOT_KEPT}" in text
    assert "that it should have had" not in text


def test_regions_distinguish_forged_from_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    with importlib.import_module("report").Progress() as progress:
        for key, status in (("a", "hit"), ("b", "miss")):
            progress(RegionFound(what="", key=key, arch="cpu:none", status=status))
        progress(Started(what="", key="b", arch="cpu:none"))
        progress(RegionFound(what="", key="b", arch="cpu:none", status="hit"))
    origins = {region["key"]: region["origin"] for region in progress.regions({"a"})}
    assert origins == {"a": "cache", "b": "forged"}


NO_GPU = "--device cuda, but the NVIDIA driver is not there or finds no GPU"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--models", "gpt,bert"), "no 'bert'; known: gpt, resnet, mixer"),
        (("--models", ""), "no ''; known: gpt, resnet, mixer"),
        (("--region-budget", "0"), "'0'; it takes a number of seconds above 0"),
        (("--region-budget", "-1"), "'-1'; it takes a number of seconds above 0"),
        (("--region-budget", "nan"), "'nan'; it takes a number of seconds above 0"),
        (("--region-budget", "long"), "'long'; it takes a number of seconds above 0"),
        (("--device", "tpu"), "invalid choice: 'tpu'"),
        (("--device", "cuda"), NO_GPU),
        (("--json", "nowhere/x.json"), "there is no folder "),
        (("--json", "/"), "'/' is a folder"),
        (("--cache-dir", "/dev/null"), "'/dev/null' is no folder"),
        (("--region-budgets", "1"), "unrecognized arguments: --region-budgets"),
    ],
)
def test_bad_arguments_are_named_before_the_set_up(
    tmp_path: Path, given: tuple[str, ...], said: str
) -> None:
    script = str(ROOT / "examples" / "quickstart.sh")
    blind = os.environ | {"CUDA_VISIBLE_DEVICES": ""}  # no GPU, on any machine
    done = subprocess.run(
        ["bash", script, *given],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=blind,
        timeout=60,
    )
    assert done.returncode == 2 and said in done.stderr and done.stdout == ""


def test_the_script_itself_names_bad_arguments() -> None:
    done = quickstart("--region-budget", "0")
    assert done.returncode == 2 and "it takes a number of seconds above 0" in done.stderr


def test_the_agent_of_the_readme(tmp_path: Path, script: str, capsys: Output) -> None:
    kernel = tmp_path / "kernel.txt"
    kernel.write_text(RIGHT)
    coder = f"command:{sys.executable} {ROOT / 'examples' / 'my_agent.py'} {kernel}"
    given = ["forge", script, "--target", "cpu", "--rounds", "1", "--coder", coder]
    (done,) = as_json(capsys, *given, "--cache-dir", str(tmp_path / "cache"))["regions"]
    assert [one["verdict"] for one in done["rounds"]] == ["accepted"]
    assert done["ledger"]["calls"] == 1 and not done["ledger"]["estimated"]


def test_costs(tmp_path: Path) -> None:
    """The benchmark of CudaForge's own costs works; what it measures is no test's business."""
    out = tmp_path / "costs.json"
    benchmark = ROOT / "tests" / "benchmarks" / "costs.py"
    arguments = ["--device", "cpu", "--only", "region_call,open_cache", "--json", str(out)]
    done = subprocess.run(
        [sys.executable, str(benchmark), *arguments], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    data = json.loads(out.read_text())
    assert data["open_cache"]["records"] == 1000
    assert data["region_call"]["hits"] > 0
