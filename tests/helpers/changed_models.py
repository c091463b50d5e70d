"""Variants of an ONNX model with one change each, where a rewrite changes it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper

from conformance.models import random_array
from onnx_tflite_plugin.source.model import Array

UNKNOWN_DOMAIN = "elsewhere"
"""The domain of an operator that no rule knows."""
_LIST_DEFAULTS = {"dilations": 1, "strides": 1}
_STRING_VALUES = {"auto_pad": "SAME_LOWER"}
_WITHOUT_EFFECT = {"saturate"}  # for a Cast without float8


class ChangedModel(NamedTuple):
    """A model with one change, and its description; the model may be invalid."""

    description: str
    model: onnx.ModelProto


def changed_models(model: onnx.ModelProto, tensor_names: Set[str], body_of: str = "") -> Iterator[ChangedModel]:
    """Yield variants of a model with one change each, made at these tensors.

    ``body_of``: the operator in whose body the tensors are.
    """

    def change(description: str, edit: Callable[[onnx.GraphProto], object], infer_shapes: bool = False) -> ChangedModel:
        new = onnx.ModelProto()
        new.CopyFrom(model)
        edit(graph(new, body_of))
        return ChangedModel(description, _infer_dims(new) if infer_shapes else new)

    original = graph(model, body_of)
    infos = [(k, info) for k, info in enumerate(original.value_info) if info.name in tensor_names]
    nodes = [(k, node) for k, node in enumerate(original.node) if tensor_names & {*node.input, *node.output}]
    constants = [(k, constant) for k, constant in enumerate(original.initializer) if constant.name in tensor_names]
    outputs = {info.name for info in original.output}
    for k, info in infos:
        yield change(f"the shape of {info.name} is unknown", lambda new, k=k: new.value_info.pop(k))
        yield change(f"the sizes of {info.name} are unknown", lambda new, k=k: _remove_sizes(new.value_info[k]))
        if info.name not in outputs:
            yield change(f"{info.name} has another reader", lambda new, info=info: _add_reader(new, info))
            if not body_of:
                yield change(f"{info.name} is an output", lambda new, info=info: new.output.add().CopyFrom(info))
    for k, constant in constants:
        yield change(f"{constant.name} is an input", lambda new, constant=constant: _make_input(new, constant))
        for changed in changed_arrays(numpy_helper.to_array(constant)):
            yield change(
                f"{constant.name} is {changed.ravel()[-3:]}",
                lambda new, k=k, changed=changed: _set_constant(new.initializer[k], changed),
            )
    for k, scales, zero_points in _per_channel_parameters(original, nodes):
        yield change(
            f"{original.node[k].name} has per-channel scales",
            lambda new, k=k, scales=scales, zero_points=zero_points: _rescale(new, k, scales, zero_points),
        )
    for k, node in nodes:
        yield change(
            f"{node.name} is another operator", lambda new, k=k: setattr(new.node[k], "domain", UNKNOWN_DOMAIN)
        )
        for changed in _changed_attributes(node):
            yield change(
                f"{node.name} has {changed.name} {onnx.helper.get_attribute_value(changed)}",
                lambda new, k=k, changed=changed: _set_attribute(new.node[k], changed),
                True,
            )


def graph(model: onnx.ModelProto, body_of: str = "") -> onnx.GraphProto:
    """Return the main graph, or the body of an operator."""
    bodies = (a.g for node in model.graph.node if node.op_type == body_of for a in node.attribute if a.name == "body")
    return next(bodies, model.graph)


def rewritten_values(before: onnx.GraphProto, after: onnx.GraphProto) -> Set[str]:
    """Return operands and results of nodes that a rewrite replaced or changed."""
    remaining = {node.SerializeToString(deterministic=True) for node in after.node}
    removed = [node for node in before.node if node.SerializeToString(deterministic=True) not in remaining]
    return {name for node in removed for name in (*node.input, *node.output) if name}


def changed_arrays(array: Array) -> Iterator[Array]:
    """Yield changed arrays of the same dtype and shape.

    The last element changes, and for floats also all elements.
    """
    if not array.size:
        return
    is_last = (np.arange(array.size) == array.size - 1).reshape(array.shape)
    if array.dtype.kind == "f":
        yield (array * np.where(is_last, 1.25, 1)).astype(array.dtype)
        if array.size > 1:
            yield (array * 1.25).astype(array.dtype)
    elif array.dtype.kind in "iu":
        for step in (1, -1):
            bounds = np.iinfo(array.dtype)
            yield (array.astype(np.int64) + step * is_last).clip(bounds.min, bounds.max).astype(array.dtype)


def run_model(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> Mapping[str, Any] | None:
    """Return a model's outputs by name, unoptimized; ``None`` if it cannot run."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        names = [output.name for output in session.get_outputs()]
        return dict(zip(names, session.run(names, dict(feeds)), strict=True))
    except Exception:  # exceptions of onnxruntime have no narrower common class
        return None


