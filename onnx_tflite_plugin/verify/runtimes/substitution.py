"""Runs of models with operators that LiteRT has no kernel for: LiteRT runs the operators in between.

The missing operators run in NumPy, by the ``kernel`` that their handler declares. If an operator has none, its results are
taken from the ONNX model (``onnx_results``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from onnx_tflite_plugin.api.declarations import Kernel
from onnx_tflite_plugin.binding.bound import Bound
from onnx_tflite_plugin.binding.declared import At, resolve_operator
from onnx_tflite_plugin.checked import count, describe_arity
from onnx_tflite_plugin.errors import InconclusiveError, VerificationError
from onnx_tflite_plugin.guard import Failed, Mismatch, attribute_errors
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.source.affine import bias_scale
from onnx_tflite_plugin.source.dtypes import HANDLES, QUANTIZED
from onnx_tflite_plugin.source.model import Array, Model, Operator, Quantization, Tensor, agree
from onnx_tflite_plugin.targets import target_named
from onnx_tflite_plugin.verify.runtimes.dequantized import as_float, as_stored
from onnx_tflite_plugin.verify.runtimes.extraction import cut_file
from onnx_tflite_plugin.verify.runtimes.litert import LiteRT
from onnx_tflite_plugin.verify.runtimes.structure import Entry

ReadResults = Callable[[Sequence[Array]], Mapping[int, Array]]

_FROM_ONNX, _UNSHARED = -1, -2  # in place of the number of a piece that uses a state
_NOTHING = np.empty(0, np.float32)  # an output that is neither computed nor compared


def find_overridden_codes(operators: Iterable[Operator], host: Host) -> set[str]:
    """Return the codes of operators for which a handler declares ``overrides_kernel``."""
    codes = dict.fromkeys(op.code for op in operators)
    return {code for code in codes if any(handler.overrides_kernel for _, handler in host.registered(code))}


def find_overridden_operators(model: Model, subgraph: int, host: Host) -> list[int]:
    """Return the indices of operators whose handlers keep LiteRT from running them (``overrides_kernel``)."""
    target = target_named("onnxruntime")
    operators = model.subgraphs[subgraph].operators
    codes = find_overridden_codes(operators, host)
    indices = []
    for op in operators:
        if op.code not in codes:
            continue
        bound = host.take(op, target, target.opsets[2])
        if isinstance(bound, Bound) and bound.handler.overrides_kernel is not None:
            function = bound.handler.overrides_kernel
            with attribute_errors(f"overrides_kernel of handler {bound.handler.name}", bound.pack, function):
                if function(At(bound.op, target, target.opsets[2])):
                    indices.append(op.index)
    return indices


@dataclass(frozen=True, eq=False)
class PackKernel:
    """One operator with its reference kernel of a pack. The kernel may change a variable operand, which is the state."""

    op: Operator
    kernel: Kernel
    pack: str
    floats: bool
    bias: Mapping[int, tuple[int, int | float]]
    stored: Collection[int] = ()

    def run(self, values: Mapping[int, Array]) -> dict[int, Array]:
        """Return results by tensor index, as the file stores them, from the values of tensors. Raises VerificationError."""
        name = f"kernel of {self.op.code}"
        try:
            with attribute_errors(name, self.pack, self.kernel):
                operands = [
                    None if t is None else self._operand(slot, t, values) for slot, t in enumerate(self.op.inputs)
                ]
                if wrong := describe_arity(self.kernel, len(operands), "kernel"):
                    raise Mismatch(wrong)
                given = self.kernel(self.op, *operands)
                results = [given] if isinstance(given, np.ndarray | np.generic) else list(given)
                if len(results) != len(self.op.outputs):
                    raise Mismatch(
                        f"it returned {count(len(results), 'array')}, the operator has {count(len(self.op.outputs), 'output')}"
                    )
                resized = any(
                    t is not None and a is not None and not agree(t.dims, a.shape)
                    for t, a in zip(self.op.inputs, operands, strict=True)
                )
                following = {
                    t.index: _as_stored(t, k, np.asarray(a), resized=False)
                    for k, (t, a) in enumerate(zip(self.op.inputs, operands, strict=True))
                    if t is not None and t.is_variable
                }
                return following | {
                    t.index: _as_stored(t, k, np.asarray(a), resized=resized, floats=self.floats)
                    for k, (t, a) in enumerate(zip(self.op.outputs, results, strict=True))
                    if t
                }
        except Failed as failed:
            raise VerificationError(failed.reason) from failed

    def _operand(self, slot: int, tensor: Tensor, values: Mapping[int, Array]) -> Array:
        array = tensor.array if tensor.is_constant else values[tensor.index]
        if tensor.is_variable:
            array = array.copy()
        if not self.floats or slot in self.stored:
            return array
        if slot in self.bias and array.dtype.kind == "i":
            scale = bias_scale(self.op, self.bias[slot])
            return np.asarray(array * (1.0 if scale is None else scale), np.float32)
        return as_float(tensor, array)


def _as_stored(tensor: Tensor, k: int, array: Array, *, resized: bool, floats: bool = False) -> Array:
    """Return a result as the file stores it.

    ``resized``: operands have other sizes than in the file, so the result may too. ``floats``: the kernel computes on floats.
    """
    dims = (None,) * tensor.rank if resized else tensor.dims
    if not agree(dims, array.shape):
        stored = ["?" if size is None else size for size in tensor.dims]
        raise Mismatch(
            f"output {k} of the kernel has shape {list(array.shape)}, but {tensor.name!r} has {stored} in the model; "
            "correct the kernel, or the shape of the model or case"
        )
    quantized, integers = isinstance(tensor.quantization, Quantization), _is_integer(array.dtype.name)
    differs = tensor.dtype not in QUANTIZED and integers != _is_integer(tensor.dtype)
    if (floats and integers and array.dtype != tensor.dtype) if quantized else differs:
        allowed = f"float32, or of quantized values in {tensor.dtype}" if quantized else tensor.dtype
        raise Mismatch(
            f"output {k} of the kernel is {array.dtype}, but {tensor.name!r} is {tensor.dtype} in the model; "
            f"return an array of {allowed}"
        )
    return as_stored(tensor, array).astype(tensor.dtype)


def _is_integer(dtype: str) -> bool:
    return dtype.lstrip("u").startswith(("int", "bool"))


def find_pack_kernels(
    model: Model, subgraph: int, indices: Iterable[int], host: Host, given: Mapping[str, Kernel] | None = None
) -> tuple[dict[int, PackKernel], dict[int, str]]:
    """Return the kernels of operators by index, and the reason for each operator without one.

    Kernels are those ``given`` by code, else those that handlers declare. ``model``: as the project's reader has it.
    """
    target = target_named("onnxruntime")
    kernels, reasons = {}, {}
    for index in indices:
        op = model.subgraphs[subgraph].operators[index]
        bound = host.take(op, target, target.opsets[2])
        if not isinstance(bound, Bound):
            reasons[index] = f"no handler takes the operator: {'; '.join((bound.reason, *host.skipped_packs()))}"
            continue
        kernel = (given or {}).get(op.code, bound.handler.kernel)
        if kernel is None:
            reasons[index] = (
                f"handler {bound.handler.name} of {bound.pack} declares no reference kernel; pass kernel= to @handler"
            )
            continue
        behavior = resolve_operator(bound, target, target.opsets[2]).declared.quantization
        floats, biases, stored = behavior.takes_floats, behavior.biases, behavior.file_slots
        kernels[index] = PackKernel(bound.op, kernel, bound.pack, floats, biases, stored)
    return kernels, reasons


@dataclass(frozen=True)
class Part:
    """Operators that LiteRT runs as one model, by index, with the tensors that enter and leave it."""

    operators: frozenset[int]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    computes: frozenset[int]
    data: bytes


@dataclass(frozen=True)
class Substitutes:
    """Replacements of operators that LiteRT has no kernel for, by operator index.

    ``pack_kernels`` compute operators in NumPy. ``from_onnx``: operators whose results are taken from the ONNX model;
    ``onnx_results`` returns these results by tensor, given the inputs of a run.
    """

    pack_kernels: Mapping[int, PackKernel] = field(default_factory=dict)
    from_onnx: Mapping[int, Operator] = field(default_factory=dict)
    onnx_results: ReadResults | None = None

    @property
    def tensors(self) -> frozenset[int]:
        """Return the tensors that the ONNX model computes for LiteRT."""
        return frozenset(t.index for op in self.from_onnx.values() for t in op.outputs if t is not None)


class PartitionedLiteRT:
    """A model of which LiteRT runs all but the substituted operators, with the interface of ``LiteRT``.

    A variable tensor belongs to the part or the kernel that uses it.
    Raises InconclusiveError for a state that several parts would have to share.
    """

    def __init__(
        self, data: bytes, kernels: str, entry: Entry, substitutes: Substitutes, *, preserve: bool = False
    ) -> None:
        self.kernels, self.entry, self.substitutes = kernels, entry, substitutes
        self.pieces = list(_pieces(data, entry, {*substitutes.pack_kernels, *substitutes.from_onnx}))
        self.states = _check_states(entry, self.pieces, substitutes)
        self.sessions = {
            piece: LiteRT(piece.data, kernels if piece.inputs else "builtin", preserve=preserve)
            for piece in self.pieces
            if isinstance(piece, Part)
        }
        self.values: dict[int, Array] = {}

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """Invoke once, with inputs in the model's order; return the outputs in its order."""
        self.values = {tensor.index: array for tensor, array in zip(self.entry.inputs, inputs, strict=True)}
        self.values |= self.states
        if self.substitutes.onnx_results is not None:
            self.values |= self.substitutes.onnx_results(inputs)
        for piece in self.pieces:
            if isinstance(piece, Part):
                results = self.sessions[piece].run([self.values[k] for k in piece.inputs])
                self.values |= dict(zip(piece.outputs, results, strict=True))
            elif piece in self.substitutes.pack_kernels:
                self.values |= self.substitutes.pack_kernels[piece].run(self.values)
        self.states = {index: self.values[index] for index in self.states}
        return [self.values.get(tensor.index, _NOTHING) for tensor in self.entry.outputs]

    def tensors(self) -> dict[int, Array]:
        """Return every readable tensor by index, as the last run left it."""
        kept = dict(self.values)
        for part, session in self.sessions.items():
            kept |= {index: array for index, array in session.tensors().items() if index in part.computes}
        return kept


