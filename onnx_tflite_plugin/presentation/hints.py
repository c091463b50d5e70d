"""Hints of a conversion: values to pass, and options that fit the model."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from onnx_tflite_plugin.checked import list_first
from onnx_tflite_plugin.graph.decoder import Decoder, GraphInput, recognize_decoder
from onnx_tflite_plugin.graph.node_metadata import source_operators
from onnx_tflite_plugin.presentation.graph_io import GraphValue
from onnx_tflite_plugin.rewrite.weights.dtypes import ONNX_RUNTIME_DOMAIN
from onnx_tflite_plugin.source.affine import affine

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnx_tflite_plugin.api.target import Target
    from onnx_tflite_plugin.binding.bound import BoundModel
    from onnx_tflite_plugin.options import ConvertOptions
    from onnx_tflite_plugin.source.model import Quantization, Tensor

_MAX_NAMES = 3  # maximum number of inputs, outputs or operators in a hint
_MIN_ADDED_NODES = 0.1  # share of nodes that a target adds above which a graph is less readable
_MIN_INDICES = 1 << 14  # constant indices of a Gather that count as large
_MIN_TABLE_ENTRIES = 1 << 16  # entries of a table of 16-bit values
_Codes = Mapping["ir.Value", Mapping[str, None]]  # the codes of the operators that use a constant, in order


def input_hints(inputs: Sequence[GraphValue], tensors: Mapping[str, Tensor]) -> Iterator[str]:
    """Yield hints about inputs that are float32 instead of quantized.

    A hint contains the formula of the real values. ``tensors``: the TFLite tensor of each input, by the input's name.
    """
    names: dict[tuple[str, str], list[str]] = {}
    for value in inputs:
        dtype = tensors[value.name].dtype
        if (quantization := _removed_quantization(value, tensors)) is not None:
            names.setdefault((dtype, _real_value_formula(dtype, quantization)), []).append(value.name)
    for (dtype, formula), group in names.items():
        verb = "takes" if len(group) == 1 else "take"
        yield f"{_subject('input', group)} {verb} float32 instead of {dtype}: pass real values, {formula}"


def output_hints(outputs: Sequence[GraphValue], tensors: Mapping[str, Tensor]) -> Iterator[str]:
    """Yield hints about outputs that are float32 instead of quantized.

    ``tensors``: as for :func:`input_hints`.
    """
    names: dict[str, list[str]] = {}
    for value in outputs:
        if _removed_quantization(value, tensors) is not None:
            names.setdefault(tensors[value.name].dtype, []).append(value.name)
    for dtype, group in names.items():
        verb = "is" if len(group) == 1 else "are"
        yield f"{_subject('output', group)} {verb} float32 instead of {dtype}: the values are real; do not dequantize them"


def _removed_quantization(value: GraphValue, tensors: Mapping[str, Tensor]) -> Quantization | None:
    return affine(tensors[value.name]) if value.dtype == "float32" else None


def _real_value_formula(dtype: str, quantization: Quantization) -> str:
    """Return the formula of the real value: ``(uint8 value - 128) * 0.0078125``."""
    if len(quantization.scale) != 1:
        return f"scale * ({dtype} value - zero point) with the scales of the file"
    (scale,), (zero_point,) = quantization.scale, quantization.zero_point
    value = f"{dtype} value"
    if zero_point:
        value = f"({value} {'-' if zero_point > 0 else '+'} {abs(zero_point)})"
    return f"{value} / 255" if math.isclose(scale, 1 / 255, rel_tol=1e-4) else f"{value} * {scale:.6g}"


def _subject(kind: str, names: Sequence[str]) -> str:
    return f"{kind}{'s' if len(names) > 1 else ''} {list_first([*map(repr, names)], _MAX_NAMES)}"


def attention_hints(
    inputs: Sequence[GraphValue], outputs: Sequence[GraphValue], options: ConvertOptions, target: Target
) -> list[str]:
    """Return a hint about ``--attention causal`` for a language model with scores.

    Return no hint if the option is already used, or if the target does not support it.
    """
    if options.attention != "file" or "com.microsoft" not in target.domains:
        return []
    decoder = find_decoder(inputs, outputs)
    if decoder is None or not has_scores(decoder, outputs):
        return []
    return ["--attention causal decodes faster: the attention of each layer becomes one operator"]


def readable_hints(options: ConvertOptions, target: Target, model: BoundModel, nodes: Mapping[str, int]) -> list[str]:
    """Return a hint about ``--target generic`` if a readable model would be smaller.

    ``nodes``: ONNX operator, with its domain -> number of nodes.
    """
    if options.optimize != "readable" or target.name == "generic":
        return []
    tensors = (tensor for bound in model.operators() for tensor in bound.op.inputs if tensor is not None)
    dequantized_tensors = {
        (tensor.subgraph, tensor.index)
        for tensor in tensors
        if tensor.dtype in target.cast_mul_dtypes and affine(tensor) is not None
    }
    added_count = len(dequantized_tensors) + sum(
        count for name, count in nodes.items() if name.startswith(ONNX_RUNTIME_DOMAIN)
    )
    if added_count <= _MIN_ADDED_NODES * sum(nodes.values()):
        return []
    return [
        f"--target generic gives a plainer graph: target {target.name} adds nodes and operators that are faster in one runtime"
    ]


def table_hints(model: ir.Model, source: BoundModel, *, quantizes_dynamically: bool) -> Iterator[str]:
    """Yield a hint if 16-bit lookup tables or constant indices fill most of the file.

    ``source``: the bound operators. ``quantizes_dynamically``: the target's dynamic quantization was used.
    """
    tables, indices = _large_gather_constants(model, source)
    total_bytes = _constant_bytes(model.graph.initializers.values())
    table_bytes, index_bytes = _constant_bytes(tables), _constant_bytes(indices)
    if table_bytes > total_bytes / 2:
        yield (
            f"{table_bytes / 1000:.0f} of {total_bytes / 1000:.0f} kB of constants are lookup tables, because ONNX has no operators "
            f"for the integer arithmetic of {_list_codes(tables)}; --quantization float needs none"
        )
    if index_bytes > total_bytes / 2:
        remedy = (
            "; --target generic and --weights fold use convolutions without indices" if quantizes_dynamically else ""
        )
        yield (
            f"{index_bytes / 1000:.0f} of {total_bytes / 1000:.0f} kB of constants are indices, not weights, because these "
            f"operators gather their operands in ONNX: {_list_codes(indices)}{remedy}"
        )


def _large_gather_constants(model: ir.Model, source: BoundModel) -> tuple[_Codes, _Codes]:
    """Return the large lookup tables and the large constant indices of Gather nodes.

    A table may be computed from a smaller constant when the model is loaded.
    """
    codes = {
        (op.subgraph, op.index): bound.op.code for bound in source.operators() for op in (bound.op, *bound.members)
    }
    tables: dict[ir.Value, dict[str, None]] = {}
    indices: dict[ir.Value, dict[str, None]] = {}
    for node in model.graph.all_nodes():
        if node.op_type not in ("Gather", "GatherElements"):
            continue
        table, index = node.inputs[0], node.inputs[1]
        *_, location = source_operators(node.metadata_props) or [(-1, -1)]
        code = codes.get(location, node.op_type)
        for constant in filter(_is_large_vector, _constant_sources(table)):
            tables.setdefault(constant, {})[code] = None
        if index is not None and index.const_value is not None and index.const_value.size >= _MIN_INDICES:
            indices.setdefault(index, {})[code] = None
    return tables, indices


def _constant_sources(value: ir.Value | None) -> list[ir.Value]:
    """Return the constants that a value is computed from; empty if any is not."""
    sources: dict[ir.Value, None] = {}
    visited: set[ir.Value] = set()
    pending = [value]
    while pending:
        current = pending.pop()
        if current is None or current in visited:
            continue
        visited.add(current)
        producer = current.producer()
        if current.const_value is not None:
            sources[current] = None
        elif producer is None:
            return []
        else:
            pending += producer.inputs
    return [*sources]


def _is_large_vector(table: ir.Value) -> bool:
    """True for a constant of at least ``_MIN_TABLE_ENTRIES``, all along one axis."""
    entries = table.const_value
    return entries is not None and entries.size >= _MIN_TABLE_ENTRIES and entries.size in entries.shape


def _constant_bytes(values: Iterable[ir.Value]) -> int:
    return sum(value.const_value.nbytes for value in values if value.const_value)


def _list_codes(constants: _Codes) -> str:
    return list_first([*dict.fromkeys(code for codes in constants.values() for code in codes)], _MAX_NAMES)


def find_decoder(inputs: Sequence[GraphValue], outputs: Sequence[GraphValue]) -> Decoder | None:
    """Return the decoder description of a language model with caches; None otherwise."""
    graph_inputs = [GraphInput(value.name, value.dtype, tuple(value.shape or ())) for value in inputs]
    return recognize_decoder(graph_inputs, [value.name for value in outputs])


def has_scores(decoder: Decoder, outputs: Sequence[GraphValue]) -> bool:
    """True if the model has an output that is not a cache."""
    return not {value.name for value in outputs} <= {*decoder.caches.values()}
