"""Classes of models of which LiteRT computes what no conversion need compute, each decided from the file alone.

Where numbers differ, the first class that the file is of is named, and the input counts as "odd"; a difference of none is
"different", which fails a run. None looks at what was converted, or at what came out. Why each is not refused:

- beyond all measure, sums, products, powers, quotients and shifts that wrap: what a kernel computes of other numbers in the
  same file is right, and whether an input gets there is known as it runs;
- sizes that do not follow: LiteRT takes others than are stored, and so do we where they can be derived;
- longer constants, booleans in other bytes, int64 sizes: released files have them, and most kernels do not mind;
- the rest is a corner in which the runtimes' own kernels differ, or one that costs every sound file more than it is worth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from onnx_tflite_plugin.api.refusal import Refusal
from onnx_tflite_plugin.binding.bound import Bound
from onnx_tflite_plugin.diagnosis.litert import shape_contradiction
from onnx_tflite_plugin.errors import ConversionError
from onnx_tflite_plugin.normalize.changes import with_main
from onnx_tflite_plugin.normalize.derivation import Sizes
from onnx_tflite_plugin.source.dtypes import FLOATS, QUANTIZED, size_in_file
from onnx_tflite_plugin.source.model import Dims, Operator, Quantization, Subgraph, Tensor, agree
from onnx_tflite_plugin.targets import target_named

from .number_classes import (
    cast_beyond,
    divided_by_zero,
    half_products,
    multiplied_steps,
    rounded_places,
    shifted_quotients,
    shifts_beyond,
    steps_of_rounded,
    tied_scores,
    undefined_compared,
    vanishing_sums,
    vast_constants,
    vast_options,
    vast_scales,
    wrapped_powers,
    wrapped_products,
    wrapped_sums,
)
from .recurrent_classes import cells_told, gates_of_rounded, unbounded_recurrence
from .suspect import Suspect

POOLS = ("AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D")
PRODUCTS = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED")
BORDERS = {"WHILE": 0, "IF": 1, "STABLEHLO_CASE": 1}  # from which operand on they hand them to their subgraphs
BLOCKS = ("BATCH_TO_SPACE_ND", "SPACE_TO_BATCH_ND")


def named(suspect: Suspect) -> str:
    """The first class that a file is of; empty for one that is sound as far as is known."""
    return next((name for name, holds in CLASSES.items() if holds(suspect)), "")


# --- what is stored ---------------------------------------------------------------------------


def refused_without_xnnpack(suspect: Suspect) -> bool:
    """What LiteRT's kernels refuse as they prepare, and XNNPACK does not look at; as they run, variables that nobody assigns."""
    codes = {op.code for op in suspect.operators}
    return suspect.dtypes is None or ("READ_VARIABLE" in codes and "ASSIGN_VARIABLE" not in codes)


def stale_shapes(suspect: Suspect) -> bool:
    """Stored shapes other than those that LiteRT computes; in a called subgraph, others than it is called with or gives, than
    follow, or none.
    """
    shapes = suspect.told.get("shapes", {})
    main = suspect.model.subgraphs[0]
    if shape_contradiction(suspect.model, suspect.told) is not None:
        return True
    if any(not tensor.dims and tensor.has_rank and shapes.get(str(tensor.index)) for tensor in main.tensors):
        return True
    inner = [op for graph in suspect.model.subgraphs[1:] for op in graph.operators]
    if any(t is not None and 0 in t.shape for op in inner for t in op.outputs):
        return True
    if any(not agree(outer.dims, other.dims) for outer, other in _handed(suspect)):
        return True
    return any(
        _disagree(_behind(suspect, {t: t.dims for t in graph.inputs}, graph)) for graph in suspect.model.subgraphs[1:]
    )


def _disagree(sizes: Mapping[Tensor, Dims]) -> bool:
    return any(len(dims) == tensor.rank and not agree(dims, tensor.dims) for tensor, dims in sizes.items())


def _handed(suspect: Suspect) -> Iterator[tuple[Tensor, Tensor]]:
    """Operands and results of what calls subgraphs, each with the subgraph's input or output that it becomes or is."""
    for op in suspect.operators:
        if op.code in BORDERS:
            for graph in _called(suspect, op):
                given, taken = (
                    zip(op.inputs[BORDERS[op.code] :], graph.inputs, strict=False),
                    zip(op.outputs, graph.outputs, strict=False),
                )
                yield from ((outer, inner) for outer, inner in (*given, *taken) if outer is not None)


def _called(suspect: Suspect, op: Operator) -> Iterator[Subgraph]:
    """The subgraphs whose inputs and outputs are those of the operator: not the condition of a loop."""
    graphs = suspect.model.subgraphs
    for name, value in op.options.items():
        if name == "branch_subgraph_indices":
            yield from (graphs[index] for index in value)
        elif name.endswith("subgraph_index") and not name.startswith("cond"):
            yield graphs[value]


