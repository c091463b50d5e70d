"""Convolutions with decomposed padding or dilation, and similar patterns that must not be fused."""

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
FUSED = ("RELU", "RELU6", "RELU_N1_TO_1")
Rows = Sequence[Sequence[int]]


@dataclass(frozen=True)
class Conv:
    """Convolution with decomposed padding, blocks and crops around it; one row of each for a sequence."""

    op: str = "CONV_2D"
    dtype: str = "float32"
    shape: Sequence[int] = IMAGE
    kernel: Sequence[int] = (3, 2)
    stride: Sequence[int] = (1, 1)
    dilation: Sequence[int] = (1, 1)
    padding: str = "VALID"
    activation: str = "NONE"
    bias: Literal["random", "zero", "none"] = "random"
    per_axis: bool = False
    weights: str = ""  # by default the dtype's
    rows: Rows = ((1, 2), (2, 0))
    block: Sequence[int] = ()
    crops: Rows = ()
    all_pads: Rows | None = None  # all four rows, batches and channels too
    code: str = "PAD"
    number: int | None = None  # the padding value of PADV2
    scaled: float = 1.0  # the padded image's scale
    opening: str = "RESHAPE"
    closing: str = "SQUEEZE"
    unit: int = 1
    again: Literal["", "RELU", "CONV_2D"] = ""  # second consumer of the padded image or its batches

    def __call__(self, model: Net) -> None:
        x = tensor(*self.shape, dtype=self.dtype)
        ref = model.input(x)
        padded = self.batches(model, ref, x) if self.block else self.zeros(model, ref, x)
        image = self.image(model, padded)
        for _ in range(2 if self.again == "CONV_2D" else 1):
            y = self.product(model, image)
            model.output(self.restore(model, y) if self.block else y)
        if self.again == "RELU":
            model.output(model.call("RELU", [padded], replace(model.spec(padded), name="")))

    # --- what is all_pads -----------------------------------------------------------------------

    def zeros(self, model: Net, ref: TensorRef, x: Spec) -> TensorRef:
        rows = self.all_pads or ((0, 0), *self.rows, (0, 0))
        padded = x.rescale(self.scaled).with_shape(*((n or 0) + sum(row) for n, row in zip(x.shape, rows, strict=True)))
        operands: list[Spec | TensorRef] = [ref, constant([list(row) for row in rows])]
        if self.code == "PADV2":
            point = int(np.asarray(padded.zero_point)) if self.number is None else self.number
            operands.append(
                replace(constant(np.full((), point), x.dtype), scale=padded.scale, zero_point=padded.zero_point)
            )
        return model.call(self.code, operands, padded)

    def batches(self, model: Net, ref: TensorRef, x: Spec) -> TensorRef:
        n, *size, c = (s or 0 for s in x.shape)
        cut = [(s + sum(row)) // b for s, row, b in zip(size, self.rows, self.block, strict=True)]
        operands: list[Spec | TensorRef] = [ref, constant(list(self.block)), constant([list(row) for row in self.rows])]
        return model.call("SPACE_TO_BATCH_ND", operands, x.with_shape(n * prod(self.block), *cut, c))

    def restore(self, model: Net, ref: TensorRef) -> TensorRef:
        spec = model.spec(ref)
        if len(self.shape) == 3:
            shape = [s or 0 for k, s in enumerate(spec.shape) if k != self.unit]
            more = [constant(shape)] if self.closing == "RESHAPE" else []
            options = {"squeeze_dims": (self.unit,)} if self.closing == "SQUEEZE" else {"new_shape": tuple(shape)}
            spec = spec.with_shape(*shape)
            ref = model.call(self.closing, [ref, *more], spec, **options)
        n, *size, c = (s or 0 for s in spec.shape)
        wide = [s * b - sum(row) for s, row, b in zip(size, self.crops, self.block, strict=True)]
        operands: list[Spec | TensorRef] = [
            ref,
            constant(list(self.block)),
            constant([list(row) for row in self.crops]),
        ]
        return model.call("BATCH_TO_SPACE_ND", operands, spec.with_shape(n // prod(self.block), *wide, c))

    def image(self, model: Net, ref: TensorRef) -> TensorRef:
        """Return a sequence as an image of one row or one column."""
        spec = model.spec(ref)
        if len(spec.shape) == 4:
            return ref
        shape = [s or 0 for s in (*spec.shape[: self.unit], 1, *spec.shape[self.unit :])]
        operand = constant(self.unit if self.opening == "EXPAND_DIMS" else shape)
        return model.call(self.opening, [ref, operand], spec.with_shape(*shape))

    # --- the convolution ----------------------------------------------------------------------

    def product(self, model: Net, ref: TensorRef) -> TensorRef:
        x = model.spec(ref)
        n, *size, c = (s or 0 for s in x.shape)
        wide = [(k - 1) * d + 1 for k, d in zip(self.kernel, self.dilation, strict=True)]
        full = [s if self.padding == "SAME" else s - k + 1 for s, k in zip(size, wide, strict=True)]
        deep = self.op == "DEPTHWISE_CONV_2D"
        outputs, depth = 2 * c if deep else 4, prod(self.kernel) * (1 if deep else c)
        shape = (1, *self.kernel, outputs) if deep else (outputs, *self.kernel, c)
        w = weight(shape, self.weights or WEIGHTS[self.dtype], (3 if deep else 0) if self.per_axis else None)
        y = product(x, w, (n, *(-(-f // s) for f, s in zip(full, self.stride, strict=True)), outputs), depth)
        b = bias(x, w, outputs, BIASES[self.dtype], depth)
        more = (
            [] if self.bias == "none" else [replace(b, value=np.zeros(outputs, b.dtype)) if self.bias == "zero" else b]
        )
        (sh, sw), (dh, dw) = self.stride, self.dilation
        options = {
            "padding": self.padding,
            "stride_h": sh,
            "stride_w": sw,
            "fused_activation_function": self.activation,
        }
        return model.call(self.op, [ref, w, *more], y, dilation_h_factor=dh, dilation_w_factor=dw, **options)


# --- one operator -----------------------------------------------------------------------------

ROW = Conv(shape=SEQUENCE, kernel=(1, 3), rows=((4, 0),))
CAUSAL = Conv(shape=SEQUENCE, kernel=(1, 3), block=(3,), rows=((6, 1),), crops=((0, 1),))

PADDED: dict[str, Conv] = {
    "pads": Conv(),
    "pads with a stride": Conv(kernel=(3, 3), stride=(2, 2), rows=((0, 1), (0, 1))),
    "pads and dilation": Conv(dilation=(2, 3)),
    "pads and SAME": Conv(padding="SAME", stride=(2, 3), kernel=(3, 4)),
    "no pads": Conv(rows=((0, 0), (0, 0))),
    "PADV2 with zero": Conv(code="PADV2", number=0),
    "a sequence in a row": ROW,
    "a sequence in a row by EXPAND_DIMS": replace(ROW, opening="EXPAND_DIMS", dilation=(1, 2)),
    "a sequence in a column": replace(ROW, kernel=(3, 1), rows=((1, 2),), unit=2),
}
DILATED: dict[str, Conv] = {
    "batches": Conv(block=(2, 3), rows=((2, 3), (3, 5)), crops=((0, 1), (0, 2))),
    "batches and VALID": Conv(block=(2, 3), rows=((0, 1), (0, 2)), crops=((0, 1), (0, 2))),
    "batches of an odd image": Conv(block=(2, 2), kernel=(3, 3), rows=((1, 4), (3, 2)), crops=((1, 2), (2, 1))),
    "batches and SAME": Conv(
        block=(2, 3), kernel=(3, 3), padding="SAME", rows=((0, 1), (1, 1)), crops=((1, 0), (2, 2))
    ),
    "batches and dilation": Conv(block=(2, 2), dilation=(2, 1), rows=((4, 5), (1, 2)), crops=((1, 0), (0, 1))),
    "batches in a row": CAUSAL,
    "batches in a row by EXPAND_DIMS and RESHAPE": replace(CAUSAL, opening="EXPAND_DIMS", closing="RESHAPE"),
    "batches in a column": replace(CAUSAL, kernel=(3, 1), unit=2),
}
SHARED: dict[str, Conv] = {
    "pads shared by two convolutions": Conv(again="CONV_2D"),
    "row pads shared by two convolutions": replace(ROW, again="CONV_2D", opening="EXPAND_DIMS"),
    "pads read by another operator": Conv(again="RELU"),
    "batches shared by two convolutions": replace(DILATED["batches"], again="CONV_2D"),
    "row batches shared by two convolutions": replace(CAUSAL, again="CONV_2D", opening="EXPAND_DIMS"),
    "batches read by another operator": replace(CAUSAL, again="RELU"),
}
NOT_FUSED: dict[str, Conv] = {
    "pads of channels": Conv(all_pads=((0, 0), (1, 0), (0, 1), (0, 1))),
    "pads of batches": Conv(all_pads=((1, 0), (1, 0), (0, 1), (0, 0))),
    "PADV2 with a nonzero value": Conv(code="PADV2", number=2),
    "int8 PADV2 with a nonzero value": Conv(code="PADV2", number=0, dtype="int8"),
    "pads to a different scale": Conv(dtype="int8", scaled=2.0),
    "a crop deeper than the padding": Conv(block=(2, 2), rows=((0, 1), (0, 1)), crops=((1, 0), (0, 0))),
    "batches and a stride": Conv(block=(2, 2), rows=((0, 1), (0, 1)), crops=((0, 0), (0, 0)), stride=(2, 1)),
}


def depthwise(setting: Conv) -> Conv:
    return replace(setting, op="DEPTHWISE_CONV_2D")


def cases() -> Iterator[Case]:
    for fused in (PADDED, DILATED):
        for name, setting in fused.items():
            for layer in (setting, depthwise(setting)):
                yield decomposed_case(name, layer, opsets=EVERY_OPSET if name in ("pads", "batches") else (None,))
        for dtype in ("int8", "uint8", "int16"):
            for name, setting in list(fused.items())[::3]:
                plain = replace(setting, dtype=dtype, code="PAD", number=None)
                yield decomposed_case(f"{dtype}, {name}", plain)
                yield decomposed_case(f"{dtype}, {name}", depthwise(replace(plain, per_axis=dtype != "uint8")))
        for name in ("a sequence in a row", "batches in a row"):
            if name in fused:
                yield decomposed_case(f"int8, {name}, RELU6", replace(fused[name], dtype="int8", activation="RELU6"))
        first = next(iter(fused.values()))
        for activation in FUSED:
            for dtype in ("float32", "int8"):
                setting = replace(first, dtype=dtype, activation=activation)
                yield decomposed_case(f"{dtype}, {'batches' if first.block else 'pads'} and {activation}", setting)
    yield decomposed_case("int8, PADV2 with the zero point", Conv(dtype="int8", code="PADV2"))
    for name in ("pads", "batches"):
        setting = {**PADDED, **DILATED}[name]
        for layer in (setting, depthwise(setting)):
            yield decomposed_case(f"{name} without bias", replace(layer, bias="none"))
    for name, setting in SHARED.items():
        for dtype in ("float32", "int8"):
            for layer in (setting, depthwise(setting)):
                yield decomposed_case(f"{dtype}, {name}", replace(layer, dtype=dtype))
    for name, setting in NOT_FUSED.items():
        yield decomposed_case(f"not fused, {name}", setting)


def decomposed_case(name: str, setting: Conv, opsets: Sequence[int | None] = (None,)) -> Case:
    opsets = (None, 26) if setting.dtype == "int16" else opsets
    targets = ("onnxruntime",) if setting.dtype == "int16" else ("onnxruntime", "generic")
    case = net(setting.op, f"decomposed, {name}", setting, dtype=setting.dtype, opsets=opsets, targets=targets)
    if setting.bias != "none":
        return case
    twin = decomposed_case(name, replace(setting, bias="zero"))  # LiteRT requires a bias, or crashes without one
    return replace(case, reference=lambda arrays: LiteRT(twin.build(), "builtin").run(arrays))
