"""Validity of a finished ONNX model, and attribution of errors to handlers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from onnx_tflite_plugin.checked import append_clause
from onnx_tflite_plugin.errors import (
    CONTRADICTION,
    AttributedProblem,
    Contradiction,
    HandlerError,
    InvalidModel,
    Problem,
    TargetRefusal,
)
from onnx_tflite_plugin.graph.node_metadata import source_handler, source_operators
from onnx_tflite_plugin.guard import BUILTIN, Failed, of_pack
from onnx_tflite_plugin.source.dtypes import QUANTIZED

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

MAX_PROTO_BYTES = 1_900_000_000  # protobuf's limit is 2 GiB, part of which the graph needs
_SHAPE = re.compile(
    r"Inferred shape and existing shape differ in (?P<what>[^:]*): \((?P<emitted>\d+)\) vs \((?P<file>\d+)\)"
)
_DTYPE = re.compile(r"has unsupported type: tensor\((?P<dtype>\w+)\)")


class DeclaredHandler(NamedTuple):
    """Facts on the handler of a pack, for messages.

    ``label``: the handler's first operator in the model. ``declarations``: its declarations that determine the layout
    and dtype of tensors. ``location``: file and line of the lowering's result.
    """

    label: str
    declarations: str
    location: str = ""


def weight_bytes(model: ir.Model) -> int:
    """Return the size of a model's initializers in bytes."""
    import onnx_ir as ir

    tensors = (value.const_value for value in model.graph.initializers.values() if value.const_value is not None)
    return sum(_text_bytes(tensor) if tensor.dtype == ir.DataType.STRING else tensor.nbytes for tensor in tensors)


def _text_bytes(tensor: ir.TensorProtocol) -> int:
    return sum(len(text) for text in tensor.numpy().reshape(-1))


