"""Spectra in audio models, and TensorFlow's speech commands example."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from conformance.case import Case
from conformance.cases.custom.audio import FILTERS, MFCC, SPECTROGRAM, frame_count
from conformance.models import Net, Spec, constant, net, random_array, tensor


def cases() -> Iterator[Case]:
    for name, x in (("spectra", tensor(2, 5, 16)), ("spectra of a dynamic number of windows", tensor(2, None, 16))):
        for op in ("SQUEEZE", "RESHAPE"):
            yield net("RFFT2D", f"{name}, {op}", spectrum(x, op), opsets=(None, 17, 20, 26))
    x = tensor(None, None, 16)
    yield net("RFFT2D", "spectra of dynamic shape, SQUEEZE", spectrum(x, "SQUEEZE"), opsets=(None, 17, 20, 26))
    rates = [{"rate": np.asarray([rate], np.int32)} for rate in (16000, 8000, 22050)]
    yield net(
        MFCC, "speech commands", speech_commands, input_arrays=rates, opsets=(None, 13, 20), nodes=["Conv", "MatMul"]
    )
    yield net(MFCC, "speech commands without stored shapes", without_shapes, input_arrays=rates)


def spectrum(x: Spec, code: str) -> Callable[[Net], None]:
    """Return a builder of the spectra of windows ``[n, t, 16]``.

    RFFT2D transforms them as images of height 1; ``code`` is the operator that removes the height of the complex result.
    """

    def build(model: Net) -> None:
        n, t, _ = x.shape
        images = model.call("EXPAND_DIMS", [x, constant(-2)], x.with_shape(n, t, 1, 16))
        lengths = constant(np.array([1, 16], np.int32))
        spectra = model.call("RFFT2D", [images, lengths], tensor(n, t, 1, 9, dtype="complex64"))
        flat_spec = tensor(n, t, 9, dtype="complex64")
        if code == "SQUEEZE":
            flat_ref = model.call("SQUEEZE", [spectra], flat_spec, squeeze_dims=(-2,))
        else:
            flat_ref = model.call("RESHAPE", [spectra, constant([n or -1, t or -1, 9])], flat_spec)
        model.output(model.call("COMPLEX_ABS", [flat_ref], tensor(n, t, 9)))

    return build


def speech_commands(model: Net) -> None:
    """Build the graph from samples and sample rate to word probabilities.

    Convolutions read the MFCC as an image.
    """
    window, stride, coefficients, words = 320, 160, 11, 5
    count = frame_count(3001, window, stride)
    options = {"window_size": window, "stride": stride, "magnitude_squared": True}
    powers = model.call(SPECTROGRAM, [Spec((3001, 1))], Spec((1, count, 257)), custom_options=options)
    filters = {**FILTERS, "dct_coefficient_count": coefficients}
    rate = Spec((1,), "int32", name="rate")
    cepstra = model.call(MFCC, [powers, rate], Spec((1, count, coefficients)), custom_options=filters)
    image = model.call("RESHAPE", [cepstra, constant([-1, count, coefficients, 1])], Spec((1, count, coefficients, 1)))
    scale = np.float32(0.1)
    kernel, bias = constant(scale * random_array(1, 7, 3, 13)), constant(random_array(13))
    conv_options = {"padding": "SAME", "stride_w": 1, "stride_h": 1, "fused_activation_function": "RELU"}
    convolved = model.call(
        "DEPTHWISE_CONV_2D",
        [image, kernel, bias],
        Spec((1, count, coefficients, 13)),
        depth_multiplier=13,
        **conv_options,
    )
    height, width = -(-count // 2), -(-coefficients // 2)
    pool = {"padding": "SAME", "stride_w": 2, "stride_h": 2, "filter_width": 2, "filter_height": 2}
    pooled = model.call("MAX_POOL_2D", [convolved], Spec((1, height, width, 13)), **pool)
    kernel, bias = constant(scale * random_array(3, 5, 2, 13)), constant(random_array(3))
    convolved = model.call("CONV_2D", [pooled, kernel, bias], Spec((1, height, width, 3)), **conv_options)
    weights = constant(scale * random_array(words, height * width * 3)), constant(random_array(words))
    logits = model.call("FULLY_CONNECTED", [convolved, *weights], Spec((1, words)))
    model.output(model.call("SOFTMAX", [logits], Spec((1, words)), beta=1.0))


def without_shapes(model: Net) -> None:
    """Build the same graph without stored result shapes, as old converters write it."""
    speech_commands(model)
    model.remove_rank(*{ref for table in model.graph.operators for ref in table.fields["outputs"]})
