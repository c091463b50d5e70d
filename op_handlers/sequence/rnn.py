"""Recurrent layers without gates (kernels/internal/kernel_utils.cc).

The operators process one step, a sequence, or a sequence in both directions. Sizes: T steps, B batches, I inputs, A
auxiliary inputs, U units.
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
    auxiliary_slot,
    bidirectional_axes,
    bidirectional_layout,
    check_auxiliary_size,
    check_directions,
    merge_outputs,
    split_directions,
)


class DirectionSlots(NamedTuple):
    """Operand slots of one direction.

    ``auxiliary``: weights of the auxiliary input.
    """

    weights: int
    recurrent: int
    bias: int
    hidden: int
    auxiliary: int | None = None
    reverse: bool = False

    @property
    def matrices(self) -> tuple[int, ...]:
        return (self.weights, self.recurrent, *(() if self.auxiliary is None else (self.auxiliary,)))


UNIDIRECTIONAL = DirectionSlots(1, 2, 3, 4)
FORWARD, BACKWARD = DirectionSlots(1, 2, 3, 4, 10), DirectionSlots(5, 6, 7, 8, 11, reverse=True)
# Activations of ONNX's RNN, with alpha and beta.
ONNX_ACTIVATIONS: Mapping[str, tuple[str, float | None, float | None]] = {
    "TANH": ("Tanh", None, None),
    "RELU": ("Relu", None, None),
    "NONE": ("Affine", 1.0, 0.0),
}


def weight_quantization(at: Instance) -> Dequantized:
    layers = (FORWARD, BACKWARD) if len(at.op.inputs) > BACKWARD.weights else (UNIDIRECTIONAL,)
    return Dequantized(weights=tuple(slot for layer in layers for slot in layer.matrices))


def weight_signatures(*layers: DirectionSlots) -> tuple[str, ...]:
    """Return signatures for ``types``: float32 with weights of one dtype.

    Biases must be float32, because the kernels read them as float32.
    """
    slots, biases = {slot for layer in layers for slot in layer.matrices}, {layer.bias for layer in layers}
    operand_slots = range(1, max(slots | biases) + 1)
    return tuple(
        ", ".join(
            ["float32", *(dtype if slot in slots else "float32" if slot in biases else "_" for slot in operand_slots)]
        )
        for dtype in ("float32", "int8", "uint8")
    )


def check_layers(op: Operator, rank: int, *layers: DirectionSlots) -> Decline | None:
    """Return a Decline for operands that the kernels refuse or misread."""
    matrices = [slot for layer in layers for slot in layer.matrices if op.tensor(slot) is not None]
    if op[0].rank != rank:
        return Decline(f"the input has rank {op[0].rank}; LiteRT requires rank {rank}")
    shape_decline = next((declined for layer in layers if (declined := check_shapes(op, layer))), None)
    hidden = [layer.hidden for layer in layers]
    return (
        shape_decline
        or check_float_operands(op)
        or check_variable_states(op, hidden)
        or check_symmetric_weights(op, matrices)
    )


def check_shapes(op: Operator, layer: DirectionSlots) -> Decline | None:
    """Return a Decline unless weights are matrices and recurrent weights square.

    The kernels check only one size.
    """
    weights = [op[slot] for slot in layer.matrices if op.tensor(slot) is not None]
    non_matrix = next((tensor for tensor in weights if tensor.rank != 2), None)
    if non_matrix is not None:
        return Decline(f"weights {non_matrix.name!r} have shape {list(non_matrix.shape)}, expected a matrix")
    recurrent, bias = op[layer.recurrent].shape, op[layer.bias].shape
    if len(bias) == 1 and recurrent == bias * 2:
        return None
    return Decline(
        f"the recurrent weights have shape {list(recurrent)} and the bias {list(bias)}, expected [U, U] and [U]"
    )


def check_state_batch(op: Operator) -> Decline | None:
    """Return a Decline unless state and input have the same batch size.

    The kernel checks this in Prepare (rnn.cc).
    """
    x, state = op[0], op[UNIDIRECTIONAL.hidden]
    if x.dims[0] is None or not state.rank or state.dims[0] in (None, x.dims[0]):
        return None
    return Decline(f"state {state.name!r} has shape {list(state.shape)}, but the input has a batch of {x.dims[0]}")


def sequence_axes(at: Instance) -> str:
    return "t b i -> t b o" if at.op.options.time_major else "b t i -> b t o"


@handler(
    "RNN",
    max_version=3,
    layout=Terminate(),
    quantization=weight_quantization,
    activation=PER_STEP,
    types=weight_signatures(UNIDIRECTIONAL),
    accepts=lambda at: check_layers(at.op, 2, UNIDIRECTIONAL) or check_state_batch(at.op),
)
def rnn(ctx: Context, *operands: Value) -> Value:
    """Emit one step: Gemm of the input, Gemm of the last output, and the activation."""
    inputs = present_operands(operands)
    hidden = emit_step(
        ctx,
        inputs,
        UNIDIRECTIONAL,
        emit_input_projections(ctx, inputs, UNIDIRECTIONAL, inputs[0]),
        inputs[UNIDIRECTIONAL.hidden],
    )
    ctx.assign(UNIDIRECTIONAL.hidden, hidden)
    return hidden


@handler(
    "UNIDIRECTIONAL_SEQUENCE_RNN",
    max_version=3,
    layout=Implicit({0: "t b i", out(0): "t b o"}),
    axes=sequence_axes,
    quantization=weight_quantization,
    activation=PER_STEP,
    types=weight_signatures(UNIDIRECTIONAL),
    accepts=lambda at: check_layers(at.op, 3, UNIDIRECTIONAL),
)
def unidirectional_sequence_rnn(ctx: Context, *operands: Value) -> Value:
    """Emit RNN if ONNX's RNN supports the activation; otherwise a Scan over time."""
    inputs = present_operands(operands)
    (y,) = emit_layers(ctx, inputs, (UNIDIRECTIONAL,), (inputs[0],))
    return y


