"""Storage plan: one dtype per tensor and one arithmetic per operator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from onnx_tflite_plugin.api.behavior import Arithmetic, check_output_parameters
from onnx_tflite_plugin.api.notation import parse_axes
from onnx_tflite_plugin.api.refusal import Refusal
from onnx_tflite_plugin.api.target import Target
from onnx_tflite_plugin.binding.bound import Bound, BoundModel
from onnx_tflite_plugin.checked import describe, plural
from onnx_tflite_plugin.errors import HandlerError, Problem, TargetRefusal
from onnx_tflite_plugin.guard import BUILTIN, Failed, WrongResult, attribute_errors
from onnx_tflite_plugin.quantization.shifted_storage import plan_shifted_storage
from onnx_tflite_plugin.quantization.storage import (
    Storage,
    WeightConversion,
    behavior_tensors,
    file_storage,
    quantized_tensors,
)
from onnx_tflite_plugin.renamed import OPERATOR, renamed_attributes
from onnx_tflite_plugin.source.affine import affine, is_quantized
from onnx_tflite_plugin.source.model import Operator, Tensor

_QUANTIZED_ARITHMETICS = (Arithmetic.FLOAT, Arithmetic.QUANTIZED, Arithmetic.QUANTIZED_AS_IN_FILE)
"""Arithmetics of operators with quantized tensors."""


class StoragePlan(NamedTuple):
    """Storage per shifted tensor and arithmetic per operator.

    ``fold``: constants are dequantized at conversion.
    """

    target: Target
    shifted: Mapping[Tensor, Storage]
    arithmetic: Mapping[Bound, Arithmetic]
    fold: bool = False

    def storage(self, tensor: Tensor) -> Storage:
        """Return the tensor's planned storage."""
        return self.shifted.get(tensor) or file_storage(tensor)

    def dtype(self, bound: Bound) -> str:
        """Return the storage dtype of an operator's first output; "" if it has none."""
        return next((self.storage(tensor).dtype for tensor in bound.op.outputs if tensor is not None), "")

    def weight_conversion(self, bound: Bound, tensor: Tensor) -> WeightConversion:
        """Return how a constant operand is converted to float.

        The operand is converted like quantized activations of the operator, because ONNX Runtime would round float
        weights to 8 bits again between a DequantizeLinear and a QuantizeLinear. Blocks of int4 stay quantized if the
        target fuses them. No runtime fuses blocks of int2.
        """
        if tensor.narrower is not None:
            narrower = (
                self.weight_conversion(bound, tensor.narrower)
                if is_quantized(tensor.narrower)
                else WeightConversion.DEQUANTIZED
            )
            return WeightConversion.FOLDED if self.fold else narrower
        if tensor.blocks is not None:
            is_fused = self.target.fused_block_size(tensor.blocks.block_size) and not self.target.unsupported_reason(
                tensor.dtype, ()
            )
            return (
                WeightConversion.DEQUANTIZED
                if is_fused and tensor.dtype == "int4" and not self.fold
                else WeightConversion.FOLDED
            )
        storage = self.storage(tensor)
        if storage.quantization is None or self.target.unsupported_reason(
            storage.dtype, storage.quantization.zero_point
        ):
            return WeightConversion.FOLDED
        runtime_tensors = [t for t in (*bound.op.inputs, *bound.op.outputs) if t is not None and not t.is_constant]
        dtypes = {self.storage(t).dtype for t in runtime_tensors if affine(t) is not None}
        if not dtypes <= self.target.cast_mul_dtypes:
            return WeightConversion.DEQUANTIZED
        if self.fold:
            return WeightConversion.FOLDED
        return WeightConversion.MULTIPLIED if dtypes or self.target.cast_mul_weights else WeightConversion.DEQUANTIZED

    def dequantized_operands(self, bound: Bound) -> list[Tensor]:
        """Return the quantized operands, except for constants that are folded into float."""
        behavior = bound.declared.quantization
        excluded = {*behavior.file_slots, *behavior.constant_slots}
        operands = [t for k, t in enumerate(bound.op.inputs) if t is not None and is_quantized(t) and k not in excluded]
        return [
            t for t in operands if not t.is_constant or self.weight_conversion(bound, t) is not WeightConversion.FOLDED
        ]


