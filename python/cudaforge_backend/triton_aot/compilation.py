"""The compilation of a kernel by Triton: what is asked, and what is answered."""

from __future__ import annotations

import ast
import json
import linecache
import re
import sys
from dataclasses import dataclass, fields
from typing import Any

from .check import FILE, Checker, Refused, check_source, refuse

SOURCE_BYTES = 256 * 1024
REQUEST_BYTES = 4 * 1024 * 1024
PTX_BYTES = 32 * 1024 * 1024

MODULE = "cudaforge_triton_kernel"

POINTERS = ("*fp32", "*fp16", "*bf16", "*fp64", "*i64", "*i32", "*i1")
SCALARS = ("i64", "fp64")


@dataclass(frozen=True)
class Request:
    """`arguments`: types of the parameters that are no tl.constexpr, in order; `aligned`: for each,
    that it is a pointer to a multiple of 16 bytes; `constants`: values of the others."""

    source: str
    kernel: str
    arguments: list[str]
    aligned: list[bool]
    constants: dict[str, int | float | bool]
    num_warps: int
    num_stages: int
    capability: int

    def __post_init__(self) -> None:
        if not isinstance(self.source, str) or not isinstance(self.kernel, str):
            raise Refused("source and kernel are texts")
        if len(self.source.encode("utf-8", "replace")) > SOURCE_BYTES:
            raise Refused(f"the source is longer than {SOURCE_BYTES} bytes")
        if not isinstance(self.arguments, list) or not isinstance(self.aligned, list):
            raise Refused("arguments and aligned are lists")
        if len(self.arguments) != len(self.aligned):
            raise Refused(
                f"arguments has {len(self.arguments)} entries and aligned {len(self.aligned)}"
            )
        for index, (kind, aligned) in enumerate(zip(self.arguments, self.aligned, strict=True)):
            if kind not in POINTERS + SCALARS:
                known = ", ".join(POINTERS + SCALARS)
                raise Refused(f"arguments[{index}] is {kind!r}; it takes one of {known}")
            if not isinstance(aligned, bool):
                raise Refused(f"aligned[{index}] is {aligned!r}; it takes true or false")
            if aligned and kind in SCALARS:
                raise Refused(f"aligned[{index}] is true of a scalar; only pointers are aligned")
        if not isinstance(self.constants, dict):
            raise Refused("constants is an object of names and numbers")
        for name, value in self.constants.items():
            if not isinstance(value, int | float):
                raise Refused(f"the constant {name} is {value!r}; it takes a number")
            if isinstance(value, int) and not -(2**63) <= value < 2**64:
                raise Refused(f"the constant {name} does not fit into 64 bits")
        for name, least, most in (
            ("num_warps", 1, 32),
            ("num_stages", 1, 16),
            ("capability", 75, 139),
        ):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
                raise Refused(f"{name} is {value!r}; it takes a whole number, {least} to {most}")
        if self.num_warps & (self.num_warps - 1):
            raise Refused(f"num_warps is {self.num_warps}; it takes a power of two")


