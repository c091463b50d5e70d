"""Settings of random inputs to try until LiteRT runs the model."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import NamedTuple

from onnx_tflite_plugin.verify.inputs.random_inputs import Restriction, has_wide_integers
from onnx_tflite_plugin.verify.inputs.sizes import InputSizes

_IMAGE_SIZE = 64  # for dynamic sizes that the file stores as 1, if the model does not run with the stored sizes
_AUDIO_SIZE = 2048  # for dynamic sizes of audio, because models need a window of at least some 500 samples
_MAX_ELEMENTS = 2**23  # maximum of an input; allows two dynamic dimensions of these sizes, but not three


class Attempt(NamedTuple):
    """Settings of random inputs.

    ``min_dynamic_size``: minimum of dynamic sizes, except for axis 0.
    """

    restriction: Restriction = "none"
    min_dynamic_size: int = 0


_ATTEMPTS = (
    Attempt(),
    Attempt("nonzero"),
    Attempt("positive"),
    Attempt("ones"),
    Attempt("zeros"),
    Attempt(min_dynamic_size=_IMAGE_SIZE),
    Attempt(min_dynamic_size=1),
    Attempt(min_dynamic_size=_AUDIO_SIZE),
)


def attempts(sizes: InputSizes, *, has_data: bool, has_shapes: bool) -> Iterator[Attempt]:
    """Yield the attempts that may change the inputs of a model.

    ``has_data``: the user gave inputs. ``has_shapes``: the user gave shapes.
    """
    for attempt in _ATTEMPTS:
        restricts_integers = attempt.restriction in ("nonzero", "positive")
        if restricts_integers and (has_data or not has_wide_integers(sizes.entry)):
            continue
        if attempt.min_dynamic_size and (has_data or has_shapes or not _is_applicable(sizes, attempt.min_dynamic_size)):
            continue
        yield attempt


def _is_applicable(sizes: InputSizes, min_dynamic_size: int) -> bool:
    """True if the minimum changes a shape, and no input becomes too large."""
    shapes = sizes.onnx_shapes(min_dynamic_size)
    is_too_large = min_dynamic_size == _AUDIO_SIZE and max(map(prod, shapes.values()), default=0) > _MAX_ELEMENTS
    return shapes != sizes.onnx_shapes(0) and not is_too_large
