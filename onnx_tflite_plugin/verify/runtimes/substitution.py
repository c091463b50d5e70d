"""Runs of models with operators that LiteRT has no kernel for.

LiteRT runs all operators for which it has kernels. A missing operator runs in NumPy with the reference kernel that its
handler declares. If there is no reference kernel, the results are taken from the ONNX model (``onnx_results``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from onnx_tflite_plugin.api.declarations import Kernel
from onnx_tflite_plugin.binding.bound import Bound
from onnx_tflite_plugin.binding.declared import OperatorInstance, resolve_operator
from onnx_tflite_plugin.checked import describe_arity_mismatch, format_shape, plural
from onnx_tflite_plugin.errors import InconclusiveError, Problem
from onnx_tflite_plugin.guard import Failed, Mismatch, WrongResult, attribute_errors
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.source.affine import affine, bias_scale
from onnx_tflite_plugin.source.dtypes import HANDLES, QUANTIZED
from onnx_tflite_plugin.source.model import Array, Model, Operator, Quantization, Tensor, agree
from onnx_tflite_plugin.targets import target_named
from onnx_tflite_plugin.verify.runtimes.dequantized import as_float, as_stored
from onnx_tflite_plugin.verify.runtimes.extraction import cut_file
from onnx_tflite_plugin.verify.runtimes.litert import LiteRT
from onnx_tflite_plugin.verify.runtimes.structure import Entry, constant_producers

ReadResults = Callable[[Sequence[Array]], Mapping[int, Array]]

_FROM_ONNX = -1  # in place of the position of a step, for operators whose results come from the ONNX model
_NO_RESULT = np.empty(0, np.float32)  # an output that is neither computed nor compared


def find_overridden_codes(operators: Iterable[Operator], host: Host) -> set[str]:
    """Return the codes of operators for which a handler declares ``overrides_kernel``."""
    codes = dict.fromkeys(op.code for op in operators)
    return {code for code in codes if any(handler.overrides_kernel for _, handler in host.registered_handlers(code))}


def find_overridden_operators(model: Model, subgraph: int, host: Host) -> list[int]:
    """Return the indices of operators that ``overrides_kernel`` selects."""
    target = target_named("onnxruntime")
    operators = model.subgraphs[subgraph].operators
    codes = find_overridden_codes(operators, host)
    indices = []
    for op in operators:
        if op.code not in codes:
            continue
        bound = host.bind_operator(op, target, target.opsets[2])
        if isinstance(bound, Bound) and bound.handler.overrides_kernel is not None:
            function = bound.handler.overrides_kernel
            with attribute_errors(f"overrides_kernel of handler {bound.handler.name}", bound.pack, function):
                if function(OperatorInstance(bound.op, target, target.opsets[2])):
                    indices.append(op.index)
    return indices


def _protect(operand: Array, tensor: Tensor) -> Array:
    """Return a read-only view of an operand; a variable stays writable.

    ONNX Runtime may read the same array.
    """
    if tensor.is_variable:
        return operand
    view = operand.view()
    view.flags.writeable = False
    return view


@dataclass(frozen=True, eq=False)
class PackKernel:
    """One operator with the reference kernel of its pack.

    The kernel may change a variable operand in place, to update the state. ``takes_floats``: the kernel computes
    on dequantized values. ``biases``: slots of biases, each with the two factors of its scale. ``file_slots``: slots
    whose quantized values are not dequantized.
    """

    op: Operator
    kernel: Kernel
    pack: str
    takes_floats: bool
    biases: Mapping[int, tuple[int, int | float]]
    file_slots: Collection[int] = ()

    def run(self, values: Mapping[int, Array]) -> dict[int, Array]:
        """Return tensor index -> result, in the shape and dtype of the TFLite file.

        ``values``: tensor index -> value of each tensor computed so far. Raises InconclusiveError if the kernel fails.
        """
        name = f"kernel of {self.op.code}"
        try:
            with attribute_errors(name, self.pack, self.kernel):
                operands = [
                    None if t is None else _protect(self._operand(slot, t, values), t)
                    for slot, t in enumerate(self.op.inputs)
                ]
                if problem := describe_arity_mismatch(self.kernel, len(operands), "kernel"):
                    raise Mismatch(problem)
                results = _list_results(self.kernel(self.op, *operands), len(self.op.outputs))
                is_resized = any(
                    t is not None and a is not None and not agree(t.dims, a.shape)
                    for t, a in zip(self.op.inputs, operands, strict=True)
                )
                states = {
                    t.index: _as_stored(t, k, np.asarray(a), resized=False)
                    for k, (t, a) in enumerate(zip(self.op.inputs, operands, strict=True))
                    if t is not None and t.is_variable
                }
                return states | {
                    t.index: _as_stored(t, k, np.asarray(a), resized=is_resized, takes_floats=self.takes_floats)
                    for k, (t, a) in enumerate(zip(self.op.outputs, results, strict=True))
                    if t
                }
        except Failed as failed:
            raise InconclusiveError(failed.reason) from failed

    def _operand(self, slot: int, tensor: Tensor, values: Mapping[int, Array]) -> Array:
        """Return an operand as the kernel expects it: quantized values, or floats."""
        array = tensor.array if tensor.is_constant else values[tensor.index]
        if tensor.is_variable:
            array = array.copy()
        if not self.takes_floats or slot in self.file_slots:
            return array
        if slot in self.biases and array.dtype.kind == "i":
            scale = bias_scale(self.op, self.biases[slot])
            return np.asarray(array * (1.0 if scale is None else scale), np.float32)
        return as_float(tensor, array)


def _list_results(returned_value: Any, output_count: int) -> list[Any]:
    """Return the arrays that a kernel returned. Raises WrongResult for a wrong number."""
    if returned_value is None:
        raise WrongResult("it returned None, not an array; is a `return` missing?")
    results = [returned_value] if isinstance(returned_value, np.ndarray | np.generic) else list(returned_value)
    if len(results) != output_count:
        raise WrongResult(
            f"it returned {plural(len(results), 'array')}, but the operator has {plural(output_count, 'output')}"
        )
    return results


def _as_stored(tensor: Tensor, k: int, array: Array, *, resized: bool, takes_floats: bool = False) -> Array:
    """Return a result in the dtype of the TFLite file.

    ``k``: index of the output, for messages. ``resized``: the sizes of operands differ from the file, so the sizes of
    the result may differ too. ``takes_floats``: the kernel computes on dequantized values. Raises WrongResult for a wrong
    shape or dtype.
    """
    dims = (None,) * tensor.rank if resized else tensor.dims
    if not agree(dims, array.shape):
        raise WrongResult(
            f"output {k} of the kernel has shape {list(array.shape)}, but {tensor.name!r} has {format_shape(tensor.dims)} in the model; "
            "correct the kernel, or the shape of the model or case"
        )
    is_integer = _is_integer(array.dtype.name)
    if isinstance(tensor.quantization, Quantization):
        has_wrong_dtype = takes_floats and is_integer and array.dtype != tensor.dtype
        allowed_dtypes = f"float32, or of quantized values in {tensor.dtype}"
    else:
        has_wrong_dtype = tensor.dtype not in QUANTIZED and is_integer != _is_integer(tensor.dtype)
        allowed_dtypes = tensor.dtype
    if has_wrong_dtype:
        raise WrongResult(
            f"output {k} of the kernel is {array.dtype}, but {tensor.name!r} is {tensor.dtype} in the model; "
            f"return an array of {allowed_dtypes}"
        )
    return as_stored(tensor, array).astype(tensor.dtype)


def _is_integer(dtype: str) -> bool:
    return dtype.lstrip("u").startswith(("int", "bool"))


def find_pack_kernels(
    model: Model, subgraph: int, indices: Iterable[int], host: Host, overrides: Mapping[str, Kernel] | None = None
) -> tuple[dict[int, PackKernel], dict[int, str]]:
    """Return operator index -> reference kernel, and operator index -> missing reason.

    ``model``: as the converter's reader returns it. ``overrides``: operator code -> kernel, in place of the kernel that the
    handler declares.
    """
    target = target_named("onnxruntime")
    kernels, reasons = {}, {}
    for index in indices:
        op = model.subgraphs[subgraph].operators[index]
        bound = host.bind_operator(op, target, target.opsets[2])
        if not isinstance(bound, Bound):
            facts = "; ".join((bound.reason, *host.skipped_packs()))
            # other problems have hints for users, not for the pack's author
            remedy = f" ({bound.hint})" if bound.hint and type(bound) is Problem else ""
            reasons[index] = f"{facts}{remedy}"
            continue
        kernel = (overrides or {}).get(op.code, bound.handler.kernel)
        if kernel is None:
            reasons[index] = (
                f"handler {bound.handler.name} of {bound.pack} declares no reference kernel; write the operator in NumPy, "
                "def kernel(op, x), and pass kernel=kernel to @handler"
            )
            continue
        behavior = resolve_operator(bound, target, target.opsets[2]).declared.quantization
        kernels[index] = PackKernel(
            bound.op, kernel, bound.pack, behavior.takes_floats, behavior.biases, behavior.file_slots
        )
    return kernels, reasons


@dataclass(frozen=True)
class Partition:
    """Operators that LiteRT runs as one model.

    Operators and tensors are indices. ``computed``: all tensors that the operators compute. ``data``: the TFLite file.
    """

    operators: frozenset[int]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    computed: frozenset[int]
    data: bytes


@dataclass(frozen=True)
class Substitutes:
    """Replacements of operators that LiteRT has no kernel for.

    ``pack_kernels``: operator index -> NumPy kernel. ``from_onnx``: operator index -> operator whose results are taken from
    the ONNX model. ``onnx_results``: function of the inputs of a run that returns tensor index -> result.
    """

    pack_kernels: Mapping[int, PackKernel] = field(default_factory=dict)
    from_onnx: Mapping[int, Operator] = field(default_factory=dict)
    onnx_results: ReadResults | None = None

    @property
    def tensors(self) -> frozenset[int]:
        """Return the indices of the tensors that the ONNX model computes."""
        return frozenset(t.index for op in self.from_onnx.values() for t in op.outputs if t is not None)


class PartitionedLiteRT:
    """Session with the interface of ``LiteRT`` for a model with substituted operators.

    LiteRT runs all other operators. A variable tensor belongs to the partition or kernel that uses it. Raises
    InconclusiveError if several of them use one state.
    """

    def __init__(
        self, data: bytes, kernels: str, entry: Entry, substitutes: Substitutes, *, preserve: bool = False
    ) -> None:
        self.kernels, self.entry, self.substitutes = kernels, entry, substitutes
        self.steps = list(_split(data, entry, {*substitutes.pack_kernels, *substitutes.from_onnx}))
        self.states = _initial_states(entry, self.steps, substitutes)
        self.sessions = {
            step: LiteRT(step.data, kernels if step.inputs else "builtin", preserve=preserve)
            for step in self.steps
            if isinstance(step, Partition)
        }
        self.values: dict[int, Array] = {}

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """Run once, and return the outputs, both in the model's order."""
        self.values = {tensor.index: array for tensor, array in zip(self.entry.inputs, inputs, strict=True)}
        self.values |= self.states
        if self.substitutes.onnx_results is not None:
            self.values |= self.substitutes.onnx_results(inputs)
        for step in self.steps:
            if isinstance(step, Partition):
                results = self.sessions[step].run([self.values[k] for k in step.inputs])
                self.values |= dict(zip(step.outputs, results, strict=True))
            elif step in self.substitutes.pack_kernels:
                self.values |= self.substitutes.pack_kernels[step].run(self.values)
        self.states = {index: self.values[index] for index in self.states}
        return [self.values.get(tensor.index, _NO_RESULT) for tensor in self.entry.outputs]

    def allocate(self) -> None:
        """Allocate the tensors of each partition at the stored sizes.

        Partitions with inputs of dynamic size are left out. Raises LiteRTError for an operator that LiteRT cannot prepare.
        """
        for partition, session in self.sessions.items():
            if all(None not in self.entry.subgraph.tensors[index].dims for index in partition.inputs):
                session.allocate()

    def tensors(self) -> dict[int, Array]:
        """Return tensor index -> value after the last run, for readable tensors."""
        tensors = dict(self.values)
        for partition, session in self.sessions.items():
            tensors |= {index: array for index, array in session.tensors().items() if index in partition.computed}
        return tensors


