"""Test that the schema package's reader and the converter's reader agree."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from conformance.builder import ModelBuilder, quant
from onnx_tflite_plugin.errors import InvalidModel, UnsupportedOption
from onnx_tflite_plugin.source import read as read_source
from onnx_tflite_plugin.source.model import Model, Tensor
from onnx_tflite_plugin.verify.runtimes.structure import (
    StoredConstant,
    entry,
    external_operands,
    operands,
    producers,
    read,
)


def full_featured_model() -> bytes:
    """Return a model with most features of the schema.

    It has dynamic dimensions, variables, signatures and all ranges of operator codes.
    """
    model = ModelBuilder()
    g = model.main
    x = g.input("x", (None, 5), "int8", quantization=quant(0.5, -3))
    w = g.constant("w", np.arange(35, dtype=np.int8).reshape(7, 5), quantization=quant([0.25] * 7, [0] * 7, axis=0))
    y = g.tensor("y", (None, 7), "int8", quantization=quant(0.125, 11))
    g.operator("FULLY_CONNECTED", [x, w, None], [y])
    g.tensor("state", (1, 3), variable=True)
    f, h, c = g.tensor("f", (None, 7)), g.tensor("", (None, 7)), g.tensor("ž", (None, 7))
    g.operator("DEQUANTIZE", [y], [f])
    g.operator("GELU", [f], [h])
    g.operator("CUSTOM.vendor.Odd", [h, f], [c])
    g.output(c)
    g.output(y)
    other = model.subgraph("other")
    u, v = other.input("u", ()), other.tensor("v", ())
    other.operator("EXP", [u], [v])
    other.output(v)
    model.signature("main", {"image": x}, {"score": y})
    model.signature("side", {"a": u}, {"b": v}, subgraph=1)
    return model.build()


def tensor_facts(tensor: Tensor | None) -> Any:
    if tensor is None:
        return None
    known = (
        tensor.name,
        tensor.dtype,
        tensor.shape,
        tensor.dims,
        tensor.quantization,
        tensor.is_variable,
        tensor.is_constant,
    )
    return (tensor.subgraph, tensor.index, *known)


def describe(model: Model) -> Any:
    return [
        (
            graph.index,
            graph.name,
            [tensor_facts(tensor) for tensor in graph.tensors],
            [tensor_facts(tensor) for tensor in (*graph.inputs, *graph.outputs)],
            [(op.index, op.code, [tensor_facts(t) for t in (*op.inputs, *op.outputs)]) for op in graph.operators],
        )
        for graph in model.subgraphs
    ]


def test_structure_reader_agrees_with_the_source_reader() -> None:
    data = full_featured_model()
    from_schema, from_source = read(data), read_source(data)
    assert describe(from_schema) == describe(from_source)
    assert [
        (signature.key, signature.subgraph, signature.inputs, signature.outputs) for signature in from_schema.signatures
    ] == [
        (signature.key, signature.subgraph, signature.inputs, signature.outputs) for signature in from_source.signatures
    ]
    assert from_schema.size == len(data)


def test_constant_has_only_complete_elements() -> None:
    graph = read(full_featured_model()).main
    (w,) = (tensor for tensor in graph.tensors if tensor.is_constant)
    assert isinstance(w.data, StoredConstant)
    assert w.data.numbers("int8").tolist() == [*range(35)]
    assert w.data.numbers("int16").tolist() == [256 * (k + 1) + k for k in range(0, 34, 2)]


def test_entry_is_a_signature_or_the_main_graph() -> None:
    model = read(full_featured_model())
    for key, inputs, outputs in (
        (None, ("image",), ("ž", "score")), ("main", ("image",), ("ž", "score")), ("side", ("a",), ("b",)),
    ):  # fmt: skip
        selected = entry(model, key)
        assert (selected.input_names, selected.output_names) == (inputs, outputs)
        assert selected.subgraph.index == (1 if key == "side" else 0)
        assert [tensor.name for tensor in selected.outputs] == (["v"] if key == "side" else ["ž", "y"])
    with pytest.raises(UnsupportedOption, match="the model has no signature 'no'; it has 'main', 'side'"):
        entry(model, "no")
    plain = ModelBuilder()
    plain.main.output(plain.main.input("x", (3,)))
    with pytest.raises(UnsupportedOption, match="the model has no signature 'no'; it has none"):
        entry(read(plain.build()), "no")
    with pytest.raises(UnsupportedOption, match=re.escape("'mian'; did you mean 'main'? it has 'main', 'side'")):
        entry(model, "mian")


def test_main_graph_uses_its_own_signature_in_any_position() -> None:
    model = ModelBuilder()
    x = model.main.input("x", (5,))
    model.main.output(x)
    other = model.subgraph("other")
    u = other.input("u", (7,))
    other.output(u)
    model.signature("side", {"a": u}, {"b": u}, subgraph=1)
    model.signature("main", {"image": x}, {"score": x})
    selected = entry(read(model.build()))
    assert (selected.subgraph.index, selected.input_names, selected.output_names) == (0, ("image",), ("score",))


def test_signature_adds_inner_tensors_after_graph_outputs() -> None:
    model = ModelBuilder()
    g = model.main
    x, z = g.input("x", (5,)), g.input("z", (5,))
    a, b, y = (g.tensor(name, (5,)) for name in "aby")
    g.operator("NEG", [x], [a])
    g.operator("ADD", [a, z], [b])
    g.operator("ABS", [b], [y])
    g.output(y, b)
    model.signature("main", {"second": z}, {"inner": a, "last": b})
    selected = entry(read(model.build()))
    assert (selected.input_names, [tensor.name for tensor in selected.inputs]) == (("x", "second"), ["x", "z"])
    assert (selected.output_names, [tensor.name for tensor in selected.outputs]) == (
        ("y", "last", "inner"),
        ["y", "b", "a"],
    )


def test_operands_producers_and_external_operands() -> None:
    graph = read(full_featured_model()).main
    dense, dequantize, gelu, odd = graph.operators
    assert [tensor.name for tensor in operands(dense)] == ["x"]
    assert {graph.tensors[index].name: op.index for index, op in producers(graph).items()} == {
        "y": 0, "f": 1, "": 2, "ž": 3,
    }  # fmt: skip
    assert [tensor.name for tensor in external_operands([dequantize, gelu, odd])] == ["y"]
    assert [tensor.name for tensor in external_operands([gelu, odd])] == ["f"]
    assert [tensor.name for tensor in external_operands([odd])] == ["", "f"]


@pytest.mark.parametrize("data", [b"", b"\x08\x00\x00\x00TFL3", full_featured_model()[:200]])
def test_rejects_truncated_and_foreign_files(data: bytes) -> None:
    with pytest.raises(InvalidModel, match="the TFLite file"):
        read(data)


def test_external_constant_has_no_inline_values() -> None:
    """The schema's reader returns 0 for its length and its data."""
    outside: Any = SimpleNamespace(DataLength=lambda: 0, DataAsNumpy=lambda: 0)
    assert StoredConstant(outside).numbers("int32").shape == (0,)
