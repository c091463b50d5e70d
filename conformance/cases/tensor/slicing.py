"""Operators that cut, pad and join: axes, masks and zero points."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from conformance.case import EVERY_OPSET, Case
from conformance.models import (
    BOTH,
    Net,
    Placed,
    Spec,
    alone,
    between_convolutions,
    constant,
    drawn,
    filled,
    net,
    tensor,
)

IMAGE = (2, 5, 7, 3)
REAL = ("float32", "int8", "uint8", "int16")


def cases() -> Iterator[Case]:
    yield from concatenations()
    yield from splits()
    yield from pads()
    yield from slices()
    yield from runtime_slices()


def opsets(dtype: str) -> tuple[int | None, ...]:
    return (None, 26) if dtype == "int16" else EVERY_OPSET


# --- CONCATENATION ----------------------------------------------------------------------------


def joined(
    name: str, parts: Sequence[Spec], axis: int, place: Placed = alone, y: Spec | None = None, **case: Any
) -> Case:
    first = parts[0]
    shape = list(first.shape)
    shape[axis] = sum(part.shape[axis] or 0 for part in parts)
    options = {"axis": axis, **case.pop("options", {})}
    return place(
        "CONCATENATION",
        name,
        parts,
        (y or Spec(first.shape, first.dtype, first.scale, first.zero_point)).shaped(*shape),
        options=options,
        **case,
    )


def concatenations() -> Iterator[Case]:
    for axis in (0, 1, 2, 3, -1, -2, -3, -4):
        shape = list(IMAGE)
        shape[axis] += 1
        x = tensor(*IMAGE)
        yield joined(f"float32 axis {axis}", [x, x.shaped(*shape)], axis, BOTH[1])
    for dtype in (*REAL, "float16", "int32", "int64", "uint32", "bool"):
        x = tensor(*IMAGE, dtype=dtype)
        yield joined(dtype, [x, x.shaped(2, 5, 7, 4), x], 3, opsets=opsets(dtype))
    for dtype in REAL:
        x = tensor(*IMAGE, dtype=dtype)
        yield joined(f"{dtype} along channels", [x, x.shaped(2, 5, 7, 4)], -1, BOTH[1])
        yield joined(f"{dtype} with a constant", [x, filled(x.shaped(2, 5, 2, 3))], 2, BOTH[1])
        yield joined(f"{dtype}, a constant first", [filled(x.shaped(2, 5, 7, 2)), x], 3, BOTH[1])
    x = tensor(*IMAGE, dtype="uint8")
    parts = [x, x.scaled(0.5, 3), x.scaled(2.0, 200)]
    for place in BOTH:
        yield joined("uint8 of different scales, which are requantized", parts, 3, place, x.scaled(1.3, 90))
    y = tensor(*IMAGE, dtype="int8")
    yield joined("int8 of different scales", [y, y.scaled(2)], 3, kernel_refuses="params.scale")
    options = {"fused_activation_function": "RELU"}
    yield joined("a fused activation", [tensor(*IMAGE)], 3, options=options, kernel_refuses="kTfLiteActNone")
    yield joined("one operand", [tensor(*IMAGE)], 3)
    yield joined("an operand without elements", [tensor(2, 0, 3), tensor(2, 5, 3)], 1)
    yield joined("rank 1", [tensor(3), tensor(5)], 0)
    yield joined("rank 5", [tensor(2, 3, 1, 5, 7), tensor(2, 3, 4, 5, 7)], 2)
    yield net("CONCATENATION", "one image twice", doubled, transposes=2)


def doubled(model: Net) -> None:
    image = model.plumbed(tensor(*IMAGE))
    model.output(model.drained(model.call("CONCATENATION", [image, image], tensor(2, 5, 7, 6), axis=-1)))


# --- SPLIT ------------------------------------------------------------------------------------


def split(name: str, x: Spec, axis: int, parts: int, place: Placed = alone, **case: Any) -> Case:
    shape = list(x.shape)
    shape[axis] = (shape[axis] or 0) // parts
    outputs = [x.shaped(*shape) for _ in range(parts)]
    held = case.pop("held", constant(axis))
    return place("SPLIT", name, [held, x], *outputs, options={"num_splits": parts}, **{"dtype": x.dtype, **case})


def splits() -> Iterator[Case]:
    image = (2, 6, 10, 9)
    for axis, parts in ((0, 2), (1, 3), (2, 5), (3, 3), (-1, 3), (-2, 2), (-3, 2), (-4, 2)):
        yield split(f"float32 axis {axis}", tensor(*image), axis, parts, BOTH[1])
    for dtype in (*REAL, "float16", "int32", "int64"):
        yield split(dtype, tensor(*image, dtype=dtype), 3, 3, opsets=opsets(dtype))
    for dtype in ("int8", "uint8", "int16"):
        yield split(f"{dtype} axis -1", tensor(*image, dtype=dtype), -1, 3, BOTH[1])
    yield split("into one", tensor(*image), 2, 1)
    yield split("an axis in a list", tensor(*image), 1, 2, held=constant([1]))
    yield split("rank 1", tensor(6), 0, 3)
    yield alone(
        "SPLIT",
        "an axis known as it runs",
        [tensor(dtype="int32"), tensor(*image)],
        tensor(2, 6, 10, 3),
        tensor(2, 6, 10, 3),
        tensor(2, 6, 10, 3),
        options={"num_splits": 3},
        refused="must be a constant",
    )


# --- PAD --------------------------------------------------------------------------------------

ROWS = [[0, 1], [2, 0], [1, 3], [0, 2]]


def pad(
    name: str,
    x: Spec,
    rows: Sequence[Sequence[int]],
    place: Placed = alone,
    y: Spec | None = None,
    kind: str = "int32",
    **case: Any,
) -> Case:
    shape = [(size or 0) + sum(row) for size, row in zip(x.shape, rows, strict=True)]
    held = constant(np.asarray(rows, kind).reshape(-1, 2))
    return place("PAD", name, [x, held], (y or x).shaped(*shape), **{"dtype": x.dtype, **case})


def pads() -> Iterator[Case]:
    """Integers are padded with the zero point, which is the real zero."""
    for dtype in (*REAL, "float16", "int32", "int64", "bool"):
        x = tensor(*IMAGE, dtype=dtype)
        # ONNX Runtime has no Pad of int16, which the generic target is right to emit.
        runs: dict[str, Any] = {"targets": ("onnxruntime",)} if dtype == "int16" else {}
        yield pad(dtype, x, ROWS, opsets=opsets(dtype), **runs)
        if dtype in REAL:
            yield pad(dtype, x, ROWS, BOTH[1], **runs)
            yield pad(f"{dtype}, height and width", x, [[0, 0], [1, 2], [2, 1], [0, 0]], BOTH[1], **runs)
    for dtype in ("int8", "uint8"):
        x = tensor(*IMAGE, dtype=dtype)
        yield pad(f"{dtype} to another zero point, which is what it pads with", x, ROWS, y=x.scaled(1.0, 40))
    yield pad("int64 paddings", tensor(*IMAGE), ROWS, BOTH[1], kind="int64")
    yield pad("nothing to pad", tensor(*IMAGE), [[0, 0]] * 4, BOTH[1])
    for shape in ((5,), (3, 5), (2, 3, 5), (2, 3, 5, 2, 3)):
        yield pad(f"rank {len(shape)}", tensor(*shape), [[i, 2 - i % 3] for i in range(len(shape))])
    rows = tensor(4, 2, dtype="int32", name="rows")
    for dtype in ("float32", "int8", "uint8"):
        x = tensor(*IMAGE, dtype=dtype)
        made = x.shaped(3, 7, 11, 5)
        for place in BOTH:
            given = {
                "rows": np.asarray(ROWS, np.int32)
            }  # they are turned from pairs to befores and afters: a Transpose, but of 8 numbers
            yield place("PAD", f"{dtype}, paddings known as it runs", [x, rows], made, given=given, transposes=3)
    steps = [{"rows": np.asarray(rows, np.int32)} for rows in (ROWS, [[1, 0], [0, 0], [0, 2], [3, 1]])]
    yield alone("PAD", "a result of unknown size", [tensor(*IMAGE), rows], tensor(None, None, None, None), given=steps)
    yield net("PAD", "in front of a convolution", padded_convolution, transposes=2)


def padded_convolution(model: Net) -> None:
    image = tensor(2, 8, 10, 3, dtype="int8")
    x = model.call("PAD", [tensor(*IMAGE, dtype="int8"), constant([[0, 0], [1, 2], [2, 1], [0, 0]])], image)
    w = constant(drawn(4, 3, 3, 3, dtype="int8"), None, drawn(4, low=0.002, high=0.01).tolist())
    b = constant(np.zeros(4), "int32", 0.001)
    made = tensor(2, 3, 4, 4, dtype="int8", scale=1.7, zero_point=4)
    model.output(model.call("CONV_2D", [x, w, b], made, padding="VALID", stride_h=2, stride_w=2))


# --- STRIDED_SLICE ----------------------------------------------------------------------------


def masks(index: Any) -> tuple[list[int], list[int], list[int], dict[str, int]]:
    """numpy's index as begin, end, strides and masks."""
    items = index if isinstance(index, tuple) else (index,)
    begin, end, strides = ([0] * len(items) for _ in range(3))
    found = dict.fromkeys(("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask"), 0)
    for i, item in enumerate(items):
        strides[i] = 1
        if item is Ellipsis:
            found["ellipsis_mask"] |= 1 << i
        elif item is None:
            found["new_axis_mask"] |= 1 << i
        elif isinstance(item, int):
            begin[i], end[i] = item, item + 1
            found["shrink_axis_mask"] |= 1 << i
        else:
            begin[i], end[i], strides[i] = item.start or 0, item.stop or 0, item.step or 1
            found["begin_mask"] |= (item.start is None) << i
            found["end_mask"] |= (item.stop is None) << i
    return begin, end, strides, found


