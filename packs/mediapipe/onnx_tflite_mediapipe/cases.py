"""Conformance cases: models that convert, and models that are refused."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import numpy as np

from conformance.case import Case
from conformance.models import PLACEMENTS, Net, Placement, constant, in_isolation, net, random_array, tensor

SAME, VALID = 1, 2


def cases() -> Iterator[Case]:
    yield from convolution_cases()
    yield from pooling_cases()
    yield from unpooling_cases()
    yield from sampling_cases()
    yield from landmark_cases()
    yield from matrix_cases()


# --- Convolution2DTransposeBias ---------------------------------------------------------------


def convolution_cases() -> Iterator[Case]:
    op = "CUSTOM.Convolution2DTransposeBias"

    def conv_case(name: str, padding: int, strides: tuple[int, int], kernel: tuple[int, int], place: Placement = in_isolation,
                  x: tuple[int | None, ...] = (2, 5, 7, 3), version: bytes = b"", **case_fields: Any) -> Case:  # fmt: skip
        weights, bias = constant(random_array(11, *kernel, 3)), constant(random_array(11))
        sizes = []
        for size, length, step in zip((5, 7), kernel, strides, strict=True):
            cropped = max(0, length - (size - 1) % step - 1) if padding == SAME else 0
            sizes.append(step * (size - 1) + length - cropped)
        y = tensor(x[0], *sizes, 11)
        options = struct.pack("<3i", padding, strides[1], strides[0]) + version
        return place(op, name, [tensor(*x), weights, bias], y, custom_options=options, **case_fields)

    for place in PLACEMENTS:
        yield conv_case("same", SAME, (2, 3), (3, 5), place, nodes={"ConvTranspose": 1})
        yield conv_case("valid", VALID, (3, 2), (5, 2), place)
        yield conv_case("same, strides longer than the filter", SAME, (5, 3), (2, 2), place)
    yield conv_case("same, stride 1", SAME, (1, 1), (3, 5))
    yield conv_case("two by two, as at the end of segmentation networks", SAME, (2, 2), (2, 2), version=bytes(8))
    yield conv_case("dynamic batch", VALID, (2, 2), (3, 2), x=(None, 5, 7, 3))
    yield conv_case("no padding", 0, (2, 2), (3, 2), refusal="the kernel supports 1 (SAME) and 2 (VALID)")
    short_options: dict[str, Any] = {"custom_options": b"\1\0\0\0", "refusal": "but the kernel reads 12"}
    yield in_isolation(
        op,
        "short options",
        [tensor(1, 5, 7, 3), constant(random_array(2, 3, 3, 3)), constant(random_array(2))],
        tensor(1, 7, 9, 2),
        **short_options,
    )


# --- pooling ----------------------------------------------------------------------------------


def pool_params(padding: int, strides: tuple[int, int], size: tuple[int, int], activation: int = 0) -> bytes:
    """Return ``TfLitePoolParams``, in which width precedes height.

    Sizes and strides are given as (height, width).
    """
    return struct.pack("<6i", padding, *strides[::-1], *size[::-1], activation) + bytes(16)


def pooling_cases() -> Iterator[Case]:
    op = "CUSTOM.MaxPoolingWithArgmax2D"
    for place in PLACEMENTS:
        for name, padding, strides, size in (
            ("same", SAME, (2, 3), (3, 2)),
            ("valid", VALID, (1, 2), (2, 3)),
            ("same, overlapping", SAME, (1, 1), (3, 5)),
        ):
            counts = [
                -(-n // s) if padding == SAME else (n - k + s) // s
                for n, k, s in zip((5, 7), size, strides, strict=True)
            ]
            y = tensor(2, *counts, 3)
            yield place(
                op,
                name,
                [tensor(2, 5, 7, 3)],
                y,
                y,
                custom_options=pool_params(padding, strides, size),
                nodes=["MaxPool"],
            )
    y = tensor(2, 2, 3, 3)
    for name, activation in (("relu", 1), ("relu -1 to 1", 2), ("relu6", 3), ("tanh, which the kernel ignores", 4)):
        options = pool_params(VALID, (2, 2), (2, 2), activation)
        yield in_isolation(op, name, [tensor(2, 5, 7, 3)], y, y, custom_options=options, input_range=(-9.0, 9.0))
    zero_inputs: dict[str, Any] = {"input_arrays": {"x0": np.zeros((2, 5, 7, 3), np.float32)}}
    yield in_isolation(
        op,
        "the first of equal elements",
        [tensor(2, 5, 7, 3)],
        y,
        y,
        custom_options=pool_params(VALID, (2, 2), (2, 2)),
        **zero_inputs,
    )
    dynamic_fields: dict[str, Any] = {
        "custom_options": pool_params(VALID, (2, 2), (2, 2)),
        "refusal": "depend on the image's size",
    }
    yield in_isolation(
        op,
        "dynamic sizes",
        [tensor(1, None, None, 3)],
        tensor(1, None, None, 3),
        tensor(1, None, None, 3),
        **dynamic_fields,
    )


def unpooling_cases() -> Iterator[Case]:
    op = "CUSTOM.MaxUnpooling2D"
    options = pool_params(VALID, (2, 3), (2, 3))
    indices = np.random.default_rng(3).integers(0, 6, (2, 5, 7, 11)) + np.float32(0.1)
    x, y = tensor(2, 5, 7, 11), tensor(2, 10, 21, 11)
    input_arrays = {"x1": indices.astype(np.float32)}
    fields: dict[str, Any] = {"custom_options": options, "input_arrays": input_arrays, "nodes": {"MaxUnpool": 1}}
    yield in_isolation(op, "indices as an input", [x, tensor(2, 5, 7, 11)], y, **fields)

    def pool_and_unpool(model: Net) -> None:
        """Build a pooling and its unpooling between convolutions."""
        image = model.input_through_conv(tensor(2, 10, 21, 3))
        small = tensor(2, 5, 7, 3)
        pooled, indices = model.call_multi_output(
            "CUSTOM.MaxPoolingWithArgmax2D", [image], small, small, custom_options=options
        )
        model.output(
            model.output_through_conv(model.call(op, [pooled, indices], tensor(2, 10, 21, 3), custom_options=options))
        )

    yield net(
        op, "after the pooling, between convolutions", pool_and_unpool, max_transposes=2, nodes=["MaxPool", "MaxUnpool"]
    )
    overlapping_fields: dict[str, Any] = {
        "custom_options": pool_params(SAME, (1, 1), (2, 2)),
        "refusal": "elements have no single position",
    }
    yield in_isolation(op, "overlapping windows", [x, x], tensor(2, 10, 14, 11), **overlapping_fields)


# --- affine maps ------------------------------------------------------------------------------


def affine(angle: float, scale: float, x: float, y: float) -> np.ndarray[Any, np.dtype[np.float32]]:
    matrix = np.eye(4, dtype=np.float32)
    matrix[:2, :2] = scale * np.asarray([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    matrix[:2, 3] = x, y
    return matrix


def sampling_cases() -> Iterator[Case]:
    op = "CUSTOM.TransformTensorBilinear"
    options = {"mode": "bilinear", "output_height": 5, "output_width": 13}
    maps = {
        "identity": (0.0, 1.0, 0.0, 0.0),
        "shrunk": (0.0, 0.5, 1.3, 2.1),
        "rotated": (0.7, 0.9, 4.0, -1.7),
        "outside the image": (0.0, 1.0, 99.0, 0.0),
    }
    image, matrix, result = tensor(1, 7, 11, 3), tensor(1, 4, 4), tensor(1, 5, 13, 3)
    matrix_transposes = 2  # Transposes of the matrix
    for name, parameters in maps.items():
        input_arrays = {"x1": affine(*parameters)[None]}
        for place in PLACEMENTS:
            fields: dict[str, Any] = {
                "custom_options": options,
                "version": 2,
                "input_arrays": input_arrays,
                "max_transposes": 2 + matrix_transposes,
            }
            yield place(op, name, [image, matrix], result, **fields)
    refused_fields: dict[str, Any] = {"custom_options": options, "version": 1, "refusal": "only has version 2 kernels"}
    yield in_isolation(op, "the first version", [image, matrix], result, **refused_fields)


def landmark_cases() -> Iterator[Case]:
    op = "CUSTOM.TransformLandmarks"
    for size in (2, 3):
        yield case_of_version_2(
            op, f"{size} coordinates", [tensor(1, 17, size), tensor(1, 4, 4)], tensor(1, 17, size), {}
        )
    yield case_of_version_2(
        op,
        "several batches",
        [tensor(2, 17, 3), tensor(1, 4, 4)],
        tensor(2, 17, 3),
        {},
        refusal="[1, N, 2] or [1, N, 3]",
    )


def matrix_cases() -> Iterator[Case]:
    op = "CUSTOM.Landmarks2TransformMatrix"
    options = {
        "subset_idxs": [0, 3, 5, 7, 11], "left_rotation_idx": 2, "right_rotation_idx": 13, "output_height": 96,
        "output_width": 64, "scale_x": 1.5, "scale_y": 1.25, "target_rotation_radians": 0.0,
    }  # fmt: skip
    x, y = tensor(1, 17, 3), tensor(1, 4, 4)
    yield case_of_version_2(op, "upright", [x], y, options)
    yield case_of_version_2(op, "rotated", [x], y, {**options, "target_rotation_radians": 1.1})
    coincident = np.repeat(random_array(1, 1, 3), 17, axis=1) * np.ones((1, 17, 1), np.float32)
    yield case_of_version_2(op, "landmarks at one point", [x], y, options, input_arrays={"x0": coincident})
    backwards = random_array(1, 17, 3)
    backwards[0, 2, 0], backwards[0, 13, 0] = 5, -5  # a rotation by more than 90 degrees
    yield case_of_version_2(op, "upside down", [x], y, options, input_arrays={"x0": backwards})
    yield case_of_version_2(op, "no scale", [x], y, {**options, "scale_x": 0.0}, refusal="not all positive")
    yield case_of_version_2(
        op,
        "landmark index out of range",
        [x],
        y,
        {**options, "left_rotation_idx": 17},
        refusal="the options name landmarks",
    )
    incomplete = {name: value for name, value in options.items() if name != "scale_y"}
    yield case_of_version_2(op, "missing option", [x], y, incomplete, refusal="the options lack scale_y")


def case_of_version_2(op: str, name: str, inputs: Any, output: Any, options: Any, **case_fields: Any) -> Case:
    """Return a case of one operator of version 2."""
    return in_isolation(op, name, inputs, output, custom_options=options, version=2, **case_fields)
