"""Planted bugs in branches: the branch that runs, and its effects on states."""

from __future__ import annotations

from typing import Any

from tests.qa.mutations.planting import Mutation


def swap_branches(emit: Any, condition: Any, **attributes: Any) -> Any:
    """Swap the branches."""
    then_branch, else_branch = attributes["then_branch"], attributes["else_branch"]
    return emit(condition, **{**attributes, "then_branch": else_branch, "else_branch": then_branch})


MUTATIONS = (
    Mutation("branches are swapped", "IF", ("IF-float32,_identity_or_sum",), emits={"If": swap_branches}),
    Mutation(
        "states that branches change are ignored",
        "IF",
        ("IF-variable_assigned_in_one_branch",),
        sees={"states": lambda _ctx, *_subgraphs: []},
    ),
    Mutation(
        "every index selects the first branch",
        "STABLEHLO_CASE",
        ("STABLEHLO_CASE-float32,_three_branches",),
        emits={"Equal": lambda emit, index, _k: emit(index, index)},
    ),
)
