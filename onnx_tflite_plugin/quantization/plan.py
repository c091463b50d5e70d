"""The storage plan: one dtype per tensor, one way of computing per operator, chosen before anything is emitted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum

from onnx_tflite_plugin.api.declarations import (
    Behaviour,
    Dequantized,
    FixedOutputRange,
    Integer,
    NotQuantizable,
    Raw,
    SameScale,
    resolve,
)
from onnx_tflite_plugin.bound import Bound, BoundModel
from onnx_tflite_plugin.errors import HandlerError, Problem
from onnx_tflite_plugin.source.model import Quantization, Tensor
from onnx_tflite_plugin.targets.base import Target

QUANTIZED = frozenset({"int8", "uint8", "int16", "int4", "uint4", "int2"})


class Compute(Enum):
    """What an operator's handler is given for a quantized operand, and what it returns."""

    FLOAT = "float"  # dequantized real numbers; the host quantizes the result
    STORED = "stored"  # the integers as they are kept; the result is in storage form
    FILE = "file"  # the integers as the file has them


@dataclass(frozen=True)
class Storage:
    """How a tensor's stored integers are kept: dtype, what was added to them, and the parameters that then apply."""

    dtype: str
    shift: int = 0
    quantization: Quantization | None = None


@dataclass(frozen=True)
class StoragePlan:
    """Storage per shifted tensor, computation and resolved behaviour per operator."""

    shifted: Mapping[Tensor, Storage]
    compute: Mapping[Bound, Compute]
    behaviour: Mapping[Bound, Behaviour]
    folds_weights: Mapping[Bound, bool]

    def storage(self, tensor: Tensor) -> Storage:
        """How the tensor is kept; in the file's dtype unless the plan says otherwise."""
        return self.shifted.get(tensor) or file_storage(tensor)

    def dequantized(self, bound: Bound) -> list[Tensor]:
        """The operands that a DequantizeLinear at run time hands to the operator."""
        folds = self.folds_weights[bound]
        return [t for t in bound.op.inputs if t is not None and affine(t) is not None and not (folds and t.constant)]


def affine(tensor: Tensor | None) -> Quantization | None:
    """The affine parameters of a quantized tensor, ``None`` for any other."""
    if tensor is None or tensor.dtype not in QUANTIZED:
        return None
    return tensor.quantization if isinstance(tensor.quantization, Quantization) else None


def file_storage(tensor: Tensor) -> Storage:
    return Storage(tensor.dtype, 0, tensor.quantization if isinstance(tensor.quantization, Quantization) else None)


def shifted_storage(tensor: Tensor, dtype: str, shift: int) -> Storage:
    quantization = affine(tensor)
    assert quantization is not None
    moved = replace(quantization, zero_point=tuple(z + shift for z in quantization.zero_point))
    return Storage(dtype, shift, moved)


def plan_storage(model: BoundModel, target: Target) -> StoragePlan:
    """Decide storage and computation. Raises HandlerError for operators that cannot take quantized operands."""
    behaviour: dict[Bound, Behaviour] = {}
    compute: dict[Bound, Compute] = {}
    problems: list[Problem] = []
    for bound in model.operators():
        declared: Behaviour = resolve(bound.handler.quantization, *_arguments(bound, target))
        decided = _compute(bound, declared, target)
        if isinstance(decided, Problem):
            problems.append(decided)
            continue
        behaviour[bound], compute[bound] = declared, decided
    if problems:
        raise HandlerError("quantized operands that cannot be converted:", problems)
    return StoragePlan(
        shifted=_shifted(model, target, behaviour),
        compute=compute,
        behaviour=behaviour,
        folds_weights={
            b: not any(affine(t) for t in (*b.op.inputs, *b.op.outputs) if t and not t.constant) for b in compute
        },
    )


def _arguments(bound: Bound, target: Target) -> tuple[object, ...]:
    return (bound.op, target) if callable(bound.handler.quantization) else ()


def data_slots(bound: Bound) -> list[int]:
    """Slots that hold data: not axis numbers, not what is indexed by axis."""
    apart = {*bound.handler.holds_axes, *resolve(bound.handler.indexed_by_axis, bound.op)}
    slots = [*range(len(bound.op.inputs)), *(~k for k in range(len(bound.op.outputs)))]
    return [slot for slot in slots if slot not in apart and bound.op.tensor(slot) is not None]


def _quantized(bound: Bound, slots: Iterable[int] | None = None) -> list[Tensor]:
    chosen = data_slots(bound) if slots is None else slots
    return [t for slot in chosen if (t := bound.op.tensor(slot)) is not None and affine(t) is not None]


def _compute(bound: Bound, declared: Behaviour, target: Target) -> Compute | Problem:
    tensors = _quantized(bound)
    if not tensors:
        return Compute.STORED
    match declared:
        case Dequantized():
            return Compute.FLOAT
        case FixedOutputRange(parameters):
            return _fixed_range(bound, parameters) or Compute.FLOAT
        case SameScale():
            return _same_scale(bound, declared, target)
        case Raw():
            return _raw(bound, declared, target)
        case Integer():
            return Compute.STORED
        case NotQuantizable():
            names = ", ".join(f"{t.name!r} ({t.dtype})" for t in tensors)
            return Problem(bound.label, f"has no quantized form, but {names} is quantized")


