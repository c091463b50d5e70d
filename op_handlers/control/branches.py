"""Conditional subgraphs, lowered to If.

A state that a branch changes becomes an output of the If.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnx_tflite_plugin.api import (
    Context,
    Decline,
    Effects,
    Instance,
    Quantization,
    Raw,
    Refusal,
    SubgraphBoundary,
    Terminate,
    Value,
    handler,
)


@handler(
    "IF",
    max_version=1,
    layout=Terminate(),
    boundary=SubgraphBoundary(first_slot=1),
    quantization=Raw(),
    subgraphs=("then_subgraph_index", "else_subgraph_index"),
    effects=Effects(),
)
def if_else(ctx: Context, condition: Value, *inputs: Value) -> tuple[Value, ...]:
    """Emit If, whose branches capture the operands."""
    options = ctx.options
    return emit_branches(ctx, [condition], (options.then_subgraph_index, options.else_subgraph_index), inputs)


def check_branches(at: Instance) -> Decline | None:
    branches = at.op.options.get("branch_subgraph_indices")
    return None if branches else Decline("the operator has no branches, which LiteRT refuses")


@handler(
    "STABLEHLO_CASE",
    max_version=1,
    layout=Terminate(),
    boundary=SubgraphBoundary(first_slot=1),
    quantization=Raw(),
    subgraphs=("branch_subgraph_indices",),
    effects=Effects(),
    types="int32",
    accepts=check_branches,
)
def stablehlo_case(ctx: Context, index: Value, *inputs: Value) -> tuple[Value, ...]:
    """Emit nested Ifs that compare the index with the number of each branch.

    The last branch also runs if the index is out of range.
    """
    branches = ctx.options.branch_subgraph_indices
    for branch in branches:
        check_parameters(ctx, branch)
    return emit_branches(ctx, [ctx.ops.Equal(index, ctx.scalar(k)) for k in range(len(branches) - 1)], branches, inputs)


def check_parameters(ctx: Context, branch: int) -> None:
    """Raise Refusal if quantization parameters differ inside and outside a branch.

    The kernel ignores parameters inside the branch (Prepare, stablehlo_case.cc).
    """
    outer_tensors = [*(ctx.op.inputs[1:]), *ctx.op.outputs]
    graph = ctx.subgraph(branch)
    inner_tensors = [*graph.inputs, *graph.outputs]
    for outer, inner in zip(outer_tensors, inner_tensors, strict=True):
        outer_parameters, inner_parameters = (
            t.quantization if t and isinstance(t.quantization, Quantization) else None for t in (outer, inner)
        )
        if outer_parameters != inner_parameters:
            raise Refusal(
                f"{inner.name!r} has different quantization parameters inside and outside the branch; LiteRT ignores those inside"
            )


def emit_branches(
    ctx: Context, conditions: Sequence[Value], branches: Sequence[int], inputs: Sequence[Value]
) -> tuple[Value, ...]:
    """Emit nested Ifs that run the first branch whose condition is true, or the last."""
    if any(tensor is not None and tensor.dtype == "resource" for tensor in ctx.op.outputs):
        raise Refusal(
            "a branch returns a resource, so the resource would be a runtime value; ONNX requires a constant resource"
        )
    states = ctx.states(*branches)
    initial_values = [state.get() for state in states]

    def emit_branch(branch: int) -> list[Value]:
        for state, value in zip(states, initial_values, strict=True):
            state.set(value)
        return [*ctx.inline(branch, inputs), *(state.get() for state in states)]

    def emit_from(k: int) -> list[Value]:
        if k == len(conditions) or count == 0:
            return emit_branch(branches[k])
        return list(
            ctx.ops.If(
                ctx.ops.Reshape(conditions[k], np.zeros(0, np.int64)),
                then_branch=ctx.graph(lambda: emit_branch(branches[k])),
                else_branch=ctx.graph(lambda: emit_from(k + 1)),
                outputs=count,
            )
        )

    count = len(ctx.op.outputs) + len(states)
    results_and_states = emit_from(0)
    for state, value in zip(states, results_and_states[len(ctx.op.outputs) :], strict=True):
        state.set(value)
    return tuple(results_and_states[: len(ctx.op.outputs)])
