"""Read one subgraph, in which each tensor must be computed once, before its use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from onnx_tflite_plugin.checked import plural
from onnx_tflite_plugin.codes import COMPOSITE, CUSTOM, UNKNOWN
from onnx_tflite_plugin.errors import InvalidModel
from onnx_tflite_plugin.source.buffers import Buffers, read_span
from onnx_tflite_plugin.source.flatbuffer import DAMAGED, REFUSED, Table
from onnx_tflite_plugin.source.flexbuffer import decode_attributes
from onnx_tflite_plugin.source.model import Operator, Subgraph, Tensor
from onnx_tflite_plugin.source.options import operator_names, read_options
from onnx_tflite_plugin.source.schema import OPERATOR, TENSOR
from onnx_tflite_plugin.source.tensors import read_tensors

ORDER_RULE = "operators must be listed in execution order, and each tensor must be computed once"


class Code(NamedTuple):
    """One entry of ``operator_codes``. ``custom``: the name of a custom operator."""

    builtin: str
    custom: str
    version: int


def read_code(table: Table) -> Code:
    """Return the operator code.

    The number of a builtin operator is the larger of two fields: newer files use a field of more than one byte
    (LiteRT: ``GetBuiltinCode``).
    """
    number = max(table.number("deprecated_builtin_code"), table.number("builtin_code"))
    builtin = operator_names().get(number, f"{UNKNOWN}{number}")
    if builtin == "CUSTOM" and not table.has("custom_code"):
        raise table.invalid("custom_code", "a custom operator must have a name", REFUSED)
    return Code(builtin, table.text("custom_code"), table.number("version"))


class _RawOperator(NamedTuple):
    """An operator before its tensors are read.

    ``position``: the index of the operator. Operands are tensor indices, or None if they are absent.
    """

    table: Table
    position: int
    inputs: tuple[int | None, ...]
    outputs: tuple[int | None, ...]
    intermediates: tuple[int | None, ...]


class _Origins(NamedTuple):
    """Origin of each tensor's value.

    ``available``: True for a tensor that has a value before any operator runs. ``producers``: tensor index -> index of
    the operator that computes the tensor.
    """

    tensors: tuple[Tensor, ...]
    available: Sequence[bool]
    producers: Mapping[int, int]

    def operand(self, raw: _RawOperator, slot: int, tensor_index: int) -> Tensor | None:
        """Return an operand. Raises InvalidModel if a later operator computes it.

        A scalar that nothing computes counts as absent. Converters from 2018 gave RESHAPE such a scalar as its shape, and
        LiteRT still runs it (``Subgraph::InvokeImpl``). Other operands that nothing computes are checked when the
        operator is bound, because custom operators take scratch memory as an operand.
        """
        tensor = self.tensors[tensor_index]
        producer = self.producers.get(tensor_index)
        if self.available[tensor_index] or (producer is not None and producer < raw.position):
            return tensor
        if producer is not None:
            reason = f"tensor {tensor} is used here, but computed later, by operators[{producer}]"
            raise raw.table.invalid(f"inputs[{slot}]", reason, ORDER_RULE)
        return tensor if tensor.shape else None


def read_subgraph(table: Table, index: int, codes: Sequence[Code], buffers: Buffers) -> Subgraph:
    """Read one subgraph. Raises InvalidModel at the first inconsistency."""
    if not table.has("tensors"):
        raise table.invalid("tensors", "the subgraph has no tensors", REFUSED)
    tables = table.tables("tensors", TENSOR)
    inputs, outputs = (_read_boundary(table, name, len(tables)) for name in ("inputs", "outputs"))
    raw_operators = []
    for position, operator in enumerate(table.tables("operators", OPERATOR)):
        operands = (_read_operands(operator, name, len(tables)) for name in ("inputs", "outputs", "intermediates"))
        raw_operators.append(_RawOperator(operator, position, *operands))
    producers = _find_producers(raw_operators)
    tensors = read_tensors(tables, index, inputs, producers, buffers)
    origins = _find_origins(raw_operators, tensors, inputs, producers)
    for slot, tensor_index in enumerate(outputs):
        if not origins.available[tensor_index] and tensor_index not in producers:
            raise table.invalid(f"outputs[{slot}]", f"nothing computes tensor {tensors[tensor_index]}", REFUSED)
    return Subgraph(
        index,
        table.text("name"),
        tensors,
        tuple(tensors[tensor_index] for tensor_index in inputs),
        tuple(tensors[tensor_index] for tensor_index in outputs),
        tuple(_read_operator(raw, index, origins, codes) for raw in raw_operators),
    )


def _read_boundary(table: Table, name: str, tensor_count: int) -> tuple[int, ...]:
    """Return the tensor indices of the subgraph's inputs or outputs; none is absent."""
    tensor_indices: tuple[int, ...] = table.numbers(name)
    for slot, tensor_index in enumerate(tensor_indices):
        if not 0 <= tensor_index < tensor_count:
            raise _missing_tensor_error(table, f"{name}[{slot}]", tensor_index, tensor_count)
    return tensor_indices


