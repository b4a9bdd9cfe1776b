"""The check of a kernel's source: every node of its tree is known to be harmless."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable
from typing import Any, NoReturn

from .allowed import (
    COMPARISONS,
    DIRECTIVE,
    INFINITE,
    LOOPS,
    MATH_CALLS,
    METHODS,
    NAME,
    OPERATORS,
    PROPERTIES,
    RESERVED,
    TAKE_FUNCTIONS,
    TEXT,
    TEXTS,
    TL_CALLS,
    TL_VALUES,
)

DEPTH = 200  # of the syntax tree
FILE = "kernel.py"  # what Triton calls the source in its messages


class Refused(Exception):
    """Said to the author of the kernel, who can do something about it."""


def refuse(node: ast.AST, why: str) -> NoReturn:
    line, column = getattr(node, "lineno", None), getattr(node, "col_offset", 0)
    raise Refused(why if line is None else f"line {line}, column {column + 1}: {why}")


def _is_name(node: ast.AST | None, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _tl(node: ast.AST | None) -> str | None:
    """NAME of tl.NAME."""
    return node.attr if isinstance(node, ast.Attribute) and _is_name(node.value, "tl") else None


def _check_depth(tree: ast.AST) -> None:
    level: list[ast.AST] = [tree]
    for _ in range(DEPTH):
        if not level:
            return
        level = [child for node in level for child in ast.iter_child_nodes(node)]
    refuse(level[0] if level else tree, f"the source is nested more than {DEPTH} levels deep")


class Checker:
    """Refuses a module unless all its nodes are known to be harmless."""

    functions: dict[str, ast.FunctionDef]
    constants: dict[str, int | float | bool]

    def __init__(self, tree: ast.Module) -> None:
        self.functions, self.constants = {}, {}
        self._known: set[str] = set()  # names of the function that is being checked
        _check_depth(tree)
        self._statements: dict[type[ast.AST], Callable[[Any], None]] = {
            ast.AnnAssign: self._annotated,
            ast.Assign: self._assign,
            ast.AugAssign: self._augmented,
            ast.Expr: self._expression_statement,
            ast.For: self._for,
            ast.If: self._if,
            ast.Pass: lambda node: None,
            ast.Return: self._return,
            ast.While: self._while,
        }
        self._values: dict[type[ast.AST], Callable[[Any], None]] = {
            ast.Attribute: self._attribute,
            ast.BinOp: self._binary,
            ast.BoolOp: lambda node: self._all(node.values),
            ast.Call: self._call,
            ast.Compare: self._compare,
            ast.Constant: self._constant,
            ast.IfExp: lambda node: self._all([node.test, node.body, node.orelse]),
            ast.List: self._sequence,
            ast.Name: self._name,
            ast.Slice: self._slice,
            ast.Subscript: self._subscript,
            ast.Tuple: self._sequence,
            ast.UnaryOp: lambda node: self._value(node.operand),
        }
        for index, node in enumerate(tree.body):
            self._module_level(node, first=index == 0)
        for function in self.functions.values():
            self._function(function)

    # Module level.

    def _module_level(self, node: ast.stmt, first: bool) -> None:
        if isinstance(node, ast.FunctionDef):
            self._new_name(node, node.name)
            self.functions[node.name] = node
        elif isinstance(node, ast.Import):
            names = [(alias.name, alias.asname) for alias in node.names]
            if names not in ([("triton", None)], [("triton.language", "tl")]):
                refuse(node, "only `import triton` and `import triton.language as tl` are allowed")
        elif isinstance(node, ast.Assign):
            if len(node.targets) != 1 or not isinstance(node.targets[0], ast.Name):
                refuse(node, "a constant of the module is NAME = number")
            self._new_name(node, node.targets[0].id)
            self.constants[node.targets[0].id] = self._number(node.value)
        elif not (first and self._is_text(node)):
            what = type(node).__name__
            refuse(
                node,
                f"{what} is not allowed at module level: only the imports of triton and "
                "triton.language, constants (NAME = number) and @triton.jit functions",
            )

    def _new_name(self, node: ast.AST, name: str) -> None:
        self._check_name(node, name)
        if name in self.functions or name in self.constants:
            refuse(node, f"{name} is defined twice")

    def _number(self, node: ast.expr) -> int | float | bool:
        if isinstance(node, ast.Call) and _tl(node.func) == "constexpr":
            if len(node.args) == 1 and not node.keywords:
                return self._number(node.args[0])
        elif isinstance(node, ast.Call) and self._is_float_of_text(node):
            return float(node.args[0].value)  # type: ignore[attr-defined]
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -self._number(node.operand)
        elif isinstance(node, ast.Constant) and type(node.value) in (int, float, bool):
            return node.value  # type: ignore[return-value]
        refuse(node, "a constant of the module is a number or tl.constexpr(number)")

    @staticmethod
    def _is_text(node: ast.stmt) -> bool:
        return (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        )

    @staticmethod
    def _check_name(node: ast.AST, name: str) -> None:
        if not NAME.fullmatch(name) or name.startswith("__"):
            refuse(node, f"the name {name[:60]!r} is not allowed")
        if name in RESERVED:
            refuse(node, f"{name} has a meaning of its own: take another name")

    def _function(self, node: ast.FunctionDef) -> None:
        decorators = node.decorator_list
        if not (
            len(decorators) == 1
            and isinstance(decorators[0], ast.Attribute)
            and decorators[0].attr == "jit"
            and _is_name(decorators[0].value, "triton")
        ):
            refuse(node, f"{node.name} needs exactly one decorator, @triton.jit without arguments")
        taken = node.args
        if taken.vararg or taken.kwarg or taken.kwonlyargs or taken.posonlyargs:
            refuse(node, f"{node.name} takes plain parameters only, no * and no /")
        if taken.defaults or taken.kw_defaults:
            refuse(taken.defaults[0], f"{node.name} has a parameter with a default")
        if node.returns is not None or getattr(node, "type_params", []):
            refuse(node, f"{node.name} has an annotation of its result or type parameters")
        for argument in taken.args:
            if argument.annotation is not None and _tl(argument.annotation) != "constexpr":
                refuse(argument, "a parameter has no annotation but tl.constexpr")
            self._local(argument, argument.arg)
        self._known = {argument.arg for argument in taken.args} | set(self.constants)
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                self._local(inner, inner.id)
                self._known.add(inner.id)
        self._block(node.body[1:] if self._is_text(node.body[0]) else node.body)

    def _local(self, node: ast.AST, name: str) -> None:
        self._check_name(node, name)
        if name in self.functions:
            refuse(node, f"{name} is a function: take another name")

    # Statements.

    def _block(self, body: list[ast.stmt]) -> None:
        for node in body:
            check = self._statements.get(type(node))
            if check is None:
                refuse(node, f"{type(node).__name__} is not allowed in a kernel")
            check(node)

    def _target(self, node: ast.expr) -> None:
        if isinstance(node, ast.Tuple):
            for element in node.elts:
                self._target(element)
        elif not isinstance(node, ast.Name):
            refuse(node, "only names can be assigned to; tl.store writes to memory")

    def _assign(self, node: ast.Assign) -> None:
        if len(node.targets) != 1:
            refuse(node, "only one target can be assigned to at a time")
        self._target(node.targets[0])
        self._value(node.value)

    def _augmented(self, node: ast.AugAssign) -> None:
        if not isinstance(node.target, ast.Name) or not isinstance(node.op, OPERATORS):
            refuse(node, "this assignment is not allowed in a kernel")
        self._value(node.value)

    def _annotated(self, node: ast.AnnAssign) -> None:
        if not isinstance(node.target, ast.Name) or _tl(node.annotation) != "constexpr":
            refuse(node, "a variable has no annotation but tl.constexpr")
        if node.value is None:
            refuse(node, "a tl.constexpr needs a value")
        self._value(node.value)

    def _expression_statement(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Call):
            refuse(node, "only a call can stand alone")
        self._call(node.value)

    def _if(self, node: ast.If) -> None:
        self._value(node.test)
        self._block(node.body)
        self._block(node.orelse)

    def _while(self, node: ast.While) -> None:
        if node.orelse:
            refuse(node, "a loop has no else in a kernel")
        self._value(node.test)
        self._block(node.body)

    def _for(self, node: ast.For) -> None:
        if node.orelse:
            refuse(node, "a loop has no else in a kernel")
        if not isinstance(node.target, ast.Name) or not isinstance(node.iter, ast.Call):
            refuse(node, "a loop is `for name in range(...)`, tl.range or tl.static_range")
        called = node.iter.func
        name = called.id if isinstance(called, ast.Name) else f"tl.{_tl(called)}"
        if name not in LOOPS:
            refuse(node.iter, "a loop goes over range, tl.range or tl.static_range")
        self._arguments(node.iter, name)
        self._block(node.body)

    def _return(self, node: ast.Return) -> None:
        if node.value is not None:
            self._value(node.value)

    # Values.

    def _value(self, node: ast.expr) -> None:
        check = self._values.get(type(node))
        if check is None:
            refuse(node, f"{type(node).__name__} is not allowed in a kernel")
        check(node)

    def _all(self, nodes: list[ast.expr]) -> None:
        for node in nodes:
            self._value(node)

    def _sequence(self, node: ast.Tuple | ast.List) -> None:
        self._all(node.elts)

    def _binary(self, node: ast.BinOp) -> None:
        if not isinstance(node.op, OPERATORS):
            refuse(node, f"the operator {type(node.op).__name__} is not allowed in a kernel")
        self._all([node.left, node.right])

    def _compare(self, node: ast.Compare) -> None:
        if len(node.ops) != 1 or not isinstance(node.ops[0], COMPARISONS):
            refuse(node, "a comparison has two sides and one of == != < <= > >= is")
        self._all([node.left, node.comparators[0]])

    def _constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str):
            refuse(node, "a text is not allowed here")
        if node.value is not None and type(node.value) not in (int, float, bool):
            refuse(node, f"a constant of type {type(node.value).__name__} is not allowed")

    def _name(self, node: ast.Name) -> None:
        if not isinstance(node.ctx, ast.Load):
            refuse(node, "this assignment is not allowed in a kernel")
        if node.id not in self._known:
            kind = "not a value" if node.id in RESERVED | set(self.functions) else "not defined"
            refuse(node, f"{node.id[:60]} is {kind}")

    def _slice(self, node: ast.Slice) -> None:
        self._all([part for part in (node.lower, node.upper, node.step) if part is not None])

    def _subscript(self, node: ast.Subscript) -> None:
        if not isinstance(node.ctx, ast.Load):
            refuse(node, "only names can be assigned to; tl.store writes to memory")
        self._all([node.value, node.slice])

    def _attribute(self, node: ast.Attribute) -> None:
        """One that is not called."""
        if not isinstance(node.ctx, ast.Load):
            refuse(node, "only names can be assigned to")
        name = _tl(node)
        if name is not None:
            if name not in TL_VALUES:
                refuse(node, f"tl.{name[:60]} is not allowed as a value")
        elif _tl(node.value) == "PropagateNan":
            if node.attr not in ("ALL", "NONE"):
                refuse(node, "tl.PropagateNan has ALL and NONE")
        elif node.attr not in PROPERTIES:
            refuse(node, f"the attribute {node.attr[:60]} is not allowed")
        else:
            self._value(node.value)

    @staticmethod
    def _is_float_of_text(node: ast.Call) -> bool:
        """float("inf"), the usual way to write it."""
        return (
            _is_name(node.func, "float")
            and len(node.args) == 1
            and not node.keywords
            and isinstance(node.args[0], ast.Constant)
            and isinstance(node.args[0].value, str)
            and INFINITE.fullmatch(node.args[0].value) is not None
        )

    def _call(self, node: ast.Call) -> None:
        called = node.func
        if isinstance(called, ast.Name):
            if called.id == "float":
                if not self._is_float_of_text(node):
                    refuse(node, 'float takes "inf", "-inf" or "nan"; .to(tl.float32) converts')
                return
            if called.id not in self.functions and called.id not in ("min", "max"):
                refuse(node, f"{called.id[:60]} cannot be called in a kernel")
            self._arguments(node, called.id)
            return
        if not isinstance(called, ast.Attribute):
            refuse(node, "this call is not allowed in a kernel")
        name = _tl(called)
        if name is not None:
            if name.endswith("tensor_descriptor"):
                refuse(node, "tensor descriptors are not supported: use pointers with tl.load")
            if name not in TL_CALLS:
                refuse(node, f"tl.{name[:60]} cannot be called in a kernel")
        elif _tl(called.value) == "math":
            if called.attr not in MATH_CALLS:
                refuse(node, f"tl.math.{called.attr[:60]} cannot be called in a kernel")
        elif called.attr not in METHODS:
            refuse(node, f"the method {called.attr[:60]} cannot be called in a kernel")
        else:
            self._value(called.value)
        self._arguments(node, f"tl.{name}" if name is not None else f".{called.attr}")

    def _arguments(self, node: ast.Call, called: str) -> None:
        for index, value in enumerate(node.args):
            self._argument(value, called, index)
        for keyword in node.keywords:
            if keyword.arg is None or keyword.arg.startswith("_"):
                refuse(keyword.value, "this keyword argument is not allowed")
            self._argument(keyword.value, called, keyword.arg)

    def _argument(self, node: ast.expr, called: str, place: int | str) -> None:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if called == "tl.inline_asm_elementwise":
                if DIRECTIVE.search(node.value) or "\0" in node.value:
                    refuse(node, "inline assembly cannot have directives of a module")
                return
            if called == "tl.static_assert" and place in (1, "msg") and len(node.value) < 500:
                return
            if place in TEXTS and called not in self.functions and TEXT.fullmatch(node.value):
                return
        if isinstance(node, ast.Name) and node.id in self.functions:
            if called.removeprefix("tl.") in TAKE_FUNCTIONS and called.startswith("tl."):
                return
        self._value(node)


def check_source(source: str) -> tuple[str, ast.Module, Checker]:
    """The text with plain line ends, its tree and what the tree defines; else Refused."""
    source = source.replace("\r\n", "\n")
    if any(ord(letter) < 32 and letter not in "\n\t" for letter in source):
        raise Refused("the source has control characters")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source, FILE)
    except SyntaxError as error:
        raise Refused(f"line {error.lineno}: {error.msg}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise Refused(f"the source cannot be parsed: {error or type(error).__name__}") from None
    return source, tree, Checker(tree)
