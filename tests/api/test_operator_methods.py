"""Operators as methods: one value or several, and no operator for what Python asks of an object."""

from __future__ import annotations

from copy import copy
from typing import Any

import pytest

from onnx_tflite_plugin.api import builtin
from onnx_tflite_plugin.api.ops import Ops


def emitting(count: int) -> Ops:
    """Whatever operator is requested gives so many values."""
    return Ops(lambda op_type, *given: [op_type] * count)  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize(
    ("count", "asked", "given"), [(1, None, "Abs"), (1, 1, ("Abs",)), (2, None, ("Abs", "Abs")), (2, 2, ("Abs", "Abs"))]
)
def test_one_value_is_no_tuple_unless_a_number_was_asked_for(count: int, asked: int | None, given: Any) -> None:
    assert emitting(count).Abs("x", outputs=asked) == given


def test_names_that_begin_with_an_underscore_are_no_operators() -> None:
    with pytest.raises(AttributeError, match="_repr_html_"):
        _ = emitting(1)._repr_html_
    assert copy(emitting(1)).Abs("x") == "Abs"


def test_an_operator_of_another_domain_is_asked_for_with_it() -> None:
    asked: list[Any] = []
    ops = Ops(lambda *given: asked.append(given) or ["y"])  # type: ignore[arg-type, func-returns-value, return-value]
    ops.domain("com.microsoft").Gelu("x", alpha=2)
    ops.Abs("x")
    assert asked == [("Gelu", ("x",), {"alpha": 2}, None, "com.microsoft"), ("Abs", ("x",), {}, None, "")]


def test_what_no_built_in_handler_serves_is_a_lookup_error() -> None:
    assert builtin("ABS").code == "ABS"
    with pytest.raises(LookupError, match=r"no built-in handler of 'CUSTOM\.Nobody'"):
        builtin("CUSTOM.Nobody")
