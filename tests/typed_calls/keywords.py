"""Calls of ``otp.convert`` as users write them."""

from __future__ import annotations

import onnx_tflite_plugin as otp


def right() -> list[otp.Conversion]:
    options = otp.ConvertOptions(optimize="speed", input_shape={"x": [1, "n"]})
    return [
        otp.convert("m.tflite"),
        otp.convert(b"", options),
        otp.convert("m.tflite", options, opset=18, verify=otp.VerifyOptions(runs=5)),
        otp.convert("m.tflite", layout={"x": "NHWC:NCHW"}, input_shape={"x": (1, "n")}, outputs=["y"], unroll=3),
        otp.convert("m.tflite", input_shape={0: (1, "n")}, rename={0: "x"}, layout={1: "NHWC:NCHW"}),
    ]


def right_options() -> list[object]:
    options = otp.ConvertOptions(input_shape={0: (1, "n")}, rename={0: "x"}, layout={1: "NHWC:NCHW"})
    names: list[str] = [*options.rename]
    return [names, otp.VerifyOptions(ranges={0: (0, 1)}), otp.VerifyOptions(ranges={"x": (0, 1)})]


def right_verifications(shapes: dict[str, tuple[int, ...]]) -> list[otp.Verification]:
    return [
        otp.verify("m.tflite", "m.onnx", shapes={0: (1, 8)}, ranges={1: (0.5, 2)}),
        otp.verify("m.tflite", "m.onnx", shapes=shapes),
    ]


def wrong() -> None:
    otp.convert("m.tflite", optimise="speed")  # type: ignore[call-arg]
    otp.convert("m.tflite", optimize="sped")  # type: ignore[arg-type]
    otp.convert("m.tflite", opset="18")  # type: ignore[arg-type]
    otp.convert("m.tflite", {"opset": 18})  # type: ignore[arg-type]
    otp.ConvertOptions(weights_dtype="int4")  # type: ignore[arg-type]
