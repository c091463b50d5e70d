"""Random inputs of both runtimes, for inputs that the user does not give."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import prod
from typing import Literal, cast

import numpy as np

from onnx_tflite_plugin.errors import InvalidInputs, VerificationError
from onnx_tflite_plugin.source.authored import InterfaceMetadata
from onnx_tflite_plugin.source.model import Array, Operator, Quantization, Subgraph, Tensor
from onnx_tflite_plugin.verify.inputs.sparse import draw_sparse
from onnx_tflite_plugin.verify.inputs.user_data import InputData, describe_unknown_input, dtype_of, input_runs
from onnx_tflite_plugin.verify.runtimes.structure import Entry, StoredConstant, operands

_QUANTIZED = {"int8", "uint8", "int16"}  # random values cover the whole range of the dtype
_NIBBLES = {"int4": (np.int8, -8, 8), "uint4": (np.uint8, 0, 16), "int2": (np.int8, -2, 2)}
_WIDE_INTEGERS = {"int32", "int64", "uint16", "uint32", "uint64"}
_INTEGER_BOUND = 10  # upper bound of integers; an axis that they may index can lower it
_MAX_THRESHOLDS = 4096  # elements of a constant that are used as thresholds
_TEXTS = ("", "a", "onnx", "tflite", "Hello, world", "žluťoučký kůň")

Restriction = Literal["none", "nonzero", "positive", "ones", "zeros"]
"""Restriction of random inputs, which makes it more likely that LiteRT accepts them.

