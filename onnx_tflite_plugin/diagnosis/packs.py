"""Declarations of op packs' handlers, which may be the cause of a failure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from inspect import isfunction

from onnx_tflite_plugin.api.behavior import Behavior
from onnx_tflite_plugin.api.layouts import Layout
from onnx_tflite_plugin.api.quantization import Dequantized
from onnx_tflite_plugin.binding.bound import BoundModel, Declared
from onnx_tflite_plugin.errors import AttributedProblem, InternalError
from onnx_tflite_plugin.graph.validity import DeclaredHandler
from onnx_tflite_plugin.guard import BUILTIN, Failed, result_location
from onnx_tflite_plugin.source.affine import affine
from onnx_tflite_plugin.source.model import Operator

PackDeclarations = Mapping[tuple[str, str], DeclaredHandler]
"""(handler, pack) -> declarations of the handler as text."""


def pack_declarations(model: BoundModel) -> PackDeclarations:
    """Return the declarations of the model's handlers that are not built in.

    Declarations that the conversion has not read yet are replaced by the text "not read yet".
    """
    by_handler: dict[tuple[str, str], DeclaredHandler] = {}
    for bound in model.operators():
        if bound.pack != BUILTIN:
            text = "not read yet"
            if bound.resolved is not None:
                text = f"{declarations(bound.resolved)}{_describe_missing_bias(bound.op, bound.resolved)}"
            facts = DeclaredHandler(bound.label, text, result_location(bound.handler.lower))
            by_handler.setdefault((bound.handler.name, bound.pack), facts)
    return by_handler


def _describe_missing_bias(op: Operator, declared: Declared) -> str:
    """Return a remedy if an operand may be a bias that the behavior does not declare.

    Such an operand is an int32 vector of constants after two quantized operands. If a declared bias is int32, the
    behavior declares the right slot.
    """
    behavior = declared.quantization
    if (
        not isinstance(behavior, Dequantized)
        or any(tensor is not None and tensor.dtype == "int32" for tensor in map(op.tensor, behavior.bias))
        or affine(op.tensor(0)) is None
        or affine(op.tensor(1)) is None
    ):
        return ""
    constants = (slot for slot, tensor in enumerate(op.inputs) if tensor is not None and tensor.is_constant)
    slot = next((slot for slot in constants if slot > 1 and op[slot].dtype == "int32" and op[slot].rank == 1), None)
    return (
        "" if slot is None else f"; slot {slot} is int32: if it is a bias, declare Dequantized(bias={{{slot}: (0, 1)}})"
    )


def declarations(declared: Declared) -> str:
    """Return the declarations of layouts and dtypes as text.

    Example: ``layout=Transparent(), axes='n c -> n c', quantization=SameScale()``.
    """
    axes = [] if declared.axes is None else [f"axes={declared.axes!r}"]
    parts = [f"layout={_format_declaration(declared.layout)}", *axes]
    if declared.quantization.is_quantizable:
        parts.append(f"quantization={_format_declaration(declared.quantization)}")
    return ", ".join(parts)


def attribute_to_packs(failure: str, declared: PackDeclarations) -> InternalError:
    """Return an error that names declarations as the possible cause of a failure.

    ``failure``: the exception in the converter's code and its location.
    """
    problems = [
        AttributedProblem(
            facts.label,
            f"if the declarations of handler {handler} of {pack} are wrong ({facts.declarations}), they are the cause of {failure}",
            Failed(pack, "").hint,
        )
        for (handler, pack), facts in declared.items()
    ]
    return InternalError("the conversion failed, possibly because of an op pack's declarations:", problems)


def _format_declaration(value: Layout | Behavior) -> str:
    """Return a declaration as source text, without fields of default value."""
    arguments = []
    for field in fields(value):
        default = field.default_factory() if field.default_factory is not MISSING else field.default
        if (current := getattr(value, field.name)) != default:
            arguments.append(f"{field.name}={current.__name__ if isfunction(current) else repr(current)}")
    return f"{type(value).__name__}({', '.join(arguments)})"
