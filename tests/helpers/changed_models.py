"""Variants of an ONNX model with one change each, near the nodes that a rewrite changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper

from conformance.models import random_array
from onnx_tflite_plugin.source.model import Array

ELSEWHERE = "elsewhere"
"""A domain of unknown operators."""
_DEFAULTS = {"dilations": 1, "strides": 1}
_ALIGNED = {"auto_pad": "SAME_LOWER"}
_IDLE = {"saturate"}  # of Cast, where nothing is float8


class Changed(NamedTuple):
    """A changed ``model``, which may be invalid; ``what`` describes the change."""

    what: str
    model: onnx.ModelProto


def changes_near(model: onnx.ModelProto, near: Set[str], inner: str = "") -> Iterator[Changed]:
    """Yield models changed around the tensors ``near``, in the body of the operator ``inner`` if given."""

    def change(what: str, edit: Callable[[onnx.GraphProto], object], anew: bool = False) -> Changed:
        new = onnx.ModelProto()
        new.CopyFrom(model)
        edit(graph(new, inner))
        return Changed(what, _infer_dims(new) if anew else new)

    given = graph(model, inner)
    infos = [(k, info) for k, info in enumerate(given.value_info) if info.name in near]
    nodes = [(k, node) for k, node in enumerate(given.node) if near & {*node.input, *node.output}]
    stored = [(k, one) for k, one in enumerate(given.initializer) if one.name in near]
    outputs = {one.name for one in given.output}
    for k, info in infos:
        yield change(f"the shape of {info.name} is not known", lambda new, k=k: new.value_info.pop(k))
        yield change(f"the sizes of {info.name} are not known", lambda new, k=k: _open(new.value_info[k]))
        if info.name not in outputs:
            yield change(f"{info.name} is read by another", lambda new, info=info: _read(new, info))
            if not inner:
                yield change(f"{info.name} is an output", lambda new, info=info: new.output.add().CopyFrom(info))
    for k, one in stored:
        yield change(f"{one.name} is fed", lambda new, one=one: _feed(new, one))
        for other in others(numpy_helper.to_array(one)):
            yield change(
                f"{one.name} is {other.ravel()[-3:]}", lambda new, k=k, other=other: _store(new.initializer[k], other)
            )
    for k, scales, points in _by_channel(given, nodes):
        yield change(
            f"{given.node[k].name} has a scale for each channel",
            lambda new, k=k, scales=scales, points=points: _rescale(new, k, scales, points),
        )
    for k, node in nodes:
        yield change(f"{node.name} is another operator", lambda new, k=k: setattr(new.node[k], "domain", ELSEWHERE))
        for other in _attributes(node):
            yield change(
                f"{node.name} has {other.name} {onnx.helper.get_attribute_value(other)}",
                lambda new, k=k, other=other: _set(new.node[k], other),
                True,
            )


def graph(model: onnx.ModelProto, inner: str = "") -> onnx.GraphProto:
    """Return the main graph, or the body of an operator."""
    bodies = (a.g for node in model.graph.node if node.op_type == inner for a in node.attribute if a.name == "body")
    return next(bodies, model.graph)


def touched_values(before: onnx.GraphProto, after: onnx.GraphProto) -> Set[str]:
    """Return operands and results of nodes that a rewrite replaced or changed."""
    kept = {node.SerializeToString(deterministic=True) for node in after.node}
    gone = [node for node in before.node if node.SerializeToString(deterministic=True) not in kept]
    return {name for node in gone for name in (*node.input, *node.output) if name}


def others(array: Array) -> Iterator[Array]:
    """Yield arrays of the same dtype and shape: one with another last element, and for floats one with all others."""
    if not array.size:
        return
    last = (np.arange(array.size) == array.size - 1).reshape(array.shape)
    if array.dtype.kind == "f":
        yield (array * np.where(last, 1.25, 1)).astype(array.dtype)
        if array.size > 1:
            yield (array * 1.25).astype(array.dtype)
    elif array.dtype.kind in "iu":
        for step in (1, -1):
            bounds = np.iinfo(array.dtype)
            yield (array.astype(np.int64) + step * last).clip(bounds.min, bounds.max).astype(array.dtype)


def results(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> Mapping[str, Any] | None:
    """Return the outputs of a model by name, without graph optimization; ``None`` if it cannot be run."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        names = [one.name for one in session.get_outputs()]
        return dict(zip(names, session.run(names, dict(feeds)), strict=True))
    except Exception:  # those of onnxruntime have nothing else in common
        return None


