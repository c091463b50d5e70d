"""Spectrograms and cepstra: windows, precision, limits of filters, the scale of the cosine transform."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.qa.mutations.planting import Mutation

SPECTROGRAM, MFCC = "CUSTOM.AudioSpectrogram", "CUSTOM.Mfcc"


def _in_float32(true: Any, rows: Any, hann: Any) -> Any:
    """Round the windowed samples to float32."""
    return true(rows, hann.astype(np.float32).astype(np.float64)) if isinstance(hann, np.ndarray) else true(rows, hann)


def _symmetric(true: Any, rows: Any, hann: Any) -> Any:
    if not isinstance(hann, np.ndarray) or hann.ndim != 1:
        return true(rows, hann)
    return true(rows, np.hanning(len(hann)))


def _higher(true: Any, energies: Any, floor: Any) -> Any:
    """Use another floor of the logarithm."""
    return true(energies, np.float32(1e-6))


MUTATIONS = (
    Mutation("a symmetric window", SPECTROGRAM, (f"{SPECTROGRAM}-480_of_512",), emits={"Mul": _symmetric}),
    Mutation(
        "a window rounded to float32", SPECTROGRAM, (f"{SPECTROGRAM}-a_short_tone,_spectrum_and_cepstrum",),
        emits={"Mul": _in_float32},
    ),
    Mutation(
        "squares where magnitudes are requested",
        SPECTROGRAM,
        (f"{SPECTROGRAM}-magnitudes",),
        emits={"Sqrt": lambda _true, powers: powers},
    ),
    Mutation("a higher floor", MFCC, (f"{MFCC}-silence",), emits={"Max": _higher}),
    Mutation(
        "every frequency counts at runtime",
        MFCC,
        (f"{MFCC}-filters_from_within_a_bin,_rate_at_runtime",),
        emits={"Where": lambda _true, _used, kept, _zero: kept},
    ),
)  # fmt: skip
