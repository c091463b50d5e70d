"""Whether a finished model is valid ONNX, and whose fault it is where it is not."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from onnx_tflite_plugin.errors import (
    CONTRADICTION,
    Blamed,
    Contradiction,
    HandlerError,
    InvalidModel,
    Problem,
    TargetRefusal,
)
from onnx_tflite_plugin.graph.metadata import lowered_by, lowered_from
from onnx_tflite_plugin.guard import BUILTIN, Failed
from onnx_tflite_plugin.source.dtypes import QUANTIZED

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

LARGEST_PROTO = 1_900_000_000  # protobuf's limit is 2 GiB; onnx needs some of it for the graph
_SHAPE = re.compile(
    r"Inferred shape and existing shape differ in (?P<what>[^:]*): \((?P<made>\d+)\) vs \((?P<file>\d+)\)"
)
_DTYPE = re.compile(r"has unsupported type: tensor\((?P<dtype>\w+)\)")


def weight_bytes(model: ir.Model) -> int:
    import onnx_ir as ir

    tensors = (value.const_value for value in model.graph.initializers.values() if value.const_value is not None)
    return sum(_text_bytes(tensor) if tensor.dtype == ir.DataType.STRING else tensor.nbytes for tensor in tensors)


def _text_bytes(tensor: ir.TensorProtocol) -> int:
    return sum(len(text) for text in tensor.numpy().reshape(-1))


def invalid(proto: onnx.ModelProto) -> str:
    """What the standard's checker and shape inference say against a model, on one line; empty where nothing."""
    import onnx

    try:
        onnx.checker.check_model(proto, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        return " ".join(str(error).split())
    return ""


def check_valid(
    model: ir.Model, proto: onnx.ModelProto, declared: Mapping[tuple[str, str], tuple[str, str]] | None = None
) -> None:
    """Raises HandlerError for a model that is not valid ONNX: a contradiction is the handler's fault, so it is named.

    ``declared``: by handler and pack, an operator and what decides order and dtype of its tensors.
    """
    text = invalid(proto)
    if not text:
        return
    message = "what was emitted is not valid ONNX:"
    offending = next((node for node in model.graph if node.name and f"node name: {node.name})" in text), None)
    handler, pack = ("", "") if offending is None else lowered_by(offending.metadata_props)
    _, says = (declared or {}).get((handler, pack), ("", ""))
    lacking = _DTYPE.search(text)
    if lacking and not says:
        raise TargetRefusal(
            "ONNX has not all operators in these dtypes:", [_without(lacking["dtype"], offending, text)]
        )
    if offending is None or not handler:
        raise HandlerError(message, [Blamed("the model", text, Failed(BUILTIN, text).hint, ours=True)])
    told = _shape_told(text, declared=bool(says))
    if told and pack == BUILTIN:
        raise InvalidModel(CONTRADICTION, [Contradiction(_place(offending), told, "convert the original model again")])
    failed = Failed(pack, f"handler {handler} of {pack} failed: {told or text}{says and f'; it declares {says}'}")
    raise HandlerError(message, [failed.problem(f"{offending.op_type} {offending.name!r}")])


def _without(dtype: str, node: ir.Node | None, text: str) -> Problem:
    """ONNX defines no such operator of a dtype; quantized numbers could be floats."""
    hint = "--quantization float" if dtype in QUANTIZED else ""
    if node is None or not lowered_from(node.metadata_props):
        return Problem("the model", text, hint)
    return Problem(_place(node), f"ONNX defines no {node.op_type} of {dtype}", hint)


def _shape_told(text: str, *, declared: bool) -> str:
    """What shape inference says of shapes and dtypes that do not go together; empty where it is something else."""
    shape = _SHAPE.search(text)
    if shape is None:
        return f"the shapes and dtypes of its operands do not go together ({text})" if "InferenceError]" in text else ""
    what = "rank" if shape["what"] == "rank" else f"a size in {shape['what']}"
    size = f"what it emits has {what} of {shape['made']}"
    if declared:
        return f"{size}, by the file and what it declares it is {shape['file']}"
    return f"{size}, the file says {shape['file']} ({text})"


def _place(node: ir.Node) -> str:
    """The operators of the file that a node was made of."""
    places = [f"subgraphs[{graph}].operators[{index}]" for graph, index in lowered_from(node.metadata_props)]
    return f"{' and '.join(places)}: {node.op_type} {node.name!r}"
