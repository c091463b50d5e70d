"""Planted bugs in spectrograms, cepstra and rotations."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.qa.mutations.planting import Mutation

SPECTROGRAM, MFCC, ROTATION = "CUSTOM.AudioSpectrogram", "CUSTOM.Mfcc", "CUSTOM.aeq.hadamard_rotation"


def _round_to_float32(emit: Any, rows: Any, hann: Any) -> Any:
    """Round the windowed samples to float32."""
    return emit(rows, hann.astype(np.float32).astype(np.float64)) if isinstance(hann, np.ndarray) else emit(rows, hann)


def _use_symmetric_window(emit: Any, rows: Any, hann: Any) -> Any:
    if not isinstance(hann, np.ndarray) or hann.ndim != 1:
        return emit(rows, hann)
    return emit(rows, np.hanning(len(hann)))


def _raise_floor(emit: Any, energies: Any, floor: Any) -> Any:
    """Raise the floor of the logarithm."""
    return emit(energies, np.float32(1e-6))


def _skip_row_matrix(emit: Any, a: Any, b: Any) -> Any:
    """Leave out the product with the first factor of a Hadamard matrix."""
    return b if isinstance(a, np.ndarray) else emit(a, b)


MUTATIONS = (
    Mutation("a symmetric window", SPECTROGRAM, (f"{SPECTROGRAM}-480_of_512",), emits={"Mul": _use_symmetric_window}),
    Mutation(
        "a window rounded to float32", SPECTROGRAM, (f"{SPECTROGRAM}-a_short_tone,_spectrum_and_cepstrum",),
        emits={"Mul": _round_to_float32},
    ),
    Mutation(
        "squares instead of magnitudes",
        SPECTROGRAM,
        (f"{SPECTROGRAM}-magnitudes",),
        emits={"Sqrt": lambda _emit, powers: powers},
    ),
    Mutation("a higher floor", MFCC, (f"{MFCC}-silence",), emits={"Max": _raise_floor}),
    Mutation(
        "no frequency is masked at runtime",
        MFCC,
        (f"{MFCC}-filters_from_within_a_bin,_rate_at_runtime",),
        emits={"Where": lambda _emit, _used, value, _zero: value},
    ),
    Mutation(
        "one factor of a rotation", ROTATION, (f"{ROTATION}-two_products_of_one_size",), emits={"MatMul": _skip_row_matrix}
    ),
)  # fmt: skip
