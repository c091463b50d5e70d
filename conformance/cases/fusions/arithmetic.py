"""Arithmetic with constants after a layer, folded into the layer's weights.

Similar patterns must not be folded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from conformance.builder import TensorRef
from conformance.case import EVERY_OPSET, Case
from conformance.cases.image.convolution import litert_reference
from conformance.models import Net, Spec, constant, in_isolation, net, random_array, tensor
from conformance.weights import BIASES, WEIGHTS, bias, product, weight

IMAGE = (2, 5, 7, 3)
RESULT_SHAPES = {
    "CONV_2D": (2, 5, 7, 4),
    "DEPTHWISE_CONV_2D": (2, 5, 7, 6),
    "TRANSPOSE_CONV": (2, 10, 14, 4),
    "FULLY_CONNECTED": (70, 4),
}
Step = tuple[Any, ...]
"""(operator, constant) or (operator, constant, fused activation), with a leading "first" if the constant is the first operand.

The constant is a number, "positive" for random factors per channel, or the shape of random values, with "C" for the number
of channels.
"""

BuildFunction = Callable[[Net], None]


def cases() -> Iterator[Case]:
    for op in RESULT_SHAPES:
        for name, steps in FOLDED.items():
            yield net(
                op,
                f"followed by {name}",
                layer_then_steps(op, steps),
                max_transposes=None if op == "FULLY_CONNECTED" else 2,
            )
        # LiteRT computes the expected outputs with a bias of 0, because some kernels require a bias, or crash without one.
        zero_bias = net(op, "", layer_then_steps(op, [("MUL", ("C",))], bias_factor=0.0))
        yield net(
            op,
            "without bias, then MUL",
            layer_then_steps(op, [("MUL", ("C",))], bias_factor=None),
            reference=litert_reference(zero_bias),
        )
        yield net(
            op,
            "then MUL and ADD at every opset",
            layer_then_steps(op, [("MUL", ("C",)), ("ADD", ("C",))]),
            opsets=EVERY_OPSET,
        )
    for name, steps in NOT_FOLDED.items():
        yield net("CONV_2D", f"not folded, {name}", layer_then_steps("CONV_2D", steps))
    yield net("CONV_2D", "not folded, constant per row, with as many rows as channels", constant_per_row)
    yield from dense_cases()
    yield from quantized_cases()
    yield from consumer_cases()


FOLDED: Mapping[str, Sequence[Step]] = {
    "MUL": [("MUL", ("C",))],
    "MUL by a scalar": [("MUL", 0.7)],
    "MUL by one element of rank 4": [("MUL", (1, 1, 1, 1))],
    "ADD": [("ADD", ("C",))],
    "ADD of rank 4": [("ADD", (1, 1, 1, "C"))],
    "SUB": [("SUB", ("C",))],
    "leading constants": [("first", "MUL", ("C",)), ("first", "ADD", 0.3)],
    "MUL and ADD": [("MUL", ("C",)), ("ADD", ("C",))],
    "ADD and MUL": [("ADD", ("C",)), ("MUL", ("C",))],
    "SUB and MUL": [("SUB", 0.4), ("MUL", ("C",))],
    "MUL and MUL": [("MUL", ("C",)), ("MUL", -1.3)],
    "MUL and ADD with RELU6": [("MUL", ("C",)), ("ADD", ("C",), "RELU6")],
    "MUL with RELU": [("MUL", ("C",), "RELU")],
    "ADD with RELU6, MUL by 1/6": [("ADD", 3.0, "RELU6"), ("MUL", 1 / 6)],
    "ADD with RELU, MUL by positive constants": [("ADD", ("C",), "RELU"), ("MUL", "positive")],
    "ADD with TANH, which the kernel ignores, and MUL": [("ADD", ("C",), "TANH"), ("MUL", 0.5)],
}
NOT_FOLDED: Mapping[str, Sequence[Step]] = {
    "constant per row": [("MUL", (5, 1, 1))],
    "constant per column and channel": [("ADD", (7, "C"))],
    "constant of a higher rank": [("MUL", (1, 1, 1, 1, 1))],
    "constant minuend": [("first", "SUB", ("C",))],
    "MUL by mixed signs after RELU": [("ADD", ("C",), "RELU"), ("MUL", ("C",))],
    "ADD after RELU": [("MUL", ("C",), "RELU"), ("ADD", ("C",))],
    "MUL per channel after RELU6": [("ADD", ("C",), "RELU6"), ("MUL", "positive")],
    "MUL with RELU after RELU6": [("ADD", 3.0, "RELU6"), ("MUL", 0.4, "RELU")],
    "MUL after RELU_N1_TO_1": [("ADD", ("C",), "RELU_N1_TO_1"), ("MUL", 0.5)],
}


def add_layer(model: Net, op: str, bias_factor: float | None = 1.0, activation: str = "NONE") -> TensorRef:
    """Add a layer on an image of three channels.

    ``bias_factor`` multiplies the random bias; None adds no bias.
    """
    x = tensor(*IMAGE)
    w = {"DEPTHWISE_CONV_2D": (1, 3, 2, 6), "FULLY_CONNECTED": (4, 3)}.get(op, (4, 3, 2, 3))
    y = tensor(*RESULT_SHAPES[op])
    bias = [] if bias_factor is None else [constant(random_array(y.shape[-1] or 1, seed="b") * bias_factor, "float32")]
    weights = constant(random_array(*w, seed="w"))
    operands = [constant(list(y.shape)), weights, x, *bias] if op == "TRANSPOSE_CONV" else [x, weights, *bias]
    stride = 2 if op == "TRANSPOSE_CONV" else 1
    conv_options = {} if op == "FULLY_CONNECTED" else {"padding": "SAME", "stride_h": stride, "stride_w": stride}
    multiplier = {"depth_multiplier": 2} if op == "DEPTHWISE_CONV_2D" else {}
    return model.call(op, operands, y, fused_activation_function=activation, **conv_options, **multiplier)


def step_constant(value: Any, channels: int, seed: str) -> Spec:
    """Return the constant of a step after a layer with this number of channels."""
    if isinstance(value, float):
        return constant(value)
    if value == "positive":
        return constant(random_array(channels, seed=seed, low=0.2, high=2.0))
    return constant(random_array(*(channels if size == "C" else size for size in value), seed=seed))


def add_step(model: Net, ref: TensorRef, step: Step, seed: str) -> TensorRef:
    """Add one arithmetic operator on a tensor and a constant."""
    constant_first = step[0] == "first"
    code, value, *activation = step[1:] if constant_first else step
    operand_spec = replace(model.spec(ref), name="")
    constant_spec = step_constant(value, operand_spec.shape[-1] or 1, seed)
    result = operand_spec.with_shape(*np.broadcast_shapes(operand_spec.shape, constant_spec.shape))  # type: ignore[arg-type]
    operands: list[Spec | TensorRef | None] = [constant_spec, ref] if constant_first else [ref, constant_spec]
    return model.call(code, operands, result, fused_activation_function=activation[0] if activation else "NONE")


def layer_then_steps(
    op: str, steps: Sequence[Step], bias_factor: float | None = 1.0, activation: str = "NONE"
) -> BuildFunction:
    def build(model: Net) -> None:
        ref = add_layer(model, op, bias_factor, activation)
        for k, step in enumerate(steps):
            ref = add_step(model, ref, step, str(k))
        model.output(ref)

    return build


def constant_per_row(model: Net) -> None:
    """Build a product with a constant (3, 1, 1) on an image of 3 rows and 3 channels.

    The constant has one factor per row, not per channel.
    """
    weights = constant(random_array(3, 1, 1, 5, seed="w"))
    conv_options = {"padding": "SAME", "stride_h": 1, "stride_w": 1}
    ref = model.call(
        "CONV_2D",
        [tensor(2, 3, 7, 5), weights, constant(random_array(3, seed="b"))],
        tensor(2, 3, 7, 3),
        **conv_options,
    )
    model.output(add_step(model, ref, ("MUL", (3, 1, 1)), "0"))


def dense_cases() -> Iterator[Case]:
    """Yield cases of a rank-3 dense layer, one after a flatten, and fused activations."""

    def rank_3(model: Net) -> None:
        operands = [tensor(2, 5, 3), constant(random_array(4, 3)), constant(random_array(4))]
        ref = model.call("FULLY_CONNECTED", operands, tensor(2, 5, 4), keep_num_dims=True)
        model.output(add_step(model, ref, ("MUL", ("C",)), "0"))

    def after_flatten(model: Net) -> None:
        flat = model.call("RESHAPE", [model.input_through_conv(tensor(*IMAGE)), constant([2, 105])], tensor(2, 105))
        ref = model.call(
            "FULLY_CONNECTED", [flat, constant(random_array(4, 105)), constant(random_array(4))], tensor(2, 4)
        )
        model.output(add_step(model, ref, ("MUL", ("C",)), "0"))

    yield net("FULLY_CONNECTED", "keep_num_dims, then MUL", rank_3)
    yield net("FULLY_CONNECTED", "flatten before the layer, then MUL", after_flatten, max_transposes=1)
    for activation, factor in (("RELU", "positive"), ("RELU6", 1 / 6)):
        for op in RESULT_SHAPES:
            yield net(op, f"{activation}, then MUL", layer_then_steps(op, [("MUL", factor)], activation=activation))
    yield net(
        "CONV_2D",
        "RELU6, then per-channel MUL",
        layer_then_steps("CONV_2D", [("MUL", "positive")], activation="RELU6"),
    )


def quantized_cases() -> Iterator[Case]:
    """Yield cases of quantized models, and one with only quantized weights.

    Quantized operators round and must not be folded.
    """
    for dtype in ("int8", "uint8", "int16"):
        yield net("CONV_2D", f"{dtype}, then MUL and ADD", quantized_model(dtype), dtype=dtype)

    def hybrid(model: Net) -> None:
        x, w = tensor(*IMAGE), weight((4, 3, 2, 3), "int8", 0)
        operands = [x, w, constant(random_array(4))]
        ref = model.call("CONV_2D", operands, tensor(2, 5, 7, 4), padding="SAME", stride_h=1, stride_w=1)
        model.output(add_step(model, ref, ("MUL", ("C",)), "0"))

    yield net("CONV_2D", "float32 with int8 weights, then MUL", hybrid)


def quantized_model(dtype: str) -> BuildFunction:
    def build(model: Net) -> None:
        x, w = tensor(*IMAGE, dtype=dtype), weight((4, 3, 2, 3), WEIGHTS[dtype])
        y = product(x, w, (2, 5, 7, 4), 18)
        operands = [x, w, bias(x, w, 4, BIASES[dtype], 18)]
        ref = model.call("CONV_2D", operands, y, padding="SAME", stride_h=1, stride_w=1)
        for k, (code, factor) in enumerate((("MUL", 2.0), ("ADD", 3.0))):
            operand = replace(tensor(4, dtype=dtype), value=random_array(4, dtype=dtype, seed=str(k)))
            ref = model.call(code, [ref, operand], replace(y, name="").rescale(factor))
        model.output(ref)

    return build


def consumer_cases() -> Iterator[Case]:
    """Yield cases at the limits of folding, such as two consumers of a layer."""

    def two_consumers(model: Net) -> None:
        ref = add_layer(model, "CONV_2D")
        model.output(add_step(model, ref, ("MUL", ("C",)), "0"), add_step(model, ref, ("ADD", ("C",)), "1"))

    def layer_output(model: Net) -> None:
        ref = add_layer(model, "CONV_2D")
        model.output(ref, add_step(model, ref, ("MUL", ("C",)), "0"))

    def inner_output(model: Net) -> None:
        ref = add_step(model, add_layer(model, "CONV_2D"), ("MUL", ("C",)), "0")
        model.output(ref, add_step(model, ref, ("ADD", ("C",)), "1"))

    def runtime_addend(model: Net) -> None:
        ref = add_layer(model, "CONV_2D")
        model.output(model.call("ADD", [ref, tensor(4)], tensor(2, 5, 7, 4)))

    def square(model: Net) -> None:
        ref = add_layer(model, "CONV_2D")
        model.output(model.call("MUL", [ref, ref], tensor(2, 5, 7, 4)))

    def three_steps(model: Net) -> None:
        ref = add_layer(model, "CONV_2D")
        for k, code in enumerate(("MUL", "ADD", "MUL")):
            ref = add_step(model, ref, (code, ("C",)), str(k))
        model.output(ref)

    for name, build in (
        ("two consumers", two_consumers),
        ("graph output, then MUL", layer_output),
        ("MUL as graph output, then ADD", inner_output),
        ("ADD of a graph input", runtime_addend),
        ("square", square),
        ("three steps", three_steps),
    ):
        yield net("CONV_2D", f"followed by {name}", build)

    def float16_weights(model: Net) -> None:
        w = model.call("DEQUANTIZE", [constant(random_array(4, 3, 2, 3, dtype="float16"))], tensor(4, 3, 2, 3))
        ref = model.call(
            "CONV_2D",
            [tensor(*IMAGE), w, constant(random_array(4))],
            tensor(2, 5, 7, 4),
            padding="SAME",
            stride_h=1,
            stride_w=1,
        )
        model.output(add_step(model, ref, ("MUL", ("C",)), "0"))

    def runtime_bias(model: Net) -> None:
        operands = [tensor(*IMAGE), constant(random_array(4, 3, 2, 3)), tensor(4)]
        ref = model.call("CONV_2D", operands, tensor(2, 5, 7, 4), padding="SAME", stride_h=1, stride_w=1)
        model.output(add_step(model, ref, ("MUL", ("C",)), "0"))

    yield net("CONV_2D", "with float16 weights, then MUL", float16_weights)
    yield net("CONV_2D", "with a runtime bias, then MUL", runtime_bias)
    infinities = constant(np.array([1, np.inf, -np.inf, 0], np.float32))
    yield in_isolation(
        "MUL",
        "by infinity",
        [tensor(2, 4), infinities],
        tensor(2, 4),
        input_arrays={"x0": np.array([[1, 2, 3, 4], [-1, -2, -3, 4]], np.float32)},
    )
