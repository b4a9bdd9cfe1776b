"""Triton kernels of agents are compiled ahead of time; nothing of their source runs as Python."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton", reason="needs Triton, which torch for CUDA brings")

# The program stands alone: its folder is loaded, whatever is installed.
_ROOT = Path(__file__).resolve().parents[2]
_PROGRAM = _ROOT / "python" / "cudaforge_backend" / "triton_aot"
_SPEC = importlib.util.spec_from_file_location("triton_aot", _PROGRAM / "__init__.py")
assert _SPEC is not None
sys.modules["triton_aot"] = importlib.util.module_from_spec(_SPEC)
allowed, check, compilation, program = (
    importlib.import_module(f"triton_aot.{name}")
    for name in ("allowed", "check", "compilation", "program")
)

_IMPORTS = "import triton\nimport triton.language as tl\n"

_SOFTMAX = (
    _IMPORTS
    + '''
LOG2E = tl.constexpr(1.4426950408889634)
LOWEST = float("-inf")


@triton.jit
def _scaled(v):
    return v * LOG2E


@triton.jit
def softmax(x, y, n, BLOCK: tl.constexpr):
    """One row a block."""
    at = tl.arange(0, BLOCK)
    row = tl.program_id(0) * n
    v = tl.load(x + row + at, mask=at < n, other=LOWEST, eviction_policy="evict_first")
    v = _scaled(v.to(tl.float32))
    v = tl.math.exp2(v - tl.max(v, axis=0))
    tl.store(y + row + at, (v / tl.sum(v, axis=0)).to(y.dtype.element_ty), mask=at < n)
'''
)

_PRODUCT = (
    _IMPORTS
    + """
