"""Planted bugs in convolutions and pools."""

from __future__ import annotations

from typing import Any

from onnx_tflite_plugin.api import ActivationKernel, Dequantized, FusedActivation, Implicit, out
from tests.qa.mutations.planting import Mutation, with_attributes


def _group_by_option(ctx: Any, x: Any, w: Any, b: Any = None) -> Any:
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
        "dilation is left out",
        "CONV_3D_TRANSPOSE",
        ("CONV_3D_TRANSPOSE-SAME_2x2x2_dilated_1x2x4",),
        emits={"ConvTranspose": with_attributes(dilations=[1, 1, 1])},
    ),
    Mutation(
        "the mean includes the padding",
        "AVERAGE_POOL_2D",
        ("AVERAGE_POOL_2D-float32_with_RELU_N1_TO_1",),
        emits={"AveragePool": with_attributes(count_include_pad=1)},
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
        "height and width of weights are swapped",
        "CONV_2D",
        ("CONV_2D-SAME_3x2",),
        fields={"layout": Implicit({0: "n c h w", 1: "o i k j", out(0): "n o y x"})},
    ),
    Mutation(
        "groups are ignored",
        "CONV_2D",
        ("CONV_2D-float32_in_three_groups",),
        emits={"Conv": with_attributes(group=1)},
    ),
    Mutation(
        "the option depth_multiplier is used",
        "DEPTHWISE_CONV_2D",
        ("DEPTHWISE_CONV_2D-wrong_depth_multiplier,_which_the_kernel_ignores",),
        fields={"lower": _group_by_option},
    ),
    Mutation(
        "depth, height and width of weights are permuted",
        "CONV_3D",
        ("CONV_3D-SAME_2x3x4_stride_2x1x3",),
        fields={"layout": Implicit({0: "n c d h w", 1: "o c j k i"})},
    ),
    Mutation(
        "operands are dequantized",
        "MAX_POOL_2D",
        ("MAX_POOL_2D-int8_to_a_different_scale,_which_the_kernel_ignores",),
        fields={"quantization": Dequantized()},
    ),
)
