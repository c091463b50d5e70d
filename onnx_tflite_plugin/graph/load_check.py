"""Check that ONNX Runtime loads a finished model: some dtypes have no kernels."""

from __future__ import annotations

import re
from importlib.util import find_spec
from typing import TYPE_CHECKING

from onnx_tflite_plugin.errors import MissingExtra, Problem, TargetRefusal
from onnx_tflite_plugin.graph.kernels import suggest_options
from onnx_tflite_plugin.graph.node_metadata import source_name, source_operators
from onnx_tflite_plugin.graph.validity import weight_bytes

if TYPE_CHECKING:
    import onnx_ir as ir

CHEAP_BYTES = 1 << 20
"""Maximum weight bytes of a model that is always opened in auto mode, which takes milliseconds, plus 0.1 s for the import."""
DOMAINS = frozenset({"", "ai.onnx", "ai.onnx.ml", "com.microsoft"})
"""Operator domains of ONNX Runtime itself. Other domains need a library that is registered with the session."""
COMMON_DTYPES = frozenset({"FLOAT", "UINT8", "INT8", "INT32", "INT64", "BOOL"})
"""Dtypes that practically every kernel supports. Larger models are opened only if they compute with other dtypes."""


def should_open(model: ir.Model, check: str) -> bool:
    """True if the model is to be opened.

    Raises MissingExtra for "full" without ONNX Runtime. ``check``: "full", "standard" (never) or "auto". "auto" opens a
    model if ONNX Runtime is installed, no operator needs a custom library, and opening is cheap or some dtypes are
    uncommon.
    """
    if check == "standard":
        return False
    if find_spec("onnxruntime") is None:
        if check == "full":
            raise MissingExtra("onnxruntime")
        return False
    worth_opening = weight_bytes(model) <= CHEAP_BYTES or _uses_uncommon_dtypes(model)
    return check == "full" or (not foreign_domains(model) and worth_opening)


def check_opens(model: ir.Model, source: str | bytes, opsets: tuple[int, int]) -> None:
    """Open the model in ONNX Runtime. Raises TargetRefusal with ONNX Runtime's reason.

    ``source``: the serialized model, or the path of a file that holds it. ``opsets``: lowest and highest opset to
    suggest.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    try:
        onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime's exceptions have no narrower common base
        reason = " ".join(str(error).split()).replace("[ONNXRuntimeError] : ", "")
        raise TargetRefusal(
            f"ONNX Runtime {onnxruntime.__version__} does not open the converted model:",
            [Problem(_describe_failed_node(model, reason), reason, suggest_options(model, reason, opsets))],
        ) from error


def _describe_failed_node(model: ir.Model, reason: str) -> str:
    """Return the TFLite operator of the node that ONNX Runtime names, with its dtypes.

    Without such an operator, return a description of the whole model.
    """
    quoted = {*re.findall(r"'([^']+)'|\(([^()]+)\)", reason)}
    names = {name for pair in quoted for name in pair if name}
    node = next((node for node in model.graph.all_nodes() if node.name in names), None)
    if node is None:
        return "the ONNX model"
    operators = " and ".join(
        f"op {index}" if subgraph == 0 else f"subgraph {subgraph} op {index}"
        for subgraph, index in source_operators(node.metadata_props)
    )
    dtypes = [value.dtype.name.lower() for value in node.inputs if value is not None and value.dtype is not None]
    tensor = source_name(node.metadata_props)
    origin = f"{operators}{f', output {tensor!r}' if tensor else ''}: " if operators else ""
    return f"{origin}node {node.name!r}, {node.op_type} of {', '.join(dtypes) or 'unknown dtypes'}"


def foreign_domains(model: ir.Model) -> tuple[str, ...]:
    """Return the domains that ONNX Runtime and the model's functions lack, sorted."""
    function_domains = {domain for domain, _, _ in model.functions}
    return tuple(sorted({node.domain for node in model.graph.all_nodes()} - DOMAINS - function_domains))


def _uses_uncommon_dtypes(model: ir.Model) -> bool:
    """True if the model computes in a dtype that only some kernels support."""
    values = (*model.graph.inputs, *(value for node in model.graph.all_nodes() for value in node.outputs))
    return any(value.type is not None and value.type.dtype.name not in COMMON_DTYPES for value in values)