def stale_signatures(suspect: Suspect) -> bool:
    """Sizes said to be open that follow from the operands, or told that vary with what is open, or others than follow; LiteRT
    does not look at what is open. Or sizes that a subgraph tells of what is handed to it open, or stored ones of which weights
    have no whole rows.
    """
    inputs = suspect.model.main.inputs
    dense = [op for op in suspect.operators if op.code == "FULLY_CONNECTED" and not op[0].is_static]
    if any(op[1].rank == 2 and prod(op[0].shape) % max(op[1].shape[-1], 1) for op in dense):
        return True
    handed = (zip(outer.dims, inner.dims, strict=False) for outer, inner in _handed(suspect))
    if any(size is None and told is not None for sizes in handed for size, told in sizes):
        return True
    if any(op.code in ("RESHAPE", "DENSIFY") and op[0].is_static and not op[~0].is_static for op in suspect.operators):
        return True
    choices = [op for op in suspect.operators if op.code in ("SELECT", "SELECT_V2")]
    if any(op[~0].is_static and not all(t.is_static for t in op.inputs if t is not None) for op in choices):
        return True
    rows = [(op[0].dims[:1], op[1].dims[:1]) for op in suspect.operators if "SEGMENT" in op.code]
    if any((None in data) != (None in ids) for data, ids in rows):
        return True
    larger = {t: tuple(size + (d is None) for size, d in zip(t.shape, t.dims, strict=True)) for t in inputs}
    follows, behind = _behind(suspect, {tensor: tensor.dims for tensor in inputs}), _behind(suspect, larger)
    opened = {(size, None) for dims in follows.values() for size in dims if size is not None}
    paired = (zip(dims, tensor.dims, strict=True) for tensor, dims in follows.items() if len(dims) == tensor.rank)
    return _disagree(follows) or _disagree(behind) or any(opened & {*sizes} for sizes in paired)


def _behind(suspect: Suspect, given: Mapping[Tensor, Dims], graph: Subgraph | None = None) -> Mapping[Tensor, Dims]:
    """The sizes of tensors behind inputs of others, up to the operator that takes none such; of the main subgraph by default."""
    main = graph or suspect.model.main
    sizes: dict[Tensor, Dims] = {}
    follow, fail = 0, len(main.operators) + 1  # how many operators do, and do not
    while fail - follow > 1:
        count = len(main.operators) if fail > len(main.operators) else (follow + fail) // 2
        model = with_main(suspect.model, replace(main, operators=main.operators[:count]))
        try:
            sizes = Sizes(model, suspect.host, target_named("generic"), "").propagate(given)
            follow = count
        except (ConversionError, Refusal):
            fail = count
    return sizes


def stale_dtypes(suspect: Suspect) -> bool:
    """A result said to be float that is computed from integers, where the kernel writes them into floats (reduce.cc).

    Or one without elements, which nothing computes, and that the kernel gives another dtype as it is prepared.
    """
    results = [t for op in suspect.model.main.operators for t in op.outputs if t is not None and t.is_static]
    prepared = suspect.dtypes or {}
    if any(0 in t.shape and prepared.get(t.index, t.dtype) != t.dtype for t in results):
        return True
    return any(
        result is not None
        and result.dtype in FLOATS
        and any(t is not None and not t.is_constant and t.dtype in QUANTIZED and t.quantization for t in op.inputs)
        and (suspect.dtypes or {}).get(result.index, "").startswith(("float", "bfloat"))
        and not _converts(suspect, op)
        for op in suspect.model.main.operators
        for result in op.outputs[:1]
    )


def _converts(suspect: Suspect, op: Operator) -> bool:
    target = target_named("generic")
    bound = suspect.host.take(op, target, target.opsets[2])
    return not isinstance(bound, Bound) or bool(bound.handler.converts)


def longer_constants(suspect: Suspect) -> bool:
    """A constant with more bytes than its shape takes: kernels that ask for the bytes of a row get others."""
    return any(
        size is not None and size > size_in_file(tensor.dtype, tensor.shape)
        for tensor in suspect.tensors
        if tensor.is_constant and tensor.dtype != "string" and (size := _stored(tensor)) is not None
    )


def _stored(tensor: Tensor) -> int | None:
    data: Any = tensor.data
    return None if getattr(data, "_sparsity", 1) is not None else int(data._size)


