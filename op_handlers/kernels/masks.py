"""Evaluation of attention masks, to find the slots that a token attends to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from onnx_tflite_plugin.api import Array, Operator, Tensor
from op_handlers.kernels.views import Producers

MAX_TRIALS = 48
"""Maximum number of positions at which a mask is evaluated."""
MAX_FORBIDDEN_SCORE = -1e3
"""Maximum score of a forbidden slot; masks in files use -1e4 or less."""


def attention_window(mask: Tensor, position: Tensor, producers: Producers, tokens: int, slots: int) -> int | None:
    """Return the window size of a causal mask, 0 if unlimited, None for other masks.

    The mask is evaluated at several positions of the first token. A mask that is a graph input counts as causal.
    """
    token_positions = position_input(position, producers)
    if token_positions is None or token_positions.shape != (tokens,):
        return None
    window: int | None = None
    last_start = slots - tokens
    starts = np.linspace(0, last_start, min(last_start + 1, MAX_TRIALS), dtype=int)
    for start in dict.fromkeys(starts[::-1].tolist()):
        positions = start + np.arange(tokens)
        causal = np.arange(slots) <= positions[:, None]
        evaluation = _Evaluation(
            producers, {token_positions: positions.astype(np.int64)}, np.where(causal, 0.0, -np.inf)
        )
        try:
            with np.errstate(all="ignore"):
                scores = evaluation.value(mask).reshape(tokens, slots)
        except (LookupError, ValueError, IndexError):
            return None
        allowed = scores == 0
        if not (allowed | (scores <= MAX_FORBIDDEN_SCORE)).all():
            return None
        if window is None:  # the first evaluation is at the largest start, where a window forbids slots
            count = int(allowed[-1].sum())
            window = 0 if count == last_start + tokens else count
        expected = causal if not window else causal & (np.arange(slots) > positions[:, None] - window)
        if (allowed != expected).any():
            return None
    return window


def position_input(position: Tensor, producers: Producers) -> Tensor | None:
    """Return the 1-D tensor whose first element is the cache position to write.

    Return None if the position is computed in a different way.
    """
    tensor = position
    while (op := producers.get(tensor)) is not None:
        begin = op.tensor(1) if op.code == "SLICE" else None
        if op.code not in ("RESHAPE", "SLICE", "SQUEEZE", "CAST") or (begin is not None and begin.array.any()):
            return None
        tensor = op[0]
    return tensor if tensor.rank == 1 and tensor.dtype in ("int32", "int64") else None


class _Evaluation(NamedTuple):
    """Values of tensors. ``causal``: value of a mask that is a graph input.

    This is a class because a closure would keep the large values alive.
    """

    producers: Producers
    values: dict[Tensor, Array]
    causal: Array

    def value(self, tensor: Tensor) -> Array:
        """Return the value of a tensor.

        Raises LookupError for operators that cannot be evaluated.
        """
        if tensor in self.values:
            return self.values[tensor]
        if tensor.is_constant:
            return tensor.array
        op = self.producers.get(tensor)
        if op is None:
            if tensor.dtype != "float32":
                raise LookupError(tensor.name)
            return self.causal.reshape(tensor.shape)
        operands = [self.value(x) for x in op.inputs if x is not None]
        self.values[tensor] = np.asarray(_FUNCTIONS[op.code](op, *operands))
        return self.values[tensor]


def _call(function: Callable[..., Any], _op: Operator, *operands: Array) -> Array:
    return np.asarray(function(*operands))


def _reshape(op: Operator, x: Array, *_: Array) -> Array:
    return x.reshape(op[~0].shape)


def _gather_nd(_op: Operator, table: Array, indices: Array) -> Array:
    elements: Array = table[tuple(np.moveaxis(indices.astype(np.int64), -1, 0))]
    return elements


def _gather(op: Operator, table: Array, indices: Array) -> Array:
    return np.take(table, indices, axis=op.options.axis)


def _all(op: Operator, x: Array, axes: Array) -> Array:
    return np.asarray(x.all(axis=tuple(int(axis) for axis in axes.reshape(-1)), keepdims=bool(op.options.keep_dims)))


def _slice(_op: Operator, x: Array, begin: Array, size: Array) -> Array:
    starts_and_sizes = zip(begin.tolist(), size.tolist(), strict=True)
    return x[tuple(slice(start, None if n < 0 else start + n) for start, n in starts_and_sizes)]


def _cast(op: Operator, x: Array) -> Array:
    return x.astype(op[~0].dtype)


_FUNCTIONS: Mapping[str, Callable[..., Array]] = {
    "ADD": partial(_call, np.add),
    "SUB": partial(_call, np.subtract),
    "MUL": partial(_call, np.multiply),
    "LESS": partial(_call, np.less),
    "LESS_EQUAL": partial(_call, np.less_equal),
    "GREATER": partial(_call, np.greater),
    "GREATER_EQUAL": partial(_call, np.greater_equal),
    "LOGICAL_AND": partial(_call, np.logical_and),
    "LOGICAL_OR": partial(_call, np.logical_or),
    "LOGICAL_NOT": partial(_call, np.logical_not),
    "SELECT": partial(_call, np.where),
    "SELECT_V2": partial(_call, np.where),
    "BROADCAST_TO": lambda op, x, _: np.broadcast_to(x, op[~0].shape),
    "RESHAPE": _reshape,
    "EXPAND_DIMS": _reshape,
    "SLICE": _slice,
    "CAST": _cast,
    "GATHER": _gather,
    "GATHER_ND": _gather_nd,
    "REDUCE_ALL": _all,
    "TRANSPOSE": lambda op, x, perm: x.transpose(perm.tolist()),
}
