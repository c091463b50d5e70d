"""Storage plan: one dtype per tensor and one arithmetic per operator.

It is made before anything is emitted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from onnx_tflite_plugin.api.behavior import Arithmetic, check_output_parameters
from onnx_tflite_plugin.api.notation import parse_axes
from onnx_tflite_plugin.api.refusal import Refusal
from onnx_tflite_plugin.api.target import Target
from onnx_tflite_plugin.binding.bound import Bound, BoundModel
from onnx_tflite_plugin.binding.states import StateUsers, state_tensor, users_by_key
from onnx_tflite_plugin.checked import describe
from onnx_tflite_plugin.errors import HandlerError, Problem, TargetRefusal
from onnx_tflite_plugin.guard import BUILTIN, Failed, WrongResult, attribute_errors
from onnx_tflite_plugin.renamed import OPERATOR, renamed_attributes
from onnx_tflite_plugin.source.affine import affine, is_quantized
from onnx_tflite_plugin.source.model import BlockwiseQuantization, Operator, Quantization, Tensor


class Form(Enum):
    """Form in which a value holds a tensor: quantized or dequantized.

    A tensor that is not quantized has only the form ``STORED``.
    """

    STORED = "stored"  # quantized values as the storage plan keeps them
    FILE = "file"  # quantized values as in the file
    FLOAT = "float"  # dequantized


_FORMS = {
    Arithmetic.UNQUANTIZED: Form.STORED,
    Arithmetic.FLOAT: Form.FLOAT,
    Arithmetic.QUANTIZED: Form.STORED,
    Arithmetic.QUANTIZED_AS_IN_FILE: Form.FILE,
}
_QUANTIZED_ARITHMETICS = (Arithmetic.FLOAT, Arithmetic.QUANTIZED, Arithmetic.QUANTIZED_AS_IN_FILE)
"""Arithmetics of operators with quantized tensors."""


def form_of(arithmetic: Arithmetic) -> Form:
    """Return the form of an operator's quantized operands and results."""
    return _FORMS[arithmetic]


class Storage(NamedTuple):
    """Storage of quantized values.

    ``dtype``: that of the stored values. ``shift``: the number added to the file's values. ``quantization``,
    ``blocks``: the parameters after the shift.
    """

    dtype: str
    shift: int = 0
    quantization: Quantization | None = None
    blocks: BlockwiseQuantization | None = None


class Weights(Enum):
    """Conversion of a quantized constant to float."""

    FOLDED = "folded"  # at conversion
    MULTIPLIED = "multiplied"  # by Cast and Mul, which runtimes fold at load time
    DEQUANTIZED = "dequantized"  # by DequantizeLinear, at runtime or fused into the operator


class StoragePlan(NamedTuple):
    """Storage per shifted tensor and arithmetic per operator.

    ``fold``: constants are dequantized at conversion.
    """

    target: Target
    shifted: Mapping[Tensor, Storage]
    arithmetic: Mapping[Bound, Arithmetic]
    fold: bool = False

    def storage(self, tensor: Tensor) -> Storage:
        """Return the tensor's storage; the file's dtype unless the plan has another."""
        return self.shifted.get(tensor) or file_storage(tensor)

    def dtype(self, bound: Bound) -> str:
        """Return the storage dtype of an operator's first output; "" if it has none."""
        return next((self.storage(tensor).dtype for tensor in bound.op.outputs if tensor is not None), "")

    def weights(self, bound: Bound, tensor: Tensor) -> Weights:
        """Return how an operand that is constant is converted to float.

        The operand is converted like the operator's activations if those are quantized. ONNX Runtime would round float
        weights to 8 bits again between a DequantizeLinear and a QuantizeLinear. Blocks of int4 stay quantized if the
        target fuses them; no runtime fuses int2.
        """
        if tensor.narrower is not None:
            narrower = self.weights(bound, tensor.narrower) if is_quantized(tensor.narrower) else Weights.DEQUANTIZED
            return Weights.FOLDED if self.fold else narrower
        if tensor.blocks is not None:
            fuses = self.target.fused_block_size(tensor.blocks.block_size) and not self.target.refusal(tensor.dtype, ())
            return Weights.DEQUANTIZED if fuses and tensor.dtype == "int4" and not self.fold else Weights.FOLDED
        storage = self.storage(tensor)
        if storage.quantization is None or self.target.refusal(storage.dtype, storage.quantization.zero_point):
            return Weights.FOLDED
        activations = [t for t in (*bound.op.inputs, *bound.op.outputs) if t is not None and not t.is_constant]
        dtypes = {self.storage(t).dtype for t in activations if affine(t) is not None}
        if not dtypes <= self.target.cast_mul_dtypes:
            return Weights.DEQUANTIZED
        if self.fold:
            return Weights.FOLDED
        return Weights.MULTIPLIED if dtypes or self.target.cast_mul_weights else Weights.DEQUANTIZED

    def dequantized_operands(self, bound: Bound) -> list[Tensor]:
        """Return the operands that are quantized values or a DequantizeLinear's result."""
        behavior = bound.declared.quantization
        excluded = {*behavior.file_slots, *behavior.constant_slots}
        operands = [t for k, t in enumerate(bound.op.inputs) if t is not None and is_quantized(t) and k not in excluded]
        return [t for t in operands if not t.is_constant or self.weights(bound, t) is not Weights.FOLDED]


