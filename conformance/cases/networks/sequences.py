"""Sequences stored as images of one row or column.

Convolutions, pooling and other operators between them transform these images.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from conformance.builder import TensorRef
from conformance.case import EVERY_OPSET, Case
from conformance.models import Net, Spec, constant, net, random_array, tensor
from conformance.weights import BIASES, WEIGHTS, bias, product, weight

SEQUENCE = (2, 11, 3)
DTYPES = ("float32", "int8", "uint8", "int16")
POOLS = ("MAX_POOL_2D", "AVERAGE_POOL_2D")


@dataclass(frozen=True)
class SequenceLayer:
    """A convolution or pooling on a sequence stored as an image of one row or column."""

    op: str = "CONV_2D"
    dtype: str = "float32"
    shape: Sequence[int | None] = SEQUENCE
    unit_axis: int = 1  # axis of size 1 of the image, 1 or 2
    kernel: int = 3
    stride: int = 1
    dilation: int = 1
    padding: str = "VALID"
    activation: str = "NONE"
    per_axis: bool = False
    biased: bool = True
    unit_axis_settings: tuple[int, int, int] = (1, 3, 5)  # kernel, stride and dilation along that axis
    to_image: str = "RESHAPE"  # "" for a graph input that is an image
    to_sequence: str = "SQUEEZE"  # "" for a graph output that is an image

    def __call__(self, model: Net) -> None:
        image_spec = self.image_spec()
        x = model.input(tensor(*self.shape, dtype=self.dtype) if self.to_image else image_spec)
        y = self.add_layer(model, self.convert_to_image(model, x, image_spec) if self.to_image else x)
        model.output(self.convert_to_sequence(model, y) if self.to_sequence else y)

    def image_spec(self) -> Spec:
        n, length, channels = self.shape
        size = (1, length) if self.unit_axis == 1 else (length, 1)
        return tensor(n, *size, channels, dtype=self.dtype)

    def convert_to_image(self, model: Net, ref: TensorRef, image: Spec) -> TensorRef:
        sizes = [-1 if size is None else size for size in image.shape]
        operand = constant(self.unit_axis if self.to_image == "EXPAND_DIMS" else sizes)
        return model.call(self.to_image, [ref, operand], image)

    def convert_to_sequence(self, model: Net, ref: TensorRef) -> TensorRef:
        spec = model.spec(ref)
        shape = [size for axis, size in enumerate(spec.shape) if axis != self.unit_axis]
        if self.to_sequence == "SQUEEZE":
            return model.call("SQUEEZE", [ref], spec.with_shape(*shape), squeeze_dims=(self.unit_axis,))
        sizes = constant([-1 if size is None else size for size in shape])
        return model.call("RESHAPE", [ref, sizes], spec.with_shape(*shape))

    def height_and_width(self, along_sequence: int, along_unit_axis: int) -> tuple[int, int]:
        return (along_unit_axis, along_sequence) if self.unit_axis == 1 else (along_sequence, along_unit_axis)

    def add_layer(self, model: Net, ref: TensorRef) -> TensorRef:
        x = model.spec(ref)
        n, height, width, channels = x.shape
        length = width if self.unit_axis == 1 else height
        kernel_extent = (self.kernel - 1) * self.dilation + 1
        output_length = None
        if length is not None:
            output_length = -(-(length if self.padding == "SAME" else length - kernel_extent + 1) // self.stride)
        kernel = self.height_and_width(self.kernel, self.unit_axis_settings[0])
        shape = (n, 1, output_length) if self.unit_axis == 1 else (n, output_length, 1)
        stride_h, stride_w = self.height_and_width(self.stride, self.unit_axis_settings[1])
        options: dict[str, Any] = {"padding": self.padding, "stride_h": stride_h, "stride_w": stride_w}
        options["fused_activation_function"] = self.activation
        if self.op in POOLS:
            window = {"filter_height": kernel[0], "filter_width": kernel[1]}
            return model.call(self.op, [ref], replace(x, name="").with_shape(*shape, channels), **options, **window)
        dilation_h, dilation_w = self.height_and_width(self.dilation, self.unit_axis_settings[2])
        depthwise, c = self.op == "DEPTHWISE_CONV_2D", channels or 1
        out_channels, depth = 2 * c if depthwise else 4, self.kernel * (1 if depthwise else c)
        kernel_shape = (1, *kernel, out_channels) if depthwise else (out_channels, *kernel, c)
        w = weight(kernel_shape, WEIGHTS[self.dtype], (3 if depthwise else 0) if self.per_axis else None)
        y = product(x, w, (n or 1, 1, 1, out_channels), depth).with_shape(*shape, out_channels)
        b = bias(x, w, out_channels, BIASES[self.dtype], depth)
        b = b if self.biased else replace(b, value=np.zeros(out_channels, b.dtype))
        options |= {"dilation_h_factor": dilation_h, "dilation_w_factor": dilation_w}
        return model.call(self.op, [ref, w, b], y, **options)


# --- one layer --------------------------------------------------------------------------------

SEQUENCE_LAYERS: dict[str, SequenceLayer] = {
    "sequence in a row": SequenceLayer(),
    "sequence in a column": SequenceLayer(unit_axis=2),
    "sequence in a row, SAME stride 2": SequenceLayer(padding="SAME", stride=2, kernel=4),
    "sequence in a column by EXPAND_DIMS, SAME": SequenceLayer(
        unit_axis=2, padding="SAME", dilation=2, to_image="EXPAND_DIMS"
    ),
    "sequence in a row, stride 3": SequenceLayer(
        stride=3, kernel=2, unit_axis_settings=(1, 2, 1), to_sequence="RESHAPE"
    ),
    "image of one row": SequenceLayer(to_image="", to_sequence=""),
    "image of one column to a sequence": SequenceLayer(unit_axis=2, to_image="", stride=2),
    "sequence to an image of one row": SequenceLayer(to_sequence="", padding="SAME"),
    "sequence in a row, kernel 1": SequenceLayer(kernel=1),
    "sequence in a row, kernel of height 3": SequenceLayer(padding="SAME", unit_axis_settings=(3, 1, 1)),
    "sequence in a column, kernel of width 2": SequenceLayer(unit_axis=2, padding="SAME", unit_axis_settings=(2, 1, 1)),
    "sequence of length 1": SequenceLayer(shape=(2, 1, 3), kernel=1, padding="SAME", unit_axis_settings=(1, 1, 1)),
}


def layer_case(op: str, name: str, setting: SequenceLayer, **case_fields: Any) -> Case:
    opsets = (None, 26) if setting.dtype == "int16" else (None,)
    return net(op, name, replace(setting, op=op), **{"dtype": setting.dtype, "opsets": opsets, **case_fields})


def cases() -> Iterator[Case]:
    for op in ("CONV_2D", "DEPTHWISE_CONV_2D", *POOLS):
        for name, setting in SEQUENCE_LAYERS.items():
            setting = replace(setting, dilation=1) if op in POOLS else setting
            for dtype in ("float32", "int8"):
                opsets = EVERY_OPSET if name == "sequence in a row" else (None,)
                yield layer_case(op, f"{name}, {dtype}", replace(setting, dtype=dtype), opsets=opsets)
        for dtype in ("uint8", "int16"):
            yield layer_case(op, f"sequence in a row, {dtype}", SequenceLayer(dtype=dtype))
        for activation in ("RELU", "RELU6"):
            for dtype in ("float32", "int8"):
                setting = SequenceLayer(dtype=dtype, activation=activation, unit_axis=2)
                yield layer_case(
                    op, f"sequence in a column with {activation}, {dtype}", setting, input_range=(-10.0, 10.0)
                )
        dynamic = SequenceLayer(shape=(None, None, 3), to_image="EXPAND_DIMS")
        yield layer_case(op, "sequence in a row, dynamic batch and length", dynamic, input_arrays=DYNAMIC_BATCH_RUNS)
        yield layer_case(
            op,
            "sequence in a column, dynamic length",
            SequenceLayer(shape=(1, None, 3), unit_axis=2, to_image="EXPAND_DIMS"),
            input_arrays=DYNAMIC_LENGTH_RUNS,
        )
    for op in ("CONV_2D", "DEPTHWISE_CONV_2D"):
        for dtype in ("int8", "int16"):
            yield layer_case(
                op, f"sequence in a row with per-channel scales, {dtype}", SequenceLayer(dtype=dtype, per_axis=True)
            )
            yield layer_case(
                op,
                f"sequence in a column with per-channel scales, {dtype}",
                SequenceLayer(dtype=dtype, per_axis=True, unit_axis=2),
            )
        yield layer_case(op, "sequence in a row without bias", SequenceLayer(biased=False))
    for dtype in ("float32", "int8"):
        for name, build in CHAINS.items():
            yield net("CONV_2D", f"chain in a row, {name}, {dtype}", build(dtype), dtype=dtype, max_transposes=1)


DYNAMIC_BATCH_RUNS = [{"x0": random_array(n, length, 3)} for n, length in ((1, 7), (5, 13))]
DYNAMIC_LENGTH_RUNS = [{"x0": random_array(1, length, 3)} for length in (7, 13)]

# --- chains of layers -------------------------------------------------------------------------

BuildFunction = Callable[[Net], None]


def chain(*layers: Callable[[Net, TensorRef], TensorRef]) -> Callable[[str], BuildFunction]:
    """Return a function of a dtype that builds a chain of layers on a sequence.

    The chain ends with the mean over the sequence's length.
    """

    def builder(dtype: str) -> BuildFunction:
        def build(model: Net) -> None:
            sequence_layer = SequenceLayer(dtype=dtype, padding="SAME")
            x = model.input(tensor(2, 11, 5, dtype=dtype))
            ref = sequence_layer.convert_to_image(model, x, replace(sequence_layer, shape=(2, 11, 5)).image_spec())
            for layer in layers:
                ref = layer(model, ref)
            spec = model.spec(ref)
            y = sequence_layer.convert_to_sequence(model, ref)
            model.output(
                model.call("MEAN", [y, constant([1])], spec.with_shape(spec.shape[0], spec.shape[3]), keep_dims=False)
            )

        return build

    return builder


def conv(model: Net, ref: TensorRef) -> TensorRef:
    """Add a convolution that keeps channels and length."""
    spec = model.spec(ref)
    channels = spec.shape[3] or 1
    unit_axis = 1 if spec.shape[1] == 1 else 2
    kernel = (1, 3) if unit_axis == 1 else (3, 1)
    w = weight((channels, *kernel, channels), WEIGHTS[spec.dtype])
    y = product(spec, w, [size or 1 for size in spec.shape], 3 * channels)
    b = bias(spec, w, channels, BIASES[spec.dtype], 3 * channels)
    options = {"padding": "SAME", "stride_h": 1, "stride_w": 1, "dilation_h_factor": 1, "dilation_w_factor": 1}
    return model.call("CONV_2D", [ref, w, b], y, **options)


def max_pool(model: Net, ref: TensorRef) -> TensorRef:
    return SequenceLayer(op="MAX_POOL_2D", kernel=2, stride=2).add_layer(model, ref)


def residual_add(model: Net, ref: TensorRef) -> TensorRef:
    """Add a convolution, and the sum of its operand and its result."""
    y = conv(model, ref)
    return model.call("ADD", [ref, y], replace(model.spec(y), name=""))


def multiply_by(*shape: int) -> Callable[[Net, TensorRef], TensorRef]:
    """Return a function that adds a multiplication by a constant of this shape."""

    def multiply(model: Net, ref: TensorRef) -> TensorRef:
        spec = model.spec(ref)
        low, high = (None, None) if spec.dtype == "float32" else (-100, 100)
        factor = constant(
            random_array(*shape, dtype=spec.dtype, low=low, high=high), None, None if spec.scale is None else 0.013
        )
        return model.call("MUL", [ref, factor], replace(spec, name="").rescale(1.5))

    return multiply


def swap_height_and_width(model: Net, ref: TensorRef) -> TensorRef:
    spec = model.spec(ref)
    n, height, width, channels = spec.shape
    return model.call("TRANSPOSE", [ref, constant([0, 2, 1, 3])], spec.with_shape(n, width, height, channels))


CHAINS: dict[str, Callable[[str], BuildFunction]] = {
    "residual ADD": chain(conv, residual_add),
    "per-channel factor": chain(conv, multiply_by(5), conv),
    "per-element factor": chain(conv, multiply_by(11, 5), conv),
    "per-position factor": chain(conv, multiply_by(1, 1, 11, 1), conv),
    "MAX_POOL_2D": chain(conv, max_pool, conv),
    "TRANSPOSE to a column and back": chain(conv, swap_height_and_width, conv, swap_height_and_width),
}
