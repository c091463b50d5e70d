"""Rows of the select operator table: operators rewritten to a built-in operator, and checks for all rows.

A row is a handler, so that a pack can take its place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from onnx_tflite_plugin.api import (
    Array,
    Decline,
    Dims,
    Handler,
    Instance,
    Kernel,
    NotQuantizable,
    Operator,
    Raw,
    Replacement,
    Rewriter,
    Target,
    Tensor,
    handler,
)
from op_handlers.custom.select.nodedef import PREFIX, NodeDef, node_of

FLOATS = "float16 float32 float64"
REAL = f"{FLOATS} int32 int64"
"""Arithmetic dtypes with kernels in ONNX Runtime."""
ANY = f"{REAL} bool int8 uint8 int16 uint16 uint32 uint64"
"""Dtypes of data movement operators."""

Declare = Callable[[Callable[..., Any]], Handler]
"""A decorator of lowerings."""
Accepts = Callable[[Instance], Decline | None]
OptionsOf = Callable[[NodeDef, Operator], Mapping[str, Any]]
RewriteOf = Callable[[Rewriter, NodeDef], Sequence[Replacement]]


def kernel_of(function: Callable[..., Any]) -> Kernel:
    """Return a kernel that depends only on its operands."""

    def kernel(op: Operator, *operands: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(function(*operands))

    return kernel


def uniform_types(dtypes: str, operands: int = 1, result: str = "T") -> tuple[str, ...]:
    """Return rows for ``types``, one per dtype: all operands have it, and so has the result unless ``result`` is given."""
    return tuple(f"{', '.join([dtype] * operands)} -> {dtype if result == 'T' else result}" for dtype in dtypes.split())


class _At(NamedTuple):
    """A replacement operator as the argument of declared functions."""

    op: Operator
    target: Target
    opset: int


def rewrite_to(
    name: str,
    base: Handler,
    kernel: Kernel,
    *,
    operands: int | None = 1,
    options: OptionsOf | Mapping[str, Any] | None = None,
    rewrite: RewriteOf | None = None,
    types: str | Sequence[str] = "",
    accepts: Accepts | None = None,
    moves: bool = False,
    holds_batch: Mapping[int | str, int] | None = None,
) -> Handler:
    """Return a handler that rewrites a TensorFlow operator to a built-in operator.

    ``options``: the built-in operator's, from the attributes. ``rewrite``: used instead of ``options``, returns all
    replacement operators. ``operands``: their number, None for any. ``moves``: the operator only moves elements.
    """

    def rewrite_operator(at: Instance) -> Sequence[Replacement]:
        node = node_of(at.op)
        if rewrite is not None:
            return rewrite(Rewriter(at), node)
        given = options(node, at.op) if callable(options) else options or {}
        return Rewriter(at).finish(base, at.op.inputs, **given)

    def lower(ctx: Any, *inputs: Any) -> Any:
        raise AssertionError(f"{name} is rewritten before it is lowered")

    def layout(at: Instance) -> Any:
        last = rewrite_operator(at)[-1]
        declared = last.handler.layout
        return declared(_At(last.op, at.target, at.opset)) if callable(declared) else declared

    lower.__name__, lower.__doc__ = name, f"Equivalent to {base.code}."
    return handler(
        PREFIX + name,
        max_version=1,
        layout=layout if callable(base.layout) else base.layout,
        quantization=Raw() if moves else NotQuantizable(),
        types=types if isinstance(types, str) else tuple(types),
        accepts=check_acceptable(operands, moves, accepts),
        rewrite=rewrite_operator,
        kernel=kernel,
        holds_batch=holds_batch or {},
    )(lower)


def check_acceptable(operands: int | None, moves: bool = False, accepts: Accepts | None = None) -> Accepts:
    """Return the check for every row: valid NodeDef, number of operands, no quantized tensor unless elements are only
    moved.
    """

    def decline(at: Instance) -> Decline | None:
        op, name = at.op, node_of(at.op).op
        given = [tensor for tensor in op.inputs if tensor is not None]
        if len(given) != len(op.inputs) or (operands is not None and len(given) != operands):
            expected = "all of its operands" if operands is None else f"{operands} operands"
            return Decline(
                f"{len(given)} operands, but TensorFlow's {name} has {expected}: the file is damaged; export the model again"
            )
        scaled = next((t for t in (*given, *op.outputs) if t is not None and t.quantization is not None), None)
        if scaled is not None and not moves:
            return Decline(
                f"tensor {scaled.name!r} is quantized, but TensorFlow's {name} would compute with the quantized values",
                "keep the operator in floating point",
            )
        return accepts(at) if accepts is not None else None

    return decline


def permute_sizes(dims: Sequence[int | None], perm: Sequence[int]) -> Dims:
    """Return permuted sizes."""
    return tuple(dims[axis] for axis in perm)


def constant_axis(op: Operator, slot: int) -> int | None:
    """Return the scalar in a constant operand; None for a runtime value or several elements."""
    array = op.constant(slot)
    return int(array.reshape(-1)[0]) if array is not None and array.size == 1 else None


def check_tensor_ranks(ranks: Mapping[int, int], *others: Accepts) -> Accepts:
    """Return a check that declines operands and results of other ranks, by slot, and runs the checks ``others``."""

    def decline(at: Instance) -> Decline | None:
        for slot, rank in ranks.items():
            tensor = at.op.tensor(slot)
            if tensor is not None and tensor.has_rank and tensor.rank != rank:
                return Decline(
                    f"tensor {tensor.name!r} of shape {list(tensor.shape)} has rank {tensor.rank}, expected {rank}"
                )
        return next(filter(None, (other(at) for other in others)), None)

    return decline


def check_element_count(slot: int, count: int, *others: Accepts) -> Accepts:
    """Return a check that declines an operand with another number of elements, and runs the checks ``others``."""

    def decline(at: Instance) -> Decline | None:
        tensor = at.op[slot]
        if tensor.is_static and prod(tensor.shape) != count:
            return Decline(f"operand {tensor.name!r} has shape {list(tensor.shape)}, expected {count} elements")
        return next(filter(None, (other(at) for other in others)), None)

    return decline


def requires_constant(slot: int, what: str) -> Accepts:
    """Return a check that declines a runtime operand if the built-in operator has an option instead."""

    def decline(at: Instance) -> Decline | None:
        if constant_axis(at.op, slot) is not None:
            return None
        return Decline(
            f"{what} ({at.op[slot].name!r}) is not a constant scalar, which ONNX requires",
            f"make the {what} a constant of the model",
        )

    return decline


def as_int32(steps: Rewriter, tensor: Tensor) -> Tensor:
    """Return int32 positions or sizes for a built-in operator; int64 is cast."""
    from op_handlers.math.cast import cast

    if tensor.dtype == "int32":
        return tensor
    if tensor.is_constant:
        return steps.constant(tensor.array.astype(np.int32))
    return steps.call(cast, [tensor], "int32", tensor.dims)
