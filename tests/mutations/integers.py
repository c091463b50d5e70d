"""Arithmetic of the kernels on integers, repeated to the last bit: what goes wrong with it."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnx_tflite_plugin.api import FixedOutputRange, out

from .planting import Mutation, left_out, returning

FIXED = "op_handlers.kernels.fixed_point"
POOL = "op_handlers.image.pooling"
SIGMOIDS = "op_handlers.kernels.sigmoids"
SOFTMAX = "op_handlers.kernels.softmax"

BELOW = np.append(0, np.arange(-65535, 0))


def halved(original: Any) -> Any:
    return lambda *arguments: original(*arguments) / 2


def without_least(_original: Any) -> Any:
    """Exponentials as they are, however small."""
    return lambda scale: np.floor(np.exp(BELOW * scale) * 32762 + 0.5).astype(np.int16)


def without_wrapping(_original: Any) -> Any:
    return lambda numbers: numbers


def rounded_down(_original: Any) -> Any:
    return lambda numbers, bits: numbers >> bits


def not_raised(_original: Any) -> Any:
    """Sigmoids to the nearest."""
    return lambda: np.append(np.floor(2**16 / (1 + np.exp(-np.arange(255) / 24)) + 0.5).astype(np.int64), 0xFFFF)


def unbiased(original: Any) -> Any:
    """Every number of a table to the nearest, whatever its line does in the middle."""

    def samples(function: Any, low: Any, high: Any, made_scale: Any) -> Any:
        values = function(low + np.arange(513) * (high - low) / 512) * 65536 / (65535 * made_scale)
        return np.clip(np.floor(values + 0.5), -32768, 32767).astype(np.int32)

    return samples


def the_zero_point(_original: Any) -> Any:
    def zero(ctx: Any) -> Any:
        quantization = ctx.quantization(out(0))
        return np.asarray(quantization.zero_point[0], ctx.dtype(out(0))) if ctx.uses_integers else None

    return zero


TANH_WORDS = "TANH-every_int16_from_a_scale_of_"
LOGISTIC_WORDS = "LOGISTIC-every_int16_from_a_scale_of_"
CONFIDENT = "SOFTMAX-int16,_101_confident_classes"
SUMS = "SOFTMAX-int16,_sums_on_both_sides_of_powers_of_two"


MUTATIONS = (
    Mutation(
        "the power of two below a sum is one bit off",
        "SOFTMAX",
        (CONFIDENT, SUMS),
        patches={f"{SOFTMAX}:power_table": halved},
    ),
    Mutation(
        "exponentials go on below -10", "SOFTMAX", (CONFIDENT,), patches={f"{SOFTMAX}:exponential_table": without_least}
    ),
    Mutation(
        "a share of more than all is not cut",
        "SOFTMAX",
        ("SOFTMAX-int16,_rows_of_one",),
        emits={"Min": left_out},
    ),
    Mutation("tables to the nearest", "SOFTMAX", (CONFIDENT, SUMS), patches={f"{SOFTMAX}:sample_function": unbiased}),
    Mutation(
        "products are wide",
        "SOFTMAX",
        ("SOFTMAX-int16,_a_scale_whose_product_wraps_around",),
        patches={f"{FIXED}:wrap_int32": without_wrapping},
    ),
    Mutation("beta is not in the table", "SOFTMAX", ("SOFTMAX-int16,_beta_0.3",), options={"beta": 1.0}),
    *(
        Mutation(
            "powers of two are no other arithmetic",
            code,
            tuple(f"{cases}{scale}" for scale in scales),
            patches={f"{SIGMOIDS}:power_of_two_exponent": returning(None)},
        )
        for code, cases, scales in (
            ("TANH", TANH_WORDS, ("2^-12", "2^-11", "nearly_2^-12")),
            ("LOGISTIC", LOGISTIC_WORDS, ("2^-12", "nearly_2^-12")),
        )
    ),
    Mutation(
        "sigmoids to the nearest",
        "TANH",
        (f"{TANH_WORDS}0.0003", f"{TANH_WORDS}2^-13"),
        patches={f"{SIGMOIDS}:sigmoid_table": not_raised},
    ),
    Mutation(
        "floats for int16",
        "TANH",
        (f"{TANH_WORDS}0.0003",),
        fields={"quantization": FixedOutputRange({"int16": (1 / 32768, 0)})},
    ),
    *(
        Mutation(
            "halves downwards", code, (f"{cases}2^-12",), patches={f"{FIXED}:divide_by_power_of_two": rounded_down}
        )
        for code, cases in (("TANH", TANH_WORDS), ("LOGISTIC", LOGISTIC_WORDS))
    ),
    Mutation(
        "halves of means to even",
        "AVERAGE_POOL_2D",
        tuple(f"AVERAGE_POOL_2D-{dtype}_of_four,_half_of_whose_means_lie_between" for dtype in ("int8", "uint8")),
        patches={f"{POOL}:scale_for_halves": returning(np.float32(1))},
    ),
    Mutation(
        "halves of means away from the zero point",
        "AVERAGE_POOL_2D",
        tuple(f"AVERAGE_POOL_2D-{dtype}_of_four,_half_of_whose_means_lie_between" for dtype in ("int8", "uint8")),
        patches={f"{POOL}:zero_of_integers": the_zero_point},
    ),
)
