"""Rules that repeat constants along rows of an image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from conformance.builder import TensorRef
from conformance.models import Spec, constant, random_array
from tests.helpers.passes_networks import BuildNetwork, Network, image
from tests.rewrite.harness import SCALE_AND_ZERO_POINT, Case, declines, graph, rule_test

pytestmark = pytest.mark.int8_products


def scale(
    shape: Sequence[int | None] = (1, 23, 29, 3), op: str = "MUL", factor: Sequence[int] | None = None,
    dtype: str = "float32", *, constant_first: bool = False,
) -> BuildNetwork:  # fmt: skip
    """Build an operator on an image and a constant, by default per channel.

    ``dtype``: the dtype of the constant, or the dtypes of image and constant.
    """

    def build(net: Network) -> TensorRef:
        sizes = [size or 1 for size in shape]
        constant_shape = (sizes[-1],) if factor is None else factor
        if dtype == "uint8":
            x = image(*shape, dtype=dtype)
            k = constant(random_array(*constant_shape, dtype=dtype, low=40, high=99), None, 0.015, 3)
            return net.call(op, [k, net.input(x)] if constant_first else [net.input(x), k], x.with_shape(*sizes))
        value = constant(random_array(*constant_shape, dtype="float32") + np.float32(3), None)
        operands: list[Spec | TensorRef] = [net.input(image(*shape, dtype="float32")), value]
        if dtype == "float16":
            assert value.value is not None
            float16_value = constant(value.value.astype(np.float16), None)
            operands[1] = net.call("DEQUANTIZE", [float16_value], Spec(value.shape, "float32"))
        return net.call(op, operands[::-1] if constant_first else operands, Spec(tuple(sizes), "float32"))

    return build


def add_bias(net: Network) -> TensorRef:
    x, w = net.input(image(1, 23, 29, 7, dtype="float32")), constant(random_array(7, 11), None)
    return net.like(
        "ADD", net.call("BATCH_MATMUL", [x, w], Spec((1, 23, 29, 11), "float32")), constant(random_array(11), None)
    )


def constant_graph(nodes: str, kind: str = "float") -> Any:
    dtype = {"float": np.float32, "double": np.float64}[kind]
    per_channel = np.arange(1, 4, dtype=dtype)
    return graph(
        f"({kind}[1,23,3,3] x, {kind}[1,23,3,3] image) => ({kind}[1,23,3,3] y) {{ {nodes} }}",
        per_channel=per_channel, columns=per_channel[:, None], eps=np.full(1, 1e-3, dtype), last=np.array([3]),
        stored=np.ones((1, 23, 3, 3), dtype),
    )  # fmt: skip


test_float_constant_is_repeated_along_a_row = rule_test(
    "widen_constants",
    *(
        Case(f"{op} {first}", scale(op=op, constant_first=first))
        for op in ("ADD", "DIV", "MUL", "SUB")
        for first in (False, True)
    ),
    Case("a scalar of one channel", scale((None, 23, 29, 1), factor=()), batch=5),
    Case("one element of one channel", scale((None, 23, 29, 1), factor=(1,)), batch=5),
    Case("64 channels", scale((1, 23, 29, 64))),
    Case("a dynamic batch", scale((None, 23, 29, 3)), batch=5),
    Case("float16", scale(dtype="float16")),
    Case("a graph", constant_graph("y = Mul (x, per_channel)")),
    Case("after another sum", constant_graph("k = Add (image, per_channel) y = Mul (x, k)")),
    Case("after another product", constant_graph("k = Mul (image, per_channel) y = Mul (x, k)")),
    declines("few pixels", scale((1, 7, 9, 3)), "enough pixels"),
    declines("65 channels", scale((1, 23, 29, 65)), "more than 64 channels"),
    declines("a dynamic width", scale((1, 97, None, 3)), "width"),
    declines("columns too", scale(factor=(29, 3)), "not per channel"),
    declines("one element for all channels", scale(factor=(1,)), "not per channel"),
    declines("a long row", scale((1, 5, 8209, 2)), "too large"),
    declines("a matrix", scale((667, 3)), "not per channel"),
    declines("as many axes already", scale((667, 1), factor=(1, 1))),
    declines("the bias of a product", add_bias, "fused with a matrix multiplication"),
    declines("64 bits", constant_graph("y = Mul (x, per_channel)", "double")),
    declines("a constant per column", constant_graph("y = Mul (x, columns)"), "not per channel"),
    declines(
        "a normalization", constant_graph("m = ReduceMean (x, last) e = Add (m, eps) y = Div (x, e)"), "normalization"
    ),
    declines("two constants", constant_graph("k = Add (stored, per_channel) y = Neg (k)")),
)


def quantized_constant(*axes: int) -> Any:
    nodes = "a = DequantizeLinear (x, s, p) b = DequantizeLinear (k, s, p) c = Mul (a, b) y = QuantizeLinear (c, s, p)"
    result = ",".join(map(str, (1,) * (len(axes) - 4) + (1, 23, 29, 3)))
    k = random_array(*axes, dtype="uint8")
    return graph(f"(uint8[1,23,29,3] x) => (uint8[{result}] y) {{ {nodes} }}", k=k, **SCALE_AND_ZERO_POINT)


test_quantized_constant_is_repeated_along_rows = rule_test(
    "widen_quantized_constants",
    *(
        Case(f"{op} {first}", scale(op=op, constant_first=first, dtype="uint8", factor=(1, 1, 1, 3)), nodes={"Reshape": 2})
        for op in ("MUL", "ADD", "SUB") for first in (False, True)
    ),
    Case("long rows", scale((2, 23, 61, 3), dtype="uint8")),
    Case("a dynamic batch", scale((None, 23, 29, 3), dtype="uint8"), batch=5),
    Case("one axis", quantized_constant(3)),
    Case("three axes", quantized_constant(1, 1, 3)),
    declines("more axes than the image", quantized_constant(1, 1, 1, 1, 3)),
    declines("floats", scale()),
    declines("few pixels", scale((1, 11, 13, 3), dtype="uint8"), "too few pixels"),
    declines("17 channels", scale((1, 23, 29, 17), dtype="uint8"), "more than 16 channels"),
    declines("one channel", scale((1, 23, 29, 1), dtype="uint8"), "not per channel"),
    declines("columns too", scale(factor=(1, 1, 29, 3), dtype="uint8"), "not per channel"),
    declines("a dynamic height", scale((1, None, 29, 3), dtype="uint8"), "too few pixels"),
)  # fmt: skip
