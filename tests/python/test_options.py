"""mode= and options= are parsed strictly; options win over the environment."""

from __future__ import annotations

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
    )
    assert "on_miss='background', region_budget_s=7.0" in done.stdout
    assert done.stdout.splitlines()[-1] == "fallback"
