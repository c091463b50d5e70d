"""Messages on lowerings that compute with values in Python or NumPy.

They name the expression, and the operator to emit.
"""

from __future__ import annotations

import linecache
from pathlib import Path
from typing import Any

import pytest

from conformance.models import tensor
from conformance.one import convert_one
from onnx_tflite_plugin.api import Context, Transparent, Value, handler
from onnx_tflite_plugin.errors import HandlerError

REASON = "because a Value is a tensor of the ONNX model, whose elements exist only at runtime"


def refuse(lower: Any) -> str:
    """Return the message on a lowering that fails."""
    wrong_handler = handler("CUSTOM.Wrong", max_version=1, layout=Transparent())(lower)
    with pytest.raises(HandlerError) as caught:
        convert_one(wrong_handler, [tensor(2, 3)], show=False)
    return str(caught.value)


def compile_lowering(expression: str, folder: Path, module: str = "author") -> Any:
    """Return a lowering that computes an expression, in a file of the folder."""
    return compile_statement(f"return {expression}", folder, module)


def compile_statement(statement: str, folder: Path, module: str = "author") -> Any:
    """Return a lowering of these statements, in a file of the folder."""
    file, space = folder / "wrong.py", dict[str, Any](__name__=module)
    file.write_text(f"import numpy as np\n\n\ndef lower(ctx, x):\n    {statement}\n", encoding="utf-8")
    linecache.checkcache(str(file))
    exec(compile(file.read_text(encoding="utf-8"), str(file), "exec"), space)
    return space["lower"]


@pytest.mark.parametrize(
    ("expression", "remedy"),
    [
        ("x > 0", "write ctx.ops.Greater(x, ctx.scalar(0))"),
        ("x * 2", "write ctx.ops.Mul(x, ctx.scalar(2))"),
        ("x ** 2", "write ctx.ops.Pow(x, ctx.scalar(2))"),
        ("~x", "write ctx.ops.Not(x)"),
        ("abs(x)", "write ctx.ops.Abs(x)"),
        ("np.exp(x)", "write ctx.ops.Exp(x)"),
        ("np.maximum(x, -1)", "write ctx.ops.Max(x, ctx.scalar(-1))"),
        ("np.concatenate([x, x])", "write ctx.ops.Concat(x, x)"),
        ("x.mean", "write ctx.ops.ReduceMean(x, ...)"),
        ("x.ndim", "write len(ctx.shape(slot))"),
        ("x[0]", "write ctx.ops.Gather(x, index, axis=...) or ctx.ops.Slice(...)"),
        ("float(x)", "if the operand must be a constant, read it with ctx.require_constant(slot)"),
        ("x // 2", "emit operators with ctx.ops, such as ctx.ops.Add(x, y)"),
        ("x.unheard_of", "a lowering may read only the dtype and shape of a value"),
    ],
)
def test_expression_on_a_value_is_quoted_with_its_operator(expression: str, remedy: str, tmp_path: Path) -> None:
    message = refuse(compile_lowering(expression, tmp_path))
    assert f"Python and NumPy cannot compute {expression!r}, {REASON}; {remedy}" in message
    assert f", at {tmp_path / 'wrong.py'}:5 in lower" in message


@pytest.mark.parametrize(
    ("statement", "code", "remedy"),
    [
        (
            "a, b = ctx.ops.Split(x, axis=-1)",
            "a, b = ctx.ops.Split(x, axis=-1)",
            "; to get several outputs, write ctx.ops.Split(x, sizes, axis=-1, outputs=2) (cannot unpack",
        ),
        (
            "y, mask = ctx.ops.Dropout(x)",
            "y, mask = ctx.ops.Dropout(x)",
            "; to get several outputs, write ctx.ops.Dropout(x, outputs=2) (cannot unpack",
        ),
        (
            "y = ctx.ops.Dropout(x)\n    return y[1]",
            "y[1]",
            "; to get several outputs, pass outputs=n to ctx.ops.Dropout; to get elements, write ctx.ops.Gather(y, index",
        ),
        ("a, b = ctx.ops.Relu(x)", "a, b = ctx.ops.Relu(x)", "; Relu has one output (cannot unpack"),
        ("a, b = x", "a, b = x", "; to split it, write ctx.ops.Split(x, sizes, axis=..., outputs=2) (cannot"),
        ("(a, b), c = x, 1", "(a, b), c = (x, 1)", " (cannot unpack"),
        (
            "for row in x:\n        pass",
            "for row in x",
            "; to split it, write ctx.ops.Split(x, sizes, axis=..., outputs=n) (",
        ),
        ("ctx.ops.Add(*x)", "ctx.ops.Add(*x)", "; to split it, write ctx.ops.Split(x, sizes, axis=..., outputs=n) ("),
        ("list(x)", "list(x)", "; to split it, write ctx.ops.Split(x, sizes, axis=..., outputs=n) ("),
    ],
)
def test_unpacked_value_has_the_call_with_outputs(statement: str, code: str, remedy: str, tmp_path: Path) -> None:
    message = refuse(compile_statement(statement, tmp_path))
    assert f"Python and NumPy cannot compute {code!r}, {REASON}{remedy}" in message
    assert f", at {tmp_path / 'wrong.py'}:{6 if 'return' in statement else 5} in lower" in message


def test_unpacked_number_is_reported_unchanged(tmp_path: Path) -> None:
    message = refuse(compile_statement("a, b = 3", tmp_path))
    assert "TypeError: cannot unpack non-iterable int object, at " in message


@pytest.mark.parametrize(
    ("expression", "original"),
    [
        ("ctx.absent(x, 3) if 0 else (lambda y: y)(x, 3)", "takes 1 positional argument but 2 were given"),
        ("('a', 'b').index(x.dtype.name)", "ValueError: tuple.index(x): x not in tuple"),
        ("float(x.name)", "ValueError: could not convert string to float"),
        ("np.zeros(x.name)", "TypeError: "),
    ],
)
def test_error_of_an_expression_about_a_value_is_kept(expression: str, original: str, tmp_path: Path) -> None:
    message = refuse(compile_lowering(expression, tmp_path))
    assert original in message
    assert "cannot compute" not in message


@pytest.mark.parametrize("module", ["author", "onnx_tflite_audio.speech"])
def test_explanation_of_any_pack_contains_the_original_error(module: str, tmp_path: Path) -> None:
    message = refuse(compile_lowering("abs(x)", tmp_path, module))
    assert "write ctx.ops.Abs(x) (bad operand type for abs(): 'Value'), at " in message


def test_error_without_a_value_is_reported_unchanged() -> None:
    def lower(ctx: Context, x: Value) -> Value:
        return ctx.ops.Identity(x) if abs("text") else x  # type: ignore[arg-type]

    assert "TypeError: bad operand type for abs(): 'str'" in refuse(lower)


def test_array_of_values_is_no_result() -> None:
    def lower(ctx: Context, x: Value) -> Any:
        import numpy as np

        return np.asarray(x)

    assert (
        "a ndarray for output 0, not a value; a NumPy function was applied to an ONNX value; use ctx.ops instead"
        in refuse(lower)
    )


@pytest.mark.parametrize(("name", "remedy"), [("op_s", "did you mean 'ops'?"), ("Abs", "write ctx.ops.Abs(...)")])
def test_unknown_member_of_the_context_has_a_remedy(name: str, remedy: str) -> None:
    assert f"has no attribute {name!r}; {remedy}" in refuse(lambda ctx, x: getattr(ctx, name))
