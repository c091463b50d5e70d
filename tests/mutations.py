"""Traps of the operators reference, planted as bugs: data that ``test_mutations`` reads.

Nothing on disk is changed. A bug is another declaration (``fields``), another helper function (``patches``, by module and
name, made from the original), other ONNX nodes (``emits``, called instead of ``ctx.ops.<key>`` with what makes the true
one), or another view of the operator (``sees``: methods of the context; ``options``: the file's options overruled).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import reduce
from importlib import import_module
from typing import Any

import numpy as np
from ml_dtypes import bfloat16

from onnx_tflite_plugin.api import Dequantized, Effects, Handler, Raw, Terminate, out, spelled
from onnx_tflite_plugin.source.model import Options

Change = Callable[[Any], Any]


@dataclass(frozen=True, eq=False)
class Mutation:
    """``killed_by``: ids of cases that must each fail with the bug and pass without it."""

    trap: str
    code: str
    killed_by: tuple[str, ...]
    fields: Mapping[str, Any] = field(default_factory=dict)
    patches: Mapping[str, Change] = field(default_factory=dict)
    emits: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    sees: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def id(self) -> str:
        return f"{self.code}-{self.trap}".replace(" ", "_")

    def mutated(self, handler: Handler) -> Handler:
        """The handler with the bug in it; patches are planted apart."""
        lower = self.fields.get("lower", handler.lower)
        if self.emits or self.sees or self.options:
            return replace(
                handler, **{**self.fields, "lower": lambda ctx, *inputs: lower(_Context(ctx, self), *inputs)}
            )
        return replace(handler, **self.fields)

    @contextmanager
    def planted(self) -> Iterator[None]:
        """The helper functions with the bug in them, for as long as it lasts."""
        with ExitStack() as undo:
            for place, change in self.patches.items():
                module, _, path = place.partition(":")
                *owners, name = path.split(".")
                owner = reduce(getattr, owners, import_module(module))
                original = getattr(owner, name)
                undo.callback(setattr, owner, name, original)
                setattr(owner, name, change(original))
            yield


class _Context:
    """A context that answers as the mutation says, else as it is."""

    def __init__(self, ctx: Any, mutation: Mutation) -> None:
        self._ctx = ctx
        self._mutation = mutation
        self.ops = _Ops(ctx.ops, mutation.emits)
        self.options = Options(ctx.options.table, {**ctx.options, **mutation.options})

    def __getattr__(self, name: str) -> Any:
        seen = self._mutation.sees.get(name)
        return getattr(self._ctx, name) if seen is None else lambda *arguments: seen(self._ctx, *arguments)


class _Ops:
    def __init__(self, ops: Any, emits: Mapping[str, Callable[..., Any]]) -> None:
        self._ops = ops
        self._emits = emits

    def __getattr__(self, name: str) -> Any:
        true, other = getattr(self._ops, name), self._emits.get(name)
        return true if other is None else lambda *operands, **attributes: other(true, *operands, **attributes)


# --- ways to go wrong -------------------------------------------------------------------------


def returning(value: Any) -> Change:
    """The helper gives one answer whatever it is asked."""
    return lambda original: lambda *arguments, **named: value


def handing_on(at: int) -> Change:
    """The helper hands one of its arguments on."""
    return lambda original: lambda *arguments, **named: arguments[at]


def with_attributes(**given: Any) -> Callable[..., Any]:
    """The node gets other attributes."""
    return lambda true, *operands, **attributes: true(*operands, **{**attributes, **given})


def left_out(_true: Any, x: Any, *_rest: Any, **_attributes: Any) -> Any:
    """No node: its first operand."""
    return x


def the_files_axis(ctx: Any, axis: int, slot: int = 0) -> int:
    """The axis number as it stands in the file."""
    return int(axis % ctx.op[slot].rank)


def more_in_front(original: Any) -> Any:
    """SAME with its larger half in front."""

    def pads(*arguments: Any) -> list[int]:
        made = original(*arguments)
        half = len(made) // 2
        return [*made[half:], *made[:half]]

    return pads


def without_dilation(original: Any) -> Any:
    """SAME as if the kernel were not dilated."""
    return lambda padding, size, kernel, strides, dilations: original(padding, size, kernel, strides, [1] * len(kernel))


def symmetric_as_reflect(original: Any) -> Any:
    def mirrored(size: int, before: int, after: int) -> Any:
        place = np.abs(np.arange(-before, size + after))
        return np.where(place >= size, np.maximum(2 * size - 2 - place, 0), place)

    return mirrored


def shrink_to_end(original: Any) -> Any:
    """A shrunk axis ends one after its index: -1 ends at 0."""

    def bounds(op: Any, cut: Any) -> tuple[int, int]:
        if not cut.shrinks:
            return original(op, cut)
        begin = 0 if cut.begin_masked else int(op.constant(1)[cut.entry])
        return begin, begin + 1

    return bounds


def backwards_to_minus_one(original: Any) -> Any:
    """Behind the first element, going backwards, is -1, which ONNX takes for the last."""

    def bounds(op: Any, cut: Any) -> tuple[int, int]:
        first, last = original(op, cut)
        return first, max(last, -1)

    return bounds


def as_written(original: Any) -> Any:
    """Bounds as the file has them, for ONNX to clamp."""

    def bounds(op: Any, cut: Any) -> tuple[int, int]:
        if cut.shrinks or op.options.get("offset"):
            return original(op, cut)  # type: ignore[no-any-return]
        begin, end, strides = (int(op.constant(k)[cut.entry]) for k in (1, 2, 3))
        ends = np.iinfo(np.int64)
        low, high = (0, ends.max) if strides > 0 else (ends.max, ends.min)
        return low if cut.begin_masked else begin, high if cut.end_masked else end

    return bounds


def with_options(**given: Any) -> Change:
    """The helper sees an operator with other options."""
    return lambda original: (
        lambda op, *rest: original(replace(op, options=Options(op.options.table, {**op.options, **given})), *rest)
    )


def new_axis_wins(original: Any) -> Any:
    """An entry that is both is a new axis."""

    def cuts(op: Any) -> Any:
        mask = op.options.ellipsis_mask & ~op.options.new_axis_mask
        return original(replace(op, options=Options(op.options.table, {**op.options, "ellipsis_mask": mask})))

    return cuts


def half_even(original: Any) -> Any:
    """align_corners with halves to even."""

    def nearest(op: Any, size: int, made: int) -> Any:
        if not op.options.align_corners or made < 2:
            return original(op, size, made)
        at = (np.arange(made) + op.options.half_pixel_centers / 2).astype(np.float32) * (
            np.float32(size - 1) / np.float32(made - 1)
        )
        return np.minimum(np.rint(at).astype(np.int64), size - 1)

    return nearest


def round_prefer_floor(original: Any) -> Any:
    """half_pixel as ONNX rounds it by default."""

    def nearest(op: Any, size: int, made: int) -> Any:
        if not op.options.half_pixel_centers or op.options.align_corners:
            return original(op, size, made)
        at = (np.arange(made) + 0.5) * size / made - 0.5
        return np.clip(np.ceil(at - 0.5), 0, size - 1).astype(np.int64)

    return nearest


def coordinates(align: str, half: str, neither: str) -> Change:
    return lambda original: (
        lambda ctx: align if ctx.options.align_corners else half if ctx.options.half_pixel_centers else neither
    )


def one_table_of_words(wide: str, flat: str) -> Change:
    """Blocks of two axes in another order."""
    return lambda original: lambda spatial: (wide, flat) if spatial == 2 else original(spatial)


def extra_dropped(original: Any) -> Any:
    def pads(*arguments: Any) -> Any:
        made, extra = original(*arguments)
        return made, [0] * len(extra)

    return pads


def by_input(original: Any) -> Any:
    """Padding from the sizes of the input, as a convolution's."""

    def pads(padding: str, output: Any, size: Any, kernel: Any, stride: Any) -> Any:
        from onnx_tflite_plugin.api import conv_pads

        made = conv_pads(padding, size, kernel, stride, [1] * len(kernel))
        n = len(kernel)
        full = [(s - 1) * t + k for s, t, k in zip(size, stride, kernel, strict=True)]
        return made, [
            max(o - (f - made[i] - made[n + i]), 0) for i, (o, f) in enumerate(zip(output, full, strict=True))
        ]

    return pads


