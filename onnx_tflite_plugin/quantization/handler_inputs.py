"""Storage of the quantized values that a handler gets and returns."""

from __future__ import annotations

from onnx_tflite_plugin.api.behavior import Arithmetic
from onnx_tflite_plugin.binding.bound import Bound
from onnx_tflite_plugin.quantization.plan import StoragePlan
from onnx_tflite_plugin.quantization.storage import Storage, file_storage, shift_storage
from onnx_tflite_plugin.source.affine import affine
from onnx_tflite_plugin.source.model import Tensor


def uses_file_integers(plan: StoragePlan, bound: Bound, slot: int) -> bool:
    """True if the handler gets the slot's quantized values as in the file."""
    return plan.arithmetic[bound] is Arithmetic.QUANTIZED_AS_IN_FILE and slot not in bound.declared.output_quantization


def storage_of_slot(plan: StoragePlan, bound: Bound, slot: int) -> Storage:
    """Return the storage of the slot's quantized values in the handler.

    An operator that computes on quantized values gets all of them in the storage of its first quantized output. The
    planned storage may differ for inputs and outputs of subgraphs, variables, and tensors that kernels read without a
    scale.
    """
    tensor = bound.op[slot]
    if uses_file_integers(plan, bound, slot):
        return file_storage(tensor)
    planned, result = plan.storage(tensor), _integer_result(plan, bound)
    has_own_quantization = slot in bound.declared.output_quantization
    if has_own_quantization or result is None or affine(tensor) is None or tensor.dtype != result.dtype:
        return planned
    result_storage = plan.storage(result)
    if planned.shift == result_storage.shift:
        return planned
    return shift_storage(tensor, result_storage.dtype, result_storage.shift)


def _integer_result(plan: StoragePlan, bound: Bound) -> Tensor | None:
    """Return the first output computed as quantized values; ``None`` if there is none.

    Slots of ``output_quantization`` are skipped.
    """
    if plan.arithmetic[bound] is not Arithmetic.QUANTIZED:
        return None
    overridden_slots = bound.declared.output_quantization
    outputs = (t for k, t in enumerate(bound.op.outputs) if ~k not in overridden_slots)
    return next((t for t in outputs if affine(t) is not None), None)
