"""Which operators' eager calls are intercepted."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from cudaforge_backend import OptionError, disable, enable
from cudaforge_backend._native import _C
from cudaforge_backend.integration.eager_ops import chosen_ops, default_ops
from eager_calls import SOFTMAX


@pytest.mark.parametrize(
    ("ops", "words"),
    [
        (["aten::sofmax.int"], ["does not exist", "did you mean", "aten::softmax.int"]),
        (["aten::softmax"], ["there is aten::softmax", "aten::softmax.int"]),
        (["aten::sum.all"], ["does not exist", "aten::sum.dim_IntList"]),
        (["aten::batch_norm"], ["may change its arguments"]),
        (["aten::view"], ["returns views"]),
        (["aten::add_.Tensor"], ["changes its arguments"]),
        (["aten::bernoulli"], ["draws random numbers"]),
        (["aten::nonzero"], ["depend on more than"]),
        (["aten::reshape"], ["views"]),
        (["aten::dropout"], ["random"]),
        (["aten::unsafe_split.Tensor"], ["returns lists"]),
        (["aten::_foreach_neg*"], ["none of them"]),
        (["prims::sum"], ["not an ATen operator"]),
        (["aten::MM"], ["does not exist", "did you mean", " aten::mm, aten::bmm, "]),
        (["aten::VIEWS"], ["does not exist", "did you mean", " aten::view_copy"]),
        (["softmax"], ["begin with 'aten::'", "did you mean", "aten::_softmax"]),
        ([torch.ops.aten.sum.dim_IntList], ["names of overloads, 'aten::sum.dim_IntList'"]),
        (["aten::einsum"], ["CompositeImplicitAutograd"]),
        (["aten::_softmax.out"], ["changes its arguments"]),
        (["aten::*nothing*"], ["no operator"]),
        (["aten::relu_*"], ["none of them"]),
        ("aten::_softmax", ["a list"]),
        ([], ["is empty"]),
        ([3], ["names of overloads"]),
        (torch.nn.Linear(2, 2), ["of type Linear", "the whole program"]),
    ],
)
def test_what_may_not_be_intercepted_is_said(ops: Any, words: list[str]) -> None:
    enable([SOFTMAX])
    with pytest.raises(OptionError) as error:
        enable(ops)
    assert all(word in str(error.value) for word in words), error.value
    assert "did you mean" in words or "did you mean" not in str(error.value)
    assert _C.intercepted() == [SOFTMAX]


def test_the_intercepted_operators_are_reported() -> None:
    assert enable().ops == default_ops() == tuple(_C.intercepted())
    assert enable(["aten::mm", "aten::softmax.int"]).ops == ("aten::_softmax", "aten::mm")
    assert disable().ops == ()
    assert repr(disable()) == "<Interception of disable(), in force>"
    asked = enable(["aten::mm"])
    assert repr(asked) == "<Interception of enable() of 1 overload, in force>"
    with enable(["aten::mm", "aten::bmm"]) as inner:
        assert repr(inner) == "<Interception of enable() of 2 overloads, in force>"
        assert repr(asked) == "<Interception of enable() of 1 overload, not in force>"
    assert repr(asked).endswith(", in force>")


def test_names_patterns_and_defaults() -> None:
    assert chosen_ops(["aten::softmax.int", "aten::mm"]) == ("aten::_softmax", "aten::mm")
    norms = chosen_ops(["aten::native_*_norm"])
    assert "aten::native_layer_norm" in norms and "aten::native_group_norm" in norms
    known = {"aten::sum.dim_IntList", "aten::cumsum", "aten::convolution", "aten::bmm", SOFTMAX}
    assert known <= set(default_ops())
    assert "aten::_fused_rms_norm" in default_ops()  # which only a GPU has a kernel of its own for
    attention = "aten::scaled_dot_product_attention"
    assert attention not in default_ops()
    assert "aten::_scaled_dot_product_flash_attention_for_cpu" in chosen_ops([attention])
    assert set(chosen_ops([attention])) <= set(default_ops())


def test_composite_operators_are_replaced_by_their_parts() -> None:
    assert chosen_ops(["aten::sum", "aten::mean"]) == ("aten::mean.dim", "aten::sum.dim_IntList")
    assert chosen_ops(["aten::var.dim", "aten::conv2d"]) == (
        "aten::convolution",
        "aten::var.correction",
    )
    chosen = {*default_ops(), *chosen_ops(["aten::sum*", "aten::mean*"])}
    assert not [op for op in chosen if _C.parts_of(op)]


def test_every_operation_worth_a_region_is_intercepted_or_named_by_its_parts() -> None:
    worth = {*_C.anchor_ops(), *_C.heavy_ops()}
    assert [op for op in worth if not _C.parts_of(op) and _C.why_not_intercepted(op)] == []


def test_a_name_whose_parts_may_not_be_intercepted_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_C, "parts_of", lambda op: ["aten::softmax.int"])
    with pytest.raises(
        OptionError, match=r"'aten::softmax.int' may not .*CompositeImplicitAutograd"
    ):
        chosen_ops(["aten::softmax.int"])
