"""BATCH_MATMUL: adjoints, broadcast batches, dtypes, images and attention."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from conformance.case import EVERY_OPSET, Case
from conformance.models import (
    PLACEMENTS,
    Net,
    Placement,
    Spec,
    between_convolutions,
    constant,
    in_isolation,
    net,
    random_array,
    tensor,
)
from conformance.weights import product, weight
from onnx_tflite_plugin.verify import Tolerance

IMAGE = (2, 5, 7, 3)
OP = "BATCH_MATMUL"
ADJOINTS = ((False, False), (True, False), (False, True), (True, True))


def cases() -> Iterator[Case]:
    yield from adjoint_cases()
    yield from broadcast_cases()
    yield from quantized_cases()
    yield from two_roundings_cases()
    yield from unscaled_int32_cases()
    yield from hybrid_cases()
    yield from image_cases()
    yield from chain_cases()
    yield from several_scales_cases()
    yield from refusal_cases()


def transpose_matrix(spec: Spec, is_adjoint: bool = True) -> Spec:
    """Return the spec with rows and columns swapped, as an adjoint is stored."""
    if not is_adjoint:
        return spec
    *batch, rows, columns = spec.shape
    value = None if spec.value is None else np.ascontiguousarray(np.swapaxes(spec.value, -1, -2))
    axis = {spec.axis: spec.axis, len(batch): len(batch) + 1, len(batch) + 1: len(batch)}[spec.axis]
    return replace(spec, shape=(*batch, columns, rows), value=value, axis=axis)


def matmul_case(
    name: str,
    x: Spec,
    w: Spec,
    adjoint: tuple[bool, bool] = (False, False),
    place: Placement = in_isolation,
    y: Spec | None = None,
    **case_fields: Any,
) -> Case:
    """Return a case of the product of ``x`` and ``w``.

    Adjoint operands are stored with rows and columns swapped.

    ``operator_options``: options of the operator other than ``adj_x`` and ``adj_y``.
    """
    options = {"adj_x": adjoint[0], "adj_y": adjoint[1], **case_fields.pop("operator_options", {})}
    full_name = name + "".join(f" {option}" for option, on in zip(("adj_x", "adj_y"), adjoint, strict=True) if on)
    return place(
        OP,
        full_name,
        [transpose_matrix(x, adjoint[0]), transpose_matrix(w, adjoint[1])],
        y or product_spec(x, w),
        options=options,
        **case_fields,
    )


def product_spec(x: Spec, w: Spec) -> Spec:
    """Return the spec of a product, with a scale that fits the range of the sums."""
    batch = np.broadcast_shapes(x.shape[:-2], w.shape[:-2])  # type: ignore[arg-type]
    rescaled = w.rescale(256.0) if w.dtype == "int16" else w
    return replace(product(x, rescaled, (*batch, x.shape[-2] or 1, w.shape[-1] or 1), x.shape[-1] or 1), name="")


def symmetric_weights(*shape: int, dtype: str = "int8", seed: str = "w") -> Spec:
    return weight(shape, dtype, seed=seed)


# --- shapes -----------------------------------------------------------------------------------


def adjoint_cases() -> Iterator[Case]:
    for adjoint in ADJOINTS:
        yield matmul_case("rank 2", tensor(5, 7), tensor(7, 3), adjoint, opsets=EVERY_OPSET)
        yield matmul_case("rank 3", tensor(2, 5, 7), tensor(2, 7, 3), adjoint)
        yield matmul_case("rank 5", tensor(2, 3, 2, 5, 7), tensor(2, 3, 2, 7, 3), adjoint)
        yield matmul_case("a constant of rank 2", tensor(5, 7), constant(random_array(7, 3)), adjoint)
        yield matmul_case("a constant of rank 3", tensor(2, 5, 7), constant(random_array(2, 7, 3)), adjoint)
        yield matmul_case("a constant first", constant(random_array(2, 5, 7)), tensor(2, 7, 3), adjoint)
        yield matmul_case("square", tensor(2, 5, 5), tensor(2, 5, 5), adjoint)
    yield matmul_case("one row", tensor(2, 1, 7), tensor(2, 7, 3))
    yield matmul_case("one column", tensor(2, 5, 7), tensor(2, 7, 1), (False, True))
    yield matmul_case("sums of one element", tensor(2, 5, 1), tensor(2, 1, 3))
    arrays = [{"x0": random_array(n, 5, 7), "x1": random_array(n, 7, 3)} for n in (1, 3)]
    yield matmul_case(
        "dynamic batch", tensor(None, 5, 7), tensor(None, 7, 3), y=tensor(None, 5, 3), input_arrays=arrays, runs=2
    )
    arrays = [{"x0": random_array(2, n, 7), "x1": random_array(2, 7, 3)} for n in (1, 5)]
    yield matmul_case(
        "dynamic rows", tensor(2, None, 7), tensor(2, 7, 3), y=tensor(2, None, 3), input_arrays=arrays, runs=2
    )


def broadcast_cases() -> Iterator[Case]:
    """Yield cases of batch shapes that broadcast."""
    pairs = (
        ((2, 3, 5, 7), (7, 3)),
        ((5, 7), (2, 3, 7, 3)),
        ((2, 3, 5, 7), (3, 7, 2)),
        ((2, 3, 5, 7), (1, 3, 7, 2)),
        ((2, 3, 5, 7), (2, 1, 7, 2)),
        ((1, 3, 5, 7), (2, 1, 7, 2)),
        ((3, 1, 5, 7), (2, 7, 2)),
        ((2, 3, 2, 5, 7), (3, 1, 7, 2)),
    )
    for x_shape, w_shape in pairs:
        for adjoint in ADJOINTS:
            yield matmul_case(f"{list(x_shape)} by {list(w_shape)}", tensor(*x_shape), tensor(*w_shape), adjoint)
        yield matmul_case(
            f"{list(x_shape)} by a constant {list(w_shape)}", tensor(*x_shape), constant(random_array(*w_shape))
        )
        x = tensor(*x_shape, dtype="int8")
        yield matmul_case(f"int8 {list(x_shape)} by {list(w_shape)}", x, tensor(*w_shape, dtype="int8", zero_point=9))


# --- dtypes -----------------------------------------------------------------------------------


def quantized_cases() -> Iterator[Case]:
    for dtype, w_dtype in (("int8", "int8"), ("int16", "int16"), ("int16", "int8")):
        opsets = EVERY_OPSET if dtype == "int8" else (None, 26)
        x, w = tensor(2, 5, 7, dtype=dtype), tensor(2, 7, 3, dtype=w_dtype)
        w = w if dtype == "int8" else replace(w, zero_point=0)
        for adjoint in ADJOINTS:
            yield matmul_case(f"{dtype} by {w_dtype}", x, w, adjoint, opsets=opsets)
            yield matmul_case(f"{dtype} by {w_dtype} constants", x, symmetric_weights(2, 7, 3, dtype=w_dtype), adjoint)
        yield matmul_case(f"{dtype} by {w_dtype} constants of rank 2", x, symmetric_weights(7, 3, dtype=w_dtype))
    x = tensor(2, 5, 7, dtype="int8")
    yield matmul_case("int8 by int8 constants with a zero point", x, replace(symmetric_weights(7, 3), zero_point=-11))
    yield matmul_case(
        "int8 constants by int8", replace(symmetric_weights(5, 7), zero_point=-11), tensor(7, 3, dtype="int8")
    )


def two_roundings_cases() -> Iterator[Case]:
    """Yield cases of int8 sums, which the kernel rounds twice.

    The kernel rounds to fractions of a step, and then to steps. If the scale ratio is a power of two, both roundings may
    be ties.
    """
    reason = "the kernel multiplies and rounds in fixed point"
    exact: dict[str, Any] = {"tolerance": Tolerance(steps=0), "tolerance_reason": reason, "targets": ("onnxruntime",)}
    x, w = (tensor(*shape, dtype="int8", scale=2.0**-6) for shape in ((3, 37, 19), (3, 19, 41)))
    for divisor in (3, 8, 100, 128, 1111, 4096):
        name = f"int8 with an output step of {divisor} product steps"
        yield matmul_case(name, x, w, y=replace(product_spec(x, w), scale=divisor * 2.0**-12), **exact)


def unscaled_int32_cases() -> Iterator[Case]:
    """Yield int8 products with int32 results.

    The kernel ignores scales and zero points.
    """
    for scale in (None, 0):
        suffix = "" if scale is None else " without scales"
        x, w = tensor(2, 5, 7, dtype="int8", scale=scale), tensor(2, 7, 3, dtype="int8", scale=scale)
        result = tensor(2, 5, 3, dtype="int32")
        for adjoint in ADJOINTS:
            yield matmul_case(f"int8 to int32{suffix}", x, w, adjoint, y=result, opsets=EVERY_OPSET)
        weights = constant(
            random_array(7, 3, dtype="int8"), None, None if scale == 0 else 0.02, 0 if scale == 0 else -7
        )
        yield matmul_case(f"int8 by constants to int32{suffix}", x, weights, y=result)
    image = tensor(*IMAGE, dtype="int8")
    weights = constant(random_array(3, 4, dtype="int8"), None, 0.02, -7)
    yield matmul_case(
        "int8 to int32",
        image,
        weights,
        y=tensor(2, 5, 7, 4, dtype="int32"),
        place=between_convolutions,
        max_transposes=2,
    )


def hybrid_cases() -> Iterator[Case]:
    """Yield products of float32 and int8.

    The kernel quantizes the floats at runtime; the converter dequantizes the weights instead.
    """
    for adjoint in ADJOINTS:
        for per_axis in (None, 1):
            w = weight((7, 3), "int8", per_axis)
            name = "float32 by int8 constants" + ("" if per_axis is None else " with scales per column")
            yield matmul_case(name, tensor(2, 5, 7), w, adjoint)
    yield matmul_case(
        "float32 by int8 constants, asymmetric activations",
        tensor(5, 7),
        weight((7, 3), "int8"),
        operator_options={"asymmetric_quantize_inputs": True},
    )
    yield matmul_case("float32 by int8 constants in batches", tensor(2, 5, 7), weight((2, 7, 3), "int8", 2))
    # XNNPACK returns zeros, so NumPy computes the expected outputs.
    columns = tensor(7, 3, dtype="int8", zero_point=0)
    numpy_reference: dict[str, Any] = {
        "reference": lambda arrays: [arrays[0] @ (arrays[1] * np.float32(0.047))],
        "tolerance": Tolerance(of_range=1e-5),
        "tolerance_reason": "nothing is rounded",
    }
    yield matmul_case("float32 by an int8 graph input", tensor(5, 7), columns, **numpy_reference)
    yield matmul_case(
        "float32 by int8 constants",
        tensor(*IMAGE),
        weight((3, 4), "int8", 1),
        place=between_convolutions,
        max_transposes=4,
    )


# --- layouts ----------------------------------------------------------------------------------


def image_cases() -> Iterator[Case]:
    """Yield cases of products along the channels of an image."""
    for dtype in ("float32", "int8", "int16"):
        x = tensor(*IMAGE, dtype=dtype)
        second_image = replace(tensor(2, 5, 11, 3, dtype=dtype), zero_point=0)
        for place in PLACEMENTS:
            yield matmul_case(
                f"{dtype} image by constants",
                x,
                weight((3, 4), "float32" if dtype == "float32" else "int8"),
                place=place,
                **transpose_limit(place, 4),
            )
            yield matmul_case(
                f"{dtype} image by image",
                x,
                transpose_matrix(second_image),
                (False, True),
                place,
                **transpose_limit(place, 6),
            )
            columns = replace(second_image, shape=(2, 5, 7, 11))
            yield matmul_case(
                f"{dtype} image by image",
                transpose_matrix(x),
                columns,
                (True, True),
                place,
                **transpose_limit(place, 6),
            )


def transpose_limit(place: Placement, transposes: int) -> dict[str, Any]:
    """Return the limit of Transpose nodes between convolutions; no limit in isolation."""
    return {"max_transposes": transposes} if place is between_convolutions else {}


def chain_cases() -> Iterator[Case]:
    yield net(OP, "between swapped batches", build_swapped_batches, max_transposes=0)
    for dtype in ("float32", "int8", "int16"):
        yield net(OP, f"{dtype} after a flatten", flatten_then_multiply(dtype), dtype=dtype, max_transposes=1)
        yield net(
            OP, f"{dtype} between TRANSPOSE", attention_with_transposed_heads(dtype), dtype=dtype, max_transposes=4
        )


def build_swapped_batches(model: Net) -> None:
    """Build a product between swaps of two batch axes, which must all be removed."""
    x, w = (
        model.call("TRANSPOSE", [tensor(3, 2, *matrix), constant([1, 0, 2, 3])], tensor(2, 3, *matrix))
        for matrix in ((5, 7), (7, 11))
    )
    model.output(
        model.call(
            "TRANSPOSE", [model.call(OP, [x, w], tensor(2, 3, 5, 11)), constant([1, 0, 2, 3])], tensor(3, 2, 5, 11)
        )
    )


def flatten_then_multiply(dtype: str) -> Callable[[Net], None]:
    """Return a builder of a product of a flattened channels-first image.

    The case fails if the rows of the constant are not permuted to the layout of the image.
    """

    def build(model: Net) -> None:
        image = tensor(*IMAGE, dtype=dtype)
        flat = image.with_shape(2, prod(IMAGE[1:]))
        x = model.call("RESHAPE", [model.input_through_conv(image), constant([2, 105])], flat)
        w = weight((105, 4), "float32" if dtype == "float32" else "int8")
        model.output(model.call(OP, [x, w], product_spec(flat, w)))

    return build


def attention_with_transposed_heads(dtype: str) -> Callable[[Net], None]:
    """Return a builder of attention that transposes heads.

    The adjoint of the keys must be merged with the Transpose of their heads.
    """

    def build(model: Net) -> None:
        query, key, value = (model.input(spec) for spec in head_specs(dtype))
        heads_first = [swap_sequence_and_heads(model, ref) for ref in (query, key, value)]
        scores = product_spec(model.spec(heads_first[0]), transpose_matrix(model.spec(heads_first[1])))
        weights = model.call(OP, heads_first[:2], scores, adj_y=True)
        result = model.call(OP, [weights, heads_first[2]], product_spec(scores, model.spec(heads_first[2])))
        model.output(swap_sequence_and_heads(model, result))

    return build


def head_specs(dtype: str) -> Sequence[Spec]:
    """Return specs of (batch, sequence, heads, depth)."""
    return [replace(tensor(2, size, 3, 11, dtype=dtype), zero_point=0) for size in (5, 7, 7)]


def swap_sequence_and_heads(model: Net, ref: Any) -> Any:
    spec = replace(model.spec(ref), name="")
    batch, sequence, heads, depth = spec.shape
    return model.call("TRANSPOSE", [ref, constant([0, 2, 1, 3])], spec.with_shape(batch, heads, sequence, depth))


# --- unsupported operands ---------------------------------------------------------------------


def several_scales_cases() -> Iterator[Case]:
    """Yield integer products with per-axis scales, which the kernel reads as 0."""
    for dtype in ("int8", "int16"):
        x = tensor(2, 5, 7, dtype=dtype, zero_point=0)
        name = f"{dtype} by int8 constants with scales per column, which count as 0"
        yield matmul_case(name, x, weight((7, 3), "int8", 1), y=x.with_shape(2, 5, 3))
    x = tensor(2, 7, 3, dtype="int8", zero_point=9)
    y = x.with_shape(2, 5, 3)
    yield matmul_case(
        "int8 constants with scales per row by int8, which count as 0", weight((2, 5, 7), "int8", 1), x, y=y
    )


def refusal_cases() -> Iterator[Case]:
    floats = tensor(2, 5, 7)
    yield matmul_case(
        "float32 by int8 constants with a zero point",
        floats,
        replace(symmetric_weights(7, 3), zero_point=5),
        y=tensor(2, 5, 3),
        refusal="the weights must be symmetric",
    )
    yield matmul_case(
        "float32 by int8 constants with scales per row",
        floats,
        weight((7, 3), "int8", 0),
        y=tensor(2, 5, 3),
        refusal="or per column",
    )
    x = tensor(5, 7, dtype="uint8")
    yield matmul_case(
        "uint8",
        x,
        x.with_shape(7, 3),
        y=x.with_shape(5, 3),
        refusal="no kernel for dtypes uint8, uint8 -> uint8",
        dtype="uint8",
    )
    x = tensor(5, 7, dtype="int16")
    yield matmul_case(
        "int16 to int32",
        x,
        x.with_shape(7, 3),
        y=tensor(5, 3, dtype="int32"),
        refusal="no kernel for dtypes int16, int16 -> int32",
    )
    unscaled = tensor(5, 7, dtype="int8", scale=0)
    yield matmul_case(
        "int8 without scales to int8",
        unscaled,
        unscaled.with_shape(7, 3),
        y=unscaled.with_shape(5, 3),
        refusal="the quantized operands have no scale",
    )
    x = tensor(2, 3, 12)
    kernel_refusal = "rhs_data->type == kTfLiteInt8"
    yield in_isolation(OP, "int4", [x, weight((12, 5), "int4")], tensor(2, 3, 5), kernel_refusal=kernel_refusal)
