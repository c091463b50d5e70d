"""Operators singly, where the outputs agree: most of a network may be wrong without moving an output by its tolerance, as where
a classifier is sure whatever it sees. Fed with LiteRT's own values, the result of each operator must be what LiteRT's is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from math import isfinite, prod
from typing import TYPE_CHECKING

import numpy as np

from onnx_tflite_plugin.errors import ConversionError
from onnx_tflite_plugin.graph.metadata import TensorValue
from onnx_tflite_plugin.source.dtypes import HANDLES
from onnx_tflite_plugin.source.model import Array, Operator, Quantization, Subgraph, Tensor
from onnx_tflite_plugin.verify.comparison.compare import Comparison
from onnx_tflite_plugin.verify.comparison.tolerance import Tolerance
from onnx_tflite_plugin.verify.comparison.trial import Run
from onnx_tflite_plugin.verify.operators.apart import Apart
from onnx_tflite_plugin.verify.operators.diverging import Search
from onnx_tflite_plugin.verify.runtimes import structure
from onnx_tflite_plugin.verify.runtimes.litert import LiteRT, LiteRTError
from onnx_tflite_plugin.verify.runtimes.part import cut_file
from onnx_tflite_plugin.verify.runtimes.structure import entering, operands

if TYPE_CHECKING:
    from onnx import ModelProto

    from onnx_tflite_plugin.verify.operators.weak import Verdict

MOST_BYTES = 1 << 29  # of all tensors in between, which both runtimes keep
MOST_VALUES = 1000  # ONNX Runtime takes quadratic time over the outputs of a model
SLOW = 4.0  # seconds of processor time, from which on nothing more is drawn
_TRIED = 4  # operators that seem wrong and are tried by themselves
_UNDEFINED = 2.0**31  # times an integer of 32 bits
_TOO_WIDE = 2.0**19  # times an operand of a sum
_EXACT = 1e-4  # of a float's range: what a single operator in float32 may differ by

Alone = Callable[[bytes, "ModelProto", Mapping[str, Array]], "Verdict"]
"""What comes of a part of both models on one run's inputs."""


def tolerance_of(trial: Tolerance) -> Tolerance:
    """That of the network, or less: an operator that is fed the same values has nothing to hand on."""
    return trial if trial.unbiased else replace(trial, of_range=min(trial.of_range, _EXACT), by_channel=True)


def wrong(search: Search, runs: Sequence[Run], tolerance: Tolerance, alone: Alone) -> tuple[list[Comparison], str]:
    """The first operator whose result is outside its tolerance, on LiteRT's own operands, by itself too; why none was tried.

    By itself LiteRT's other kernels are asked as well, and what they differ by counts.
    """
    reason = untried(search)
    if reason:
        return [], reason
    try:
        apart = Apart(search.trial, search.session, tolerance, search.values)
        start = time.process_time()
        layers = (_drawn(search, apart, runs[0], parity) for parity in (0, 1))
        for k, compared in enumerate((apart.comparisons(runs), *layers)):
            if k and time.process_time() - start > SLOW:
                break
            for value in islice(suspects(compared), _TRIED):
                judged = _judged(search, apart, value, alone)
                if judged is not None:
                    return [judged], ""
    except ConversionError:  # LiteRT or ONNX Runtime does not run what keeps all tensors, or the file cannot be cut
        return [], ""
    return [], ""


def untried(search: Search) -> str:
    """Why operators are not compared one by one; empty where they are."""
    tensors = search.trial.entry.subgraph.tensors
    size = sum(4 * prod(tensor.shape) for tensor in tensors if not tensor.is_constant)
    count = sum(map(len, search.values.values()))
    if size <= MOST_BYTES and count <= MOST_VALUES:
        return ""
    many = f"they make {count} tensors" if count > MOST_VALUES else f"they make {size >> 20} MiB"
    return f"operators were not compared one by one, for {many}"


def _drawn(search: Search, apart: Apart, arrays: Run, parity: int) -> Iterator[tuple[Comparison, TensorValue]]:
    """Every other layer on operands that are drawn: what the inputs make of a deep network may hardly vary.

    The original is cut there, so that the operators behind take what is drawn; those before are left to the other layers.
    """
    entry, rng = search.trial.entry, np.random.default_rng(parity)
    if search.trial.gaps.own:  # which a part of the file would have LiteRT run
        return
    for whole in (True, False):
        layers = _layers(entry.subgraph, {t: apart.kept[t] for t in apart.fed if t in apart.kept}, parity)
        given = {t.index: _like(rng, t, apart.kept[t.index], whole) for t in layers}
        inputs = [tensor.index for tensor in entry.inputs]
        outputs = [index for index in search.values if index in search.producers and index not in given]
        if not given or not outputs:
            return
        data = cut_file(search.trial.data, entry.subgraph, [*inputs, *given], outputs)
        try:
            original = LiteRT(data, "builtin", preserve=True)
            original.run([*arrays, *given.values()])
        except LiteRTError:  # a logarithm of what it cannot take, an index beyond the end
            continue
        apart.kept = {**original.tensors(), **given}
        compared = apart.compared(apart.pairs.feeds(arrays), apart.kept, {})
        yield from ((comparison, value) for comparison, value in compared if value.tensor not in given)
        return


