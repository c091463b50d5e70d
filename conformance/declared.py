"""Find the operators of a case, and declarations of their handlers."""

from __future__ import annotations

from collections.abc import Iterator

from onnx_tflite_plugin.api import Lookup, Operator, Quantization
from onnx_tflite_plugin.binding.bound import Bound, Declared
from onnx_tflite_plugin.binding.declared import resolve_operator
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.source.dtypes import HANDLES
from onnx_tflite_plugin.source.model import Model
from onnx_tflite_plugin.targets import target_named


def find_operators(model: Model, code: str) -> Iterator[Operator]:
    """Yield the operators of all subgraphs whose code or builtin code is ``code``."""
    return (op for graph in model.subgraphs for op in graph.operators if code in (op.code, op.builtin))


def declarations_of(op: Operator, host: Host) -> Declared | None:
    """Return the handler's declarations for an operator.

    Return None if no handler accepts the operator, or if the rank of an operand or result is known only after the
    conversion. Raises Failed or Refusal if the handler's declarations fail.
    """
    if any(not t.has_rank and t.dtype not in HANDLES for t in (*op.inputs, *op.outputs) if t is not None):
        return None
    target = target_named("onnxruntime")
    bound = host.bind_operator(op, target, target.opsets[2])
    return resolve_operator(bound, target, target.opsets[2]).declared if isinstance(bound, Bound) else None


def has_quantized_activations(op: Operator) -> bool:
    """True if an operand that is not constant, or a result, is quantized."""
    return any(
        isinstance(tensor.quantization, Quantization)
        for tensor in (*op.inputs, *op.outputs)
        if tensor is not None and not tensor.is_constant
    )


def is_looked_up(op: Operator, host: Host) -> bool:
    """True if results come from a declared table, so that the lowering is not called."""
    declared, x = declarations_of(op, host), op.tensor(0)
    behavior = None if declared is None else declared.quantization
    return (
        isinstance(behavior, Lookup) and x is not None and x.dtype in behavior.dtypes and has_quantized_activations(op)
    )
