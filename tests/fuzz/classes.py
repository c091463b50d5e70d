"""Classes of models of which LiteRT computes what no conversion need compute, each decided from the file alone.

Where numbers differ, the first class that the file is of is named, and the input counts as "odd"; a difference of none is
"different", which fails a run. None looks at what was converted, or at what came out. Why each is not refused:

- beyond all measure, sums, products, powers, quotients and shifts that wrap: what a kernel computes of other numbers in the
  same file is right, and whether an input gets there is known as it runs;
- sizes that do not follow: LiteRT takes others than are stored, and so do we where they can be derived;
- longer constants, booleans in other bytes, int64 sizes: released files have them, and most kernels do not mind;
- the rest is a corner in which the runtimes' own kernels differ, or one that costs every sound file more than it is worth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import frexp, prod
from typing import Any, NamedTuple

import numpy as np

from onnx_tflite_plugin.api.refusal import Refused
from onnx_tflite_plugin.binding.bound import Bound
from onnx_tflite_plugin.errors import ConversionError
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.shapes.derivation import Sizes
from onnx_tflite_plugin.source.dtypes import FLOATS, QUANTIZED, stored_bytes
from onnx_tflite_plugin.source.model import Model, Operator, Quantization, Tensor, agree
from onnx_tflite_plugin.targets import target_named
from onnx_tflite_plugin.verify.diagnosis import Probed, contradicted

LARGEST_NUMBER = 1e9  # products of such are infinite in one runtime before the other
LEAST = 1e-37  # divided by which a float is infinite
STEEP = 64  # weights that make 1 of what activations of up to 4 are rounded by, half of 4 / 127
RECURRENT = ("RNN", "LSTM")
POOLS = ("AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D")
PRODUCTS = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED")
BLOCKS = ("BATCH_TO_SPACE_ND", "SPACE_TO_BATCH_ND")
SHIFTS = ("STABLEHLO_SHIFT_LEFT", "RIGHT_SHIFT")


class Suspect(NamedTuple):
    """A file. ``told``: the shapes that LiteRT computes; ``dtypes``: those of its tensors as LiteRT's kernels are prepared,
    ``None`` where they refuse that without XNNPACK.
    """

    model: Model
    told: Probed
    dtypes: dict[int, str] | None
    host: Host

    @property
    def tensors(self) -> Iterator[Tensor]:
        return (tensor for graph in self.model.subgraphs for tensor in graph.tensors)

    @property
    def operators(self) -> Iterator[Operator]:
        return (op for graph in self.model.subgraphs for op in graph.operators)


def named(suspect: Suspect) -> str:
    """The first class that a file is of; empty for one that is sound as far as is known."""
    return next((name for name, holds in CLASSES.items() if holds(suspect)), "")


# --- numbers ----------------------------------------------------------------------------------


def vast_constants(suspect: Suspect) -> bool:
    """A float constant that is not finite, or beyond 1e9."""
    floats = [t.array for t in suspect.tensors if t.constant and t.dtype in ("float16", "float32", "float64")]
    return any(
        not np.isfinite(array).all() or np.abs(array.astype(np.float64)).max(initial=0) > LARGEST_NUMBER
        for array in floats
    )


def vast_options(suspect: Suspect) -> bool:
    """A float option beyond 1e9, or so near to 0 that what it bounds is 0 in all but name."""
    given = [value for op in suspect.operators for value in op.options.values() if isinstance(value, float)]
    return any(abs(value) > LARGEST_NUMBER or 0 < abs(value) < 1 / LARGEST_NUMBER for value in given)


def vast_scales(suspect: Suspect) -> bool:
    affine = [t.quantization for t in suspect.tensors if isinstance(t.quantization, Quantization)]
    return any(scale > LARGEST_NUMBER or 0 < scale < 1 / LARGEST_NUMBER for each in affine for scale in each.scale)


def divided_by_zero(suspect: Suspect) -> bool:
    """A constant divisor that holds a zero: infinite in XNNPACK, the largest float in the kernels that clip.

    Or nearly zero, so that quotients are; or a quantized one that is drawn, its zero point too, by which the kernel divides an
    integer.
    """
    divisors = [op.tensor(1) for op in suspect.operators if op.code in ("DIV", "FLOOR_DIV", "FLOOR_MOD")]
    return any(
        t is not None and (bool((np.abs(t.array.astype(np.float64)) < LEAST).any()) if t.constant else any(_scale(t)))
        for t in divisors
    )


def wrapped_sums(suspect: Suspect) -> bool:
    """A bias that sums of 32 bits do not hold together with their products, or not what is made of them.

    Sums are shifted left before they are multiplied, and results of 64 bits are cast to 32
    (MultiplyByQuantizedMultiplier, internal/common.cc).
    """
    return any(_sum_wraps(op, bias) for op in suspect.operators for bias in _biases(op))


def _biases(op: Operator) -> list[Tensor]:
    """Rows of 32 or 64 bit integers with a scale behind quantized weights."""
    if not any(t is not None and t.constant and t.dtype in ("int8", "uint8") for t in op.inputs):
        return []
    rows = [t for t in op.inputs[2:] if t is not None and t.constant and t.rank == 1]
    return [t for t in rows if t.dtype in ("int32", "int64") and t.quantization is not None]


def _sum_wraps(op: Operator, bias: Tensor) -> bool:
    largest = float(np.abs(bias.array.astype(np.float64)).max(initial=0))
    if len(_biases(op)) > 1:  # of a recurrent layer, whose gates have scales of their own
        return largest >= 2**24
    weights = [t for t in op.inputs if t is not None and t.constant and t.dtype in ("int8", "uint8")]
    scales = [max(_scale(t), default=1.0) for t in op.inputs if t is not None and t is not bias and _scale(t)]
    made = max(_scale(op.outputs[0]), default=1.0) if op.outputs else 1.0
    factor = float(np.prod(scales)) / (made or 1.0)
    if bias.dtype == "int64":
        return largest * factor >= 2**30
    depth = max((prod(t.shape) // max(t.shape[0], 1) if t.shape else 1 for t in weights), default=1)
    return (largest + depth * 255 * 255) * 2.0 ** max(frexp(factor)[1], 0) >= 2**31


def _scale(tensor: Tensor | None) -> tuple[float, ...]:
    return tensor.quantization.scale if tensor is not None and isinstance(tensor.quantization, Quantization) else ()


def cast_beyond(suspect: Suspect) -> bool:
    """A float constant of more steps than 32 bits hold where something is quantized: the kernel casts before it clips."""
    steps = [_scale(op.outputs[0]) for op in suspect.operators if op.code == "QUANTIZE" and op[0].dtype in FLOATS]
    floats = [t.array for t in suspect.tensors if t.constant and t.dtype in ("float16", "float32")]
    largest = max((float(np.abs(array).max(initial=0)) for array in floats), default=0.0)
    return any(each and each[0] and largest / each[0] >= 2**31 for each in steps)


def wrapped_products(suspect: Suspect) -> bool:
    """A MUL of integers whose scales make more of their product than 32 bits hold, which the kernel does not clip before."""
    return any(
        (factor := _ratio(op, "*")) > 1 and factor * _reach(op[0]) * _reach(op[1]) >= 2**31
        for op in suspect.operators
        if op.code == "MUL"
    )


def _reach(tensor: Tensor) -> int:
    """How far the integers of a dtype are from the zero point at most."""
    limits, point = np.iinfo(tensor.dtype), 0
    if isinstance(tensor.quantization, Quantization):
        point = tensor.quantization.zero_point[0]
    return max(abs(int(limits.min) - point), abs(int(limits.max) - point))


def _ratio(op: Operator, sign: str) -> float:
    """What the kernel multiplies integers by; 0 where an operand or the result is no quantized integer."""
    sides = (*op.inputs[:2], *op.outputs[:1])
    if len(sides) < 3 or any(t is None or t.dtype not in QUANTIZED or not any(_scale(t)) for t in sides):
        return 0.0
    first, second, made = (_scale(tensor)[0] or 1.0 for tensor in sides)
    return first * second / made if sign == "*" else first / (second * made)


def shifted_quotients(suspect: Suspect) -> bool:
    """A DIV of integers whose smallest quotients are shifted by more than 31 bits (DivElementwise, reference/div.h)."""
    return any(
        op.code == "DIV"
        and (ratio := _ratio(op, "/")) > 0
        and frexp(ratio)[1] - 30 - _reach(op[1]).bit_length() + 1 < -31
        for op in suspect.operators
    )


def wrapped_powers(suspect: Suspect) -> bool:
    """An integer to a power beyond 30: all but -1, 0 and 1 wrap in the kernel, and are bounded in ONNX Runtime."""
    powers = [op.tensor(1) for op in suspect.operators if op.code == "POW" and op[0].dtype in ("int32", "int64")]
    return any(t is not None and t.constant and np.abs(t.array.astype(np.float64)).max(initial=0) > 30 for t in powers)


def shifts_beyond(suspect: Suspect) -> bool:
    """Shifts by what is negative or more than the bits there are, or is not known: undefined in C++."""
    return any(
        not (by.constant and ((by.array >= 0) & (by.array < 8 * by.array.itemsize)).all())
        for op in suspect.operators
        if op.code in SHIFTS and (by := op.tensor(1)) is not None
    )


def steps_of_rounded(suspect: Suspect) -> bool:
    """SIGN_BIT of what the kernel rounds to 8 bits before it multiplies: a step, whose side rounding decides."""
    return any(
        op.options.get("fused_activation_function") == "SIGN_BIT"
        and op[0].dtype == "float32"
        and any(t is not None and t.constant and t.dtype in ("int8", "uint8") for t in op.inputs)
        for op in suspect.operators
    )


def gates_of_rounded(suspect: Suspect) -> bool:
    """Gates whose weights make of activations that the kernel rounds to 8 bits more than opens or closes them."""
    return any(
        float(np.abs(t.array.astype(np.int16)).max(initial=0)) * max(_scale(t), default=0) >= STEEP
        for op in suspect.operators
        if "LSTM" in op.code and op[0].dtype == "float32"
        for t in op.inputs
        if t is not None and t.constant and t.dtype in ("int8", "uint8")
    )


def multiplied_steps(suspect: Suspect) -> bool:
    """A weight that makes two LSB or more of one: what computes its input may be one LSB off."""
    return any(_gain(op) >= 2 for op in suspect.operators)


def _gain(op: Operator) -> float:
    x = op.tensor(0)
    if op.code == "MUL":
        factors = [t for t in op.inputs if t is not None and t.constant and t.dtype in QUANTIZED]
        return max((_ratio(op, "*") * float(_farthest(t)) for t in factors), default=0.0)
    weights = [t for t in op.inputs if t is not None and t.constant and t.dtype == "int8" and t.rank > 1]
    made = op.tensor(~0)
    if x is None or x.dtype not in QUANTIZED or len(weights) != 1 or not _scale(x) or not any(_scale(made)):
        return 0.0
    largest = float(np.abs(weights[0].array.astype(np.int16)).max(initial=0)) * max(_scale(weights[0]), default=0)
    return largest * _scale(x)[0] / _scale(made)[0]


def _farthest(tensor: Tensor) -> int:
    """How far a constant's integers are from its zero point at most."""
    point = tensor.quantization.zero_point[0] if isinstance(tensor.quantization, Quantization) else 0
    return int(np.abs(tensor.array.astype(np.int64) - point).max(initial=0))


