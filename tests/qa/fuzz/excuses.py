"""Differences between LiteRT and a fuzzed file that are not defects.

One rule covers most of them: LiteRT's own kernel sets disagree with each other on the same inputs, and ONNX Runtime's result
lies between their results. ``DOCUMENTED`` lists the others: properties of a file, or of its run in LiteRT, for which no conversion
reproduces LiteRT's results. These rules do not depend on the conversion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import product
from math import frexp, prod

import numpy as np

from onnx_tflite_plugin.diagnosis.litert import shape_contradiction
from onnx_tflite_plugin.diagnosis.probe import probe
from onnx_tflite_plugin.errors import VerificationError
from onnx_tflite_plugin.source import read
from onnx_tflite_plugin.source.dtypes import QUANTIZED, size_in_file
from onnx_tflite_plugin.source.model import Array, BlockwiseQuantization, Operator, Quantization, Tensor, agree
from onnx_tflite_plugin.verify import LiteRT, LiteRTError
from onnx_tflite_plugin.verify.comparison.error import comparable
from onnx_tflite_plugin.verify.comparison.trial import KERNELS, Run
from onnx_tflite_plugin.verify.model_pair import ModelPair

DISAGREE = "LiteRT's kernel sets disagree"
LARGE = 1e8
"""Products of larger numbers may overflow float32 in one runtime only."""
NUDGE = 2.0**-22
"""Relative change of float inputs: two units in the last place."""


class Trial:
    """A file, its conversion, and the inputs on which they differ."""

    def __init__(self, data: bytes, onnx: bytes) -> None:
        self.data, self.model = data, read(data)
        self.pair = ModelPair(data, onnx, None, None, lambda stage: None)
        self.inputs, self.expected = self.pair.reference_outputs(None, 0, 3, None, {})
        self.pair.add_resized_run(self.inputs, self.expected, 0)

    @property
    def tensors(self) -> Iterator[Tensor]:
        return (tensor for graph in self.model.subgraphs for tensor in graph.tensors)

    @property
    def constants(self) -> Iterator[Tensor]:
        return (tensor for tensor in self.tensors if tensor.is_constant)

    @property
    def operators(self) -> Iterator[Operator]:
        return (op for graph in self.model.subgraphs for op in graph.operators)

    @cached_property
    def values(self) -> list[dict[int, Array]]:
        """Return the tensors of the main subgraph in each run of LiteRT.

        The result is empty if the builtin kernels refuse the file.
        """
        try:
            litert = LiteRT(self.data, "builtin", preserve=True)
            return [(litert.run(arrays), litert.tensors())[1] for arrays in self.inputs]
        except LiteRTError:
            return []

    def kernel_sets_disagree(self) -> bool:
        """True if only elements between LiteRT's own results are out of tolerance.

        Each kernel set runs more than once: a second interpreter reveals reads out of bounds, and float inputs with changed last
        bits reveal amplified rounding errors. It is also True if the builtin kernels refuse a model that XNNPACK runs.
        """
        trial, nudged = self.pair.trial, [[_nudge(array) for array in arrays] for arrays in self.inputs]
        actual = trial.onnx_outputs(self.pair.session, self.inputs)
        all_float = all(array.dtype.kind == "f" for arrays in actual for array in arrays)
        if all(comparison.ok for comparison in trial.compare_outputs(actual, self.expected)):
            return False  # only an operator in isolation differs, on other inputs
        sets: dict[str, list[Run]] = {}
        for kernels, inputs in product(KERNELS, [self.inputs, self.inputs, *([nudged] if all_float else [])]):
            try:
                sets[f"{kernels} {len(sets)}"] = [
                    *trial.litert_outputs(kernels, inputs, resets_states=self.pair.resets_states)
                ]
            except LiteRTError:
                if kernels == "builtin" and sets:
                    return True
        if not sets:
            return False
        replaced = [
            [_replace_undecided(array, [runs[run][k] for runs in sets.values()]) for k, array in enumerate(arrays)]
            for run, arrays in enumerate(actual)
        ]
        return all(comparison.ok for comparison in trial.compare_outputs(replaced, sets))


def _nudge(array: Array) -> Array:
    if array.dtype not in (np.float32, np.float64):
        return array
    signs = np.random.default_rng(0).choice([-NUDGE, NUDGE], array.shape)
    return np.asarray(array * (1 + signs), array.dtype)


def _replace_undecided(actual: Array, expected: Sequence[Array]) -> Array:
    """Return ``actual`` without the elements on which LiteRT's kernels disagree.

    These elements lie between the results of the kernel sets, or only some of the results are finite.
    """
    if any(array.shape != actual.shape for array in expected):
        return next((array for array in expected if array.shape == actual.shape), actual)
    ours, values = comparable(actual), np.stack([comparable(array) for array in expected])
    if values.dtype.kind not in "fiub" or ours.dtype.kind not in "fiub":
        return actual
    finite = np.isfinite(values)
    within = (values.min(0) <= ours) & (ours <= values.max(0))
    replaced: Array = np.where(within | (finite.any(0) != finite.all(0)), expected[0], actual).astype(actual.dtype)
    return replaced


# --- documented -------------------------------------------------------------------------------


def large_numbers(trial: Trial) -> bool:
    """True if a constant, an option or a scale is extreme.

    It is not finite, exceeds 1e8, or makes products underflow.
    """
    floats = [t.array.astype(np.float64) for t in trial.constants if t.dtype in ("float16", "float32", "float64")]
    options = [value for op in trial.operators for value in op.options.values() if isinstance(value, float)]
    stored = [q for t in trial.tensors for q in (t.quantization, t.ignored_quantization)]
    scales = [scale for q in stored if isinstance(q, Quantization) for scale in q.scale]
    blocks = [q.scales.array for q in stored if isinstance(q, BlockwiseQuantization)]
    tiny = np.finfo(np.float32).tiny
    return (
        any(not (np.abs(array) <= LARGE).all() or ((array != 0) & (np.abs(array) < tiny)).any() for array in floats)
        or any(not (abs(value) <= LARGE) or 0 < abs(value) < 1 / LARGE for value in (*options, *scales))
        or any((array == 0).any() for array in blocks)
    )


def other_shapes(trial: Trial) -> bool:
    """True for stored shapes that LiteRT computes differently.

    LiteRT computes them in Prepare, at runtime, or in a called subgraph.
    """
    if shape_contradiction(trial.model, probe(trial.data)) is not None:
        return True
    stored = {tensor.index: tensor for tensor in trial.model.main.tensors if tensor.has_rank and not tensor.is_constant}
    return any(
        not agree(array.shape, stored[index].dims)
        or any(size == 0 != known for size, known in zip(array.shape, stored[index].shape, strict=True))
        for values in trial.values
        for index, array in values.items()
        if index in stored
    )


def division_by_zero(trial: Trial) -> bool:
    """True for a divisor that is 0 or subnormal.

    Results differ between kernels: XNNPACK returns infinity, clipping kernels the largest float.
    """
    divisions = [op for op in trial.operators if op.code in ("DIV", "FLOOR_DIV", "FLOOR_MOD")]
    constants = [op[1].array for op in divisions if op[1].is_constant]
    main = [op[1] for op in divisions if op in trial.model.main.operators]
    computed = [values[tensor.index] for values in trial.values for tensor in main if tensor.index in values]
    points = [_zero_point(op[1]) for op in divisions]
    return any(
        (np.abs(array.astype(np.float64) - point) < np.finfo(np.float32).tiny).any()
        for array in (*constants, *computed)
        for point in points
    ) or any(_scale(op[1]) == 0 for op in divisions)


def integer_overflow(trial: Trial) -> bool:
    """True for sums or rescaled results that may exceed 32 bits.

    See MultiplyByQuantizedMultiplier in common.cc.
    """
    return any(_largest(op) >= 2**31 for op in trial.operators)


def _largest(op: Operator) -> float:
    """Return the largest sum of products of a quantized operator.

    It includes the bias and the kernel's left shift.
    """
    operands = [t for t in op.inputs if t is not None and t.dtype in QUANTIZED and _scale(t)]
    result = op.tensor(~0) if op.outputs else None
    if not operands or result is None:
        return 0.0
    weights = [t for t in operands[1:] if t.is_constant and t.rank > 1]
    depth = max((prod(t.shape) // max(min(t.shape[0], t.shape[-1]), 1) for t in weights), default=1)
    products = operands[:2] if weights or op.code in ("MUL", "BATCH_MATMUL", "PRELU") else operands[:1]
    biases = [t for t in op.inputs if t is not None and t.is_constant and t.dtype in ("int32", "int64") and t.rank < 3]
    bias = max((float(np.abs(t.array.astype(np.float64)).max(initial=0)) for t in biases if weights), default=0.0)
    total = depth * prod(float(np.iinfo(np.int8 if t.dtype in ("int4", "int2") else t.dtype).max) for t in products)
    factor = prod(_scale(t) for t in products) / (_scale(result) or 1.0)
    return (bias + total) * 2.0 ** max(frexp(factor)[1], 0)


def _scale(tensor: Tensor) -> float:
    return max(tensor.quantization.scale, default=0.0) if isinstance(tensor.quantization, Quantization) else 0.0


def _zero_point(tensor: Tensor) -> int:
    return tensor.quantization.zero_point[0] if isinstance(tensor.quantization, Quantization) else 0


def reads_beyond(trial: Trial) -> bool:
    """True for a constant that kernels read beyond its shape or scales.

    See depthwise_conv.cc.
    """
    sizes = [(t, getattr(t.data, "_size", None)) for t in trial.constants if t.dtype != "string" and not _sparse(t)]
    return any(size is not None and size > size_in_file(t.dtype, t.shape) for t, size in sizes) or any(
        op.code == "DEPTHWISE_CONV_2D"
        and (op[0].dtype, op[1].dtype) == ("float32", "int8")
        and isinstance(op[1].quantization, Quantization)
        and len(op[1].quantization.scale) < op[1].shape[-1]
        for op in trial.operators
    )


def other_booleans(trial: Trial) -> bool:
    """True for booleans other than 0 and 1, which kernels treat as bytes."""
    constants = [t for t in trial.constants if t.dtype == "bool" and getattr(t.data, "_size", None) is not None]
    return any((t.data._bytes(t.array.size) > 1).any() for t in constants)  # type: ignore[union-attr]


def sparse_as_dense(trial: Trial) -> bool:
    """True for a sparse constant that is an output, or that is read as dense."""
    dense = [t for op in trial.operators if op.code not in ("DENSIFY", "FULLY_CONNECTED") for t in op.inputs]
    return any(t is not None and _sparse(t) for t in (*trial.model.main.outputs, *dense))


def _sparse(tensor: Tensor) -> bool:
    return getattr(tensor.data, "_sparsity", None) is not None


def has_aliased_inputs(trial: Trial) -> bool:
    """True for a graph input that is listed twice, or that a kernel overwrites.

    Such an input is also an output and a state (lstm.cc).
    """
    inputs, outputs = trial.model.main.inputs, trial.model.main.outputs
    states = [t for op in trial.operators if op.code == "LSTM" for t in op.inputs]
    return len({t.index for t in inputs}) < len(inputs) or any(t in inputs and t in states for t in outputs)


def is_undefined_in_cpp(trial: Trial) -> bool:
    """True for invalid shifts, and 64-bit sizes truncated to 32 bits.

    See broadcast_args.cc.
    """
    shifts = [op[1] for op in trial.operators if op.code in ("STABLEHLO_SHIFT_LEFT", "RIGHT_SHIFT")]
    sizes = [t for op in trial.operators if op.code == "BROADCAST_ARGS" for t in op.inputs if t and t.dtype == "int64"]
    return any(
        not t.is_constant or not ((t.array >= 0) & (t.array < 8 * t.array.itemsize)).all() for t in shifts
    ) or any(not t.is_constant or (np.abs(t.array.astype(np.float64)) >= 2**31).any() for t in sizes)


DOCUMENTED: dict[str, Callable[[Trial], bool]] = {
    "numbers that are not finite or beyond 1e8": large_numbers,
    "stored shapes that LiteRT does not compute": other_shapes,
    "division by zero": division_by_zero,
    "integer overflow": integer_overflow,
    "reads beyond a constant": reads_beyond,
    "booleans other than 0 and 1": other_booleans,
    "sparse constants read as dense": sparse_as_dense,
    "aliased inputs": has_aliased_inputs,
    "shifts and sizes undefined in C++": is_undefined_in_cpp,
}


def excuse(data: bytes, onnx: bytes) -> str:
    """Return why a difference is not a defect; empty if there is no reason."""
    trial = Trial(data, onnx)
    reason = next((name for name, applies in DOCUMENTED.items() if applies(trial)), "")
    if reason:
        return reason
    try:
        return DISAGREE if trial.kernel_sets_disagree() else ""
    except VerificationError:
        return ""
