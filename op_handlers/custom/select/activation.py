"""Activations as separate operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from onnx_tflite_plugin.api import Array, Context, Operator, Transparent, Value, handler
from op_handlers.custom.select.nodedef import PREFIX, node_of
from op_handlers.custom.select.rewriting import (
    FLOATS,
    HandlerDecorator,
    acceptance_check,
    make_kernel,
    rewrite_to,
    uniform_types,
)
from op_handlers.math import activation as builtin
from op_handlers.math import softmax as builtin_softmax

TYPES = uniform_types(FLOATS)
FLOAT16_OR_FLOAT32 = uniform_types("float16 float32")
ALPHA, SCALE = 1.6732632423543772, 1.0507009873554805
"""Constants of Selu (eigen_activations.h)."""


def leaky_relu_array(op: Operator, x: Array) -> Array:
    return np.asarray(np.maximum(x, x * x.dtype.type(node_of(op).real("alpha", 0.2))))


def softmax_array(x: Array) -> Array:
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


elu = rewrite_to("Elu", builtin.elu, make_kernel(lambda x: np.where(x > 0, x, np.expm1(x))), types=FLOAT16_OR_FLOAT32)
leaky_relu = rewrite_to(
    "LeakyRelu",
    builtin.leaky_relu,
    leaky_relu_array,
    options=lambda node, op: {"alpha": node.real("alpha", 0.2)},
    types=FLOAT16_OR_FLOAT32,
)
relu = rewrite_to("Relu", builtin.relu, make_kernel(lambda x: np.maximum(x, 0)), types=TYPES)
relu6 = rewrite_to("Relu6", builtin.relu6, make_kernel(lambda x: np.clip(x, 0, 6)), types=TYPES)
sigmoid = rewrite_to("Sigmoid", builtin.logistic, make_kernel(lambda x: 1 / (1 + np.exp(-x))), types=TYPES)
tanh = rewrite_to("Tanh", builtin.tanh, make_kernel(np.tanh), types=TYPES)
softmax = rewrite_to("Softmax", builtin_softmax.softmax, make_kernel(softmax_array), options={"beta": 1.0}, types=TYPES)
log_softmax = rewrite_to(
    "LogSoftmax", builtin_softmax.log_softmax, make_kernel(lambda x: np.log(softmax_array(x))), types=TYPES
)


def activation_handler(
    name: str, function: Callable[[Array], Any], types: tuple[str, ...] = FLOAT16_OR_FLOAT32
) -> HandlerDecorator:
    """Return a decorator that declares an activation with an ONNX operator of its own."""
    return handler(
        PREFIX + name,
        max_version=1,
        layout=Transparent(),
        types=types,
        accepts=acceptance_check(1),
        kernel=make_kernel(function),
    )


@activation_handler("Selu", lambda x: x.dtype.type(SCALE) * np.where(x > 0, x, x.dtype.type(ALPHA) * np.expm1(x)))
def selu(ctx: Context, x: Value) -> Value:
    """Emit Selu."""
    return ctx.ops.Selu(x, alpha=ALPHA, gamma=SCALE)


@activation_handler("Softplus", lambda x: np.logaddexp(x, x.dtype.type(0)))
def softplus(ctx: Context, x: Value) -> Value:
    """Emit Softplus."""
    return ctx.ops.Softplus(x)


@activation_handler("Softsign", lambda x: x / (1 + np.abs(x)))
def softsign(ctx: Context, x: Value) -> Value:
    """Emit Softsign."""
    return ctx.ops.Softsign(x)