def unbounded_recurrence(suspect: Suspect) -> bool:
    """A recurrent layer whose activation has no bound: what float32 rounds grows from step to step, here a thousandfold."""
    return any(
        any(kind in op.code for kind in RECURRENT)
        and op.options.get("fused_activation_function") in ("NONE", "RELU")
        and "SEQUENCE" in op.code
        and _growth(op) ** max(op[0].shape[:2], default=1) >= 1000
        for op in suspect.operators
    )


def _growth(op: Operator) -> float:
    """What a step makes at most of its largest number: by a row of recurrent weights, each a square."""
    squares = [t for t in op.inputs if t is not None and t.constant and t.rank == 2 and t.shape[0] == t.shape[1]]
    rows = [np.abs(t.array.astype(np.float64)).sum(1).max(initial=0) * max(_scale(t), default=1.0) for t in squares]
    return float(max(rows, default=np.inf))


def half_products(suspect: Suspect) -> bool:
    """Products and sums of many float16 numbers, rounded after each by the kernel, and infinite beyond 65504."""
    return any(op.code == "STABLEHLO_SCATTER" and op[0].dtype == "float16" for op in suspect.operators)


# --- what is stored ---------------------------------------------------------------------------


def refused_without_xnnpack(suspect: Suspect) -> bool:
    """What LiteRT's kernels refuse as they prepare, and XNNPACK does not look at."""
    return suspect.dtypes is None


