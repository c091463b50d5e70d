"""Classes of models whose numbers leave what a kernel computes with: beyond all measure, wrapping, or rounded on the way."""

from __future__ import annotations

from collections.abc import Callable
from math import frexp, prod

import numpy as np

from onnx_tflite_plugin.api import activation_bounds
from onnx_tflite_plugin.source.dtypes import FLOATS, QUANTIZED
from onnx_tflite_plugin.source.model import BlockwiseQuantization, Operator, Quantization, Subgraph, Tensor

from .suspect import Suspect, scales_of

LARGEST_NUMBER = 1e8  # products of such are infinite in one runtime before the other
FINITE = 30  # of 16, as far as numbers are drawn, the 32nd power is no float
LEAST = 1e-37  # divided by which a float is infinite
LARGEST_IMAGE = 128  # pixels: the last bit of a place beyond is 1.5e-5 of the way from one to the next
MANY = 1 << 14  # of which a hundredth of the largest is left, and 1e-7 rounded off of each sum
LONG = 50  # numbers as wide as they are drawn, up to 16, whose product is about 1e38
HEAVY = 0.1  # of a bias: with squares of drawn numbers, up to 256, what float32 rounds of their sum is 1e-5 of a smaller one
WEIGHED = ("CONV_2D", "DEPTHWISE_CONV_2D", "CONV_3D", "FULLY_CONNECTED", "BATCH_MATMUL")
NARROW = ("int8", "uint8", "int4", "int2")
SHIFTS = ("STABLEHLO_SHIFT_LEFT", "RIGHT_SHIFT")


def vast_constants(suspect: Suspect) -> bool:
    """A float constant that is not finite, or beyond 1e8; or a number alone that is subnormal, as products of it are, or any of a
    power's. Or a power of which drawn numbers are infinite, but the largest float in the kernel that multiplies.
    """
    floats = [t.array for t in suspect.tensors if t.is_constant and t.dtype in ("float16", "float32", "float64")]
    powers = any(op.code == "POW" for op in suspect.operators)
    exponents = [op.constant(1) for op in suspect.operators if op.code == "POW"]
    if any(y is not None and y.dtype == np.float32 and np.abs(y).max(initial=0) > FINITE for y in exponents):
        return True
    return any(
        not np.isfinite(array).all()
        or np.abs(array.astype(np.float64)).max(initial=0) > LARGEST_NUMBER
        or ((array.size == 1 or powers) and bool(((array != 0) & (np.abs(array) < np.finfo(array.dtype).tiny)).any()))
        for array in floats
    )


def vast_options(suspect: Suspect) -> bool:
    """A float option beyond 1e8, or so near to 0 that what it bounds is 0 in all but name."""
    given = [value for op in suspect.operators for value in op.options.values() if isinstance(value, float)]
    return any(abs(value) > LARGEST_NUMBER or 0 < abs(value) < 1 / LARGEST_NUMBER for value in given)


def vast_scales(suspect: Suspect) -> bool:
    """Beyond 1e8, or so near to 0 that products are, of floats too, which kernels may make integers; a block's may be 0, which
    LiteRT's kernels take for different things.
    """
    blocks = [t.quantization.scales.array for t in suspect.tensors if isinstance(t.quantization, BlockwiseQuantization)]
    if any((array == 0).any() for array in blocks):
        return True
    told = [q for t in suspect.tensors for q in (t.quantization, t.ignored_quantization)]
    scales = [abs(scale) for each in told if isinstance(each, Quantization) for scale in each.scale]
    return any(scale > LARGEST_NUMBER or 0 < scale < 1 / LARGEST_NUMBER for scale in scales)


