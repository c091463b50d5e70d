"""ADD, SUB, MUL, ADD_N, SQUARED_DIFFERENCE: broadcasting, scales, wrap-around."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from conformance.case import EVERY_OPSET, Case
from conformance.models import (
    PLACEMENTS,
    Net,
    Spec,
    between_convolutions,
    binary,
    constant,
    in_isolation,
    net,
    opsets,
    random_array,
    random_constant,
    tensor,
)
from onnx_tflite_plugin.source.model import Array
from onnx_tflite_plugin.verify import Tolerance

IMAGE = (2, 5, 7, 3)
QUANTIZABLE = ("float32", "int8", "uint8", "int16")
CLAMPS = ("RELU", "RELU6", "RELU_N1_TO_1")
VALUES_BEYOND_32_BITS = np.array(
    [1, 2**32 - 65536, 5, -(2**33) - 1, 2**33 + 7, -3, 2**40, -(2**40) + 1, 2**62, 0, -(2**62)]
)


def cases() -> Iterator[Case]:
    for op in ("ADD", "SUB", "MUL"):
        yield from arithmetic_cases(op)
    yield from multiplication_cases()
    yield from shapeless_result_cases()
    yield from power_of_two_scale_cases()
    yield from tie_cases()
    yield from broadcast_cases()
    yield from squared_difference_cases()
    yield from add_n_cases()
    yield from unscaled_integer_cases()


def operands_and_result(op: str, dtype: str) -> tuple[Spec, Spec, Spec]:
    """Return specs of two operands and a result with different quantization."""
    x = tensor(*IMAGE, dtype=dtype)
    shift = 0 if dtype == "int16" else 11
    y = x.rescale(0.6, int(np.asarray(x.zero_point)) + shift)
    result_factor = {"ADD": 1.5, "SUB": 1.5, "MUL": 3.0}[op] * (30 if dtype == "int16" and op == "MUL" else 1)
    return x, y, x.rescale(result_factor, int(np.asarray(x.zero_point)) - shift)


def arithmetic_cases(op: str) -> Iterator[Case]:
    """Yield cases for every dtype with constants, fused activations and wrap-around."""
    for dtype in QUANTIZABLE:
        x, y, z = operands_and_result(op, dtype)
        for place in PLACEMENTS:
            yield binary(op, dtype, x, y, z, place, opsets=EVERY_OPSET if dtype != "int16" else (None, 26))
        for activation in (*CLAMPS, "TANH", "SIGN_BIT"):
            # The output's zero point is not at an end of its dtype, so the activation clips.
            result = z.rescale(0.7)
            place = between_convolutions if activation in CLAMPS else in_isolation
            options = {"fused_activation_function": activation}
            name = f"{dtype} with {activation}" + ("" if activation in CLAMPS else ", which the kernel ignores")
            yield place(op, name, [x, y], result, options=options, input_range=(-3.0, 3.0))
    x, arrays = tensor(11, dtype="int64"), {"x0": VALUES_BEYOND_32_BITS, "x1": np.ones_like(VALUES_BEYOND_32_BITS)}
    if op != "SUB":
        for activation in CLAMPS:
            options = {"fused_activation_function": activation}
            yield binary(op, f"int64 beyond 32 bits with {activation}", x, x, input_arrays=arrays, options=options)
    for dtype in ("int32", "int64"):
        yield binary(op, dtype, tensor(*IMAGE, dtype=dtype), tensor(7, 3, dtype=dtype))
        if dtype == "int32" or op != "SUB":
            options = {"fused_activation_function": "RELU6"}
            yield binary(
                op, f"{dtype} with RELU6", tensor(*IMAGE, dtype=dtype), tensor(7, 3, dtype=dtype), options=options
            )
    for dtype in ("int32", "float16"):
        image, addend = tensor(*IMAGE, dtype=dtype), constant(random_array(7, 3, dtype=dtype))
        yield binary(op, f"{dtype} and a constant", image, addend)
        yield binary(op, f"{dtype}, leading constant", addend, image)
    limits = np.iinfo(np.int32)
    arrays = {"x0": np.array([limits.max, limits.min, 46341, -5], np.int32), "x1": np.array([1, 1, 46341, 7], np.int32)}
    yield binary(op, "int32 that wraps around", tensor(4, dtype="int32"), tensor(4, dtype="int32"), input_arrays=arrays)
    for dtype in ("float32", "int8", "uint8"):
        x, y, z = operands_and_result(op, dtype)
        for shape in ((3,), (7, 1)):
            addend = random_constant(y.with_shape(*shape), op)
            yield binary(op, f"{dtype} and a constant {shape}", x, addend, z, between_convolutions)
            yield binary(op, f"{dtype}, leading constant {shape}", addend, x, z, between_convolutions)
    x, _, z = operands_and_result(op, "int8")
    yield (
        in_isolation(op, "int8 tensor with itself", [x, x], z)
        if op != "SUB"
        else binary(op, "int8 from a scalar", constant(3, "int8", 0.1, 1), x, z)
    )


def multiplication_cases() -> Iterator[Case]:
    """Yield cases of dtypes that only MUL accepts: uint32 and complex64."""
    unsigned = tensor(3, 5, dtype="uint32")
    options = {"fused_activation_function": "RELU_N1_TO_1"}
    refusal = "the lower bound -1 of a fused RELU_N1_TO_1 as the highest integer"
    yield in_isolation(
        "MUL", "uint32 with RELU_N1_TO_1", [unsigned, unsigned], unsigned, options=options, refusal=refusal
    )
    x, kernel_refusal = tensor(3, 5, dtype="complex64"), "Activation is not allowed for COMPLEX64"
    for activation in (*CLAMPS, "TANH", "SIGN_BIT"):
        options = {"fused_activation_function": activation}
        refusal = f"LiteRT refuses a fused {activation}"
        name = f"complex64 with {activation}"
        yield in_isolation("MUL", name, [x, x], x, options=options, refusal=refusal, kernel_refusal=kernel_refusal)
        if activation != "RELU_N1_TO_1":
            yield in_isolation("MUL", f"uint32 with {activation}", [unsigned, unsigned], unsigned, options=options)
    for dtype in ("uint32", "complex64"):
        yield binary("MUL", dtype, tensor(*IMAGE, dtype=dtype), tensor(7, 3, dtype=dtype))
        yield binary(
            "MUL",
            f"{dtype} and a constant",
            constant(random_array(3, dtype="float32").astype(dtype)),
            tensor(5, 1, 3, dtype=dtype),
        )


def shapeless_result_cases() -> Iterator[Case]:
    """Yield cases of results without a stored shape, as old converters write them.

    The converter has to infer the broadcast shape of the operands.
    """

    def sum_and_product(shape: tuple[int | None, ...]) -> Callable[[Net], None]:
        """Return a builder of a sum and a product, where only graph inputs have a shape."""

        def build(model: Net) -> None:
            x, y = model.input(tensor(*shape)), model.input(tensor(*shape[-2:]))
            results = [model.graph.tensor(name, None, "float32") for name in ("sum", "product", "shown")]
            model.graph.operator("ADD", [y, x], [results[0]], {"fused_activation_function": "RELU6"})
            model.graph.operator("MUL", [results[0], y], [results[1]], {"fused_activation_function": "NONE"})
            model.graph.operator("TANH", [results[1]], [results[2]])
            model.graph.output(results[2])

        return build

    yield net("ADD", "results without stored shape", sum_and_product(IMAGE))
    arrays = {"x0": random_array(2, 11, 7, 3), "x1": random_array(7, 3)}
    yield net(
        "ADD", "results without stored shape, dynamic dimension", sum_and_product((2, None, 7, 3)), input_arrays=arrays
    )


def power_of_two_scale_cases() -> Iterator[Case]:
    """Yield cases of ``pot_scale_int16``, an option of the first int16 files.

    The option adds at most one rounding.
    """
    for op in ("ADD", "SUB"):
        y = tensor(*IMAGE, dtype="int16", scale=2.0**-11)
        yield binary(
            op, "int16 with scales that are powers of two", y.rescale(0.25), y, y, options={"pot_scale_int16": True}
        )


def tie_cases() -> Iterator[Case]:
    """Yield cases of pixels plus or minus a constant, as in ``x / 127.5 - 1``.

    Every result is halfway between two integers.
    """
    for op, sign, zero_point in (("ADD", 1, 0), ("SUB", -1, 128)):
        for dtype, lowest in (("int8", -128), ("uint8", 0)):
            x = tensor(256, dtype=dtype, scale=2 / 255, zero_point=lowest)
            ones = constant(lowest + 255, dtype, 1 / 255, lowest)
            y = tensor(256, dtype=dtype, scale=2 / 255, zero_point=lowest + zero_point)
            yield in_isolation(
                op,
                f"{dtype} and a constant, halves round up",
                [x, ones],
                y,
                dtype=dtype,
                input_arrays={"x0": np.arange(lowest, lowest + 256).astype(dtype)},
                reference=round_half_up_reference(sign, lowest, zero_point),
                tolerance=Tolerance(steps=0),
                tolerance_reason="XNNPACK rounds each half up",
            )


def round_half_up_reference(sign: int, lowest: int, zero_point: int) -> Callable[[Sequence[Any]], list[Any]]:
    """Return a function that computes the expected outputs with halves rounded up."""

    def add_and_round(arrays: Sequence[Any]) -> list[Any]:
        steps = np.floor(arrays[0].astype(np.int64) - lowest + sign * 127.5 + 0.5)
        return [np.clip(steps + lowest + zero_point, lowest, lowest + 255).astype(arrays[0].dtype)]

    return add_and_round


def broadcast_cases() -> Iterator[Case]:
    """Yield cases with operands of lower rank, which broadcast from the last axis.

    In a channels-first layout, ONNX would align them with the wrong axes.
    """
    for dtype in ("float32", "int8", "uint8"):
        x, y, z = operands_and_result("ADD", dtype)
        for shape in ((), (1,), (7, 3), (5, 1, 1), (5, 1, 3), (2, 1, 1, 3), (1, 5, 7, 1)):
            yield binary(
                "ADD",
                f"{dtype} and a constant {shape}",
                x,
                random_constant(y.with_shape(*shape), "b"),
                z,
                between_convolutions,
            )
        for shape in ((3,), (5, 1, 3), (7, 1)):
            yield binary("ADD", f"{dtype} and an input {shape}", x, y.with_shape(*shape), z, between_convolutions)
            yield binary("SUB", f"{dtype} from an input {shape}", y.with_shape(*shape), x, z, between_convolutions)
        yield binary(
            "ADD",
            f"{dtype}, both broadcast",
            x.with_shape(2, 1, 7, 3),
            y.with_shape(1, 5, 7, 1),
            z,
            between_convolutions,
        )
    for dtype in ("float32", "int32"):
        yield binary("MUL", f"{dtype} of rank 5 and 2", tensor(2, 3, 5, 1, 7, dtype=dtype), tensor(3, 1, dtype=dtype))
        yield binary("ADD", f"{dtype} of rank 0", tensor(dtype=dtype), tensor(dtype=dtype))
        yield binary("ADD", f"{dtype}, empty", tensor(0, 3, dtype=dtype), tensor(3, dtype=dtype))
    yield binary(
        "ADD",
        "float32 with a dynamic batch",
        tensor(None, 5, 7, 3),
        random_constant(tensor(5, 1, 3)),
        tensor(None, 5, 7, 3),
        input_arrays=[{"x0": random_array(n, 5, 7, 3)} for n in (1, 3)],
    )


def squared_difference_cases() -> Iterator[Case]:
    """Yield cases with float32, int32 that wraps around, and int8.

    The int8 kernel rounds the operand with the smaller scale.
    """
    op = "SQUARED_DIFFERENCE"
    for dtype in ("float32", "int8"):
        x, y, z = rescaled_operands_and_result(dtype, 3.0)
        for place in PLACEMENTS:
            yield binary(op, dtype, x, y, z, place, opsets=opsets(place=place))
            for shape in ((3,), (7, 1)):
                yield binary(op, f"{dtype} from a constant {shape}", random_constant(y.with_shape(*shape)), x, z, place)
        yield binary(op, f"{dtype} from an input (5, 1, 3)", x, y.with_shape(5, 1, 3), z, between_convolutions)
    for x_scale, y_scale in ((0.019, 0.013), (0.0007, 0.021), (0.033, 0.00001)):
        yield binary(
            op,
            f"int8 of scales {x_scale:g} and {y_scale:g}",
            tensor(*IMAGE, dtype="int8", scale=x_scale, zero_point=-7),
            tensor(5, 7, 1, dtype="int8", scale=y_scale, zero_point=11),
            tensor(*IMAGE, dtype="int8", scale=max(x_scale, y_scale) * 4.3, zero_point=-128),
            tolerance=Tolerance(steps=0),
            tolerance_reason="the kernel rounds the operand of the smaller scale to 1/64 of the other's",
        )
    arrays = {"x0": np.array([5, -5, 46341, -(2**31)], np.int32), "x1": np.array([7, 7, 0, 1], np.int32)}
    yield binary(op, "int32, wrapping around", tensor(4, dtype="int32"), tensor(4, dtype="int32"), input_arrays=arrays)
    yield binary(op, "int32 of rank 5 and 2", tensor(2, 3, 5, 1, 7, dtype="int32"), tensor(3, 1, dtype="int32"))
    x = tensor(*IMAGE, dtype="uint8")
    yield binary(op, "uint8", x, x, kernel_refusal="SquaredDifference only supports FLOAT32 and INT32 now")


def rescaled_operands_and_result(dtype: str, result_factor: float) -> tuple[Spec, Spec, Spec]:
    """Return specs of two operands and a result.

    ``result_factor``: result scale over the scale of the first operand.
    """
    x = tensor(*IMAGE, dtype=dtype)
    zero_point = int(np.asarray(x.zero_point))
    return x, x.rescale(0.6, zero_point + 11), x.rescale(result_factor, zero_point - 110)


def add_n_cases() -> Iterator[Case]:
    """Yield cases with two or more operands of one shape."""
    for dtype in ("float32", "int32"):
        for count in (2, 3, 7):
            x = tensor(*IMAGE, dtype=dtype)
            for place in PLACEMENTS if dtype == "float32" else (in_isolation,):
                name = f"{dtype}, {count} operands"
                yield place("ADD_N", name, [x] * count, x, opsets=opsets(place=place))
        scalar = tensor(dtype=dtype)
        yield in_isolation("ADD_N", f"{dtype} scalars", [scalar] * 3, scalar)
        yield in_isolation("ADD_N", f"{dtype} and a constant", [x, constant(random_array(*IMAGE, dtype=dtype))], x)
        empty = tensor(0, 3, dtype=dtype)
        yield in_isolation("ADD_N", f"{dtype}, empty", [empty, empty], empty)
    arrays = {"x0": np.array([2**31 - 1], np.int32), "x1": np.array([7], np.int32)}
    x = tensor(1, dtype="int32")
    yield in_isolation("ADD_N", "int32 that wraps around", [x, x], x, input_arrays=arrays)

    def add_thrice(model: Net) -> None:
        x = model.input(tensor(*IMAGE))
        model.output(model.call("ADD_N", [x, x, x], tensor(*IMAGE)))

    yield net("ADD_N", "repeated operand", add_thrice)


def unscaled_integer_cases() -> Iterator[Case]:
    """Yield cases of integers without a scale, and of activations that kernels ignore.

    ADD and MUL treat int16 as plain integers that wrap around. SUB's kernel crashes on int16. The kernels refuse
    the other dtypes.
    """
    for op in ("ADD", "MUL"):
        x = tensor(4, 3, dtype="int16", scale=0)
        yield binary(op, "int16 without scale", x, x)
        yield binary(op, "int16 without scale, broadcast", x, x.with_shape(3))
        for activation in ("RELU", "RELU6", "RELU_N1_TO_1", "TANH", "SIGN_BIT"):
            options = {"fused_activation_function": activation}
            yield binary(op, f"int16 without scale with {activation}", x, x, options=options, opsets=(None, 13))
    for op, dtype in (("ADD", "int8"), ("SUB", "uint8"), ("MUL", "int8"), ("DIV", "int16")):
        x = tensor(4, 3, dtype=dtype, scale=0)
        refusal = f"the {dtype} operand has no scale"
        yield in_isolation(op, f"{dtype} without scale", [x, x], x, refusal=refusal)
    for op, dtype in (("ADD", "int32"), ("ADD", "int64"), ("SUB", "int32"), ("MUL", "int64"), ("DIV", "int32")):
        x = tensor(4, 3, dtype=dtype)
        for activation in ("TANH", "SIGN_BIT"):
            options = {"fused_activation_function": activation}
            y = constant(nonzero_integers(dtype))
            yield binary(op, f"{dtype} with {activation}, which the kernel ignores", x, y, options=options)
    half = tensor(4, 3, dtype="float16")
    for op, kernel_refusal in (("SUB", "requires float|uint8|int32 types"), ("DIV", "Div only supports")):
        for activation in ("TANH", "SIGN_BIT"):
            options = {"fused_activation_function": activation}
            refusals = {"refusal": f"LiteRT refuses a fused {activation}", "kernel_refusal": kernel_refusal}
            yield in_isolation(op, f"float16 with {activation}", [half, half], half, options=options, **refusals)


def nonzero_integers(dtype: str) -> Array:
    """Return nonzero integers; DIV's kernel rejects division by 0."""
    return np.array([[-7, 3, 5], [2, -1, 9], [11, -4, 6], [1, 8, -2]], dtype)
