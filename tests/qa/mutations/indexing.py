"""Planted bugs in operators that scatter, sort, reverse, look up and suppress."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.qa.mutations.planting import Mutation, file_axis, leave_out, with_attributes

OVERWRITING = {"ScatterElements": with_attributes(reduction=None)}
ADDING = {"ScatterElements": with_attributes(reduction="add")}


def _second(_true: Any, _condition: Any, first: Any, _second: Any) -> Any:
    return first


def _third(_true: Any, _condition: Any, _first: Any, second: Any) -> Any:
    return second


def _swap(true: Any, condition: Any, first: Any, second: Any) -> Any:
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


MUTATIONS = (
    Mutation(
        "starts stay in the file's order",
        "DYNAMIC_UPDATE_SLICE",
        ("DYNAMIC_UPDATE_SLICE-every_axis_between_convolutions",),
        fields={"indexed_by_axis": {}},
    ),
    Mutation(
        "the axis is the file's",
        "TOPK_V2",
        ("TOPK_V2-float32_along_channels_between_convolutions",),
        sees={"axis": file_axis},
    ),
    Mutation("the smallest", "TOPK_V2", ("TOPK_V2-k_of_rank_1",), emits={"TopK": with_attributes(largest=0)}),
    Mutation("repeats overwrite", "SCATTER_ND", ("SCATTER_ND-equal_indices",), emits=OVERWRITING),
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
        emits={"Where": _swap},
    ),
    Mutation(
        "time and batch are swapped",
        "REVERSE_SEQUENCE",
        ("REVERSE_SEQUENCE-uint8",),
        emits={"ReverseSequence": _axes_swapped},
    ),
    Mutation("repeats overwrite", "SEGMENT_SUM", ("SEGMENT_SUM-one_segment",), emits=OVERWRITING),
    *(
        Mutation(
            "a negative segment counts from the end",
            code,
            (f"{code}-float32,_runtime_ids,_some_negative",),
            emits={"Where": _third},
        )
        for code in ("UNSORTED_SEGMENT_SUM", "UNSORTED_SEGMENT_PROD")
    ),
    Mutation("repeats add up", "SPARSE_TO_DENSE", ("SPARSE_TO_DENSE-indices_of_1_axes",), emits=ADDING),
    Mutation("sorted", "UNIQUE", ("UNIQUE-values_beyond_32_bits",), emits={"Unique": with_attributes(sorted=1)}),
    Mutation("the zero point elsewhere", "MATRIX_DIAG", ("MATRIX_DIAG-int8_[2,_3,_5]",), sees={"scalar": _zero_point}),
    Mutation(
        "never divided",
        "EMBEDDING_LOOKUP_SPARSE",
        ("EMBEDDING_LOOKUP_SPARSE-MEAN_of_rows_of_two_axes",),
        options={"combiner": "SUM"},
    ),
    Mutation("a miss is the first row", "HASHTABLE_LOOKUP", ("HASHTABLE_LOOKUP-vector",), emits={"Where": _second}),
    Mutation(
        "the second import counts",
        "HASHTABLE_IMPORT",
        ("HASHTABLE_IMPORT-string_keys,_second_initializer_is_ignored",),
        fields={"lower": _every_import},
    ),
    Mutation(
        "rows below the diagonal have a number of their own",
        "MATRIX_SET_DIAG",
        ("MATRIX_SET_DIAG-dynamic_height",),
        emits={"Min": leave_out},
    ),
)
