"""AudioSpectrogram and Mfcc: windows, channels, lengths, filters, rates, signals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from conformance.case import EVERY_OPSET, Case
from conformance.models import Net, Spec, constant, in_isolation, net, random_array
from onnx_tflite_plugin.source.model import Array

SPECTROGRAM, MFCC = "CUSTOM.AudioSpectrogram", "CUSTOM.Mfcc"
FILTERS: Mapping[str, Any] = {
    "upper_frequency_limit": 4000,
    "lower_frequency_limit": 20,
    "filterbank_channel_count": 40,
    "dct_coefficient_count": 13,
}
BINS, FRAMES = 257, 7


def cases() -> Iterator[Case]:
    yield from spectrogram_cases()
    yield from cepstrum_cases()
    yield from signal_cases()


def bin_count(window: int) -> int:
    return (1 << (window - 1).bit_length()) // 2 + 1


def frame_count(samples: int, window: int, stride: int) -> int:
    return max((samples - window) // stride + 1, 0)


def spectrogram_case(name: str, samples: int | None, window: float, stride: float, **case_fields: Any) -> Case:
    """Return a spectrogram case.

    ``channels``, ``squared`` and ``without`` (options to omit) are popped from ``case_fields``.
    """
    channels, squared, without = (
        case_fields.pop("channels", 1),
        case_fields.pop("squared", True),
        case_fields.pop("without", ()),
    )
    options = {"window_size": window, "stride": stride, "magnitude_squared": squared}
    window, stride = int(window), int(stride)
    count = None if samples is None else frame_count(samples, window, stride)
    return in_isolation(
        SPECTROGRAM,
        name,
        [Spec((samples, channels))],
        Spec((channels, count, bin_count(window))),
        custom_options={key: value for key, value in options.items() if key not in without},
        **case_fields,
    )


def spectrogram_cases() -> Iterator[Case]:
    yield spectrogram_case("480 of 512", 1601, 480, 160, opsets=EVERY_OPSET)
    yield spectrogram_case("magnitudes", 1601, 480, 160, squared=False)
    yield spectrogram_case("640 of 1024", 1999, 640, 320)
    yield spectrogram_case("a power of two", 997, 256, 128)
    yield spectrogram_case("windows of few samples", 101, 13, 5)
    yield spectrogram_case("windows of two samples", 11, 2, 3)
    yield spectrogram_case("window length not divisible by 4", 1009, 137, 59)
    yield spectrogram_case("a long window", 5003, 2311, 701)
    yield spectrogram_case("a stride beyond the window", 997, 37, 53)
    yield spectrogram_case("one window", 480, 480, 160)
    yield spectrogram_case("fewer samples than a window", 479, 480, 160)
    yield spectrogram_case("three channels", 997, 202, 101, channels=3, opsets=EVERY_OPSET)
    yield spectrogram_case("dynamic samples", None, 97, 31, dynamic_sizes=(96, 97, 499), opsets=EVERY_OPSET)
    yield spectrogram_case(
        "dynamic samples with a stride beyond the window", None, 97, 211, dynamic_sizes=(97, 307, 308, 499)
    )
    yield spectrogram_case("dynamic samples and channels", None, 97, 31, channels=None, dynamic_sizes=(211, 499))
    yield spectrogram_case("default magnitude options", 997, 97, 31, without=("magnitude_squared",))
    yield spectrogram_case("fractions as options", 997, 97.9, 31.9)
    yield spectrogram_case("a window of one sample", 997, 1, 31, refusal="fewer than 2 samples")
    yield spectrogram_case("no stride", 997, 97, 31, without=("stride",), refusal="strides below 1")


def cepstrum_case(name: str, options: Mapping[str, Any] = {}, rate: int | None = 16000, **case_fields: Any) -> Case:
    """Return an Mfcc case.

    ``channels`` and ``bins`` are popped from ``case_fields``. ``rate``: None for a graph input.
    """
    channels, spectrum_bins = case_fields.pop("channels", 1), case_fields.pop("bins", BINS)
    filters = {**FILTERS, **options}
    powers = Spec((channels, FRAMES, spectrum_bins), name="powers")
    amplitudes = random_array(channels or 2, FRAMES, spectrum_bins, seed=name)
    input_arrays: Any = {"powers": np.square(amplitudes)}
    rate_operand = Spec((1,), "int32", name="rate") if rate is None else constant(np.asarray([rate], np.int32))
    if rate is None:
        input_arrays = [{**input_arrays, "rate": np.asarray([hertz], np.int32)} for hertz in (16000, 8000, 44100, 6007)]
    result = Spec((channels, FRAMES, filters["dct_coefficient_count"]))
    case_fields = {"input_arrays": input_arrays, **case_fields}
    return in_isolation(MFCC, name, [powers, rate_operand], result, custom_options=filters, **case_fields)


def cepstrum_cases() -> Iterator[Case]:
    for rate, suffix in ((16000, ""), (None, ", rate at runtime")):
        yield cepstrum_case(f"default{suffix}", rate=rate, opsets=EVERY_OPSET)
        yield cepstrum_case(f"as many coefficients as filters{suffix}", {"dct_coefficient_count": 40}, rate)
        yield cepstrum_case(f"filters from 0 on{suffix}", {"lower_frequency_limit": 0}, rate)
        yield cepstrum_case(f"filters from within a bin{suffix}", {"lower_frequency_limit": 77}, rate)
        yield cepstrum_case(f"filters narrower than bins{suffix}", {"filterbank_channel_count": 151}, rate, bins=65)
        yield cepstrum_case(f"filters up to the last bin{suffix}", {"upper_frequency_limit": 8000}, rate)
        yield cepstrum_case(f"filters beyond the last bin{suffix}", {"upper_frequency_limit": 8040}, rate)
        yield cepstrum_case(f"fractions as limits{suffix}", {"lower_frequency_limit": 93.9}, rate)
        yield cepstrum_case(f"two channels{suffix}", rate=rate, channels=2)
    silence = {"powers": np.zeros((1, FRAMES, BINS), np.float32)}
    yield cepstrum_case("silence", input_arrays=silence)
    for rate, suffix in ((16000, ""), (None, ", rate at runtime")):
        input_arrays = {"powers": powers_outside_filters(), **({} if rate else {"rate": np.asarray([16000], np.int32)})}
        yield cepstrum_case(f"only omitted options{suffix}", {}, rate, input_arrays=input_arrays)
    yield cepstrum_case("dynamic channels", channels=None, dynamic_sizes=())
    yield cepstrum_case("a rate of 0", rate=0, refusal="requires a positive rate")
    yield cepstrum_case(
        "more coefficients than filters", {"dct_coefficient_count": 41}, refusal="LiteRT's kernel computes 1 to"
    )
    yield cepstrum_case("descending limits", {"upper_frequency_limit": 20}, refusal="requires 0 <= lower < upper")


def powers_outside_filters() -> Array:
    """Return powers, some infinite, at frequencies that no filter uses."""
    powers = np.zeros((1, FRAMES, BINS), np.float32)
    powers[..., 0], powers[..., 129:] = np.inf, -3
    return powers


def signal_cases() -> Iterator[Case]:
    """Yield cases of silence, and of tones with quiet frequencies.

    The short tone repeats 0, 1, 0, -1. Its spectrum is 0 at other frequencies. A value there exceeds the floor of the
    logarithm only if an intermediate result was rounded to float32.
    """
    time = np.arange(1601, dtype=np.float64)[:, np.newaxis]
    inputs = {"a tone": np.sin(0.3 * time), "a short tone": np.round(np.sin(np.pi / 2 * time)), "silence": 0 * time}
    for op in (SPECTROGRAM, MFCC):
        for name, samples in inputs.items():
            input_arrays = {"samples": samples.astype(np.float32)}
            window = 512 if "short" in name else 480
            yield net(
                op, f"{name}, spectrum and cepstrum", partial(mfcc_of_audio, window=window), input_arrays=input_arrays
            )


def mfcc_of_audio(model: Net, window: int) -> None:
    options = {"window_size": window, "stride": 160, "magnitude_squared": True}
    count = frame_count(1601, window, 160)
    powers = model.call(SPECTROGRAM, [Spec((1601, 1), name="samples")], Spec((1, count, BINS)), custom_options=options)
    rate = constant(np.asarray(16000, np.int32))
    model.output(model.call(MFCC, [powers, rate], Spec((1, count, 13)), custom_options=dict(FILTERS)))
