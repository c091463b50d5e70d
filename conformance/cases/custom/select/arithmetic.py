"""TensorFlow's arithmetic."""

from __future__ import annotations

from collections.abc import Iterator

from conformance.case import Case
from conformance.models import in_isolation, tensor
from conformance.tensorflow import node, select_options, tensorflow_cases

OPERATORS = (
    "Add",
    "AddN",
    "AddV2",
    "Atan2",
    "ClipByValue",
    "Div",
    "DivNoNan",
    "FloorDiv",
    "FloorMod",
    "Maximum",
    "Minimum",
    "Mul",
    "Pow",
    "RealDiv",
    "SquaredDifference",
    "Sub",
    "Xdivy",
    "Xlogy",
)


def cases() -> Iterator[Case]:
    yield from tensorflow_cases(*OPERATORS)
    yield from refusal_cases()


def refusal_cases() -> Iterator[Case]:
    """Yield cases with unsupported dtypes, or with an invalid NodeDef."""
    x, code, options = tensor(5, 7), "CUSTOM.FlexAddV2", select_options("AddV2", node("AddV2", {"T": "float32"}))
    complex_operand = tensor(5, 7, dtype="complex128")
    quantized = tensor(5, 7, dtype="int8")
    options_of_sub = select_options("AddV2", node("Sub"))
    yield in_isolation(
        code,
        "complex128",
        [complex_operand] * 2,
        complex_operand,
        custom_options=options,
        refusal="no kernel for dtypes complex128",
    )
    yield in_isolation(
        code,
        "quantized operands",
        [quantized] * 2,
        quantized,
        custom_options=options,
        refusal="no kernel for dtypes int8",
    )
    yield in_isolation(code, "no NodeDef", [x, x], x, custom_options=b"", refusal="the options hold no valid NodeDef")
    yield in_isolation(
        code, "NodeDef of another operator", [x, x], x, custom_options=options_of_sub, refusal="the NodeDef of 'Sub'"
    )
    yield in_isolation(code, "one operand", [x], x, custom_options=options, refusal="AddV2 takes 2 operands, found 1")