def stale_shapes(suspect: Suspect) -> bool:
    """Stored shapes other than those that LiteRT computes, or results in a called subgraph stored without elements."""
    shapes = suspect.told.get("shapes", {})
    main = suspect.model.subgraphs[0]
    if contradicted(suspect.model, suspect.told) is not None:
        return True
    if any(not tensor.dims and tensor.has_rank and shapes.get(str(tensor.index)) for tensor in main.tensors):
        return True
    inner = [op for graph in suspect.model.subgraphs[1:] for op in graph.operators]
    return any(t is not None and 0 in t.shape for op in inner for t in op.outputs)


def stale_signatures(suspect: Suspect) -> bool:
    """Sizes said to be open that follow from the operands, or others than follow; LiteRT does not look at what is open."""
    model = suspect.model
    try:
        sizes = Sizes(model, suspect.host, target_named("generic"), "")
        follows = sizes.behind({tensor: tensor.dims for tensor in model.main.inputs})
    except (ConversionError, Refused):
        return False
    opened = {(size, None) for dims in follows.values() for size in dims if size is not None}
    return any(
        len(dims) == tensor.rank and (not agree(dims, tensor.dims) or set(zip(dims, tensor.dims, strict=True)) & opened)
        for tensor, dims in follows.items()
    )


