"""Operators that scatter, sort, reverse, look up and suppress: what goes wrong with them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from .planting import Mutation, left_out, returning, returning_zero, the_files_axis, with_attributes

TENSOR = "op_handlers.tensor"
TABLES = "op_handlers.state.tables"
DETECTION = "op_handlers.image.detection"

OVERWRITING = {"ScatterElements": with_attributes(reduction=None)}
ADDING = {"ScatterElements": with_attributes(reduction="add")}
INFINITE = {f"{TENSOR}.segments:limits": returning(SimpleNamespace(min=-np.inf, max=np.inf))}


def _unclamped(_original: Any) -> Any:
    return lambda ctx, starts, axis, size, length: (int(starts[axis]), int(starts[axis]) + length)


def _second(_true: Any, _condition: Any, first: Any, _second: Any) -> Any:
    return first


def _third(_true: Any, _condition: Any, _first: Any, second: Any) -> Any:
    return second


def _swapped(true: Any, condition: Any, first: Any, second: Any) -> Any:
    return true(condition, second, first)


def _axes_swapped(true: Any, x: Any, lengths: Any, *, time_axis: int, batch_axis: int) -> Any:
    return true(x, lengths, time_axis=batch_axis, batch_axis=time_axis)


def _zero_point(ctx: Any, number: float, slot: int = 0) -> Any:
    return np.asarray(ctx.op[slot].quantization.zero_point[0], ctx.op[slot].dtype)


def _every_import(ctx: Any, *_operands: Any) -> Any:
    from op_handlers.state.tables import table_states

    for slot, state in enumerate(table_states(ctx), 1):
        state.initial = ctx.constant(slot)
    return ()


def _with_repeats(_original: Any) -> Any:
    from op_handlers.state.tables import table_states

    return lambda ctx: tuple(list(state.initial) for state in table_states(ctx))


def _last_stays(original: Any) -> Any:
    def backwards(array: Any) -> Any:
        return original(array)[::-1]

    return backwards


def _default_of_zero(original: Any) -> Any:
    return lambda ctx, x, keys, values, default: original(ctx, x, keys, values, "" if isinstance(default, str) else 0)


def _at(_original: Any) -> Any:
    return np.float32


def _hard(original: Any) -> Any:
    return lambda ctx, *operands: original(ctx, *operands[:-1], np.float32(0))


def _by_best_class(original: Any) -> Any:
    return lambda op: {**original(op), "use_regular_nms": False}


def _inverse(original: Any) -> Any:
    def gathered(ctx: Any, x: Any, perm: Any) -> Any:
        _, back = ctx.ops.TopK(perm, [ctx.op[0].rank], largest=0, outputs=2)
        return original(ctx, x, back)

    return gathered


MUTATIONS = (
    Mutation(
        "a start that reaches out stays",
        "DYNAMIC_UPDATE_SLICE",
        ("DYNAMIC_UPDATE_SLICE-behind_the_end",),
        patches={f"{TENSOR}.slicing:update_bounds": _unclamped},
    ),
    Mutation(
        "starts stay in the file's order",
        "DYNAMIC_UPDATE_SLICE",
        ("DYNAMIC_UPDATE_SLICE-every_axis_between_convolutions",),
        fields={"indexed_by_axis": {}},
    ),
    Mutation(
        "the axis is the file's",
        "TOPK_V2",
        ("TOPK_V2-float32_of_channels_between_convolutions",),
        sees={"axis": the_files_axis},
    ),
    Mutation("the smallest", "TOPK_V2", ("TOPK_V2-k_of_rank_1",), emits={"TopK": with_attributes(largest=0)}),
    Mutation("repeats overwrite", "SCATTER_ND", ("SCATTER_ND-one_place_only",), emits=OVERWRITING),
    Mutation(
        "axes stay in the file's order",
        "REVERSE_V2",
        ("REVERSE_V2-axes_[1]_between_convolutions",),
        fields={"holds_axes": ()},
    ),
    Mutation(
        "a size of 1 stays",
        "BROADCAST_ARGS",
        ("BROADCAST_ARGS-int32_[2,_1,_3]_and_[1,_5,_3]",),
        emits={"Where": _swapped},
    ),
    Mutation(
        "time and batch change places",
        "REVERSE_SEQUENCE",
        ("REVERSE_SEQUENCE-uint8",),
        emits={"ReverseSequence": _axes_swapped},
    ),
    Mutation("repeats overwrite", "SEGMENT_SUM", ("SEGMENT_SUM-one_segment",), emits=OVERWRITING),
    *(
        Mutation(
            "a negative segment counts from the end",
            code,
            (f"{code}-float32,_running_ids,_some_negative",),
            emits={"Where": _third},
        )
        for code in ("UNSORTED_SEGMENT_SUM", "UNSORTED_SEGMENT_PROD")
    ),
    *(
        Mutation("an empty segment is infinite", code, (f"{code}-all_negative",), patches=INFINITE)
        for code in ("UNSORTED_SEGMENT_MAX", "UNSORTED_SEGMENT_MIN")
    ),
    Mutation("repeats add up", "SPARSE_TO_DENSE", ("SPARSE_TO_DENSE-places_in_1_axes",), emits=ADDING),
    Mutation("sorted", "UNIQUE", ("UNIQUE-numbers_beyond_32_bits",), emits={"Unique": with_attributes(sorted=1)}),
    Mutation("the zero point elsewhere", "MATRIX_DIAG", ("MATRIX_DIAG-int8_[2,_3,_5]",), sees={"scalar": _zero_point}),
    Mutation(
        "the diagonal runs from the other corner",
        "MATRIX_SET_DIAG",
        ("MATRIX_SET_DIAG-float32_[3,_2,_7,_5]",),
        patches={f"{TENSOR}.diagonals:diagonal_mask": lambda original: lambda ctx, dims: original(ctx, dims)[:, ::-1]},
    ),
    Mutation(
        "never divided",
        "EMBEDDING_LOOKUP_SPARSE",
        ("EMBEDDING_LOOKUP_SPARSE-MEAN_of_rows_of_two_axes",),
        options={"combiner": "SUM"},
    ),
    Mutation("a miss is the first row", "HASHTABLE_LOOKUP", ("HASHTABLE_LOOKUP-a_vector",), emits={"Where": _second}),
    Mutation(
        "one table for all",
        "HASHTABLE",
        ("HASHTABLE-string_keys,_two_tables",),
        patches={f"{TABLES}:table_key": returning("table")},
    ),
    Mutation(
        "the second import counts",
        "HASHTABLE_IMPORT",
        ("HASHTABLE_IMPORT-string_keys,_the_second_is_ignored",),
        fields={"lower": _every_import},
    ),
    Mutation(
        "the last of equal keys stays",
        "HASHTABLE_IMPORT",
        ("HASHTABLE_IMPORT-int64_keys,_repeated",),
        patches={f"{TABLES}:to_attribute": _last_stays},
    ),
    Mutation(
        "repeats count",
        "HASHTABLE_SIZE",
        ("HASHTABLE_SIZE-int64_keys,_repeated",),
        patches={f"{TABLES}:contents": _with_repeats},
    ),
    Mutation(
        "a miss is 0 or empty",
        "HASHTABLE_FIND",
        ("HASHTABLE_FIND-string_keys,_filled_once", "HASHTABLE_FIND-int64_keys,_filled_once"),
        patches={f"{TABLES}:emit_label_encoder": _default_of_zero},
    ),
    Mutation(
        "an overlap at the threshold stays",
        "NON_MAX_SUPPRESSION_V4",
        ("NON_MAX_SUPPRESSION_V4-an_overlap_at_the_threshold",),
        patches={f"{DETECTION}:float32_below": _at},
    ),
    Mutation(
        "scores stay as they are",
        "NON_MAX_SUPPRESSION_V5",
        ("NON_MAX_SUPPRESSION_V5-every_box,_softened",),
        patches={f"{DETECTION}:emit_loop": _hard},
    ),
    Mutation(
        "classes suppress each other",
        "CUSTOM.TFLite_Detection_PostProcess",
        ("CUSTOM.TFLite_Detection_PostProcess-by_class",),
        patches={"op_handlers.custom.detection:settings": _by_best_class},
    ),
    Mutation(
        "the inverse perm at run time",
        "TRANSPOSE",
        ("TRANSPOSE-perm_[2,_0,_1]_known_as_it_runs",),
        patches={f"{TENSOR}.shape:emit_runtime_transpose": _inverse},
    ),
    Mutation(
        "integers are padded with 0 at run time",
        "SPACE_TO_BATCH_ND",
        ("SPACE_TO_BATCH_ND-uint8,_rows_known_as_it_runs",),
        patches={f"{TENSOR}.blocks:padding_value": returning_zero},
    ),
    Mutation(
        "rows below the diagonal have a number of their own",
        "MATRIX_SET_DIAG",
        ("MATRIX_SET_DIAG-an_unknown_height",),
        emits={"Min": left_out},
    ),
)