@triton.jit
def product(a, b, c, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    rows, columns, inner = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    total = tl.zeros((M, N), dtype=tl.float32)
    for start in tl.range(0, k, K, num_stages=3):
        left = tl.load(a + rows[:, None] * k + (start + inner)[None, :])
        right = tl.load(b + (start + inner)[:, None] * N + columns[None, :])
        total = tl.dot(left, right, total, input_precision="ieee")
    tl.store(c + rows[:, None] * N + columns[None, :], total)
"""
)

_REDUCTION = (
    _IMPORTS
    + """
@triton.jit
def _larger(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)

@triton.jit
def largest(x, y, BLOCK: tl.constexpr):
    v = tl.load(x + tl.arange(0, BLOCK))
    v = tl.inline_asm_elementwise(
        "abs.f32 $0, $1;", "=f,f", [v], dtype=tl.float32, is_pure=True, pack=1
    )
    tl.store(y, tl.reduce(v, 0, _larger))
"""
)


def _softmax(**changes: Any) -> dict[str, Any]:
    return {
        "source": _SOFTMAX,
        "kernel": "softmax",
        "arguments": ["*bf16", "*bf16", "i64"],
        "aligned": [True, True, False],
        "constants": {"BLOCK": 1024},
        "num_warps": 4,
        "num_stages": 3,
        "capability": 90,
        **changes,
    }


def _product(**changes: Any) -> dict[str, Any]:
    return _softmax(
        source=_PRODUCT,
        kernel="product",
        arguments=["*fp16", "*fp16", "*fp32", "i64"],
        aligned=[True, True, True, False],
        constants={"M": 64, "N": 128, "K": 32},
        num_warps=8,
        **changes,
    )


def _answer(request: object, folder: Path) -> dict[str, Any]:
    """What the program says; it leaves no file behind in its folder or in the temporary one."""
    text = request if isinstance(request, bytes) else json.dumps(request).encode()
    done = subprocess.run(
        [sys.executable, "-I", str(_PROGRAM)],
        input=text,
        capture_output=True,
        cwd=folder,
        env={**os.environ, "TMPDIR": str(folder), "HOME": str(folder), "TRITON_INTERPRET": "1"},
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert b"Traceback" not in done.stdout + done.stderr
    assert list(folder.iterdir()) == []
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["ok"] is True or (found["ok"] is False and 0 < len(found["error"]) <= 2000)
    return found


def _entry(found: dict[str, Any]) -> str:
    """The parameters of the entry."""
    assert found["ok"], found["error"]
    header = re.search(rf"\.visible \.entry {found['entry']}\(([^)]*)\)", found["ptx"])
    assert header is not None
    return header[1]


@pytest.mark.parametrize("capability", [80, 90, 120])
def test_softmax(tmp_path: Path, capability: int) -> None:
    found = _answer(_softmax(capability=capability), tmp_path)
    assert _entry(found).count(".param") == found["parameters"] == 3 + 2  # two scratch pointers
    assert (found["entry"], found["threads"], found["cluster"]) == ("softmax", 128, [1, 1, 1])
    assert f".target sm_{capability}" in found["ptx"]
    assert found["shared_bytes"] > 0
    assert str(tmp_path) not in found["ptx"]


@pytest.mark.parametrize("capability", [80, 90, 120])
def test_product(tmp_path: Path, capability: int) -> None:
    found = _answer(_product(capability=capability), tmp_path)
    assert _entry(found).count(".param") == found["parameters"] == 4 + 2
    assert "mma" in found["ptx"]
    assert (found["threads"], found["shared_bytes"] > 0) == (256, True)


def test_functions_and_inline_assembly(tmp_path: Path) -> None:
    request = _softmax(source=_REDUCTION, kernel="largest", arguments=["*fp32", "*fp32"])
    found = _answer({**request, "aligned": [True, False]}, tmp_path)
    assert _entry(found).count(".param") == 2 + 2
    assert "abs.f32" in found["ptx"]


def test_the_same_request_makes_the_same_ptx_and_alignment_counts(tmp_path: Path) -> None:
    first, again = _answer(_softmax(), tmp_path), _answer(_softmax(), tmp_path)
    assert first == again
    request = _softmax(source=_REDUCTION, kernel="largest", arguments=["*fp32", "*fp32"])
    aligned = _answer({**request, "aligned": [True, False]}, tmp_path)
    loose = _answer({**request, "aligned": [False, False]}, tmp_path)
    assert aligned["ptx"].count("ld.global.v4") > loose["ptx"].count("ld.global.v4") == 0


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("arange(0, BLOCK)", "arange(0, 1000)", "arange's range must be a power of 2"),
        ("v * LOG2E", "v * tl.arange(0, 3)", "power of 2"),
        ("axis=0))\n    tl", "axis=7))\n    tl", "line 20, column 26: .*invalid axis 7"),
        ('"evict_first"', '"no_such"', "no_such"),
        (
            "v.to(tl.float32)",
            "v.to(tl.float32), 1",
            "(takes 1|too many) positional arg",
        ),
        ("return v * LOG2E", "return", "line 20"),
        ("    row =", "    tl.static_assert(BLOCK < 5, 'too long')\n    row =", "too long"),
        ("tl.load(x", "tl.load(n", "ptr"),
    ],
)
def test_what_triton_says_of_a_wrong_kernel(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in _SOFTMAX
    found = _answer(_softmax(source=_SOFTMAX.replace(old, new)), tmp_path)
    assert not found["ok"]
    assert re.search(said, found["error"]), found["error"]
    assert found["error"].startswith("line "), found["error"]
    assert len(found["error"]) < 600


def test_bad_inline_assembly(tmp_path: Path) -> None:
    request = _softmax(source=_REDUCTION.replace("abs.f32 ", "no.such.f32 "), kernel="largest")
    request |= {"arguments": ["*fp32", "*fp32"], "aligned": [True, True]}
    found = _answer(request, tmp_path)
    assert not found["ok"]
    assert "ptxas" in found["error"] and "'.such'" in found["error"], found["error"]
    assert str(tmp_path) not in found["error"]


_EVIL = '__import__("os").system("touch evil")'

_OUTSIDE = {  # at module level
    "open": 'open("evil", "w")',
    "import": "import os",
    "import from": "from os import system",
    "import as": "import os as tl",
    "import of a part": "import triton.runtime as tl",
    "exec": 'exec("import os")',
    "constant": f"A = {_EVIL}",
    "constant in constexpr": f"A = tl.constexpr({_EVIL})",
    "class": "class A:\n    pass",
    "lambda": "A = lambda: 0",
    "if": "if True:\n    pass",
    "global": "global tl",
    "redefinition": "tl = 1",
    "decorator with a call": "@triton.jit(noinline=True)\ndef f(x):\n    return x",
    "decorator that runs": f"@{_EVIL}\ndef f(x):\n    return x",
    "two decorators": "@triton.jit\n@triton.jit\ndef f(x):\n    return x",
    "no decorator": "def f(x):\n    return x",
    "default": f"@triton.jit\ndef f(x={_EVIL}):\n    return x",
    "keyword default": f"@triton.jit\ndef f(*, x={_EVIL}):\n    return x",
    "annotation": f"@triton.jit\ndef f(x: {_EVIL}):\n    return x",
    "annotated result": f"@triton.jit\ndef f(x) -> {_EVIL}:\n    return x",
    "star": "@triton.jit\ndef f(*x):\n    return 1",
    "named like a builtin": "@triton.jit\ndef print(x):\n    return x",
    "async": "@triton.jit\nasync def f(x):\n    return x",
    "coding": "# -*- coding: unicode_escape -*-\x0c\nA = 1",
}

_INSIDE = {  # statements of the kernel
    "module of tl": "tl.core.builtins.exec('import os')",
    "os through tl": "tl.core.typing.sys.modules",
    "os through tl.math": "v = tl.math.core.inspect.os.system('touch evil')",
    "extra": "v = tl.extra.cuda.libdevice",
    "types from text": "v = tl.str_to_ty('tensordesc<fp32[1],open(1)>', None)",
    "module of triton": "v = triton.runtime.build.subprocess.run('true')",
    "getattr": "v = getattr(tl, 'core')",
    "hasattr": "v = hasattr(x, 'src')",
    "print": "print('evil')",
    "static print": "tl.static_print('evil')",
    "device print": "tl.device_print('evil', v)",
    "exec": "exec('import os')",
    "dunder": "v = x.__class__",
    "dunder name": "v = __builtins__",
    "private attribute": "v = tl._experimental_descriptor_load",
    "source of a function": "softmax._unsafe_update_src('')",
    "function as a value": "v = softmax",
    "subscript of a function": "softmax[1](x)",
    "lambda": "v = (lambda: 0)()",
    "comprehension": "v = [tl for tl in (1, 2)]",
    "generator": "v = sum(i for i in range(3))",
    "f-string": "v = f'{x.__class__}'",
    "walrus": "v = (tl := x)",
    "shadow": "tl = x",
    "shadow of a builtin": "range = tl.core",
    "shadow of a function": "softmax = x",
    "import": "import os",
    "global": "global tl",
    "nested function": "def f():\n        pass",
    "class": "class A:\n        pass",
    "with": "with tl.core.open('evil'):\n        pass",
    "try": "try:\n        pass\n    finally:\n        pass",
    "assert": "assert x, 'evil'",
    "delete": "del x",
    "assigned attribute": "x.dtype = 1",
    "assigned subscript": "x[0] = 1",
    "loop over a call": "for i in tl.core.open('evil'):\n        pass",
    "loop over a value": "for i in x:\n        pass",
    "string argument": "v = tl.load(x, 'evil')",
    "string in a keyword": "v = tl.load(x, other='evil')",
    "string in a string keyword": "v = tl.load(x, cache_modifier='/etc/passwd')",
    "string": "v = 'evil'",
    "bytes": "v = b'evil'",
    "dict": "v = {}",
    "hidden argument": "v = tl.load(x, _semantic=x)",
    "keywords": "v = tl.load(**x)",
    "starred": "v = tl.load(*x)",
    "call of a call": "v = tl.constexpr(x)(x)",
    "call of a value": "v = x(x)",
    "call of a dtype": "v = tl.float32('evil')",
    "float of a text": "v = float('evil')",
    "formatting": "v = '%s' % x",
    "assembly that leaves": (
        "v = tl.inline_asm_elementwise('} .visible .entry f() {', '=r,r', [x], tl.int32, True, 1)"
    ),
    "deep": "v = " + "-" * 500 + "1",
    "deeper": "v = " + "(" * 5000 + "1" + ")" * 5000,
    "deepest": "v = " + "-" * 100_000 + "1",
    "long chain": "v = x" + ".T" * 100_000,
}


@pytest.mark.parametrize("source", _OUTSIDE.values(), ids=_OUTSIDE.keys())
def test_hostile_modules_are_refused(source: str) -> None:
    with pytest.raises(check.Refused):
        check.check_source(f"{_IMPORTS}{source}\n{_SOFTMAX}")


@pytest.mark.parametrize(
    "statement",
    [text for name, text in _INSIDE.items() if not name.startswith("deepe")],
    ids=[name for name in _INSIDE if not name.startswith("deepe")],
)
def test_hostile_kernels_are_refused(statement: str) -> None:
    with pytest.raises(check.Refused):
        check.check_source(_SOFTMAX.replace("    row =", f"    {statement}\n    row ="))


def test_the_program_refuses_hostile_sources_and_leaves_nothing(tmp_path: Path) -> None:
    outside = ("open", "decorator that runs", "default", "annotation", "import", "constant")
    inside = ("os through tl", "os through tl.math", "getattr", "dunder", "lambda", "f-string")
    deep = ("deep", "deeper", "deepest", "long chain")
    sources = [f"{_IMPORTS}{_OUTSIDE[name]}\n{_SOFTMAX}" for name in outside]
    for name in inside + deep:
        sources.append(_SOFTMAX.replace("    row =", f"    {_INSIDE[name]}\n    row ="))
    for source in sources:
        assert not _answer(_softmax(source=source), tmp_path)["ok"], source[:300]


def test_lists_of_names_hold_functions_and_types_only() -> None:
    import types

    import triton.language as tl
    from triton.runtime.jit import JITCallable

    for space, names in ((tl, allowed.TL_CALLS), (tl.math, allowed.MATH_CALLS)):
        for name in names - (set() if hasattr(tl, "advance") else {"advance"}):  # Triton 3.9
            value = getattr(space, name)
            assert isinstance(value, JITCallable | types.FunctionType | type), name
            assert value.__module__.startswith("triton.language."), name
    for name in allowed.TL_VALUES:
        assert type(getattr(tl, name)) is tl.dtype, name


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "not a JSON object"),
        (b"{}", "lacks source, kernel"),
        (_softmax(more=1), "unknown fields: more"),
        (_softmax(source=1), "texts"),
        (_softmax(source="#" * (256 * 1024 + 1)), "longer than"),
        (_softmax(source=""), "no function softmax"),
        (_softmax(source="def ("), "line 1"),
        (_softmax(source="a\0b"), "control characters"),
        (_softmax(source="\ud800"), "surrogate"),
        (_softmax(kernel="missing"), "no function missing"),
        (_softmax(arguments=["*fp32"]), "aligned 3"),
        (_softmax(arguments=["*bf16", "*bf16"], aligned=[True, True]), "is given 2"),
        (_softmax(arguments=["*bf16", "*bf16", "tensordesc<x>"]), "it takes one of"),
        (_softmax(aligned=[True, True, True]), "scalar"),
        (_softmax(aligned=[1, True, True]), "true or false"),
        (_softmax(constants={}), "values are given for none"),
        (_softmax(constants={"BLOCK": "1"}), "it takes a number"),
        (_softmax(constants={"BLOCK": 2**70}), "64 bits"),
        (_softmax(num_warps=3), "power of two"),
        (_softmax(num_stages=True), "whole number"),
        (_softmax(capability="90"), "whole number"),
    ],
)
def test_bad_requests(tmp_path: Path, request_: object, said: str) -> None:
    found = _answer(request_, tmp_path)
    assert not found["ok"]
    assert said in found["error"], found["error"]


_WITHOUT_END = """
import json, sys, tempfile
sys.path.insert(0, sys.argv[1])
from triton_aot import compilation, program
program.CPU_SECONDS = 1
tempfile.tempdir = sys.argv[2]
print(json.dumps(program.answer(compilation.Request(**json.load(sys.stdin)))))
"""


def test_a_compilation_without_end(tmp_path: Path) -> None:
    """In a process of its own, as the program is: this one's memory may be above its limit."""
    request = _softmax(source=_SOFTMAX.replace("    row =", "    z = 3 ** 3 ** 17\n    row ="))
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_END, str(_PROGRAM.parent), str(tmp_path)],
        input=json.dumps(request), capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    found = json.loads(done.stdout)
    assert (found["ok"], "more than 1 s" in found["error"]) == (False, True), found
    assert list(tmp_path.iterdir()) == []