"nonzero": no wide integer is 0, because integers may be divisors. "positive": all wide integers are positive. "ones" and "zeros":
all wide integers are 1, or 0, and no other number is negative.
"""
_CONSTANTS = {"ones": 1, "zeros": 0}


def generate_inputs(
    entry: Entry,
    *,
    user_inputs: InputData = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    seed: int = 0,
    runs: int = 1,
    restriction: Restriction = "none",
    ranges: Mapping[str, tuple[float, float]] | None = None,
    metadata: InterfaceMetadata | None = None,
    nan: bool = False,
) -> list[list[Array]]:
    """Return the input arrays of each run: the user's, and random arrays for the rest.

    The arrays are in the entry's order.

    Args:
        entry: the main graph or a signature of the TFLite model.
        user_inputs: arrays by name for all runs, a list of such mappings (one per run, which sets the number of runs), a
            file or a folder; see :mod:`.user_data`.
        shapes: input name -> shape of an input with dynamic dimensions.
        seed: seed of random inputs.
        runs: number of runs.
        restriction: restriction of random inputs.
        ranges: input name -> minimum and maximum of random values.
        metadata: metadata of the inputs, for images.
        nan: allow NaN in the user's arrays.

    Raises InvalidInputs if the user's arrays or the ranges do not match the model.
    """
    array_runs = input_runs(entry, user_inputs, metadata, nan=nan) or [{}]
    ranges = ranges or {}
    check_ranges(entry, ranges)
    conditions = {name: k for k, name in enumerate(condition_names(entry))}
    generated_runs = []
    for run, user_arrays in enumerate(array_runs * runs if len(array_runs) == 1 else array_runs):
        arrays = []
        for k, (tensor, name) in enumerate(zip(entry.inputs, entry.input_names, strict=True)):
            shape = shape_of(tensor, name, shapes)
            if name in user_arrays:
                array = user_arrays[name]
            elif name in conditions and name not in ranges and restriction not in _CONSTANTS:
                array = _random_condition(shape, seed + run, run // 2, conditions[name])
            else:
                array = _random_array(entry.subgraph, tensor, shape, (seed, run, k), restriction, ranges.get(name))
            arrays.append(array)
        generated_runs.append(arrays)
    return generated_runs


def shape_of(tensor: Tensor, name: str, shapes: Mapping[str, Sequence[int]] | None) -> tuple[int, ...]:
    """Return the shape of an input in ``shapes``, or the stored shape if not listed."""
    return tuple((shapes or {}).get(name, tensor.shape))


def condition_names(entry: Entry) -> list[str]:
    """Return the names of the inputs that have one boolean element."""
    inputs = zip(entry.inputs, entry.input_names, strict=True)
    return [name for tensor, name in inputs if tensor.dtype == "bool" and prod(tensor.shape) == 1]


def _random_condition(shape: tuple[int, ...], run: int, run_pair: int, position: int) -> Array:
    """Return a boolean that alternates between runs.

    In the first two runs, neighboring conditions have opposite values. Each further pair of runs inverts other conditions,
    so that every run has a new combination. ``position``: position among the conditions.
    """
    inverted = position > 0 and bool(run_pair >> (position - 1) & 1)
    return np.full(shape, (run % 2 == position % 2) != inverted)


def has_wide_integers(entry: Entry) -> bool:
    """True if an input has wide integers, which "nonzero" and "positive" restrict."""
    return any(tensor.dtype in _WIDE_INTEGERS for tensor in entry.inputs)


def check_ranges(entry: Entry, ranges: Mapping[str, tuple[float, float]]) -> None:
    """Raise InvalidInputs for a range of an input that is unknown or not numeric."""
    for name, (low, high) in ranges.items():
        if name not in entry.input_names:
            raise InvalidInputs(describe_unknown_input(entry, name))
        dtype = entry.inputs[entry.input_names.index(name)].dtype
        if dtype in ("string", "bool") or dtype.startswith("complex"):
            raise InvalidInputs(f"input {name!r} is {dtype}, so --range does not apply")
        if not low <= high:
            raise InvalidInputs(f"input {name!r}: the range {low:g} to {high:g} is empty")
        if "float" not in dtype:
            minimum, maximum = _integer_limits(dtype)
            if low < minimum or high > maximum:
                raise InvalidInputs(
                    f"input {name!r} is {dtype}, whose values are {minimum} to {maximum}; "
                    f"the range {low:g} to {high:g} exceeds them"
                )


def _integer_limits(dtype: str) -> tuple[int, int]:
    """Return the minimum and maximum of an integer dtype."""
    if dtype in _NIBBLES:
        _, low, end = _NIBBLES[dtype]
        return low, end - 1
    limits = np.iinfo(dtype)
    return int(limits.min), int(limits.max)


def _random_array(
    graph: Subgraph,
    tensor: Tensor,
    shape: tuple[int, ...],
    seed: tuple[int, int, int],
    restriction: Restriction,
    value_range: tuple[float, float] | None = None,
) -> Array:
    """Return random values of an input. ``value_range``: minimum and maximum."""
    generator = np.random.default_rng(seed)
    dtype, constant = tensor.dtype, _CONSTANTS.get(restriction)
    if value_range is not None:
        return _uniform(generator, tensor, shape, value_range)
    if dtype == "string":
        return _random_texts(generator, shape)
    if dtype == "bool":
        return generator.integers(0, 2, shape).astype(bool)
    if dtype in _NIBBLES:
        byte_dtype, low, high = _NIBBLES[dtype]
        return generator.integers(low, high, shape).astype(byte_dtype)
    if dtype in _QUANTIZED:
        return _random_quantized_values(generator, tensor, shape, positive=constant is not None)
    if dtype in _WIDE_INTEGERS:
        if constant is not None:
            return np.full(shape, constant, dtype)
        return _random_wide_integers(generator, graph, tensor, shape, restriction)
    if dtype.startswith("complex"):
        parts = generator.standard_normal((2, *shape))
        return cast("Array", (parts[0] + 1j * parts[1]).astype(dtype))
    if "float" not in dtype:
        raise VerificationError(f"input {tensor} is {dtype}, for which there are no random values; pass --inputs")
    float_range = _float_range(graph, tensor)
    values = np.asarray(generator.uniform(*float_range, shape) if float_range else generator.standard_normal(shape))
    values = np.asarray(values if constant is None else np.abs(values))  # abs of a scalar is not an array
    return np.asarray(values, dtype_of(dtype))


def _random_texts(generator: np.random.Generator, shape: tuple[int, ...]) -> Array:
    first_text = 0 if shape else 1  # LiteRT refuses a scalar that is an empty text
    texts = np.array(_TEXTS, object)[generator.integers(first_text, len(_TEXTS), shape)]
    return np.asarray(texts, object).reshape(shape)


def _random_quantized_values(
    generator: np.random.Generator, tensor: Tensor, shape: tuple[int, ...], *, positive: bool
) -> Array:
    """Return values of the whole dtype, or above the zero point if ``positive``."""
    limits, quantization = np.iinfo(tensor.dtype), tensor.quantization
    zero_point = quantization.zero_point[0] if isinstance(quantization, Quantization) else 0
    low = zero_point + 1 if positive and zero_point < limits.max else int(limits.min)
    return generator.integers(low, int(limits.max) + 1, shape).astype(tensor.dtype)


def _random_wide_integers(
    generator: np.random.Generator, graph: Subgraph, tensor: Tensor, shape: tuple[int, ...], restriction: Restriction
) -> Array:
    """Return integers that suit the input's readers.

    They are coordinates of a sparse tensor, a permutation, or integers in a range. Half of the integers in a range are
    next to constants that the input is compared with, if any.
    """
    if (coordinates := draw_sparse(generator, graph, tensor, shape)) is not None:
        return coordinates
    low, high = _integer_range(graph, tensor)
    is_unsigned = tensor.dtype.startswith("u")
    values = generator.integers(0 if is_unsigned else low, high, shape).astype(tensor.dtype)
    if _is_permutation(graph, tensor, shape):
        return generator.permutation(len(values)).astype(tensor.dtype)
    thresholds = _thresholds(graph, tensor)
    if thresholds.size:
        values = np.where(generator.random(shape) < 0.5, generator.choice(thresholds, shape), values)
    if restriction == "positive":
        values = np.abs(values)
    if restriction != "none":
        values = np.where(values == 0, 1, values).astype(tensor.dtype)
    return np.asarray(values)


def can_reorder(op: Operator) -> bool:
    """True if an operator's kernels may order equal values differently.

    Heuristic: such operators, for example those that sort boxes in a heap (non_max_suppression.h), have several results and
    more than two operands.
    """
    return len(op.inputs) > 2 and len(op.outputs) > 1


def _uniform(
    generator: np.random.Generator, tensor: Tensor, shape: tuple[int, ...], value_range: tuple[float, float]
) -> Array:
    """Return uniform random values in a range; integers include both ends."""
    if "float" in tensor.dtype:
        return generator.uniform(*value_range, shape).astype(dtype_of(tensor.dtype))
    dtype = _NIBBLES[tensor.dtype][0] if tensor.dtype in _NIBBLES else np.dtype(tensor.dtype).type
    return generator.integers(round(value_range[0]), round(value_range[1]), shape, endpoint=True).astype(dtype)


def _integer_range(graph: Subgraph, tensor: Tensor) -> tuple[int, int]:
    """Return ``[low, high)`` for an integer input, by the operators downstream of it.

    Only operands of arithmetic may be negative, because other integers may be indices.
    """
    is_arithmetic_operand = True
    axis_sizes, table_lengths = list[int](), list[int]()
    visited, pending = {tensor.index}, [tensor.index]
    while pending:
        index = pending.pop()
        for operator in (op for op in graph.operators if _reads(op, index)):
            if length := _table_length(operator, index):
                table_lengths.append(length)
                continue
            if not _has_uniform_tensors(operator, tensor):
                is_arithmetic_operand = False
                axis_sizes += _operand_sizes(operator, visited)
            for result in operator.outputs:
                if result is not None and result.dtype in _WIDE_INTEGERS and result.index not in visited:
                    visited.add(result.index)
                    pending.append(result.index)
    if table_lengths and not axis_sizes:  # only indices of tables
        return 0, min(table_lengths)
    return (-_INTEGER_BOUND if is_arithmetic_operand else 0), min([_INTEGER_BOUND, *axis_sizes, *table_lengths])


def _reads(operator: Operator, index: int) -> bool:
    return any(operand is not None and operand.index == index for operand in operator.inputs)


def _has_uniform_tensors(operator: Operator, tensor: Tensor) -> bool:
    """True if operands and results have the tensor's dtype, and its shape or rank 0."""
    tensors = (t for t in (*operator.inputs, *operator.outputs) if t is not None)
    return all(t.dtype == tensor.dtype and t.shape in (tensor.shape, ()) for t in tensors)


