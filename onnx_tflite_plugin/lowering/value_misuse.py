"""Messages on Python and NumPy code that computes with values of the model.

The error that Python or NumPy raises does not say what to write instead.
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

import onnx
import onnx_ir as ir

_OPERATORS: dict[type[ast.AST], str] = {
    ast.Add: "Add",
    ast.Sub: "Sub",
    ast.Mult: "Mul",
    ast.Div: "Div",
    ast.Mod: "Mod",
    ast.Pow: "Pow",
    ast.MatMult: "MatMul",
    ast.Gt: "Greater",
    ast.GtE: "GreaterOrEqual",
    ast.Lt: "Less",
    ast.LtE: "LessOrEqual",
    ast.BitAnd: "And",
    ast.BitOr: "Or",
    ast.BitXor: "Xor",
    ast.Invert: "Not",
    ast.USub: "Neg",
}
"""ONNX operator of each operator of Python."""

_FUNCTIONS = {
    "absolute": "Abs",
    "add": "Add",
    "any": "ReduceMax",
    "all": "ReduceMin",
    "argmax": "ArgMax",
    "argmin": "ArgMin",
    "astype": "Cast",
    "concatenate": "Concat",
    "cumsum": "CumSum",
    "divide": "Div",
    "dot": "MatMul",
    "max": "Max",
    "maximum": "Max",
    "mean": "ReduceMean",
    "min": "Min",
    "minimum": "Min",
    "multiply": "Mul",
    "negative": "Neg",
    "power": "Pow",
    "prod": "ReduceProd",
    "rint": "Round",
    "repeat": "Tile",
    "subtract": "Sub",
    "sum": "ReduceSum",
    "T": "Transpose",
}
"""ONNX operator of each NumPy function and method whose name differs in more than capitals."""

_EXAMPLE = "emit operators with ctx.ops, such as ctx.ops.Add(x, y)"
_RUNTIME = "if the operand must be a constant, read it with ctx.require_constant(slot)"
_READABLE = "a lowering may read only the dtype and shape of a value"
_NOTHING_TO_EMIT = {
    "ndim": "write len(ctx.shape(slot))",
    "rank": "write len(ctx.shape(slot))",
    "size": "write ctx.shape(slot)",
    "len": "write ctx.shape(slot)",
    "float": _RUNTIME,
    "int": _RUNTIME,
}
"""Remedies for functions and attributes that no ONNX operator replaces."""


@contextmanager
def explain_value_misuse() -> Iterator[None]:
    """Let errors of Python code on a value of the model name the operator to emit."""
    try:
        yield
    except (TypeError, AttributeError, ValueError) as error:
        location = _failing_frame(error.__traceback__)
        expression = None if location is None else _find_expression(*location)
        if location is None or expression is None or not _uses_value(expression, location[0]):
            raise
        code, remedy = ast.unparse(expression), _find_remedy(expression)
        text = f"Python and NumPy cannot compute {code!r}, because values of the model exist only at runtime; {remedy}"
        raise TypeError(text).with_traceback(error.__traceback__) from error


def _failing_frame(trace: TracebackType | None) -> tuple[FrameType, int] | None:
    """Return the frame that called Python or NumPy, and the index of its instruction.

    Return None if the converter raised the error.
    """
    frames = []
    while trace is not None:
        frames.append((trace.tb_frame, trace.tb_lasti))
        trace = trace.tb_next
    while frames and str(frames[-1][0].f_globals.get("__name__", "")).partition(".")[0] == "numpy":
        frames.pop()
    is_converter_code = bool(frames) and frames[-1][0].f_globals.get("__name__", "").startswith("onnx_")
    return frames[-1] if frames and not is_converter_code else None


def _find_expression(frame: FrameType, instruction: int) -> ast.expr | None:
    """Return the expression that an instruction computes; None without its source."""
    positions = list(frame.f_code.co_positions())[instruction // 2]
    first, last, start, end = positions
    if first is None or last is None or start is None or end is None:
        return None
    lines = [linecache.getline(frame.f_code.co_filename, number).encode() for number in range(first, last + 1)]
    lines[-1] = lines[-1][:end]
    lines[0] = lines[0][start:]
    try:
        return ast.parse(f"({b''.join(lines).decode()})", mode="eval").body
    except (SyntaxError, UnicodeDecodeError):
        return None


def _uses_value(expression: ast.expr, frame: FrameType) -> bool:
    """True if a variable of the expression is a value of the model."""
    names = (node.id for node in ast.walk(expression) if isinstance(node, ast.Name))
    return any(isinstance(frame.f_locals.get(name), ir.Value) for name in names)


def _find_remedy(expression: ast.expr) -> str:
    """Return the advice for an expression, such as the call that emits its operator."""
    match expression:
        case ast.BinOp(left=left, op=operator, right=right):
            return _suggest(_OPERATORS.get(type(operator)), left, right)
        case ast.Compare(left=left, ops=[operator, *_], comparators=[right, *_]):
            return _suggest(_OPERATORS.get(type(operator)), left, right)
        case ast.UnaryOp(op=operator, operand=operand):
            return _suggest(_OPERATORS.get(type(operator)), operand)
        case ast.Subscript(value=array):
            return f"write ctx.ops.Gather({ast.unparse(array)}, index, axis=...) or ctx.ops.Slice(...)"
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=arguments):
            return _NOTHING_TO_EMIT.get(name) or _suggest(_operator_of_function(name), *_flatten(arguments))
        case ast.Attribute(value=value, attr=name):
            op_type = _operator_of_function(name)
            return _NOTHING_TO_EMIT.get(name) or (
                f"write ctx.ops.{op_type}({ast.unparse(value)}, ...)" if op_type else _READABLE
            )
        case ast.Name() | ast.ListComp() | ast.GeneratorExp():
            return _RUNTIME
    return _EXAMPLE


def _operator_of_function(name: str) -> str | None:
    """Return the ONNX operator of a NumPy function or a method; None if there is none."""
    operators = {schema.name.lower(): schema.name for schema in onnx.defs.get_all_schemas() if not schema.domain}
    return _FUNCTIONS.get(name) or operators.get(name.replace("_", ""))


def _suggest(op_type: str | None, *operands: ast.expr) -> str:
    """Return the code that emits an operator. Numbers get the dtype of operand 0."""
    if op_type is None:
        return _EXAMPLE
    return f"write ctx.ops.{op_type}({', '.join(map(_format_operand, operands))})"


def _flatten(operands: Sequence[ast.expr]) -> Iterator[ast.expr]:
    """Yield the operands of a function, and the elements of an operand that is a list."""
    for operand in operands:
        yield from operand.elts if isinstance(operand, ast.List | ast.Tuple) else (operand,)


def _format_operand(operand: ast.expr) -> str:
    number: Any = operand
    while isinstance(number, ast.UnaryOp):
        number = number.operand
    text = ast.unparse(operand)
    return f"ctx.scalar({text})" if isinstance(number, ast.Constant) else text
