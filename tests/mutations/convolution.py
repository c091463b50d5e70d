"""Convolutions and pools: what goes wrong with them."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnx_tflite_plugin.api import ActivationKernel, Dequantized, FusedActivation, Implicit, out

from .planting import Change, Mutation, handing_on, with_attributes

CONV = "op_handlers.image.convolution"
POOL = "op_handlers.image.pooling"
PADDING = "onnx_tflite_plugin.api.padding"
VALUES = "onnx_tflite_plugin.lowering.values"
RESULTS = "onnx_tflite_plugin.lowering.results"
OPERANDS = "onnx_tflite_plugin.lowering.operands:Operands"


def more_in_front(original: Any) -> Any:
    """SAME with its larger half in front."""

    def pads(*arguments: Any) -> list[int]:
        made = original(*arguments)
        half = len(made) // 2
        return [*made[half:], *made[:half]]

    return pads


def without_dilation(original: Any) -> Any:
    """SAME as if the kernel were not dilated."""
    return lambda padding, size, kernel, strides, dilations: original(padding, size, kernel, strides, [1] * len(kernel))


def extra_dropped(original: Any) -> Any:
    def pads(*arguments: Any) -> Any:
        made, extra = original(*arguments)
        return made, [0] * len(extra)

    return pads


def by_input(original: Any) -> Any:
    """Padding from the sizes of the input, as a convolution's."""

    def pads(padding: str, output: Any, size: Any, kernel: Any, stride: Any) -> Any:
        from onnx_tflite_plugin.api import conv_pads

        made = conv_pads(padding, size, kernel, stride, [1] * len(kernel))
        n = len(kernel)
        full = [(s - 1) * t + k for s, t, k in zip(size, stride, kernel, strict=True)]
        return made, [
            max(o - (f - made[i] - made[n + i]), 0) for i, (o, f) in enumerate(zip(output, full, strict=True))
        ]

    return pads


def fast_clamp(activation: str) -> Change:
    """A clamp is left out whatever the zero point is."""

    def change(original: Any) -> Any:
        from onnx_tflite_plugin.quantization.activation import Clamp

        return lambda name, *rest: Clamp(None, None) if name == activation else original(name, *rest)

    return change


def scales_along_the_files_axis(original: Any) -> Any:
    """A scale per channel goes along the axis that has the file's number."""

    def arrays(quantization: Any, dtype: str, order: Any) -> Any:
        scale, zero_point, axis = original(quantization, dtype, order)
        return scale, zero_point, None if axis is None else quantization.axis

    return arrays


def the_files_scale(original: Any) -> Any:
    """A bias is dequantized with its own scale."""

    def bias(operands: Any, slot: int, tensor: Any) -> Any:
        known = tensor.quantization
        if known is None or not tensor.is_constant:
            return original(operands, slot, tensor)
        return operands.scope.emitter.constant(
            (tensor.array * np.asarray(known.scale)).astype(np.float32), f"{tensor.name}:float"
        )

    return bias


def more_in_front_of_both(original: Any) -> Any:
    """The larger half of SAME in front of what a transposed convolution makes."""

    def pads(*arguments: Any) -> Any:
        made, extra = original(*arguments)
        half = len(made) // 2
        return [*made[half:], *made[:half]], extra

    return pads


def across(original: Any) -> Any:
    """What goes along a row is taken for what goes along a column, and the other way round."""

    def spatial(ctx: Any) -> Any:
        along, kernel = original(ctx)
        return (along.translate(str.maketrans("hw", "wh")), kernel) if len(along) == 1 else (along, kernel)

    return spatial


def window_across(original: Any) -> Any:
    def windows(ctx: Any) -> Any:
        found = original(ctx)
        if len(found["strides"]) > 1:
            return found
        other = ctx.options.stride_h if ctx.perm()[2] == 2 else ctx.options.stride_w
        return {**found, "strides": [other]}

    return windows


def undilated(original: Any) -> Any:
    """A kernel spans as many elements as it has."""

    def asked_part(ctx: Any, shape: Any, y: Any, _reach: Any, strides: Any) -> Any:
        from op_handlers.image.convolution import spatial_axes

        return original(ctx, shape, y, spatial_axes(ctx)[1], strides)

    return asked_part


def in_the_schemas_order(original: Any) -> Any:
    return lambda options, along: original(options, "dwh" if along == "dhw" else along)


