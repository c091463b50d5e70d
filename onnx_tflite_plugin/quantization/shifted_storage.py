"""Tensors stored in a different dtype from the file, such as int8 as uint8."""

from __future__ import annotations

from collections.abc import Mapping

from onnx_tflite_plugin.api.target import Target
from onnx_tflite_plugin.binding.bound import BoundModel
from onnx_tflite_plugin.binding.states import StateUsers, state_tensor, users_by_key
from onnx_tflite_plugin.quantization.storage import Storage, behavior_tensors, quantized_tensors, shift_storage
from onnx_tflite_plugin.source.affine import affine, is_quantized
from onnx_tflite_plugin.source.model import Tensor


def plan_shifted_storage(model: BoundModel, target: Target) -> dict[Tensor, Storage]:
    """Return the storage of the tensors whose dtype changes.

    The target has separate tables for activations and for weights.
    """
    weights, states = _weight_tensors(model), users_by_key(model)
    unshifted = _tensors_in_file_dtype(model) | _interface_only_tensors(model, weights, states, target)
    shifted: dict[Tensor, Storage] = {}
    for bound in model.operators():
        for tensor in quantized_tensors(bound):
            quantization = affine(tensor)
            table = target.weights if tensor in weights else target.storage
            if tensor in unshifted or tensor.dtype not in table or quantization is None:
                continue
            shifted[tensor] = shift_storage(tensor, *table[tensor.dtype])
    for tensor in _mixed_state_tensors(states, shifted):
        shifted.pop(tensor, None)
    return shifted


def _mixed_state_tensors(states: StateUsers, shifted: Mapping[Tensor, Storage]) -> set[Tensor]:
    """Return all tensors of each state whose tensors would differ in storage."""
    state_tensors = [{state_tensor(bound) for bound in users} for users in states.users.values()]
    if not states.is_complete:
        return {tensor for group in state_tensors for tensor in group}
    unshifted: set[Tensor] = set()

    def dtype_and_shift(tensor: Tensor) -> tuple[str, int] | None:
        storage = None if tensor in unshifted else shifted.get(tensor)
        return None if storage is None else (storage.dtype, storage.shift)

    # An unshifted tensor may belong to several states.
    while mixed := [group for group in state_tensors if len({*map(dtype_and_shift, group)}) > 1]:
        unshifted.update(*mixed)
    return unshifted


def _tensors_in_file_dtype(model: BoundModel) -> set[Tensor]:
    """Return the tensors that must keep the storage of the file.

    These are variable tensors, inputs and outputs of subgraphs, and tensors that kernels read without a scale.
    """
    tensors = {t for graph in model.graphs if graph is not model.main for t in (*graph.inputs, *graph.outputs)}
    for bound in model.operators():
        behavior = bound.declared.quantization
        if bound.declared.subgraphs or (bound.declared.effects is not None and not behavior.allows_shifted_states):
            tensors.update(quantized_tensors(bound))
        if behavior.keeps_file_values:
            tensors.update(behavior_tensors(bound))
        tensors.update(quantized_tensors(bound, behavior.file_slots))
        tensors.update(t for t in (*bound.op.inputs, *bound.op.outputs) if t is not None and t.is_variable)
    return tensors


def _interface_only_tensors(model: BoundModel, weights: set[Tensor], states: StateUsers, target: Target) -> set[Tensor]:
    """Return tensors of operators that use only graph inputs, outputs and constants.

    Shifting the storage of these tensors gains nothing. Operators with weights are excluded, because they are fused
    only in the target's dtype.
    """
    interface = {t for t in (*model.main.inputs, *model.main.outputs) if t.dtype in target.quantizes}
    by_operator = {bound: {*quantized_tensors(bound)} for bound in model.operators()}
    # All users of a state share its tensors, even an operator that only assigns a constant.
    for users in states.users.values():
        state_tensors = {state_tensor(bound) for bound in users if is_quantized(state_tensor(bound))}
        by_operator.update((bound, state_tensors) for bound in users)
    isolated = {
        bound
        for bound, tensors in by_operator.items()
        if all((t in interface or t.is_constant) and t not in weights for t in tensors)
    }
    while True:  # an operator that shares a tensor with a shifted operator is not isolated
        shared = {t for bound, tensors in by_operator.items() if bound not in isolated for t in tensors}
        still_isolated = {bound for bound in isolated if shared.isdisjoint(by_operator[bound])}
        if still_isolated == isolated:
            return {t for bound in isolated for t in by_operator[bound]}
        isolated = still_isolated


def _weight_tensors(model: BoundModel) -> set[Tensor]:
    """Return constants in the slots that a behavior declares as weights."""
    weights: set[Tensor] = set()
    for bound in model.operators():
        slots = bound.declared.quantization.weight_slots
        weights.update(t for slot in slots if (t := bound.op.tensor(slot)) is not None and t.is_constant)
    return weights