def stale_dtypes(suspect: Suspect) -> bool:
    """A result said to be float that is computed from integers, where the kernel writes them into floats (reduce.cc)."""
    return any(
        result is not None
        and result.dtype in FLOATS
        and any(t is not None and not t.constant and t.dtype in QUANTIZED and t.quantization for t in op.inputs)
        and (suspect.dtypes or {}).get(result.index, "").startswith(("float", "bfloat"))
        and not _converts(suspect, op)
        for op in suspect.model.main.operators
        for result in op.outputs[:1]
    )


def _converts(suspect: Suspect, op: Operator) -> bool:
    target = target_named("generic")
    bound = suspect.host.take(op, target, target.opsets[2])
    return not isinstance(bound, Bound) or bool(bound.handler.converts)


def longer_constants(suspect: Suspect) -> bool:
    """A constant with more bytes than its shape takes: kernels that ask for the bytes of a row get others."""
    return any(
        size is not None and size > stored_bytes(tensor.dtype, tensor.shape)
        for tensor in suspect.tensors
        if tensor.constant and tensor.dtype != "string" and (size := _stored(tensor)) is not None
    )


def _stored(tensor: Tensor) -> int | None:
    data: Any = tensor.data
    return None if getattr(data, "_sparsity", 1) is not None else int(data._size)


def other_booleans(suspect: Suspect) -> bool:
    """Booleans in other bytes than 0 and 1, which some kernels compare, and combine bit by bit."""
    constants = [t for t in suspect.tensors if t.constant and t.dtype == "bool" and _stored(t) is not None]
    return any((t.data._bytes(t.array.size) > 1).any() for t in constants)  # type: ignore[union-attr]


def long_sizes(suspect: Suspect) -> bool:
    """Sizes of 64 bits that 32 do not hold, which kernels cut (broadcast_args.cc)."""
    sizes = [t for op in suspect.operators if op.code == "BROADCAST_ARGS" for t in op.inputs]
    return any(t is not None and t.constant and (np.abs(t.array.astype(np.float64)) >= 2**31).any() for t in sizes)


def sparse_as_dense(suspect: Suspect) -> bool:
    """A sparse constant that is an output, or that a kernel reads which knows none: LiteRT gives its stored numbers."""
    dense = [t for op in suspect.operators if op.code not in ("DENSIFY", "FULLY_CONNECTED") for t in op.inputs]
    return any(t and getattr(t.data, "_sparsity", None) is not None for t in (*suspect.model.main.outputs, *dense))


def inputs_written(suspect: Suspect) -> bool:
    """An input that is an output as well, handed to a cell whose kernel writes its next state there (lstm.cc)."""
    states = [t for op in suspect.operators if op.code == "LSTM" for t in op.inputs]
    return any(t in suspect.model.main.inputs and t in states for t in suspect.model.main.outputs)