def _operand_sizes(operator: Operator, excluded: Collection[int]) -> list[int]:
    """Return the sizes above 1 of the operands, except those with excluded indices."""
    operand_shapes = [t.shape for t in operator.inputs if t is not None and t.index not in excluded]
    return [size for shape in operand_shapes for size in shape if size > 1]


def is_arithmetic(graph: Subgraph, tensor: Tensor) -> bool:
    """True if an integer tensor holds no indices.

    Its values are then operands of arithmetic, or only cast to float32.
    """
    readers = [op for op in graph.operators if any(t is not None and t.index == tensor.index for t in op.inputs)]
    results = [[t for t in op.outputs if t is not None] for op in readers if len(op.inputs) == 1]
    are_casts = all(
        len(outputs) == 1 and outputs[0].dtype == "float32" and outputs[0].shape == tensor.shape for outputs in results
    )
    return _integer_range(graph, tensor)[0] < 0 or (len(readers) == len(results) and are_casts)


def _thresholds(graph: Subgraph, tensor: Tensor) -> Array:
    """Return constants that an integer input is compared with, and their neighbors.

    Random integers in the whole range rarely equal one of these constants.
    """
    numbers = compared_constants(graph.operators, tensor).astype(np.int64)
    limits = np.iinfo(tensor.dtype)
    values = np.unique(np.concatenate([numbers, numbers - 1, numbers + 1])) if numbers.size else numbers
    return values[(values >= limits.min) & (values <= limits.max)].astype(tensor.dtype)


