"""Handlers of LSTMs: one step, and a sequence in one direction."""

from __future__ import annotations

from collections.abc import Mapping

from onnx_tflite_plugin.api import (
    ActivationKernel,
    Context,
    Decline,
    Dequantized,
    Dims,
    FusedActivation,
    Implicit,
    Instance,
    Operator,
    Refusal,
    Terminate,
    Value,
    handler,
    out,
)
from op_handlers.kernels.operands import present_operands
from op_handlers.kernels.recurrent import check_float_operands, check_symmetric_weights, check_variable_states
from op_handlers.sequence.lstm.basic import basic_quantization, check_basic, emit_basic
from op_handlers.sequence.lstm.cell import (
    CELLS,
    GATES,
    HIDDEN,
    PROJECTION,
    PROJECTION_BIAS,
    Cell,
    Gate,
    check_state_batch,
    gates_of,
    has_layer_norm,
)
from op_handlers.sequence.lstm.integer_checks import check_integer_lstm, scale_and_zero_point
from op_handlers.sequence.lstm.integers import IntegerCell
from op_handlers.sequence.lstm.sequences import choose_emitter

NORMALIZED_BIAS_SCALE = 2.0**-10
"""Scale of the bias of a normalized gate, in units of the scale of its normalization weights."""
DTYPE_PAIRS = {("float32", "float32"), ("float32", "int8"), ("float32", "uint8"), ("int8", "int8")}


def uses_integers(at: Instance) -> bool:
    """True if the arithmetic of the integer kernel is emitted.

    Targets without integer operators compute in float instead.
    """
    return at.op[0].dtype == "int8" and at.target.moves_integers


def bias_factors(at: Instance, gate: Gate) -> tuple[int, int | float]:
    """Return the two factors of a bias's scale, each a slot or a number.

    With a number, the bias becomes a float constant, which all targets can add to float values.
    """
    if has_layer_norm(at.op):
        return gate.norm, NORMALIZED_BIAS_SCALE
    has_float_bias = at.op[0].dtype == "int8" and not uses_integers(at)
    return 0, scale_and_zero_point(at.op[gate.weights])[0] if has_float_bias else gate.weights


def weight_quantization(at: Instance) -> Dequantized:
    """Return the behavior: biases have the scale of input times weight.

    With layer normalization, biases have the scale of the normalized value.
    """
    op = at.op
    weights = tuple(slot for gate in GATES for slot in (gate.weights, gate.recurrent))
    biases: dict[int, tuple[int, int | float]] = {gate.bias: bias_factors(at, gate) for gate in gates_of(op)}
    if len(op.intermediates) == 5 and op.tensor(PROJECTION_BIAS) is not None:
        biases[PROJECTION_BIAS] = PROJECTION, scale_and_zero_point(op.intermediates[4])[0]
    slots_as_in_file = [
        slot for slot, tensor in enumerate(op.inputs) if tensor is not None and (tensor.is_constant or slot == CELLS)
    ]
    return Dequantized(
        bias=biases, weights=(*weights, PROJECTION), as_in_file=tuple(slots_as_in_file) if uses_integers(at) else ()
    )


def sequence_axes(at: Instance) -> str:
    axes = "t b i -> t b o" if at.op.options.time_major else "b t i -> b t o"
    return axes if _has_sequence_output(at) else axes.partition(">")[0] + "> _"


def sequence_sizes(at: Instance) -> Dims:
    """Return the operand's shape with the number of outputs on the last axis."""
    recurrent = at.op[6]  # forget gate: [cells, outputs]
    if not at.op[0].has_rank:
        raise Refusal("the operand's rank is unknown, so the result's shape is too; set it with --input-shape")
    return (*at.op[0].dims[:-1], recurrent.dims[-1])


def time_first_layout(at: Instance) -> Implicit:
    return Implicit({0: "t b i", out(0): "t b o"} if _has_sequence_output(at) else {0: "t b i"})


def _has_sequence_output(at: Instance) -> bool:
    """True if the file stores the rank of the output, or if the rank is 3.

    Another check reports a wrong rank.
    """
    return at.op[out(0)].has_rank or at.op[out(0)].rank == 3


def required_opset(at: Instance) -> int:
    """Return the minimum opset of the emitted operators.

    LayerNormalization needs opset 17, and ReduceMean with axes as an operand needs 18.
    """
    if not has_layer_norm(at.op):
        return 1
    return 18 if uses_integers(at) else 17


