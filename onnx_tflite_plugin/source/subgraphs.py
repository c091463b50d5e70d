"""Read one subgraph.

Each tensor must be computed once, before it is used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from onnx_tflite_plugin.codes import COMPOSITE, CUSTOM, UNKNOWN
from onnx_tflite_plugin.errors import InvalidModel
from onnx_tflite_plugin.source.buffers import Buffers, read_span
from onnx_tflite_plugin.source.flatbuffer import DAMAGED, REFUSED, Table
from onnx_tflite_plugin.source.flexbuffer import decode_attributes
from onnx_tflite_plugin.source.model import Operator, Subgraph, Tensor
from onnx_tflite_plugin.source.options import operator_names, read_options
from onnx_tflite_plugin.source.schema import OPERATOR, TENSOR
from onnx_tflite_plugin.source.tensors import read_tensors

ORDER = "operators must be listed in execution order, and each tensor must be computed once"


class Code(NamedTuple):
    """One entry of the model's ``operator_codes``.

    ``custom``: the name of a custom operator.
    """

    builtin: str
    custom: str
    version: int


def read_code(table: Table) -> Code:
    """Return the operator code.

    The number of a builtin operator is the larger of two fields, because it was once a byte (``GetBuiltinCode``).
    """
    number = max(table.number("deprecated_builtin_code"), table.number("builtin_code"))
    builtin = operator_names().get(number, f"{UNKNOWN}{number}")
    if builtin == "CUSTOM" and not table.has("custom_code"):
        raise table.invalid("custom_code", "a custom operator must have a name", REFUSED)
    return Code(builtin, table.text("custom_code"), table.number("version"))


class _Call(NamedTuple):
    """An operator before its tensors are read.

    ``position``: the index of the operator. Operands are tensor indices, or None if they are absent.
    """

    table: Table
    position: int
    inputs: tuple[int | None, ...]
    outputs: tuple[int | None, ...]
    intermediates: tuple[int | None, ...]


class _Origins(NamedTuple):
    """The origin of each tensor.

    A tensor is ``available`` before the operators run, or is computed by operator ``producers[i]``.
    """

    tensors: tuple[Tensor, ...]
    available: Sequence[bool]
    producers: Mapping[int, int]

    def operand(self, call: _Call, slot: int, number: int) -> Tensor | None:
        """Return an operand. Raises InvalidModel if it is computed later.

        A scalar that is never written counts as absent. Converters of 2018 gave RESHAPE such a scalar as its shape, and
        LiteRT still runs it (``Subgraph::InvokeImpl``). Any other operand that is never written is an error, reported
        when its operator is bound: custom operators take scratch memory as an operand.
        """
        tensor = self.tensors[number]
        producer = self.producers.get(number)
        if self.available[number] or (producer is not None and producer < call.position):
            return tensor
        if producer is not None:
            reason = f"tensor {tensor} is not computed before operators[{producer}]"
            raise call.table.invalid(f"inputs[{slot}]", reason, ORDER)
        return tensor if tensor.shape else None


def read_subgraph(table: Table, index: int, codes: Sequence[Code], buffers: Buffers) -> Subgraph:
    """Read one subgraph. Raises InvalidModel at the first inconsistency."""
    if not table.has("tensors"):
        raise table.invalid("tensors", "the subgraph has no tensors", REFUSED)
    tables = table.tables("tensors", TENSOR)
    inputs, outputs = (_read_boundary(table, name, len(tables)) for name in ("inputs", "outputs"))
    calls = []
    for position, operator in enumerate(table.tables("operators", OPERATOR)):
        operands = (_read_operands(operator, name, len(tables)) for name in ("inputs", "outputs", "intermediates"))
        calls.append(_Call(operator, position, *operands))
    producers = _find_producers(calls)
    tensors = read_tensors(tables, index, inputs, producers, buffers)
    origins = _find_origins(calls, tensors, inputs, producers)
    for slot, number in enumerate(outputs):
        if not origins.available[number] and number not in producers:
            raise table.invalid(f"outputs[{slot}]", f"nothing computes tensor {tensors[number]}", REFUSED)
    return Subgraph(
        index,
        table.text("name"),
        tensors,
        tuple(tensors[number] for number in inputs),
        tuple(tensors[number] for number in outputs),
        tuple(_read_operator(call, index, origins, codes) for call in calls),
    )


def _read_boundary(table: Table, name: str, tensor_count: int) -> tuple[int, ...]:
    """Return the indices of the subgraph's inputs or outputs.

    Unlike operands of an operator, none of them may be absent.
    """
    numbers: tuple[int, ...] = table.numbers(name)
    for slot, number in enumerate(numbers):
        if not 0 <= number < tensor_count:
            raise _missing_tensor_error(table, f"{name}[{slot}]", number, tensor_count)
    return numbers


def _read_operands(table: Table, name: str, tensor_count: int) -> tuple[int | None, ...]:
    numbers: tuple[int, ...] = table.numbers(name)
    for slot, number in enumerate(numbers):
        if not -1 <= number < tensor_count:
            raise _missing_tensor_error(table, f"{name}[{slot}]", number, tensor_count)
    return tuple(None if number == -1 else number for number in numbers) if -1 in numbers else numbers


def _missing_tensor_error(table: Table, name: str, number: int, tensor_count: int) -> InvalidModel:
    return table.invalid(name, f"tensor {number} does not exist; the subgraph has {tensor_count}", DAMAGED)


def _find_producers(calls: Sequence[_Call]) -> dict[int, int]:
    """Return the index of the operator that computes each tensor.

    Raises InvalidModel if two operators compute the same tensor.
    """
    producers: dict[int, int] = {}
    for call in calls:
        for slot, number in enumerate(call.outputs):
            if number is None:
                continue
            if number in producers:
                reason = f"tensor {number} is computed by operators[{producers[number]}] already"
                raise call.table.invalid(f"outputs[{slot}]", reason, ORDER)
            producers[number] = call.position
    return producers


def _find_origins(
    calls: Sequence[_Call], tensors: tuple[Tensor, ...], inputs: Sequence[int], producers: Mapping[int, int]
) -> _Origins:
    """Return the origin of each tensor.

    Raises InvalidModel if an operator computes a constant or an input. A variable may be computed, as float16 files define
    its initial value that way.
    """
    available = [tensor.is_constant or tensor.is_variable for tensor in tensors]
    for number in inputs:
        available[number] = True
    for number, position in producers.items():
        if tensors[number].is_constant or number in inputs:
            tensor, call = tensors[number], calls[position]
            kind = "a constant" if tensor.is_constant else "an input"
            reason = f"tensor {tensor} is {kind} and cannot be computed"
            raise call.table.invalid(f"outputs[{call.outputs.index(number)}]", reason, ORDER)
    return _Origins(tensors, available, producers)


def _read_operator(call: _Call, subgraph: int, origins: _Origins, codes: Sequence[Code]) -> Operator:
    table, tensors = call.table, origins.tensors
    number = table.number("opcode_index")
    if number >= len(codes):
        reason = f"operator code {number} does not exist; the model has {len(codes)}"
        raise table.invalid("opcode_index", reason, REFUSED)
    code = codes[number]
    options = read_options(table, code.builtin)
    name = code.builtin
    if name == "CUSTOM":
        name = CUSTOM + code.custom
    elif name == "STABLEHLO_COMPOSITE":
        name = f"{COMPOSITE}{options.get('name', '')}"
    span = read_span(table, "custom_options", "large_custom_options_offset", "large_custom_options_size")
    custom = table.file.copy(*span, table.path) if span[1] else b""
    if custom and not options:
        with suppress(ValueError):  # a struct of the kernel; the handler reads its bytes
            options = decode_attributes(custom, name)
    mutating: tuple[bool, ...] = table.numbers("mutating_variable_inputs")
    return Operator(
        subgraph,
        call.position,
        name,
        code.builtin,
        code.version,
        options,
        tuple(None if k is None else origins.operand(call, slot, k) for slot, k in enumerate(call.inputs)),
        tuple(None if k is None else tensors[k] for k in call.outputs),
        tuple(None if k is None else tensors[k] for k in call.intermediates),
        custom,
        # LiteRT does not read this list, so tools that add an input may not extend it.
        mutating if len(mutating) == len(call.inputs) else (),
    )
