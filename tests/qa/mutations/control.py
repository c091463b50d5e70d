"""Planted bugs in branches: which one runs, and its effects on states."""

from __future__ import annotations

from typing import Any

from tests.qa.mutations.planting import Mutation


def turn(true: Any, condition: Any, **attributes: Any) -> Any:
    """Swap the branches."""
    taken, other = attributes["then_branch"], attributes["else_branch"]
    return true(condition, **{**attributes, "then_branch": other, "else_branch": taken})


MUTATIONS = (
    Mutation("the other branch", "IF", ("IF-float32,_identity_or_sum",), emits={"If": turn}),
    Mutation(
        "states that no branch changes",
        "IF",
        ("IF-variable_assigned_in_one_branch",),
        sees={"states": lambda _ctx, *_subgraphs: []},
    ),
    Mutation(
        "every index is the first branch's",
        "STABLEHLO_CASE",
        ("STABLEHLO_CASE-float32,_three_branches",),
        emits={"Equal": lambda true, index, _k: true(index, index)},
    ),
)