def other_booleans(suspect: Suspect) -> bool:
    """Booleans in other bytes than 0 and 1, which some kernels compare, and combine bit by bit."""
    constants = [t for t in suspect.tensors if t.is_constant and t.dtype == "bool" and _stored(t) is not None]
    return any((t.data._bytes(t.array.size) > 1).any() for t in constants)  # type: ignore[union-attr]


def long_sizes(suspect: Suspect) -> bool:
    """Sizes of 64 bits that 32 do not hold, or that are drawn, which kernels cut (broadcast_args.cc)."""
    sizes = [t for op in suspect.operators if op.code == "BROADCAST_ARGS" for t in op.inputs if t is not None]
    long = [t for t in sizes if t.dtype == "int64"]
    return any(not t.is_constant or (np.abs(t.array.astype(np.float64)) >= 2**31).any() for t in long)


def sparse_as_dense(suspect: Suspect) -> bool:
    """A sparse constant that is an output, or that a kernel reads which knows none: LiteRT gives its stored numbers."""
    dense = [t for op in suspect.operators if op.code not in ("DENSIFY", "FULLY_CONNECTED") for t in op.inputs]
    return any(t and getattr(t.data, "_sparsity", None) is not None for t in (*suspect.model.main.outputs, *dense))


def inputs_written(suspect: Suspect) -> bool:
    """An input that is an output as well, handed to a cell whose kernel writes its next state there (lstm.cc)."""
    states = [t for op in suspect.operators if op.code == "LSTM" for t in op.inputs]
    return any(t in suspect.model.main.inputs and t in states for t in suspect.model.main.outputs)


def twice_given(suspect: Suspect) -> bool:
    """A graph input listed twice: of two arrays that are given the last one counts."""
    inputs = suspect.model.main.inputs
    return len({tensor.index for tensor in inputs}) < len(inputs)


# --- as it runs -------------------------------------------------------------------------------


def windows_beyond(suspect: Suspect) -> bool:
    """A pool or a convolution without padding over an image smaller than the window, its size or the result's open: no rows in LiteRT.

    ONNX Runtime makes one where the stride reaches beyond the image, and else refuses to run. Or a slice as large as that,
    or one element beyond, which LiteRT reads beyond the end.
    """
    empty = any(None in t.dims and 0 in t.shape for t in suspect.model.main.inputs)
    if any(op.code in (*POOLS, *PRODUCTS[:2]) and _window(op, empty) for op in suspect.operators):
        return True
    beyond = {"STABLEHLO_GATHER": _slice, "STRIDED_SLICE": _element}
    return any(op.code in beyond and beyond[op.code](op) for op in suspect.operators)


def _window(op: Operator, empty: bool) -> bool:
    """``empty``: whether an input is open that the file stores without elements, so that one of any size is drawn."""
    if op.options.padding != "VALID" or op[0].rank != 4:
        return False
    for k, side in enumerate(("height", "width")):
        if op.code in POOLS:
            reach = op.options[f"filter_{side}"]
        else:
            reach = 1 + (op[1].shape[1 + k] - 1) * op.options[f"dilation_{side[0]}_factor"]
        unknown = op[~0].rank != 4 or None in (op[0].dims[1 + k], op[~0].dims[1 + k])
        if unknown and (empty or op[0].shape[1 + k] < reach):
            return True
    return False


def _slice(op: Operator) -> bool:
    parts = zip(op.options.slice_sizes, op[0].dims, op[0].shape, strict=False)
    return any(size is None and part > stored for part, size, stored in parts)


def _element(op: Operator) -> bool:
    """One element of an axis, at a constant place."""
    masks, begin = op.options, op.constant(1)
    if begin is None or masks.ellipsis_mask or masks.new_axis_mask:
        return False
    axes = [k for k in range(min(op[0].rank, len(begin))) if masks.shrink_axis_mask >> k & 1 and op[0].dims[k] is None]
    return any(not -op[0].shape[k] <= begin[k] < op[0].shape[k] for k in axes)


def perms_as_it_runs(suspect: Suspect) -> bool:
    """Lengths or blocks known as it runs, or a perm that is computed: kernels read beyond the end by what is none.

    Or axes or sizes, where the result is stored with those that some of them give, as perms do of what is open.
    """
    sizes = [op for op in suspect.operators if op.code.startswith("RESIZE_") and not op[1].is_constant]
    read = {tensor for op in suspect.operators for tensor in op.inputs}
    slices = [op for op in suspect.operators if op.code in ("SLICE", "STRIDED_SLICE") and op[~0] in read]
    if any(None not in op[~0].dims for op in sizes) or any(_ends_computed(op) for op in slices):
        return True
    axes = [op for op in suspect.operators if op.code.startswith("REDUCE_") or op.code in ("MEAN", "SUM")]
    if any(_computed(op) and any(size is not None for size in op[~0].dims) for op in axes):
        return True
    lengths = [t for op in suspect.operators if op.code in ("REVERSE_SEQUENCE", *BLOCKS) for t in op.inputs[1:]]
    perms = [op for op in suspect.operators if op.code == "TRANSPOSE" and not op[1].is_constant]
    drawn = suspect.model.main.inputs
    return any(tensor is not None and not tensor.is_constant for tensor in lengths) or any(
        op[1] not in drawn or (None in op[0].dims and any(op[~0].dims)) for op in perms
    )


