"""Classes of models with recurrent layers, in which what is rounded in one step is multiplied by the next."""

from __future__ import annotations

from math import isfinite

import numpy as np

from onnx_tflite_plugin.source.model import Array, Operator, Tensor

from .suspect import Suspect, scales_of

STEEP = 64  # rows of weights of such a norm make 1 of what activations of up to 4 are rounded by, half of 4 / 127
# A sixteenth of it, where each step multiplies what the last one gave.
OPEN = 4  # whose logistic function is 0.98
RECURRENT = ("RNN", "LSTM")
LARGE_WEIGHT = 1e4  # times which the last bits of a state between -1 and 1 are a thousandth


def gates_of_rounded(suspect: Suspect) -> bool:
    """Steps whose weights make of activations that the kernel rounds to 8 bits more than opens or closes a gate.

    Or gates that stand open, so that cells add up what is rounded in every step, of which recurrent weights make more.
    """
    rounded = [op for op in suspect.operators if "SEQUENCE_LSTM" in op.code and op[0].dtype == "float32"]
    if any(_stand_open(op) and _growth(op) > 1 for op in rounded if op[2].dtype in ("int8", "uint8")):
        return True
    if any(_through_projection(op) >= STEEP / 16 for op in rounded):
        return True
    return any(
        float(np.linalg.norm(t.array.astype(np.float64), axis=1).max(initial=0)) * max(scales_of(t), default=0)
        >= (STEEP if t.shape[0] != t.shape[1] else STEEP / 16)
        for op in suspect.operators
        if any(kind in op.code for kind in RECURRENT) and op[0].dtype == "float32"
        for t in op.inputs
        if t is not None and _of_8_bits(t)
    )


def _through_projection(op: Operator) -> float:
    """The largest norm of a row of recurrent weights times those of a projection, where both are of 8 bits; 0 where they are not."""
    projection, recurrent = op.tensor(16), [op.tensor(slot) for slot in (5, 6, 7, 8)]
    if projection is None or not _of_8_bits(projection):
        return 0.0
    gates = [_real(t) @ _real(projection) for t in recurrent if t is not None and _of_8_bits(t)]
    return max((float(np.linalg.norm(gate, axis=1).max(initial=0)) for gate in gates), default=0.0)


def _of_8_bits(tensor: Tensor) -> bool:
    return tensor.is_constant and tensor.dtype in ("int8", "uint8") and tensor.rank == 2 and bool(scales_of(tensor))


def _real(weights: Tensor) -> Array:
    """As floats; the kernels take the bytes of uint8 for int8."""
    return weights.array.view(np.int8).astype(np.float64) * max(scales_of(weights))


def _stand_open(op: Operator) -> bool:
    """Whether biases alone keep the input and forget gates of a cell open."""
    biases = [t.array for slot in (12, 13) if (t := op.tensor(slot)) is not None and t.is_constant]
    return len(biases) == 2 and bool((np.minimum(*biases) >= OPEN).any())


def unbounded_recurrence(suspect: Suspect) -> bool:
    """A recurrent layer whose activation has no bound: what float32 rounds grows from step to step, here a thousandfold.

    Or weights so large that what float32 rounds of a bounded state decides gates. Or powers of what the step before made.
    """
    if any(op.code == "POW" and not op[1].is_constant for op in suspect.steps):
        return True
    if any(_recurs(op) and isfinite(growth := _growth(op)) and growth * 2.0**-24 > 0.01 for op in suspect.operators):
        return True
    weights = [
        t
        for op in suspect.operators
        if _recurs(op)
        for t in op.inputs
        if t is not None and t.is_constant and t.rank == 2
    ]
    if any(t.dtype == "float32" and np.abs(t.array).max(initial=0) > LARGE_WEIGHT for t in weights):
        return True
    return any(
        _recurs(op)
        and op.options.get("fused_activation_function") in ("NONE", "RELU")
        and "SEQUENCE" in op.code
        and _growth(op) ** max(op[0].shape[:2], default=1) >= 1000
        for op in suspect.operators
    )


def cells_told(suspect: Suspect) -> bool:
    """Cells of an LSTM of five operands as a result, its states kept: an LSB of the output that it takes next is 16 of theirs."""
    told = suspect.model.main.outputs
    return any(
        op.code == "LSTM" and op[0].dtype == "uint8" and len(op.inputs) == 5 and op[1].is_variable
        and (op[4] in told or op.tensor(~1) in told)
        for op in suspect.model.main.operators
    )  # fmt: skip


def _recurs(op: Operator) -> bool:
    return any(kind in op.code for kind in RECURRENT)


def _growth(op: Operator) -> float:
    """What a step makes at most of its largest number: by a row of recurrent weights, each a square."""
    squares = [t for t in op.inputs if t is not None and t.is_constant and t.rank == 2 and t.shape[0] == t.shape[1]]
    rows = [np.abs(t.array.astype(np.float64)).sum(1).max(initial=0) * max(scales_of(t), default=1.0) for t in squares]
    return float(max(rows, default=np.inf))
