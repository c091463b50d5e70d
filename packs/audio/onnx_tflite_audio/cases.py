"""Conformance cases: models that convert, and models that are refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from conformance.case import Case, Tolerance
from conformance.models import constant, in_isolation, random_array, tensor

EXTREMES = np.asarray([-32768, 32767, -1, 1, -3, 0, 255], np.int16)


EXACT: dict[str, Any] = {
    "tolerance": Tolerance(of_range=0, steps=0),
    "tolerance_reason": "it is integer arithmetic throughout",
}
ROOTS = [0, 1, 2, 3, 2**32 - 1, 2**32, 2**53 + 1, (2**32 - 1) ** 2 - 1, 2**63 - 1, 2**63, 2**64 - 2**33, 2**64 - 1]
ROUNDING_LIMITS = [n * n + n + k for n in (7, 65535, 65536, 2**31 - 1, 2**32 - 2) for k in (-1, 0, 1)]
"""Numbers halfway between the squares of two integers, and their neighbors."""
POWERS = [max(0, (1 << k) + offset) for k in (0, 1, 2, 9, 10, 11, 16, 20, 31) for offset in (-1, 0, 1)]


def cases() -> Iterator[Case]:
    yield from window_cases()
    yield from spectrum_cases()
    yield from energy_cases()
    yield from filter_cases()
    yield from refusal_cases()


def first_input(*values: int, dtype: str = "uint32") -> dict[str, np.ndarray]:
    return {"x0": np.asarray(values, dtype)}


def filter_cases() -> Iterator[Case]:
    op = "CUSTOM.SignalFilterBank"
    # three channels over eleven frequencies; the sum of channel 0 is scratch
    bands = [np.asarray(operand, np.int16) for operand in ((1, 3, 5, 8), (0, 2, 4, 7), (2, 2, 3, 3))]
    weights = [random_array(10, dtype="int16", low=0, high=4096, seed=name) for name in ("weights", "unweights")]
    operands = [constant(array) for array in (*weights, *bands)]
    x, y = tensor(11, dtype="uint32"), tensor(3, dtype="uint64")
    largest_inputs = {"x0": np.full(11, 2**32 - 1, np.uint32)}
    yield in_isolation(op, "three channels", [x, *operands], y, custom_options={"num_channels": 3}, nodes=["MatMul"])
    yield in_isolation(
        op, "largest inputs", [x, *operands], y, custom_options={"num_channels": 3}, input_arrays=largest_inputs
    )
    four_channels = tensor(4, dtype="uint64")
    yield in_isolation(
        op,
        "too many channels",
        [x, *operands],
        four_channels,
        custom_options={"num_channels": 4},
        refusal="fewer than 5 entries",
    )
    short_x = tensor(9, dtype="uint32")
    yield in_isolation(
        op, "too few frequencies", [short_x, *operands], y, custom_options={"num_channels": 3}, refusal="reach beyond"
    )

    op = "CUSTOM.SignalFilterBankSquareRoot"
    numbers = [*ROOTS, *ROUNDING_LIMITS]
    x, y = tensor(len(numbers), dtype="uint64"), tensor(len(numbers), dtype="uint32")
    for bits in (0, 5):
        shift = constant(np.asarray(bits, np.int32))
        yield in_isolation(op, f"shift {bits}", [x, shift], y, input_arrays=first_input(*numbers, dtype="uint64"))

    op = "CUSTOM.SignalFilterBankLog"
    x, y = tensor(len(POWERS), dtype="uint32"), tensor(len(POWERS), dtype="int16", scale=0)
    for bits, scale in ((0, 1600), (3, 1), (4, 65536)):
        options = {"input_correction_bits": bits, "output_scale": scale}
        yield in_isolation(
            op,
            f"shift {bits}, scale {scale}",
            [x],
            y,
            custom_options=options,
            input_arrays=first_input(*POWERS),
            **EXACT,
        )
    x, y = tensor(499, dtype="uint32"), tensor(499, dtype="int16", scale=0)
    options = {"input_correction_bits": 0, "output_scale": 1600}
    samples = first_input(*(k * 8607437 for k in range(499)))
    yield in_isolation(
        op, "inputs over the range of uint32", [x], y, custom_options=options, input_arrays=samples, **EXACT
    )
    yield in_isolation(
        op,
        "a shift of 32 bits",
        [x],
        y,
        custom_options={**options, "input_correction_bits": 32},
        refusal="input_correction_bits is 32",
    )

    op = "CUSTOM.SignalPCAN"
    table = constant(random_array(125, dtype="int16", low=-2000, high=8000))
    x, y = tensor(len(POWERS), dtype="uint32"), tensor(len(POWERS), dtype="uint32")
    for snr_shift in (6, 0, 13):
        for name, signal in (("large", 3 * 10**9), ("small", 977)):
            arrays = {"x0": np.full(len(POWERS), signal, np.uint32), "x1": np.asarray(POWERS, np.uint32)}
            options = {"snr_shift": snr_shift}
            yield in_isolation(
                op, f"shift {snr_shift}, {name}", [x, x, table], y, custom_options=options, input_arrays=arrays
            )
    short_table = constant(random_array(90, dtype="int16"))
    yield in_isolation(
        op, "a short table", [x, x, short_table], y, custom_options={"snr_shift": 6}, refusal="at least 125 entries"
    )


def refusal_cases() -> Iterator[Case]:
    x = tensor(16, dtype="int16", scale=0)
    for name, reason in (
        ("Delay", "keeps delayed samples in its own memory"),
        ("Framer", "keeps the samples of incomplete frames in its own memory"),
        ("OverlapAdd", "keeps the tail of the last frame in its own memory"),
        ("FilterBankSpectralSubtraction", "keeps the noise estimate in its own memory"),
        ("Stacker", "keeps previous frames in its own memory"),
        ("FftAutoScale", "overflows at -32768"),
    ):
        yield in_isolation(f"CUSTOM.Signal{name}", "refused", [x], x, custom_options={"shift": 1}, refusal=reason)


def window_cases() -> Iterator[Case]:
    op = "CUSTOM.SignalWindow"
    weights = constant(random_array(7, dtype="int16"))
    for shift in (0, 12, 15):
        x = tensor(2, 5, 7, dtype="int16", scale=0)
        yield in_isolation(op, f"shift {shift}", [x, weights], x, custom_options={"shift": shift})
    frame = tensor(7, dtype="int16", scale=0)
    extremes = {"x0": EXTREMES}
    yield in_isolation(
        op, "limits of int16", [frame, constant(EXTREMES)], frame, custom_options={"shift": 12}, input_arrays=extremes
    )
    dynamic_x = tensor(None, 7, dtype="int16", scale=0)
    yield in_isolation(op, "dynamic sizes", [dynamic_x, weights], dynamic_x, custom_options={"shift": 12})
    yield in_isolation(
        op,
        "window of another length",
        [tensor(14, dtype="int16", scale=0), weights],
        tensor(14, dtype="int16", scale=0),
        custom_options={"shift": 12},
        refusal="does not fit a frame of 14",
    )


def spectrum_cases() -> Iterator[Case]:
    op = "CUSTOM.SignalRfft"
    options = {"T": 0, "fft_length": 16}
    yield in_isolation(op, "a frame", [tensor(16)], tensor(18), custom_options=options, nodes=["MatMul"])
    long_options = {"T": 0, "fft_length": 1024}
    yield in_isolation(
        op,
        "frames of many points",
        [tensor(3, 1000)],
        tensor(3, 1026),
        custom_options=long_options,
        nodes={"MatMul": 2},
    )
    huge_options = {"T": 0, "fft_length": 16384}
    yield in_isolation(
        op,
        "too many points for matrices",
        [tensor(2, 16384)],
        tensor(2, 16386),
        custom_options=huge_options,
        nodes=["DFT"],
    )
    yield in_isolation(
        op, "frames shorter than the transform", [tensor(3, 5, 11)], tensor(3, 5, 18), custom_options=options
    )
    yield in_isolation(op, "dynamic sizes", [tensor(None, 11)], tensor(None, 18), custom_options=options)
    yield in_isolation(
        op,
        "int16",
        [tensor(16, dtype="int16", scale=0)],
        tensor(18, dtype="int16", scale=0),
        custom_options={"T": 7, "fft_length": 16},
        refusal="int16 FFTs round after every butterfly",
    )
    yield in_isolation(
        op,
        "frame longer than the transform",
        [tensor(17)],
        tensor(18),
        custom_options=options,
        refusal="is too short for a frame of 17",
    )

    op = "CUSTOM.SignalIrfft"
    yield in_isolation(op, "a frame", [tensor(18)], tensor(16), custom_options=options, nodes=["MatMul"])
    yield in_isolation(
        op,
        "frames of many points",
        [tensor(3, 1026)],
        tensor(3, 1024),
        custom_options=long_options,
        nodes={"MatMul": 2},
    )
    yield in_isolation(
        op,
        "too many points for matrices",
        [tensor(2, 16386)],
        tensor(2, 16384),
        custom_options=huge_options,
        nodes=["DFT"],
    )
    yield in_isolation(op, "frames", [tensor(3, 5, 18)], tensor(3, 5, 16), custom_options=options)
    yield in_isolation(op, "dynamic sizes", [tensor(None, 18)], tensor(None, 16), custom_options=options)
    yield in_isolation(op, "two samples", [tensor(5, 4)], tensor(5, 2), custom_options={"T": 0, "fft_length": 2})
    yield in_isolation(
        op, "int16", [tensor(18, dtype="int16", scale=0)], tensor(16, dtype="int16", scale=0),
        custom_options={"T": 7, "fft_length": 16}, refusal="int16 FFTs round after every butterfly",
    )  # fmt: skip
    yield in_isolation(
        op,
        "spectrum longer than the transform",
        [tensor(20)],
        tensor(16),
        custom_options=options,
        refusal="the spectrum has 20 values and the output 16 samples",
    )


def energy_cases() -> Iterator[Case]:
    op = "CUSTOM.SignalEnergy"
    x, y = tensor(26, dtype="int16", scale=0), tensor(13, dtype="uint32")
    yield in_isolation(op, "full spectrum", [x], y, custom_options={"start_index": 0, "end_index": 13})
    yield in_isolation(op, "a range", [x], y, custom_options={"start_index": 2, "end_index": 11})
    lowest = {"x0": np.full(26, -32768, np.int16)}
    yield in_isolation(
        op, "beyond int32", [x], y, custom_options={"start_index": 0, "end_index": 13}, input_arrays=lowest
    )
    yield in_isolation(
        op,
        "range outside the spectrum",
        [x],
        y,
        custom_options={"start_index": 2, "end_index": 14},
        refusal="is outside the spectrum",
    )