def test_the_files_stand_for_no_other_modules(tmp_path: Path) -> None:
    shown = (
        "import runpy, sys; runpy.run_path(sys.argv[1], run_name='__main__'); print(sys.modules)"
    )
    argv = [sys.executable, "-I", "-c", shown, str(_PROGRAM)]
    done = subprocess.run(argv, input=b"{}", capture_output=True, cwd=tmp_path)
    assert b"'cudaforge_triton_aot.check'" in done.stdout, done.stderr
    assert not re.search(rb"'(allowed|check|compilation|program|cudaforge_backend)'", done.stdout)


def test_the_example_of_the_contract_becomes_a_candidate() -> None:
    from cudaforge_backend._native import _C

    contract = _ROOT / "csrc" / "forge" / "knowledge" / "contract" / "triton.md"
    reply = contract.read_text().partition("### An example")[2]
    spec = {"dtype": "float32", "sizes": [256, 1003], "strides": [1003, 1]}
    node = {"op": "aten::_softmax", "args": [{"in": 0}, -1, False], "kwargs": {}, "outputs": [spec]}
    region = {"format": 1, "device": "cuda", "aliases": [], "numerics": {}, "nodes": [node]}
    region |= {"inputs": [{**spec, "alignment": 16}], "outputs": [{"node": 0, "out": 0}]}
    signature = _C.Signature.parse(json.dumps(region)).normalized()
    argv = [sys.executable, "-I", str(_PROGRAM)]
    found = json.loads(_C.read_triton(reply, signature, "cuda:sm_90a", argv))
    assert (found["language"], ".entry softmax_rows" in found["code"]) == ("ptx", True)
    assert ".target sm_90a" in found["code"]
    (launch,) = found["launches"]
    assert (launch["kernel"], launch["block"]) == ("softmax_rows", ["128", "1", "1"])
    assert launch["grid"] == ["in0.size0", "1", "1"]
    assert launch["args"][:2] == [{"in": 0}, {"out": 0}]
    (source,) = re.findall(r"```triton\n(.*?)```", reply, re.DOTALL)
    assert found["params"]["triton"]["source"].strip() == source.strip()
    with pytest.raises(ValueError, match="open cannot be called"):
        evil = reply.replace("tl.arange(0, BLOCK)", 'open("evil")')
        _C.read_triton(evil, signature, "cuda:sm_90a", argv)
