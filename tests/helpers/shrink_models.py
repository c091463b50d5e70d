"""A custom operator that LiteRT lacks, its handler, and models with it."""

from __future__ import annotations

from typing import Any

import numpy as np

import onnx_tflite_plugin as otp
from conformance.models import Net, tensor
from onnx_tflite_plugin.api import Context, Dequantized, Handler, Transparent, Value, handler
from onnx_tflite_plugin.host import Host

CODE = "CUSTOM.vendor.Shrink"


def shrink_array(op: Any, x: Any) -> Any:
    """Return the kernel's result: ``x`` moved towards 0 by the option ``by``."""
    return np.sign(x) * np.maximum(np.abs(x) - np.float32(op.options.get("by", 0.25)), 0)


def shrink_handler(by: float = 0.25, kernel: Any = shrink_array) -> Handler:
    """Return a handler that shrinks by ``by``, whatever the option in the file says."""

    @handler(CODE, max_version=1, layout=Transparent(), quantization=Dequantized(), kernel=kernel)
    def lower(ctx: Context, x: Value) -> Value:
        return ctx.ops.Shrink(x, lambd=by, bias=by)

    return lower


def network(dtype: str = "float32", *, is_output: bool = False, has_earlier_output: bool = True) -> bytes:
    """Return a network with a Shrink by 0.25 between convolutions.

    ``is_output``: the operator's result is an output, without a convolution after it. ``has_earlier_output``: the
    operator's operand is an output too.
    """
    net = Net()
    x = net.input_through_conv(tensor(1, 5, 7, 3, dtype=dtype))
    y = net.result(tensor(1, 5, 7, 3, dtype=dtype))
    net.graph.operator(CODE, [x], [y], custom_options={"by": 0.25})
    net.output(*([x] if has_earlier_output else []), y if is_output else net.output_through_conv(y))
    return net.build()


def verify_model(data: bytes, shrink: Handler | None, **options: Any) -> otp.Verification:
    """Convert a model and verify it; without a handler, Shrink stays in the ONNX model."""
    host = Host(handlers={} if shrink is None else {CODE: shrink}, keep_unknown=shrink is None)
    conversion = otp.convert(data, host=host)
    return otp.verify(data, conversion, host=host, **options)
