"""Arguments of ``verify`` and ``bench``: reading of both models, and checks."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from onnx_tflite_plugin.checked import describe, find_mismatch, format_shape, has_type, plural
from onnx_tflite_plugin.errors import InvalidInputs, InvalidOnnx
from onnx_tflite_plugin.options import positions_as_text
from onnx_tflite_plugin.source import Source, check_format, check_source, read_bytes
from onnx_tflite_plugin.source.schema import IDENTIFIER
from onnx_tflite_plugin.verify.inputs.user_data import describe_unknown_input
from onnx_tflite_plugin.verify.model_pair import ModelPair

if TYPE_CHECKING:
    from onnx import ModelProto

    from onnx_tflite_plugin.verify.runtimes.structure import Entry

MAX_ELEMENTS = 2**27
"""Maximum number of elements in the inputs and outputs of all runs. Three runs with 173 million elements take 69 s, mostly for
copies between processes.
"""
_SHAPES = Mapping[str, Sequence[int]]


def read_tflite(tflite: Source) -> bytes:
    """Return the content of a TFLite model.

    Raises InvalidModel if the content does not have the identifier of TFLite.
    """
    check_source(tflite)
    check_format(tflite)
    return read_bytes(tflite)


def check_order(tflite: object, onnx: object) -> None:
    """Raise InvalidOnnx if the two models are swapped."""
    if _is_tflite(onnx) and _is_tflite(tflite) is False:
        name = "the second model" if isinstance(onnx, bytes) else onnx
        raise InvalidOnnx(f"{name} is a TFLite model; give the TFLite model first and the ONNX model second")


def _is_tflite(model: object) -> bool | None:
    """True if a file or content begins like a TFLite model; None for another type."""
    if isinstance(model, str | os.PathLike) and os.path.isfile(model):
        with open(model, "rb") as file:
            model = file.read(8)
    return model[4:8] == IDENTIFIER if isinstance(model, bytes) else None


def onnx_source(onnx: Any) -> ModelProto | bytes | Path:
    """Return the path, content or ModelProto of an ONNX model or a conversion.

    Raises TypeError for other types.
    """
    if isinstance(onnx, str | os.PathLike):
        return Path(onnx)
    proto = getattr(onnx, "proto", onnx)
    if not isinstance(proto, bytes) and not hasattr(proto, "SerializeToString"):
        raise TypeError(f"onnx is {type(onnx).__name__}; pass a path, bytes, a ModelProto or a Conversion")
    return proto  # type: ignore[no-any-return]


def check_arguments(signature: object, bisect: object, seed: object, runs: object) -> None:
    """Raise TypeError or ValueError for invalid values of these arguments."""
    if not isinstance(signature, str | None):
        raise TypeError(f"signature is {describe(signature)}; give the key of a signature")
    if not isinstance(bisect, str | os.PathLike | None):
        raise TypeError(f"bisect is {describe(bisect)}; give the path of a folder")
    if isinstance(seed, int) and seed < 0:
        raise ValueError(f"seed is {seed}; give 0 or more")
    if isinstance(runs, int) and runs < 1:
        raise ValueError(f"runs is {runs}; give 1 or more")


def check_shapes(shapes: object) -> Mapping[str, Sequence[int]] | None:
    """Return the shapes by input; positions of inputs become text.

    Raises TypeError if ``shapes`` is not a mapping of shapes by input.
    """
    by_name = positions_as_text(shapes)
    for name, shape in by_name.items() if isinstance(by_name, Mapping) else ():
        if has_type(shape, Sequence[int]) and min(shape, default=0) < 0:
            raise InvalidInputs(f"shapes[{name!r}] is {shape}; give sizes of 0 or more")
    if by_name is None or has_type(by_name, _SHAPES):
        return cast(Mapping[str, Sequence[int]] | None, by_name)
    key, wrong_value = find_mismatch(by_name, _SHAPES)
    raise TypeError(
        f"shapes{key} is {describe(wrong_value)}; give a shape for each input, such as {{0: (1, 224, 224, 3)}}"
    )


def check_fit(shapes: Mapping[str, Sequence[int]], pair: ModelPair) -> None:
    """Raise InvalidInputs for an unknown input, or a shape that the model refuses."""
    for name in shapes:
        if name not in pair.entry.input_names:
            raise InvalidInputs(f"shapes: {describe_unknown_input(pair.entry, name)}")
    for tensor, name in zip(pair.sizes.as_converted().inputs, pair.entry.input_names, strict=True):
        if name not in shapes or not tensor.rank:  # old converters stored [] for any shape
            continue
        shape = tuple(shapes[name])
        subject = f"shapes[{name!r}] is {shape}"
        dims = format_shape(tensor.dims)
        if len(shape) != tensor.rank:
            size_count = plural(len(shape), "size")
            raise InvalidInputs(f"{subject}: {size_count}, but the input has {tensor.rank} axes, {dims}")
        if any(model_size not in (None, size) for size, model_size in zip(shape, tensor.dims, strict=True)):
            raise InvalidInputs(
                f"{subject}, but the input is {dims} in the ONNX model; only sizes shown as ? may differ"
            )


def affordable_runs(entry: Entry, runs: int) -> int:
    """Return ``runs``, or fewer if all runs together exceed MAX_ELEMENTS elements."""
    size = sum(prod(n or 1 for n in tensor.dims) for tensor in (*entry.inputs, *entry.outputs))
    return max(1, min(runs, MAX_ELEMENTS // max(size, 1)))
