"""Sequences stored as images of one row or column: convolutions, pooling, and operators between them."""

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
class Line:
    """One operator on a sequence stored as an image; its settings along the unit axis differ, so that swapped axes are noticed.

    ``unit``: the unit axis, 1 or 2. ``other``: kernel, stride and dilation along it. ``opening``, ``closing``: the operators
    that convert the sequence to an image and back; "" for a graph input or output that is an image.
    """

    op: str = "CONV_2D"
    dtype: str = "float32"
    shape: Sequence[int | None] = SEQUENCE
    unit: int = 1
    kernel: int = 3
    stride: int = 1
    dilation: int = 1
    padding: str = "VALID"
    activation: str = "NONE"
    per_axis: bool = False
    biased: bool = True
    other: tuple[int, int, int] = (1, 3, 5)
    opening: str = "RESHAPE"
    closing: str = "SQUEEZE"

    def __call__(self, model: Net) -> None:
        image = self.image()
        x = model.input(tensor(*self.shape, dtype=self.dtype) if self.opening else image)
        y = self.product(model, self.add_height(model, x, image) if self.opening else x)
        model.output(self.drop_height(model, y) if self.closing else y)

    def image(self) -> Spec:
        n, length, channels = self.shape
        size = (1, length) if self.unit == 1 else (length, 1)
        return tensor(n, *size, channels, dtype=self.dtype)

    def add_height(self, model: Net, ref: TensorRef, image: Spec) -> TensorRef:
        sizes = [-1 if size is None else size for size in image.shape]
        operand = constant(self.unit if self.opening == "EXPAND_DIMS" else sizes)
        return model.call(self.opening, [ref, operand], image)

    def drop_height(self, model: Net, ref: TensorRef) -> TensorRef:
        spec = model.spec(ref)
        shape = [size for axis, size in enumerate(spec.shape) if axis != self.unit]
        if self.closing == "SQUEEZE":
            return model.call("SQUEEZE", [ref], spec.with_shape(*shape), squeeze_dims=(self.unit,))
        sizes = constant([-1 if size is None else size for size in shape])
        return model.call("RESHAPE", [ref, sizes], spec.with_shape(*shape))

    def pair(self, along: int, other: int) -> tuple[int, int]:
        """Return height and width."""
        return (other, along) if self.unit == 1 else (along, other)

    def product(self, model: Net, ref: TensorRef) -> TensorRef:
        x = model.spec(ref)
        n, height, width, channels = x.shape
        length = width if self.unit == 1 else height
        reach = (self.kernel - 1) * self.dilation + 1
        result = (
            None if length is None else -(-(length if self.padding == "SAME" else length - reach + 1) // self.stride)
        )
        kernel = self.pair(self.kernel, self.other[0])
        shape = (n, 1, result) if self.unit == 1 else (n, result, 1)
        stride_h, stride_w = self.pair(self.stride, self.other[1])
        options: dict[str, Any] = {"padding": self.padding, "stride_h": stride_h, "stride_w": stride_w}
        options["fused_activation_function"] = self.activation
        if self.op in POOLS:
            window = {"filter_height": kernel[0], "filter_width": kernel[1]}
            return model.call(self.op, [ref], replace(x, name="").with_shape(*shape, channels), **options, **window)
        dilation_h, dilation_w = self.pair(self.dilation, self.other[2])
        deep, c = self.op == "DEPTHWISE_CONV_2D", channels or 1
        out, depth = 2 * c if deep else 4, self.kernel * (1 if deep else c)
        kernel_shape = (1, *kernel, out) if deep else (out, *kernel, c)
        w = weight(kernel_shape, WEIGHTS[self.dtype], (3 if deep else 0) if self.per_axis else None)
        y = product(x, w, (n or 1, 1, 1, out), depth).with_shape(*shape, out)
        b = bias(x, w, out, BIASES[self.dtype], depth)
        given = b if self.biased else replace(b, value=np.zeros(out, b.dtype))
        options |= {"dilation_h_factor": dilation_h, "dilation_w_factor": dilation_w}
        return model.call(self.op, [ref, w, given], y, **options)


# --- line_case operator -----------------------------------------------------------------------------

LINES: dict[str, Line] = {
    "a row": Line(),
    "a column": Line(unit=2),
    "a row, SAME stride 2": Line(padding="SAME", stride=2, kernel=4),
    "a column, SAME dilated 2": Line(unit=2, padding="SAME", dilation=2, opening="EXPAND_DIMS"),
    "a row, stride 3": Line(stride=3, kernel=2, other=(1, 2, 1), closing="RESHAPE"),
    "a row of an image": Line(opening="", closing=""),
    "a column into a sequence": Line(unit=2, opening="", stride=2),
    "a row out of a sequence": Line(closing="", padding="SAME"),
    "a row, kernel 1": Line(kernel=1),
    "a row under three rows of kernel": Line(padding="SAME", other=(3, 1, 1)),
    "a column under two columns of kernel": Line(unit=2, padding="SAME", other=(2, 1, 1)),
    "a single position": Line(shape=(2, 1, 3), kernel=1, padding="SAME", other=(1, 1, 1)),
}


def line_case(op: str, name: str, setting: Line, **case: Any) -> Case:
    opsets = (None, 26) if setting.dtype == "int16" else (None,)
    return net(op, f"along {name}", replace(setting, op=op), **{"dtype": setting.dtype, "opsets": opsets, **case})


def cases() -> Iterator[Case]:
    for op in ("CONV_2D", "DEPTHWISE_CONV_2D", *POOLS):
        for name, setting in LINES.items():
            setting = replace(setting, dilation=1) if op in POOLS else setting
            for dtype in ("float32", "int8"):
                opsets = EVERY_OPSET if name == "a row" else (None,)
                yield line_case(op, f"{name}, {dtype}", replace(setting, dtype=dtype), opsets=opsets)
        for dtype in ("uint8", "int16"):
            yield line_case(op, f"a row, {dtype}", Line(dtype=dtype))
        for activation in ("RELU", "RELU6"):
            for dtype in ("float32", "int8"):
                setting = Line(dtype=dtype, activation=activation, unit=2)
                yield line_case(op, f"a column with {activation}, {dtype}", setting, input_range=(-10.0, 10.0))
        unknown = Line(shape=(None, None, 3), opening="EXPAND_DIMS")
        yield line_case(op, "a row of dynamic batch and length", unknown, input_arrays=UNKNOWN)
        yield line_case(
            op, "a column of dynamic length", Line(shape=(1, None, 3), unit=2, opening="EXPAND_DIMS"), input_arrays=LONG
        )
    for op in ("CONV_2D", "DEPTHWISE_CONV_2D"):
        for dtype in ("int8", "int16"):
            yield line_case(op, f"a row with scales per channel, {dtype}", Line(dtype=dtype, per_axis=True))
            yield line_case(op, f"a column with scales per channel, {dtype}", Line(dtype=dtype, per_axis=True, unit=2))
        yield line_case(op, "a row without bias", Line(biased=False))
    for dtype in ("float32", "int8"):
        for name, build in CHAINS.items():
            yield net("CONV_2D", f"along a row and {name}, {dtype}", build(dtype), dtype=dtype, max_transposes=1)


UNKNOWN = [{"x0": random_array(n, length, 3)} for n, length in ((1, 7), (5, 13))]
LONG = [{"x0": random_array(1, length, 3)} for length in (7, 13)]

# --- several ----------------------------------------------------------------------------------

BuildFunction = Callable[[Net], None]


def chain(*layers: Callable[[Net, TensorRef], TensorRef], unit: int = 1) -> Callable[[str], BuildFunction]:
    """Return a chain of image operators on a sequence, and the mean over its length."""

    def of(dtype: str) -> BuildFunction:
        def build(model: Net) -> None:
            line = Line(dtype=dtype, unit=unit, padding="SAME")
            x = model.input(tensor(2, 11, 5, dtype=dtype))
            ref = line.add_height(model, x, replace(line, shape=(2, 11, 5)).image())
            for layer in layers:
                ref = layer(model, ref)
            spec = model.spec(ref)
            mean = [spec.shape[0], spec.shape[3]]
            y = line.drop_height(model, ref)
            model.output(model.call("MEAN", [y, constant([1])], spec.with_shape(*mean), keep_dims=False))

        return build

    return of


def conv(model: Net, ref: TensorRef) -> TensorRef:
    """Add a convolution that keeps channels and length."""
    spec = model.spec(ref)
    channels = spec.shape[3] or 1
    unit = 1 if spec.shape[1] == 1 else 2
    kernel = (1, 3) if unit == 1 else (3, 1)
    w = weight((channels, *kernel, channels), WEIGHTS[spec.dtype])
    y = product(spec, w, [size or 1 for size in spec.shape], 3 * channels)
    b = bias(spec, w, channels, BIASES[spec.dtype], 3 * channels)
    options = {"padding": "SAME", "stride_h": 1, "stride_w": 1, "dilation_h_factor": 1, "dilation_w_factor": 1}
    return model.call("CONV_2D", [ref, w, b], y, **options)


def max_pool(model: Net, ref: TensorRef) -> TensorRef:
    return Line(op="MAX_POOL_2D", kernel=2, stride=2).product(model, ref)


def residual_add(model: Net, ref: TensorRef) -> TensorRef:
    """Add an image and its convolution."""
    y = conv(model, ref)
    return model.call("ADD", [ref, y], replace(model.spec(y), name=""))


def scale_step(*shape: int) -> Callable[[Net, TensorRef], TensorRef]:
    """Return a multiplication by a constant of the same or another rank."""

    def step(model: Net, ref: TensorRef) -> TensorRef:
        spec = model.spec(ref)
        low, high = (None, None) if spec.dtype == "float32" else (-100, 100)
        by = constant(
            random_array(*shape, dtype=spec.dtype, low=low, high=high), None, None if spec.scale is None else 0.013
        )
        return model.call("MUL", [ref, by], replace(spec, name="").rescale(1.5))

    return step


def transpose_rows(model: Net, ref: TensorRef) -> TensorRef:
    """Transpose rows and columns."""
    spec = model.spec(ref)
    n, height, width, channels = spec.shape
    return model.call("TRANSPOSE", [ref, constant([0, 2, 1, 3])], spec.with_shape(n, width, height, channels))


CHAINS: dict[str, Callable[[str], BuildFunction]] = {
    "a sum": chain(conv, residual_add),
    "a factor per channel": chain(conv, scale_step(5), conv),
    "a factor per place": chain(conv, scale_step(11, 5), conv),
    "a factor of one row": chain(conv, scale_step(1, 1, 11, 1), conv),
    "a pool": chain(conv, max_pool, conv),
    "a column": chain(conv, transpose_rows, conv, transpose_rows),
}
