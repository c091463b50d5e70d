"""Recurrent layers without gates: one step, a sequence, a sequence in both directions (kernels/internal/kernel_utils.cc).

Sizes: T steps, B batches, I inputs, A auxiliary inputs, U units.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from onnx_tflite_plugin.api import (
    Array,
    Context,
    Decline,
    Dequantized,
    Implicit,
    Instance,
    Operator,
    Terminate,
    Value,
    handler,
    out,
)
from op_handlers.kernels.operands import present_operands, reinterpret_uint8_weights
from op_handlers.kernels.recurrent import (
    PER_STEP,
    check_float_operands,
    check_symmetric_weights,
    check_variable_states,
    stack_directions,
    stack_initial_states,
)
from op_handlers.sequence.directions import (
    apart,
    as_wide,
    auxiliary_slot,
    both_axes,
    both_ways,
    side_by_side,
    time_first_both,
)


class Layer(NamedTuple):
    """The slots of one direction. ``auxiliary``: the weights of the auxiliary input."""

    weights: int
    recurrent: int
    bias: int
    hidden: int
    auxiliary: int | None = None
    reverse: bool = False

    @property
    def matrices(self) -> tuple[int, ...]:
        return (self.weights, self.recurrent, *(() if self.auxiliary is None else (self.auxiliary,)))


ONE_WAY = Layer(1, 2, 3, 4)
FORWARD, BACKWARD = Layer(1, 2, 3, 4, 10), Layer(5, 6, 7, 8, 11, reverse=True)
# What ONNX's RNN takes, with alpha and beta.
ITS_OWN: Mapping[str, tuple[str, float | None, float | None]] = {
    "TANH": ("Tanh", None, None),
    "RELU": ("Relu", None, None),
    "NONE": ("Affine", 1.0, 0.0),
}


def weights_of(at: Instance) -> Dequantized:
    layers = (FORWARD, BACKWARD) if len(at.op.inputs) > BACKWARD.weights else (ONE_WAY,)
    return Dequantized(weights=tuple(slot for layer in layers for slot in layer.matrices))


def kinds(*layers: Layer) -> tuple[str, ...]:
    """float32 by weights that are all of one dtype, and biases that the kernels read as float32 whatever they are."""
    slots, biases = {slot for layer in layers for slot in layer.matrices}, {layer.bias for layer in layers}
    places = range(1, max(slots | biases) + 1)
    return tuple(
        ", ".join(["float32", *(dtype if slot in slots else "float32" if slot in biases else "_" for slot in places)])
        for dtype in ("float32", "int8", "uint8")
    )


def refusal(op: Operator, rank: int, *layers: Layer) -> Decline | None:
    """What the kernels refuse, or read as something else than it is."""
    matrices = [slot for layer in layers for slot in layer.matrices if op.tensor(slot) is not None]
    if op[0].rank != rank:
        return Decline(f"its input has rank {op[0].rank}, LiteRT takes rank {rank}")
    not_square = next((refused for layer in layers if (refused := misshapen(op, layer))), None)
    hidden = [layer.hidden for layer in layers]
    return (
        not_square
        or check_float_operands(op)
        or check_variable_states(op, hidden)
        or check_symmetric_weights(op, matrices)
    )


def misshapen(op: Operator, layer: Layer) -> Decline | None:
    """Recurrent weights that do not bring a step's outputs to the next: each kernel looks at one of their sizes only.

    Or weights of more axes, of which it looks at the first two.
    """
    weights = [op[slot] for slot in layer.matrices if op.tensor(slot) is not None]
    more = next((tensor for tensor in weights if tensor.rank != 2), None)
    if more is not None:
        return Decline(f"its weights {more.name!r} are of shape {list(more.shape)}, which is no matrix")
    recurrent, bias = op[layer.recurrent].shape, op[layer.bias].shape
    if len(bias) == 1 and recurrent == bias * 2:
        return None
    return Decline(f"its recurrent weights are of shape {list(recurrent)}, its bias of {list(bias)}")


def state_of_another_batch(op: Operator) -> Decline | None:
    """Return a Decline for a state of more or fewer rows than the input has (Prepare, rnn.cc)."""
    x, state = op[0], op[ONE_WAY.hidden]
    if x.dims[0] is None or not state.rank or state.dims[0] in (None, x.dims[0]):
        return None
    return Decline(f"its state {state.name!r} is of shape {list(state.shape)}, its input has a batch of {x.dims[0]}")


def sequence_axes(at: Instance) -> str:
    return "t b i -> t b o" if at.op.options.time_major else "b t i -> b t o"


@handler(
    "RNN",
    max_version=3,
    layout=Terminate(),
    quantization=weights_of,
    activation=PER_STEP,
    types=kinds(ONE_WAY),
    accepts=lambda at: refusal(at.op, 2, ONE_WAY) or state_of_another_batch(at.op),
)
def rnn(ctx: Context, *operands: Value) -> Value:
    """One step: Gemm of the input, Gemm of the last output, and the activation."""
    inputs = present_operands(operands)
    hidden = step(ctx, inputs, ONE_WAY, products(ctx, inputs, ONE_WAY, inputs[0]), inputs[ONE_WAY.hidden])
    ctx.assign(ONE_WAY.hidden, hidden)
    return hidden


@handler(
    "UNIDIRECTIONAL_SEQUENCE_RNN",
    max_version=3,
    layout=Implicit({0: "t b i", out(0): "t b o"}),
    axes=sequence_axes,
    quantization=weights_of,
    activation=PER_STEP,
    types=kinds(ONE_WAY),
    accepts=lambda at: refusal(at.op, 3, ONE_WAY),
)
def unidirectional_sequence_rnn(ctx: Context, *operands: Value) -> Value:
    """RNN where it has the activation, else a Scan of steps."""
    inputs = present_operands(operands)
    (y,) = layers_run(ctx, inputs, (ONE_WAY,), (inputs[0],))
    return y


@handler(
    "BIDIRECTIONAL_SEQUENCE_RNN",
    max_version=3,
    layout=time_first_both,
    axes=both_axes,
    quantization=weights_of,
    activation=PER_STEP,
    types=kinds(FORWARD, BACKWARD),
    accepts=lambda at: refusal(at.op, 3, FORWARD, BACKWARD) or both_ways(at.op, 10, 11) or misread(at.op),
)
def bidirectional_sequence_rnn(ctx: Context, *operands: Value | None) -> Value | tuple[Value, ...]:
    """One RNN of both directions where they see the same, else one each; their outputs side by side, or apart."""
    inputs = present_operands(operands)
    x, auxiliary = inputs[0], inputs.get(auxiliary_slot(ctx.op))
    ahead = x if auxiliary is None or not crossed(ctx.op) else ctx.ops.Concat(x, auxiliary, axis=2)
    # Batch by batch the kernel goes back over the input whatever is given.
    elsewhere = not crossed(ctx.op) and ctx.options.time_major
    back = auxiliary if auxiliary is not None and elsewhere else ahead
    outputs = layers_run(ctx, inputs, (FORWARD, BACKWARD), (ahead, back))
    return side_by_side(ctx, outputs)


def crossed(op: Operator) -> bool:
    """Whether both directions see the auxiliary input beside the input."""
    return op.tensor(FORWARD.auxiliary or 0) is not None


def misread(op: Operator) -> Decline | None:
    """Where the kernel takes other steps than the operator says."""
    hybrid, major = op[FORWARD.weights].dtype != "float32", op.options.time_major
    if hybrid and major:
        text = "runs a sequence with time first once for each of its steps"
        return Decline(f"on integer weights LiteRT's kernel {text}; put the batch first")
    return as_wide(op) if major or (hybrid and crossed(op)) else None


# --- layers -----------------------------------------------------------------------------------


def layers_run(
    ctx: Context, inputs: Mapping[int, Value], layers: Sequence[Layer], xs: Sequence[Value]
) -> Sequence[Value]:
    """What the layers give, (T, B, U) each; their states are kept."""
    units = {ctx.op[layer.bias].shape[0] for layer in layers}
    if ctx.options.fused_activation_function not in ITS_OWN:
        return [by_steps(ctx, inputs, layer, x) for layer, x in zip(layers, xs, strict=True)]
    if len(units) == 1 and all(x is xs[0] for x in xs):
        return at_once(ctx, inputs, layers, xs[0])
    return [at_once(ctx, inputs, (layer,), x)[0] for layer, x in zip(layers, xs, strict=True)]


def at_once(ctx: Context, inputs: Mapping[int, Value], layers: Sequence[Layer], x: Value) -> Sequence[Value]:
    """RNN, in one direction or in both."""
    ops, n = ctx.ops, len(layers)
    units = ctx.op[layers[0].bias].shape[0]
    biases = [ops.Concat(inputs[layer.bias], np.zeros(units, np.float32), axis=0) if ctx.constant(layer.bias) is None
              else np.concatenate([ctx.constant(layer.bias), np.zeros(units, np.float32)]) for layer in layers]  # fmt: skip
    name, alpha, beta = ITS_OWN[ctx.options.fused_activation_function]
    y, hidden = ops.RNN(
        x,
        stack_directions(ops, [wide_weights(ctx, inputs, layer) for layer in layers]),
        stack_directions(ops, [matrix(ctx, inputs, layer.recurrent) for layer in layers]),
        stack_directions(ops, biases),
        None,
        stack_initial_states(ctx, [inputs[layer.hidden] for layer in layers]),
        activations=[name] * n,
        activation_alpha=None if alpha is None else [alpha] * n,
        activation_beta=None if beta is None else [beta] * n,
        direction="bidirectional" if n == 2 else "reverse" if layers[0].reverse else "forward",
        hidden_size=units,
        outputs=2,
    )
    for layer, last in zip(layers, apart(ctx, hidden, n, axis=0), strict=True):
        ctx.assign(layer.hidden, last)
    return apart(ctx, y, n, axis=1)


def by_steps(ctx: Context, inputs: Mapping[int, Value], layer: Layer, x: Value) -> Value:
    """Scan over time of what is left when all products with the input are made at once."""
    units = ctx.op[layer.bias].shape[0]

    def body(hidden: Value, seen: Value) -> list[Value]:
        hidden = step(ctx, inputs, layer, seen, hidden)
        return [hidden, hidden]

    inner = ctx.graph(body, [("hidden", "float32", (None, units)), ("products", "float32", (None, units))])
    way = [1] if layer.reverse else None
    seen = products(ctx, inputs, layer, x)
    hidden, y = ctx.ops.Scan(
        inputs[layer.hidden], seen, body=inner, num_scan_inputs=1, outputs=2,
        scan_input_directions=way, scan_output_directions=way,
    )  # fmt: skip
    ctx.assign(layer.hidden, hidden)
    return y


def products(ctx: Context, inputs: Mapping[int, Value], layer: Layer, x: Value) -> Value:
    """What the input adds, bias included: (..., B, I) to (..., B, U)."""
    weights = wide_weights(ctx, inputs, layer)
    if ctx.op[0].rank == 2:
        return ctx.ops.Gemm(x, weights, inputs[layer.bias], transB=1)
    turned = weights.T.copy() if isinstance(weights, np.ndarray) else ctx.ops.Transpose(weights, perm=[1, 0])
    return ctx.ops.Add(ctx.ops.MatMul(x, turned), inputs[layer.bias])


def step(ctx: Context, inputs: Mapping[int, Value], layer: Layer, seen: Value, hidden: Value) -> Value:
    sums = ctx.ops.Gemm(hidden, matrix(ctx, inputs, layer.recurrent), seen, transB=1)
    return ctx.activate(sums)


def wide_weights(ctx: Context, inputs: Mapping[int, Value], layer: Layer) -> Value | Array:
    """Of the input, and beside them of the auxiliary input."""
    own = matrix(ctx, inputs, layer.weights)
    if layer.auxiliary is None or ctx.op.tensor(layer.auxiliary) is None:
        return own
    return ctx.ops.Concat(own, matrix(ctx, inputs, layer.auxiliary), axis=1)


def matrix(ctx: Context, inputs: Mapping[int, Value], slot: int) -> Value | Array:
    """Weights in float; an array where the file has them so."""
    constant = ctx.constant(slot)
    if constant is not None and constant.dtype == np.float32:
        return constant
    return reinterpret_uint8_weights(ctx, slot, inputs[slot])