def fast_clamp(activation: str) -> Change:
    """A clamp is left out whatever the zero point is."""

    def change(original: Any) -> Any:
        from onnx_tflite_plugin.quantization.activation import Clamp

        return lambda name, *rest: Clamp(None, None) if name == activation else original(name, *rest)

    return change


def scales_along_the_files_axis(original: Any) -> Any:
    """A scale per channel goes along the axis that has the file's number."""

    def arrays(quantization: Any, dtype: str, order: Any) -> Any:
        scale, zero_point, axis = original(quantization, dtype, order)
        return scale, zero_point, None if axis is None else quantization.axis

    return arrays


def _tanh(ctx: Any, made: Any) -> Any:
    return ctx.ops.Tanh(made) if ctx.options.fused_activation_function == "TANH" else made


def _scaled(ctx: Any, made: Any) -> Any:
    return ctx.ops.Mul(made, ctx.scalar(ctx.options.beta))


def _larger(ctx: Any, x: Any) -> Any:
    return ctx.ops.Max(x, ctx.ops.Mul(x, float(ctx.options.alpha)))


def _all_of_none(original: Any) -> Any:
    """No axes are all axes, which is ONNX's default."""

    def reduced(ctx: Any, onnx: str, x: Any, axes: Any) -> Any:
        held = ctx.constant(1)
        if held is None or held.size or not ctx.op[0].rank:
            return original(ctx, onnx, x, axes)
        return getattr(ctx.ops, onnx)(x, keepdims=int(bool(ctx.options.keep_dims)))

    return reduced