def feeds_of(proto: onnx.ModelProto) -> dict[str, Array]:
    """Return random inputs.

    Inputs with a constant as default get a changed value, except shapes and axes.
    """
    constants = {constant.name: numpy_helper.to_array(constant) for constant in proto.graph.initializer}
    feeds = {}
    for model_input in proto.graph.input:
        tensor_type, constant = model_input.type.tensor_type, constants.get(model_input.name)
        if constant is None:
            numpy_type = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor_type.elem_type)).name
            feeds[model_input.name] = random_array(
                *(dim.dim_value for dim in tensor_type.shape.dim), dtype=numpy_type, seed=model_input.name
            )
        else:
            feeds[model_input.name] = (
                constant if constant.dtype == np.int64 else next(changed_arrays(constant), constant)
            )
    return feeds


def _remove_sizes(info: onnx.ValueInfoProto) -> None:
    for dim in info.type.tensor_type.shape.dim:
        dim.dim_param = "dynamic"


def _add_reader(new: onnx.GraphProto, info: onnx.ValueInfoProto) -> None:
    new.node.append(onnx.helper.make_node("Identity", [info.name], ["read"], name="reader"))


def _make_input(new: onnx.GraphProto, constant: onnx.TensorProto) -> None:
    new.input.append(onnx.helper.make_tensor_value_info(constant.name, constant.data_type, constant.dims))


def _set_constant(constant: onnx.TensorProto, array: Array) -> None:
    constant.CopyFrom(numpy_helper.from_array(array, constant.name))


def _per_channel_parameters(
    main_graph: onnx.GraphProto, nodes: Iterable[tuple[int, onnx.NodeProto]]
) -> Iterator[tuple[int, Array, Array]]:
    """Yield Q/DQ nodes whose parameters become per-channel along axis 1."""
    constants = {constant.name: numpy_helper.to_array(constant) for constant in main_graph.initializer}
    shapes = {name: array.shape for name, array in constants.items()}
    for info in (*main_graph.input, *main_graph.value_info):
        shapes[info.name] = tuple(dim.dim_value for dim in info.type.tensor_type.shape.dim)
    for k, node in nodes:
        if node.op_type not in ("QuantizeLinear", "DequantizeLinear") or len(node.input) < 3:
            continue
        scale, zero_point = constants.get(node.input[1]), constants.get(node.input[2])
        shape = shapes.get(node.input[0]) or shapes.get(node.output[0]) or ()
        if scale is not None and zero_point is not None and not scale.ndim and len(shape) > 1 and shape[1] > 1:
            yield k, scale * np.linspace(1, 2, shape[1], dtype=scale.dtype), np.repeat(zero_point, shape[1])


def _rescale(new: onnx.GraphProto, k: int, scales: Array, zero_points: Array) -> None:
    new.initializer.extend(
        [numpy_helper.from_array(scales, "scales"), numpy_helper.from_array(zero_points, "zero_points")]
    )
    new.node[k].input[1], new.node[k].input[2] = "scales", "zero_points"


def _set_attribute(node: onnx.NodeProto, attribute: onnx.AttributeProto) -> None:
    remaining = [present for present in node.attribute if present.name != attribute.name]
    del node.attribute[:]
    node.attribute.extend([*remaining, attribute])


def _changed_attributes(node: onnx.NodeProto) -> Iterator[onnx.AttributeProto]:
    """Yield attributes with values other than the present and default values."""
    present = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
    for name, declared in onnx.defs.get_schema(node.op_type).attributes.items():
        if name in _WITHOUT_EFFECT:
            continue
        default = onnx.helper.get_attribute_value(declared.default_value) if declared.default_value.name else None
        for value in _changed_values(name, present.get(name, default), declared.type):
            yield onnx.helper.make_attribute(name, value)


def _changed_values(name: str, value: Any, kind: onnx.defs.OpSchema.AttrType) -> Iterable[Any]:
    kinds = onnx.defs.OpSchema.AttrType
    if kind == kinds.INT:
        return [(value or 0) + 1, (value or 0) - 1]
    if kind == kinds.FLOAT:
        return [(value or 0.0) + 0.25]
    if kind == kinds.INTS:
        numbers = list(value or [_LIST_DEFAULTS[name]] * 2) if value or name in _LIST_DEFAULTS else []
        return [[n + (k == j) for k, n in enumerate(numbers)] for j in range(len(numbers))]
    return [_STRING_VALUES[name]] if name in _STRING_VALUES else []


def _infer_dims(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with inferred shapes."""
    del model.graph.value_info[:]
    for output in model.graph.output:
        output.type.tensor_type.ClearField("shape")
    return onnx.shape_inference.infer_shapes(model)
