"""Signatures as Python holds them."""

from __future__ import annotations

import copy
import json
import pickle

import pytest
from cudaforge_backend._native import _C
from test_forging import softmax


def test_a_signature_says_what_it_is_of() -> None:
    made = softmax(18)
    assert (made.device, made.ops) == ("cpu", ("aten::_softmax",))
    assert made.inputs == (("float32", (4, 18), (18, 1)),)
    assert made.to_dict() == json.loads(made.text)
    assert len(made.key) == 64 and made.key[:12] in repr(made)
    assert made.describe() == "_softmax(float32[4, 18])"
    assert made.why_not_generated(_C.arch("cpu")) is None


def test_signatures_are_equal_by_what_they_say() -> None:
    made = softmax(18)
    spaced = _C.Signature.parse(json.dumps(made.to_dict(), indent=1))
    assert spaced == made and hash(spaced) == hash(made) and spaced.text == made.text
    assert made != softmax(19) and made != made.text
    assert [pickle.loads(pickle.dumps(made)), copy.deepcopy(made)] == [made, made]
    with pytest.raises(AttributeError):
        made.key = ""  # type: ignore[misc]


def test_what_is_no_signature_is_refused() -> None:
    for text in ("", "{}", "[1]"):
        with pytest.raises(ValueError):
            _C.Signature.parse(text)
