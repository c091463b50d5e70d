"""Explanations of errors in lowerings that apply Python or NumPy to values.

Python's and NumPy's own messages do not say what to write instead.
"""

from __future__ import annotations

import ast
import builtins
import linecache
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import BuiltinFunctionType, FrameType, ModuleType
from typing import Any, NoReturn

import onnx
import onnx_ir as ir

from onnx_tflite_plugin.api.ops import Ops
from onnx_tflite_plugin.lowering.context import Context
from onnx_tflite_plugin.lowering.value_unpacking import find_unpacking, suggest_outputs

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
"""ONNX operator of each NumPy function or method whose name in ONNX differs."""

_EMIT_OPERATORS = "emit operators with ctx.ops, such as ctx.ops.Add(x, y)"
_READ_CONSTANT = "if the operand must be a constant, read it with ctx.require_constant(slot)"
_ONLY_DTYPE_AND_SHAPE = "a lowering may read only the dtype and shape of a value"
_NOTHING_TO_EMIT = {
    "ndim": "write len(ctx.shape(slot))",
    "rank": "write len(ctx.shape(slot))",
    "size": "write ctx.shape(slot)",
    "len": "write ctx.shape(slot)",
    "float": _READ_CONSTANT,
    "int": _READ_CONSTANT,
}
"""Remedies for functions and attributes that no ONNX operator replaces."""


_VALUE_CLASS = re.compile(r"'Value'|\bValue (?:object|\.__)|\bof type Value\b|\bto Value\.")
"""Matches mentions of the class ``Value`` in messages of Python and NumPy."""
_OWN_PACKAGES = ("onnx_tflite_plugin", "onnx_ir", "onnx")


class _ArithmeticError(TypeError):
    """Raised if a lowering applies one of Python's operators to a value."""


class _RefusedArithmetic:
    """Implementation of Python's +, -, * and / for values: it raises TypeError."""

    def __getattr__(self, name: str) -> Callable[..., NoReturn]:
        def refuse(*operands: object) -> NoReturn:
            names = ", ".join("xy"[: len(operands)])
            raise _ArithmeticError(f"Python's operators do not work on values; write ctx.ops.{name}({names})")

        return refuse


@contextmanager
def explain_value_misuse() -> Iterator[None]:
    """Explain errors of Python code that computes with values of the model.

    The message names the operator to emit. Other errors pass unchanged.
    """
    previous_handler = ir.set_value_magic_handler(_RefusedArithmetic())
    try:
        yield
    except (TypeError, AttributeError, ValueError) as error:
        location = _failing_frame(error)
        misuse = None if location is None else _describe_misuse(error, *location)
        if misuse is None:
            raise
        code, remedy = misuse
        reason = "because a Value is a tensor of the ONNX model, whose elements exist only at runtime"
        text = f"Python and NumPy cannot compute {code!r}, {reason}{remedy and f'; {remedy}'}"
        original = "" if isinstance(error, _ArithmeticError) else f" ({error})"
        raise TypeError(text + original).with_traceback(error.__traceback__) from error
    finally:
        ir.set_value_magic_handler(previous_handler)


def _describe_misuse(error: Exception, frame: FrameType, instruction: int) -> tuple[str, str] | None:
    """Return the code that computes with a value, and advice; None for other errors."""
    if unpacking := find_unpacking(error, frame, instruction):
        value, code, count = unpacking
        return (code, suggest_outputs(value, count, frame)) if _refers_to_value(value, frame) else None
    expression = _find_expression(frame, instruction)
    if expression is None or not _is_misuse(error, expression, frame):
        return None
    return ast.unparse(expression), _find_remedy(expression, frame)


def _failing_frame(error: Exception) -> tuple[FrameType, int] | None:
    """Return the frame that called Python or NumPy, and the index of its instruction.

    Return None if the converter raised the error.
    """
    frames, trace = [], error.__traceback__
    while trace is not None:
        frames.append((trace.tb_frame, trace.tb_lasti))
        trace = trace.tb_next
    if isinstance(error, _ArithmeticError):
        frames.pop()  # the frame of ``refuse``
    called_package = "onnx_ir" if isinstance(error, _ArithmeticError) else "numpy"
    while frames and _package(frames[-1][0]) == called_package:
        frames.pop()
    return frames[-1] if frames and _package(frames[-1][0]) not in _OWN_PACKAGES else None


