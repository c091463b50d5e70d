"""Rewriting of TensorFlow's select operators (Flex) to built-in operators.

The module also contains their common checks. Each select operator has its own handler, so that a pack can replace it.
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
"""Dtypes of arithmetic for which ONNX Runtime has kernels."""
ANY = f"{REAL} bool int8 uint8 int16 uint16 uint32 uint64"
"""Dtypes of data movement operators."""
INDICES = "int32 int64"
"""Dtypes of indices, axes and sizes."""
INDEXED_TYPES = tuple(f"{dtype}, {INDICES} -> {dtype}" for dtype in ANY.split())
"""Signatures with an operand of any dtype, and indices, axes or sizes."""

HandlerDecorator = Callable[[Callable[..., Any]], Handler]
"""A decorator of lowerings."""
Accepts = Callable[[Instance], Decline | None]
OptionsFunction = Callable[[NodeDef, Operator], Mapping[str, Any]]
RewriteFunction = Callable[[Rewriter, NodeDef], Sequence[Replacement]]


def make_kernel(function: Callable[..., Any]) -> Kernel:
    """Return a kernel that depends only on its operands."""

    def kernel(op: Operator, *operands: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(function(*operands))

    return kernel


def uniform_types(dtypes: str, operands: int = 1, result: str = "T") -> tuple[str, ...]:
    """Return one signature per dtype, for operands of equal dtype.

    ``result``: dtype of the result, by default the dtype of the operands.
    """
    return tuple(f"{', '.join([dtype] * operands)} -> {dtype if result == 'T' else result}" for dtype in dtypes.split())


class _ReplacementInstance(NamedTuple):
    """Instance of a replacement operator, for callable declarations (``layout``)."""

    op: Operator
    target: Target
    opset: int


def rewrite_to(
    name: str,
    base: Handler,
    kernel: Kernel,
    *,
    operands: int | None = 1,
    options: OptionsFunction | Mapping[str, Any] | None = None,
    rewrite: RewriteFunction | None = None,
    types: str | Sequence[str] = "",
    accepts: Accepts | None = None,
    moves: bool = False,
    dynamic_batch_values: Mapping[int | str, int] | None = None,
) -> Handler:
    """Return a handler that rewrites a TensorFlow operator to a built-in operator.

    ``options``: options of the built-in operator. ``rewrite``: returns all replacement operators; used instead of
    ``options``. ``operands``: number of operands, None for any. ``moves``: the operator only moves elements.
    ``dynamic_batch_values``: as for ``@handler``.
    """

    def rewrite_operator(instance: Instance) -> Sequence[Replacement]:
        node = node_of(instance.op)
        if rewrite is not None:
            return rewrite(Rewriter(instance), node)
        builtin_options = options(node, instance.op) if callable(options) else options or {}
        return Rewriter(instance).finish(base, instance.op.inputs, **builtin_options)

    def lower(ctx: Any, *inputs: Any) -> Any:
        raise AssertionError(f"{name} is rewritten before it is lowered")

    def layout(instance: Instance) -> Any:
        last_replacement = rewrite_operator(instance)[-1]
        base_layout = last_replacement.handler.layout
        return (
            base_layout(_ReplacementInstance(last_replacement.op, instance.target, instance.opset))
            if callable(base_layout)
            else base_layout
        )

    lower.__name__, lower.__doc__ = name, f"Equivalent to {base.code}."
    return handler(
        PREFIX + name,
        max_version=1,
        layout=layout if callable(base.layout) else base.layout,
        quantization=Raw() if moves else NotQuantizable(),
        types=types if isinstance(types, str) else tuple(types),
        accepts=acceptance_check(operands, moves, accepts),
        rewrite=rewrite_operator,
        kernel=kernel,
        dynamic_batch_values=dynamic_batch_values or {},
    )(lower)


def acceptance_check(operands: int | None, moves: bool = False, accepts: Accepts | None = None) -> Accepts:
    """Return a check of the NodeDef, the number of operands, and quantization.

    ``operands``: the number of operands, None for any. ``moves``: the operator only moves elements, so its tensors may be
    quantized. ``accepts``: an additional check.
    """

    def check(instance: Instance) -> Decline | None:
        op, name = instance.op, node_of(instance.op).op
        present = [tensor for tensor in op.inputs if tensor is not None]
        if len(present) != len(op.inputs) or (operands is not None and len(present) != operands):
            expected = len(op.inputs) if operands is None else operands
            noun = "operand" if expected == 1 else "operands"
            return Decline(
                f"TensorFlow's {name} takes {expected} {noun}, found {len(present)}. The file is damaged; export the model again"
            )
        quantized = next((t for t in (*present, *op.outputs) if t is not None and t.quantization is not None), None)
        if quantized is not None and not moves:
            return Decline(
                f"tensor {quantized.name!r} is quantized, but TensorFlow's {name} would compute with the quantized values",
                "keep the operator in floating point",
            )
        return accepts(instance) if accepts is not None else None

    return check


def permute_sizes(dims: Sequence[int | None], perm: Sequence[int]) -> Dims:
    """Return the sizes of a transposed tensor."""
    return tuple(dims[axis] for axis in perm)


def constant_scalar(op: Operator, slot: int) -> int | None:
    """Return the scalar in a constant operand, else None."""
    array = op.constant(slot)
    return int(array.reshape(-1)[0]) if array is not None and array.size == 1 else None


def rank_check(ranks: Mapping[int, int], *checks: Accepts) -> Accepts:
    """Return a check of ranks by slot, followed by ``checks``."""

    def decline(instance: Instance) -> Decline | None:
        for slot, rank in ranks.items():
            tensor = instance.op.tensor(slot)
            if tensor is not None and tensor.has_rank and tensor.rank != rank:
                return Decline(
                    f"tensor {tensor.name!r} of shape {list(tensor.shape)} has rank {tensor.rank}, expected {rank}"
                )
        return next(filter(None, (check(instance) for check in checks)), None)

    return decline


def element_count_check(*checks: Accepts, slot: int, count: int) -> Accepts:
    """Return a check that an operand has ``count`` elements, followed by ``checks``."""

    def decline(instance: Instance) -> Decline | None:
        tensor = instance.op[slot]
        if tensor.is_static and prod(tensor.shape) != count:
            return Decline(f"operand {tensor.name!r} has shape {list(tensor.shape)}, expected {count} elements")
        return next(filter(None, (check(instance) for check in checks)), None)

    return decline


def constant_scalar_check(slot: int, operand_name: str) -> Accepts:
    """Return a check that an operand is a constant scalar.

    The built-in operator has an option instead of this operand. ``operand_name``: its name in messages.
    """

    def decline(instance: Instance) -> Decline | None:
        if constant_scalar(instance.op, slot) is not None:
            return None
        return Decline(
            f"{operand_name} ({instance.op[slot].name!r}) is not a constant scalar, which ONNX requires",
            f"make the {operand_name} a constant of the model",
        )

    return decline


def rewrite_with_int32(base: Handler, *slots: int) -> RewriteFunction:
    """Return a rewrite to a built-in operator that reads the operands in ``slots`` as int32."""

    def rewrite(rewriter: Rewriter, node: NodeDef) -> Sequence[Replacement]:
        operands = [
            as_int32(rewriter, tensor) if slot in slots and tensor is not None else tensor
            for slot, tensor in enumerate(rewriter.op.inputs)
        ]
        return rewriter.finish(base, operands)

    return rewrite


def as_int32(rewriter: Rewriter, tensor: Tensor) -> Tensor:
    """Return the tensor, cast to int32 if it has another dtype."""
    from op_handlers.math.cast import cast

    if tensor.dtype == "int32":
        return tensor
    if tensor.is_constant:
        return rewriter.constant(tensor.array.astype(np.int32))
    return rewriter.call(cast, [tensor], "int32", tensor.dims)
