"""Files that store ``[]`` for unknown shapes: the shapes are those of LiteRT."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import onnx_tflite_plugin as otp
from conformance.builder import GraphBuilder, ModelBuilder
from onnx_tflite_plugin.source.model import Array
from onnx_tflite_plugin.verify import LiteRT, verify

WINDOW = {"padding": "SAME", "stride_w": 2, "stride_h": 2}
IMAGE = (2, 5, 7, 3)


def floats(*shape: int) -> Array:
    return np.random.default_rng(len(shape)).normal(size=shape).astype(np.float32)


def ints(*numbers: int) -> Array:
    return np.asarray(numbers, np.int32)


Operands = list[tuple[int, ...] | Array]
CASES: list[tuple[str, Operands, dict[str, Any], int]] = [
    ("AVERAGE_POOL_2D", [IMAGE], {**WINDOW, "filter_width": 3, "filter_height": 2}, 1),
    ("CONV_2D", [IMAGE, floats(11, 3, 2, 3), floats(11)], WINDOW, 1),
    ("DEPTHWISE_CONV_2D", [IMAGE, floats(1, 3, 2, 3), floats(3)], {**WINDOW, "depth_multiplier": 1}, 1),
    ("TRANSPOSE_CONV", [ints(2, 10, 13, 4), floats(4, 3, 3, 3), IMAGE], WINDOW, 1),
    ("RESIZE_BILINEAR", [IMAGE, ints(10, 13)], {}, 1),
    ("MEAN", [IMAGE, ints(1, 2)], {"keep_dims": False}, 1),
    ("MEAN", [IMAGE, ints(1, 2)], {"keep_dims": True}, 1),
    ("MEAN", [IMAGE, ints(0, 1, 2, 3)], {"keep_dims": False}, 1),
    ("FULLY_CONNECTED", [(2, 5), floats(3, 5), floats(3)], {}, 1),
    ("FULLY_CONNECTED", [(2, 7, 5), floats(3, 5), floats(3)], {"keep_num_dims": True}, 1),
    ("SOFTMAX", [(2, 5)], {"beta": 1.0}, 1),
    ("L2_NORMALIZATION", [(2, 5)], {}, 1),
    ("ADD", [IMAGE, (3,)], {}, 1),
    ("MUL", [(7, 3), floats(2, 5, 7, 3)], {}, 1),
    ("TANH", [(2, 5)], {}, 1),
    ("RESHAPE", [IMAGE, ints(2, -1)], {}, 1),
    ("TRANSPOSE", [IMAGE, ints(0, 3, 1, 2)], {}, 1),
    ("EXPAND_DIMS", [(2, 5), ints(1)], {}, 1),
    ("SQUEEZE", [(2, 1, 7, 1)], {"squeeze_dims": [1, 3]}, 1),
    ("CONCATENATION", [IMAGE, IMAGE], {"axis": 3}, 1),
    ("PACK", [(5, 7), (5, 7)], {"values_count": 2, "axis": 1}, 1),
    ("GATHER", [(5, 7), ints(1, 3, 0)], {"axis": 0}, 1),
    ("BATCH_MATMUL", [(2, 5, 7), (2, 7, 3)], {}, 1),
    ("STRIDED_SLICE", [IMAGE, ints(0, 1, 0, 0), ints(2, 4, 7, 3), ints(1, 1, 2, 1)], {}, 1),
    ("SPLIT", [np.int32(1), (2, 6)], {"num_splits": 2}, 2),
    ("UNPACK", [(2, 6)], {"num": 2, "axis": 0}, 2),
]
REMOVE_RANKS: dict[str, Callable[[GraphBuilder], None]] = {
    "as a scalar": lambda g: None,
    "as an unknown rank": lambda g: [t.fields.update(has_rank=bool(t.fields["shape"])) for t in g.tensors] and None,
    "by a converter that knows no ranks": lambda g: [t.fields.pop("has_rank") for t in g.tensors] and None,
}


def litert_shapes(data: bytes, **inputs: Array) -> list[tuple[int, ...]]:
    """Return the shapes of LiteRT's outputs."""
    session = LiteRT(data, "builtin")
    arrays = [inputs.get(t.name, np.ones(t.shape, t.dtype)) for t in session.entry.inputs]
    return [array.shape for array in session.run(arrays)]


@pytest.mark.parametrize("stored", REMOVE_RANKS)
@pytest.mark.parametrize(
    ("code", "operands", "options", "result_count"), CASES, ids=[f"{k} {c[0]}" for k, c in enumerate(CASES)]
)
def test_result_without_stored_shape_is_inferred(
    code: str, operands: Operands, options: dict[str, Any], result_count: int, stored: str
) -> None:
    model = ModelBuilder()
    g = model.main
    arrays = [
        g.input(f"x{k}", operand) if isinstance(operand, tuple) else g.constant(f"c{k}", operand)
        for k, operand in enumerate(operands)
    ]
    results, negated_results = ([g.tensor(f"{name}{k}", ()) for k in range(result_count)] for name in "yz")
    g.operator(code, arrays, results, options)
    for y, z in zip(results, negated_results, strict=True):
        g.operator("NEG", [y], [z])
    g.output(*negated_results)
    REMOVE_RANKS[stored](g)
    data = model.build()
    conversion = otp.convert(data)
    outputs = conversion.model.graph.outputs
    assert [tuple(value.shape or ()) for value in outputs] == litert_shapes(data)
    verification = verify(data, conversion.proto)
    assert verification.ok, verification.text