def divided_by_zero(suspect: Suspect) -> bool:
    """A constant divisor that holds a zero, or whose scale is 0: infinite in XNNPACK, the largest float in the kernels that clip.

    Or nearly zero, so that quotients are; or a quantized one that is drawn, its zero point too, by which the kernel divides an
    integer. Or what a loop's steps compute of floats, where no kernel but those that clip runs. Or what is normalized by a bias
    less a sum of squares. Or what is drawn, where an activation keeps XNNPACK away. Or what
    weights make, which may be 0, where others weigh the quotients: of an infinite one they make NaN.
    """
    if any(op.code == "DIV" and op[0].dtype in FLOATS and not op[1].is_constant for op in suspect.steps):
        return True
    weighed = [op for op in suspect.operators if op.code in WEIGHED and op[~0].dtype in FLOATS]
    products, taken = {op[~0] for op in weighed}, {op[0] for op in weighed}
    if any(op.code == "DIV" and op.tensor(1) in products and op[~0] in taken for op in suspect.operators):
        return True
    drawn = [op for op in suspect.operators if op.code == "DIV" and op.tensor(1) in suspect.model.main.inputs]
    if any(op.options.fused_activation_function in ("TANH", "SIGN_BIT") for op in drawn):
        return True
    if any(op.code == "LOCAL_RESPONSE_NORMALIZATION" and op.options.alpha < 0 for op in suspect.operators):
        return True
    divisors = [op.tensor(1) for op in suspect.operators if op.code in ("DIV", "FLOOR_DIV", "FLOOR_MOD")]
    return any(map(_holds_zero, filter(None, divisors)))


def _holds_zero(divisor: Tensor) -> bool:
    scales = scales_of(divisor)
    if not divisor.is_constant:
        return any(scales)
    return 0.0 in scales or bool((np.abs(divisor.array.astype(np.float64)) < LEAST).any())


def wrapped_sums(suspect: Suspect) -> bool:
    """A bias that sums of 32 bits do not hold together with their products, or not what is made of them.

    Sums are shifted left before they are multiplied, and results of 64 bits are cast to 32
    (MultiplyByQuantizedMultiplier, internal/common.cc). Or ADD and SUB of 8 bits into steps so small that 16 bits do not hold
    them, to which vector kernels narrow what they add (AddElementwise, optimized_ops.h).
    """
    if any(_far_beyond(op) for op in suspect.operators if op.code in ("ADD", "SUB")):
        return True
    return any(_sum_wraps(op, bias) for op in suspect.operators for bias in _biases(op))


def _far_beyond(op: Operator) -> bool:
    operands = [t for t in op.inputs[:2] if t is not None and t.dtype in ("int8", "uint8")]
    made = max(scales_of(op[~0]), default=0.0)
    return bool(made) and 255 * sum(max(scales_of(t), default=0.0) for t in operands) / made >= 2**15


def _biases(op: Operator) -> list[Tensor]:
    """Rows of 32 or 64 bit integers behind quantized weights, with a scale or in the place of a bias."""
    if not any(t is not None and t.is_constant and t.dtype in NARROW for t in op.inputs):
        return []
    rows = [t for t in op.inputs[2:] if t is not None and t.is_constant and t.rank and {*t.shape[:-1]} <= {1}]
    whole = [t for t in rows if t.dtype in ("int32", "int64")]
    return [t for t in whole if t.quantization is not None or op.code in WEIGHED]  # whose kernels read no scale of it


