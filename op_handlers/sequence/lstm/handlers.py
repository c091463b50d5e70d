"""Recurrent operators."""

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
    Refused,
    Terminate,
    Value,
    handler,
    out,
)
from op_handlers.kernels.operands import present_operands
from op_handlers.kernels.recurrent import check_float_operands, check_symmetric_weights, check_variable_states
from op_handlers.sequence.lstm.basic import basic, five, side_by_side
from op_handlers.sequence.lstm.cell import (
    CELLS,
    GATES,
    HIDDEN,
    PROJECTION,
    Cell,
    gates_of,
    normalizes,
    of_another_batch,
)
from op_handlers.sequence.lstm.integers import IntegerCell
from op_handlers.sequence.lstm.sequences import way
from op_handlers.sequence.lstm.whole import whole

PAIRS = {("float32", "float32"), ("float32", "int8"), ("float32", "uint8"), ("int8", "int8")}


def products(at: Instance) -> Dequantized:
    """Biases count in steps of input times weight, unless they come after a normalization."""
    op = at.op
    weights = tuple(slot for gate in GATES for slot in (gate.weights, gate.recurrent))
    biases = {} if normalizes(op) else {gate.bias: (0, gate.weights) for gate in gates_of(op)}
    stored = [
        slot for slot, tensor in enumerate(op.inputs) if tensor is not None and (tensor.constant or slot == CELLS)
    ]
    return Dequantized(
        bias=biases, weights=(*weights, PROJECTION), stored=tuple(stored) if op[0].dtype == "int8" else ()
    )


def sequence_axes(at: Instance) -> str:
    steps = "t b i -> t b o" if at.op.options.time_major else "b t i -> b t o"
    return steps if _told(at) else steps.partition(">")[0] + "> _"


def sequence_sizes(at: Instance) -> Dims:
    """Return the operand's shape with the number of outputs on the last axis."""
    recurrent = at.op[6]  # of the forget gate: [cells, outputs]
    if not at.op[0].has_rank:
        raise Refused("the shape of its result does not follow")
    return (*at.op[0].dims[:-1], recurrent.dims[-1])


def time_first(at: Instance) -> Implicit:
    return Implicit({0: "t b i", out(0): "t b o"} if _told(at) else {0: "t b i"})


def _told(at: Instance) -> bool:
    """Whether the file says of the result that it has axes; where it says that there are none, they are found not to fit."""
    return at.op[out(0)].has_rank or at.op[out(0)].rank == 3


def newest(at: Instance) -> int:
    """LayerNormalization is of opset 17, and ReduceMean along operands of 18."""
    if not normalizes(at.op):
        return 13
    return 18 if at.op[0].dtype == "int8" else 17


def stepwise(op: Operator, rank: int) -> Decline | None:
    """What the kernels refuse, or read as something else than it is."""
    x, slots = op[0], [slot for gate in gates_of(op) for slot in (gate.weights, gate.recurrent)]
    weights = [op[slot] for slot in slots]
    if len(op.inputs) not in (20, 24) or x.rank != rank:
        return Decline(
            f"it has {len(op.inputs)} operands, the first of rank {x.rank}; LiteRT takes 20 or 24, of rank {rank}"
        )
    if any((x.dtype, w.dtype) not in PAIRS for w in weights):
        dtypes = ", ".join(sorted({w.dtype for w in weights}))
        return Decline(f"it multiplies {x.dtype} by {dtypes}, for which there is no kernel")
    if any(w.rank != 2 for w in weights):
        return Decline("its recurrent weights are diagonal matrices, which is not implemented; give them in full")
    for name, sizes in (("", weights[::2]), ("recurrent ", weights[1::2])):
        if len({w.shape for w in sizes}) > 1:
            return Decline(f"its gates have {name}weights of shapes {', '.join(str(list(w.shape)) for w in sizes)}")
    norms = [op.tensor(gate.norm) is not None for gate in gates_of(op)]
    if len({*norms}) > 1:
        return Decline(f"it normalizes {sum(norms)} of its {len(norms)} gates, of which the kernel looks at some only")
    apart = [slot for gate in gates_of(op) if (slot := gate.peephole) is not None]
    batch = x.dims[int(rank == 3 and bool(op.options.time_major))]
    refused = (
        check_symmetric_weights(op, (*slots, *apart, PROJECTION))
        or check_variable_states(op, (HIDDEN, CELLS))
        or of_another_batch(op, batch)
    )
    if refused or x.dtype == "int8":
        return refused or whole(op)
    return check_float_operands(op)


def cell_activation(at: Instance) -> ActivationKernel:
    """Return ALWAYS_TANH for integers and for the cell of five operands, whose kernels ignore the option."""
    fixed = at.op[0].dtype != "float32" or at.op.options.get("kernel_type") == "BASIC"
    return ActivationKernel.ALWAYS_TANH if fixed else ActivationKernel.CELLS


ACTIVATED = FusedActivation(cell_activation, inside=True)


@handler(
    "UNIDIRECTIONAL_SEQUENCE_LSTM",
    max_version=4,
    layout=time_first,
    axes=sequence_axes,
    quantization=products,
    activation=ACTIVATED,
    min_opset=newest,
    accepts=lambda at: stepwise(at.op, 3),
    sizes=sequence_sizes,
)
def unidirectional_sequence_lstm(ctx: Context, *operands: Value | None) -> Value:
    """LSTM where that bounds no cells, projects and normalizes nothing; else a Scan of steps spelled out."""
    y = through(ctx, present_operands(operands))
    turned = ctx.op[out(0)].rank != 3 and not ctx.options.time_major
    return ctx.ops.Transpose(y, perm=[1, 0, 2]) if turned else y


def through(ctx: Context, inputs: Mapping[int, Value], reverse: bool = False) -> Value:
    """The outputs of a sequence, time first."""
    cell = cell_of(ctx, inputs, reverse)
    ((y, *states),) = way(cell)([cell], inputs[0], [cell.states()])
    cell.keep(*states)
    return cell.finished(y)


def cell_of(ctx: Context, inputs: Mapping[int, Value], reverse: bool = False) -> Cell:
    """The cell of an operator's arithmetic."""
    return (IntegerCell if ctx.op[0].dtype == "int8" else Cell)(ctx, inputs, reverse)


def one_step(at: Instance) -> Decline | None:
    op = at.op
    kinds = {"FULL": lambda: stepwise(op, 2), "BASIC": lambda: five(op)}
    kind = op.options.kernel_type
    return kinds[kind]() if kind in kinds else Decline(f"kernel type {kind} is not known")


@handler(
    "LSTM",
    max_version=4,
    layout=Terminate(),
    quantization=lambda at: side_by_side(at.op) if at.op.options.kernel_type == "BASIC" else products(at),
    activation=ACTIVATED,
    min_opset=newest,
    accepts=one_step,
)
def lstm(ctx: Context, *operands: Value | None) -> tuple[Value | None, ...]:
    """One step spelled out: Gemm, Split, Sigmoid and Tanh."""
    inputs = present_operands(operands)
    if ctx.options.kernel_type == "BASIC":
        return basic(ctx, inputs)
    cell = cell_of(ctx, inputs)
    hidden, cells = cell.states()
    hidden, cells = cell.step(hidden, cells, cell.products(inputs[0]))
    cell.keep(hidden, cells)
    return (cell.finished(hidden),)
