"""FULLY_CONNECTED: inputs of any rank, flattened images, dtypes, activations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from conformance.case import EVERY_OPSET, Case
from conformance.models import Net, Placement, between_convolutions, constant, in_isolation, net, random_array, tensor
from conformance.weights import BIASES, ROUNDED, WEIGHTS, bias, column_of, product, weight

IMAGE = (2, 5, 7, 3)
OP = "FULLY_CONNECTED"


def cases() -> Iterator[Case]:
    yield from row_length_cases()
    yield from dtype_cases()
    yield from activation_cases()
    yield from flatten_cases()


def dense_case(
    name: str,
    shape: Sequence[int | None] = (2, 11),
    *,
    out: int = 4,
    depth: int | None = None,
    keep_num_dims: bool = False,
    dtype: str = "float32",
    weights: str | None = None,
    per_axis: bool = False,
    bias_dtype: str | None = "",
    zero_point: int | None = None,
    bias_scale_factor: float = 1.0,
    place: Placement = in_isolation,
    result: Sequence[int | None] = (),
    options: dict[str, Any] | None = None,
    **case_fields: Any,
) -> Case:
    """Return a case of one layer with ``out`` units.

    ``depth``: length of a weight row, by default the size of the input's last axis. ``keep_num_dims``: value of this option.
    ``bias_dtype``: dtype of the bias, "" for the default dtype, ``None`` for no bias. ``bias_scale_factor``: the bias
    scale in the file is wrong by this factor. ``result``: shape of the result, if it does not follow from the input.
    """
    x = tensor(*shape, dtype=dtype)
    depth = depth or shape[-1] or 1
    w = weight((out, depth), weights or WEIGHTS[dtype], 0 if per_axis else None)
    batch = None if None in shape else prod(1 if size is None else size for size in shape) // depth
    result = result or ((*shape[:-1], out) if keep_num_dims else (batch, out))
    y = product(x, w, [1 if size is None else size for size in result], depth, zero_point).with_shape(*result)
    operands = (
        [x, w] if bias_dtype is None else [x, w, bias(x, w, out, bias_dtype or BIASES[dtype], depth, bias_scale_factor)]
    )
    return place(
        OP,
        name,
        operands,
        y,
        options={"keep_num_dims": keep_num_dims, **(options or {})},
        **{"dtype": column_of(dtype, weights), **case_fields},
    )


def row_length_cases() -> Iterator[Case]:
    """Yield cases with inputs of any rank.

    The kernel divides the input into rows of the weights' length: (2, 5, 3) becomes two rows of 15.
    """
    yield dense_case("rank 2", opsets=EVERY_OPSET)
    yield dense_case("rank 1", (11,))
    yield dense_case("rank 3 to rows", (2, 5, 11))
    yield dense_case("rank 3, a row of two axes", (2, 5, 3), depth=15)
    yield dense_case("rank 3, a row across axes", (2, 3, 4), depth=6)
    yield dense_case("rank 3, rank kept", (2, 5, 11), keep_num_dims=True, opsets=EVERY_OPSET)
    yield dense_case("rank 4, rank kept", (2, 5, 7, 11), keep_num_dims=True)
    yield dense_case("rank 4, rank kept", IMAGE, keep_num_dims=True, place=between_convolutions, max_transposes=4)
    for depth in (3, 21, 105, 210):
        for dtype in ("float32", "int8"):
            yield dense_case(
                f"{dtype} image of rows of {depth}", IMAGE, depth=depth, dtype=dtype, place=between_convolutions
            )
    yield dense_case("image of rows across axes", IMAGE, depth=15, place=between_convolutions)
    yield dense_case("dynamic batch", (None, 11), input_arrays=[{"x0": random_array(n, 11)} for n in (1, 3)])
    yield dense_case(
        "dynamic batch of rank 3", (None, 5, 11), input_arrays=[{"x0": random_array(n, 5, 11)} for n in (1, 3)]
    )
    for dtype in ("float32", "int8"):
        arrays = [{"x0": random_array(n, m, 11, dtype=dtype)} for n, m in ((1, 5), (3, 2))]
        case_fields: dict[str, Any] = {"dtype": dtype, "input_arrays": arrays, "opsets": EVERY_OPSET}
        yield dense_case(f"{dtype} of dynamic shape, rank kept", (None, None, 11), keep_num_dims=True, **case_fields)
    yield dense_case("static input with a result of dynamic shape", (5, 11, 1), depth=1, result=(None, None))
    yield dense_case("one row", (1, 11))
    yield dense_case("no rows", (2, 0, 11))
    yield dense_case("no rows, rank 2", (0, 11))
    yield dense_case("without bias", bias_dtype=None)
    for dtype in ("float32", "int8"):
        yield net(OP, f"{dtype} with a bias of several axes", bias_of_rank_2(dtype), dtype=dtype, opsets=EVERY_OPSET)
    yield net(OP, "transposed weights without stored shape", build_weights_without_shape)
    yield in_isolation(OP, "an absent bias", [tensor(2, 11), weight((4, 11), "float32"), None], tensor(2, 4))
    yield in_isolation(OP, "weights as a graph input", [tensor(2, 11), tensor(4, 11), tensor(4)], tensor(2, 4))
    yield between_convolutions(OP, "image by weights as a graph input", [tensor(*IMAGE), tensor(4, 105)], tensor(2, 4))
    yield net(OP, "sparse weights", build_sparse_weights)
    for dtype in ("float32", "uint8"):
        for shape in ((3, 4), (1, 5)):
            name = f"{dtype} rows that are too short, of {prod(shape)} elements"
            yield dense_case(
                name, shape, depth=8, dtype=dtype, result=(1, 4), refusal="does not divide into vectors of 8 elements"
            )
    for dtype, biased, reason in (
        ("float32", False, ""),
        ("float32", True, "omit the bias"),
        ("int8", False, "write 0 regardless of the zero point"),
    ):
        w = weight((4, 0), dtype)
        operands = [x := tensor(3, 0, dtype=dtype), w, bias(x, w, 4, BIASES[dtype], 1) if biased else None]
        name = f"{dtype} empty rows{' with a bias' if biased else ''}"
        yield in_isolation(OP, name, operands, tensor(3, 4, dtype=dtype), refusal=reason)
    options = {"weights_format": "SHUFFLED4x16INT8"}
    yield dense_case(
        "shuffled weights", (2, 16), dtype="uint8", options=options, refusal="weights_format SHUFFLED4x16INT8"
    )


def bias_of_rank_2(dtype: str) -> Callable[[Net], None]:
    """Return a builder of a layer with a bias of shape (1, units).

    The kernel only checks the number of elements.
    """

    def build(model: Net) -> None:
        x, w = tensor(2, 11, dtype=dtype), weight((5, 11), WEIGHTS[dtype])
        b = bias(x, w, 5, BIASES[dtype], 11)
        assert b.value is not None
        rank_2_bias = replace(b, shape=(1, 5), value=b.value.reshape(1, 5))
        model.output(model.call(OP, [x, w, rank_2_bias], product(x, w, [2, 5], 11)))

    return build


def build_weights_without_shape(model: Net) -> None:
    """Build transposed weights without a stored shape, as old converters write them."""
    weights, result = model.graph.tensor("transposed", None, "float32"), model.result(tensor(2, 5))
    operands = [model.input(tensor(2, 11)), weights, model.add_operand(constant(random_array(5)))]
    model.graph.operator("TRANSPOSE", [model.input(tensor(11, 5)), model.add_operand(constant([1, 0]))], [weights])
    model.graph.operator(OP, operands, [result], {"fused_activation_function": "NONE"})
    model.graph.output(result)


def build_sparse_weights(model: Net) -> None:
    values = random_array(4, 16)
    values[random_array(4, 16, seed="zeros", low=0, high=1) < 0.7] = 0
    w = model.graph.sparse("w", values, ["dense", "csr"])
    model.output(model.call(OP, [tensor(2, 16), w, constant(random_array(4))], tensor(2, 4)))


def dtype_cases() -> Iterator[Case]:
    for dtype in ("int8", "uint8", "int16"):
        yield dense_case(dtype, dtype=dtype, opsets=EVERY_OPSET if dtype != "int16" else (None, 26))
        yield dense_case(f"{dtype} without bias", dtype=dtype, bias_dtype=None)
        yield dense_case(f"{dtype}, rank kept", (2, 5, 11), dtype=dtype, keep_num_dims=True)
        yield dense_case(
            f"{dtype}, rank kept", IMAGE, dtype=dtype, keep_num_dims=True, place=between_convolutions, max_transposes=4
        )
        yield dense_case(f"{dtype}, rank 3 to rows", (2, 5, 11), dtype=dtype)
    for dtype in ("int8", "int16"):
        yield dense_case(f"{dtype} with scales per row", dtype=dtype, per_axis=True)
    yield dense_case(
        "int16 with an int32 bias", dtype="int16", bias_dtype="int32", options={"quantized_bias_type": "INT32"}
    )
    yield dense_case("int8 with int4 weights", (2, 12), dtype="int8", weights="int4", per_axis=True)
    for weights in ("int8", "int4"):
        for asymmetric in (False, True):
            name = f"float32 with {weights} weights, dynamic range" + (", with a zero point" if asymmetric else "")
            yield dense_case(
                name, (2, 12), weights=weights, per_axis=True, options={"asymmetric_quantize_inputs": asymmetric}
            )
    options = {"fused_activation_function": "RELU6", "asymmetric_quantize_inputs": True}
    name, input_range = "float32 with int8 weights, large sums clipped by RELU6", (-40, 40)
    yield dense_case(
        name, (101, 12), weights="int8", per_axis=True, options=options, input_range=input_range, known_failure=ROUNDED
    )
    yield dense_case("float32 with int8 weights of one scale", (2, 12), weights="int8")
    yield dense_case("float32 with int2 weights, dynamic range", (2, 12), weights="int2", per_axis=True)
    yield dense_case("float32 with uint8 weights, which the kernel reads as int8", (2, 12), weights="uint8")
    yield dense_case("float32 with uint8 weights and scales per row", (2, 12), weights="uint8", per_axis=True)
    yield dense_case(
        "float32 with uint8 weights, dynamic range with a zero point",
        (2, 12),
        weights="uint8",
        options={"asymmetric_quantize_inputs": True},
    )
    for bias_dtype in ("int32", "int64"):
        options = {"quantized_bias_type": bias_dtype.upper()}
        yield dense_case(
            f"int16 with int16 weights and {bias_dtype} bias",
            (2, 12),
            dtype="int16",
            weights="int16",
            bias_dtype=bias_dtype,
            options=options,
        )
    yield dense_case(
        "int16 with int16 weights and an int64 bias missing from the options",
        (2, 12),
        dtype="int16",
        weights="int16",
        bias_dtype="int64",
        refusal="without a quantized_bias_type",
    )
    yield dense_case("int8 with a wrong bias scale", (2, 12), dtype="int8", bias_scale_factor=3.0)
    widened: dict[str, Any] = {"targets": ("onnxruntime",), "opsets": (None, 13)}
    yield dense_case("int8 with int4 weights, widened", (2, 12), dtype="int8", weights="int4", per_axis=True, **widened)
    yield dense_case("int8 with int2 weights", (2, 12), dtype="int8", weights="int2", per_axis=True)
    yield net(OP, "float16 weights through DEQUANTIZE", build_float16_weights, dtype="float16", opsets=EVERY_OPSET)


def build_float16_weights(model: Net) -> None:
    w = model.call("DEQUANTIZE", [constant(random_array(4, 11, dtype="float16"))], tensor(4, 11))
    model.output(model.call(OP, [tensor(2, 11), w], tensor(2, 4)))


def activation_cases() -> Iterator[Case]:
    for dtype in ("float32", "int8", "uint8", "int16"):
        for activation in ("RELU", "RELU6", "RELU_N1_TO_1"):
            yield dense_case(
                f"{dtype} with {activation}", dtype=dtype, options={"fused_activation_function": activation}
            )
    yield dense_case(
        "int8 with RELU, rank kept",
        (2, 5, 11),
        dtype="int8",
        keep_num_dims=True,
        options={"fused_activation_function": "RELU"},
    )
    for dtype in ("float32", "int8", "int16"):
        options = {"fused_activation_function": "RELU_N1_TO_1"}
        yield dense_case(
            f"{dtype} with RELU_N1_TO_1, a vector", (11,), dtype=dtype, keep_num_dims=True, options=options
        )
        arrays = [{"x0": random_array(n, m, 11, dtype=dtype)} for n, m in ((2, 5), (7, 1), (0, 3), (0, 0))]
        name = f"{dtype} with RELU_N1_TO_1, dynamic leading axes"
        yield dense_case(
            name, (None, None, 11), dtype=dtype, keep_num_dims=True, options=options, input_arrays=arrays, runs=4
        )
    arrays = [{"x0": random_array(n, 11)} for n in (5, 2)]
    yield dense_case("all dimensions dynamic", (None, 11), result=(None, None), input_arrays=arrays)


# --- after convolutions -----------------------------------------------------------------------


def flatten_cases() -> Iterator[Case]:
    """Yield cases of flattened channels-first images.

    The converter permutes weight columns instead of transposing the image.
    """
    for dtype in ("float32", "int8", "uint8", "int16"):
        yield net(OP, f"{dtype} after a flatten", reshape_then_dense(dtype, (2, 105)), dtype=dtype, max_transposes=1)
    yield net(
        OP,
        "int8 with scales per row after a flatten",
        reshape_then_dense("int8", (2, 105), per_axis=True),
        dtype="int8",
        max_transposes=1,
    )
    yield net(
        OP,
        "float32 with int8 weights after a flatten",
        reshape_then_dense("float32", (2, 105), weights="int8"),
        max_transposes=1,
    )
    yield net(OP, "after a reshape that joins rows", reshape_then_dense("float32", (2, 35, 3)))
    yield net(OP, "after a reshape that joins columns and channels", reshape_then_dense("float32", (2, 5, 21)))
    yield net(OP, "after a flatten across the batch", reshape_then_dense("float32", (6, 35)))
    yield net(OP, "two layers after one flatten", build_two_layers, max_transposes=1)
    for dtype in ("float32", "int8", "uint8"):
        for keep_dims in (True, False):
            name = f"{dtype} after MEAN {'with' if keep_dims else 'without'} keep_dims"
            yield net(OP, name, mean_then_dense(dtype, keep_dims), dtype=dtype, max_transposes=1)
    yield net(OP, "between a flatten and its inverse", build_flatten_and_restore)


def reshape_then_dense(
    dtype: str, shape: Sequence[int], per_axis: bool = False, weights: str | None = None
) -> Callable[[Net], None]:
    """Return a builder of a convolution, a RESHAPE to ``shape`` and a layer."""

    def build(model: Net) -> None:
        image = tensor(*IMAGE, dtype=dtype)
        flat = image.with_shape(*shape)
        x = model.call("RESHAPE", [model.input_through_conv(image), constant(list(shape))], flat)
        w = weight((4, shape[-1]), weights or WEIGHTS[dtype], 0 if per_axis or weights else None)
        y = product(flat, w, (prod(shape[:-1]), 4), shape[-1])
        model.output(model.call(OP, [x, w, bias(flat, w, 4, BIASES[dtype], shape[-1])], y))

    return build


def build_two_layers(model: Net) -> None:
    flat = model.call("RESHAPE", [model.input_through_conv(tensor(*IMAGE)), constant([2, 105])], tensor(2, 105))
    model.output(
        *(model.call(OP, [flat, weight((out, 105), "float32", seed=str(out))], tensor(2, out)) for out in (3, 5))
    )


def mean_then_dense(dtype: str, keep_dims: bool) -> Callable[[Net], None]:
    """Return a builder of a convolution, a MEAN over height and width, and a layer."""

    def build(model: Net) -> None:
        image = tensor(*IMAGE, dtype=dtype)
        pooled = image.with_shape(*((2, 1, 1, 3) if keep_dims else (2, 3))).rescale(0.3)
        x = model.call("MEAN", [model.input_through_conv(image), constant([1, 2])], pooled, keep_dims=keep_dims)
        w = weight((4, 3), WEIGHTS[dtype])
        model.output(model.call(OP, [x, w, bias(pooled, w, 4, BIASES[dtype], 3)], product(pooled, w, (2, 4), 3)))

    return build


def build_flatten_and_restore(model: Net) -> None:
    image = tensor(*IMAGE)
    flat = model.call("RESHAPE", [model.input_through_conv(image), constant([2, 105])], tensor(2, 105))
    layer_result = model.call(
        OP, [flat, weight((105, 105), "float32"), constant(np.zeros(105), "float32")], tensor(2, 105)
    )
    model.output(model.output_through_conv(model.call("RESHAPE", [layer_result, constant(list(IMAGE))], image)))
