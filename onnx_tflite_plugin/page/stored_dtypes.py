"""Dtypes of tensors in the ONNX model, and hints about changed inputs and outputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from onnx_tflite_plugin.graph.metadata import props
from onnx_tflite_plugin.graph.value_metadata import read_tensor
from onnx_tflite_plugin.presentation.author_metadata import metadata_lines
from onnx_tflite_plugin.presentation.graph_io import GraphValue
from onnx_tflite_plugin.presentation.hints import input_hints, output_hints
from onnx_tflite_plugin.source.affine import affine
from onnx_tflite_plugin.source.model import Subgraph, Tensor

if TYPE_CHECKING:
    import onnx


def onnx_dtype(elem_type: int) -> str:
    """Return the name of a dtype of ONNX, such as ``float32``."""
    import onnx

    name = str(onnx.TensorProto.DataType.Name(elem_type)).lower()
    return {"float": "float32", "double": "float64"}.get(name, name)


def stored_dtypes(graph: Subgraph, onnx: onnx.ModelProto) -> dict[int, str]:
    """Return tensor index -> dtype in the ONNX model.

    A quantized tensor without a value in the ONNX model counts as float32 if another quantized tensor is float there.
    Otherwise its dtype is unknown and therefore empty, as is that of a complex tensor without a value. The dtypes of other
    tensors without a value are those of the file, and left out.
    """
    infos = (*onnx.graph.input, *onnx.graph.output, *onnx.graph.value_info)
    dtypes: dict[int, str] = {}
    for info in infos:
        value = read_tensor(info.name, props(info.metadata_props))
        if value is not None and value.encoding == "stored" and value.subgraph == graph.index:
            dtypes.setdefault(value.tensor, onnx_dtype(info.type.tensor_type.elem_type))
    quantized = {
        tensor.index
        for tensor in _tensors(graph)
        if affine(tensor) is not None and not tensor.dtype.startswith("float")
    }
    has_floats = any(dtype.startswith("float") for tensor, dtype in dtypes.items() if tensor in quantized)
    complex_tensors = {tensor.index for tensor in _tensors(graph) if tensor.dtype.startswith("complex")}
    unknown = dict.fromkeys(complex_tensors, "")
    return {**unknown, **dict.fromkeys(quantized, "float32" if has_floats else ""), **dtypes}


def _tensors(graph: Subgraph) -> Iterator[Tensor]:
    """Yield the inputs and outputs of the subgraph and of its operators."""
    operator_tensors = (tensor for op in graph.operators for tensor in (*op.inputs, *op.outputs))
    yield from (t for t in (*graph.inputs, *graph.outputs, *operator_tensors) if t is not None)


def interface_hints(
    graph: Subgraph, inputs: Sequence[Mapping[str, Any]], outputs: Sequence[Mapping[str, Any]]
) -> list[str]:
    """Return the hints about inputs and outputs that are float32 instead of quantized.

    ``inputs`` and ``outputs``: rows with name, dtype and shape in the ONNX model. A row also has the TFLite name as
    ``tensor`` if it differs.
    """
    by_name = {tensor.name: tensor for tensor in _tensors(graph)}
    values_and_tensors = [
        {row["name"]: (GraphValue(row["name"], row["dtype"], tuple(row["shape"])), by_name[name])
         for row in rows if (name := row.get("tensor") or row["name"]) in by_name}
        for rows in (inputs, outputs)
    ]  # fmt: skip
    input_values, output_values = ([value for value, _ in side.values()] for side in values_and_tensors)
    input_tensors, output_tensors = (
        {name: tensor for name, (_, tensor) in side.items()} for side in values_and_tensors
    )
    return [*input_hints(input_values, input_tensors), *output_hints(output_values, output_tensors)]


def describe_metadata(row: Mapping[str, Any]) -> list[str]:
    """Return the lines about the author's metadata of a graph input or output.

    ``row``: fields of a GraphValue, read from the ONNX model; other keys are ignored.
    """
    field_names = {attribute.name for attribute in fields(GraphValue)}
    return [*metadata_lines(GraphValue(**{key: _as_tuple(value) for key, value in row.items() if key in field_names}))]


def _as_tuple(value: Any) -> Any:
    """Convert a list and its inner lists to tuples; return other values unchanged."""
    return tuple(map(_as_tuple, value)) if isinstance(value, list) else value


def worst_errors(errors: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Yield the row with the largest error of each tensor, in the order of ``errors``.

    The ONNX model may have several values for one tensor, for example in two layouts.
    """
    rows: dict[int, Mapping[str, Any]] = {}
    for error in errors:
        if (worst := rows.get(error["tensor"])) is None or _severity(error) > _severity(worst):
            rows[error["tensor"]] = error
    yield from rows.values()


def _severity(error: Mapping[str, Any]) -> tuple[bool, float]:
    """Return a sort key that grows with failure, then with the error per tolerance."""
    relative_error = float("inf") if error["max_error"] is None else error["max_error"] / (error["tolerance"] or 1.0)
    return not error["ok"], relative_error