def sliced(name: str, index: Any, x: Spec | None = None, place: Placed = alone, **case: Any) -> Case:
    x = x or tensor(*IMAGE)
    *bounds, found = masks(index)
    shape = np.zeros([size or 0 for size in x.shape], np.int8)[index].shape
    return place(
        "STRIDED_SLICE",
        name,
        [x, *map(constant, bounds)],
        x.shaped(*shape),
        options=found,
        **{"dtype": x.dtype, **case},
    )


def slices() -> Iterator[Case]:
    s = np.s_
    whole = {
        "begin and end": s[0:1, 1:4, 2:7, 1:3],
        "every other": s[:, ::2, 1::3, :],
        "backwards": s[:, ::-1, ::-2, ::-1],
        "backwards from and to": s[:, 3:0:-1, -2:1:-2, :],
        "from the end": s[:, -3:-1, -5:, -2:],
        "out of range": s[-9:9, 2:99, -99:4, :],
        "fewer entries than axes": s[1:, 2:4],
        "an ellipsis": s[..., 1:3],
        "an ellipsis in the middle": s[1:, ..., ::2],
        "backwards from out of range": s[:, 99::-1, :, :],
        "nothing but the batch": s[1:2],
        "a step beyond the size": s[:, ::99, 1::99, :],
    }
    for name, index in whole.items():
        yield sliced(f"float32 {name}", index, place=BOTH[1])
        yield sliced(f"int8 {name}", index, tensor(*IMAGE, dtype="int8"))
    changed = {
        "one row": s[:, 2],
        "one pixel": s[0, 1, 2],
        "one channel": s[..., -1],
        "one channel of a row": s[:, 3, :, 0],
        "a new axis in front": s[None],
        "a new axis inside": s[:, None, 1:3, ..., None],
        "a new axis and one row": s[:, None, 2, ::-1],
        "everything gone": s[1, 2, 3, 1],
        "from the end, gone": s[-1, ..., -2, :],
    }
    for name, index in changed.items():
        yield sliced(f"float32 {name}", index)
        yield sliced(f"float32 {name}", index, place=BOTH[1], transposes=None)
    yield sliced("a new axis that makes an image again", s[:, 2, None], place=BOTH[1])
    yield sliced("a row that makes an image again", s[:, :, 1, None, ::-1], place=BOTH[1])
    for dtype in (*REAL, "float16", "int32", "int64", "bool", "string"):
        yield sliced(
            f"{dtype} every kind", s[1, 4:1:-2, ..., None, ::2], tensor(*IMAGE, dtype=dtype), opsets=opsets(dtype)
        )
    for dtype in ("uint8", "int16"):
        yield sliced(f"{dtype} backwards", s[:, ::-1, 1:-1:2, :], tensor(*IMAGE, dtype=dtype), BOTH[1])
    yield sliced("rank 1", s[-2:0:-3], tensor(11))
    yield sliced("rank 5", s[:, 1, ..., ::-1, None], tensor(2, 3, 5, 2, 7))
    yield sliced("empty, backwards from before the first", s[-99::-1], tensor(5))
    yield sliced("empty, begin behind end", s[4:2], tensor(5))
    yield sliced("empty, forwards from behind the last", s[9:12], tensor(5))
    yield sliced("a size of 0", s[:, ::-1], tensor(0, 3))
    yield raw(
        "a new axis and an ellipsis in one entry: the ellipsis wins",
        [0, 1],
        [0, 3],
        [1, 1],
        IMAGE,
        (2, 5, 7, 2),
        ellipsis_mask=1,
        new_axis_mask=1,
    )
    yield raw(
        "a row whose end and stride are not looked at", [2], [-7], [3], (4, 5, 7, 3), (5, 7, 3), shrink_axis_mask=1
    )
    yield raw("masks that cover what is given", [3, 3], [1, 1], [1, 1], (5, 7), (5, 7), begin_mask=3, end_mask=3)
    yield raw(
        "a masked begin of a row", [2, 0], [3, 0], [1, 1], (5, 7), (7,), begin_mask=3, end_mask=2, shrink_axis_mask=1
    )
    yield raw("an index before the first, which the kernel moves", [-9], [0], [1], (4, 7), (7,), shrink_axis_mask=1)
    yield raw("ends that count from the begins", [1, 2], [3, 4], [1, 2], (5, 7), (3, 2), offset=True)
    yield raw(
        "ends that count from begins that count from the end", [-3, -6], [2, 4], [1, 2], (5, 7), (2, 2), offset=True
    )
    yield raw(
        "an ellipsis that stands for one axis at least",
        [0, 1, 0, 2, 9],
        [0, 9, 0, 3, 9],
        [1] * 5,
        IMAGE,
        (2, 4, 7, 1),
        begin_mask=1,
        end_mask=1,
        ellipsis_mask=4,
    )
    yield raw("strides known as it runs", [0, 0], [5, 7], None, (5, 7), (5, 7), refused="must be a constant")


