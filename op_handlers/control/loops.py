"""Loops: subgraphs become inner graphs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnx_tflite_plugin.api import Context, Effects, Raw, Terminate, Value, handler


@handler(
    "WHILE",
    max_version=1,
    layout=Terminate(),
    quantization=Raw(),
    subgraphs=("cond_subgraph_index", "body_subgraph_index"),
    effects=Effects(),
)
def while_loop(ctx: Context, *inputs: Value) -> list[Value]:
    """Loop. The condition is asked before the first step and after each; what the body hands on unchanged is captured."""
    cond, body = ctx.options.cond_subgraph_index, ctx.options.body_subgraph_index
    before, after = ctx.subgraph_inputs(body), ctx.subgraph_outputs(body)
    carried = [k for k in range(len(inputs)) if after[k] is not before[k]]
    states = ctx.states(cond, body)

    def variables(values: Sequence[Value]) -> list[Value]:
        """All operands of a step: those carried, the rest from outside."""
        by_slot = dict(zip(carried, values, strict=True))
        return [by_slot.get(k, value) for k, value in enumerate(inputs)]

    def condition(values: list[Value]) -> Value:
        return ctx.ops.Reshape(ctx.inline(cond, values)[0], np.zeros(0, np.int64))

    def step(_count: Value, _go_on: Value, *values: Value) -> list[Value]:
        n = len(carried)
        for state, value in zip(states, values[n:], strict=True):
            state.set(value)
        results = ctx.inline(body, variables(values[:n]))
        return [condition(results), *(results[k] for k in carried), *(state.get() for state in states)]

    start = condition(list(inputs))
    initial = [*(inputs[k] for k in carried), *(state.get() for state in states)]
    types = [
        ("step", "int64", ()),
        ("go_on", "bool", ()),
        *((f"loop:{before[k].name}", before[k].dtype, None) for k in carried),
        *((f"loop:{state.name}", state.dtype, None) for state in states),
    ]
    inner = ctx.graph(step, types)
    results = ctx.ops.Loop(None, start, *initial, body=inner, outputs=len(initial)) if initial else ()
    for state, value in zip(states, results[len(carried) :], strict=True):
        state.set(value)
    return variables(results[: len(carried)])