def file_storage(tensor: Tensor) -> Storage:
    """Return the storage of the tensor as in the file."""
    quantization = tensor.quantization if isinstance(tensor.quantization, Quantization) else None
    return Storage(tensor.dtype, 0, quantization, tensor.blocks)


def shift_storage(tensor: Tensor, dtype: str, shift: int) -> Storage:
    """Return the storage in ``dtype``, with ``shift`` added to the values.

    The zero points are shifted too.
    """
    quantization = affine(tensor)
    assert quantization is not None
    shifted = replace(quantization, zero_point=tuple(z + shift for z in quantization.zero_point))
    return Storage(dtype, shift, shifted)


def plan_storage(model: BoundModel, target: Target, *, fold: bool = False) -> StoragePlan:
    """Return the storage and arithmetic plan.

    ``fold`` dequantizes constants if that does not change results. Raises HandlerError for operators that cannot take
    quantized operands, TargetRefusal for quantized dtypes that the target does not support.
    """
    arithmetic: dict[Bound, Arithmetic] = {}
    problems: list[Problem] = []
    for bound in model.operators():
        try:
            arithmetic[bound] = _choose_arithmetic(bound, target)
        except Refusal as refusal:
            problems.append(Problem(bound.label, str(refusal), _describe_remedy(bound)))
        except Failed as failed:
            problems.append(failed.problem(bound.label))
    if problems:
        raise HandlerError("quantized operands that cannot be converted:", problems)
    plan = StoragePlan(target, _plan_shifted_storage(model, target), arithmetic, fold)
    _check_rules(model, plan)
    return plan


def _check_rules(model: BoundModel, plan: StoragePlan) -> None:
    """Raise TargetRefusal if the target does not support a quantized tensor.

    Names the first tensor per broken rule.
    """
    violations: dict[str, dict[Tensor, Bound]] = {}
    for bound in model.operators():
        dequantized, requantized_slots = plan.dequantized_operands(bound), [~k for k in range(len(bound.op.outputs))]
        if plan.arithmetic[bound] is not Arithmetic.FLOAT:
            dequantized, requantized_slots = [], [*bound.declared.output_quantization]
        for tensor in (*dequantized, *_quantized_tensors(bound, requantized_slots)):
            storage = plan.storage(tensor)
            zero_point = storage.quantization.zero_point if storage.quantization else ()
            rule = plan.target.refusal(storage.dtype, zero_point)
            if rule:
                violations.setdefault(rule, {}).setdefault(tensor, bound)
    if violations:
        problems = [_target_problem(rule, tensors, plan) for rule, tensors in violations.items()]
        raise TargetRefusal(f"target {plan.target.name} cannot hold every tensor:", problems)


def _target_problem(rule: str, tensors: Mapping[Tensor, Bound], plan: StoragePlan) -> Problem:
    """Return the problem of tensors that break a rule of the target.

    It names the first tensor and the number of others.
    """
    (tensor, bound), *others = tensors.items()
    quantization = affine(tensor)
    zero_point = f" with zero point {quantization.zero_point[0]}" if quantization else ""
    storage = plan.storage(tensor)
    if storage.quantization and storage.dtype != tensor.dtype:
        zero_point += f", which is {storage.quantization.zero_point[0]} in {storage.dtype}"
    remainder = f", and {len(others)} more tensors break the rule" if others else ""
    where = f"tensor {tensor} of {bound.label}"
    remedy = "--quantization symmetric changes their parameters, --quantization float drops them"
    return Problem(where, f"{rule}; the tensor is {tensor.dtype}{zero_point}{remainder}", remedy)


