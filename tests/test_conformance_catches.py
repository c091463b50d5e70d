"""The cases catch what lowerings get wrong: each mistake here fails one of its operator's cases."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from conformance.cases import builtin
from conformance.runner import run_case
from onnx_tflite_plugin.api import Dequantized, Handler, Implicit, SameScale, Terminate, Transparent, out
from onnx_tflite_plugin.host import Host

MISTAKES: dict[str, tuple[str, Callable[[Handler], Handler]]] = {}


def mistake(code: str, text: str) -> Callable[[Callable[[Handler], Handler]], Callable[[Handler], Handler]]:
    def declare(change: Callable[[Handler], Handler]) -> Callable[[Handler], Handler]:
        MISTAKES[f"{code}: {text}"] = (code, change)
        return change

    return declare


def lowered(code: str, text: str, **declared: Any) -> Callable[[Callable[..., Any]], None]:
    """A mistake in the lowering: the function takes its place."""

    def declare(lower: Callable[..., Any]) -> None:
        MISTAKES[f"{code}: {text}"] = (code, lambda found: replace(found, lower=lower, **declared))

    return declare


def declared(code: str, text: str, **fields: Any) -> None:
    MISTAKES[f"{code}: {text}"] = (code, lambda found: replace(found, **fields))


# --- declarations -----------------------------------------------------------------------------

for code in ("NEG", "MAXIMUM", "MAX_POOL_2D"):
    declared(code, "real numbers instead of stored integers", quantization=Dequantized())
for code in (
    "RELU",
    "RELU6",
    "ADD",
    "CONV_2D",
    "TRANSPOSE_CONV",
    "FULLY_CONNECTED",
    "AVERAGE_POOL_2D",
    "DEPTHWISE_CONV_2D",
):
    declared(code, "the activation is left out", activation=None)
declared(
    "CONV_2D", "the weights are taken for channels-first already", layout=Implicit(onnx={0: "n c h w", 1: "o j k i"})
)
declared("CONCATENATION", "uint8 passes through whatever its scale", quantization=SameScale(unequal="refuse"))
declared("SHAPE", "the shape of the planned order", indexed_by_axis={})
declared(
    "FULLY_CONNECTED",
    "the columns of the weight stay while the input's elements move",
    axes="... , o k, o -> ... o",
    layout=Transparent(),
)


@mistake("CONV_2D", "TANH is taken for an activation the kernel applies")
def tanh(found: Handler) -> Handler:
    def lower(ctx: Any, *inputs: Any) -> Any:
        made = found.lower(ctx, *inputs)
        return ctx.ops.Tanh(made) if ctx.options.fused_activation_function == "TANH" else made

    return replace(found, lower=lower)


@mistake("ADD", "operands are swapped for the sake of a constant, and ranks aligned by ONNX")
def unaligned(found: Handler) -> Handler:
    return replace(found, axes="..., _ -> ...")


# --- lowerings --------------------------------------------------------------------------------


@lowered("SUB", "operands change places")
def sub(ctx: Any, x: Any, y: Any) -> Any:
    return ctx.ops.Sub(y, x)


@lowered("SOFTMAX", "beta multiplies the result")
def beta(ctx: Any, x: Any) -> Any:
    return ctx.ops.Mul(ctx.ops.Softmax(x, axis=ctx.axis(-1)), float(ctx.options.beta))


@lowered("SOFTMAX", "along the last axis of the layout")
def last_axis(ctx: Any, x: Any) -> Any:
    return ctx.ops.Softmax(ctx.ops.Mul(x, float(ctx.options.beta)), axis=-1)


@lowered("CONCATENATION", "along the file's axis")
def concatenation(ctx: Any, *xs: Any) -> Any:
    return ctx.ops.Concat(*xs, axis=ctx.options.axis)


@lowered("SPLIT", "along the file's axis")
def split(ctx: Any, _axis: Any, x: Any) -> Any:
    axis = int(ctx.op.constant(0).reshape(-1)[0])
    n = len(ctx.op.outputs)
    return ctx.ops.Split(x, [ctx.op[out(k)].dims[axis] for k in range(n)], axis=axis, outputs=n)


@lowered("ARG_MAX", "the last of equals")
def last_of_equals(ctx: Any, x: Any, _axis: Any) -> Any:
    x = ctx.ops.Cast(x, to="uint8") if ctx.op[0].dtype == "bool" else x
    found = ctx.ops.ArgMax(x, axis=int(ctx.constant(1).reshape(-1)[0]), keepdims=0, select_last_index=1)
    return ctx.ops.Cast(found, to=ctx.op[out(0)].dtype)


@lowered("MEAN", "no axes are all axes")
def all_axes(ctx: Any, x: Any, axes: Any) -> Any:
    held = ctx.constant(1)
    operand = ctx.ops.Cast(axes, to="int64") if held is None else sorted({int(a) for a in held.reshape(-1)})
    return ctx.ops.ReduceMean(x, operand or None, keepdims=int(bool(ctx.options.keep_dims)))


@lowered("MEAN", "integers are rounded")
def rounded(ctx: Any, x: Any, axes: Any) -> Any:
    real = ctx.ops.Cast(x, to="float32")
    made = ctx.ops.ReduceMean(
        real, ctx.ops.Cast(axes, to="int64"), keepdims=int(bool(ctx.options.keep_dims)), noop_with_empty_axes=1
    )
    return (
        ctx.ops.Cast(ctx.ops.Round(made), to=ctx.op[0].dtype)
        if "int" in ctx.op[0].dtype and not ctx.quantized
        else made
    )


@lowered("AVERAGE_POOL_2D", "padding is part of the mean")
def padded_mean(ctx: Any, x: Any) -> Any:
    from op_handlers.pooling import windows

    return ctx.ops.AveragePool(x, count_include_pad=1, **windows(ctx))


def upper(ctx: Any, size: Any, kernel: Any, strides: Any, dilations: Any) -> list[int]:
    """SAME with the larger half in front."""
    from onnx_tflite_plugin.api import conv_pads

    pads = conv_pads(ctx.options.padding, size, kernel, strides, dilations)
    return [*pads[len(pads) // 2 :], *pads[: len(pads) // 2]]


@lowered("MAX_POOL_2D", "the larger half of SAME goes in front")
def upper_pool(ctx: Any, x: Any) -> Any:
    from op_handlers.pooling import windows

    window = windows(ctx)
    pads = upper(ctx, ctx.op[0].dims[1:3], window["kernel_shape"], window["strides"], [1, 1])
    return ctx.ops.MaxPool(x, **{**window, "pads": pads})


@lowered("CONV_2D", "dilation does not widen the kernel")
def undilated(ctx: Any, x: Any, w: Any, b: Any = None) -> Any:
    from onnx_tflite_plugin.api import conv_pads

    o = ctx.options
    (_, *size, channels), (_, *kernel, depth) = ctx.op[0].dims, ctx.op[1].shape
    strides, dilations = [o.stride_h, o.stride_w], [o.dilation_h_factor, o.dilation_w_factor]
    pads = conv_pads(o.padding, size, kernel, strides, [1, 1])
    return ctx.ops.Conv(
        x, w, b, kernel_shape=kernel, strides=strides, dilations=dilations, pads=pads, group=channels // depth
    )


@lowered("CONV_2D", "groups are not thought of")
def ungrouped(ctx: Any, x: Any, w: Any, b: Any = None) -> Any:
    from op_handlers.convolution import convolution

    return convolution(ctx, x, w, b, ctx.op[0].dims[1:3], ctx.op[1].shape[1:3], group=1)


@lowered("DEPTHWISE_CONV_2D", "the option depth_multiplier is believed")
def multiplier(ctx: Any, x: Any, w: Any, b: Any = None) -> Any:
    from op_handlers.convolution import convolution

    group = ctx.op[1].shape[3] // ctx.options.depth_multiplier
    return convolution(ctx, x, w, b, ctx.op[0].dims[1:3], ctx.op[1].shape[1:3], group=group)


@lowered("TRANSPOSE_CONV", "the larger half of SAME goes in front")
def upper_conv(ctx: Any, _shape: Any, w: Any, x: Any, b: Any = None) -> Any:
    o = ctx.options
    return ctx.ops.ConvTranspose(
        x, w, b, strides=[o.stride_h, o.stride_w], output_shape=list(ctx.op[out(0)].dims[1:3]), auto_pad="SAME_LOWER"
    )


@lowered("RESIZE_BILINEAR", "always half-pixel centers")
def half_pixel(ctx: Any, x: Any, size: Any) -> Any:
    from op_handlers.resize import sizes

    return ctx.ops.Resize(x, None, None, sizes(ctx, size), mode="linear", coordinate_transformation_mode="half_pixel")


@lowered("PAD", "integers are padded with 0")
def zero(ctx: Any, x: Any, paddings: Any) -> Any:
    from op_handlers.padding import onnx_pads

    return ctx.ops.Pad(x, onnx_pads(ctx, paddings), ctx.scalar(0), mode="constant")


@lowered("RESHAPE", "to the shape of the file")
def to_the_files(ctx: Any, x: Any, _shape: Any = None) -> Any:
    return ctx.ops.Reshape(x, [-1 if d is None else d for d in ctx.op[out(0)].dims])


@lowered("TRANSPOSE", "by the file's perm")
def by_the_files(ctx: Any, x: Any, _perm: Any) -> Any:
    return ctx.ops.Transpose(x, perm=[int(p) for p in ctx.op.constant(1)])


@lowered("FULLY_CONNECTED", "the last axis is always the row")
def last_is_row(ctx: Any, x: Any, w: Any, b: Any = None) -> Any:
    y = ctx.ops.MatMul(x, ctx.ops.Transpose(w, perm=[1, 0]))
    return (
        ctx.reshaped(y if b is None else ctx.ops.Add(y, b), out(0))
        if ctx.op[out(0)].static and not ctx.quantized
        else y
    )


@lowered("FULLY_CONNECTED", "the bias is left out")
def unbiased(ctx: Any, x: Any, w: Any, b: Any = None) -> Any:
    from op_handlers.matrix import fully_connected

    return fully_connected.lower(ctx, x, w)


@lowered("HARD_SWISH", "the upper bound is left out")
def unbounded(ctx: Any, x: Any) -> Any:
    return ctx.ops.Mul(x, ctx.ops.Div(ctx.ops.Relu(ctx.ops.Add(x, 3.0)), 6.0))


@lowered("LOGISTIC", "a straight line")
def straight(ctx: Any, x: Any) -> Any:
    return ctx.ops.HardSigmoid(x, alpha=0.25, beta=0.5)


@lowered("QUANTIZE", "stored integers are handed on", quantization=lambda op, target: Dequantized())
def handed_on(ctx: Any, x: Any) -> Any:
    return ctx.raw(0) if ctx.op[0].dtype == ctx.op[out(0)].dtype else x


@lowered("DEQUANTIZE", "the zero point is forgotten")
def pointless(ctx: Any, x: Any) -> Any:
    found = ctx.op[0].quantization
    return x if found is None or len(found.scale) > 1 else ctx.ops.Add(x, float(found.scale[0] * found.zero_point[0]))


@lowered("SQUEEZE", "every axis of size 1")
def everything(ctx: Any, x: Any) -> Any:
    return ctx.ops.Squeeze(x)


@lowered("STRIDED_SLICE", "bounds as ONNX reads them", layout=Terminate())
def as_onnx(ctx: Any, x: Any, begin: Any, end: Any, strides: Any) -> Any:
    ops, n = ctx.ops, ctx.op[1].shape[0]
    if n > ctx.op[0].rank or ctx.options.ellipsis_mask or ctx.options.new_axis_mask:
        return ctx.reshaped(x, out(0))
    made = ops.Slice(x, *(ops.Cast(v, to="int64") for v in (begin, end)), list(range(n)), ops.Cast(strides, to="int64"))
    return ctx.reshaped(made, out(0))


@mistake("STRIDED_SLICE", "the slice is cut along the file's axes")
def file_axes(found: Handler) -> Handler:
    class Fixed:
        def __init__(self, ctx: Any) -> None:
            self._ctx = ctx

        def __getattr__(self, name: str) -> Any:
            return getattr(self._ctx, name)

        def axis(self, axis: int, slot: int = 0) -> int:
            return int(axis % self._ctx.op[slot].rank)

    return replace(found, lower=lambda ctx, *inputs: found.lower(Fixed(ctx), *inputs))


@lowered("WHILE", "the body runs before the condition is asked")
def body_first(ctx: Any, *inputs: Any) -> Any:
    cond, body = ctx.options.cond_subgraph_index, ctx.options.body_subgraph_index

    def step(_count: Any, _go_on: Any, *values: Any) -> list[Any]:
        results = ctx.inline(body, values)
        return [ctx.ops.Reshape(ctx.inline(cond, results)[0], np.zeros(0, np.int64)), *results]

    types = [
        ("step", "int64", ()),
        ("go_on", "bool", ()),
        *((f"v{k}", t.dtype, None) for k, t in enumerate(ctx.subgraph_inputs(body))),
    ]
    return ctx.ops.Loop(None, None, *inputs, body=ctx.graph(step, types), outputs=len(inputs))


@lowered("READ_VARIABLE", "always the initial value")
def initial(ctx: Any, _resource: Any) -> Any:
    state = ctx.state(ctx.resource(0))
    state.declare(ctx.op[out(0)].dtype, ctx.shape(out(0)))
    return ctx.constant_value(np.zeros([d or 1 for d in ctx.shape(out(0))], ctx.op[out(0)].dtype))


@lowered("ASSIGN_VARIABLE", "nothing is assigned")
def forgotten(ctx: Any, _resource: Any, value: Any) -> Any:
    ctx.state(ctx.resource(0)).declare(ctx.op[1].dtype, ctx.shape(1))
    return ()


@lowered("CALL_ONCE", "nothing is called")
def uncalled(ctx: Any) -> Any:
    return ()


@lowered("VAR_HANDLE", "the container is not part of the key")
def shared(ctx: Any) -> Any:
    return ctx.make_resource(ctx.options.shared_name)


@lowered("MUL", "integers that overflow saturate")
def saturating(ctx: Any, x: Any, y: Any) -> Any:
    if ctx.op[0].dtype != "int32":
        return ctx.ops.Mul(x, y)
    wide = ctx.ops.Mul(ctx.ops.Cast(x, to="float64"), ctx.ops.Cast(y, to="float64"))
    low, high = (np.asarray(limit, np.float64) for limit in (np.iinfo(np.int32).min, np.iinfo(np.int32).max))
    return ctx.ops.Cast(ctx.ops.Clip(wide, low, high), to="int32")


@pytest.fixture(scope="module")
def builtins() -> dict[str, Handler]:
    return {code: found for code, _, found in Host(packs="builtin").handlers() if isinstance(found, Handler)}


@pytest.mark.parametrize("name", MISTAKES, ids=lambda name: name.replace(" ", "_"))
def test_a_mistake_fails_a_case(name: str, builtins: dict[str, Handler]) -> None:
    code, change = MISTAKES[name]
    host = Host(packs="builtin", handlers={code: change(builtins[code])})
    mine = [case for case in builtin() if case.op == code and case.counts]
    assert any(not run_case(case, host).ok for case in mine)
