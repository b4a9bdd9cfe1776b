"""Environment values that are not understood: one warning names each, and the default is used."""

from __future__ import annotations

import pytest
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
    ],
    ids=lambda environment: ",".join(environment),
)
def test_bad_environment_values(run_python: RunPython, environment: dict[str, str]) -> None:
    lines = run_python(_SCRIPT, **environment).stdout.splitlines()
    warned = [line for line in lines if line.startswith("WARNING")]
    assert len(warned) == len(environment)
    for name, value in environment.items():
        assert sum(name in line and value in line for line in warned) == 1
    assert "SETTINGS record 30.0 False" in lines


def test_good_environment_values_warn_of_nothing(run_python: RunPython) -> None:
    done = run_python(
        _SCRIPT,
        CUDAFORGE_ON_MISS="fallback",
        CUDAFORGE_REGION_BUDGET_S="30",
        CUDAFORGE_DISABLE="0",
        CUDAFORGE_LOG="forge,cache",
    )
    assert "WARNING" not in done.stdout
    assert "SETTINGS fallback 30.0 False" in done.stdout


def test_an_unknown_mode_reaches_the_user(run_python: RunPython) -> None:
    done = run_python(
        "import torch\n"
        "model = torch.nn.Softmax(-1)\n"
        "torch.compile(model, backend='cudaforge', mode='fastest')(torch.ones(2, 3))",
        check=False,
    )
    assert done.returncode != 0
    for word in ("fastest", "default", "reduce-overhead", "max-autotune"):
        assert word in done.stderr
