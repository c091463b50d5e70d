"""Branches: which one runs, what it leaves behind."""

from __future__ import annotations

from typing import Any

from .planting import Mutation


def turned(true: Any, condition: Any, **attributes: Any) -> Any:
    """The branches change places."""
    taken, other = attributes["then_branch"], attributes["else_branch"]
    return true(condition, **{**attributes, "then_branch": other, "else_branch": taken})


LOOP = "op_handlers.kernels.counted_loops:CountedLoop"


def ending_at_once(_original: Any) -> Any:
    return lambda self: 1


MUTATIONS = (
    Mutation(
        "rows in front of what nobody has written",
        "WHILE",
        ("WHILE-counted,_the_first_rows", "WHILE-counted,_as_many_rows_as_asked_for"),
        patches={f"{LOOP}.has_row_per_step": lambda _original: lambda self, k, trips: True},
    ),
    Mutation(
        "rows from the first on wherever they are written",
        "WHILE",
        ("WHILE-counted,_the_last_row_first",),
        patches={f"{LOOP}.is_step_count": lambda _original: lambda self, tensor, after=False: True},
    ),
    Mutation(
        "an array that is also read as if it was not",
        "WHILE",
        ("WHILE-counted,_rows_that_are_read",),
        patches={f"{LOOP}._use_count": lambda original: lambda self, tensor: min(original(self, tensor), 2)},
    ),
    Mutation(
        "how often it runs from one of its counters",
        "WHILE",
        ("WHILE-counted,_a_counter_that_begins_at_1",),
        patches={
            f"{LOOP}._remaining_steps": lambda original: (
                lambda self, less: None if less is None else self._bound(less[1])
            )
        },
    ),
    Mutation(
        "results that are all copied at once",
        "WHILE",
        ("WHILE-values_that_are_overtaken", "WHILE-counted,_a_counter_that_is_handed_on"),
        patches={f"{LOOP}.overwritten_slots": lambda _original: lambda self: {}},
    ),
    Mutation(
        "a condition that is taken for a count",
        "WHILE",
        ("WHILE-counted,_until_a_sum_is_reached",),
        patches={f"{LOOP}.trip_count": ending_at_once},
    ),
    Mutation("the other branch", "IF", ("IF-float32,_as_it_is_or_added_up",), emits={"If": turned}),
    Mutation(
        "states that no branch changes",
        "IF",
        ("IF-a_variable_that_one_branch_changes",),
        sees={"states": lambda _ctx, *_subgraphs: []},
    ),
    Mutation(
        "every index is the first branch's",
        "STABLEHLO_CASE",
        ("STABLEHLO_CASE-float32,_of_three",),
        emits={"Equal": lambda true, index, _k: true(index, index)},
    ),
)
