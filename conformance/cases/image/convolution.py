"""CONV_2D and DEPTHWISE_CONV_2D: windows, groups, dtypes of weights and biases."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from conformance.case import EVERY_OPSET, Case, Reference
from conformance.models import Net, constant, in_isolation, net, random_array, tensor
from conformance.weights import BIASES, ROUNDED, WEIGHTS, bias, column_of, product, weight
from onnx_tflite_plugin.verify import LiteRT

IMAGE = (2, 5, 7, 3)
COMPUTED = "computed weights with a zero point"  # int8 and int16 kernels ignore that zero point
CLAMPS = ("RELU", "RELU6", "RELU_N1_TO_1")


def cases() -> Iterator[Case]:
    yield from geometry_cases()
    yield from dynamic_size_cases()
    yield from group_cases()
    yield from dtype_cases()
    yield from activation_cases()
    yield from chain_cases()
    yield from depthwise_cases()


# --- one convolution --------------------------------------------------------------------------


def conv_case(
    name: str,
    *,
    op: str = "CONV_2D",
    shape: Sequence[int | None] = IMAGE,
    out: int = 4,
    kernel: Sequence[int] = (3, 2),
    stride: Sequence[int] = (1, 1),
    dilation: Sequence[int] = (1, 1),
    padding: str = "SAME",
    dtype: str = "float32",
    weights: str | None = None,
    per_axis: bool = False,
    bias_dtype: str | None = "",
    bias_scale_factor: float = 1.0,
    groups: int = 1,
    zero_point: int | None = None,
    absent: bool = False,
    **options: Any,
) -> Case:
    """Return a case of a convolution.

    Keywords that are fields of ``Case`` go to the case, others to the operator.

    ``bias_dtype``: dtype of the bias, "" for the default dtype, ``None`` for no bias. ``absent``: an absent operand
    instead of a bias. ``bias_scale_factor``: the bias scale in the file is wrong by this factor. ``out``: number of output
    channels.
    """
    case_fields = {key: options.pop(key) for key in [*options] if key in Case.__dataclass_fields__}
    n, *size, channels = shape
    assert channels is not None
    output_size = [
        None if s is None else -(-s // t) if padding == "SAME" else (s - ((k - 1) * d + 1)) // t + 1
        for s, k, t, d in zip(size, kernel, stride, dilation, strict=True)
    ]
    x = tensor(*shape, dtype=dtype)
    is_depthwise = op == "DEPTHWISE_CONV_2D"
    depth = prod(kernel) * (1 if is_depthwise else channels // groups)
    weight_shape = (1, *kernel, out) if is_depthwise else (out, *kernel, channels // groups)
    w = weight(weight_shape, weights or WEIGHTS[dtype], (3 if is_depthwise else 0) if per_axis else None)
    y = product(x, w, (n, *output_size, out), depth, zero_point)
    b = None if bias_dtype is None else bias(x, w, out, bias_dtype or BIASES[dtype], depth, bias_scale_factor)
    geometry = {
        "padding": padding,
        "stride_h": stride[0],
        "stride_w": stride[1],
        "dilation_h_factor": dilation[0],
        "dilation_w_factor": dilation[1],
    }
    if is_depthwise:
        geometry["depth_multiplier"] = out // channels
    case_fields = {"options": {**geometry, **options}, "dtype": column_of(dtype, weights), **case_fields}
    if b is not None:
        return in_isolation(op, name, [x, w, b], y, **case_fields)
    zero_bias = replace(bias(x, w, out, BIASES[dtype], depth), value=np.zeros(out, BIASES[dtype]))
    return in_isolation(
        op,
        name,
        [x, w, None] if absent else [x, w],
        y,
        reference=litert_reference(in_isolation(op, name, [x, w, zero_bias], y, **case_fields)),
        **case_fields,
    )


def litert_reference(equivalent: Case) -> Reference:
    """Return a reference that runs an equivalent case, which LiteRT can run.

    Without a bias, CONV_2D's kernel fails and DEPTHWISE_CONV_2D's crashes on integers; the equivalent case has a zero
    bias.
    """
    return lambda arrays: LiteRT(equivalent.build(), "builtin").run(arrays)


# --- CONV_2D ----------------------------------------------------------------------------------


def geometry_cases(op: str = "CONV_2D", **fields: Any) -> Iterator[Case]:
    """Yield cases with padding, stride and dilation.

    SAME pads an odd row at the end; VALID drops rows after the last full stride.
    """
    for padding in ("SAME", "VALID"):
        yield conv_case(f"{padding} 3x2", op=op, padding=padding, opsets=EVERY_OPSET, **fields)
        yield conv_case(f"{padding} 2x4 stride 2x3", op=op, padding=padding, kernel=(2, 4), stride=(2, 3), **fields)
        yield conv_case(
            f"{padding} 3x3 stride 2 on odd sizes",
            op=op,
            shape=(1, 7, 11, fields.get("shape", IMAGE)[3]),
            padding=padding,
            kernel=(3, 3),
            stride=(2, 2),
            **{k: v for k, v in fields.items() if k != "shape"},
        )
        yield conv_case(f"{padding} 2x3 dilated 2x3", op=op, padding=padding, kernel=(2, 3), dilation=(2, 3), **fields)
    if op == "CONV_2D":
        yield conv_case(
            "SAME 3x3 dilated 2 with stride 2", shape=(1, 11, 13, 3), kernel=(3, 3), dilation=(2, 2), stride=(2, 2)
        )
        yield conv_case("1x1", kernel=(1, 1))
        yield conv_case("1x1 stride 2", kernel=(1, 1), stride=(2, 2), padding="SAME")
        yield conv_case("a kernel larger than the image", shape=(1, 2, 3, 3), kernel=(5, 7))
        yield conv_case("one channel in and out", shape=(2, 5, 7, 1), out=1)


def dynamic_size_cases(op: str = "CONV_2D", **fields: Any) -> Iterator[Case]:
    """Yield cases of dynamic height and width, odd and even.

    SAME padding depends on the sizes.
    """
    kernels = {"3x2 stride 2x1": ((3, 2), (2, 1)), "4x3 stride 2": ((4, 3), (2, 2)), "1x1 stride 3": ((1, 1), (3, 3))}
    shape = (2, None, None, fields.get("shape", IMAGE)[3])
    fields = {key: value for key, value in fields.items() if key != "shape"}
    for dtype in ("float32", "int8", "uint8", "int16"):
        arrays = [{"x0": random_array(2, h, w, shape[3] or 1, dtype=dtype)} for h, w in ((5, 7), (8, 11), (6, 6))]
        case_fields: dict[str, Any] = {"op": op, "shape": shape, "dtype": dtype, "input_arrays": arrays, **fields}
        for name, (kernel, stride) in kernels.items():
            yield conv_case(f"{dtype} of dynamic shape, SAME {name}", kernel=kernel, stride=stride, **case_fields)
        yield conv_case(f"{dtype} of dynamic shape, VALID", padding="VALID", stride=(2, 1), **case_fields)
        yield conv_case(f"{dtype} of dynamic shape, dilated", kernel=(3, 3), dilation=(2, 3), **case_fields)
    case_fields = {"op": op, "shape": shape, "refusal": "--input-shape", **fields}
    yield conv_case("dynamic shape, dilated with a stride", dilation=(2, 2), stride=(2, 2), **case_fields)
    yield conv_case("dynamic shape, stride larger than the kernel", kernel=(2, 2), stride=(3, 3), **case_fields)


def group_cases() -> Iterator[Case]:
    """Yield cases of grouped convolutions.

    Their filters have fewer input channels than the image has channels.
    """
    for dtype in ("float32", "int8"):
        yield conv_case(f"{dtype} in three groups", shape=(2, 5, 7, 6), out=9, groups=3, dtype=dtype)
    yield conv_case("float32 in as many groups as channels", shape=(2, 5, 7, 6), out=12, groups=6)
    yield conv_case(
        "int8 in three groups with scales per channel", shape=(2, 5, 7, 6), out=9, groups=3, dtype="int8", per_axis=True
    )


def dtype_cases() -> Iterator[Case]:
    for dtype in ("int8", "uint8", "int16"):
        opsets = EVERY_OPSET if dtype != "int16" else (None, 26)
        yield conv_case(dtype, dtype=dtype, opsets=opsets)
        yield conv_case(f"{dtype} without bias", dtype=dtype, bias_dtype=None)
    yield conv_case("float32 without bias", bias_dtype=None)
    yield conv_case("float32 with an absent bias", bias_dtype=None, absent=True)
    for dtype in ("int8", "int16"):
        yield conv_case(f"{dtype} with scales per channel", dtype=dtype, per_axis=True)
        yield conv_case(f"{dtype} with scales per channel, without bias", dtype=dtype, per_axis=True, bias_dtype=None)
    yield conv_case(
        "int16 with an int32 bias", dtype="int16", bias_dtype="int32", per_axis=True, quantized_bias_type="INT32"
    )
    name = "int16 with an int32 bias missing from the options"
    yield conv_case(name, dtype="int16", bias_dtype="int32", per_axis=True, refusal="quantized_bias_type is not INT32")
    yield conv_case("int16 with a wrong bias scale", dtype="int16", per_axis=True, bias_scale_factor=3.0)
    yield conv_case(
        "int8 with a wrong bias scale, which the kernel ignores",
        dtype="int8",
        per_axis=True,
        bias_scale_factor=3.0,
    )
    yield conv_case("int8 with int4 weights", dtype="int8", weights="int4", per_axis=True)
    yield conv_case(
        "int8 with stride and dilation",
        shape=(1, 11, 13, 3),
        kernel=(3, 3),
        dilation=(2, 2),
        padding="VALID",
        dtype="int8",
        per_axis=True,
    )
    for weights in ("int8", "int4"):
        yield conv_case(f"float32 with {weights} weights, dynamic range", weights=weights, per_axis=True)
    yield conv_case("float32 with int8 weights of one scale", weights="int8")
    yield conv_case("float32 with uint8 weights, which the kernel reads as int8", weights="uint8")
    name = "float32 with per-channel uint8 weights, of which the kernel reads the first scale"
    yield conv_case(name, weights="uint8", per_axis=True)
    yield conv_case(
        "float32 with int8 weights in groups", weights="int8", per_axis=True, shape=(2, 5, 7, 6), out=9, groups=3
    )
    for dtype in ("int8", "int16"):
        for op in ("CONV_2D", "DEPTHWISE_CONV_2D"):
            yield net(op, f"{dtype} with some negative scales", conv_with_negative_scale(op, dtype), dtype=dtype)
    yield net(
        "CONV_2D", "float16 weights through DEQUANTIZE", build_float16_weights, dtype="float16", opsets=EVERY_OPSET
    )
    yield net("CONV_2D", "weights as a graph input", build_runtime_weights)


def conv_with_negative_scale(op: str, dtype: str) -> Callable[[Net], None]:
    """Return a builder of a convolution with a negative scale for one output channel.

    Such scales result from folding a batch normalization with a negative gamma.
    """

    def build(model: Net) -> None:
        x, axis = tensor(2, 5, 7, 3, dtype=dtype), 0 if op == "CONV_2D" else 3
        w = weight((3, 2, 2, 3) if axis == 0 else (1, 2, 2, 3), "int8", axis)
        b = bias(x, w, 3, BIASES[dtype], 12)
        signs = np.array([1, -1, 1])
        negated = [replace(spec, scale=(signs * np.asarray(spec.scale)).tolist()) for spec in (w, b)]
        options: dict[str, Any] = {"padding": "VALID", "stride_h": 1, "stride_w": 1, "depth_multiplier": 1}
        if axis == 0:
            del options["depth_multiplier"]
        model.output(model.call(op, [x, *negated], product(x, w, (2, 4, 6, 3), 12), **options))

    return build


def build_float16_weights(model: Net) -> None:
    """Build a convolution with float16 weights and bias, each through DEQUANTIZE."""
    image = tensor(*IMAGE)
    w = model.call("DEQUANTIZE", [constant(random_array(4, 3, 3, 3, dtype="float16"))], tensor(4, 3, 3, 3))
    b = model.call("DEQUANTIZE", [constant(random_array(4, dtype="float16"))], tensor(4))
    model.output(model.call("CONV_2D", [image, w, b], tensor(2, 5, 7, 4), padding="SAME", stride_h=1, stride_w=1))


def build_runtime_weights(model: Net) -> None:
    operands = [tensor(*IMAGE), tensor(4, 3, 2, 3), tensor(4)]
    model.output(model.call("CONV_2D", operands, tensor(2, 5, 7, 4), padding="SAME", stride_h=1, stride_w=1))


def activation_cases(op: str = "CONV_2D", **fields: Any) -> Iterator[Case]:
    """Yield cases of activations that clip quantized values.

    They clip because the zero point is inside the dtype's range.
    """
    for dtype in ("float32", "int8", "uint8", "int16"):
        for activation in CLAMPS:
            yield conv_case(
                f"{dtype} with {activation}", op=op, dtype=dtype, fused_activation_function=activation, **fields
            )
    for activation in ("TANH", "SIGN_BIT"):
        for dtype in ("float32", "int8", "uint8", "int16"):
            name = f"{dtype} with {activation}, which the kernel ignores"
            yield conv_case(name, op=op, dtype=dtype, fused_activation_function=activation, **fields)
        name = f"float32 with int8 weights and {activation}, which the kernel ignores"
        hybrid: dict[str, Any] = {"weights": "int8", "per_axis": True, **fields}
        yield conv_case(name, op=op, fused_activation_function=activation, **hybrid)
    yield conv_case(
        "int8 with RELU and the zero point at the minimum",
        op=op,
        dtype="int8",
        zero_point=-128,
        fused_activation_function="RELU",
        **fields,
    )


def chain_cases() -> Iterator[Case]:
    """Yield cases of consecutive convolutions, which need no Transpose between them."""

    def chain_of_four(dtype: str) -> Callable[[Net], None]:
        def build(model: Net) -> None:
            ref = model.input_through_conv(tensor(*IMAGE, dtype=dtype))
            for k in range(3):
                ref = model.select_channels(ref, tensor(*IMAGE, dtype=dtype), [(k + j) % 3 for j in range(3)])
            model.output(ref)

        return build

    for dtype in ("float32", "int8", "uint8", "int16"):
        yield net("CONV_2D", f"{dtype} four in a row", chain_of_four(dtype), dtype=dtype, max_transposes=2)

    def build_two_readers(model: Net) -> None:
        image = tensor(*IMAGE)
        x = model.input_through_conv(image)
        operands = [model.select_channels(x, image, order) for order in ([0, 1, 2], [2, 0, 1])]
        model.output(model.call("ADD", operands, image), operands[0])

    yield net("CONV_2D", "result with two readers and a graph output", build_two_readers, max_transposes=3)


# --- DEPTHWISE_CONV_2D ------------------------------------------------------------------------


def depthwise_cases() -> Iterator[Case]:
    op = "DEPTHWISE_CONV_2D"
    yield from geometry_cases(op, out=6)
    yield from dynamic_size_cases(op, out=6)
    yield from activation_cases(op, out=3)
    for dtype in ("int8", "uint8", "int16"):
        for multiplier in (1, 2):
            yield conv_case(f"{dtype} with multiplier {multiplier}", op=op, dtype=dtype, out=3 * multiplier)
    for dtype in ("int8", "int16"):
        yield conv_case(f"{dtype} with scales per channel", op=op, dtype=dtype, out=6, per_axis=True)
        yield conv_case(f"{dtype} without bias", op=op, dtype=dtype, out=6, per_axis=True, bias_dtype=None)
    yield conv_case("float32 without bias", op=op, out=6, bias_dtype=None)
    yield conv_case("wrong depth_multiplier, which the kernel ignores", op=op, out=6, depth_multiplier=7)
    yield conv_case("int8 with a wrong bias scale", op=op, dtype="int8", out=6, per_axis=True, bias_scale_factor=3.0)
    yield conv_case("one input channel, four output channels", op=op, shape=(2, 5, 7, 1), out=4)
    yield conv_case("float32 with int8 weights, dynamic range", op=op, out=6, weights="int8", per_axis=True)
    large_inputs: dict[str, Any] = {
        "fused_activation_function": "RELU6",
        "input_range": (-200, 200),
        "known_failure": ROUNDED,
    }
    yield conv_case(
        "float32 with int8 weights, large sums clipped by RELU6",
        op=op,
        out=6,
        weights="int8",
        per_axis=True,
        **large_inputs,
    )
    kernel_refusal = "Type FLOAT32 with filter type INT4 not currently supported"
    yield conv_case(
        "float32 with int4 weights", op=op, out=6, weights="int4", per_axis=True, kernel_refusal=kernel_refusal
    )
    yield conv_case("int8 with int4 weights", op=op, dtype="int8", out=6, weights="int4", per_axis=True)
    for dtype in ("int8", "int16"):
        x, w = tensor(*IMAGE, dtype=dtype, zero_point=0), tensor(1, 3, 3, 3, dtype="int8", scale=0.01, zero_point=7)
        y, b = x.with_shape(2, 3, 4, 3).rescale(0.5), bias(x, w, 3, BIASES[dtype], 9)
        options = {"padding": "SAME", "stride_h": 2, "stride_w": 2, "depth_multiplier": 1}
        yield in_isolation(op, f"{dtype} by {COMPUTED}", [x, w, b], y, options=options, dtype=dtype)
        w = constant(random_array(1, 3, 3, 3, dtype="int8"), None, [0.01, 0.02, 0.04], [7, -20, 3], 3)
        b = bias(x, w, 3, BIASES[dtype], 9)
        yield in_isolation(
            op,
            f"{dtype} by per-channel zero points, which the kernel ignores",
            [x, w, b],
            y,
            options=options,
            dtype=dtype,
        )