def _check_states(entry: Entry, pieces: Sequence[Part | int], substitutes: Substitutes) -> dict[int, Array]:
    """Return the initial values of variable tensors that packs' kernels use.

    Raises InconclusiveError for a state used in several pieces; operators whose results come from the ONNX model share its states.
    """
    users: dict[Tensor, set[int]] = {}
    owned: dict[int, Array] = {}
    for k, piece in enumerate(pieces):
        indices = piece.operators if isinstance(piece, Part) else {piece}
        for op in (entry.subgraph.operators[index] for index in indices):
            states = {t for t in (*op.inputs, *op.outputs) if t is not None and (t.is_variable or t.dtype in HANDLES)}
            for tensor in states:
                kept = k if tensor.is_variable else _UNSHARED
                users.setdefault(tensor, set()).add(_FROM_ONNX if piece in substitutes.from_onnx else kept)
                if piece in substitutes.pack_kernels and tensor.is_variable:
                    owned[tensor.index] = _initial(tensor)
    shared = next((tensor for tensor, parts in users.items() if len(parts) > 1 or _UNSHARED in parts), None)
    if shared is not None:
        raise InconclusiveError(
            f"LiteRT has no kernel for an operator, so the model runs in parts; the parts cannot share state {shared.name!r}"
        )
    return owned


