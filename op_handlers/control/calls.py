"""Calls of other subgraphs."""

from __future__ import annotations

from onnx_tflite_plugin.api import Context, Effects, Raw, Terminate, handler


@handler(
    "CALL_ONCE",
    max_version=1,
    layout=Terminate(),
    quantization=Raw(),
    subgraphs=("init_subgraph_index",),
    effects=Effects(),
)
def call_once(ctx: Context) -> tuple[()]:
    """Assign the initial values of states."""
    ctx.initialize(ctx.options.init_subgraph_index)
    return ()