def _to_the_files_shape(ctx: Any, value: Any, slot: int) -> Any:
    return ctx.ops.Reshape(value, [-1 if size is None else size for size in ctx.op[slot].dims])


def _one_before(ctx: Any, axis: int, slot: int = 0) -> int:
    """A negative axis counts in the axes of input 0."""
    return int(ctx.axis(axis % ctx.op[0].rank if axis < 0 and ctx.op[0].rank else axis, slot))


def _interleaved(true: Any, x: Any, pads: Any, *rest: Any, **attributes: Any) -> Any:
    return true(x, pads.reshape(2, -1).T.reshape(-1) if isinstance(pads, np.ndarray) else pads, *rest, **attributes)


def returning_zero(_original: Any) -> Any:
    return lambda ctx: ctx.scalar(0)


def _edge(_original: Any) -> Any:
    return lambda size, before, after: np.clip(np.arange(-before, size + after), 0, size - 1)


def _split_value_first(ctx: Any, x: Any, _axis: Any) -> Any:
    from op_handlers.slicing import parted

    return parted(ctx, x, slot=1)


def _third(_true: Any, _condition: Any, _x: Any, y: Any) -> Any:
    return y


def _own_strides(true: Any, x: Any, starts: Any, ends: Any, axes: Any, steps: Any) -> Any:
    return true(x, starts, ends, axes, steps)


def _crd(_original: Any) -> Any:
    from op_handlers import blocks

    original = blocks.rearranged
    return lambda ctx, x, before, after, sizes: original(ctx, x, before.replace("pqd", "dpq"), after, sizes)


def _crd_back(original: Any) -> Any:
    return lambda ctx, x, before, after, sizes: original(ctx, x, before, after.replace("pqc", "cpq"), sizes)


def _adjoint(x: bool, y: bool) -> Change:
    """The axes of operands that are not turned though the options say so."""

    def axes(op: Any) -> str:
        from op_handlers.matrix import product_axes

        adj_x, adj_y = op.options.adj_x and not x, op.options.adj_y and not y
        *operands, result = product_axes(op, "km" if adj_x else "mk", "nk" if adj_y else "kn")
        return spelled(operands, result)

    return axes


def _own_zero_point(_original: Any) -> Any:
    return lambda ctx, slot: (
        np.asarray(ctx.quantization(slot).zero_point[0], ctx.dtype(slot)) if ctx.quantization(slot) else None
    )


def _bytes(ctx: Any, x: Any) -> Any:
    """Bytes of one scale are handed on: only their zero points differ, by 128."""
    before, after = ctx.op[0].quantization, ctx.op[out(0)].quantization
    if before is None or after is None or before.scale != after.scale or ctx.op[0].dtype == ctx.op[out(0)].dtype:
        return x
    return ctx.ops.Sub(x, float(before.scale[0] * 128))


def _second_first(true: Any, condition: Any, x: Any, y: Any) -> Any:
    return true(condition, x, x)


def _at_least_once(true: Any, count: Any, _start: Any, *values: Any, **attributes: Any) -> Any:
    return true(count, np.asarray(True), *values, **attributes)


def _at_the_start(ctx: Any, _resource: Any) -> Any:
    state = ctx.state(ctx.resource(0))
    state.declare(ctx.op[out(0)].dtype, ctx.shape(out(0)))
    state.get()
    return state.input


def _highest_bits_first(original: Any) -> Any:
    def unpacked(self: Any, count: int) -> Any:
        whole = original(self, count + -count % 4)
        per_byte = {"int2": 4}.get(self._dtype, 2)
        return whole.reshape(-1, per_byte)[:, ::-1].reshape(-1)[:count]

    return unpacked


