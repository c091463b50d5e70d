"""Operators as methods of ``ctx.ops``: one output or several, and wrong names."""

from __future__ import annotations

from copy import copy
from typing import Any

import pytest

from onnx_tflite_plugin.api import builtin
from onnx_tflite_plugin.api.ops import Ops


def ops_with_outputs(count: int) -> Ops:
    """Return an object whose operators all return this many values."""
    return Ops(lambda op_type, *arguments: [op_type] * count)  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize(
    ("count", "outputs", "expected"),
    [(1, None, "Abs"), (1, 1, ("Abs",)), (2, None, ("Abs", "Abs")), (2, 2, ("Abs", "Abs"))],
)
def test_single_output_is_a_tuple_only_if_outputs_is_given(count: int, outputs: int | None, expected: Any) -> None:
    assert ops_with_outputs(count).Abs("x", outputs=outputs) == expected


def test_underscore_names_are_not_operators() -> None:
    with pytest.raises(AttributeError, match="_repr_html_"):
        _ = ops_with_outputs(1)._repr_html_
    assert copy(ops_with_outputs(1)).Abs("x") == "Abs"


def test_domain_selects_operators_of_another_domain() -> None:
    calls: list[Any] = []
    ops = Ops(lambda *arguments: calls.append(arguments) or ["y"])  # type: ignore[arg-type, func-returns-value, return-value]
    ops.domain("com.microsoft").Gelu("x", alpha=2)
    ops.Abs("x")
    assert calls == [("Gelu", ("x",), {"alpha": 2}, None, "com.microsoft"), ("Abs", ("x",), {}, None, "")]


def test_builtin_raises_lookup_error_for_an_unknown_code() -> None:
    assert builtin("ABS").code == "ABS"
    with pytest.raises(LookupError, match=r"there is no built-in handler 'ABSS'; did you mean 'ABS'\?"):
        builtin("ABSS")
    with pytest.raises(LookupError, match=r"there is no built-in handler 'CUSTOM\.Nobody'"):
        builtin("CUSTOM.Nobody")