def twice_given(suspect: Suspect) -> bool:
    """A graph input listed twice: of two arrays that are given the last one counts."""
    inputs = suspect.model.main.inputs
    return len({tensor.index for tensor in inputs}) < len(inputs)


# --- as it runs -------------------------------------------------------------------------------


def windows_beyond(suspect: Suspect) -> bool:
    """A pool without padding over an image of open size, stored as smaller than the window: no rows in LiteRT.

    ONNX Runtime makes one where the stride reaches beyond the image, and else refuses to run.
    """
    return any(
        op.code in POOLS
        and op.options.padding == "VALID"
        and any(
            op[0].rank == 4 and op[0].dims[1 + k] is None and op[0].shape[1 + k] < op.options[f"filter_{side}"]
            for k, side in enumerate(("height", "width"))
        )
        for op in suspect.operators
    )


def perms_as_it_runs(suspect: Suspect) -> bool:
    """Lengths or blocks known as it runs, or a perm that is computed: kernels read beyond the end by what is none.

    Or axes, where the result is stored with the sizes that some of them give.
    """
    axes = [op for op in suspect.operators if op.code.startswith("REDUCE_") or op.code in ("MEAN", "SUM")]
    if any(op[1] and not op[1].constant and op[~0].static and op[~0].rank for op in axes if len(op.inputs) > 1):
        return True
    lengths = [t for op in suspect.operators if op.code in ("REVERSE_SEQUENCE", *BLOCKS) for t in op.inputs[1:]]
    perms = [op.tensor(1) for op in suspect.operators if op.code == "TRANSPOSE"]
    drawn = suspect.model.main.inputs
    return any(tensor is not None and not tensor.constant for tensor in lengths) or any(
        perm is not None and not perm.constant and perm not in drawn for perm in perms
    )


def asked_of_nothing(suspect: Suspect) -> bool:
    """A shape, a perm or a size known as it runs only, of a tensor without elements: what is drawn for it fits nothing."""
    given = [t for t in suspect.model.main.inputs if t.dtype in ("int32", "int64")]
    return bool(given) and any(0 in t.shape for op in suspect.operators for t in (*op.inputs, *op.outputs) if t)


def depths_of_weights(suspect: Suspect) -> bool:
    """An input of open depth, which its weights decide: of others LiteRT makes groups, or leaves elements out of its rows."""
    return any(
        tensor is not None and tensor in suspect.model.main.inputs and tensor.dims[-1:] == (None,)
        for op in suspect.model.main.operators
        if op.code in PRODUCTS
        for tensor in op.inputs[:1]
    )


CLASSES: dict[str, Callable[[Suspect], bool]] = {
    "constants beyond all measure": vast_constants,
    "options beyond all measure": vast_options,
    "scales beyond all measure": vast_scales,
    "refused without XNNPACK": refused_without_xnnpack,
    "stored shapes that do not follow": stale_shapes,
    "open sizes that do not follow": stale_signatures,
    "a result's dtype that its kernel leaves": stale_dtypes,
    "constants longer than their shapes": longer_constants,
    "booleans in other bytes": other_booleans,
    "sizes beyond 32 bits": long_sizes,
    "sparse constants read as dense": sparse_as_dense,
    "inputs that LiteRT writes": inputs_written,
    "an input listed twice": twice_given,
    "divisors of zero": divided_by_zero,
    "sums that wrap": wrapped_sums,
    "floats quantized beyond 32 bits": cast_beyond,
    "products that wrap": wrapped_products,
    "powers that wrap": wrapped_powers,
    "quotients shifted by more than 31 bits": shifted_quotients,
    "shifts by more bits than there are": shifts_beyond,
    "SIGN_BIT of rounded products": steps_of_rounded,
    "gates of rounded products": gates_of_rounded,
    "an LSB made several by weights": multiplied_steps,
    "a recurrence without bound": unbounded_recurrence,
    "float16 products of many": half_products,
    "windows beyond an image of open size": windows_beyond,
    "perms, lengths, blocks and axes known as it runs": perms_as_it_runs,
    "sizes asked of no elements": asked_of_nothing,
    "open depths that weights decide": depths_of_weights,
}
