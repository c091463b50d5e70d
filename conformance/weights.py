"""Weights, biases and results of layers, with scales that use the full range."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from conformance.builder import TensorRef, blockwise
from conformance.case import Case
from conformance.models import Net, Spec, constant, random_array

INT8_DEVIATION = 74.0  # standard deviation of uniform int8 values over the full range
SUB_BYTE_DEVIATIONS = {"int4": 4.3, "int2": 1.1}
WEIGHTS = {"float32": "float32", "int8": "int8", "uint8": "uint8", "int16": "int8"}
ROUNDED = (
    "kernels round float activations to 8 bits before they multiply integer weights, but some targets do not. The error grows "
    "with the terms of a sum, so it may exceed 0.02 of the range if terms cancel or an activation clips the sum"
)
"""Reason for known differences of results that are computed with integer weights."""
BIASES = {"float32": "float32", "int8": "int32", "uint8": "int32", "int16": "int64"}


def column_of(dtype: str, weights: str | None) -> str:
    """Return the column of the support table that counts a layer.

    It is the dtype of the weights if they are int4 or int2, otherwise the dtype of the activations.
    """
    return weights if weights in ("int4", "int2") else dtype


def weight(shape: Sequence[int], dtype: str, per_axis: int | None = None, seed: str = "w") -> Spec:
    """Return random weights.

    Integers have one scale. If ``per_axis`` is an axis, they have scales along this axis, which differ by up to a factor of
    four.
    """
    if dtype == "float32":
        return constant(random_array(*shape, seed=seed))
    values = random_array(*shape, dtype=dtype, seed=seed, low={"int4": -7, "int2": -2, "uint8": 0}.get(dtype, -127))
    zero_point = 119 if dtype == "uint8" else 0
    scale = {"int4": 0.17, "int2": 0.61}.get(dtype, 0.013)
    if per_axis is None:
        return constant(values, None, scale, zero_point)
    scales = (scale * random_array(shape[per_axis], seed="scales", low=0.4, high=1.6)).tolist()
    return constant(values, None, scales, 0, per_axis)


def product(x: Spec, w: Spec, shape: Sequence[int | None], depth: int, zero_point: int | None = None) -> Spec:
    """Return the spec of the result of a layer with input ``x`` and weights ``w``.

    Its scale is chosen for sums of ``depth`` products.
    """
    if x.scale is None:
        return Spec(tuple(shape))
    deviation = SUB_BYTE_DEVIATIONS.get(w.dtype, INT8_DEVIATION)
    scale = float(np.asarray(x.scale)) * float(np.mean(np.asarray(w.scale))) * np.sqrt(depth) * deviation * 3
    if x.dtype == "int16":
        return Spec(tuple(shape), "int16", scale * 256 / 2, 0)
    return Spec(tuple(shape), x.dtype, scale, (-11 if x.dtype == "int8" else 109) if zero_point is None else zero_point)


def bias(x: Spec, w: Spec, channels: int, dtype: str, depth: int, scale_factor: float = 1.0) -> Spec:
    """Return a random bias with the magnitude of a sum of ``depth`` products.

    ``dtype``: dtype of an integer bias. ``scale_factor``: multiplies the scale in the file, which is then wrong. The
    kernels ignore this scale.
    """
    if x.scale is None:
        return constant(random_array(channels, seed="b"))
    scales = np.broadcast_to(float(np.asarray(x.scale)) * np.asarray(w.scale), (channels,))
    deviation = (
        INT8_DEVIATION
        * SUB_BYTE_DEVIATIONS.get(w.dtype, INT8_DEVIATION)
        * np.sqrt(depth)
        * (256 if x.dtype == "int16" else 1)
    )
    values = (random_array(channels, seed="b", low=-1, high=1) * deviation).astype(dtype)
    stored_scales = scales * scale_factor if isinstance(w.scale, Sequence) else scales[:1] * scale_factor
    return constant(values, None, stored_scales.tolist())


def block_weights(model: Net, shape: Sequence[int], size: int, dtype: str = "int4", flat: bool = False) -> TensorRef:
    """Add random blockwise weights: each ``size`` elements of a row have one scale.

    ``flat``: True to store the scales as a tensor of rank 1.
    """
    *outer, depth = shape
    block_scales = random_array(*outer, depth // size, dtype="float16", seed="scales", low=0.05, high=0.2)
    ref = model.graph.constant("scales", block_scales.reshape(-1) if flat else block_scales)
    return model.graph.constant("blocks", random_array(*shape, dtype=dtype), quantization=blockwise(ref, size))


def fold_weights(case: Case) -> Case:
    """Return the case, converted with weights folded to floats.

    Every opset supports such models.
    """
    return replace(case, name=f"{case.name}, folded", options={"weights": "fold"}, opsets=(None, 13))


def describe_scales(per_axis: bool) -> str:
    """Return a description of the scales, for the name of a case."""
    return "with a scale each" if per_axis else "with one scale"
