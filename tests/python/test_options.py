"""mode= and options= are parsed strictly; options win over the environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import RunPython
from cudaforge_backend import OptionError, options


def test_defaults_come_from_the_environment() -> None:
    settings = options.parse(None, None)
    assert settings.on_miss == "record"
    assert settings.region_budget_s == 30
    assert settings.inductor == {}


def test_options_are_taken() -> None:
    given = {
        "on_miss": "blocking",
        "region_budget_s": 2,
        "cache_dir": "/x",
        "inductor": {"dce": True},
    }
    settings = options.parse("max-autotune-no-cudagraphs", given)
    assert (settings.on_miss, settings.region_budget_s, settings.cache_dir) == (
        "blocking",
        2.0,
        "/x",
    )
    assert settings.inductor["dce"] is True
    assert settings.inductor["max_autotune"] is True


def test_a_folder_stays_when_the_program_goes_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch.compile gives the same dict for each graph of a function."""
    (tmp_path / "elsewhere").mkdir()
    agents = {"coder": "command:true", "prices_file": "prices.json"}
    (tmp_path / "prices.json").write_text('{"models": {}}')
    given = {"cache_dir": "kernels", "on_miss": "blocking", "agents": agents}
    monkeypatch.chdir(tmp_path)
    first = options.parse(None, given)
    monkeypatch.chdir("elsewhere")
    assert options.parse(None, given).cache_dir == first.cache_dir == str(tmp_path / "kernels")
    assert options.parse(None, given) == first
    other = options.parse(None, {"cache_dir": "kernels"})
    assert other.cache_dir == str(tmp_path / "elsewhere" / "kernels")
    given["cache_dir"] = "more"
    assert options.parse(None, given).cache_dir == str(tmp_path / "elsewhere" / "more")


@pytest.mark.parametrize("options", ["{'cache_dir': 'kernels'}", "{}"], ids=["option", "variable"])
def test_a_relative_cache_serves_after_a_change_of_folder(
    run_python: RunPython, tmp_path: Path, options: str
) -> None:
    (tmp_path / "elsewhere").mkdir()
    done = run_python(
        "import os\n"
        f"os.chdir({str(tmp_path)!r})\n"
        "import torch, cudaforge_backend\n"
        "from forged import win_every_race\n"
        "win_every_race()\n"
        "torch.set_num_threads(1)\n"
        f"options = {options} | {{'on_miss': 'blocking'}}\n"
        "made = torch.compile(lambda x: x.softmax(-1), backend='cudaforge', options=options)\n"
        "made(torch.randn(4, 99))\n"
        "os.chdir('elsewhere')\n"
        "torch._dynamo.reset()\n"
        "cudaforge_backend.reset_stats()\n"
        "made(torch.randn(4, 99))\n"
        "stats = cudaforge_backend.stats()\n"
        "print(stats.hits, stats.misses, stats.forged)",
        CUDAFORGE_CACHE_DIR="kernels",
        ready=True,
    )
    assert done.stdout.split() == ["1", "0", "0"]
    assert [path.parent for path in tmp_path.rglob("kernels")] == [tmp_path]


@pytest.mark.parametrize(
    ("mode", "given", "named", "listed"),
    [
        (None, {"on_mis": "record"}, "on_mis", "region_budget_s"),
        (None, {"on_miss": "sometimes"}, "sometimes", "background"),
        (None, {"on_miss": 3}, "3", "background"),
        (None, {"region_budget_s": 0}, "region_budget_s", "above 0"),
        (None, {"region_budget_s": "long"}, "long", "seconds"),
        (None, {"region_budget_s": float("nan")}, "nan", "seconds"),
        (None, {"region_budget_s": True}, "True", "seconds"),
        (None, {"region_budget_s": 10**400}, "region_budget_s", "seconds"),
        (None, {"region_budget_s": -(10**5000)}, "region_budget_s", "seconds"),
        (None, {"cache_dir": ""}, "cache_dir", "folder"),
        (None, {"cache_dir": "/tmp/\0"}, "cache_dir", "no folder"),
        (None, {"cache_dir": "/tmp/\ud800"}, "cache_dir", "no folder"),
        (None, {"inductor": 3}, "inductor", "dict"),
        (None, {"inductor": {"max_autotun": 1}}, "max_autotun", "did you mean max_autotune"),
        (None, {"inductor": {"max-autotune": "yes"}}, "max_autotune", "type str; it takes bool"),
        (None, {"inductor": {"cpp.threads": 1.5}}, "cpp.threads", "type float; it takes int"),
        (None, {"max_autotune": True}, "max_autotune", "option of Inductor"),
        (
            None,
            {"inductor": {"post_grad_custom_pre_pass": 1}},
            "post_grad_custom_pre_pass",
            "taken",
        ),
        ("fastest", {}, "fastest", "reduce-overhead"),
    ],
)
def test_unknown_things_are_named(
    mode: str | None, given: dict[str, Any], named: str, listed: str
) -> None:
    with pytest.raises(OptionError) as error:
        options.parse(mode, given)
    assert named in str(error.value)
    assert listed in str(error.value)


def test_an_unknown_option_reaches_the_user_of_torch_compile() -> None:
    model = torch.compile(torch.nn.Softmax(-1), backend="cudaforge", options={"on_mis": "record"})
    with pytest.raises(Exception, match="unknown option 'on_mis'"):
        model(torch.randn(2, 3))


def test_environment_values(run_python: RunPython) -> None:
    done = run_python(
        "from cudaforge_backend import options\n"
        "print(options.parse(None, None))\n"
        "print(options.parse(None, {'on_miss': 'fallback'}).on_miss)",
        CUDAFORGE_ON_MISS="background",
        CUDAFORGE_REGION_BUDGET_S="7",
        ready=True,
    )
    assert "on_miss='background', region_budget_s=7.0" in done.stdout
    assert done.stdout.splitlines()[-1] == "fallback"