def speech_commands(audio: tuple[int, ...], stored: str = "by a converter that knows no ranks") -> bytes:
    """Return a speech network with only the input's shape, as TOCO wrote it."""
    model = ModelBuilder()
    g = model.main
    image, first, pooled, second, flat, scores, y = (g.tensor(name, ()) for name in "abcdefy")
    convolution = {"padding": "SAME", "stride_w": 1, "stride_h": 1, "fused_activation_function": "RELU"}
    pool = {**WINDOW, "filter_width": 2, "filter_height": 2}

    def constant(*shape: int) -> int:
        return g.constant("", floats(*shape) / 8)

    g.operator("RESHAPE", [g.input("audio", audio), g.constant("", ints(-1, 11, 7, 1))], [image])
    g.operator("CONV_2D", [image, constant(5, 3, 2, 1), constant(5)], [first], convolution)
    g.operator("MAX_POOL_2D", [first], [pooled], pool)
    g.operator("CONV_2D", [pooled, constant(3, 3, 2, 5), constant(3)], [second], convolution)
    g.operator("RESHAPE", [second, g.constant("", ints(-1, 72))], [flat])
    g.operator("FULLY_CONNECTED", [flat, constant(13, 72), constant(13)], [scores])
    g.operator("SOFTMAX", [scores], [y], {"beta": 1.0})
    g.output(y)
    REMOVE_RANKS[stored](g)
    return model.build()


@pytest.mark.parametrize("stored", REMOVE_RANKS)
def test_infers_all_shapes_from_the_graph_input(stored: str) -> None:
    conversion = otp.convert(speech_commands((77,), stored), verify=True)
    assert [tuple(value.shape or ()) for value in conversion.model.graph.outputs] == [(1, 13)]


@pytest.mark.parametrize("shape", [(77,), (154, 1)])
def test_input_without_stored_shape_accepts_any_rank(shape: tuple[int, ...]) -> None:
    data = speech_commands(())
    conversion = otp.convert(data, input_shape={"audio": shape}, verify=True)
    outputs = conversion.model.graph.outputs
    assert [tuple(value.shape or ()) for value in outputs] == litert_shapes(data, audio=np.ones(shape, np.float32))


def test_input_without_stored_shape_may_be_dynamic() -> None:
    data = speech_commands(())
    conversion = otp.convert(data, input_shape={"audio": ("n", 77)})
    assert verify(data, conversion.proto, shapes={"audio": (3, 77)}).ok


def test_error_names_inputs_without_stored_shape() -> None:
    with pytest.raises(otp.ConversionError, match=r"graph input 7 'audio': .* with input_shape=\{'audio': \.\.\.\}"):
        otp.convert(speech_commands(()))


def scalar_loop(model: ModelBuilder) -> None:
    """Add a loop over scalars, one of which is unchanged."""
    g, condition, body = model.main, model.subgraph("condition"), model.subgraph("body")
    options = {"cond_subgraph_index": condition.index, "body_subgraph_index": body.index}
    outputs = [g.tensor(name, ()) for name in "yz"]
    g.operator("WHILE", [g.input("x", ()), g.input("step", ())], outputs, options)
    g.output(*outputs)
    for graph in (condition, body):
        graph.input("x", ()), graph.input("step", ())
    condition.operator(
        "LESS", [0, condition.constant("n", np.float32(7))], [is_below := condition.tensor("is_below", (), "bool")]
    )
    condition.output(is_below)
    body.operator("ADD", [0, 1], [total := body.tensor("total", ())])
    body.output(total, 1)


def scalar_variable(model: ModelBuilder) -> None:
    """Add a product of a scalar with the previous one, stored in a variable."""
    g, initial = model.main, model.subgraph("initial")
    variable = {"container": "", "shared_name": "last"}
    first, handle = (graph.tensor("handle", (), "resource") for graph in (initial, g))
    initial.operator("VAR_HANDLE", [], [first], variable)
    initial.operator("ASSIGN_VARIABLE", [first, initial.constant("two", np.float32(2))], [])
    x, last, y = g.input("x", ()), g.tensor("last", ()), g.tensor("y", ())
    g.operator("CALL_ONCE", [], [], {"init_subgraph_index": initial.index})
    g.operator("VAR_HANDLE", [], [handle], variable)
    g.operator("READ_VARIABLE", [handle], [last])
    g.operator("ASSIGN_VARIABLE", [handle, x], [])
    g.operator("MUL", [last, x], [y])
    g.output(y)


@pytest.mark.parametrize("build", [scalar_loop, scalar_variable])
def test_scalars_without_stored_rank_stay_scalars(build: Callable[[ModelBuilder], None]) -> None:
    model = ModelBuilder()
    build(model)
    for graph in model.subgraphs:
        REMOVE_RANKS["by a converter that knows no ranks"](graph)
    data = model.build()
    conversion = otp.convert(data)
    outputs = conversion.model.graph.outputs
    assert {tuple(value.shape or ()) for value in outputs} == {()}
    feeds = {"x": np.float32(0.5), "step": np.float32(1.5)}
    inputs = {
        name: feeds[name] for name in [str(value.name) for value in conversion.model.graph.inputs] if name in feeds
    }
    verification = verify(data, conversion.proto, inputs=inputs)
    assert verification.ok, verification.text