def compared_constants(operators: Iterable[Operator], tensor: Tensor) -> Array:
    """Return finite constants that an elementwise comparison compares with the input."""
    constants: list[Array] = []
    for operator in operators:
        inputs = [operand for operand in operator.inputs if operand is not None]
        results = [result for result in operator.outputs if result is not None]
        if len(inputs) != 2 or len(results) != 1 or results[0].shape != tensor.shape or results[0].dtype != "bool":
            continue
        if any(operand.index == tensor.index for operand in inputs):
            contents = [operand.data for operand in inputs if operand.dtype == tensor.dtype]
            constants += [
                content.numbers(tensor.dtype)[:_MAX_THRESHOLDS]
                for content in contents
                if isinstance(content, StoredConstant)
            ]
    if not constants:
        return np.empty(0, np.int64)
    numbers = np.concatenate(constants)
    return numbers[np.isfinite(numbers)] if numbers.dtype.kind == "f" else numbers


def _is_permutation(graph: Subgraph, tensor: Tensor, shape: tuple[int, ...]) -> bool:
    """True if a vector may be the permutation of a transpose.

    The vector then has one entry per axis of the first operand, and the result has that operand's sizes in some order.
    Kernels read beyond the end for other values.
    """
    for operator in graph.operators:
        inputs, results = ([t for t in side if t is not None] for side in (operator.inputs, operator.outputs))
        if len(inputs) != 2 or len(results) != 1 or inputs[1].index != tensor.index or len(shape) != 1:
            continue
        x, result = inputs[0], results[0]
        has_same_sizes = not result.rank or None in result.dims or sorted(result.shape) == sorted(x.shape)
        is_elementwise = x.dtype == tensor.dtype and x.shape[-1:] in (shape, (1,))
        has_entry_per_axis = shape[0] == x.rank > 1 and result.rank in (0, x.rank)  # unknown ranks are stored as 0
        if has_entry_per_axis and x.dtype == result.dtype and has_same_sizes and not is_elementwise:
            return True
    return False


def _table_length(operator: Operator, index: int) -> int:
    """Return the number of rows of the table that an operand indexes; 0 if none."""
    indices = next(operand for operand in operator.inputs if operand is not None and operand.index == index)
    for table in operator.inputs:
        for result in operator.outputs:
            if table is None or result is None or table.rank < 1:
                continue
            if result.shape == (*indices.shape, *table.shape[1:]) and result.dtype == table.dtype != indices.dtype:
                return table.shape[0]
    return 0


def _float_range(graph: Subgraph, tensor: Tensor) -> tuple[float, float] | None:
    """Return the range of a float input that the model quantizes first.

    An input that is rounded to indices of a table has the range of the indices. Return None for other inputs.
    """
    for operator in graph.operators:
        if [operand.index for operand in operands(operator)] != [tensor.index]:
            continue
        for output in operator.outputs:
            if output is None or output.shape != tensor.shape:
                continue
            quantization = output.quantization
            if isinstance(quantization, Quantization) and output.dtype in _QUANTIZED and not quantization.per_axis:
                limits = np.iinfo(output.dtype)
                scale, zero_point = quantization.scale[0], quantization.zero_point[0]
                return scale * (int(limits.min) - zero_point), scale * (int(limits.max) - zero_point)
            if output.dtype in _WIDE_INTEGERS:
                low, high = _integer_range(graph, output)
                if not low:  # the integers are indices
                    return low, high
    return None
