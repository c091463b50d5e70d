"""Convolutions with decomposed padding or dilation.

Similar patterns must not be fused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Literal

import numpy as np

from conformance.builder import TensorRef
from conformance.case import EVERY_OPSET, Case
from conformance.models import Net, Spec, constant, net, tensor
from conformance.weights import BIASES, WEIGHTS, bias, product, weight
from onnx_tflite_plugin.verify import LiteRT

IMAGE, SEQUENCE = (2, 5, 7, 3), (2, 11, 3)
CLAMPS = ("RELU", "RELU6", "RELU_N1_TO_1")
Pads = Sequence[Sequence[int]]


@dataclass(frozen=True)
class Conv:
    """Convolution whose padding or dilation is a separate operator.

    A sequence is convolved as an image of one row or column.
    """

    op: str = "CONV_2D"
    dtype: str = "float32"
    shape: Sequence[int] = IMAGE  # of the input; rank 3 for a sequence
    kernel: Sequence[int] = (3, 2)
    stride: Sequence[int] = (1, 1)
    dilation: Sequence[int] = (1, 1)
    padding: str = "VALID"
    activation: str = "NONE"
    bias: Literal["random", "zero", "none"] = "random"
    per_axis: bool = False  # the weights have a scale per output channel
    weights: str = ""  # dtype of the weights; if empty, chosen from ``dtype``
    pads: Pads = ((1, 2), (2, 0))  # start and end per spatial axis; a sequence has one spatial axis
    block: Sequence[int] = ()  # of SPACE_TO_BATCH_ND and BATCH_TO_SPACE_ND; if empty, ``pad_operator`` pads
    crops: Pads = ()  # start and end per spatial axis of BATCH_TO_SPACE_ND
    all_pads: Pads | None = None  # start and end of every axis, instead of ``pads``
    pad_operator: str = "PAD"  # PAD or PADV2
    pad_value: int | None = None  # operand of PADV2
    padded_scale_factor: float = 1.0  # scale of the padded image divided by the scale of the input
    to_image: str = "RESHAPE"  # operator that converts a sequence to an image
    to_sequence: str = "SQUEEZE"  # operator that converts the image back
    unit_axis: int = 1  # axis of size 1 in the image that a sequence becomes
    second_consumer: Literal["", "RELU", "CONV_2D"] = ""  # another operator that reads the padded image or its blocks

    def __call__(self, model: Net) -> None:
        x = tensor(*self.shape, dtype=self.dtype)
        ref = model.input(x)
        padded = self.add_space_to_batch(model, ref, x) if self.block else self.add_pad(model, ref, x)
        image = self.convert_to_image(model, padded)
        for _ in range(2 if self.second_consumer == "CONV_2D" else 1):
            y = self.add_conv(model, image)
            model.output(self.add_batch_to_space(model, y) if self.block else y)
        if self.second_consumer == "RELU":
            model.output(model.call("RELU", [padded], replace(model.spec(padded), name="")))

    # --- the operators around the convolution ---------------------------------------------------

    def add_pad(self, model: Net, ref: TensorRef, x: Spec) -> TensorRef:
        pads = self.all_pads or ((0, 0), *self.pads, (0, 0))
        padded = x.rescale(self.padded_scale_factor).with_shape(
            *((n or 0) + sum(pad) for n, pad in zip(x.shape, pads, strict=True))
        )
        operands: list[Spec | TensorRef] = [ref, constant([list(pad) for pad in pads])]
        if self.pad_operator == "PADV2":
            fill_value = int(np.asarray(padded.zero_point)) if self.pad_value is None else self.pad_value
            operands.append(
                replace(constant(np.full((), fill_value), x.dtype), scale=padded.scale, zero_point=padded.zero_point)
            )
        return model.call(self.pad_operator, operands, padded)

    def add_space_to_batch(self, model: Net, ref: TensorRef, x: Spec) -> TensorRef:
        n, *size, c = (s or 0 for s in x.shape)
        block_counts = [(s + sum(pad)) // b for s, pad, b in zip(size, self.pads, self.block, strict=True)]
        operands: list[Spec | TensorRef] = [ref, constant(list(self.block)), constant([list(pad) for pad in self.pads])]
        return model.call("SPACE_TO_BATCH_ND", operands, x.with_shape(n * prod(self.block), *block_counts, c))

    def add_batch_to_space(self, model: Net, ref: TensorRef) -> TensorRef:
        spec = model.spec(ref)
        if len(self.shape) == 3:
            shape = [s or 0 for k, s in enumerate(spec.shape) if k != self.unit_axis]
            shape_operand = [constant(shape)] if self.to_sequence == "RESHAPE" else []
            options = (
                {"squeeze_dims": (self.unit_axis,)} if self.to_sequence == "SQUEEZE" else {"new_shape": tuple(shape)}
            )
            spec = spec.with_shape(*shape)
            ref = model.call(self.to_sequence, [ref, *shape_operand], spec, **options)
        n, *size, c = (s or 0 for s in spec.shape)
        restored = [s * b - sum(crop) for s, crop, b in zip(size, self.crops, self.block, strict=True)]
        operands: list[Spec | TensorRef] = [
            ref,
            constant(list(self.block)),
            constant([list(crop) for crop in self.crops]),
        ]
        return model.call("BATCH_TO_SPACE_ND", operands, spec.with_shape(n // prod(self.block), *restored, c))

    def convert_to_image(self, model: Net, ref: TensorRef) -> TensorRef:
        """Return an image unchanged, and a sequence as an image of one row or column."""
        spec = model.spec(ref)
        if len(spec.shape) == 4:
            return ref
        shape = [s or 0 for s in (*spec.shape[: self.unit_axis], 1, *spec.shape[self.unit_axis :])]
        operand = constant(self.unit_axis if self.to_image == "EXPAND_DIMS" else shape)
        return model.call(self.to_image, [ref, operand], spec.with_shape(*shape))

    # --- the convolution ----------------------------------------------------------------------

    def add_conv(self, model: Net, ref: TensorRef) -> TensorRef:
        x = model.spec(ref)
        n, *size, c = (s or 0 for s in x.shape)
        extents = [(k - 1) * d + 1 for k, d in zip(self.kernel, self.dilation, strict=True)]
        positions = [s if self.padding == "SAME" else s - k + 1 for s, k in zip(size, extents, strict=True)]
        is_depthwise = self.op == "DEPTHWISE_CONV_2D"
        outputs, depth = 2 * c if is_depthwise else 4, prod(self.kernel) * (1 if is_depthwise else c)
        shape = (1, *self.kernel, outputs) if is_depthwise else (outputs, *self.kernel, c)
        w = weight(shape, self.weights or WEIGHTS[self.dtype], (3 if is_depthwise else 0) if self.per_axis else None)
        y = product(x, w, (n, *(-(-p // s) for p, s in zip(positions, self.stride, strict=True)), outputs), depth)
        b = bias(x, w, outputs, BIASES[self.dtype], depth)
        if self.bias == "zero":
            b = replace(b, value=np.zeros(outputs, b.dtype))
        biases = [] if self.bias == "none" else [b]
        (sh, sw), (dh, dw) = self.stride, self.dilation
        options = {
            "padding": self.padding,
            "stride_h": sh,
            "stride_w": sw,
            "fused_activation_function": self.activation,
        }
        return model.call(self.op, [ref, w, *biases], y, dilation_h_factor=dh, dilation_w_factor=dw, **options)


# --- cases ------------------------------------------------------------------------------------

ROW = Conv(shape=SEQUENCE, kernel=(1, 3), pads=((4, 0),))
CAUSAL = Conv(shape=SEQUENCE, kernel=(1, 3), block=(3,), pads=((6, 1),), crops=((0, 1),))

PADDED: dict[str, Conv] = {
    "PAD": Conv(),
    "PAD and a stride": Conv(kernel=(3, 3), stride=(2, 2), pads=((0, 1), (0, 1))),
    "PAD and dilation": Conv(dilation=(2, 3)),
    "PAD and SAME": Conv(padding="SAME", stride=(2, 3), kernel=(3, 4)),
    "PAD of size 0": Conv(pads=((0, 0), (0, 0))),
    "PADV2 with zero": Conv(pad_operator="PADV2", pad_value=0),
    "sequence in a row": ROW,
    "sequence in a row by EXPAND_DIMS": replace(ROW, to_image="EXPAND_DIMS", dilation=(1, 2)),
    "sequence in a column": replace(ROW, kernel=(3, 1), pads=((1, 2),), unit_axis=2),
}
DILATED: dict[str, Conv] = {
    "SPACE_TO_BATCH_ND": Conv(block=(2, 3), pads=((2, 3), (3, 5)), crops=((0, 1), (0, 2))),
    "SPACE_TO_BATCH_ND padded only to whole blocks": Conv(block=(2, 3), pads=((0, 1), (0, 2)), crops=((0, 1), (0, 2))),
    "SPACE_TO_BATCH_ND in 2x2 blocks": Conv(block=(2, 2), kernel=(3, 3), pads=((1, 4), (3, 2)), crops=((1, 2), (2, 1))),
    "SPACE_TO_BATCH_ND and SAME": Conv(
        block=(2, 3), kernel=(3, 3), padding="SAME", pads=((0, 1), (1, 1)), crops=((1, 0), (2, 2))
    ),
    "SPACE_TO_BATCH_ND and dilation": Conv(
        block=(2, 2), dilation=(2, 1), pads=((4, 5), (1, 2)), crops=((1, 0), (0, 1))
    ),
    "SPACE_TO_BATCH_ND of a row": CAUSAL,
    "SPACE_TO_BATCH_ND of a row by EXPAND_DIMS and RESHAPE": replace(
        CAUSAL, to_image="EXPAND_DIMS", to_sequence="RESHAPE"
    ),
    "SPACE_TO_BATCH_ND of a column": replace(CAUSAL, kernel=(3, 1), unit_axis=2),
}
SHARED: dict[str, Conv] = {
    "PAD shared by two convolutions": Conv(second_consumer="CONV_2D"),
    "PAD of a row shared by two convolutions": replace(ROW, second_consumer="CONV_2D", to_image="EXPAND_DIMS"),
    "PAD read by another operator": Conv(second_consumer="RELU"),
    "SPACE_TO_BATCH_ND shared by two convolutions": replace(DILATED["SPACE_TO_BATCH_ND"], second_consumer="CONV_2D"),
    "SPACE_TO_BATCH_ND of a row shared by two convolutions": replace(
        CAUSAL, second_consumer="CONV_2D", to_image="EXPAND_DIMS"
    ),
    "SPACE_TO_BATCH_ND read by another operator": replace(CAUSAL, second_consumer="RELU"),
}
NOT_FUSED: dict[str, Conv] = {
    "PAD of channels": Conv(all_pads=((0, 0), (1, 0), (0, 1), (0, 1))),
    "PAD of batches": Conv(all_pads=((1, 0), (1, 0), (0, 1), (0, 0))),
    "PADV2 with a nonzero value": Conv(pad_operator="PADV2", pad_value=2),
    "int8 PADV2 with a value other than the zero point": Conv(pad_operator="PADV2", pad_value=0, dtype="int8"),
    "PAD to a different scale": Conv(dtype="int8", padded_scale_factor=2.0),
    "crop larger than the padding": Conv(block=(2, 2), pads=((0, 1), (0, 1)), crops=((1, 0), (0, 0))),
    "SPACE_TO_BATCH_ND and a stride": Conv(block=(2, 2), pads=((0, 1), (0, 1)), crops=((0, 0), (0, 0)), stride=(2, 1)),
}


def depthwise(conv: Conv) -> Conv:
    return replace(conv, op="DEPTHWISE_CONV_2D")


def cases() -> Iterator[Case]:
    for convs in (PADDED, DILATED):
        for name, conv in convs.items():
            for variant in (conv, depthwise(conv)):
                yield decomposed_case(
                    name, variant, opsets=EVERY_OPSET if name in ("PAD", "SPACE_TO_BATCH_ND") else (None,)
                )
        for dtype in ("int8", "uint8", "int16"):
            for name, conv in list(convs.items())[::3]:  # every third, to save time
                quantized = replace(conv, dtype=dtype, pad_operator="PAD", pad_value=None)
                yield decomposed_case(f"{dtype}, {name}", quantized)
                yield decomposed_case(f"{dtype}, {name}", depthwise(replace(quantized, per_axis=dtype != "uint8")))
        for name in ("sequence in a row", "SPACE_TO_BATCH_ND of a row"):
            if name in convs:
                yield decomposed_case(f"int8, {name}, RELU6", replace(convs[name], dtype="int8", activation="RELU6"))
        basic = next(iter(convs.values()))
        for activation in CLAMPS:
            for dtype in ("float32", "int8"):
                conv = replace(basic, dtype=dtype, activation=activation)
                yield decomposed_case(
                    f"{dtype}, {'SPACE_TO_BATCH_ND' if basic.block else 'PAD'} and {activation}", conv
                )
    yield decomposed_case("int8, PADV2 with the zero point", Conv(dtype="int8", pad_operator="PADV2"))
    for name in ("PAD", "SPACE_TO_BATCH_ND"):
        conv = {**PADDED, **DILATED}[name]
        for variant in (conv, depthwise(conv)):
            yield decomposed_case(f"{name} without bias", replace(variant, bias="none"))
    for name, conv in SHARED.items():
        for dtype in ("float32", "int8"):
            for variant in (conv, depthwise(conv)):
                yield decomposed_case(f"{dtype}, {name}", replace(variant, dtype=dtype))
    for name, conv in NOT_FUSED.items():
        yield decomposed_case(f"not fused, {name}", conv)


def decomposed_case(name: str, conv: Conv, opsets: Sequence[int | None] = (None,)) -> Case:
    """Return a case of a convolution.

    Without bias, LiteRT computes the expected outputs with a bias of 0.
    """
    opsets = (None, 26) if conv.dtype == "int16" else opsets
    targets = ("onnxruntime",) if conv.dtype == "int16" else ("onnxruntime", "generic")
    case = net(conv.op, f"decomposed, {name}", conv, dtype=conv.dtype, opsets=opsets, targets=targets)
    if conv.bias != "none":
        return case
    # Some kernels require a bias, or crash without one.
    biased_case = decomposed_case(name, replace(conv, bias="zero"))
    return replace(case, reference=lambda arrays: LiteRT(biased_case.build(), "builtin").run(arrays))