def _by_option(ctx: Any, x: Any, w: Any, b: Any = None) -> Any:
    from op_handlers.image.convolution import emit_conv

    return emit_conv(ctx, x, w, b, group=ctx.op[1].shape[3] // ctx.options.depth_multiplier)


ACTIVATED = {
    "CONV_2D": "CONV_2D-float32_with_RELU",
    "DEPTHWISE_CONV_2D": "DEPTHWISE_CONV_2D-float32_with_RELU6",
    "TRANSPOSE_CONV": "TRANSPOSE_CONV-int8_SAME_stride_2_with_RELU6",
    "AVERAGE_POOL_2D": "AVERAGE_POOL_2D-float32_with_RELU_N1_TO_1",
    "CONV_3D": "CONV_3D-with_RELU",
    "CONV_3D_TRANSPOSE": "CONV_3D_TRANSPOSE-with_RELU6",
}

IGNORING = {
    "DEPTHWISE_CONV_2D": "float32_with_int8_weights_and",
    "TRANSPOSE_CONV": "int16_with",
    "CONV_3D": "with",
    "CONV_3D_TRANSPOSE": "with",
    "AVERAGE_POOL_2D": "uint8_with",
    "MAX_POOL_2D": "int8_with",
}


MUTATIONS = (
    Mutation(
        "padding of SAME for a kernel without dilation",
        "CONV_3D_TRANSPOSE",
        (
            "CONV_3D_TRANSPOSE-sizes_at_runtime,_SAME_2x2x3_dilated_2x3x1",
            "CONV_3D_TRANSPOSE-sizes_at_runtime,_SAME_2x2x2_stride_2x1x2_dilated_2x1x1",
        ),
        patches={"op_handlers.image.convolution:crop_to_requested": undilated},
    ),
    Mutation(
        "the larger half of SAME in front",
        "CONV_2D",
        ("CONV_2D-float32_in_three_groups",),
        patches={f"{PADDING}:conv_pads": more_in_front},
    ),
    Mutation(
        "dilation does not widen SAME",
        "DEPTHWISE_CONV_2D",
        ("DEPTHWISE_CONV_2D-SAME_2x3_dilated_2x3",),
        patches={f"{PADDING}:conv_pads": without_dilation},
    ),
    Mutation(
        "dilation does not widen SAME",
        "CONV_3D",
        ("CONV_3D-SAME_2x2x2_stride_2x1x2_dilated_2x1x1",),
        patches={f"{PADDING}:conv_pads": without_dilation},
    ),
    Mutation(
        "the bias has the scale of the file",
        "CONV_2D",
        ("CONV_2D-int8_with_a_bias_scale_in_the_file_that_is_off,_which_the_kernel_ignores",),
        patches={f"{OPERANDS}._dequantize_bias": the_files_scale},
    ),
    Mutation(
        "the scales per channel stay on the file's axis",
        "DEPTHWISE_CONV_2D",
        ("DEPTHWISE_CONV_2D-int16_with_scales_per_channel",),
        patches={f"{VALUES}:quantization_arrays": scales_along_the_files_axis},
    ),
    Mutation(
        "RELU6 left out wherever the zero point is",
        "CONV_2D",
        ("CONV_2D-int16_with_RELU6",),
        patches={f"{RESULTS}:stored_clamp": fast_clamp("RELU6")},
    ),
    Mutation(
        "uint8 weights of float activations keep their zero point",
        "CONV_2D",
        ("CONV_2D-float32_with_uint8_weights,_which_the_kernel_reads_as_int8",),
        patches={f"{CONV}:reinterpret_uint8_weights": handing_on(2)},
    ),
    Mutation(
        "no output padding",
        "TRANSPOSE_CONV",
        ("TRANSPOSE_CONV-SAME_2x5_kernel,_stride_3x1",),
        patches={f"{CONV}:conv_transpose_pads": extra_dropped},
    ),
    Mutation(
        "pads from the sizes of the input",
        "TRANSPOSE_CONV",
        ("TRANSPOSE_CONV-float32_SAME_stride_2x2_without_bias",),
        patches={f"{CONV}:conv_transpose_pads": by_input},
    ),
    Mutation(
        "dilation is left out",
        "CONV_3D_TRANSPOSE",
        ("CONV_3D_TRANSPOSE-SAME_2x2x2_dilated_1x2x4",),
        emits={"ConvTranspose": with_attributes(dilations=[1, 1, 1])},
    ),
    Mutation(
        "padding is part of the mean",
        "AVERAGE_POOL_2D",
        ("AVERAGE_POOL_2D-float32_with_RELU_N1_TO_1",),
        emits={"AveragePool": with_attributes(count_include_pad=1)},
    ),
    Mutation(
        "another output scale rescales",
        "AVERAGE_POOL_2D",
        tuple(f"AVERAGE_POOL_2D-{dtype}_to_another_scale,_which_the_kernel_ignores" for dtype in ("int8", "int16")),
        fields={"quantization": Dequantized()},
        patches={f"{POOL}:reinterpret_scale": handing_on(1)},
    ),
    *(
        Mutation("the activation is left out", code, (case,), fields={"activation": None})
        for code, case in ACTIVATED.items()
    ),
    Mutation(
        "TANH is applied",
        "CONV_2D",
        ("CONV_2D-float32_with_TANH,_which_the_kernel_ignores", "CONV_2D-int8_with_TANH,_which_the_kernel_ignores"),
        fields={"activation": FusedActivation(ActivationKernel.ELEMENTWISE)},
    ),
    *(
        Mutation(
            "SIGN_BIT is applied",
            code,
            (f"{code}-{case}_SIGN_BIT,_which_the_kernel_ignores",),
            fields={"activation": FusedActivation(ActivationKernel.ELEMENTWISE)},
        )
        for code, case in IGNORING.items()
    ),
    Mutation(
        "weights are channels first already",
        "CONV_2D",
        ("CONV_2D-SAME_3x2",),
        fields={"layout": Implicit({0: "n c h w", 1: "o j k i", out(0): "n o y x"})},
    ),
    Mutation(
        "dilation does not widen SAME",
        "CONV_2D",
        ("CONV_2D-SAME_3x3_dilated_2_with_stride_2",),
        patches={f"{PADDING}:conv_pads": without_dilation},
    ),
    Mutation(
        "groups are not thought of",
        "CONV_2D",
        ("CONV_2D-float32_in_three_groups",),
        emits={"Conv": with_attributes(group=1)},
    ),
    Mutation(
        "the option depth_multiplier is believed",
        "DEPTHWISE_CONV_2D",
        ("DEPTHWISE_CONV_2D-an_option_depth_multiplier_that_is_wrong,_which_the_kernel_ignores",),
        fields={"lower": _by_option},
    ),
    Mutation(
        "the larger half of SAME in front",
        "TRANSPOSE_CONV",
        ("TRANSPOSE_CONV-float32_SAME_stride_2x3",),
        patches={f"{CONV}:conv_transpose_pads": more_in_front_of_both},
    ),
    Mutation(
        "weights of height, width and depth",
        "CONV_3D",
        ("CONV_3D-SAME_2x3x4_stride_2x1x3",),
        fields={"layout": Implicit({0: "n c d h w", 1: "o c j k i"})},
    ),
    Mutation(
        "strides and dilations in the order of the schema",
        "CONV_3D",
        ("CONV_3D-SAME_2x3x4_stride_2x1x3",),
        patches={f"{CONV}:strides_and_dilations": in_the_schemas_order},
    ),
    Mutation(
        "the larger half of SAME in front",
        "CONV_3D",
        ("CONV_3D-SAME_3x2x4",),
        patches={f"{PADDING}:conv_pads": more_in_front},
    ),
    Mutation(
        "the larger half of SAME in front",
        "MAX_POOL_2D",
        ("MAX_POOL_2D-float32_SAME_3x2",),
        patches={f"{PADDING}:conv_pads": more_in_front},
    ),
    Mutation(
        "operands are compared as floats",
        "MAX_POOL_2D",
        ("MAX_POOL_2D-int8_to_another_scale,_which_the_kernel_ignores",),
        fields={"quantization": Dequantized()},
    ),
    # sequences
    *(
        Mutation(
            "along a row is along a column",
            code,
            tuple(f"{code}-along_a_{name}" for name in ("row,_SAME_stride_2,_int8", "row,_stride_3,_float32")),
            patches={f"{CONV}:spatial_axes": across},
        )
        for code in ("CONV_2D", "DEPTHWISE_CONV_2D")
    ),
    *(
        Mutation(
            "along a row is along a column",
            code,
            (f"{code}-along_a_row,_stride_3,_int8", f"{code}-along_a_row,_stride_3,_float32"),
            patches={f"{POOL}:window_attributes": window_across},
        )
        for code in ("MAX_POOL_2D", "AVERAGE_POOL_2D")
    ),
)