def plan_storage(model: BoundModel, target: Target, *, fold: bool = False) -> StoragePlan:
    """Return the storage and arithmetic plan.

    ``fold``: constants are dequantized if that does not change results. Raises HandlerError for operators that do not
    support quantized operands, TargetRefusal for quantized dtypes that the target does not support.
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
    plan = StoragePlan(target, plan_shifted_storage(model, target), arithmetic, fold)
    _check_target_support(model, plan)
    return plan


def _check_target_support(model: BoundModel, plan: StoragePlan) -> None:
    """Raise TargetRefusal if the target does not support a quantized tensor.

    The error names the first tensor for each reason.
    """
    refused_tensors: dict[str, dict[Tensor, Bound]] = {}  # by reason; with an operator of each tensor
    for bound in model.operators():
        if plan.arithmetic[bound] is Arithmetic.FLOAT:
            dequantized, requantized_slots = (
                plan.dequantized_operands(bound),
                [~k for k in range(len(bound.op.outputs))],
            )
        else:
            dequantized, requantized_slots = [], [*bound.declared.output_quantization]
        for tensor in (*dequantized, *quantized_tensors(bound, requantized_slots)):
            storage = plan.storage(tensor)
            zero_point = storage.quantization.zero_point if storage.quantization else ()
            reason = plan.target.unsupported_reason(storage.dtype, zero_point)
            if reason:
                refused_tensors.setdefault(reason, {}).setdefault(tensor, bound)
    if refused_tensors:
        problems = [_target_problem(reason, tensors, plan) for reason, tensors in refused_tensors.items()]
        raise TargetRefusal(f"target {plan.target.name} cannot hold every tensor:", problems)


def _target_problem(reason: str, tensors: Mapping[Tensor, Bound], plan: StoragePlan) -> Problem:
    """Return the problem of tensors that the target does not support for one reason."""
    (tensor, bound), *others = tensors.items()
    quantization = affine(tensor)
    zero_point = f" with zero point {quantization.zero_point[0]}" if quantization else ""
    storage = plan.storage(tensor)
    if storage.quantization and storage.dtype != tensor.dtype:
        zero_point += f", which is {storage.quantization.zero_point[0]} in {storage.dtype}"
    remainder = f", and {plural(len(others), 'more tensor')} cannot be stored either" if others else ""
    location = f"tensor {tensor} of {bound.label}"
    remedy = "--quantization symmetric requantizes to int8 with zero points of 0, --quantization float drops the quantization"
    return Problem(location, f"{reason}; the tensor is {tensor.dtype}{zero_point}{remainder}", remedy)


@dataclass(frozen=True)
class _QuantizedOperator:
    """An operator as passed to its behavior (``api.behavior.QuantizedOperator``)."""

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
        return quantized_tensors(self.bound, slots)

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
        return onnx in self.runtime.dequantized_operators


def _describe_remedy(bound: Bound) -> str:
    """Return a remedy for a pack's handler without ``quantization``; else ""."""
    if bound.pack == BUILTIN or bound.declared.quantization.is_quantizable:
        return ""
    return f"to support it, declare quantization= in @handler of {bound.handler.name}; Dequantized() computes on floats"


def _choose_arithmetic(bound: Bound, target: Target) -> Arithmetic:
    """Return the arithmetic of the operator.

    Raises Refusal if its quantized tensors cannot be converted, Failed if its behavior fails.
    """
    for slot, output in bound.declared.output_quantization.items():
        check_output_parameters(output, filter(None, [bound.op.tensor(slot)]))
    tensors, behavior = behavior_tensors(bound), bound.declared.quantization
    if not tensors:
        return Arithmetic.FLOAT if quantized_tensors(bound) else Arithmetic.UNQUANTIZED
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