def parse_request(text: bytes) -> Request:
    if len(text) > REQUEST_BYTES:
        raise Refused(f"the request is longer than {REQUEST_BYTES} bytes")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Refused(f"the request is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise Refused("the request is not a JSON object")
    names = [field.name for field in fields(Request)]
    if missing := [name for name in names if name not in value]:
        raise Refused(f"the request lacks {', '.join(missing)}")
    if unknown := [name for name in value if name not in names]:
        raise Refused(f"the request has unknown fields: {', '.join(unknown)}")
    return Request(**value)


def _define(source: str, tree: ast.Module, checked: Checker) -> dict[str, Any]:
    """The functions of the source as Triton's. Only their `def` statements are executed."""
    import triton  # type: ignore[import-untyped,unused-ignore]
    import triton.language as tl  # type: ignore[import-untyped,unused-ignore]

    # Triton reads the text of a function from here, and parses it itself.
    lines = [f"{line}\n" for line in source.split("\n")]
    linecache.cache[FILE] = (len(source), None, lines, FILE)
    space: dict[str, Any] = {"__name__": MODULE, "__builtins__": {}, "triton": triton, "tl": tl}
    space |= {name: tl.constexpr(value) for name, value in checked.constants.items()}
    definitions: list[ast.stmt] = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    module = ast.Module(body=definitions, type_ignores=[])
    exec(compile(module, FILE, "exec", dont_inherit=True), space)
    for name, node in checked.functions.items():
        bare = ast.FunctionDef(**{**dict(ast.iter_fields(node)), "decorator_list": []})
        if ast.dump(space[name].parse().body[0]) != ast.dump(bare):
            refuse(node, f"Triton reads the text of {name} differently: write it more plainly")
    return space


def _options(function: Any, request: Request) -> tuple[dict[str, str], dict[Any, Any]]:
    """The signature and the attributes that triton.compile takes."""
    constants = [parameter.name for parameter in function.params if parameter.is_constexpr]
    others = [name for name in function.arg_names if name not in constants]
    if len(others) != len(request.arguments):
        raise Refused(
            f"{request.kernel} has {len(others)} parameters that are no tl.constexpr "
            f"({', '.join(others)}), and is given {len(request.arguments)}"
        )
    if set(constants) != set(request.constants):
        raise Refused(
            f"the tl.constexpr parameters of {request.kernel} are {', '.join(constants) or 'none'}"
            f", and values are given for {', '.join(request.constants) or 'none'}"
        )
    types_of = dict(zip(others, request.arguments, strict=True))
    signature = {name: types_of.get(name, "constexpr") for name in function.arg_names}
    attributes = {
        (function.arg_names.index(name),): [["tt.divisibility", 16]]
        for name, aligned in zip(others, request.aligned, strict=True)
        if aligned
    }
    return signature, attributes


def compile_kernel(request: Request) -> dict[str, Any]:
    """The answer to a request; Refused or an exception of Triton's when there is none."""
    source, tree, checked = check_source(request.source)
    if request.kernel not in checked.functions:
        raise Refused(f"the source has no function {request.kernel[:60]}")
    try:
        import triton
        from triton.backends.compiler import (  # type: ignore[import-untyped,unused-ignore]
            GPUTarget,
        )
        from triton.compiler import ASTSource  # type: ignore[import-untyped,unused-ignore]
    except ImportError as error:
        raise Refused(f"Triton is not installed for {sys.executable}: {error}") from None
    space = _define(source, tree, checked)
    function = space[request.kernel]
    signature, attributes = _options(function, request)
    try:
        compiled = triton.compile(
            ASTSource(
                fn=function, signature=signature, constexprs=request.constants, attrs=attributes
            ),
            target=GPUTarget("cuda", request.capability, 32),
            options={"num_warps": request.num_warps, "num_stages": request.num_stages},
        )
    except Exception as error:
        raise Refused(_explain(error, space, checked, source.split("\n"))) from None
    return _answer(compiled, request)


def _answer(compiled: Any, request: Request) -> dict[str, Any]:
    known, ptx = compiled.metadata, compiled.asm["ptx"]
    if len(ptx) > PTX_BYTES:
        raise Refused(f"the PTX has {len(ptx)} bytes; at most {PTX_BYTES} are allowed")
    if known.global_scratch_size or known.profile_scratch_size:
        raise Refused("the kernel needs scratch memory in global memory, which is not supported")
    if known.num_ctas != 1:
        raise Refused("clusters of blocks (num_ctas above 1) are not supported")
    if getattr(known, "tensordesc_meta", None):
        raise Refused("tensor descriptors are not supported: use pointers with tl.load")
    entries = re.findall(r"\.entry\s+(\w+)\s*\(([^)]*)\)([^{]*)\{", ptx)
    if len(entries) != 1 or entries[0][0] != known.name:
        raise Refused("the PTX does not have exactly one entry")
    _, parameters, directives = entries[0]
    count = len(re.findall(r"\.param\b", parameters))
    if count < len(request.arguments):
        raise Refused("the PTX has fewer parameters than the kernel")
    threads = 32 * known.num_warps
    required = re.search(r"\.reqntid\s+(\d+)", directives)
    if required and int(required[1]) != threads:
        raise Refused(f"the PTX requires {required[1]} threads, but Triton reports {threads}")
    return {
        "ok": True,
        "ptx": ptx,
        "entry": known.name,
        "threads": threads,
        "shared_bytes": known.shared,
        "cluster": list(getattr(known, "cluster_dims", (1, 1, 1))),
        "parameters": count,
    }


def _explain(
    error: BaseException, space: dict[str, Any], checked: Checker, lines: list[str]
) -> str:
    """What Triton says, and where in the source; it wraps an error once for every call."""
    begins = {space[name].src: node.lineno for name, node in checked.functions.items()}
    where, said = "", ""
    cause: BaseException | None = error
    while cause is not None:
        source, node = getattr(cause, "src", None), getattr(cause, "node", None)
        if source in begins and isinstance(node, ast.expr | ast.stmt):
            line = begins[source] + node.lineno - 1
            text = lines[line - 1].strip() if line <= len(lines) else ""
            where = f"line {line}, column {node.col_offset + 1}: `{text[:120]}`: "
        if hasattr(cause, "error_message"):
            said = cause.error_message or said
        else:
            said = str(cause) or type(cause).__name__
        cause = cause.__cause__
    if not said and type(error).__name__ == "CompileTimeAssertionFailure":
        said = "the static assertion does not hold"
    if type(error).__name__ == "PTXASError":  # it names a file and repeats itself
        found = re.findall(r"(?:error|fatal)\s*: (.*)", said.split("\nRepro command:")[0])
        told = "; ".join(list(dict.fromkeys(found))[:5]) or said.split("\n")[0]
        said = f"ptxas refuses the PTX: {told}"
    return f"{where}{said or type(error).__name__}"