def _layers(graph: Subgraph, kept: Mapping[int, Array], parity: int) -> list[Tensor]:
    """The results of operators at an even or an odd distance from the inputs, where all of an operator's can be drawn.

    What is computed from constants alone is none of them: the converted model may hold it as constants of its own.
    """
    read = {t.index for op in graph.operators for t in op.inputs if t is not None}
    fixed: set[int] = set()
    distance: dict[int, int] = {}
    layers: list[Tensor] = []
    for op in graph.operators:
        results = [t for t in op.outputs if t is not None]
        taken = [t for t in op.inputs if t is not None]
        if taken and all(t.is_constant or t.index in fixed for t in taken):
            fixed |= {t.index for t in results}
            continue
        at = 1 + max((distance.get(t.index, 0) for t in taken), default=0)
        distance.update((t.index, at) for t in results)
        if at % 2 == parity and all(t.index in kept and _drawable(t, kept[t.index]) for t in results):
            layers += [t for t in results if t.index in read]
    return layers


def _drawable(tensor: Tensor, array: Array) -> bool:
    quantized = tensor.dtype in ("int8", "uint8", "int16") and isinstance(tensor.quantization, Quantization)
    return bool(array.size) and not tensor.is_variable and (quantized or array.dtype in (np.float32, np.bool_))


def _like(rng: np.random.Generator, tensor: Tensor, array: Array, whole: bool) -> Array:
    """Values between the least and the largest of a tensor's; of 8 bits over the ``whole`` dtype, where that can be had. Truths are those
    that it has not, as a mask that nothing meets or a branch that is never taken.
    """
    if array.dtype == np.bool_:
        return ~array
    if array.dtype.itemsize == 1 and whole:
        limits = np.iinfo(array.dtype)
        return rng.integers(limits.min, limits.max, array.shape, array.dtype, endpoint=True)
    finite = array[np.isfinite(array)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    high = high if low < high else low + 1
    drawn = rng.uniform(low, high, array.shape)
    return np.asarray(drawn if array.dtype.kind == "f" else np.rint(drawn)).astype(array.dtype)


def without_overflow(actual: Array, expected: Array) -> Array:
    """``actual`` with the other's elements where it is at an end of int16: there a sum of 64 bits may not have fitted into 32, and
    LiteRT's wraps (MultiplyByQuantizedMultiplier, internal/common.cc).
    """
    if expected.dtype != np.int16 or actual.dtype != np.int16 or actual.shape != expected.shape:
        return actual
    return np.where(np.isin(actual, (-(2**15), 2**15 - 1)), expected, actual)


def suspects(compared: Iterable[tuple[Comparison, TensorValue]]) -> Iterator[TensorValue]:
    """Those outside their tolerance, each tensor once."""
    seen: set[int] = set()
    for comparison, value in compared:
        if not comparison.ok and value.tensor not in seen and isfinite(comparison.mean):
            seen.add(value.tensor)
            yield value


def _judged(search: Search, apart: Apart, value: TensorValue, alone: Alone) -> Comparison | None:
    """What comes of the operators that make a tensor, on the operands that they had; ``None`` where that is near enough."""
    tensor = search.trial.entry.subgraph.tensors[value.tensor]
    operators = makers(search, apart, tensor)
    failed = next((other for other in by_itself(search, apart, value, alone) if not other.ok), None)
    codes = " and ".join(dict.fromkeys(op.code for op in operators))
    return None if failed is None else replace(failed, name=f"{tensor.name} of {codes} alone")


def by_itself(search: Search, apart: Apart, value: TensorValue, alone: Alone) -> Sequence[Comparison]:
    """The comparison of a tensor where what makes it is run by itself, on the operands that it had; none where it cannot be."""
    tensor = search.trial.entry.subgraph.tensors[value.tensor]
    operators = makers(search, apart, tensor)
    if not operators or any(t is not None and _remembered(t) for op in operators for t in op.inputs):
        return ()
    if any(_beyond_shifts(op) for op in operators):
        return ()
    inputs = entering(operators)
    if any(t.index not in apart.kept for t in inputs) or _said_float(tensor):
        return ()
    part = search.part(inputs, tensor, value.name)
    if part is None:
        return ()
    names = structure.entry(structure.read(part[0])).input_names
    given = {name: apart.kept[t.index] for name, t in zip(names, inputs, strict=True)}
    try:
        return alone(*part, given).comparisons
    except ConversionError:  # it does not run by itself
        return ()


def makers(search: Search, apart: Apart, tensor: Tensor) -> list[Operator]:
    """The operators between a tensor and those that the ONNX model is given."""
    chosen: set[Operator] = set()
    waiting = [tensor.index]
    while waiting:
        operator = search.producers.get(waiting.pop())
        if operator is not None and operator not in chosen:
            chosen.add(operator)
            waiting += [t.index for t in operands(operator) if t.index not in apart.fed]
    return [op for op in search.trial.entry.subgraph.operators if op in chosen]


def _said_float(tensor: Tensor) -> bool:
    """Whether the file calls a tensor float that has a scale, which LiteRT may compute as integers, and a part as others."""
    return tensor.dtype.startswith("float") and tensor.quantization is not None


def _beyond_shifts(operator: Operator) -> bool:
    """Whether its integers are multiplied by more than kernels shift, which C++ leaves undefined (MultiplyByQuantizedMultiplier,
    internal/common.cc): by 2^31, as where a mask of -1e36 is quantized, or by more than 2^20 of a half in a difference that was zero
    whatever it was calibrated on (MultiplyByQuantizedMultiplierSmallerThanOneExp, internal/optimized/integer_ops/sub.h).
    """
    factors, results = (
        [t.quantization.scale[0] for t in slots if t is not None and isinstance(t.quantization, Quantization)]
        for slots in (operator.inputs, operator.outputs)
    )
    beyond = (prod(factors) >= _UNDEFINED * scale or max(factors) >= _TOO_WIDE * scale for scale in results)
    return bool(factors) and any(beyond)


def _remembered(tensor: Tensor) -> bool:
    return tensor.is_variable or tensor.dtype in HANDLES