def _initial(tensor: Tensor) -> Array:
    """Return the initial value of a variable tensor in LiteRT: zeros, or the zero point of int8 (ResetVariableTensor, core/subgraph.cc)."""
    known = tensor.dtype == "int8" and isinstance(tensor.quantization, Quantization)
    point = tensor.quantization.zero_point[0] if known and isinstance(tensor.quantization, Quantization) else 0
    return np.full(tensor.shape, point, tensor.dtype)


def _pieces(data: bytes, entry: Entry, substituted: set[int]) -> Iterator[Part | int]:
    """Yield the model in execution order: a ``Part`` that LiteRT runs, or the index of an operator that it cannot run.

    If such an operator needs results that are computed from constants, these come first, in a part without inputs: XNNPACK
    gives no access to weights that it dequantizes.
    """
    graph = entry.subgraph
    fixed = _constant_operators(graph.operators, substituted)
    if fixed:
        yield _part(data, entry, fixed)
    segment: list[Operator] = []
    for op in (*graph.operators, None):
        if op in fixed:
            continue
        if op is not None and op.index not in substituted:
            segment.append(op)
            continue
        if segment:
            yield _part(data, entry, segment)
            segment = []
        if op is not None:
            yield op.index


def _constant_operators(operators: Sequence[Operator], substituted: set[int]) -> list[Operator]:
    """Return the operators that compute operands of the ``substituted`` operators from constants only."""
    makers: dict[int, Operator] = {}
    for op in operators:
        given = [t.is_constant or t.index in makers for t in op.inputs if t is not None]
        if op.index not in substituted and given and all(given):
            makers |= {t.index: op for t in op.outputs if t is not None}
    wanted = [t.index for op in operators if op.index in substituted for t in op.inputs if t is not None]
    chosen: set[Operator] = set()
    while wanted:
        maker = makers.get(wanted.pop())
        if maker is not None and maker not in chosen:
            chosen.add(maker)
            wanted += [t.index for t in maker.inputs if t is not None]
    return [op for op in operators if op in chosen]


def _part(data: bytes, entry: Entry, operators: Sequence[Operator]) -> Part:
    inside = {op.index for op in operators}
    computed = {t.index for op in operators for t in op.outputs if t is not None}
    read = {t.index: t for op in operators for t in op.inputs if t is not None and not t.is_constant}
    later = {t.index for op in entry.subgraph.operators if op.index not in inside for t in op.inputs if t is not None}
    inputs = tuple(index for index, tensor in read.items() if index not in computed and not tensor.is_variable)
    ends = {t.index for t in entry.outputs}
    outputs = tuple(sorted(index for index in computed if index in later or index in ends))
    return Part(
        frozenset(inside), inputs, outputs, frozenset(computed), cut_file(data, entry.subgraph, inputs, outputs)
    )
