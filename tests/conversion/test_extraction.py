"""Extraction of submodels between ONNX values."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from onnx_tflite_plugin.graph.extraction import extract_submodel
from onnx_tflite_plugin.graph.model_metadata import write_author_metadata


def join_reshapes(*, constant: bool) -> onnx.ModelProto:
    """Return reshapes ``a`` and ``b`` of the negated constant or input."""
    negation = helper.make_node("Neg", ["c" if constant else "x"], ["product"])
    nodes = [negation, *(helper.make_node("Reshape", ["product", f"{name}_shape"], [name]) for name in "ab")]
    infos = {"a": (5, 3, 1), "b": (3, 5), "product": (15,), "x": (15,)}
    value = {name: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in infos.items()}
    shapes = [numpy_helper.from_array(np.asarray(infos[name], np.int64), f"{name}_shape") for name in "ab"]
    constants = [*shapes, numpy_helper.from_array(np.ones(15, np.float32), "c")]
    graph = helper.make_graph(
        nodes, "g", [value["x"]], [value["b"]], constants, value_info=[value["a"], value["product"]]
    )
    return helper.make_model(graph)


def test_submodel_that_bypasses_its_input_is_not_extracted() -> None:
    assert extract_submodel(join_reshapes(constant=True), ["a"], ["b"]) is None
    assert extract_submodel(join_reshapes(constant=False), ["a"], ["b"]) is None


def test_submodel_between_dependent_values_is_extracted() -> None:
    submodel = extract_submodel(join_reshapes(constant=True), ["product"], ["b"])
    assert submodel is not None
    assert [node.op_type for node in submodel.graph.node] == ["Reshape"]


def test_submodel_omits_author_metadata() -> None:
    model, properties = join_reshapes(constant=True), {"made": "by hand", "of": "two reshapes"}
    write_author_metadata(properties, {"name": "reshapes"})
    assert len(properties) == 3
    for key, value in properties.items():
        model.metadata_props.add(key=key, value=value)
    submodel = extract_submodel(model, ["product"], ["b"])
    assert submodel is not None
    assert {entry.key: entry.value for entry in submodel.metadata_props} == {"made": "by hand", "of": "two reshapes"}


def test_submodel_includes_multi_output_nodes() -> None:
    value = {
        name: helper.make_tensor_value_info(name, TensorProto.FLOAT, (n, 3))
        for name, n in (("x", 5), ("a", 2), ("b", 3))
    }
    nodes = [helper.make_node("Split", ["x", "sizes"], ["a", "b"]), helper.make_node("Neg", ["a"], ["c"])]
    sizes = numpy_helper.from_array(np.asarray([2, 3]), "sizes")
    model = helper.make_model(helper.make_graph(nodes, "g", [value["x"]], [value["a"], value["b"]], [sizes]))
    submodel = extract_submodel(model, ["x"], ["b"])
    assert submodel is not None
    assert [node.op_type for node in submodel.graph.node] == ["Split"]
    assert [tensor.name for tensor in submodel.graph.initializer] == ["sizes"]
