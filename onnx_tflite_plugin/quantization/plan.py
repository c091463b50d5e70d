"""The storage plan: one dtype per tensor, one arithmetic per operator, chosen before anything is emitted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple

from onnx_tflite_plugin.api.quantization import Arithmetic, check_output_parameters
from onnx_tflite_plugin.api.refusal import Refused
from onnx_tflite_plugin.api.target import Target
from onnx_tflite_plugin.binding.axes import slots_of
from onnx_tflite_plugin.binding.bound import Bound, BoundModel
from onnx_tflite_plugin.binding.states import States, by_key, held
from onnx_tflite_plugin.errors import HandlerError, Problem, TargetRefusal
from onnx_tflite_plugin.source.affine import affine, quantized
from onnx_tflite_plugin.source.model import BlockwiseQuantization, Operator, Quantization, Tensor


class Form(Enum):
    """How a value holds a tensor. A tensor that is not quantized has the one form ``STORED``."""

    STORED = "stored"  # the integers as the storage plan keeps them
    FILE = "file"  # the integers as the file has them
    FLOAT = "float"  # dequantized


def form_of(arithmetic: Arithmetic) -> Form:
    """Return the form of an operator's quantized operands and results."""
    return Form.STORED if arithmetic is Arithmetic.UNQUANTIZED else Form[arithmetic.name]


class Storage(NamedTuple):
    """How a tensor's stored integers are kept: dtype, what was added to them, and the parameters that then apply."""

    dtype: str
    shift: int = 0
    quantization: Quantization | None = None
    blocks: BlockwiseQuantization | None = None


class Weights(Enum):
    """How a quantized constant becomes float."""

    FOLDED = "folded"  # now
    MULTIPLIED = "multiplied"  # by Cast and Mul, which runtimes compute as they load the model
    DEQUANTIZED = "dequantized"  # by DequantizeLinear, at every run or fused into the operator


class StoragePlan(NamedTuple):
    """Storage per shifted tensor, arithmetic per operator. ``fold``: constants become float now."""

    target: Target
    shifted: Mapping[Tensor, Storage]
    arithmetic: Mapping[Bound, Arithmetic]
    fold: bool = False

    def storage(self, tensor: Tensor) -> Storage:
        """How the tensor is kept; in the file's dtype unless the plan says otherwise."""
        return self.shifted.get(tensor) or file_storage(tensor)

    def dtype(self, bound: Bound) -> str:
        """The dtype in which an operator's first result is kept; "" where it has none."""
        return next((self.storage(tensor).dtype for tensor in bound.op.outputs if tensor is not None), "")

    def weights(self, bound: Bound, tensor: Tensor) -> Weights:
        """How a constant operand becomes float: as its operator's activations do, where those are quantized.

        ONNX Runtime would round float weights to 8 bits again between a DequantizeLinear and a QuantizeLinear. Blocks
        of int4 are kept where they fuse; int2 is so new that nothing does.
        """
        if tensor.narrower is not None:
            kept = self.weights(bound, tensor.narrower) if quantized(tensor.narrower) else Weights.DEQUANTIZED
            return Weights.FOLDED if self.fold else kept
        if tensor.blocks is not None:
            fuses = self.target.block(tensor.blocks.block_size) and not self.target.refusal(tensor.dtype, ())
            return Weights.DEQUANTIZED if fuses and tensor.dtype == "int4" and not self.fold else Weights.FOLDED
        storage = self.storage(tensor)
        if storage.quantization is None or self.target.refusal(storage.dtype, storage.quantization.zero_point):
            return Weights.FOLDED
        activations = [t for t in (*bound.op.inputs, *bound.op.outputs) if t is not None and not t.constant]
        dtypes = {self.storage(t).dtype for t in activations if affine(t) is not None}
        if not dtypes <= self.target.multiplies:
            return Weights.DEQUANTIZED
        if self.fold:
            return Weights.FOLDED
        return Weights.MULTIPLIED if dtypes or self.target.multiplies_weights else Weights.DEQUANTIZED

    def dequantized(self, bound: Bound) -> list[Tensor]:
        """The operands that are handed to the operator as stored integers or through a node that takes those."""
        excluded = bound.declared.quantization.file_slots
        operands = [t for k, t in enumerate(bound.op.inputs) if t is not None and quantized(t) and k not in excluded]
        return [t for t in operands if not t.constant or self.weights(bound, t) is not Weights.FOLDED]


def file_storage(tensor: Tensor) -> Storage:
    quantization = tensor.quantization if isinstance(tensor.quantization, Quantization) else None
    return Storage(tensor.dtype, 0, quantization, tensor.blocks)