def _initial_states(entry: Entry, steps: Sequence[Partition | int], substitutes: Substitutes) -> dict[int, Array]:
    """Return tensor index -> initial value, for the variables of pack kernels.

    Raises InconclusiveError for a variable that several steps use, and for every resource. Operators whose results come
    from the ONNX model may use any state.
    """
    users: dict[Tensor, set[int]] = {}  # positions of the steps that use a state
    initial_values: dict[int, Array] = {}
    for k, step in enumerate(steps):
        indices = step.operators if isinstance(step, Partition) else {step}
        position = _FROM_ONNX if step in substitutes.from_onnx else k
        for op in (entry.subgraph.operators[index] for index in indices):
            states = {t for t in (*op.inputs, *op.outputs) if t is not None and (t.is_variable or t.dtype in HANDLES)}
            for tensor in states:
                users.setdefault(tensor, set()).add(position)
                if step in substitutes.pack_kernels and tensor.is_variable:
                    initial_values[tensor.index] = _initial_value(tensor)
    for tensor, positions in users.items():
        is_resource = not tensor.is_variable
        if len(positions) > 1 or (is_resource and positions != {_FROM_ONNX}):
            raise InconclusiveError(
                f"LiteRT has no kernel for an operator, so the model runs in parts; the parts cannot share state {tensor.name!r}"
            )
    return initial_values


