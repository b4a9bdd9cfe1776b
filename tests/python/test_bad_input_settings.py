"""Environment values that are not understood: one warning names each, and the default is used."""

from __future__ import annotations

import json
import os
from pathlib import Path

import cudaforge_backend
import pytest
import torch
from conftest import RunPython

_SCRIPT = """
import warnings, torch, cudaforge_backend
from cudaforge_backend import options
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    for n in (8, 9):
        torch._dynamo.reset()
        x = torch.randn(n, 24)
        f = torch.compile(lambda x: torch.softmax(x * 2, -1), backend="cudaforge")
        torch.testing.assert_close(f(x), torch.softmax(x * 2, -1))
for w in seen:
    if issubclass(w.category, cudaforge_backend.CudaForgeWarning):
        print("WARNING", w.message)
s = options.parse(None, None)
print("SETTINGS", s.on_miss, s.region_budget_s, options.disabled())
"""


@pytest.mark.parametrize(
    "environment",
    [
        {"CUDAFORGE_ON_MISS": "sometimes"},
        {"CUDAFORGE_REGION_BUDGET_S": "nan", "CUDAFORGE_DISABLE": "yes"},
        {"CUDAFORGE_REGION_BUDGET_S": "-3", "CUDAFORGE_LOG": "everything"},
        {"CUDAFORGE_REGION_BUDGET_S": "12 s", "CUDAFORGE_ON_MISS": "RECORD"},
        {"CUDAFORGE_ON_MISS": "caf\udce9", "CUDAFORGE_DISABLE": "\x1b[2J"},
        {"CUDAFORGE_LOG": "\udce9", "CUDAFORGE_CUDA_PATH": "/no/caf\xe9"},
    ],
    ids=lambda environment: ",".join(environment),
)
def test_bad_environment_values(run_python: RunPython, environment: dict[str, str]) -> None:
    budget = {"CUDAFORGE_GRAPH_BUDGET_S": "0.01"}  # what the default does takes no time
    lines = run_python(_SCRIPT, **budget, **environment, ready=True).stdout.splitlines()
    warned = [line for line in lines if line.startswith("WARNING")]
    assert len(warned) == len(environment)
    for name, value in environment.items():
        shown = os.fsencode(value).decode("ascii", "backslashreplace").replace("\x1b", r"\x1b")
        assert sum(name in line and shown in line for line in warned) == 1
    on_miss = "blocking" if "CUDAFORGE_ON_MISS" in environment else "record"  # of the tests
    assert f"SETTINGS {on_miss} 30.0 False" in lines


@pytest.mark.parametrize(
    ("environment", "code", "named"),
    [
        ({"CUDAFORGE_EAGER": "yes"}, "", ["CUDAFORGE_EAGER=yes"]),
        ({"CUDAFORGE_EAGER": "1", "CUDAFORGE_ON_MIS": "record"}, "", ["CUDAFORGE_ON_MIS"]),
        ({"CUDAFORGE_EAGR": "1"}, "", ["CUDAFORGE_EAGR"]),
        ({"CUDAFORGE_ON_MISS": "sometimes"}, "", []),  # nothing is enabled
        (
            {"CUDAFORGE_ON_MISS": "sometimes"},
            "; [cudaforge_backend.enable() for _ in range(2)]",
            ["CUDAFORGE_ON_MISS=sometimes"],
        ),
    ],
)
def test_eager_programs_are_warned_once(
    run_python: RunPython, environment: dict[str, str], code: str, named: list[str]
) -> None:
    warned = run_python(
        f"import cudaforge_backend{code}", ready=True, **environment
    ).stderr.splitlines()
    told = [line.partition("CudaForgeWarning: ")[2] for line in warned]
    assert [line.partition(" is not used: ")[0] for line in told if line] == named