def shifted_storage(tensor: Tensor, dtype: str, shift: int) -> Storage:
    quantization = affine(tensor)
    assert quantization is not None
    moved = replace(quantization, zero_point=tuple(z + shift for z in quantization.zero_point))
    return Storage(dtype, shift, moved)


def plan_storage(model: BoundModel, target: Target, *, fold: bool = False) -> StoragePlan:
    """Decide storage and arithmetic; ``fold`` dequantizes constants now wherever that changes nothing.

    Raises HandlerError for operators that cannot take quantized operands, TargetRefusal for integers the target does
    not know.
    """
    arithmetic: dict[Bound, Arithmetic] = {}
    problems: list[Problem] = []
    for bound in model.operators():
        try:
            arithmetic[bound] = _choose_arithmetic(bound, target)
        except Refused as refusal:
            problems.append(Problem(bound.label, str(refusal)))
    if problems:
        raise HandlerError("quantized operands that cannot be converted:", problems)
    plan = StoragePlan(target, _shifted(model, target), arithmetic, fold)
    _check_rules(model, plan)
    return plan


def _check_rules(model: BoundModel, plan: StoragePlan) -> None:
    """Every tensor that Q makes or DQ takes must be one the target has them for; the first that breaks a rule is named."""
    broken: dict[str, dict[Tensor, Bound]] = {}
    for bound in model.operators():
        taken, quantized_after = plan.dequantized(bound), [~k for k in range(len(bound.op.outputs))]
        if plan.arithmetic[bound] is not Arithmetic.FLOAT:
            taken, quantized_after = [], [*bound.declared.output_quantization]
        for tensor in (*taken, *_quantized(bound, quantized_after)):
            storage = plan.storage(tensor)
            zero_point = storage.quantization.zero_point if storage.quantization else ()
            rule = plan.target.refusal(storage.dtype, zero_point)
            if rule:
                broken.setdefault(rule, {}).setdefault(tensor, bound)
    if broken:
        problems = [_rule_broken(rule, tensors) for rule, tensors in broken.items()]
        raise TargetRefusal(f"target {plan.target.name} cannot hold every tensor:", problems)


def _rule_broken(rule: str, tensors: Mapping[Tensor, Bound]) -> Problem:
    (tensor, bound), *others = tensors.items()
    quantization = affine(tensor)
    zero_point = f" with zero point {quantization.zero_point[0]}" if quantization else ""
    more = f", and so do {len(others)} more" if others else ""
    where = f"tensor {tensor} of {bound.label}"
    return Problem(where, f"{rule}; it is {tensor.dtype}{zero_point}{more}", "--quantization float has no such tensors")


def data_slots(bound: Bound) -> list[int]:
    """Slots that hold data: not axis numbers, not what is indexed by axis."""
    apart = {*bound.declared.holds_axes, *bound.declared.indexed_by_axis}
    slots = [*range(len(bound.op.inputs)), *(~k for k in range(len(bound.op.outputs)))]
    return [slot for slot in slots if slot not in apart and bound.op.tensor(slot) is not None]


def _quantized(bound: Bound, slots: Iterable[int] | None = None) -> list[Tensor]:
    chosen = data_slots(bound) if slots is None else slots
    return [t for slot in chosen if (t := bound.op.tensor(slot)) is not None and quantized(t)]


def _alike(bound: Bound) -> list[Tensor]:
    """Return the quantized tensors that are under the operator's own behaviour."""
    return _quantized(bound, [slot for slot in data_slots(bound) if slot not in bound.declared.output_quantization])


@dataclass(frozen=True)
class _QuantizedOperator:
    """A bound operator as its behaviour sees it. Implements ``api.quantization.QuantizedOperator``."""

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
        others = self.bound.declared.output_quantization
        return [t for k, t in enumerate(self.op.outputs) if t is not None and ~k not in others]

    @property
    def hands_on(self) -> bool:
        return self.bound.declared.effects is not None

    def quantized(self, slots: Iterable[int]) -> list[Tensor]:
        return _quantized(self.bound, slots)

    def letters(self, slot: int) -> list[str]:
        if self.bound.declared.axes is None:
            return []
        inputs, outputs = slots_of(self.bound.declared.axes)
        slots, k = (inputs, slot) if slot >= 0 else (outputs, ~slot)
        return slots[k] if k < len(slots) else []

    def has_kernel(self, tensor: Tensor, onnx: str = "") -> bool:
        dtype, _ = self.runtime.storage.get(tensor.dtype, (tensor.dtype, 0))
        return self.runtime.has_kernel(onnx, dtype)


