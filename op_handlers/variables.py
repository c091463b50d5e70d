"""Resource variables: a handle is a name known at conversion time, reading and assigning move a state along."""

from __future__ import annotations

from typing import Any

from onnx_tflite_plugin.api import Context, Effects, Raw, Terminate, handler, out


@handler("VAR_HANDLE", max_version=1, layout=Terminate(), quantization=Raw())
def var_handle(ctx: Context) -> Any:
    """The token ``container/shared_name``; all subgraphs share it."""
    o = ctx.options
    return ctx.make_resource("/".join(part for part in (o.container, o.shared_name) if part))


@handler("READ_VARIABLE", max_version=1, layout=Terminate(), quantization=Raw(), effects=Effects(reads=(0,)))
def read_variable(ctx: Context, _resource: Any) -> Any:
    """The state's current value."""
    state = ctx.state(ctx.resource(0))
    state.declare(ctx.op[out(0)].dtype, ctx.op[out(0)].dims)
    return state.get()


@handler("ASSIGN_VARIABLE", max_version=1, layout=Terminate(), quantization=Raw(), effects=Effects(writes=(0,)))
def assign_variable(ctx: Context, _resource: Any, value: Any) -> Any:
    """The state's next value."""
    state = ctx.state(ctx.resource(0))
    state.declare(ctx.op[1].dtype, ctx.op[1].dims)
    state.set(value)
    return ()


@handler(
    "CALL_ONCE",
    max_version=1,
    layout=Terminate(),
    quantization=Raw(),
    subgraphs=("init_subgraph_index",),
    effects=Effects(),
)
def call_once(ctx: Context) -> Any:
    """Its assignments are the initial values of states."""
    ctx.initialize(ctx.options.init_subgraph_index)
    return ()