def test_the_value_of_an_unknown_variable_is_not_shown(run_python: RunPython) -> None:
    done = run_python(_SCRIPT, CUDAFORGE_CODER_KEY="sk-secret", ready=True)
    (warned,) = (line for line in done.stdout.splitlines() if line.startswith("WARNING"))
    assert warned.startswith("WARNING CUDAFORGE_CODER_KEY is not used: ")
    assert "secret" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("variable", "below"),
    [("CUDAFORGE_CACHE_DIR", ""), ("XDG_CACHE_HOME", "cudaforge"), ("HOME", ".cache/cudaforge")],
)
def test_a_folder_may_be_named_in_any_bytes(
    run_python: RunPython, tmp_path: Path, variable: str, below: str
) -> None:
    given = tmp_path / "caf\udce9"
    given.mkdir()
    # Triton cannot load from a folder with this name; by default its folder is below HOME.
    triton = {"TRITON_CACHE_DIR": str(tmp_path / "triton")}
    environment = {"CUDAFORGE_CACHE_DIR": "", "XDG_CACHE_HOME": "", variable: str(given)} | triton
    assert "WARNING" not in run_python(_SCRIPT, **environment, ready=True).stdout
    assert (given / below / "CURRENT").is_file() or list((given / below).rglob("CURRENT"))
    command = "from cudaforge_backend.cli import main; main(['{}', {} '--json'])"
    wanted = run_python(command.format("cache", "'wanted',"), **environment, ready=True).stdout
    assert json.loads(wanted)
    checks = json.loads(run_python(command.format("doctor", ""), **environment, ready=True).stdout)
    (cache,) = (one for one in checks if one["name"] == "cache")
    assert cache["state"] == "ok" and str(given / below) in cache["detail"]


def test_the_option_may_name_a_folder_in_any_bytes(tmp_path: Path) -> None:
    options = {"on_miss": "record", "cache_dir": str(tmp_path / "caf\udce9")}
    x = torch.randn(7, 24)
    made = torch.compile(lambda x: torch.softmax(x, -1), backend="cudaforge", options=options)
    torch.testing.assert_close(made(x), torch.softmax(x, -1))
    assert (tmp_path / "caf\udce9").is_dir()
    assert cudaforge_backend.stats().misses == 1


def test_good_environment_values_warn_of_nothing(run_python: RunPython) -> None:
    done = run_python(
        _SCRIPT,
        CUDAFORGE_ON_MISS="fallback",
        CUDAFORGE_REGION_BUDGET_S="30",
        CUDAFORGE_DISABLE="0",
        CUDAFORGE_LOG="forge,cache",
        ready=True,
    )
    assert "WARNING" not in done.stdout
    assert "SETTINGS fallback 30.0 False" in done.stdout


def test_what_is_disabled_says_so(run_python: RunPython, tmp_path: Path) -> None:
    """explain and doctor do, warmup and forge end with an error."""
    script = tmp_path / "script.py"
    script.write_text(
        "import torch\ndef make():\n    return torch.nn.Softmax(-1), (torch.randn(3, 5),)\n"
    )
    code = (
        "import cudaforge_backend, torch\n"
        "from cudaforge_backend.cli import main\n"
        "print(cudaforge_backend.explain(torch.nn.Softmax(-1), torch.randn(3, 5)))\n"
        "main(['doctor'])\n"
        "print(cudaforge_backend.stats())\n"
        f"print('rc', main(['warmup', {str(script) + ':make'!r}]))\n"
        "print('rc', main(['forge', '--wanted']))\n"
        f"print('rc', main(['forge', {str(script) + ':make'!r}, '--coder', 'command:cat']))\n"
    )
    done = run_python(
        code, CUDAFORGE_DISABLE="1", CUDAFORGE_CACHE_DIR=str(tmp_path / "none"), ready=True
    )
    assert done.stdout.count("CUDAFORGE_DISABLE=1 is set") == 3
    assert done.stderr.count("CUDAFORGE_DISABLE=1 is set") == 3 == done.stdout.count("rc 1")
    assert not (tmp_path / "none").exists()


def test_an_unknown_mode_reaches_the_user(run_python: RunPython) -> None:
    done = run_python(
        "import torch\n"
        "model = torch.nn.Softmax(-1)\n"
        "torch.compile(model, backend='cudaforge', mode='fastest')(torch.ones(2, 3))",
        check=False,
        ready=True,
    )
    assert done.returncode != 0
    for word in ("fastest", "default", "reduce-overhead", "max-autotune"):
        assert word in done.stderr