def _sum_wraps(op: Operator, bias: Tensor) -> bool:
    largest = float(np.abs(bias.array.astype(np.float64)).max(initial=0))
    if len(_biases(op)) > 1:  # of a recurrent layer, whose gates have scales of their own
        return largest >= 2**24
    weights = [t for t in op.inputs if t is not None and t.is_constant and t.dtype in NARROW]
    scales = [max(scales_of(t), default=1.0) for t in op.inputs if t is not None and t is not bias and scales_of(t)]
    made = max(scales_of(op.outputs[0]), default=1.0) if op.outputs else 1.0
    factor = float(np.prod(scales)) / (made or 1.0)
    depth = max((prod(t.shape) // max(t.shape[0], 1) if t.shape else 1 for t in weights), default=1)
    if bias.dtype == "int64":
        return largest * factor >= 2**30 or depth * 2**22 * factor >= 2**31  # of 16 bits by 8
    return (largest + depth * 255 * 255) * 2.0 ** max(frexp(factor)[1], 0) >= 2**31


def cast_beyond(suspect: Suspect) -> bool:
    """A float constant of more steps than 32 bits hold where something is quantized: the kernel casts before it clips.

    Or a sum of integers that may be, as floats are that the kernel makes of it (optimized/reduce.h).
    """
    if any(op.code == "SUM" and _summed_steps(op) >= 2**31 for op in suspect.operators):
        return True
    steps = [scales_of(op.outputs[0]) for op in suspect.operators if op.code == "QUANTIZE" and op[0].dtype in FLOATS]
    floats = [t.array for t in suspect.tensors if t.is_constant and t.dtype in ("float16", "float32")]
    largest = max((float(np.abs(array).max(initial=0)) for array in floats), default=0.0)
    return any(each and each[0] and largest / each[0] >= 2**31 for each in steps)


def _summed_steps(op: Operator) -> float:
    """How many of the result's steps the sum of quantized integers is at most."""
    before, after = scales_of(op[0]), scales_of(op[~0])
    if op[0].dtype not in QUANTIZED or not any(before) or not any(after):
        return 0.0
    return _reach(op[0]) * prod(op[0].shape) / max(prod(op[~0].shape), 1) * before[0] / after[0]


def wrapped_products(suspect: Suspect) -> bool:
    """A product of integers whose scales make more of it than 32 bits hold, which the kernel does not clip before.

    Or than 16 bits do, to which that of 8 bits adds a zero point (MulElementwise, optimized/integer_ops/mul.h).
    """
    if any(_rescaled_wraps(op) for op in suspect.operators if op.code in _SLOPES):
        return True
    joined = [op for op in suspect.operators if op.code == "BATCH_MATMUL" and op[0].rank > 1]
    if any(_ratio(op, "*") * 2**22 * max(op[0].shape[-2:]) >= 2**31 for op in joined):  # of 16 bits by 8
        return True
    return any(
        _product_wraps(op, factor) for op in suspect.operators if op.code == "MUL" and (factor := _ratio(op, "*"))
    )


_SLOPES: dict[str, Callable[[Operator], float]] = {
    "LEAKY_RELU": lambda op: abs(op.options.get("alpha", 0.0)),
    "PRELU": lambda op: max(scales_of(op[1]), default=0) * _reach(op[1]),
    "QUANTIZE": lambda op: 1.0,
}


def _rescaled_wraps(op: Operator) -> bool:
    """Whether what such an operator passes on as it is, or multiplied by a slope, is more in the result's steps."""
    before, after = scales_of(op[0]), scales_of(op[~0])
    if op[0].dtype not in QUANTIZED or not any(before) or not any(after):
        return False
    return bool(before[0] / after[0] * _reach(op[0]) * max(_SLOPES[op.code](op), 1.0) >= 2**31)


def _product_wraps(op: Operator, factor: float) -> bool:
    most = factor * _reach(op[0]) * _reach(op[1])
    return most >= 2**15 if _shifted(op[~0]) else factor > 1 and most >= 2**31


def _shifted(tensor: Tensor) -> bool:
    """Whether integers of 8 bits have another zero point than 0."""
    quantization = tensor.quantization
    return tensor.dtype in ("int8", "uint8") and isinstance(quantization, Quantization) and any(quantization.zero_point)


def _reach(tensor: Tensor) -> int:
    """How far the integers of a dtype are from the zero point at most."""
    limits, point = np.iinfo(tensor.dtype), 0
    if isinstance(tensor.quantization, Quantization):
        point = tensor.quantization.zero_point[0]
    return max(abs(int(limits.min) - point), abs(int(limits.max) - point))


def _ratio(op: Operator, sign: str) -> float:
    """What the kernel multiplies integers by; 0 where an operand is no quantized integer, or the result has no scale. It has one also
    where the file says that it is of floats, which the kernel does not look at.
    """
    given, result = op.inputs[:2], op.tensor(~0)
    if (
        len(given) < 2
        or any(t is None or t.dtype not in QUANTIZED or not any(scales_of(t)) for t in given)
        or result is None
    ):
        return 0.0
    stored = result.quantization or result.ignored_quantization
    if not isinstance(stored, Quantization) or not any(stored.scale):
        return 0.0
    first, second, made = (scales[0] or 1.0 for scales in (*map(scales_of, given), stored.scale))
    return first * second / made if sign == "*" else first / (second * made)


def shifted_quotients(suspect: Suspect) -> bool:
    """A DIV of integers whose smallest quotients are shifted by more than 31 bits (DivElementwise, reference/div.h). Or HARD_SWISH into
    steps so large that all its results are (HardSwish, reference/hard_swish.h).
    """
    return any(_exponent(op) < -31 for op in suspect.operators)


def _exponent(op: Operator) -> int:
    """That of the smallest results of such operators, as the kernel has them before it shifts."""
    if op.code == "DIV" and (ratio := _ratio(op, "/")) > 0:
        return frexp(ratio)[1] - 30 - _reach(op[1]).bit_length() + 1
    if op.code == "HARD_SWISH" and any(before := scales_of(op[0])) and any(after := scales_of(op[~0])):
        return frexp(before[0] / 128 / after[0])[1]
    return 0


def wrapped_powers(suspect: Suspect) -> bool:
    """Integers to powers beyond 7: what is not small wraps in the kernel, and is bounded in ONNX Runtime. One power is multiplied."""
    powers = [op.tensor(1) for op in suspect.operators if op.code == "POW" and op[0].dtype in ("int32", "int64")]
    known = [t.array.astype(np.float64) for t in powers if t is not None and t.is_constant]
    return any(array.size > 1 and np.abs(array).max() > 7 for array in known)


def shifts_beyond(suspect: Suspect) -> bool:
    """Shifts by what is negative or more than the bits there are, or is not known: undefined in C++."""
    return any(
        not (by.is_constant and ((by.array >= 0) & (by.array < 8 * by.array.itemsize)).all())
        for op in suspect.operators
        if op.code in SHIFTS and (by := op.tensor(1)) is not None
    )


def steps_of_rounded(suspect: Suspect) -> bool:
    """SIGN_BIT of what the kernel rounds to 8 bits before it multiplies: a step, whose side rounding decides."""
    return any(
        op.options.get("fused_activation_function") == "SIGN_BIT"
        and op[0].dtype == "float32"
        and any(t is not None and t.is_constant and t.dtype in ("int8", "uint8") for t in op.inputs)
        for op in suspect.operators
    )


def multiplied_steps(suspect: Suspect) -> bool:
    """A weight or a factor that makes more than one LSB of one, where the input is computed: that may be one LSB off."""
    given = suspect.model.main.inputs
    return any(_gain(op) > 1.01 for op in suspect.operators if op.tensor(0) not in given)


def _gain(op: Operator) -> float:
    x = op.tensor(0)
    if op.code == "MUL":
        factors = [t for t in op.inputs if t is not None and t.dtype in QUANTIZED]
        return max((_ratio(op, "*") * (_farthest(t) if t.is_constant else _reach(t)) for t in factors), default=0.0)
    weights = [t for t in op.inputs if t is not None and t.is_constant and t.dtype in ("int8", "uint8") and t.rank > 1]
    made = op.tensor(~0)
    if (
        op.code not in WEIGHED
        or x is None
        or x.dtype not in QUANTIZED
        or len(weights) != 1
        or not scales_of(x)
        or not any(scales_of(made))
    ):
        return 0.0
    largest = _farthest(weights[0]) * max(scales_of(weights[0]), default=0)
    return largest * scales_of(x)[0] / scales_of(made)[0]


def _farthest(tensor: Tensor) -> int:
    """How far a constant's integers are from its zero point at most."""
    point = tensor.quantization.zero_point[0] if isinstance(tensor.quantization, Quantization) else 0
    return int(np.abs(tensor.array.astype(np.int64) - point).max(initial=0))


def rounded_places(suspect: Suspect) -> bool:
    """Images so large that float32, which places are computed in, says where between two pixels only coarsely."""
    resized = [op[0].shape for op in suspect.operators if op.code == "RESIZE_BILINEAR"]
    return any(max(shape[1:3], default=0) > LARGEST_IMAGE for shape in resized)


def vanishing_sums(suspect: Suspect) -> bool:
    """Sums of very many floats, which the kernel adds one after the other: of drawn ones less is left than that rounds off. Or products
    of so many that some are infinite on the way, and others 0.

    Or what a negative factor and a rectification leave of 1 + tanh: ONNX Runtime's tanh is below -1 by up to two units in its last
    place. Or squares of neighbours that outweigh a bias: both runtimes carry their sum from channel to channel (LocalResponseNormalization,
    optimized_ops.h). Or sums of products of two drawn numbers, up to 256 each, of which an activation leaves what is below 6.
    """
    if any(map(_bounded_products, suspect.operators)):
        return True
    local = [op.options for op in suspect.operators if op.code == "LOCAL_RESPONSE_NORMALIZATION"]
    if any(given.alpha > HEAVY * abs(given.bias) for given in local):
        return True
    if any(map(_rectified_rest, suspect.model.subgraphs)):
        return True
    products = [op for op in suspect.operators if op.code == "REDUCE_PROD" and op[0].dtype == "float32" and op.outputs]
    if any(prod(op[0].shape) > LONG * max(prod(op[~0].shape), 1) for op in products):
        return True
    sums = [op for op in suspect.operators if op.code in ("MEAN", "SUM") and op[0].dtype == "float32" and op.outputs]
    return any(prod(op[0].shape) > MANY * max(prod(op[~0].shape), 1) for op in sums)


def _bounded_products(op: Operator) -> bool:
    _, most = activation_bounds(op.options.get("fused_activation_function", "NONE")) or (None, None)
    return op.code in WEIGHED and most is not None and op[1].dtype == "float32" and not op[1].is_constant


def _rectified_rest(graph: Subgraph) -> bool:
    """Whether it multiplies a sum of a tanh and a constant by a negative constant, and rectifies the product."""
    bounded = {t for op in graph.operators if op.code == "TANH" for t in op.outputs}
    sums = [op for op in graph.operators if op.code == "ADD" and not bounded.isdisjoint(op.inputs)]
    rests = {op[~0] for op in sums if any(t is not None and t.is_constant for t in op.inputs)}
    return any(
        op.code == "MUL"
        and op.options.get("fused_activation_function") in ("RELU", "RELU6")
        and not rests.isdisjoint(op.inputs)
        and any(t is not None and t.is_constant and t.array.size and t.array.max() < 0 for t in op.inputs)
        for op in graph.operators
    )


def undefined_compared(suspect: Suspect) -> bool:
    """What roots, logarithms and powers make of numbers below 0 and is compared: of NaN and a number kernels give the second operand."""
    undefined: set[Tensor | None] = set()
    for op in suspect.operators:
        behind = not undefined.isdisjoint(op.inputs)
        if behind and op.code in ("MAXIMUM", "MINIMUM"):
            return True
        if behind or op.code in ("LOG", "POW", "RSQRT", "SQRT"):
            undefined.update(op.outputs)
    return False


def half_products(suspect: Suspect) -> bool:
    """Products and sums of many float16 numbers, rounded after each by the kernel, and infinite beyond 65504.

    Or exponentials, which XNNPACK puts together of such products: three steps off, and infinite from 11 on.
    """
    return any(op.code in ("EXP", "STABLEHLO_SCATTER") and op[0].dtype == "float16" for op in suspect.operators)


def tied_scores(suspect: Suspect) -> bool:
    """Scores that are suppressed to 0 and still above a threshold below 0: which of equals is next, the kernel's heap decides.

    Or scores behind a logistic function, which is 1 or the float below it of inputs that are large.
    """
    soft = [op for op in suspect.operators if op.code == "NON_MAX_SUPPRESSION_V5"]
    if any(_number(op, 5) != 0 and _number(op, 4) < 0 for op in soft):
        return True
    found = [op[1] for op in suspect.operators if op.code == "CUSTOM.TFLite_Detection_PostProcess"]
    return any(op.code == "LOGISTIC" and op[~0] in found for op in suspect.operators)


def _number(op: Operator, slot: int) -> float:
    """A constant number; NaN where it is known as it runs only."""
    constant = op.constant(slot)
    return np.nan if constant is None or not constant.size else float(constant.reshape(-1)[0])
