"""Storage in which an operator's quantized values are handed to its handler and taken back."""

from __future__ import annotations

from onnx_tflite_plugin.api.quantization import Arithmetic
from onnx_tflite_plugin.binding.bound import Bound
from onnx_tflite_plugin.quantization.plan import Storage, StoragePlan, file_storage, shifted_storage
from onnx_tflite_plugin.source.affine import affine
from onnx_tflite_plugin.source.model import Tensor


def uses_file_integers(plan: StoragePlan, bound: Bound, slot: int) -> bool:
    """True if the slot's values are the file's, in whatever storage the plan keeps the tensor."""
    return plan.arithmetic[bound] is Arithmetic.FILE and slot not in bound.declared.output_quantization


def delivered_storage(plan: StoragePlan, bound: Bound, slot: int) -> Storage:
    """Return how the slot's quantized values are kept where the handler takes or returns them.

    An operator that computes on quantized values gets all of them in the storage of its first quantized output. Tensors
    of a subgraph's interface, variables and tensors read as bare integers are kept in another storage than that.
    """
    tensor = bound.op[slot]
    if uses_file_integers(plan, bound, slot):
        return file_storage(tensor)
    own, result = plan.storage(tensor), _integer_result(plan, bound)
    has_own_behaviour = slot in bound.declared.output_quantization
    if has_own_behaviour or result is None or affine(tensor) is None or tensor.dtype != result.dtype:
        return own
    kept = plan.storage(result)
    return own if own.shift == kept.shift else shifted_storage(tensor, kept.dtype, kept.shift)


def _integer_result(plan: StoragePlan, bound: Bound) -> Tensor | None:
    """Return the first quantized output under the operator's own behaviour if it computes on quantized values."""
    if plan.arithmetic[bound] is not Arithmetic.STORED:
        return None
    others = bound.declared.output_quantization
    return next((t for k, t in enumerate(bound.op.outputs) if affine(t) is not None and ~k not in others), None)