def _initial_value(tensor: Tensor) -> Array:
    """Return a variable's initial value in LiteRT: 0, or the zero point of int8.

    Source: ResetVariableTensor in core/subgraph.cc.
    """
    quantization = affine(tensor) if tensor.dtype == "int8" else None
    return np.full(tensor.shape, 0 if quantization is None else quantization.zero_point[0], tensor.dtype)


def _split(data: bytes, entry: Entry, substituted: set[int]) -> Iterator[Partition | int]:
    """Yield the steps of a run in execution order.

    A step is a partition for LiteRT, or the index of a substituted operator. The first partition has no inputs: it computes
    the constant operands of substituted operators. It runs with builtin kernels, because XNNPACK gives no access to weights
    that it dequantizes.
    """
    graph = entry.subgraph
    constant_operators = _constant_operators(graph.operators, substituted)
    if constant_operators:
        yield _make_partition(data, entry, constant_operators)
    pending: list[Operator] = []
    for op in (*graph.operators, None):
        if op in constant_operators:
            continue
        if op is not None and op.index not in substituted:
            pending.append(op)
            continue
        if pending:
            yield _make_partition(data, entry, pending)
            pending = []
        if op is not None:
            yield op.index


def _constant_operators(operators: Sequence[Operator], substituted: set[int]) -> list[Operator]:
    """Return the operators that compute constant operands of substituted operators."""
    producer_by_tensor = constant_producers(op for op in operators if op.index not in substituted)
    pending = [t.index for op in operators if op.index in substituted for t in op.inputs if t is not None]
    constant_operators: set[Operator] = set()
    while pending:
        producer = producer_by_tensor.get(pending.pop())
        if producer is not None and producer not in constant_operators:
            constant_operators.add(producer)
            pending += [t.index for t in producer.inputs if t is not None]
    return [op for op in operators if op in constant_operators]


def _make_partition(data: bytes, entry: Entry, operators: Sequence[Operator]) -> Partition:
    """Return a partition of these operators.

    Outputs: the tensors that other operators read, and the outputs of the model.
    """
    indices = {op.index for op in operators}
    computed_tensors = {t.index for op in operators for t in op.outputs if t is not None}
    read_tensors = {t.index: t for op in operators for t in op.inputs if t is not None and not t.is_constant}
    read_elsewhere = {
        t.index for op in entry.subgraph.operators if op.index not in indices for t in op.inputs if t is not None
    }
    inputs = tuple(
        index for index, tensor in read_tensors.items() if index not in computed_tensors and not tensor.is_variable
    )
    model_outputs = {t.index for t in entry.outputs}
    outputs = tuple(sorted(index for index in computed_tensors if index in read_elsewhere or index in model_outputs))
    return Partition(
        frozenset(indices),
        inputs,
        outputs,
        frozenset(computed_tensors),
        cut_file(data, entry.subgraph, inputs, outputs),
    )