def _read_operands(table: Table, name: str, tensor_count: int) -> tuple[int | None, ...]:
    tensor_indices: tuple[int, ...] = table.numbers(name)
    for slot, tensor_index in enumerate(tensor_indices):
        if not -1 <= tensor_index < tensor_count:
            raise _missing_tensor_error(table, f"{name}[{slot}]", tensor_index, tensor_count)
    return tuple(None if k == -1 else k for k in tensor_indices) if -1 in tensor_indices else tensor_indices


def _missing_tensor_error(table: Table, name: str, tensor_index: int, tensor_count: int) -> InvalidModel:
    return table.invalid(
        name, f"tensor {tensor_index} does not exist; the subgraph has {plural(tensor_count, 'tensor')}", DAMAGED
    )


def _find_producers(raw_operators: Sequence[_RawOperator]) -> dict[int, int]:
    """Return the index of the operator that computes each tensor.

    Raises InvalidModel if two operators compute the same tensor.
    """
    producers: dict[int, int] = {}
    for raw in raw_operators:
        for slot, tensor_index in enumerate(raw.outputs):
            if tensor_index is None:
                continue
            if tensor_index in producers:
                reason = f"tensor {tensor_index} is already computed by operators[{producers[tensor_index]}]"
                raise raw.table.invalid(f"outputs[{slot}]", reason, ORDER_RULE)
            producers[tensor_index] = raw.position
    return producers


def _find_origins(
    raw_operators: Sequence[_RawOperator],
    tensors: tuple[Tensor, ...],
    inputs: Sequence[int],
    producers: Mapping[int, int],
) -> _Origins:
    """Return the origin of each tensor.

    Raises InvalidModel if an operator computes a constant or an input. A variable may be computed: float16 files compute its
    initial value.
    """
    available = [tensor.is_constant or tensor.is_variable for tensor in tensors]
    for tensor_index in inputs:
        available[tensor_index] = True
    for tensor_index, position in producers.items():
        if tensors[tensor_index].is_constant or tensor_index in inputs:
            tensor, raw = tensors[tensor_index], raw_operators[position]
            role = "a constant" if tensor.is_constant else "an input"
            reason = f"tensor {tensor} is {role} and cannot be the output of an operator"
            raise raw.table.invalid(f"outputs[{raw.outputs.index(tensor_index)}]", reason, ORDER_RULE)
    return _Origins(tensors, available, producers)


def _read_operator(raw: _RawOperator, subgraph: int, origins: _Origins, codes: Sequence[Code]) -> Operator:
    table, tensors = raw.table, origins.tensors
    code_index = table.number("opcode_index")
    if code_index >= len(codes):
        reason = f"operator code {code_index} does not exist; the model has {plural(len(codes), 'operator code')}"
        raise table.invalid("opcode_index", reason, REFUSED)
    code = codes[code_index]
    options = read_options(table, code.builtin)
    name = code.builtin
    if name == "CUSTOM":
        name = CUSTOM + code.custom
    elif name == "STABLEHLO_COMPOSITE":
        name = f"{COMPOSITE}{options.get('name', '')}"
    span = read_span(table, "custom_options", "large_custom_options_offset", "large_custom_options_size")
    custom = table.file.copy(*span, table.path) if span[1] else b""
    if custom and not options:
        with suppress(ValueError):  # bytes that are not a FlexBuffer are a struct, which the handler reads
            options = decode_attributes(custom, name)
    mutating: tuple[bool, ...] = table.numbers("mutating_variable_inputs")
    return Operator(
        subgraph,
        raw.position,
        name,
        code.builtin,
        code.version,
        options,
        tuple(None if k is None else origins.operand(raw, slot, k) for slot, k in enumerate(raw.inputs)),
        tuple(None if k is None else tensors[k] for k in raw.outputs),
        tuple(None if k is None else tensors[k] for k in raw.intermediates),
        custom,
        # LiteRT does not read this list, so tools that add an input may not extend it.
        mutating if len(mutating) == len(raw.inputs) else (),
    )