def _rows_at_bytes(original: Any) -> Any:
    def unpacked(self: Any, count: int) -> Any:
        row = self._shape[-1]
        wide = row + -row % {"int2": 4}.get(self._dtype, 2)
        return np.resize(original(self, count), (count // row, wide))[:, :row].reshape(-1)

    return unpacked


def _down_the_columns(original: Any) -> Any:
    return lambda self: original(self).reshape(self.scales.shape).T.reshape(-1)


def _one_a_row(original: Any) -> Any:
    return lambda self: np.repeat(original(self).reshape(self.scales.shape)[:, :1], self.scales.shape[-1])


MODEL = "onnx_tflite_plugin.source.model"
HIGH_BITS_FIRST = {"onnx_tflite_plugin.source.data:Stored._unpacked": _highest_bits_first}


def the_files_scale(original: Any) -> Any:
    """A bias is dequantized with its own scale."""

    def bias(ctx: Any, slot: int, tensor: Any) -> Any:
        known = tensor.quantization
        if known is None or not tensor.constant:
            return original(ctx, slot, tensor)
        return ctx.scope.emitter.constant(
            (tensor.array * np.asarray(known.scale)).astype(np.float32), f"{tensor.name}:real"
        )

    return bias


def _numberless(true: Any, x: Any, pads: Any, _number: Any = None, **attributes: Any) -> Any:
    return true(x, pads, **attributes)


def _short_name(op: Any) -> str:
    return str(op.options.shared_name)


def _floored(ctx: Any, x: Any, y: Any) -> Any:
    if ctx.op[0].dtype != "int32":
        return ctx.ops.Div(x, y)
    real = ctx.ops.Div(*(ctx.ops.Cast(v, to="float64") for v in (x, y)))
    return ctx.ops.Cast(ctx.ops.Floor(real), to="int32")


def _size_as_is(ctx: Any, x: Any, begin: Any, size: Any) -> Any:
    """-1 is the number before 0."""
    first, length = (ctx.ops.Cast(value, to="int64") for value in (begin, size))
    return ctx.ops.Slice(x, first, ctx.ops.Add(first, length), list(range(ctx.op[0].rank)))


# --- the table --------------------------------------------------------------------------------

CONV, POOL, SLICES, BLOCKS, PADS = (
    f"op_handlers.{name}" for name in ("convolution", "pooling", "slicing", "blocks", "padding")
)
VALUES, ACTIVATION, CONTEXT = (
    f"onnx_tflite_plugin.lowering.{name}" for name in ("values", "activation", "context:Context")
)

MUTATIONS = (
    # convolutions and pools
    Mutation(
        "the larger half of SAME in front",
        "CONV_2D",
        ("CONV_2D-float32_in_three_groups",),
        patches={f"{CONV}:conv_pads": more_in_front},
    ),
    Mutation(
        "dilation does not widen SAME",
        "DEPTHWISE_CONV_2D",
        ("DEPTHWISE_CONV_2D-SAME_2x3_dilated_2x3",),
        patches={f"{CONV}:conv_pads": without_dilation},
    ),
    Mutation(
        "dilation does not widen SAME",
        "CONV_3D",
        ("CONV_3D-SAME_2x2x2_stride_2x1x2_dilated_2x1x1",),
        patches={f"{CONV}:conv_pads": without_dilation},
    ),
    Mutation(
        "the bias has the scale of the file",
        "CONV_2D",
        ("CONV_2D-int8_with_a_bias_scale_in_the_file_that_is_off,_which_the_kernel_ignores",),
        patches={f"{CONTEXT}._bias": the_files_scale},
    ),
    Mutation(
        "the scales per channel stay on the file's axis",
        "DEPTHWISE_CONV_2D",
        ("DEPTHWISE_CONV_2D-int16_with_scales_per_channel",),
        patches={f"{VALUES}:quantization_arrays": scales_along_the_files_axis},
    ),
    Mutation(
        "RELU6 left out wherever the zero point is",
        "CONV_2D",
        ("CONV_2D-int16_with_RELU6",),
        patches={f"{ACTIVATION}:stored_clamp": fast_clamp("RELU6")},
    ),
    Mutation(
        "uint8 weights of real activations keep their zero point",
        "CONV_2D",
        ("CONV_2D-float32_with_uint8_weights,_which_the_kernel_reads_as_int8",),
        patches={f"{CONV}:signed_bytes": handing_on(2)},
    ),
    Mutation(
        "no output padding",
        "TRANSPOSE_CONV",
        ("TRANSPOSE_CONV-SAME_2x5_kernel,_stride_3x1",),
        patches={f"{CONV}:transposed_pads": extra_dropped},
    ),
    Mutation(
        "pads from the sizes of the input",
        "TRANSPOSE_CONV",
        ("TRANSPOSE_CONV-float32_SAME_stride_2x2_without_bias",),
        patches={f"{CONV}:transposed_pads": by_input},
    ),
    Mutation(
        "dilation is left out",
        "CONV_3D_TRANSPOSE",
        ("CONV_3D_TRANSPOSE-SAME_2x2x2_dilated_1x2x4",),
        emits={"ConvTranspose": with_attributes(dilations=[1, 1, 1])},
    ),
    Mutation(
        "padding is part of the mean",
        "AVERAGE_POOL_2D",
        ("AVERAGE_POOL_2D-float32_with_RELU_N1_TO_1",),
        emits={"AveragePool": with_attributes(count_include_pad=1)},
    ),
    Mutation(
        "another output scale rescales",
        "AVERAGE_POOL_2D",
        ("AVERAGE_POOL_2D-int8_to_another_scale,_which_the_kernel_ignores",),
        patches={f"{POOL}:unscaled": handing_on(1)},
    ),
    # elementwise
    Mutation(
        "TANH is applied",
        "ADD",
        ("ADD-int16_with_TANH,_which_the_kernel_ignores",),
        fields={"lower": lambda ctx, x, y: _tanh(ctx, ctx.ops.Add(x, y))},
    ),
    Mutation(
        "operands are compared as real numbers",
        "MINIMUM",
        ("MINIMUM-uint8_of_different_scales,_which_the_kernel_ignores",),
        fields={"quantization": Dequantized()},
    ),
    Mutation(
        "another output scale does not rescale",
        "RELU",
        ("RELU-uint8_to_another_scale",),
        fields={"quantization": Raw()},
    ),
    Mutation(
        "another output scale does not rescale", "ABS", ("ABS-int8_to_another_scale",), fields={"quantization": Raw()}
    ),
    Mutation("the larger of x and alpha x", "LEAKY_RELU", ("LEAKY_RELU-int16,_alpha_1.7",), fields={"lower": _larger}),
    Mutation(
        "slopes are aligned by ONNX", "PRELU", ("PRELU-as_many_rows_as_channels",), fields={"axes": "..., _ -> ..."}
    ),
    Mutation(
        "approximate is not looked at",
        "GELU",
        ("GELU-float32,_approximate,_another_scale",),
        options={"approximate": False},
    ),
    Mutation(
        "complex numbers as pairs of numbers",
        "MUL",
        ("MUL-complex64",),
        fields={"lower": lambda ctx, x, y: ctx.ops.Mul(x, y)},
    ),
    Mutation(
        "roots are rounded to the nearest",
        "SQRT",
        ("SQRT-int8,_output_scale_1.66667_between_convolutions",),
        fields={"lower": lambda ctx, x: ctx.ops.Sqrt(x)},
    ),
    Mutation("divided towards minus infinity", "DIV", ("DIV-int32",), fields={"lower": _floored}),
    # softmax and its kin
    Mutation(
        "beta multiplies the result",
        "SOFTMAX",
        ("SOFTMAX-float32,_beta_0.3",),
        fields={"lower": lambda ctx, x: _scaled(ctx, ctx.ops.Softmax(x, axis=ctx.axis(-1)))},
    ),
    Mutation("beta is not looked at", "SOFTMAX", ("SOFTMAX-float32,_beta_0.3",), options={"beta": 1.0}),
    Mutation("along axis 1", "SOFTMAX", ("SOFTMAX-float32_of_rank_3",), emits={"Softmax": with_attributes(axis=1)}),
    Mutation(
        "along the file's axis",
        "LOG_SOFTMAX",
        ("LOG_SOFTMAX-float32_of_shape_(2,_3,_11)",),
        sees={"axis": the_files_axis},
    ),
    Mutation(
        "no least length", "L2_NORMALIZATION", ("L2_NORMALIZATION-uint8,_a_row_of_zeros",), emits={"Max": left_out}
    ),
    Mutation(
        "along the file's axis",
        "L2_NORMALIZATION",
        ("L2_NORMALIZATION-float32_of_shape_(2,_3,_5,_1)",),
        sees={"axis": the_files_axis},
    ),
    # reductions
    Mutation(
        "no axes are all axes",
        "REDUCE_MAX",
        ("REDUCE_MAX-no_axes_dropped",),
        patches={"op_handlers.reduction:reduced": _all_of_none},
    ),
    Mutation(
        "no axes are all axes",
        "SUM",
        ("SUM-uint8_without_axes_kept",),
        patches={"op_handlers.reduction:reduced": _all_of_none},
    ),
    Mutation("keep_dims is not looked at", "MEAN", ("MEAN-axes_[1]_kept",), options={"keep_dims": False}),
    Mutation("the axes are the file's", "MEAN", ("MEAN-rank_3_kept",), fields={"holds_axes": ()}),
    Mutation(
        "another output scale rescales",
        "REDUCE_MIN",
        ("REDUCE_MIN-int16_without_axes_kept",),
        fields={"quantization": Dequantized()},
    ),
    Mutation("the axis is the file's", "ARG_MAX", ("ARG_MAX-an_axis_as_a_list",), fields={"holds_axes": ()}),
    Mutation(
        "the last of equals",
        "ARG_MAX",
        ("ARG_MAX-int8_axis_1",),
        emits={"ArgMax": with_attributes(select_last_index=1)},
    ),
    # shapes
    Mutation("the shape of the file", "RESHAPE", ("RESHAPE-no_elements",), sees={"reshaped": _to_the_files_shape}),
    Mutation("the shape of the planned order", "SHAPE", ("SHAPE-static,_int32",), fields={"indexed_by_axis": {}}),
    Mutation("the axis is the file's", "EXPAND_DIMS", ("EXPAND_DIMS-bool",), sees={"axis": the_files_axis}),
    Mutation(
        "a negative axis counts in the operand's axes",
        "EXPAND_DIMS",
        ("EXPAND_DIMS-axis_-2",),
        sees={"axis": _one_before},
    ),
    Mutation("a negative axis counts in the operands' axes", "PACK", ("PACK-axis_-4",), sees={"axis": _one_before}),
    Mutation("the axis is the file's", "PACK", ("PACK-one_operand",), sees={"axis": the_files_axis}),
    Mutation("the axis is the file's", "UNPACK", ("UNPACK-one_part",), sees={"axis": the_files_axis}),
    Mutation(
        "the multiples stay in the file's order",
        "TILE",
        ("TILE-int8_to_other_parameters,_which_the_kernel_ignores",),
        fields={"indexed_by_axis": {}},
    ),
    Mutation("the rows stay in the file's order", "PAD", ("PAD-rank_3",), fields={"indexed_by_axis": {}}),
    Mutation("rows are flattened as they are", "PAD", ("PAD-rank_2",), emits={"Pad": _interleaved}),
    Mutation(
        "integers are padded with 0",
        "PAD",
        ("PAD-uint8,_height_and_width_between_convolutions",),
        patches={f"{PADS}:zero": returning_zero},
    ),
    Mutation("the number is left out", "PADV2", ("PADV2-float32,_height_and_width",), emits={"Pad": _numberless}),
    Mutation(
        "symmetric is reflect",
        "MIRROR_PAD",
        ("MIRROR_PAD-SYMMETRIC_int64_without_scale",),
        patches={f"{PADS}:mirrored": symmetric_as_reflect},
    ),
    Mutation(
        "symmetric is edge",
        "MIRROR_PAD",
        ("MIRROR_PAD-SYMMETRIC_int32_without_scale",),
        patches={f"{PADS}:mirrored": _edge},
    ),
    # cutting and joining
    Mutation("the axis is the file's", "CONCATENATION", ("CONCATENATION-rank_5",), sees={"axis": the_files_axis}),
    Mutation(
        "uint8 of other scales passes through",
        "CONCATENATION",
        ("CONCATENATION-uint8_of_different_scales,_which_are_requantized",),
        fields={"quantization": Raw(onnx="Concat")},
    ),
    Mutation(
        "the value comes first",
        "SPLIT",
        ("SPLIT-rank_1",),
        fields={"holds_axes": {1}, "requires_constant": {1}, "lower": _split_value_first},
    ),
    Mutation("the axis is the file's", "SPLIT_V", ("SPLIT_V-rank_5",), fields={"holds_axes": ()}),
    Mutation("-1 is a size", "SPLIT_V", ("SPLIT_V-sizes_(1,_-1,_2)_known_as_it_runs",), emits={"Where": _third}),
    Mutation("-1 is a size", "SLICE", ("SLICE-bool",), fields={"lower": _size_as_is}),
    Mutation(
        "begin and size stay in the file's order", "SLICE", ("SLICE-an_unknown_batch",), fields={"indexed_by_axis": {}}
    ),
    Mutation(
        "a shrunk -1 ends at 0",
        "STRIDED_SLICE",
        ("STRIDED_SLICE-an_index_before_the_first,_which_the_kernel_moves",),
        patches={f"{SLICES}:static_bounds": shrink_to_end},
    ),
    Mutation(
        "backwards to the end is to -1",
        "STRIDED_SLICE",
        ("STRIDED_SLICE-a_size_of_0",),
        patches={f"{SLICES}:static_bounds": backwards_to_minus_one},
    ),
    Mutation(
        "ONNX clamps the bounds",
        "STRIDED_SLICE",
        ("STRIDED_SLICE-empty,_backwards_from_before_the_first",),
        patches={f"{SLICES}:static_bounds": as_written},
    ),
    Mutation(
        "no ellipsis",
        "STRIDED_SLICE",
        ("STRIDED_SLICE-a_new_axis_and_an_ellipsis_in_one_entry:_the_ellipsis_wins",),
        patches={f"{SLICES}:cuts": with_options(ellipsis_mask=0)},
    ),
    Mutation(
        "a new axis wins over an ellipsis",
        "STRIDED_SLICE",
        ("STRIDED_SLICE-a_new_axis_and_an_ellipsis_in_one_entry:_the_ellipsis_wins",),
        patches={f"{SLICES}:cuts": new_axis_wins},
    ),
    Mutation(
        "ends never count from begins",
        "STRIDED_SLICE",
        ("STRIDED_SLICE-ends_that_count_from_begins_that_count_from_the_end",),
        patches={f"{SLICES}:static_bounds": with_options(offset=False)},
    ),
    # indices
    Mutation(
        "no batch dimensions", "GATHER", ("GATHER-unknown_batches",), emits={"GatherND": with_attributes(batch_dims=0)}
    ),
    Mutation("the axis is the file's", "GATHER", ("GATHER-an_unknown_batch",), sees={"axis": the_files_axis}),
    # images and blocks
    Mutation(
        "flags change places",
        "RESIZE_BILINEAR",
        ("RESIZE_BILINEAR-float32_half_pixel_centers_to_1x1",),
        patches={"op_handlers.resize:coordinates": coordinates("half_pixel", "align_corners", "asymmetric")},
    ),
    Mutation(
        "no flag is half_pixel",
        "RESIZE_BILINEAR",
        ("RESIZE_BILINEAR-float32_legacy_to_4x9",),
        patches={"op_handlers.resize:coordinates": coordinates("align_corners", "half_pixel", "half_pixel")},
    ),
    Mutation(
        "height and width stay in the file's place",
        "RESIZE_BILINEAR",
        ("RESIZE_BILINEAR-float32_align_corners_to_3x2",),
        sees={"by_axis": lambda ctx, held, slot=0: list(held)},
    ),
    Mutation(
        "half pixels are rounded to the floor",
        "RESIZE_NEAREST_NEIGHBOR",
        ("RESIZE_NEAREST_NEIGHBOR-half_pixel_centers_int8_of_many_pixels_to_an_odd_size_between_convolutions",),
        patches={"op_handlers.resize:nearest": round_prefer_floor},
    ),
    Mutation(
        "align_corners rounds halves to even",
        "RESIZE_NEAREST_NEIGHBOR",
        ("RESIZE_NEAREST_NEIGHBOR-align_corners_to_4x9",),
        patches={"op_handlers.resize:nearest": half_even},
    ),
    Mutation(
        "8 bits are placed as floats are",
        "RESIZE_NEAREST_NEIGHBOR",
        ("RESIZE_NEAREST_NEIGHBOR-legacy_int8_2_to_82_columns",),
        patches={"op_handlers.resize:in_fixed_point": returning(False)},
    ),
    Mutation(
        "columns of depth first",
        "DEPTH_TO_SPACE",
        ("DEPTH_TO_SPACE-float32_by_3_between_convolutions",),
        emits={"DepthToSpace": with_attributes(mode="CRD")},
    ),
    Mutation(
        "columns of depth first in the file's order",
        "DEPTH_TO_SPACE",
        ("DEPTH_TO_SPACE-of_one_pixel_between_convolutions",),
        patches={f"{BLOCKS}:rearranged": _crd},
    ),
    Mutation(
        "channels before places",
        "SPACE_TO_DEPTH",
        ("SPACE_TO_DEPTH-float32_by_3_between_convolutions",),
        patches={f"{BLOCKS}:rearranged": _crd_back, f"{BLOCKS}:channels_first": returning(False)},
    ),
    Mutation(
        "the batch comes before the place in a block",
        "SPACE_TO_BATCH_ND",
        ("SPACE_TO_BATCH_ND-int8_without_padding",),
        patches={f"{BLOCKS}:words": one_table_of_words("n hp wq c", "npq h w c")},
    ),
    Mutation(
        "columns of a block first",
        "BATCH_TO_SPACE_ND",
        ("BATCH_TO_SPACE_ND-int16_without_crops",),
        patches={f"{BLOCKS}:words": one_table_of_words("n hp wq c", "qpn h w c")},
    ),
    Mutation(
        "integers are padded with 0",
        "SPACE_TO_BATCH_ND",
        ("SPACE_TO_BATCH_ND-uint8_by_2x3",),
        patches={f"{BLOCKS}:zero": returning_zero},
    ),
    # products
    Mutation(
        "adj_x is not looked at", "BATCH_MATMUL", ("BATCH_MATMUL-square_adj_x",), fields={"axes": _adjoint(True, False)}
    ),
    Mutation(
        "adj_y is not looked at", "BATCH_MATMUL", ("BATCH_MATMUL-square_adj_y",), fields={"axes": _adjoint(False, True)}
    ),
    Mutation(
        "zero points count in int32",
        "BATCH_MATMUL",
        ("BATCH_MATMUL-int8_by_constants_to_int32",),
        patches={"op_handlers.matrix:added": _own_zero_point},
    ),
    Mutation(
        "the last axis is the row",
        "FULLY_CONNECTED",
        ("FULLY_CONNECTED-rank_3,_a_row_across_axes",),
        emits={"Reshape": left_out},
    ),
    # conversions
    Mutation(
        "wraps instead of saturating",
        "CAST",
        ("CAST-float64_to_int8",),
        patches={"op_handlers.conversion:cut": handing_on(1)},
    ),
    Mutation("NaN is the least", "CAST", ("CAST-float64_to_int8",), emits={"Where": _second_first}),
    Mutation(
        "8 bits of the same scale pass through",
        "QUANTIZE",
        ("QUANTIZE-int8_to_uint8_of_the_same_scale",),
        fields={"lower": _bytes},
    ),
    # control flow and state
    Mutation(
        "the condition is asked after the first step",
        "WHILE",
        ("WHILE-uint8,_a_running_sum",),
        emits={"Loop": _at_least_once},
    ),
    Mutation(
        "the initial value is zero",
        "CALL_ONCE",
        ("CALL_ONCE-a_variable_that_is_only_read",),
        patches={
            "onnx_tflite_plugin.lowering.state:constant_of": lambda original: (
                lambda value: np.zeros_like(original(value))
            )
        },
    ),
    Mutation(
        "the value of the start of the run",
        "READ_VARIABLE",
        ("READ_VARIABLE-before_and_after_an_assignment",),
        fields={"lower": _at_the_start},
    ),
    Mutation(
        "the container is not part of the name",
        "VAR_HANDLE",
        ("VAR_HANDLE-one_name_in_two_containers",),
        fields={"effects": Effects(names=_short_name)},
        patches={"op_handlers.variables:variable_key": lambda _: _short_name},
    ),
    # weights of 4 and 2 bits
    *(
        Mutation("the first element is in the highest bits", cases[0].partition("-")[0], cases, patches=HIGH_BITS_FIRST)
        for cases in (
            (
                "FULLY_CONNECTED-float32_by_int4_rows_of_13_with_a_scale_each",
                "FULLY_CONNECTED-int8_by_int2_rows_of_13_with_one_scale",
                "FULLY_CONNECTED-int16_by_int4_rows_of_13_with_one_scale",
                "FULLY_CONNECTED-three_blocks_of_32",
                "FULLY_CONNECTED-three_blocks_of_32,_folded",
            ),
            (
                "CONV_2D-float32_by_int4_with_one_scale",
                "CONV_2D-int8_by_int4_with_a_scale_each",
                "CONV_2D-int16_by_int4_in_three_groups",
            ),
            ("DEPTHWISE_CONV_2D-int8_by_int4_with_a_scale_each",),
            (
                "EMBEDDING_LOOKUP-int4_to_float32_with_one_scale",
                "EMBEDDING_LOOKUP-int2_to_float16_with_a_scale_each",
                "EMBEDDING_LOOKUP-int2_to_float32_in_blocks_of_4",
            ),
        )
    ),
    Mutation(
        "every row begins with a byte",
        "FULLY_CONNECTED",
        (
            "FULLY_CONNECTED-float32_by_int4_rows_of_13_with_one_scale",
            "FULLY_CONNECTED-int8_by_int4_rows_of_13_with_a_scale_each",
            "FULLY_CONNECTED-float32_by_int2_rows_of_13_with_a_scale_each",
        ),
        patches={"onnx_tflite_plugin.source.data:Stored._unpacked": _rows_at_bytes},
    ),
    *(
        Mutation(trap, cases[0].partition("-")[0], cases, patches={f"{MODEL}:BlockwiseQuantization.flat": change})
        for trap, change in (
            ("blocks count down the columns", _down_the_columns),
            ("a row has one scale", _one_a_row),
            (
                "scales are bfloat16",
                lambda _: lambda self: self.scales.array.view(bfloat16).astype(np.float32).reshape(-1),
            ),
        )
        for cases in (
            (
                "FULLY_CONNECTED-three_blocks_of_32",
                "FULLY_CONNECTED-three_blocks_of_32,_folded",
                "FULLY_CONNECTED-blocks_of_11,_which_end_within_a_byte",
                "FULLY_CONNECTED-blocks_of_96,_which_are_three_of_32",
            ),
            (
                "EMBEDDING_LOOKUP-int4_to_float32_in_blocks_of_4",
                "EMBEDDING_LOOKUP-int4_to_float32_in_blocks,_folded",
            ),
        )
    ),
    Mutation(
        "blocks are cut as the columns are",
        "FULLY_CONNECTED",
        ("FULLY_CONNECTED-blocks_after_a_flatten",),
        fields={
            "layout": Terminate(unordered="k"),
            "axes": "n k, o k, o -> n o",
            "lower": lambda ctx, x, w, b=None: ctx.ops.Gemm(x, w, b, transB=1),
        },
        patches={"onnx_tflite_plugin.lowering.values:cut": returning(False)},
    ),
    Mutation(
        "unsigned bytes are what the file says",
        "EMBEDDING_LOOKUP",
        ("EMBEDDING_LOOKUP-uint8_to_float32,_which_the_kernel_reads_as_int8",),
        patches={
            "op_handlers.indexing:by_row": lambda original: (
                lambda op: (op[1].array.astype(np.int16), original(op)[1]) if op[1].dtype == "uint8" else original(op)
            )
        },
    ),
    Mutation(
        "one scale for the table",
        "EMBEDDING_LOOKUP",
        ("EMBEDDING_LOOKUP-int8_to_float32_with_a_scale_each", "EMBEDDING_LOOKUP-int4_to_float32_in_rows_of_two_axes"),
        patches={
            "op_handlers.indexing:by_row": lambda original: (
                lambda op: (original(op)[0], np.full_like(original(op)[1], original(op)[1].reshape(-1)[0]))
            )
        },
    ),
)
