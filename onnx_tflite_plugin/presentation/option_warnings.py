"""Warnings about options that change results, or that have no effect on the model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from onnx_tflite_plugin.binding.bound import Bound, BoundModel
from onnx_tflite_plugin.checked import plural
from onnx_tflite_plugin.options import ConvertOptions
from onnx_tflite_plugin.rewrite.weights.dtypes import DEPENDENT

if TYPE_CHECKING:
    import onnx_ir as ir

REQUANTIZED = "8-bit tensors are requantized to symmetric int8, so results can differ from the file's"


def option_warnings(
    options: ConvertOptions, bound_model: BoundModel, model: ir.Model, product_counts: Mapping[str, int]
) -> Iterator[str]:
    """Yield warnings about the options of a conversion.

    ``bound_model``: the operators that became ``model``. ``product_counts``: number of 8-bit matrix products, by weight
    dtype.
    """
    if count := product_counts.get(DEPENDENT, 0):
        yield (
            f"{plural(count, 'layer')}: the int8 weights give wrong results on x86 processors without VNNI, whose 16-bit sums "
            "overflow; --weights-dtype auto is exact on every processor"
        )
    if options.quantization == "symmetric":
        unchanged = "--quantization symmetric requantizes nothing: the model has no 8-bit activations"
        yield REQUANTIZED if _is_requantized(bound_model) else unchanged
    if options.weights_dtype in ("int8", "uint8") and not product_counts:
        yield f"--weights-dtype {options.weights_dtype} has no effect: the model has no layers with int8 weights"
    if options.weights == "fold" and options.quantization == "qdq" and (count := _count_quantized_weights(model)):
        yield (
            f"--weights fold keeps {plural(count, 'constant')} quantized, because the activations of the layers are quantized "
            "too; --quantization float makes both float"
        )
    if options.state == "reset" and not any(map(_accesses_state, bound_model.operators())):
        yield "--state reset has no effect: the model has no states"


def _is_requantized(model: BoundModel) -> bool:
    """True if activations of the file are rounded to symmetric int8."""
    tensors = (tensor for bound in model.operators() for tensor in (*bound.op.inputs, *bound.op.outputs))
    return any(tensor is not None and tensor.fake_quantization is not None for tensor in tensors)


def _accesses_state(bound: Bound) -> bool:
    """True for an operator with a state: a resource or a variable tensor."""
    return bound.declared.effects is not None or any(
        tensor is not None and tensor.is_variable for tensor in bound.op.inputs
    )


def _count_quantized_weights(model: ir.Model) -> int:
    """Return the number of dequantized constants of at most 8 bits and rank 1 or more."""
    quantized_values = {node.inputs[0] for node in model.graph.all_nodes() if node.op_type == "DequantizeLinear"}
    tensors = [value.const_value for value in quantized_values if value is not None and value.const_value is not None]
    return sum(tensor.dtype.bitwidth <= 8 and len(tensor.shape) > 0 for tensor in tensors)
