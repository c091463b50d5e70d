"""Structure of a TFLite file, read with LiteRT's own schema package.

This makes verification independent of the converter's reader: names, dtypes and operands come from the package that
runs the model. Constants are not read until their values are requested.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from onnx_tflite_plugin.checked import did_you_mean
from onnx_tflite_plugin.codes import CUSTOM
from onnx_tflite_plugin.errors import InvalidModel, UnsupportedOption
from onnx_tflite_plugin.source.model import (
    Array,
    Data,
    Model,
    Operator,
    Options,
    Quantization,
    Signature,
    Subgraph,
    Tensor,
)
from onnx_tflite_plugin.verify.runtimes.packages import import_optional

_PLACEHOLDER = 127  # operator codes from this value on are stored in the field builtin_code


@dataclass(frozen=True)
class Entry:
    """Interface of one run: inputs and outputs of the main graph or of a signature."""

    subgraph: Subgraph
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]

    def rename(self, renames: Mapping[str, str]) -> Entry:
        """Return the entry with inputs and outputs renamed."""
        inputs, outputs = (
            tuple(renames.get(name, name) for name in names) for names in (self.input_names, self.output_names)
        )
        return replace(self, input_names=inputs, output_names=outputs)


class StoredConstant(Data):
    """Content of a constant, read on request."""

    def __init__(self, buffer: Any) -> None:
        self._buffer = buffer

    def numbers(self, dtype: str) -> Array:
        """Return the elements in order; none if they lie outside the file.

        An incomplete last element is dropped.
        """
        try:
            data = self._buffer.DataAsNumpy() if self._buffer.DataLength() else np.empty(0, np.uint8)
        except ValueError:
            return np.empty(0, dtype)
        size = np.dtype(dtype).itemsize
        return np.frombuffer(data.tobytes()[: data.size // size * size], dtype)


def read(data: bytes) -> Model:
    """Return the structure of a TFLite file. Raises InvalidModel if it cannot be read."""
    schema = import_optional("ai_edge_litert.schema_py_generated")
    try:
        model = schema.Model.GetRootAs(data)
        codes = [_code(schema, model.OperatorCodes(k)) for k in range(model.OperatorCodesLength())]
        subgraphs = tuple(
            _subgraph(schema, model, model.Subgraphs(k), k, codes) for k in range(model.SubgraphsLength())
        )
        signatures = tuple(_signature(model.SignatureDefs(k)) for k in range(model.SignatureDefsLength()))
    except Exception as error:
        raise InvalidModel(f"the TFLite file cannot be read: {error}") from error
    if not subgraphs:
        raise InvalidModel("the TFLite file holds no subgraph")
    return Model(subgraphs, signatures, size=len(data))


def entry(model: Model, signature: str | None = None) -> Entry:
    """Return the inputs and outputs of a signature, in the order of its subgraph.

    Without ``signature``, return those of the main graph, named by its first signature. Intermediate tensors that are
    outputs only of the signature come last. Raises UnsupportedOption for a signature that the file does not have.
    """
    selected_signature = next(
        (s for s in model.signatures if (s.subgraph == 0 if signature is None else s.key == signature)),
        None,
    )
    if selected_signature is None and signature is not None:
        keys = [item.key for item in model.signatures]
        key_list = ", ".join(map(repr, keys)) or "none"
        raise UnsupportedOption(
            f"the model has no signature {signature!r}{did_you_mean(signature, keys) or ';'} it has {key_list}"
        )
    if selected_signature is None:
        main = model.main
        return Entry(main, main.inputs, main.outputs, _names(main.inputs), _names(main.outputs))
    graph = model.subgraphs[selected_signature.subgraph]
    signature_outputs = tuple(graph.tensors[index] for index in {*selected_signature.outputs.values()})
    all_outputs = (*graph.outputs, *(tensor for tensor in signature_outputs if tensor not in graph.outputs))
    inputs, input_names = _signature_side(graph, graph.inputs, selected_signature.inputs)
    outputs, output_names = _signature_side(graph, all_outputs, selected_signature.outputs)
    return Entry(graph, inputs, outputs, input_names, output_names)


def _signature_side(
    graph: Subgraph, tensors: tuple[Tensor, ...], names: Mapping[str, int]
) -> tuple[tuple[Tensor, ...], tuple[str, ...]]:
    """Return the tensors and names of a signature's inputs or outputs.

    ``tensors``: tensors of the subgraph. ``names``: name in the signature -> tensor index. Tensors that the signature does
    not name are included only for the main graph.
    """
    by_index: dict[int, list[str]] = {}
    for name, index in names.items():
        by_index.setdefault(index, []).append(name)
    file_names = dict(zip((t.index for t in tensors), _names(tensors), strict=True)) if graph.index == 0 else {}
    pairs = [
        (tensor, name)
        for tensor in dict.fromkeys(tensors)
        for name in by_index.get(tensor.index, [file_names[tensor.index]] if tensor.index in file_names else [])
    ]
    return tuple(tensor for tensor, _ in pairs), tuple(name for _, name in pairs)


def block_scales(data: bytes, subgraph: int) -> dict[int, float]:
    """Return index of a blockwise quantized tensor -> its largest scale.

    Raises InvalidModel if the scales cannot be read.
    """
    schema = import_optional("ai_edge_litert.schema_py_generated")
    model = schema.Model.GetRootAs(data)
    graph = model.Subgraphs(subgraph)
    largest_scales = {}
    for k in range(graph.TensorsLength()):
        quantization = graph.Tensors(k).Quantization()
        if quantization is None or quantization.DetailsType() != schema.QuantizationDetails.BlockwiseQuantization:
            continue
        details = schema.BlockwiseQuantization()
        details.Init(quantization.Details().Bytes, quantization.Details().Pos)
        try:
            buffer = model.Buffers(graph.Tensors(details.Scales()).Buffer())
            start, size = buffer.Offset(), buffer.Size()
            data_bytes = buffer.DataAsNumpy() if buffer.DataLength() else data[start : start + size]
            largest_scales[k] = float(np.frombuffer(data_bytes, np.float16).max(initial=0))
        except (struct.error, ValueError, AttributeError) as error:
            raise InvalidModel(f"the scales of tensor {k} cannot be read: {error}") from error
    return largest_scales


def is_stateful(model: Model) -> bool:
    """True if the model has variables or resources, which LiteRT keeps between runs."""
    return any(
        tensor.is_variable or tensor.dtype == "resource" for graph in model.subgraphs for tensor in graph.tensors
    )


def producers(graph: Subgraph) -> dict[int, Operator]:
    """Return tensor index -> the operator that computes the tensor."""
    return {tensor.index: operator for operator in graph.operators for tensor in operator.outputs if tensor is not None}


def constant_producers(operators: Iterable[Operator]) -> dict[int, Operator]:
    """Return tensor index -> operator that computes this constant.

    All their operands are constants, or results of such operators.
    """
    producer_by_tensor: dict[int, Operator] = {}
    for op in operators:
        inputs = [tensor for tensor in op.inputs if tensor is not None]
        if inputs and all(tensor.is_constant or tensor.index in producer_by_tensor for tensor in inputs):
            producer_by_tensor |= {tensor.index: op for tensor in op.outputs if tensor is not None}
    return producer_by_tensor


def operands(operator: Operator) -> Iterator[Tensor]:
    """Return the inputs of an operator that are not constant."""
    return (tensor for tensor in operator.inputs if tensor is not None and not tensor.is_constant)


def external_operands(operators: Sequence[Operator]) -> list[Tensor]:
    """Return the tensors that the operators read but do not compute themselves."""
    computed = {tensor.index for op in operators for tensor in op.outputs if tensor is not None}
    return list({t.index: t for op in operators for t in operands(op) if t.index not in computed}.values())


def _names(tensors: tuple[Tensor, ...]) -> tuple[str, ...]:
    """Return the names of tensors, with the index if a name is empty or repeated."""
    names = [tensor.name for tensor in tensors]
    return tuple(
        tensor.name if tensor.name and names.count(tensor.name) == 1 else f"{tensor.name}#{tensor.index}"
        for tensor in tensors
    )


def _text(value: bytes | None) -> str:
    return (value or b"").decode(errors="replace")


@cache
def _enum_name(enum: Any, value: int) -> str:
    return next(
        (name for name, number in vars(enum).items() if number == value and not name.startswith("_")), str(value)
    )


def _code(schema: Any, code: Any) -> str:
    """Return the name of an operator code, for example ``CONV_2D`` or ``CUSTOM.Name``."""
    deprecated = code.DeprecatedBuiltinCode()
    name = _enum_name(schema.BuiltinOperator, deprecated if deprecated < _PLACEHOLDER else code.BuiltinCode())
    return CUSTOM + _text(code.CustomCode()) if name == "CUSTOM" else name


def _ints(table: Any, field: str) -> list[int]:
    return getattr(table, field + "AsNumpy")().tolist() if getattr(table, field + "Length")() else []


def _subgraph(schema: Any, model: Any, graph: Any, index: int, codes: list[str]) -> Subgraph:
    operator_tables = [graph.Operators(k) for k in range(graph.OperatorsLength())]
    runtime_indices = {k for operator in operator_tables for k in _ints(operator, "Outputs")} | {
        *_ints(graph, "Inputs")
    }
    tensors = tuple(
        _tensor(schema, model, graph.Tensors(k), index, k, is_runtime=k in runtime_indices)
        for k in range(graph.TensorsLength())
    )

    def read_slots(table: Any, field: str) -> tuple[Tensor | None, ...]:
        return tuple(tensors[k] if k >= 0 else None for k in _ints(table, field))

    operators = []
    for k, operator in enumerate(operator_tables):
        code = codes[operator.OpcodeIndex()]
        operators.append(
            Operator(
                index, k, code, code, 1, Options(), read_slots(operator, "Inputs"), read_slots(operator, "Outputs")
            )
        )
    inputs, outputs = (tuple(t for t in read_slots(graph, side) if t is not None) for side in ("Inputs", "Outputs"))
    return Subgraph(index, _text(graph.Name()), tensors, inputs, outputs, tuple(operators))


def _tensor(schema: Any, model: Any, tensor: Any, subgraph: int, index: int, *, is_runtime: bool) -> Tensor:
    """Return a tensor.

    ``is_runtime``: a graph input or the result of an operator. Any other tensor without elements is a constant, although
    its buffer is empty.
    """
    shape = _ints(tensor, "Shape")
    shape_signature = _ints(tensor, "ShapeSignature")
    dynamic_flags = (
        [size < 0 for size in shape_signature] if len(shape_signature) == len(shape) else [False] * len(shape)
    )
    dims = tuple(None if is_dynamic else size for size, is_dynamic in zip(shape, dynamic_flags, strict=True))
    buffer = model.Buffers(tensor.Buffer())
    has_data = buffer is not None and (buffer.DataLength() > 0 or buffer.Offset() > 1)
    is_constant = has_data or (0 in shape and not is_runtime and buffer is not None and not tensor.IsVariable())
    quantization = tensor.Quantization()
    parameters = None
    if quantization is not None and quantization.ScaleLength():
        scale = tuple(quantization.ScaleAsNumpy().tolist())
        zero_points = _ints(quantization, "ZeroPoint") or [0] * len(scale)
        parameters = Quantization(scale, tuple(zero_points), quantization.QuantizedDimension())
    dtype = _enum_name(schema.TensorType, tensor.Type()).lower()
    return Tensor(
        subgraph,
        index,
        _text(tensor.Name()),
        dtype,
        tuple(shape),
        dims,
        StoredConstant(buffer) if is_constant else None,
        parameters,
        tensor.IsVariable(),
        has_rank=bool(shape) or is_constant or bool(tensor.HasRank()),
    )


def _signature(signature: Any) -> Signature:
    def names(side: str) -> dict[str, int]:
        get = getattr(signature, side)
        maps = (get(k) for k in range(getattr(signature, side + "Length")()))
        return {_text(item.Name()): int(item.TensorIndex()) for item in maps}

    return Signature(_text(signature.SignatureKey()), signature.SubgraphIndex(), names("Inputs"), names("Outputs"))


_WEIGHTS = {"int8", "uint8", "int4", "uint4", "int2"}
_NIBBLES = {"int4", "uint4", "int2"}


def is_dynamic_range(operator: Operator) -> bool:
    """True if an operator has float activations and int8 or smaller weights.

    Its kernel quantizes the activations. Weights of 4 and 2 bits may have a scale per block (``block_scales``).
    """
    has_weights = any(
        t is not None and t.dtype in _WEIGHTS and (t.quantization is not None or t.dtype in _NIBBLES)
        for t in operator.inputs
    )
    has_float_operand = any(t.dtype.startswith("float") for t in operands(operator))
    has_float_result = any(t is not None and t.dtype.startswith("float") for t in operator.outputs)
    return has_weights and has_float_operand and has_float_result
