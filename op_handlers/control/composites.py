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
    inlined_subgraph=DECOMPOSITION,
    effects=Effects(),
)
def composite(ctx: Context, *inputs: Value | None) -> list[Value]:
    """Inline the decomposition.

    A handler for ``COMPOSITE.<name>`` takes precedence.
    """
    parameters = ctx.subgraph(ctx.options[DECOMPOSITION]).inputs
    same_shape = [
        tensor is not None and tensor.dims == parameter.dims
        for tensor, parameter in zip(ctx.op.inputs, parameters, strict=True)
    ]
    values = [x if x is None or is_same else ctx.ops.Identity(x) for x, is_same in zip(inputs, same_shape, strict=True)]
    return ctx.inline(ctx.options[DECOMPOSITION], values)
