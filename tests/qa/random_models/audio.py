"""Spectrograms, cepstra and rotations of random options."""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.case import Case
from conformance.cases.custom.audio import FILTERS, bin_count, cepstrum_case, spectrogram_case
from conformance.cases.custom.rotation import rotation_case
from tests.qa.random_models.draw import Draw, case_generator


@case_generator("CUSTOM.AudioSpectrogram")
def spectrograms(draw: Draw, op: str) -> Case:
    window = draw.between(2, draw.pick(20, 200, 1200))
    samples = window + draw.between(-1, 1500)
    options: dict[str, Any] = {"channels": draw.pick(1, 1, 1, 2, 3), "squared": draw.chance(0.5)}
    if draw.chance(0.3):
        return spectrogram_case(
            "random", None, window, draw.between(1, 400), dynamic_sizes=(samples, window), **options
        )
    return spectrogram_case("random", samples, window, draw.between(1, 400), **options)


@case_generator("CUSTOM.Mfcc")
def cepstra(draw: Draw, op: str) -> Case:
    channels, lower = draw.between(1, 60), draw.between(0, 3000)
    options = {
        **FILTERS,
        "lower_frequency_limit": lower,
        "upper_frequency_limit": lower + draw.between(1, 6000),
        "filterbank_channel_count": channels,
        "dct_coefficient_count": draw.between(1, channels),
    }
    width, rate = bin_count(draw.between(2, 1200)), draw.pick(8000, 16000, 22050, 44100)
    if draw.chance(0.3):
        rates = [{"rate": np.asarray([rate], np.int32)}]
        return cepstrum_case("random", options, None, bins=width, channels=draw.between(1, 3), input_arrays=rates)
    return cepstrum_case("random", options, rate, bins=width, channels=draw.between(1, 3))


@case_generator("CUSTOM.aeq.hadamard_rotation")
def rotations(draw: Draw, op: str) -> Case:
    size, leading = 2 ** draw.between(0, 11), [draw.between(1, 7) for _ in range(draw.between(1, 2))]
    return rotation_case("random", (*leading, size * draw.between(1, 3)), size)