def find_violation(proto: onnx.ModelProto) -> str:
    """Return the first error of ONNX's checker or shape inference; "" if valid."""
    import onnx

    try:
        onnx.checker.check_model(proto, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        return " ".join(str(error).split())
    return ""


def check_valid(
    model: ir.Model, proto: onnx.ModelProto, declared: Mapping[tuple[str, str], DeclaredHandler] | None = None
) -> None:
    """Raise an error for a model that is not valid ONNX.

    Raises HandlerError naming the handler of the invalid node, TargetRefusal for dtypes that ONNX lacks, and
    InvalidModel if the file's shapes contradict a built-in handler. ``declared``: facts on each handler of a pack,
    by handler and pack.
    """
    text = find_violation(proto)
    if not text:
        return
    message = "the emitted model is not valid ONNX:"
    invalid_node = next((node for node in model.graph if node.name and f"node name: {node.name})" in text), None)
    handler, pack = ("", "") if invalid_node is None else source_handler(invalid_node.metadata_props)
    _, declarations, location = (declared or {}).get((handler, pack), DeclaredHandler("", ""))
    missing_dtype = _DTYPE.search(text)
    if missing_dtype and not declarations:
        raise TargetRefusal(
            "ONNX does not define all operators for these dtypes:",
            [_missing_dtype_problem(missing_dtype["dtype"], invalid_node, text)],
        )
    if invalid_node is None or not handler:
        raise HandlerError(
            message, [AttributedProblem("the model", text, Failed(BUILTIN, text).hint, to_converter=True)]
        )
    conflict = _describe_conflict(text, invalid_node, declared=bool(declarations))
    if conflict and pack == BUILTIN:
        hint = "convert the original model again"
        raise InvalidModel(CONTRADICTION, [Contradiction(_describe_location(invalid_node), conflict, hint)])
    remedy = "; correct the lowering or the declarations" if declarations and _SHAPE.search(text) else ""
    fact = conflict or text
    declared_facts = declarations and f"{' ' if fact.endswith('?') else '; '}it declares {declarations}"
    reason = f"{fact}{declared_facts}{remedy}"
    failure = append_clause(f"handler {handler}{of_pack(pack)} failed: {reason}", location and f"at {location}")
    failed = Failed(pack, failure)
    raise HandlerError(message, [failed.problem(f"{invalid_node.op_type} {invalid_node.name!r}")])


def _missing_dtype_problem(dtype: str, node: ir.Node | None, text: str) -> Problem:
    """Return the problem that ONNX does not define an operator for a dtype."""
    hint = "--quantization float" if dtype in QUANTIZED else ""
    if node is None or not source_operators(node.metadata_props):
        return Problem("the model", text, hint)
    return Problem(_describe_location(node), f"ONNX defines no {node.op_type} for {dtype}", hint)


def _describe_conflict(text: str, node: ir.Node, *, declared: bool) -> str:
    """Return the shapes or dtypes that shape inference refused; "" for other errors."""
    shape = _SHAPE.search(text)
    if shape is None:
        return _describe_operands(text, node, declared=declared) if "InferenceError]" in text else ""
    axis = shape["what"].removeprefix("dimension ")
    emitted = f"rank {shape['emitted']}" if shape["what"] == "rank" else f"size {shape['emitted']} along axis {axis}"
    fact = f"the emitted value has {emitted}, but {shape['file']} is expected"
    return f"{fact} from the file and the handler's declarations" if declared else f"{fact} from the file ({text})"


def _describe_operands(text: str, node: ir.Node, *, declared: bool) -> str:
    """Return the operands that shape inference refused, with a remedy for the handler."""
    unsupported = _DTYPE.search(text)
    operands = [value for value in node.inputs if value is not None]
    dtypes = [_dtype_name(value) for value in operands]
    if unsupported is not None and declared:
        remedy = "; quantization=Dequantized() would compute on floats" if unsupported["dtype"] in QUANTIZED else ""
        return f"ONNX has no {node.op_type} of {unsupported['dtype']}{remedy}"
    if "inconsistent type" not in text or "" in dtypes:
        return f"the shapes and dtypes of the operands are inconsistent ({text})"
    narrow_dtypes = [_dtype_before_cast(value) for value in operands]
    descriptions = [
        f"{dtype} (cast from {source})" if source else dtype
        for dtype, source in zip(dtypes, narrow_dtypes, strict=True)
    ]
    fact = f"the operands of {node.op_type} are {' and '.join(descriptions)}, but must have one dtype"
    if remedy := _suggest_integer(operands, dtypes):
        return f"{fact}; {remedy}"
    if any(source in QUANTIZED for source in (*dtypes, *narrow_dtypes)) and any(
        dtype.startswith("float") for dtype in dtypes
    ):
        return f"{fact}; the handler gets quantized values: quantization=Dequantized() would pass floats"
    if any(dtype == "float64" and value.const_value for value, dtype in zip(operands, dtypes, strict=True)):
        return f"{fact}; a NumPy number or array keeps its dtype: pass float(x), or x.astype(np.float32)"
    integer_constants = [
        value for value, dtype in zip(operands, dtypes, strict=True) if dtype == "int64" and value.const_value
    ]
    has_floats = any(dtype.startswith("float") for dtype in dtypes)
    return (
        f"{fact}; a Python int is int64: write 1.0 instead of 1 for a float"
        if integer_constants and has_floats
        else fact
    )


def _suggest_integer(operands: Sequence[ir.Value], dtypes: Sequence[str]) -> str:
    """Return a remedy for a float such as 2.0 beside computed integers; else ""."""
    computed = {dtype for value, dtype in zip(operands, dtypes, strict=True) if value.const_value is None}
    constants = [value.const_value.numpy() for value in operands if value.const_value is not None]
    if len(computed) != 1 or not computed <= {"int32", "int64"}:
        return ""
    scalars = (float(array.item()) for array in constants if array.size == 1 and array.dtype.kind == "f")
    number = next((number for number in scalars if number.is_integer()), None)
    return "" if number is None else f"write np.{computed.pop()}({number:.0f}) instead of {number} for an integer"


def _dtype_before_cast(value: ir.Value) -> str:
    """Return the dtype of the value that a Cast widened; empty for other values."""
    producer = value.producer()
    cast = producer.inputs[0] if producer is not None and producer.op_type == "Cast" else None
    return "" if cast is None else _dtype_name(cast)


def _dtype_name(value: ir.Value) -> str:
    """Return NumPy's name of a value's dtype; empty if it is unknown."""
    return (
        ""
        if value.dtype is None
        else {"FLOAT": "float32", "DOUBLE": "float64"}.get(value.dtype.name, value.dtype.name.lower())
    )


def _describe_location(node: ir.Node) -> str:
    """Return the location of the operators in the file that a node was lowered from."""
    locations = [f"subgraphs[{graph}].operators[{index}]" for graph, index in source_operators(node.metadata_props)]
    return f"{' and '.join(locations)}: {node.op_type} {node.name!r}"
