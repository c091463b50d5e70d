"""Composites: named subgraphs. LiteRT runs the subgraph (stablehlo_composite.cc)."""

from __future__ import annotations

from onnx_tflite_plugin.api import Context, Effects, Raw, Terminate, Value, handler

DECOMPOSITION = "decomposition_subgraph_index"


@handler(
    "STABLEHLO_COMPOSITE",
    max_version=1,
    layout=Terminate(),
    quantization=Raw(),
    subgraphs=(DECOMPOSITION,),
    inlines=DECOMPOSITION,
    effects=Effects(),
)
def composite(ctx: Context, *inputs: Value | None) -> list[Value]:
    """Return the decomposition, regardless of the name, unless a handler claims ``COMPOSITE.<name>``."""
    inner = ctx.subgraph(ctx.options[DECOMPOSITION]).inputs
    equal = [
        outside is not None and outside.dims == own.dims for outside, own in zip(ctx.op.inputs, inner, strict=True)
    ]
    values = [x if x is None or same else ctx.ops.Identity(x) for x, same in zip(inputs, equal, strict=True)]
    return ctx.inline(ctx.options[DECOMPOSITION], values)