@handler(
    "BIDIRECTIONAL_SEQUENCE_RNN",
    max_version=3,
    layout=bidirectional_layout,
    axes=bidirectional_axes,
    quantization=weight_quantization,
    activation=PER_STEP,
    types=weight_signatures(FORWARD, BACKWARD),
    accepts=lambda at: (
        check_layers(at.op, 3, FORWARD, BACKWARD) or check_directions(at.op, 10, 11) or check_time_major(at.op)
    ),
)
def bidirectional_sequence_rnn(ctx: Context, *operands: Value | None) -> Value | tuple[Value, ...]:
    """Emit one bidirectional RNN, or one RNN per direction if their inputs differ."""
    inputs = present_operands(operands)
    x, auxiliary = inputs[0], inputs.get(auxiliary_slot(ctx.op))
    forward_input = x if auxiliary is None or not shares_auxiliary(ctx.op) else ctx.ops.Concat(x, auxiliary, axis=2)
    # With the batch first, the kernel's backward direction reads the input instead of the auxiliary input.
    reads_auxiliary = not shares_auxiliary(ctx.op) and ctx.options.time_major
    backward_input = auxiliary if auxiliary is not None and reads_auxiliary else forward_input
    outputs = emit_layers(ctx, inputs, (FORWARD, BACKWARD), (forward_input, backward_input))
    return merge_outputs(ctx, outputs)


def shares_auxiliary(op: Operator) -> bool:
    """True if both directions read input and auxiliary input."""
    return op.tensor(FORWARD.auxiliary or 0) is not None


def check_time_major(op: Operator) -> Decline | None:
    """Return a Decline if LiteRT's kernel runs the wrong number of time steps."""
    is_hybrid, time_major = op[FORWARD.weights].dtype != "float32", op.options.time_major
    if is_hybrid and time_major:
        problem = "LiteRT's kernel repeats the whole time-major sequence for every time step"
        return Decline(f"with integer weights, {problem}; put the batch first")
    return check_auxiliary_size(op) if time_major or (is_hybrid and shares_auxiliary(op)) else None


# --- layers -----------------------------------------------------------------------------------


def emit_layers(
    ctx: Context, inputs: Mapping[int, Value], layers: Sequence[DirectionSlots], layer_inputs: Sequence[Value]
) -> Sequence[Value]:
    """Emit the layers, store their states and return their outputs, (T, B, U) each."""
    units = {ctx.op[layer.bias].shape[0] for layer in layers}
    if ctx.options.fused_activation_function not in ONNX_ACTIVATIONS:
        return [emit_scan(ctx, inputs, layer, x) for layer, x in zip(layers, layer_inputs, strict=True)]
    if len(units) == 1 and all(x is layer_inputs[0] for x in layer_inputs):
        return emit_rnn(ctx, inputs, layers, layer_inputs[0])
    return [emit_rnn(ctx, inputs, (layer,), x)[0] for layer, x in zip(layers, layer_inputs, strict=True)]