def _package(frame: FrameType) -> str:
    """Return the top-level package of a frame's module."""
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def _is_misuse(error: Exception, expression: ast.expr, frame: FrameType) -> bool:
    """True if Python or NumPy failed because an operand is a value of the model."""
    if isinstance(error, _ArithmeticError):
        return True
    if _VALUE_CLASS.search(str(error)):
        return _refers_to_value(expression, frame)
    if not isinstance(expression, ast.Call) or not _calls_builtin(expression.func, frame):
        return False
    arguments = [*expression.args, *(keyword.value for keyword in expression.keywords)]
    return any(_is_value(argument, frame) for argument in _flatten(arguments))


def _refers_to_value(expression: ast.expr, frame: FrameType) -> bool:
    """True if an expression refers to a value of the model, or to the context."""
    return any(_is_value(node, frame) or _is_context(node, frame) for node in ast.walk(expression))


def _is_context(node: ast.AST, frame: FrameType) -> bool:
    return isinstance(node, ast.Name) and isinstance(frame.f_locals.get(node.id), Ops | Context)


def _is_value(node: ast.AST, frame: FrameType) -> bool:
    """True for a variable that is a value of the model."""
    return isinstance(node, ast.Name) and isinstance(frame.f_locals.get(node.id), ir.Value)


def _calls_builtin(function: ast.expr, frame: FrameType) -> bool:
    """True if an expression names a builtin function or class, or a function of NumPy."""
    names: list[str] = []
    while isinstance(function, ast.Attribute):
        names.insert(0, function.attr)
        function = function.value
    if not isinstance(function, ast.Name):
        return False
    callee: Any = next(
        (
            namespace[function.id]
            for namespace in (frame.f_locals, frame.f_globals, vars(builtins))
            if function.id in namespace
        ),
        None,
    )
    for name in names:
        if not isinstance(callee, ModuleType):
            return False
        callee = getattr(callee, name, None)
    module = str(getattr(callee, "__module__", None) or type(callee).__module__).partition(".")[0]
    is_builtin = module == "builtins" and isinstance(callee, BuiltinFunctionType | type)
    return is_builtin or module == "numpy"


def _find_expression(frame: FrameType, instruction: int) -> ast.expr | None:
    """Return the expression that an instruction computes; None if it has no source."""
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


def _find_remedy(expression: ast.expr, frame: FrameType) -> str:
    """Return the advice for an expression, such as the call that emits its operator."""
    match expression:
        case ast.BinOp(left=left, op=operator, right=right):
            return _suggest(_OPERATORS.get(type(operator)), left, right)
        case ast.Compare(left=left, ops=[operator, *_], comparators=[right, *_]):
            return _suggest(_OPERATORS.get(type(operator)), left, right)
        case ast.UnaryOp(op=operator, operand=operand):
            return _suggest(_OPERATORS.get(type(operator)), operand)
        case ast.Subscript(value=array):
            elements = f"write ctx.ops.Gather({ast.unparse(array)}, index, axis=...) or ctx.ops.Slice(...)"
            outputs = suggest_outputs(array, None, frame)
            return f"{outputs}; to get elements, {elements}" if outputs.startswith("to get") else elements
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=arguments):
            return _NOTHING_TO_EMIT.get(name) or _suggest(_operator_of_function(name), *_flatten(arguments))
        case ast.Attribute(value=value, attr=name):
            op_type = _operator_of_function(name)
            return _NOTHING_TO_EMIT.get(name) or (
                f"write ctx.ops.{op_type}({ast.unparse(value)}, ...)" if op_type else _ONLY_DTYPE_AND_SHAPE
            )
        case ast.Name() | ast.ListComp() | ast.GeneratorExp():
            return _READ_CONSTANT
    return _EMIT_OPERATORS


def _operator_of_function(name: str) -> str | None:
    """Return the ONNX operator of a NumPy function or a method; None if there is none."""
    operators = {schema.name.lower(): schema.name for schema in onnx.defs.get_all_schemas() if not schema.domain}
    return _FUNCTIONS.get(name) or operators.get(name.replace("_", ""))


def _suggest(op_type: str | None, *operands: ast.expr) -> str:
    """Return the code that emits an operator. Numbers get the dtype of operand 0."""
    if op_type is None:
        return _EMIT_OPERATORS
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
    is_number = isinstance(number, ast.Constant) and isinstance(number.value, int | float)
    return f"ctx.scalar({text})" if is_number else text