def data_slots(bound: Bound) -> list[int]:
    """Return the slots that hold data: neither axis numbers nor entries per axis."""
    excluded = {*bound.declared.axis_number_slots, *bound.declared.indexed_by_axis}
    slots = [*range(len(bound.op.inputs)), *(~k for k in range(len(bound.op.outputs)))]
    return [slot for slot in slots if slot not in excluded and bound.op.tensor(slot) is not None]


def _quantized_tensors(bound: Bound, slots: Iterable[int] | None = None) -> list[Tensor]:
    """Return the quantized tensors in the slots; in all data slots by default."""
    data = data_slots(bound) if slots is None else slots
    return [t for slot in data if (t := bound.op.tensor(slot)) is not None and is_quantized(t)]


def _behavior_tensors(bound: Bound) -> list[Tensor]:
    """Return the quantized tensors to which ``quantization`` applies.

    Outputs in ``output_quantization`` are skipped.
    """
    return _quantized_tensors(
        bound, [slot for slot in data_slots(bound) if slot not in bound.declared.output_quantization]
    )


@dataclass(frozen=True)
class _QuantizedOperator:
    """View of a bound operator for its behavior.

    Implements ``api.quantization.QuantizedOperator``.
    """

    bound: Bound
    runtime: Target
    tensors: list[Tensor]

    @property
    def op(self) -> Operator:
        return self.bound.op

    @property
    def target(self) -> str:
        return self.runtime.name

    @property
    def outputs(self) -> list[Tensor]:
        overridden_slots = self.bound.declared.output_quantization
        return [t for k, t in enumerate(self.op.outputs) if t is not None and ~k not in overridden_slots]

    if not TYPE_CHECKING:
        __getattr__ = renamed_attributes(OPERATOR)

    @property
    def accesses_states(self) -> bool:
        return self.bound.declared.effects is not None

    def quantized(self, slots: Iterable[int]) -> list[Tensor]:
        return _quantized_tensors(self.bound, slots)

    def letters(self, slot: int) -> list[str]:
        if self.bound.declared.axes is None:
            return []
        inputs, outputs = parse_axes(self.bound.declared.axes)
        slots, k = (inputs, slot) if slot >= 0 else (outputs, ~slot)
        groups = slots[k] if k < len(slots) else None
        return [f"({' '.join(group)})" if len(group) > 1 else "".join(group) or "1" for group in groups or ()]

    def has_kernel(self, tensor: Tensor, onnx: str = "") -> bool:
        dtype, _ = self.runtime.storage.get(tensor.dtype, (tensor.dtype, 0))
        return self.runtime.has_kernel(onnx, dtype)

    def dequantizes(self, onnx: str) -> bool:
        return onnx in self.runtime.dequantizes


def _describe_remedy(bound: Bound) -> str:
    """Return a remedy for the author of a handler without ``quantization``.

    The text is empty for other handlers.
    """
    if bound.pack == BUILTIN or bound.declared.quantization.is_quantizable:
        return ""
    return f"to support it, declare quantization= in @handler of {bound.handler.name}; Dequantized() computes on floats"


def _choose_arithmetic(bound: Bound, target: Target) -> Arithmetic:
    """Return the arithmetic of the operator: the values on which it computes.

    Raises Refusal if its quantized tensors cannot be converted, Failed if its behavior fails.
    """
    for slot, output in bound.declared.output_quantization.items():
        check_output_parameters(output, filter(None, [bound.op.tensor(slot)]))
    tensors, behavior = _behavior_tensors(bound), bound.declared.quantization
    if not tensors:
        return Arithmetic.FLOAT if _quantized_tensors(bound) else Arithmetic.UNQUANTIZED
    block_tensors = [bound.op.tensor(slot) for slot in behavior.block_slots]
    for tensor in tensors:
        if tensor.blocks is not None and (tensor not in block_tensors or not tensor.is_constant):
            raise Refusal(f"{tensor.name!r} has a scale per block, which the kernel does not read")
    function = behavior.choose_arithmetic
    with attribute_errors(
        f"{type(behavior).__name__}.choose_arithmetic", bound.pack, function, bound.label, (Refusal,)
    ):
        arithmetic = function(_QuantizedOperator(bound, target, tensors))
        if arithmetic not in _QUANTIZED_ARITHMETICS:
            allowed = " or ".join(f"Arithmetic.{choice.name}" for choice in _QUANTIZED_ARITHMETICS)
            returned = str(arithmetic) if isinstance(arithmetic, Arithmetic) else describe(arithmetic)
            raise WrongResult(f"it returned {returned}; it must return {allowed}, or raise Refusal")
    return arithmetic


