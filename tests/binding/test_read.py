"""Tests of reading one operator: label, subgraphs, declarations and numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from onnx_tflite_plugin.api import (
    Array,
    Attribute,
    Dequantized,
    Effects,
    Implicit,
    Instance,
    Lookup,
    SameScale,
    Terminate,
    out,
)
from onnx_tflite_plugin.api.refusal import Refusal
from onnx_tflite_plugin.binding.bound import Declared, check_calls, label
from onnx_tflite_plugin.binding.declared import resolve_operator, subgraph_indices
from onnx_tflite_plugin.binding.invalid_parameters import BIAS_LIMIT, find_invalid_parameters
from onnx_tflite_plugin.diagnosis.packs import declarations
from onnx_tflite_plugin.errors import InvalidModel
from onnx_tflite_plugin.guard import Failed
from onnx_tflite_plugin.source.model import Operator, Options, Tensor
from onnx_tflite_plugin.targets import TARGETS
from tests.binding.test_graphs import bind_operator, tensor

X, Y, Z = tensor(0), tensor(1), tensor(2)
TARGET = TARGETS["generic"]


def table(at: Instance) -> Array:
    return np.arange(256, dtype=np.int8)


def read(options: Mapping[str, Any] | None = None, **declarations: Any) -> Declared:
    """Return the declarations of an operator with a present and an absent operand."""
    return resolve_operator(bind_operator(3, "X", [X, None], Y, options=options, **declarations), TARGET, 18).declared


def test_label_names_first_result_and_subgraph() -> None:
    op = bind_operator(3, "X", [X], None, Y).op
    assert label(op) == "op 3 X v1 't1'"
    assert label(replace(op, subgraph=2, outputs=())) == "subgraph 2 op 3 X v1"


def test_called_subgraphs_are_read_from_options() -> None:
    op = bind_operator(3, "X", [X], Y, options={"body": 2, "cases": (0, -1, 5), "none": -1, "name": "4"}).op
    assert subgraph_indices(("body", "cases", "none", "name", "absent"), op) == (2, 0, -1, 5, -1)


def test_operator_with_subgraphs_or_effects_accesses_states() -> None:
    assert read({"body": 0}, subgraphs=("body",)).accesses_states
    assert read(effects=Effects(reads=(0,), state_key=lambda at: "state")).accesses_states
    assert not read().accesses_states


def check_call_graph(*pairs: tuple[int, tuple[int, ...]]) -> None:
    """Check calls, given as pairs of a subgraph and the subgraphs that it calls."""
    check_calls(
        {
            (index, Operator(index, k, "CALL", "CALL", 1, Options(), (), ())): callees
            for k, (index, callees) in enumerate(pairs)
        }
    )


def test_subgraph_may_be_called_twice_but_not_recursively() -> None:
    check_call_graph((0, (1, 2)), (1, (3,)), (2, (3,)), (0, (3,)))
    for circle in (((0, (0,)),), ((0, (1,)), (1, (0,))), ((0, (1,)), (1, (3,)), (1, (2,)), (2, (4, 1)))):
        with pytest.raises(
            InvalidModel, match=r"subgraphs\[\d\].operators\[\d\]: CALL calls subgraph \d, which contains the call"
        ):
            check_call_graph(*circle)


@pytest.mark.parametrize(
    ("declared", "text"),
    [
        ({"output_quantization": {0: Dequantized()}}, "no output in slot 0: outputs are"),
        ({"output_quantization": {out(0): Dequantized(), out(1): Dequantized()}}, "no output in slot -2"),
        ({"reshapes": {1: (6,)}}, "no tensor in slot 1"),
        ({"reshapes": {0: (None, None)}}, "has more than one dynamic dimension"),
        ({"effects": Effects(reads=(0, 1), state_key=lambda at: "state")}, "no tensor in slot 1, which Effects lists"),
        ({"effects": Effects(writes=(1,), state_key=lambda at: "state")}, "no tensor in slot 1, which Effects lists"),
        ({"subgraphs": ("bodie",), "options": {"body": 0}}, "no option 'bodie'; did you mean 'body'"),
        ({"activation": "fused"}, ""),
        ({"activation": "fused", "options": {"fuse": "RELU"}}, "no option 'fused'"),
        ({"activation": lambda at: "RELUX"}, "'RELUX' is not an activation"),
    ],
)
def test_declarations_of_missing_slots_or_options_fail(declared: dict[str, Any], text: str) -> None:
    if not text:
        assert read(**declared).activation == "NONE"
        return
    with pytest.raises(Failed, match=text):
        read(**declared)


def test_unknown_activation_is_refused() -> None:
    with pytest.raises(Refusal, match="the fused activation SIGNUM is unknown"):
        read({"fused": "SIGNUM"}, activation="fused")
    with pytest.raises(LookupError, match="the declarations of op 3 X v1 't1' are not read yet"):
        _ = bind_operator(3, "X", [X], Y).declared


def test_valid_declarations_are_returned_unchanged() -> None:
    declared = read(
        output_quantization={out(0): Dequantized()},
        reshapes={0: (None, 3), out(0): (6,)},
        effects=Effects(reads=(0,), writes=(out(0),), state_key=lambda at: "state"),
        activation="fused",
        options={"fused": "RELU6"},
    )
    assert declared.output_quantization == {out(0): Dequantized()}
    assert declared.reshapes == {0: (None, 3), out(0): (6,)}
    assert (declared.activation, declared.state_key, declared.aligned, declared.axes) == ("RELU6", "state", True, None)


@pytest.mark.parametrize(
    ("declared", "text"),
    [
        ({}, "layout=Transparent()"),
        (
            {"axes": "a b -> a b", "quantization": SameScale()},
            "layout=Transparent(), axes='a b -> a b', quantization=SameScale()",
        ),
        ({"layout": Terminate(unordered="n")}, "layout=Terminate(unordered='n')"),
        ({"layout": Implicit({0: "b a"}), "axes": "a b -> a b"}, "layout=Implicit(onnx={0: 'b a'}), axes='a b -> a b'"),
        (
            {"layout": Attribute(), "quantization": Dequantized(weights=(1,))},
            "layout=Attribute(), quantization=Dequantized(weights=(1,))",
        ),
        ({"quantization": Lookup(table)}, "layout=Transparent(), quantization=Lookup(table=table)"),
    ],
)
def test_declarations_are_formatted_as_written(declared: dict[str, Any], text: str) -> None:
    assert declarations(read(**declared)) == text


def invalid_fields(options: Mapping[str, Any], *inputs: Tensor | None) -> list[str]:
    """Return the fields of an operator whose numbers no kernel supports."""
    return [where for where, _ in find_invalid_parameters(bind_operator(0, "X", inputs, Y, options=options))]


def test_nan_options_and_infinite_integer_scales_are_refused() -> None:
    options = {"a": math.nan, "b": math.inf, "c": -math.inf, "d": 3.0, "e": 3, "f": "nan"}
    assert invalid_fields(options, X, None) == ["X.a"]
    quantized = tensor(5, "int8", 0.5)
    assert invalid_fields(options, X, None, quantized) == ["X.a", "X.b", "X.c"]
    assert invalid_fields(options, replace(quantized, quantization=None)) == ["X.a"]
    assert invalid_fields(options, tensor(5, "int32", 0.5)) == ["X.a"]


@pytest.mark.parametrize(
    ("largest", "dtype", "scale", "is_invalid"),
    [
        (BIAS_LIMIT, "int64", 0.5, False),
        (BIAS_LIMIT + 1, "int64", 0.5, True),
        (-BIAS_LIMIT - 1, "int64", 0.5, True),
        (BIAS_LIMIT + 1, "int64", None, False),
        (2**31 - 1, "int32", 0.5, False),
    ],
)
def test_bias_beyond_the_accumulator_range_is_invalid(
    largest: int, dtype: str, scale: float | None, is_invalid: bool
) -> None:
    bias = tensor(5, dtype, scale, constant=np.asarray([2, largest, 3], dtype))
    assert invalid_fields({}, X, None, bias) == (["inputs[2]"] if is_invalid else [])
    assert invalid_fields({}, replace(bias, data=None)) == []
    assert invalid_fields({}, replace(bias, data=tensor(6, dtype, constant=np.zeros(0, dtype)).data)) == []
