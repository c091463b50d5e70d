"""Planted bugs in operators that scatter, sort, reverse, look up and suppress."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.qa.mutations.planting import Mutation, file_axis, leave_out, with_attributes

OVERWRITING = {"ScatterElements": with_attributes(reduction=None)}
ADDING = {"ScatterElements": with_attributes(reduction="add")}


def _first_branch(_emit: Any, _condition: Any, first: Any, _second: Any) -> Any:
    return first


def _second_branch(_emit: Any, _condition: Any, _first: Any, second: Any) -> Any:
    return second


def _swap_values(emit: Any, condition: Any, first: Any, second: Any) -> Any:
    return emit(condition, second, first)


def _swap_axes(emit: Any, x: Any, lengths: Any, *, time_axis: int, batch_axis: int) -> Any:
    return emit(x, lengths, time_axis=batch_axis, batch_axis=time_axis)


def _zero_point(ctx: Any, number: float, slot: int = 0) -> Any:
    return np.asarray(ctx.op[slot].quantization.zero_point[0], ctx.op[slot].dtype)


def _import_always(ctx: Any, *_operands: Any) -> Any:
    from op_handlers.state.tables import table_states

    for slot, state in enumerate(table_states(ctx), 1):
        state.initial = ctx.constant(slot)
    return ()


MUTATIONS = (
    Mutation(
        "starts are not permuted to the layout",
        "DYNAMIC_UPDATE_SLICE",
        ("DYNAMIC_UPDATE_SLICE-every_axis_between_convolutions",),
        fields={"indexed_by_axis": {}},
    ),
    Mutation(
        "the axis is not mapped to the layout",
        "TOPK_V2",
        ("TOPK_V2-float32_along_channels_between_convolutions",),
        sees={"axis": file_axis},
    ),
    Mutation("the smallest elements", "TOPK_V2", ("TOPK_V2-k_of_rank_1",), emits={"TopK": with_attributes(largest=0)}),
    Mutation("repeated indices overwrite", "SCATTER_ND", ("SCATTER_ND-equal_indices",), emits=OVERWRITING),
    Mutation(
        "axes are not mapped to the layout",
        "REVERSE_V2",
        ("REVERSE_V2-axes_[1]_between_convolutions",),
        fields={"axis_number_slots": ()},
    ),
    Mutation(
        "a size of 1 is not broadcast",
        "BROADCAST_ARGS",
        ("BROADCAST_ARGS-int32_[2,_1,_3]_and_[1,_5,_3]",),
        emits={"Where": _swap_values},
    ),
    Mutation(
        "time and batch are swapped",
        "REVERSE_SEQUENCE",
        ("REVERSE_SEQUENCE-uint8",),
        emits={"ReverseSequence": _swap_axes},
    ),
    Mutation("repeated indices overwrite", "SEGMENT_SUM", ("SEGMENT_SUM-one_segment",), emits=OVERWRITING),
    *(
        Mutation(
            "a negative segment counts from the end",
            code,
            (f"{code}-float32,_runtime_ids,_some_negative",),
            emits={"Where": _second_branch},
        )
        for code in ("UNSORTED_SEGMENT_SUM", "UNSORTED_SEGMENT_PROD")
    ),
    Mutation("repeated indices add up", "SPARSE_TO_DENSE", ("SPARSE_TO_DENSE-indices_of_1_axes",), emits=ADDING),
    Mutation(
        "values are sorted", "UNIQUE", ("UNIQUE-values_beyond_32_bits",), emits={"Unique": with_attributes(sorted=1)}
    ),
    Mutation(
        "other elements are the zero point",
        "MATRIX_DIAG",
        ("MATRIX_DIAG-int8_[2,_3,_5]",),
        sees={"scalar": _zero_point},
    ),
    Mutation(
        "the sum is not divided",
        "EMBEDDING_LOOKUP_SPARSE",
        ("EMBEDDING_LOOKUP_SPARSE-MEAN_of_rows_of_two_axes",),
        options={"combiner": "SUM"},
    ),
    Mutation(
        "a missing key returns the first row",
        "HASHTABLE_LOOKUP",
        ("HASHTABLE_LOOKUP-vector",),
        emits={"Where": _first_branch},
    ),
    Mutation(
        "the second import replaces the first",
        "HASHTABLE_IMPORT",
        ("HASHTABLE_IMPORT-string_keys,_second_initializer_is_ignored",),
        fields={"lower": _import_always},
    ),
    Mutation(
        "rows below the diagonal get an element of the diagonal",
        "MATRIX_SET_DIAG",
        ("MATRIX_SET_DIAG-dynamic_height",),
        emits={"Min": leave_out},
    ),
)