# --- tensors that are stored in another dtype ------------------------------------------------


def _plan_shifted_storage(model: BoundModel, target: Target) -> dict[Tensor, Storage]:
    """Return the storage of the tensors whose dtype changes.

    The target has a table for activations and one for weights.
    """
    weights, states = _weight_tensors(model), users_by_key(model)
    unshifted = _tensors_in_file_dtype(model) | _interface_only_tensors(model, weights, states, target)
    shifted: dict[Tensor, Storage] = {}
    for bound in model.operators():
        for tensor in _quantized_tensors(bound):
            quantization = affine(tensor)
            table = target.weights if tensor in weights else target.storage
            if tensor in unshifted or tensor.dtype not in table or quantization is None:
                continue
            shifted[tensor] = shift_storage(tensor, *table[tensor.dtype])
    for tensor in _mixed_state_tensors(states, shifted):
        shifted.pop(tensor, None)
    return shifted


def _mixed_state_tensors(states: StateUsers, shifted: Mapping[Tensor, Storage]) -> set[Tensor]:
    """Return tensors whose dtype must not change because of a shared state.

    Another tensor of the same state keeps its dtype.
    """
    groups, complete = states
    state_tensors = [{state_tensor(bound) for bound in group} for group in groups.values()]
    if not complete:
        return {tensor for group in state_tensors for tensor in group}
    unshifted: set[Tensor] = set()

    def shift_of(tensor: Tensor) -> tuple[str, int] | None:
        storage = None if tensor in unshifted else shifted.get(tensor)
        return None if storage is None else (storage.dtype, storage.shift)

    while mixed := [group for group in state_tensors if len({*map(shift_of, group)}) > 1]:
        unshifted.update(*mixed)
    return unshifted


def _tensors_in_file_dtype(model: BoundModel) -> set[Tensor]:
    """Return the tensors whose storage must be that of the file.

    These are variable tensors, inputs and outputs of subgraphs, and tensors that kernels read without a scale.
    """
    tensors = {t for graph in model.graphs if graph is not model.main for t in (*graph.inputs, *graph.outputs)}
    for bound in model.operators():
        behavior = bound.declared.quantization
        if bound.declared.subgraphs or (bound.declared.effects is not None and not behavior.allows_shifted_states):
            tensors.update(_quantized_tensors(bound))
        if behavior.keeps_file_values:
            tensors.update(_behavior_tensors(bound))
        tensors.update(_quantized_tensors(bound, behavior.file_slots))
        tensors.update(t for t in (*bound.op.inputs, *bound.op.outputs) if t is not None and t.is_variable)
    return tensors


def _interface_only_tensors(model: BoundModel, weights: set[Tensor], states: StateUsers, target: Target) -> set[Tensor]:
    """Return the tensors of operators between graph inputs and graph outputs.

    All tensors of such an operator are graph inputs, graph outputs or constants. Shifting their storage gains nothing.
    Operators with weights are excluded, because they fuse only in the target's dtype.
    """
    interface = {t for t in (*model.main.inputs, *model.main.outputs) if t.dtype in target.quantizes}
    by_operator = {bound: {*_quantized_tensors(bound)} for bound in model.operators()}
    # An operator that assigns a constant to a state shares it with the state's other users.
    for users in states[0].values():
        state_tensors = {state_tensor(bound) for bound in users if is_quantized(state_tensor(bound))}
        by_operator.update((bound, state_tensors) for bound in users)
    isolated = {
        bound
        for bound, tensors in by_operator.items()
        if all((t in interface or t.is_constant) and t not in weights for t in tensors)
    }
    while True:
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