def check_lstm(op: Operator, rank: int) -> Decline | None:
    """Return a Decline for operands that the kernels refuse or misread."""
    x, slots = op[0], [slot for gate in gates_of(op) for slot in (gate.weights, gate.recurrent)]
    weights = [op[slot] for slot in slots]
    if len(op.inputs) not in (20, 24) or x.rank != rank:
        return Decline(
            f"{len(op.inputs)} operands, the first of rank {x.rank}; LiteRT requires 20 or 24, the first of rank {rank}"
        )
    if any((x.dtype, w.dtype) not in DTYPE_PAIRS for w in weights):
        dtypes = ", ".join(sorted({w.dtype for w in weights}))
        return Decline(f"no kernel multiplies {x.dtype} by {dtypes}")
    if any(w.rank != 2 for w in weights):
        return Decline("the recurrent weights are diagonal matrices, which are not supported; store them in full")
    for name, sizes in (("", weights[::2]), ("recurrent ", weights[1::2])):
        if len({w.shape for w in sizes}) > 1:
            return Decline(
                f"the gates have {name}weights of shapes {', '.join(str(list(w.shape)) for w in sizes)}, expected equal shapes"
            )
    is_normalized = [op.tensor(gate.norm) is not None for gate in gates_of(op)]
    if len({*is_normalized}) > 1:
        return Decline(f"{sum(is_normalized)} of {len(is_normalized)} gates are normalized, expected all or none")
    peephole_slots = [slot for gate in gates_of(op) if (slot := gate.peephole) is not None]
    batch = x.dims[int(rank == 3 and bool(op.options.time_major))]
    decline = (
        check_symmetric_weights(op, (*slots, *peephole_slots, PROJECTION))
        or check_variable_states(op, (HIDDEN, CELLS))
        or check_state_batch(op, batch)
    )
    if decline or x.dtype == "int8":
        return decline or check_integer_lstm(op)
    return check_float_operands(op)


def cell_activation(at: Instance) -> ActivationKernel:
    """Return ALWAYS_TANH for integers and for the cell with five operands.

    Their kernels ignore the activation in the options.
    """
    ignores_option = at.op[0].dtype != "float32" or at.op.options.get("kernel_type") == "BASIC"
    return ActivationKernel.ALWAYS_TANH if ignores_option else ActivationKernel.CELLS


CELL_ACTIVATION = FusedActivation(cell_activation, in_lowering=True)


@handler(
    "UNIDIRECTIONAL_SEQUENCE_LSTM",
    max_version=4,
    layout=time_first_layout,
    axes=sequence_axes,
    quantization=weight_quantization,
    activation=CELL_ACTIVATION,
    min_opset=required_opset,
    accepts=lambda at: check_lstm(at.op, 3),
    result_shape=sequence_sizes,
)
def unidirectional_sequence_lstm(ctx: Context, *operands: Value | None) -> Value:
    """Emit LSTM if it computes the kernel's results, else a Scan of decomposed steps."""
    y = emit_sequence(ctx, present_operands(operands))
    transposed = ctx.op[out(0)].rank != 3 and not ctx.options.time_major
    return ctx.ops.Transpose(y, perm=[1, 0, 2]) if transposed else y


def emit_sequence(ctx: Context, inputs: Mapping[int, Value], reverse: bool = False) -> Value:
    """Emit the LSTM of a sequence and return its outputs, time first."""
    cell = make_cell(ctx, inputs, reverse)
    ((y, *states),) = choose_emitter(cell)([cell], inputs[0], [cell.initial_states()])
    cell.store_states(*states)
    return cell.convert_output(y)


def make_cell(ctx: Context, inputs: Mapping[int, Value], reverse: bool = False) -> Cell:
    """Return the float or integer cell of an operator."""
    return (IntegerCell if uses_integers(ctx) else Cell)(ctx, inputs, reverse)


def check_step(at: Instance) -> Decline | None:
    op = at.op
    checks = {"FULL": lambda: check_lstm(op, 2), "BASIC": lambda: check_basic(op)}
    kernel_type = op.options.kernel_type
    return checks[kernel_type]() if kernel_type in checks else Decline(f"kernel type {kernel_type} is unknown")


@handler(
    "LSTM",
    max_version=4,
    layout=Terminate(),
    quantization=lambda at: (
        basic_quantization(at.op) if at.op.options.kernel_type == "BASIC" else weight_quantization(at)
    ),
    activation=CELL_ACTIVATION,
    min_opset=required_opset,
    accepts=check_step,
)
def lstm(ctx: Context, *operands: Value | None) -> tuple[Value | None, ...]:
    """Emit one decomposed step: Gemm, Split, Sigmoid and Tanh."""
    inputs = present_operands(operands)
    if ctx.options.kernel_type == "BASIC":
        return emit_basic(ctx, inputs)
    cell = make_cell(ctx, inputs)
    hidden, cells = cell.initial_states()
    hidden, cells = cell.emit_step(hidden, cells, cell.emit_products(inputs[0]))
    cell.store_states(hidden, cells)
    return (cell.convert_output(hidden),)