def feeds_of(proto: onnx.ModelProto) -> dict[str, Array]:
    """Return random inputs, and other values for constants that are fed, except shapes and axes."""
    stored = {one.name: numpy_helper.to_array(one) for one in proto.graph.initializer}
    feeds = {}
    for one in proto.graph.input:
        kind, held = one.type.tensor_type, stored.get(one.name)
        if held is None:
            numpy_type = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)).name
            feeds[one.name] = random_array(*(dim.dim_value for dim in kind.shape.dim), dtype=numpy_type, seed=one.name)
        else:
            feeds[one.name] = held if held.dtype == np.int64 else next(others(held), held)
    return feeds


def _open(info: onnx.ValueInfoProto) -> None:
    for dim in info.type.tensor_type.shape.dim:
        dim.dim_param = "open"


def _read(new: onnx.GraphProto, info: onnx.ValueInfoProto) -> None:
    new.node.append(onnx.helper.make_node("Identity", [info.name], ["read"], name="reader"))


def _feed(new: onnx.GraphProto, one: onnx.TensorProto) -> None:
    new.input.append(onnx.helper.make_tensor_value_info(one.name, one.data_type, one.dims))


def _store(one: onnx.TensorProto, array: Array) -> None:
    one.CopyFrom(numpy_helper.from_array(array, one.name))


def _by_channel(
    given: onnx.GraphProto, nodes: Iterable[tuple[int, onnx.NodeProto]]
) -> Iterator[tuple[int, Array, Array]]:
    """Yield nodes that quantize or dequantize per tensor, with a scale and zero point per element of axis 1 instead."""
    stored = {one.name: numpy_helper.to_array(one) for one in given.initializer}
    shapes = {name: array.shape for name, array in stored.items()}
    for info in (*given.input, *given.value_info):
        shapes[info.name] = tuple(dim.dim_value for dim in info.type.tensor_type.shape.dim)
    for k, node in nodes:
        if node.op_type not in ("QuantizeLinear", "DequantizeLinear") or len(node.input) < 3:
            continue
        scale, point = stored.get(node.input[1]), stored.get(node.input[2])
        shape = shapes.get(node.input[0]) or shapes.get(node.output[0]) or ()
        if scale is not None and point is not None and not scale.ndim and len(shape) > 1 and shape[1] > 1:
            yield k, scale * np.linspace(1, 2, shape[1], dtype=scale.dtype), np.repeat(point, shape[1])


def _rescale(new: onnx.GraphProto, k: int, scales: Array, points: Array) -> None:
    new.initializer.extend([numpy_helper.from_array(scales, "scales"), numpy_helper.from_array(points, "points")])
    new.node[k].input[1], new.node[k].input[2] = "scales", "points"


def _set(node: onnx.NodeProto, attribute: onnx.AttributeProto) -> None:
    kept = [one for one in node.attribute if one.name != attribute.name]
    del node.attribute[:]
    node.attribute.extend([*kept, attribute])


def _attributes(node: onnx.NodeProto) -> Iterator[onnx.AttributeProto]:
    """Yield attributes with values other than the present or default ones."""
    given = {one.name: onnx.helper.get_attribute_value(one) for one in node.attribute}
    for name, declared in onnx.defs.get_schema(node.op_type).attributes.items():
        if name in _IDLE:
            continue
        default = onnx.helper.get_attribute_value(declared.default_value) if declared.default_value.name else None
        for value in _values(name, given.get(name, default), declared.type):
            yield onnx.helper.make_attribute(name, value)


def _values(name: str, value: Any, kind: onnx.defs.OpSchema.AttrType) -> Iterable[Any]:
    kinds = onnx.defs.OpSchema.AttrType
    if kind == kinds.INT:
        return [(value or 0) + 1, (value or 0) - 1]
    if kind == kinds.FLOAT:
        return [(value or 0.0) + 0.25]
    if kind == kinds.INTS:
        numbers = list(value or [_DEFAULTS[name]] * 2) if value or name in _DEFAULTS else []
        return [[n + (k == j) for k, n in enumerate(numbers)] for j in range(len(numbers))]
    return [_ALIGNED[name]] if name in _ALIGNED else []


def _infer_dims(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with inferred shapes."""
    del model.graph.value_info[:]
    for one in model.graph.output:
        one.type.tensor_type.ClearField("shape")
    return onnx.shape_inference.infer_shapes(model)
