"""Remedies for lowerings that unpack, iterate or index a value of the model.

A method of ``ctx.ops`` returns one value unless the caller passes ``outputs``.
"""

from __future__ import annotations

import ast
import linecache
import re
from types import FrameType

import onnx
import onnx_ir as ir

_UNPACKED = re.compile(
    r"cannot unpack non-iterable Value object|'Value' object is not iterable|after \* must be an iterable, not Value"
)

Unpacking = tuple[ast.expr, str, int | None]
"""The unpacked expression, the code for the message, and the number of expected results."""


def find_unpacking(error: Exception, frame: FrameType, instruction: int) -> Unpacking | None:
    """Return what an instruction unpacks.

    Return None for other errors, and if the source is missing.
    """
    if not _UNPACKED.search(str(error)):
        return None
    first, last, start, end = list(frame.f_code.co_positions())[instruction // 2]
    if first is None or last is None or start is None or end is None:
        return None
    source = "".join(linecache.getlines(frame.f_code.co_filename))
    try:
        nodes = [*ast.walk(ast.parse(source))]
    except SyntaxError:
        return None
    enclosing_nodes = (node for node in nodes if _encloses(node, (first, start), (last, end)))
    for node in sorted(enclosing_nodes, key=_start, reverse=True):  # the innermost first
        match node:
            case ast.Assign(targets=[ast.Tuple(elts=names) | ast.List(elts=names)], value=value):
                has_rest = any(isinstance(name, ast.Starred) for name in names)
                return value, ast.unparse(node), None if has_rest else len(names)
            case ast.For(target=target, iter=value):
                return value, f"for {ast.unparse(target)} in {ast.unparse(value)}", None
            case ast.Call(func=ast.Name(id="list" | "tuple" | "enumerate" | "zip" | "iter" | "map"), args=[*_, value]):
                return value, ast.unparse(node), None
            case ast.Call(args=arguments) if starred := [a for a in arguments if isinstance(a, ast.Starred)]:
                return starred[0].value, ast.unparse(node), None
            case ast.ListComp(generators=[loop, *_]) | ast.GeneratorExp(generators=[loop, *_]):
                return loop.iter, ast.unparse(node), None
    return None


def suggest_outputs(value: ast.expr, count: int | None, frame: FrameType) -> str:
    """Return advice on how to emit the several values that the code expects.

    ``count``: the number of these values; None if unknown. The result is empty if there is no advice.
    """
    if not isinstance(value, ast.Name | ast.Call):
        return ""
    number = "n" if count is None else str(count)
    op_type = _op_type(value, frame)
    if op_type is None:
        return f"to split it, write ctx.ops.Split({ast.unparse(value)}, sizes, axis=..., outputs={number})"
    if not _has_several_outputs(op_type):
        return f"{op_type} has one output" if onnx.defs.has(op_type) else ""
    if isinstance(value, ast.Call):
        arguments = [*map(ast.unparse, value.args), *map(ast.unparse, value.keywords), f"outputs={number}"]
        if op_type == "Split" and len(value.args) == 1 and all(k.arg != "num_outputs" for k in value.keywords):
            arguments.insert(1, "sizes")  # newer opsets require them
        operands = ", ".join(arguments)
        return f"to get several outputs, write {ast.unparse(value.func)}({operands})"
    return f"to get several outputs, pass outputs={number} to ctx.ops.{op_type}"


def _encloses(node: ast.AST, start: tuple[int, int], end: tuple[int, int]) -> bool:
    """True if a node's source contains two positions, each a pair of line and column."""
    if not isinstance(node, ast.stmt | ast.expr) or node.end_lineno is None or node.end_col_offset is None:
        return False
    return _start(node) <= start and (node.end_lineno, node.end_col_offset) >= end


def _start(node: ast.AST) -> tuple[int, int]:
    return (node.lineno, node.col_offset) if isinstance(node, ast.stmt | ast.expr) else (0, 0)


def _op_type(value: ast.expr, frame: FrameType) -> str | None:
    """Return the ONNX operator that emits the value of a call or of a variable."""
    match value:
        case ast.Call(func=ast.Attribute(attr=name)):
            return name
        case ast.Name(id=name) if isinstance(variable := frame.f_locals.get(name), ir.Value):
            producer = variable.producer()
            is_operand = name in frame.f_code.co_varnames[: frame.f_code.co_argcount]
            return None if producer is None or is_operand else producer.op_type
    return None


def _has_several_outputs(op_type: str) -> bool:
    return onnx.defs.has(op_type) and onnx.defs.get_schema(op_type).max_output > 1
