"""Requested input shapes with multi-output operators, subgraphs and states.

The results are compared with those of resized LiteRT models.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from conformance.builder import ModelBuilder, TensorRef
from conformance.models import Net, Spec, constant, tensor
from onnx_tflite_plugin.conversion import Conversion, convert
from onnx_tflite_plugin.errors import UnsupportedOperator
from onnx_tflite_plugin.verify import verify


def swap_sizes(code: str, sizes: Spec | None) -> bytes:
    """Return a RESHAPE that swaps two sizes, which the operator ``code`` separates.

    ``sizes``: the two sizes as a constant; by default the shape of the input.
    """
    model = Net()
    x = model.input(tensor(None, 5, name="x"))
    sizes_tensor = sizes or model.call("SHAPE", [x], tensor(2, dtype="int32"), out_type="INT32")
    size_spec = tensor(dtype="int32") if code == "UNPACK" else tensor(1, dtype="int32")
    operands, options = {
        "UNPACK": ([sizes_tensor], {"num": 2, "axis": 0}),
        "SPLIT": ([constant(0), sizes_tensor], {"num_splits": 2}),
        "SPLIT_V": ([sizes_tensor, constant([1, 1]), constant(0)], {"num_splits": 2}),
    }[code]
    first_size, second_size = model.call_multi_output(code, operands, size_spec, size_spec, **options)
    join_code, join_options = ("PACK", {"values_count": 2}) if code == "UNPACK" else ("CONCATENATION", {})
    shape = model.call(join_code, [second_size, first_size], tensor(2, dtype="int32"), axis=0, **join_options)
    model.output(model.call("RESHAPE", [x, shape], tensor(5, None)))
    return model.build()


def agrees(data: bytes, conversion: Conversion, *shape: int) -> bool:
    return verify(data, conversion.proto, shapes={"x": shape}, runs=1).ok


@pytest.mark.parametrize("code", ["UNPACK", "SPLIT", "SPLIT_V"])
def test_dimensions_split_from_a_shape_follow_the_input(code: str) -> None:
    data = swap_sizes(code, None)
    assert agrees(data, convert(data, input_shape={"x": (3, 5)}), 3, 5)
    dynamic = convert(data, dynamic_batch=True)
    assert all(agrees(data, dynamic, batch, 5) for batch in (1, 7))


@pytest.mark.parametrize("code", ["UNPACK", "SPLIT", "SPLIT_V"])
def test_dimensions_split_from_a_constant_are_static(code: str) -> None:
    data = swap_sizes(code, constant([7, 5]))
    assert agrees(data, convert(data, input_shape={"x": (7, 5)}), 7, 5)


def with_branch(model: ModelBuilder, x: TensorRef, y: TensorRef) -> None:
    """Add an IF of NEG and ABS."""
    graphs = [model.subgraph(name) for name in ("then", "else")]
    for graph, code in zip(graphs, ("NEG", "ABS"), strict=True):
        inner = graph.input("inner", (None, 3))
        graph.operator(code, [inner], [result := graph.tensor("result", (None, 3))])
        graph.output(result)
    options = {"then_subgraph_index": graphs[0].index, "else_subgraph_index": graphs[1].index}
    model.main.operator("IF", [model.main.input("condition", (), "bool"), x], [y], options)


def with_loop(model: ModelBuilder, x: TensorRef, y: TensorRef) -> None:
    """Add a loop that doubles three times."""
    g, condition, body = model.main, model.subgraph("condition"), model.subgraph("body")
    start, end = g.constant("start", np.int32(0)), g.tensor("end", (), "int32")
    options = {"cond_subgraph_index": condition.index, "body_subgraph_index": body.index}
    g.operator("WHILE", [start, x], [end, y], options)
    count, _ = condition.input("count", (), "int32"), condition.input("x", (None, 3))
    is_less = condition.tensor("is_less", (), "bool")
    condition.operator("LESS", [count, condition.constant("times", np.int32(3))], [is_less])
    condition.output(is_less)
    count, value = body.input("count", (), "int32"), body.input("x", (None, 3))
    next_count, doubled = body.tensor("next_count", (), "int32"), body.tensor("doubled", (None, 3))
    body.operator("ADD", [count, body.constant("one", np.int32(1))], [next_count])
    body.operator("ADD", [value, value], [doubled])
    body.output(next_count, doubled)


def with_variable(model: ModelBuilder, x: TensorRef, y: TensorRef) -> None:
    """Add a variable that accumulates over runs."""
    g, initial = model.main, model.subgraph("initial")
    variable = {"container": "", "shared_name": "sum"}
    zeros = initial.constant("zeros", np.zeros((1, 3), np.float32))
    first, handle = (graph.tensor("handle", (), "resource") for graph in (initial, g))
    initial.operator("VAR_HANDLE", [], [first], variable)
    initial.operator("ASSIGN_VARIABLE", [first, zeros], [])
    g.operator("CALL_ONCE", [], [], {"init_subgraph_index": initial.index})
    g.operator("VAR_HANDLE", [], [handle], variable)
    g.operator("READ_VARIABLE", [handle], [before := g.tensor("before", (1, 3))])
    g.operator("ADD", [x, before], [y])
    g.operator("ASSIGN_VARIABLE", [handle, y], [])


def with_state(model: ModelBuilder, x: TensorRef, y: TensorRef) -> None:
    """Add a stateful recurrent layer."""
    g, rng = model.main, np.random.default_rng(0)
    w, r, b = (
        g.constant(f"w{k}", rng.normal(size=size).astype(np.float32)) for k, size in enumerate(((3, 3), (3, 3), 3))
    )
    g.operator(
        "RNN", [x, w, r, b, g.tensor("state", (1, 3), variable=True)], [y], {"fused_activation_function": "TANH"}
    )


@pytest.mark.parametrize("add", [with_branch, with_loop, with_variable, with_state])
def test_stored_shape_may_be_requested(add: Callable[[ModelBuilder, TensorRef, TensorRef], None]) -> None:
    model = ModelBuilder()
    x, y = model.main.input("x", (None, 3)), model.main.tensor("y", (None, 3))
    add(model, x, y)
    model.main.operator("NEG", [y], [z := model.main.tensor("z", (None, 3))])
    model.main.output(z)
    data = model.build()
    conversion = convert(data, input_shape={"x": (1, 3)})
    assert tuple(conversion.model.graph.inputs[0].shape or ()) == (1, 3)
    verification = verify(data, conversion.proto)
    assert verification.ok, verification.text
    if add in (with_branch, with_loop):
        larger = convert(data, input_shape={"x": (2, 3)}, verify=True).verification
        assert larger is not None
        assert larger.ok
    else:
        with pytest.raises(UnsupportedOperator, match=r"reads or writes a state|state 'state' has shape"):
            convert(data, input_shape={"x": (2, 3)})