def _fixed_range(bound: Bound, parameters: Mapping[str, tuple[float, int]]) -> Problem | None:
    for tensor in bound.op.outputs:
        found = affine(tensor)
        if tensor is None or found is None or tensor.dtype not in parameters:
            continue
        scale, zero_point = parameters[tensor.dtype]
        if abs(found.scale[0] - scale) > 1e-3 * scale or found.zero_point[0] != zero_point:
            wanted = f"scale {scale:g} and zero point {zero_point}"
            return Problem(
                bound.label,
                f"the kernel insists on {wanted}, the file has {found.scale[0]:g} and {found.zero_point[0]}",
            )
    return None


def _same_scale(bound: Bound, declared: SameScale, target: Target) -> Compute | Problem:
    tensors = _quantized(bound, declared.among)
    if not tensors:
        return Compute.STORED
    equal = _equal(tensors)
    if not equal and declared.unequal == "refuse":
        return Problem(bound.label, "its quantized operands differ in scale or zero point, which the kernel refuses")
    return Compute.STORED if equal and _has_kernel(tensors[0], declared.onnx, target) else Compute.FLOAT


def _raw(bound: Bound, declared: Raw, target: Target) -> Compute | Problem:
    tensors = _quantized(bound)
    if _has_kernel(tensors[0], declared.onnx, target):
        return Compute.STORED if declared.shift_safe else Compute.FILE
    if not _equal(tensors):
        text = f"the kernel works on bare {tensors[0].dtype}, for which target {target.name} has no {declared.onnx}"
        return Problem(bound.label, text)
    return Compute.FLOAT


def _equal(tensors: list[Tensor]) -> bool:
    return all(t.dtype == tensors[0].dtype and affine(t) == affine(tensors[0]) for t in tensors)


def _has_kernel(tensor: Tensor, onnx: str, target: Target) -> bool:
    return target.has_kernel(onnx, target.storage.get(tensor.dtype, (tensor.dtype, 0))[0])


# --- which tensors are kept in another dtype --------------------------------------------------


def _shifted(model: BoundModel, target: Target, behaviour: Mapping[Bound, Behaviour]) -> dict[Tensor, Storage]:
    """Activations per the target; weights their own way; what must stay as it is stays."""
    weights = _weights(model, behaviour)
    kept = _kept(model, behaviour) | _edges_only(model, weights)
    found: dict[Tensor, Storage] = {}
    for bound in model.operators():
        for tensor in _quantized(bound):
            quantization = affine(tensor)
            table = target.weights if tensor in weights else target.storage
            if (
                tensor in kept
                or tensor.dtype not in table
                or quantization is None
                or (quantization.per_axis and tensor not in weights)
            ):
                continue
            found[tensor] = shifted_storage(tensor, *table[tensor.dtype])
    return found


def _kept(model: BoundModel, behaviour: Mapping[Bound, Behaviour]) -> set[Tensor]:
    """States, subgraph interfaces, and what kernels read as bare bytes."""
    kept = {t for graph in model.graphs[1:] for t in (*graph.inputs, *graph.outputs)}
    for bound in model.operators():
        declared = behaviour[bound]
        calls = bool(bound.handler.subgraphs) or bound.handler.effects is not None
        if calls or (isinstance(declared, Raw) and not declared.shift_safe):
            kept.update(_quantized(bound))
        kept.update(t for t in (*bound.op.inputs, *bound.op.outputs) if t is not None and t.is_variable)
    return kept


def _edges_only(model: BoundModel, weights: set[Tensor]) -> set[Tensor]:
    """Graph inputs and outputs, with their constants, whose operators hold nothing else: converting them gains nothing.

    Operators with weights are left out, for they fuse in the target's own dtype only.
    """
    edges = {*model.main.inputs, *model.main.outputs}
    held = {bound: {*_quantized(bound)} for bound in model.operators()}
    apart = {
        bound
        for bound, tensors in held.items()
        if all((t in edges or t.constant) and t not in weights for t in tensors)
    }
    while True:
        shared = {t for bound, tensors in held.items() if bound not in apart for t in tensors}
        kept = {bound for bound in apart if shared.isdisjoint(held[bound])}
        if kept == apart:
            return {t for bound in apart for t in held[bound]}
        apart = kept


def _weights(model: BoundModel, behaviour: Mapping[Bound, Behaviour]) -> set[Tensor]:
    """Constants in the slots a behaviour calls weights."""
    found: set[Tensor] = set()
    for bound in model.operators():
        declared = behaviour[bound]
        if isinstance(declared, Dequantized):
            found.update(t for slot in declared.weight_slots if (t := bound.op.tensor(slot)) is not None and t.constant)
    return found
