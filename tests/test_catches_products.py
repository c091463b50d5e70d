"""The cases of sums, extremes, matrix products and volumes catch what lowerings get wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from conformance.cases import builtin
from conformance.runner import run_case
from onnx_tflite_plugin.api import Dequantized, Handler, Implicit, Raw, SameScale, Terminate, conv_pads, out
from onnx_tflite_plugin.host import Host

MISTAKES: dict[str, tuple[str, Callable[[Handler], Handler]]] = {}


def lowered(code: str, text: str, **fields: Any) -> Callable[[Callable[..., Any]], None]:
    def declare(lower: Callable[..., Any]) -> None:
        MISTAKES[f"{code}: {text}"] = (code, lambda found: replace(found, lower=lower, **fields))

    return declare


def declared(code: str, text: str, **fields: Any) -> None:
    MISTAKES[f"{code}: {text}"] = (code, lambda found: replace(found, **fields))


# --- reductions -------------------------------------------------------------------------------

declared("SUM", "stored integers instead of real numbers", quantization=Raw())
for code in ("REDUCE_MAX", "REDUCE_MIN"):
    declared(code, "real numbers instead of stored integers", quantization=Dequantized())
    declared(code, "rescaled where parameters differ", quantization=SameScale())


def over(ctx: Any, held: Any) -> list[int]:
    return sorted({int(axis) % max(ctx.op[0].rank, 1) for axis in held.reshape(-1)})


@lowered("SUM", "no axes are all axes")
def all_axes(ctx: Any, x: Any, axes: Any) -> Any:
    held = ctx.constant(1)
    operand = ctx.ops.Cast(axes, to="int64") if held is None else over(ctx, held)
    return ctx.ops.ReduceSum(x, operand or None, keepdims=int(bool(ctx.options.keep_dims)))


@lowered("REDUCE_MAX", "the file's axes")
def file_axes(ctx: Any, x: Any, _axes: Any) -> Any:
    axes = over(ctx, ctx.op.constant(1))
    return ctx.ops.ReduceMax(x, axes, keepdims=int(bool(ctx.options.keep_dims))) if axes else x


@lowered("REDUCE_MIN", "axes are always dropped")
def dropped(ctx: Any, x: Any, _axes: Any) -> Any:
    axes = over(ctx, ctx.constant(1))
    return ctx.ops.ReduceMin(x, axes, keepdims=0) if axes else x


# --- products ---------------------------------------------------------------------------------


def multiplied(ctx: Any, x: Any, w: Any, *zero_points: Any) -> Any:
    to_int32 = ctx.op[out(0)].dtype == "int32"
    return ctx.ops.MatMulInteger(x, w, *zero_points) if to_int32 else ctx.ops.MatMul(x, w)


declared("BATCH_MATMUL", "adjoints are ignored", layout=Terminate())
declared("BATCH_MATMUL", "weights are activations of other parameters", quantization=Raw())


@lowered("BATCH_MATMUL", "what the storage adds is multiplied too")
def stored(ctx: Any, x: Any, w: Any) -> Any:
    return multiplied(ctx, x, w)


@lowered("BATCH_MATMUL", "zero points are subtracted where the kernel multiplies what is stored")
def centred(ctx: Any, x: Any, w: Any) -> Any:
    found = [ctx.quantization(slot) for slot in (0, 1)]
    points = [np.asarray(q.zero_point[0] if q else 0, ctx.dtype(slot)) for slot, q in enumerate(found)]
    return multiplied(ctx, x, w, *points)


# --- volumes ----------------------------------------------------------------------------------

for code in ("CONV_3D", "CONV_3D_TRANSPOSE"):
    declared(code, "the activation is left out", activation=None)
declared("CONV_3D", "weights of height, width and depth", layout=Implicit({0: "n c d h w", 1: "o c j k i"}))


def windows(ctx: Any, order: str = "dhw", dilated: bool = True) -> dict[str, list[int]]:
    o = ctx.options
    strides = [o[f"stride_{axis}"] for axis in order]
    return {"strides": strides, "dilations": [o[f"dilation_{axis}_factor"] if dilated else 1 for axis in order]}


@lowered("CONV_3D", "strides and dilations in the order of the schema")
def schema_order(ctx: Any, x: Any, w: Any, b: Any = None) -> Any:
    kernel, steps = ctx.op[1].shape[:3], windows(ctx, "dwh")
    pads = conv_pads(ctx.options.padding, ctx.op[0].dims[1:4], kernel, steps["strides"], steps["dilations"])
    return ctx.ops.Conv(x, w, b, pads=pads, **steps)


@lowered("CONV_3D", "SAME puts the odd row in front")
def odd_in_front(ctx: Any, x: Any, w: Any, b: Any = None) -> Any:
    steps = windows(ctx)
    auto = {"SAME": "SAME_LOWER", "VALID": "VALID"}[ctx.options.padding]
    return ctx.ops.Conv(x, w, b, auto_pad=auto, **steps)


@lowered("CONV_3D_TRANSPOSE", "dilation is ignored, as in 2-D")
def undilated(ctx: Any, _shape: Any, w: Any, x: Any, b: Any = None) -> Any:
    wanted = ctx.op[out(0)].dims[1:4]
    return ctx.ops.ConvTranspose(x, w, b, output_shape=wanted, auto_pad="SAME_UPPER", **windows(ctx, dilated=False))


# --- sparse -----------------------------------------------------------------------------------

declared(
    "DENSIFY",
    "the elements stored, without their places",
    evaluate=lambda op: np.sort(op.constant(0), axis=None).reshape(op[0].shape),
)


@pytest.fixture(scope="module")
def builtins() -> dict[str, Handler]:
    return {code: found for code, _, found in Host(packs="builtin").handlers() if isinstance(found, Handler)}


@pytest.mark.parametrize("name", MISTAKES, ids=lambda name: name.replace(" ", "_"))
def test_a_mistake_fails_a_case(name: str, builtins: dict[str, Handler]) -> None:
    code, change = MISTAKES[name]
    host = Host(packs="builtin", handlers={code: change(builtins[code])})
    mine = [case for case in builtin() if case.op == code and case.counts]
    assert any(not run_case(case, host).ok for case in mine)