def raw(
    name: str,
    begin: Sequence[int],
    end: Sequence[int],
    strides: Sequence[int] | None,
    shape: Sequence[int],
    made: Sequence[int],
    *,
    refused: str = "",
    **options: Any,
) -> Case:
    x = tensor(*shape)
    held = tensor(len(begin), dtype="int32") if strides is None else constant(list(strides))
    return alone(
        "STRIDED_SLICE",
        name,
        [x, constant(list(begin)), constant(list(end)), held],
        tensor(*made),
        options=options,
        refused=refused,
    )


def runtime_slices() -> Iterator[Case]:
    """Begin and end are computed; strides and masks are in the file."""

    def runtime(
        name: str, indices: Sequence[Any], x: Spec, made: Sequence[int | None], place: Placed = alone, **case: Any
    ) -> Case:
        _, _, strides, found = masks(indices[0])
        steps = []
        for index in indices:
            begin, end, *_ = masks(index)
            steps.append({"begin": np.array(begin, np.int32), "end": np.array(end, np.int32)})
        sides = [tensor(len(strides), dtype="int32", name=side) for side in ("begin", "end")]
        operands = [x, *sides, constant(strides)]
        return place(
            "STRIDED_SLICE",
            f"{name}, known as it runs",
            operands,
            x.shaped(*made),
            options=found,
            given=steps,
            **{"dtype": x.dtype, **case},
        )

    s = np.s_
    image = tensor(*IMAGE)
    yield runtime(
        "begin and end", [s[0:1, 1:4, 2:6, 1:3], s[1:2, 0:3, -5:-1, -2:99]], image, (1, 3, 4, 2), opsets=EVERY_OPSET
    )
    yield runtime("begin and end", [s[0:1, 1:4, 2:6, 1:3], s[1:2, 0:3, -5:-1, -2:99]], image, (1, 3, 4, 2), BOTH[1])
    yield runtime("masked", [s[:, 1:4, :6, 1:], s[:, 0:3, :-1, -2:]], image, (2, 3, 6, 2), BOTH[1])
    yield runtime(
        "int8, masked", [s[:, 1:4, :6, 1:], s[:, 0:3, :-1, -2:]], tensor(*IMAGE, dtype="int8"), (2, 3, 6, 2), BOTH[1]
    )
    yield runtime("backwards", [s[4:1:-1, ::-1], s[3:0:-1, ::-1], s[99:-4:-1, ::-1]], tensor(5, 7), (3, 7))
    yield runtime("one row", [s[2], s[0], s[-1]], tensor(5, 7), (7,))
    yield runtime("one row", [s[:, 2], s[:, 0], s[:, -1]], image, (2, 7, 3), BOTH[1])
    yield runtime("of unknown size", [s[1:4], s[0:1], s[-99:99]], tensor(5, 7), (None, 7))
    yield runtime("an ellipsis", [s[..., 1:3], s[..., 0:2]], image, (2, 5, 7, 2), BOTH[1])
    # LiteRT's Python interface cannot hand out a result that turns out to be empty.
    nothing: dict[str, Any] = {"reference": lambda arrays: [np.zeros(0, np.float32)]}
    yield runtime("nothing", [s[3:2], s[9:12], s[-1:1]], tensor(5), (None,), **nothing)
    clamps = "ONNX's Slice takes a start before the first element for the first; TFLite takes nothing"
    yield runtime("backwards from before the first", [s[-99:-100:-1]], tensor(5), (None,), known=clamps, **nothing)
    dynamic = [{"x0": drawn(n, 7)} for n in (3, 5)]
    options = {"begin_mask": 1, "end_mask": 1}
    operands = [tensor(None, 7), constant([0, 1]), constant([0, -1]), constant([2, 1])]
    yield alone("STRIDED_SLICE", "an input of unknown size", operands, tensor(None, 5), options=options, given=dynamic)
    operands = [tensor(None, 7), constant([-2, 1]), constant([-1, -1]), constant([1, 1])]
    yield alone("STRIDED_SLICE", "from the end of an unknown size", operands, tensor(1, 5), given=dynamic)
    yield between_convolutions(
        "STRIDED_SLICE",
        "a static image",
        [image, *map(constant, masks(s[:, 1:, ::2])[:3])],
        tensor(2, 4, 4, 3),
        options=masks(s[:, 1:, ::2])[3],
    )