def _computed(op: Operator) -> bool:
    """Whether what an operator is told beside its data is known as it runs only."""
    return any(tensor is not None and not tensor.is_constant for tensor in op.inputs[1:])


def _ends_computed(op: Operator) -> bool:
    """Whether a slice is said to be of sizes that its ends, known as it runs, need not make."""
    if op.code == "SLICE":
        return not op[2].is_constant and any(size is not None for size in op[~0].dims)
    if not _computed(op):
        return False
    masks = op.options
    if masks.ellipsis_mask or masks.new_axis_mask or masks.shrink_axis_mask:
        return None not in op[~0].dims
    whole = masks.begin_mask & masks.end_mask
    return any(size is not None and not whole >> axis & 1 for axis, size in enumerate(op[~0].dims))


def asked_of_nothing(suspect: Suspect) -> bool:
    """A shape, a perm or a size known as it runs only, of a tensor without elements: what is drawn for it fits nothing. Or a result
    without elements whose other sizes are stored, though those of the inputs are open.
    """
    opened = any(None in t.dims for t in suspect.model.main.inputs)
    if opened and any(0 in t.dims and None not in t.dims for t in suspect.model.main.outputs):
        return True
    given = [t for t in suspect.model.main.inputs if t.dtype in ("int32", "int64")]
    return bool(given) and any(0 in t.shape for op in suspect.operators for t in (*op.inputs, *op.outputs) if t)


def depths_of_weights(suspect: Suspect) -> bool:
    """An input of open depth, which its weights decide: of others LiteRT makes groups, or leaves elements out of its rows."""
    return any(
        tensor is not None and tensor in suspect.model.main.inputs and tensor.dims[-1:] == (None,)
        for op in suspect.model.main.operators
        if op.code in PRODUCTS
        for tensor in op.inputs[:1]
    )


def scales_read_on(suspect: Suspect) -> bool:
    """One scale of weights under floats of which the kernel reads one for each channel (EvalHybridPerChannel, depthwise_conv.cc)."""
    return any(
        op[0].dtype == "float32"
        and op[1].dtype == "int8"
        and isinstance(op[1].quantization, Quantization)
        and len(op[1].quantization.scale) < op[1].shape[-1]
        for op in suspect.operators
        if op.code == "DEPTHWISE_CONV_2D"
    )


CLASSES: dict[str, Callable[[Suspect], bool]] = {
    "constants beyond all measure": vast_constants,
    "options beyond all measure": vast_options,
    "scales beyond all measure": vast_scales,
    "refused without XNNPACK": refused_without_xnnpack,
    "stored shapes that do not follow": stale_shapes,
    "open sizes that do not follow": stale_signatures,
    "a result's dtype that its kernel leaves": stale_dtypes,
    "constants longer than their shapes": longer_constants,
    "booleans in other bytes": other_booleans,
    "sizes beyond 32 bits": long_sizes,
    "sparse constants read as dense": sparse_as_dense,
    "inputs that LiteRT writes": inputs_written,
    "an input listed twice": twice_given,
    "divisors of zero": divided_by_zero,
    "sums that wrap": wrapped_sums,
    "floats quantized beyond 32 bits": cast_beyond,
    "products that wrap": wrapped_products,
    "powers that wrap": wrapped_powers,
    "quotients shifted by more than 31 bits": shifted_quotients,
    "shifts by more bits than there are": shifts_beyond,
    "SIGN_BIT of rounded products": steps_of_rounded,
    "gates of rounded products": gates_of_rounded,
    "cells finer than what they are made of": cells_told,
    "an LSB made several by weights": multiplied_steps,
    "a recurrence without bound": unbounded_recurrence,
    "scores that tie": tied_scores,
    "NaN that is compared": undefined_compared,
    "float16 products of many": half_products,
    "sums of many floats that cancel out": vanishing_sums,
    "places of pixels that float32 rounds": rounded_places,
    "windows beyond an image of open size": windows_beyond,
    "perms, lengths, blocks and axes known as it runs": perms_as_it_runs,
    "sizes asked of no elements": asked_of_nothing,
    "open depths that weights decide": depths_of_weights,
    "one scale read as one of each channel": scales_read_on,
}