def emit_rnn(ctx: Context, inputs: Mapping[int, Value], layers: Sequence[DirectionSlots], x: Value) -> Sequence[Value]:
    """Emit RNN in one or both directions."""
    ops, direction_count = ctx.ops, len(layers)
    units = ctx.op[layers[0].bias].shape[0]
    biases = [ops.Concat(inputs[layer.bias], np.zeros(units, np.float32), axis=0) if ctx.constant(layer.bias) is None
              else np.concatenate([ctx.constant(layer.bias), np.zeros(units, np.float32)]) for layer in layers]  # fmt: skip
    name, alpha, beta = ONNX_ACTIVATIONS[ctx.options.fused_activation_function]
    y, hidden = ops.RNN(
        x,
        stack_directions(ops, [input_weights(ctx, inputs, layer) for layer in layers]),
        stack_directions(ops, [float_weights(ctx, inputs, layer.recurrent) for layer in layers]),
        stack_directions(ops, biases),
        None,
        stack_initial_states(ctx, [inputs[layer.hidden] for layer in layers]),
        activations=[name] * direction_count,
        activation_alpha=None if alpha is None else [alpha] * direction_count,
        activation_beta=None if beta is None else [beta] * direction_count,
        direction="bidirectional" if direction_count == 2 else "reverse" if layers[0].reverse else "forward",
        hidden_size=units,
        outputs=2,
    )
    for layer, last_output in zip(layers, split_directions(ctx, hidden, direction_count, axis=0), strict=True):
        ctx.assign(layer.hidden, last_output)
    return split_directions(ctx, y, direction_count, axis=1)


def emit_scan(ctx: Context, inputs: Mapping[int, Value], layer: DirectionSlots, x: Value) -> Value:
    """Emit the input projections of all time steps, then a Scan over time."""
    units = ctx.op[layer.bias].shape[0]

    def body(hidden: Value, products: Value) -> list[Value]:
        hidden = emit_step(ctx, inputs, layer, products, hidden)
        return [hidden, hidden]

    scan_body = ctx.graph(body, [("hidden", "float32", (None, units)), ("products", "float32", (None, units))])
    directions = [1] if layer.reverse else None
    products = emit_input_projections(ctx, inputs, layer, x)
    hidden, y = ctx.ops.Scan(
        inputs[layer.hidden], products, body=scan_body, num_scan_inputs=1, outputs=2,
        scan_input_directions=directions, scan_output_directions=directions,
    )  # fmt: skip
    ctx.assign(layer.hidden, hidden)
    return y


def emit_input_projections(ctx: Context, inputs: Mapping[int, Value], layer: DirectionSlots, x: Value) -> Value:
    """Emit the input projections with bias: (..., B, I) to (..., B, U)."""
    weights = input_weights(ctx, inputs, layer)
    if ctx.op[0].rank == 2:
        return ctx.ops.Gemm(x, weights, inputs[layer.bias], transB=1)
    transposed = weights.T.copy() if isinstance(weights, np.ndarray) else ctx.ops.Transpose(weights, perm=[1, 0])
    return ctx.ops.Add(ctx.ops.MatMul(x, transposed), inputs[layer.bias])


def emit_step(
    ctx: Context, inputs: Mapping[int, Value], layer: DirectionSlots, products: Value, hidden: Value
) -> Value:
    sums = ctx.ops.Gemm(hidden, float_weights(ctx, inputs, layer.recurrent), products, transB=1)
    return ctx.activate(sums)


def input_weights(ctx: Context, inputs: Mapping[int, Value], layer: DirectionSlots) -> Value | Array:
    """Return the input weights, concatenated with the weights of the auxiliary input."""
    weights = float_weights(ctx, inputs, layer.weights)
    if layer.auxiliary is None or ctx.op.tensor(layer.auxiliary) is None:
        return weights
    return ctx.ops.Concat(weights, float_weights(ctx, inputs, layer.auxiliary), axis=1)


def float_weights(ctx: Context, inputs: Mapping[int, Value], slot: int) -> Value | Array:
    """Return float32 weights, as an array if the file stores float32."""
    constant = ctx.constant(slot)
    if constant is not None and constant.dtype == np.float32:
        return constant
    return reinterpret_uint8_weights(ctx, slot, inputs[slot])