def _choose_arithmetic(bound: Bound, target: Target) -> Arithmetic:
    """Return the values on which the operator computes. Raises Refused if its quantized tensors cannot be converted."""
    for slot, own in bound.declared.output_quantization.items():
        check_output_parameters(own, filter(None, [bound.op.tensor(slot)]))
    tensors, behaviour = _alike(bound), bound.declared.quantization
    if not tensors:
        return Arithmetic.FLOAT if _quantized(bound) else Arithmetic.UNQUANTIZED
    readable = [bound.op.tensor(slot) for slot in behaviour.block_slots]
    for tensor in tensors:
        if tensor.blocks is not None and (tensor not in readable or not tensor.constant):
            raise Refused(f"{tensor.name!r} has a scale per block, which the kernel does not read")
    return behaviour.choose_arithmetic(_QuantizedOperator(bound, target, tensors))


# --- which tensors are kept in another dtype --------------------------------------------------


def _shifted(model: BoundModel, target: Target) -> dict[Tensor, Storage]:
    """Activations per the target; weights their own way; what must stay as it is stays."""
    weights, states = _weights(model), by_key(model)
    kept = _kept(model) | _edges_only(model, weights, states, target)
    shifted: dict[Tensor, Storage] = {}
    for bound in model.operators():
        for tensor in _quantized(bound):
            quantization = affine(tensor)
            table = target.weights if tensor in weights else target.storage
            if tensor in kept or tensor.dtype not in table or quantization is None:
                continue
            shifted[tensor] = shifted_storage(tensor, *table[tensor.dtype])
    for tensor in _apart_in_states(states, shifted):
        shifted.pop(tensor, None)
    return shifted


def _apart_in_states(states: States, shifted: Mapping[Tensor, Storage]) -> set[Tensor]:
    """Tensors to be kept as they are, since others that a state brings together with them are."""
    groups, complete = states
    together = [{held(bound) for bound in group} for group in groups.values()]
    if not complete:
        return {tensor for group in together for tensor in group}
    apart: set[Tensor] = set()

    def move(tensor: Tensor) -> tuple[str, int] | None:
        storage = None if tensor in apart else shifted.get(tensor)
        return None if storage is None else (storage.dtype, storage.shift)

    while mixed := [group for group in together if len({*map(move, group)}) > 1]:
        apart.update(*mixed)
    return apart


def _kept(model: BoundModel) -> set[Tensor]:
    """Variable tensors, subgraph interfaces, and what kernels read as integers without a scale."""
    kept = {t for graph in model.graphs if graph is not model.main for t in (*graph.inputs, *graph.outputs)}
    for bound in model.operators():
        behaviour = bound.declared.quantization
        if bound.declared.subgraphs or (bound.declared.effects is not None and not behaviour.allows_shifted_states):
            kept.update(_quantized(bound))
        if behaviour.keeps_file_values:
            kept.update(_alike(bound))
        kept.update(_quantized(bound, behaviour.file_slots))
        kept.update(t for t in (*bound.op.inputs, *bound.op.outputs) if t is not None and t.is_variable)
    return kept


def _edges_only(model: BoundModel, weights: set[Tensor], states: States, target: Target) -> set[Tensor]:
    """Graph inputs and outputs, with their constants, whose operators hold nothing else: converting them gains nothing.

    Operators with weights are left out, for they fuse in the target's own dtype only.
    """
    edges = {t for t in (*model.main.inputs, *model.main.outputs) if t.dtype in target.quantizes}
    by_operator = {bound: {*_quantized(bound)} for bound in model.operators()}
    for users in states[0].values():  # what assigns a constant to a state has company
        together = {held(bound) for bound in users if quantized(held(bound))}
        by_operator.update((bound, together) for bound in users)
    apart = {
        bound
        for bound, tensors in by_operator.items()
        if all((t in edges or t.constant) and t not in weights for t in tensors)
    }
    while True:
        shared = {t for bound, tensors in by_operator.items() if bound not in apart for t in tensors}
        kept = {bound for bound in apart if shared.isdisjoint(by_operator[bound])}
        if kept == apart:
            return {t for bound in apart for t in by_operator[bound]}
        apart = kept


def _weights(model: BoundModel) -> set[Tensor]:
    """Constants in the slots a behaviour calls weights."""
    weights: set[Tensor] = set()
    for bound in model.operators():
        slots = bound.declared.quantization.weight_slots
        weights.update(t for slot in slots if (t := bound.op.tensor(slot)) is not None and t.constant)
    return weights
