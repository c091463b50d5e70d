"""Fused activations as LiteRT's kernels apply them."""

from __future__ import annotations

from dataclasses import replace

from onnx_tflite_plugin.api.activations import ActivationKernel, FusedActivation, effective_activation
from onnx_tflite_plugin.api.declarations import Decline, Handler, Instance
from onnx_tflite_plugin.api.refusal import Refusal
from onnx_tflite_plugin.binding.bound import label
from onnx_tflite_plugin.checked import describe
from onnx_tflite_plugin.guard import WrongResult, attribute_errors
from onnx_tflite_plugin.source.model import Operator


def activation_declaration(handler: Handler) -> FusedActivation | None:
    """Return the FusedActivation that a handler declares, or None."""
    declared = handler.activation
    if isinstance(declared, str):
        return FusedActivation(option=declared)
    return declared if isinstance(declared, FusedActivation) else None


def resolve_activation(handler: Handler, pack: str, instance: Instance) -> Operator | Decline:
    """Return the operator with the effective activation as its option.

    Return a Decline if LiteRT's kernels for this operator refuse the activation. Raises Failed if the handler's function
    fails or does not return an ActivationKernel.
    """
    op, declared = instance.op, activation_declaration(handler)
    # An option that does not exist is reported later, when the declarations are read.
    if declared is None or (op.options and declared.option not in op.options):
        return op
    name = str(op.options.get(declared.option, "NONE"))
    try:
        effective = effective_activation(_kernel_family(declared, handler, pack, instance), name)
    except Refusal as refusal:
        return Decline(str(refusal))
    if effective == name or not op.options:
        return op
    return replace(op, options=op.options.with_fields({**op.options, declared.option: effective}))


def _kernel_family(declared: FusedActivation, handler: Handler, pack: str, instance: Instance) -> ActivationKernel:
    if isinstance(declared.kernel, ActivationKernel):
        return declared.kernel
    name = f"activation declared by handler {handler.name}"
    with attribute_errors(name, pack, declared.kernel, label(instance.op), expected=(Refusal,)):
        kernel = declared.kernel(instance)
        if not isinstance(kernel, ActivationKernel):
            raise WrongResult(f"it returned {describe(kernel)}, not an ActivationKernel")
        return kernel
