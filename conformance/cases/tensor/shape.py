"""RESHAPE, SQUEEZE, EXPAND_DIMS, SHAPE and RANK, whose axes depend on the layout."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from conformance.case import EVERY_OPSET, Case
from conformance.copies import Copy, copy_cases, refused_copy_cases
from conformance.models import (
    Net,
    Placement,
    Spec,
    between_convolutions,
    constant,
    in_isolation,
    int32_arrays,
    net,
    opsets,
    random_array,
    tensor,
    unary,
)

IMAGE = (2, 5, 7, 3)
AXES = (0, 1, 2, 3, -1, -2, -3, -4)
FLOAT_OR_QUANTIZED = ("float32", "int8", "uint8", "int16")
TEXT = {"x0": np.array([[b"a", b"bc", b""], [b"d", b"e", b"fgh"]], object)}


def cases() -> Iterator[Case]:
    yield from reshape_cases()
    yield from squeeze_cases()
    yield from expand_dims_cases()
    yield from shape_cases()
    yield from quantized_copy_cases()
    yield from rank_cases()


DTYPES = ("float32", "float16", "int8", "uint8", "int16", "int32", "int64", "uint32", "bool", "string")


# --- RESHAPE ----------------------------------------------------------------------------------


def reshape_case(
    name: str,
    before: Sequence[int],
    after: Sequence[int],
    dtype: str = "float32",
    place: Placement = in_isolation,
    **case_fields: Any,
) -> Case:
    x = tensor(*before, dtype=dtype)
    return place("RESHAPE", name, [x, constant(np.asarray(after, np.int32))], x.with_shape(*after), **case_fields)


def reshape_cases() -> Iterator[Case]:
    for dtype in DTYPES:
        yield reshape_case(dtype, IMAGE, (2, 105), dtype, opsets=EVERY_OPSET if dtype != "int16" else (None, 26))
    for after in ((2, 105), (10, 21), (70, 3), (210,), (2, 35, 3), (2, 5, 21), (1, 2, 5, 7, 3), (6, 35)):
        for dtype in ("float32", "int8"):
            yield reshape_case(f"{dtype} to {after}", IMAGE, after, dtype, between_convolutions)
    # No permutation of axes gives these images: a row takes elements of several rows.
    images = (
        ((2, 5, 7, 3), (2, 7, 5, 3)),
        ((2, 6, 10, 3), (2, 15, 4, 3)),
        ((2, 4, 6, 3), (2, 8, 3, 3)),
        ((1, 5, 7, 6), (5, 7, 2, 3)),
        ((2, 5, 6, 3), (2, 5, 18, 1)),
        ((2, 5, 1, 3), (2, 1, 5, 3)),
        ((1, 4, 6, 3), (2, 2, 6, 3)),
        ((2, 5, 7, 3), (1, 10, 7, 3)),
    )
    for before, reshaped in images:
        yield reshape_case(f"{before} to {reshaped}", before, reshaped, place=between_convolutions, max_transposes=None)
    for shape in ((), (1,), (1, 1, 1)):
        yield reshape_case(f"one element to rank {len(shape)}", (1, 1), shape)
    yield reshape_case("no elements", (2, 0, 3), (0, 6))
    yield reshape_case("no elements, size 0 stays 0", (0, 3), (3, 0, 7))
    x = tensor(*IMAGE)
    yield in_isolation("RESHAPE", "inferred dimension", [x, constant([2, -1, 7])], tensor(2, 15, 7))
    yield in_isolation("RESHAPE", "shape in the options", [x], tensor(2, 105), options={"new_shape": [2, 105]})
    yield in_isolation(
        "RESHAPE",
        "ignored shape operand of rank 0",
        [x, constant([[2, 105]])],
        tensor(10, 21),
        options={"new_shape": [10, 21]},
    )
    yield in_isolation(
        "RESHAPE",
        "shape operand overrides the options",
        [x, constant([2, 105])],
        tensor(2, 105),
        options={"new_shape": [10, 21]},
    )
    yield in_isolation("RESHAPE", "legacy scalar shape", [tensor(1)], tensor(), options={"new_shape": [0]})
    for dtype in ("float32", "int64"):
        no_shape = tensor(2, dtype=dtype, scale=0)
        yield in_isolation(
            "RESHAPE",
            f"ignored shape operand of {dtype}",
            [tensor(5, 7), no_shape],
            tensor(35),
            options={"new_shape": [35]},
        )
    yield in_isolation(
        "RESHAPE",
        "dynamic batch",
        [tensor(None, 5, 7), constant([-1, 35])],
        tensor(None, 35),
        input_arrays=[{"x0": random_array(n, 5, 7)} for n in (1, 3)],
    )
    yield from runtime_shape_cases()
    yield net("RESHAPE", "channel shuffle between convolutions", channel_shuffle, max_transposes=3)
    yield net(
        "RESHAPE",
        "constant",
        lambda model: model.output(
            model.call(
                "ADD",
                [tensor(7, 3), model.call("RESHAPE", [constant(random_array(21)), constant([7, 3])], tensor(7, 3))],
                tensor(7, 3),
            )
        ),
    )


def runtime_shape_cases() -> Iterator[Case]:
    """Yield cases of runtime shapes.

    The file stores at most the rank of the result.
    """
    x = tensor(2, 15)
    shape = tensor(2, dtype="int32", name="shape")
    runs = [{"shape": np.array(shape, np.int32)} for shape in ([5, 6], [3, 10], [30, 1], [-1, 2])]
    yield in_isolation(
        "RESHAPE", "runtime shape", [x, shape], tensor(None, None), input_arrays=runs, opsets=EVERY_OPSET
    )
    yield in_isolation(
        "RESHAPE",
        "int8, runtime shape",
        [tensor(2, 15, dtype="int8"), shape],
        tensor(None, None, dtype="int8"),
        input_arrays=runs,
    )
    operands = [tensor(None, None, 5), constant([6, 4, -1])]
    yield in_isolation(
        "RESHAPE",
        "result without a stored shape",
        operands,
        tensor(None, None, None),
        input_arrays={"x0": random_array(3, 8, 5)},
        dynamic_sizes=(),
    )
    yield in_isolation(
        "RESHAPE",
        "runtime shape, one dynamic dimension of the result",
        [x, shape],
        tensor(None, 6),
        input_arrays={"shape": np.array([5, 6], np.int32)},
    )

    def reshape_image(model: Net) -> None:
        image = model.input_through_conv(tensor(*IMAGE))
        y = model.call("RESHAPE", [image, tensor(3, dtype="int32", name="shape")], tensor(None, None, None))
        model.output(y)

    runs = [{"shape": np.array(shape, np.int32)} for shape in ([5, 6, 7], [2, 3, 35])]
    yield net("RESHAPE", "image, runtime shape", reshape_image, input_arrays=runs)


def channel_shuffle(model: Net) -> None:
    """Build the channel shuffle of ShuffleNet, which swaps two axes of the channels."""
    image = tensor(2, 5, 7, 6)
    split = model.call("RESHAPE", [model.input_through_conv(image), constant([2, 5, 7, 2, 3])], tensor(2, 5, 7, 2, 3))
    transposed = model.call("TRANSPOSE", [split, constant([0, 1, 2, 4, 3])], tensor(2, 5, 7, 3, 2))
    model.output(model.output_through_conv(model.call("RESHAPE", [transposed, constant([2, 5, 7, 6])], image)))


# --- SQUEEZE ----------------------------------------------------------------------------------


def squeeze_cases() -> Iterator[Case]:
    def squeeze(
        name: str,
        before: Sequence[int | None],
        dims: Sequence[int],
        after: Sequence[int | None],
        dtype: str = "float32",
        place: Placement = in_isolation,
        **case_fields: Any,
    ) -> Case:
        x = tensor(*before, dtype=dtype)
        return place("SQUEEZE", name, [x], x.with_shape(*after), options={"squeeze_dims": list(dims)}, **case_fields)

    for dtype in DTYPES:
        yield squeeze(
            dtype, (1, 5, 1, 3), [2], (1, 5, 3), dtype, opsets=EVERY_OPSET if dtype != "int16" else (None, 26)
        )
    for name, dims, after in (
        ("all axes of size 1", [], (5, 3)),
        ("one axis", [2], (1, 5, 3)),
        ("negative axis", [-2], (1, 5, 3)),
        ("two axes", [0, -2], (5, 3)),
    ):
        for dtype in ("float32", "int8"):
            yield squeeze(f"{dtype} {name}", (1, 5, 1, 3), dims, after, dtype, between_convolutions)
    yield squeeze("pooled image", (2, 1, 1, 3), [1, 2], (2, 3), place=between_convolutions, max_transposes=1)
    yield squeeze("no axis dropped", (2, 5, 7, 3), [], (2, 5, 7, 3), place=between_convolutions)
    yield squeeze("scalar result", (1, 1), [], ())
    yield squeeze("image result", (2, 5, 1, 7, 3), [2], IMAGE)
    input_arrays = [{"x0": random_array(n, 1, m, 3)} for n, m in ((1, 5), (7, 2))]
    yield squeeze("dynamic shape", (None, 1, None, 3), [1], (None, None, 3), input_arrays=input_arrays)
    yield squeeze(
        "dynamic shape without a stored result shape",
        (None, 1, None, 3),
        [-3],
        (None, None, None),
        input_arrays=input_arrays,
    )
    dynamic_sizes_message = "some sizes are dynamic"
    yield squeeze(
        "fully dynamic shape",
        (None, 1, 3),
        [],
        (None, 3),
        input_arrays={"x0": random_array(7, 1, 3)},
        refusal=dynamic_sizes_message,
    )


# --- EXPAND_DIMS ------------------------------------------------------------------------------


def expand_dims_case(name: str, x: Spec, axis: int, axis_dtype: str = "int32", **case_fields: Any) -> Case:
    axis_index = axis % (len(x.shape) + 1)
    shape = (*x.shape[:axis_index], 1, *x.shape[axis_index:])
    return in_isolation(
        "EXPAND_DIMS",
        name,
        [x, constant(np.asarray(axis, axis_dtype))],
        replace(x, name="").with_shape(*shape),
        **case_fields,
    )


def expand_dims_cases() -> Iterator[Case]:
    """Yield cases of EXPAND_DIMS. A negative axis counts from the end of the result."""
    for axis in (*AXES, 4, -5):
        yield expand_dims_case(f"axis {axis}", tensor(*IMAGE), axis)
        yield net(
            "EXPAND_DIMS",
            f"axis {axis} and back between convolutions",
            expand_and_squeeze(axis, "float32"),
            max_transposes=2,
        )
    for dtype in FLOAT_OR_QUANTIZED:
        x = tensor(*IMAGE, dtype=dtype)
        yield expand_dims_case(dtype, x, -2, opsets=opsets(dtype))
        yield net(
            "EXPAND_DIMS", f"{dtype} between convolutions", expand_and_squeeze(1, dtype), dtype=dtype, max_transposes=2
        )
    for dtype in ("int32", "int64", "bool"):
        yield expand_dims_case(dtype, tensor(5, 3, dtype=dtype), 1)
    yield expand_dims_case("string", tensor(2, 3, dtype="string"), 1, input_arrays=TEXT)
    yield expand_dims_case("int64 axis", tensor(5, 3), -1, axis_dtype="int64")
    yield expand_dims_case("scalar", tensor(), 0)
    yield expand_dims_case(
        "dynamic shape", tensor(None, None, 3), -3, input_arrays=[{"x0": random_array(n, 5, 3)} for n in (1, 4)]
    )
    axis_operand = tensor(dtype="int32", name="axis")
    for shape in ((5, 3, 1), (1, 5, 3)):
        axis_arrays = int32_arrays(axis=shape.index(1) - 3)
        yield in_isolation(
            "EXPAND_DIMS",
            f"runtime axis, to {shape}",
            [tensor(5, 3), axis_operand],
            tensor(*shape),
            input_arrays=axis_arrays,
        )
    x = tensor(5, 3, dtype="int8")
    yield in_isolation(
        "EXPAND_DIMS",
        "int8 to a different scale",
        [x, constant(0)],
        x.rescale(2.0).with_shape(1, 5, 3),
        kernel_refusal="params.scale",
    )


def expand_and_squeeze(axis: int, dtype: str) -> Callable[[Net], None]:
    """Return a build function: EXPAND_DIMS, RELU and SQUEEZE, between convolutions."""

    def build(model: Net) -> None:
        x = tensor(*IMAGE, dtype=dtype)
        axis_index = axis % 5
        expanded_spec = x.with_shape(*IMAGE[:axis_index], 1, *IMAGE[axis_index:])
        expanded = model.call("EXPAND_DIMS", [model.input_through_conv(x), constant(axis)], expanded_spec)
        activated = model.call("RELU", [expanded], expanded_spec)
        model.output(model.output_through_conv(model.call("SQUEEZE", [activated], x, squeeze_dims=(axis_index,))))

    return build


# --- SHAPE ------------------------------------------------------------------------------------


def shape_cases() -> Iterator[Case]:
    """Yield cases of SHAPE, also of an image that is channels first in ONNX."""
    for dtype in ("int8", "uint8", "int16", "int32", "int64", "bool"):
        x, y = tensor(*IMAGE, dtype=dtype), tensor(4, dtype="int32")
        yield unary("SHAPE", f"static, {dtype} input", x, y, options={"out_type": "INT32"})
    for dtype in ("int32", "int64"):
        y = tensor(4, dtype=dtype)
        options = {"out_type": dtype.upper()}
        yield unary("SHAPE", f"static, {dtype}", tensor(*IMAGE), y, options=options)
        yield net("SHAPE", f"static, {dtype}, image between convolutions", shape_model(IMAGE, dtype), max_transposes=2)
        runs = [{"x0": random_array(n, h, w, 3)} for n, h, w in ((1, 5, 7), (3, 2, 11))]
        yield unary(
            "SHAPE",
            f"dynamic, {dtype}",
            tensor(None, None, None, 3),
            y,
            options=options,
            input_arrays=runs,
            opsets=EVERY_OPSET,
        )
        runs = [{"x0": random_array(n, h, w, 5)} for n, h, w in ((1, 5, 7), (3, 2, 11))]
        yield net(
            "SHAPE",
            f"dynamic, {dtype}, image between convolutions",
            shape_model((None, None, None, 3), dtype),
            input_arrays=runs,
            max_transposes=2,
        )
    empty_result: dict[str, Any] = {
        "reference": lambda arrays: [np.zeros(0, np.int32)]
    }  # LiteRT's Python interface cannot return it
    yield unary("SHAPE", "scalar", tensor(), tensor(0, dtype="int32"), options={"out_type": "INT32"}, **empty_result)
    yield unary("SHAPE", "int8", tensor(*IMAGE, dtype="int8"), tensor(4, dtype="int32"), options={"out_type": "INT32"})
    yield between_convolutions(
        "SHAPE",
        "int8 image",
        [tensor(*IMAGE, dtype="int8")],
        tensor(4, dtype="int32"),
        options={"out_type": "INT32"},
    )
    yield net(
        "SHAPE",
        "shape operand of a RESHAPE",
        reshape_like_input,
        input_arrays=[{"x0": random_array(n, 3, 7, 3), "other": random_array(n, 63)} for n in (1, 4)],
    )


def shape_model(shape: Sequence[int | None], dtype: str) -> Any:
    """Return a builder of the shape of an image between two convolutions."""

    def build(model: Net) -> None:
        image = model.input_through_conv(tensor(*shape))
        sizes = model.call("SHAPE", [image], tensor(4, dtype=dtype), out_type=dtype.upper())
        model.output(model.output_through_conv(image), sizes)

    return build


def reshape_like_input(model: Net) -> None:
    """Build a RESHAPE whose shape operand is the runtime shape of another input."""
    image = model.input(tensor(None, 3, 7, 3))
    sizes = model.call("SHAPE", [image], tensor(4, dtype="int32"), out_type="INT32")
    model.output(model.call("RESHAPE", [tensor(None, 63, name="other"), sizes], tensor(None, 3, 7, 3)))


def quantized_copy_cases() -> Iterator[Case]:
    yield from copy_cases("RESHAPE", Copy([(2, 35, 3)], [constant([2, 35, 3])]))
    yield from copy_cases("SQUEEZE", Copy([(2, 7, 3)], input_shape=(2, 1, 7, 3), options={"squeeze_dims": [1]}))
    yield from refused_copy_cases("EXPAND_DIMS", Copy([(2, 5, 1, 7, 3)], [constant(2)]))


def rank_cases() -> Iterator[Case]:
    """Yield cases of RANK, which becomes a constant."""
    for dtype in ("float32", "int8", "uint8", "int16", "int32", "int64", "bool", "string"):
        for shape in ((), (7,), (2, 0, 3), IMAGE):
            yield unary("RANK", f"{dtype} of shape {list(shape)}", tensor(*shape, dtype=dtype), tensor(dtype="int32"))
    yield unary(
        "RANK",
        "dynamic shape",
        tensor(None, None, 3),
        tensor(dtype="int32"),
        input_arrays={"x0": random_array(2, 5, 3)},
    )

    def last_axis_of_image(model: Net) -> None:
        image = model.input_through_conv(tensor(*IMAGE))
        last_axis = model.call(
            "SUB", [model.call("RANK", [image], tensor(dtype="int32")), constant(1)], tensor(dtype="int32")
        )
        model.output(model.output_through_conv(image), last_axis)

    yield net("RANK", "image between convolutions", last_axis_of_image, max_transposes=2)
