"""Operators that put in, stack, take apart, repeat and cut axes: each axis from both ends, operands as it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from conformance.builder import TensorRef
from conformance.case import EVERY_OPSET, Case
from conformance.models import BOTH, Net, Placed, Spec, alone, constant, drawn, filled, net, tensor
from onnx_tflite_plugin.verify import Tolerance

IMAGE = (2, 5, 7, 3)
AXES = (0, 1, 2, 3, -1, -2, -3, -4)
REAL = ("float32", "int8", "uint8", "int16")
TEXT = {"x0": np.array([[b"a", b"bc", b""], [b"d", b"e", b"fgh"]], object)}
READ_BACK: dict[str, Any] = {
    "tolerance": Tolerance(real=1e-6),
    "why": "dequantized, for neither runtime hands int4 out",
}


def cases() -> Iterator[Case]:
    yield from put_in()
    yield from stacks()
    yield from taken_apart()
    yield from repetitions()
    yield from pieces()
    yield from runtime_pieces()
    yield from parts()
    yield from runtime_parts()


def opsets(dtype: str) -> tuple[int | None, ...]:
    return (None, 26) if dtype == "int16" else EVERY_OPSET


def without(shape: Sequence[int], axis: int) -> tuple[int, ...]:
    at = axis % len(shape)
    return (*shape[:at], *shape[at + 1 :])


def given(**arrays: Any) -> dict[str, Any]:
    return {name: np.asarray(array, np.int32) for name, array in arrays.items()}


# --- EXPAND_DIMS ------------------------------------------------------------------------------


def expanded(name: str, x: Spec, axis: int, kind: str = "int32", **case: Any) -> Case:
    at = axis % (len(x.shape) + 1)
    shape = (*x.shape[:at], 1, *x.shape[at:])
    return alone("EXPAND_DIMS", name, [x, constant(np.asarray(axis, kind))], replace(x, name="").shaped(*shape), **case)


def put_in() -> Iterator[Case]:
    """A negative axis counts from the end of the result, which is one longer."""
    for axis in (*AXES, 4, -5):
        yield expanded(f"axis {axis}", tensor(*IMAGE), axis)
        yield net(
            "EXPAND_DIMS", f"axis {axis} and back between convolutions", there_and_back(axis, "float32"), transposes=2
        )
    for dtype in REAL:
        x = tensor(*IMAGE, dtype=dtype)
        yield expanded(dtype, x, -2, opsets=opsets(dtype))
        yield net("EXPAND_DIMS", f"{dtype} between convolutions", there_and_back(1, dtype), dtype=dtype, transposes=2)
    for dtype in ("int32", "int64", "bool"):
        yield expanded(dtype, tensor(5, 3, dtype=dtype), 1)
    yield expanded("text", tensor(2, 3, dtype="string"), 1, given=TEXT)
    yield expanded("int64 axis", tensor(5, 3), -1, kind="int64")
    yield expanded("a scalar", tensor(), 0)
    yield expanded("unknown sizes", tensor(None, None, 3), -3, given=[{"x0": drawn(n, 5, 3)} for n in (1, 4)])
    place = tensor(dtype="int32", name="axis")
    for shape in ((5, 3, 1), (1, 5, 3)):
        at = given(axis=shape.index(1) - 3)
        yield alone(
            "EXPAND_DIMS", f"an axis known as it runs, to {shape}", [tensor(5, 3), place], tensor(*shape), given=at
        )
    x = tensor(5, 3, dtype="int8")
    yield alone(
        "EXPAND_DIMS",
        "int8 to another scale",
        [x, constant(0)],
        x.scaled(2.0).shaped(1, 5, 3),
        kernel_refuses="params.scale",
    )


def there_and_back(axis: int, dtype: str) -> Callable[[Net], None]:
    def draw(model: Net) -> None:
        x = tensor(*IMAGE, dtype=dtype)
        at = axis % 5
        more = x.shaped(*IMAGE[:at], 1, *IMAGE[at:])
        wide = model.call("EXPAND_DIMS", [model.plumbed(x), constant(axis)], more)
        kept = model.call("RELU", [wide], more)
        model.output(model.drained(model.call("SQUEEZE", [kept], x, squeeze_dims=(at,))))

    return draw


# --- PACK, UNPACK -----------------------------------------------------------------------------


def packed(name: str, parts: Sequence[Spec], axis: int, **case: Any) -> Case:
    shape, at = parts[0].shape, axis % (len(parts[0].shape) + 1)
    y = replace(parts[0], value=None, name="").shaped(*shape[:at], len(parts), *shape[at:])
    return alone("PACK", name, parts, y, options={"axis": axis, "values_count": len(parts)}, **case)


def stacks() -> Iterator[Case]:
    """A negative axis counts from the end of the result, which is one longer."""
    for axis in (*AXES, 4, -5):
        yield packed(f"axis {axis}", [tensor(*IMAGE), tensor(*IMAGE)], axis)
        yield net("PACK", f"axis {axis} between convolutions", swapped(axis, "float32"), transposes=4)
    for dtype in REAL:
        x = tensor(*IMAGE, dtype=dtype)
        yield packed(dtype, [x, x, x], -2, opsets=opsets(dtype))
        yield packed(f"{dtype} with a constant", [x, filled(x)], 2, dtype=dtype)
        yield net("PACK", f"{dtype} between convolutions", swapped(2, dtype), dtype=dtype, transposes=4)
    for dtype in ("int32", "int64"):
        yield packed(dtype, [tensor(5, 3, dtype=dtype)] * 2, 1)
    yield packed("one operand", [tensor(5, 3)], 1)
    yield packed("scalars", [tensor(), tensor(), tensor()], 0)
    yield packed(
        "unknown sizes", [tensor(None, None)] * 2, 1, given=[{"x0": drawn(n, 3), "x1": drawn(n, 3)} for n in (1, 4)]
    )
    yield packed("bool", [tensor(5, dtype="bool")] * 2, 0, kernel_refuses="not supported by pack")
    x = tensor(5, dtype="int8")
    refuses = "params.zero_point"
    yield packed("int8 of different zero points", [x, x.scaled(1, 40)], 0, kernel_refuses=refuses)


def swapped(axis: int, dtype: str) -> Callable[[Net], None]:
    """Two images are stacked, worked on, taken apart and given in the other order."""

    def draw(model: Net) -> None:
        x = tensor(*IMAGE, dtype=dtype)
        at = axis % 5
        more = x.shaped(*IMAGE[:at], 2, *IMAGE[at:])
        stack = model.call("PACK", [model.plumbed(x), model.plumbed(x)], more, axis=axis, values_count=2)
        kept = model.call("RELU", [stack], more)
        first, second = apart(model, kept, [x, x], axis)
        model.output(model.drained(second), model.drained(first))

    return draw


def apart(model: Net, x: TensorRef, parts: Sequence[Spec], axis: int) -> list[TensorRef]:
    made = [model.result(spec) for spec in parts]
    model.graph.operator("UNPACK", [x], made, {"axis": axis, "num": len(parts)})
    return made


def unpacked(name: str, x: Spec, axis: int, **case: Any) -> Case:
    shape = [size or 0 for size in x.shape]
    n = shape[axis]
    parts = [replace(x, name="").shaped(*without(shape, axis))] * n
    return alone("UNPACK", name, [x], *parts, options={"axis": axis, "num": n}, **case)


def taken_apart() -> Iterator[Case]:
    for axis in AXES:
        yield unpacked(f"axis {axis}", tensor(*IMAGE), axis)
        yield net(
            "UNPACK",
            f"axis {axis} and stacked between convolutions",
            reversed_along(axis, axis, "float32"),
            transposes=2,
        )
    for dtype in REAL:
        yield unpacked(dtype, tensor(*IMAGE, dtype=dtype), 2, opsets=opsets(dtype))
        yield net("UNPACK", f"{dtype} between convolutions", reversed_along(1, 1, dtype), dtype=dtype, transposes=2)
    for dtype in ("int32", "bool"):
        yield unpacked(dtype, tensor(5, 3, dtype=dtype), 1)
    yield net("UNPACK", "rows that become columns between convolutions", reversed_along(1, 2, "float32"))
    for axis in (1, 3):
        yield net("UNPACK", f"all axes of one size, along axis {axis}", cube_apart(axis))
    yield unpacked("one part", tensor(5, 1, 3), 1)
    yield unpacked("scalars", tensor(4), 0)
    x = tensor(*IMAGE, dtype="int8")
    made, options = [x.scaled(2).shaped(2, 5, 7)] * 3, {"axis": 3, "num": 3}
    yield alone("UNPACK", "int8 to another scale", [x], *made, options=options, kernel_refuses="params.scale")

    def unused(model: Net) -> None:
        x = model.plumbed(tensor(*IMAGE))
        model.output(apart(model, x, [tensor(2, 7, 3)] * 5, 1)[3])

    yield net("UNPACK", "parts that nobody uses", unused)


def cube_apart(axis: int) -> Callable[[Net], None]:
    """The first slice of an image that comes from a convolution; along another axis it has the same shape."""

    def draw(model: Net) -> None:
        x = tensor(3, 3, 3, 3)
        model.output(apart(model, model.plumbed(x), [x.shaped(3, 3, 3)] * 3, axis)[0])

    return draw


def reversed_along(axis: int, other: int, dtype: str) -> Callable[[Net], None]:
    """An image is cut into slices, which are stacked the other way round."""

    def draw(model: Net) -> None:
        x = tensor(*IMAGE, dtype=dtype)
        n = IMAGE[axis]
        part = without(IMAGE, axis)
        at = other % 4
        parts = apart(model, model.plumbed(x), [x.shaped(*part)] * n, axis)
        stack = model.call("PACK", parts[::-1], x.shaped(*part[:at], n, *part[at:]), axis=other, values_count=n)
        model.output(model.drained(stack))

    return draw


# --- TILE -------------------------------------------------------------------------------------


def tiled(name: str, x: Spec, times: Sequence[int], place: Placed = alone, kind: str = "int32", **case: Any) -> Case:
    shape = [(size or 0) * k for size, k in zip(x.shape, times, strict=True)]
    return place(
        "TILE",
        name,
        [x, constant(np.asarray(times, kind))],
        replace(x, name="").shaped(*shape),
        **{"dtype": x.dtype, **case},
    )


def repetitions() -> Iterator[Case]:
    for dtype in REAL:
        for place in BOTH:
            yield tiled(dtype, tensor(*IMAGE, dtype=dtype), (1, 2, 3, 4), place, opsets=opsets(dtype))
    for axis in range(4):
        yield tiled(f"axis {axis}", tensor(*IMAGE), [3 if k == axis else 1 for k in range(4)], BOTH[1])
    for dtype in ("int32", "int64", "bool"):
        yield tiled(dtype, tensor(5, 3, dtype=dtype), (2, 3))
    yield tiled("text", tensor(2, 3, dtype="string"), (2, 1), given=TEXT)
    yield tiled("int64 multiples", tensor(*IMAGE), (2, 1, 2, 1), BOTH[1], kind="int64")
    yield tiled("nothing repeated", tensor(*IMAGE), (1, 1, 1, 1), BOTH[1])
    yield tiled("nothing left", tensor(5, 3), (2, 0))
    for shape in ((3,), (3, 1, 5), (2, 3, 1, 5, 2), (2, 1, 3, 1, 2, 1)):
        yield tiled(f"rank {len(shape)}", tensor(*shape), [1 + k % 3 for k in range(len(shape))])
    x, y = tensor(*IMAGE, dtype="int8"), tensor(2, 10, 7, 3, dtype="int8")
    for place in BOTH:
        yield place(
            "TILE", "int8 to other parameters, which the kernel ignores", [x, constant([1, 2, 1, 1])], y.scaled(2, 7)
        )
    times = tensor(4, dtype="int32", name="times")
    for dtype in ("float32", "int8"):
        for place in BOTH:
            x, y = tensor(*IMAGE, dtype=dtype), tensor(2, 10, 21, 12, dtype=dtype)
            yield place("TILE", f"{dtype}, multiples known as it runs", [x, times], y, given=given(times=(1, 2, 3, 4)))
    steps = [given(times=held) for held in ((1, 2, 3, 4), (2, 1, 1, 3))]
    yield alone(
        "TILE", "a result of unknown size", [tensor(*IMAGE), times], tensor(None, None, None, None), given=steps
    )


# --- SLICE ------------------------------------------------------------------------------------


def piece(
    name: str,
    x: Spec,
    begin: Sequence[int],
    size: Sequence[int],
    place: Placed = alone,
    kind: str = "int32",
    **case: Any,
) -> Case:
    made = [(n or 0) - b if s == -1 else s for n, b, s in zip(x.shape, begin, size, strict=True)]
    held = [constant(np.asarray(numbers, kind)) for numbers in (begin, size)]
    return place("SLICE", name, [x, *held], replace(x, name="").shaped(*made), **{"dtype": x.dtype, **case})


def pieces() -> Iterator[Case]:
    """A size of -1 reaches to the end, wherever the begin is."""
    for dtype in REAL:
        for place in BOTH:
            yield piece(dtype, tensor(*IMAGE, dtype=dtype), (1, 0, 2, 1), (1, 4, -1, -1), place, opsets=opsets(dtype))
    for axis in range(4):
        begin, size = [int(k == axis) for k in range(4)], [1 if k == axis else -1 for k in range(4)]
        yield piece(f"axis {axis}", tensor(*IMAGE), begin, size, BOTH[1])
    for dtype in ("int32", "int64", "bool"):
        yield piece(dtype, tensor(5, 3, dtype=dtype), (1, 1), (3, -1))
    yield piece("int64 operands", tensor(*IMAGE), (1, 0, 2, 1), (1, 4, -1, 2), BOTH[1], kind="int64")
    yield piece("all axes of one size", tensor(4, 4, 4, 4), (0, 1, 2, 0), (2, 2, 2, 2), BOTH[1])
    yield piece("everything", tensor(*IMAGE), (0, 0, 0, 0), (2, -1, 7, -1), BOTH[1])
    yield piece("nothing", tensor(5, 3), (2, 0), (0, -1))
    for shape in ((5,), (3, 5, 2), (2, 3, 2, 5, 2), (2, 3, 2, 3, 2, 3)):
        yield piece(
            f"rank {len(shape)}", tensor(*shape), [1] * len(shape), [-1 if k % 2 else 1 for k in range(len(shape))]
        )
    yield net("SLICE", "int4", narrow, dtype="int4", opsets=(None, 26), **READ_BACK)
    yield piece("text", tensor(2, 3, dtype="string"), (1, 0), (1, 2), given=TEXT)
    x, y = tensor(*IMAGE, dtype="int8"), tensor(2, 3, 7, 3, dtype="int8")
    held = [constant([0, 1, 0, 0]), constant([2, 3, 7, 3])]
    yield alone("SLICE", "int8 to other parameters, which the builtin kernel ignores", [x, *held], y.scaled(1, 40))
    unknown = [tensor(None, 5, 3), constant([0, 1, 1]), constant([-1, 3, -1])]
    yield alone(
        "SLICE", "an unknown batch", unknown, tensor(None, 3, 2), given=[{"x0": drawn(n, 5, 3)} for n in (1, 4)]
    )


def narrow(model: Net) -> None:
    stored = model.call("QUANTIZE", [tensor(5, 6)], Spec((5, 6), "int4", 0.3, 2))
    part = model.call("SLICE", [stored, constant([1, 2]), constant([3, -1])], Spec((3, 4), "int4", 0.3, 2))
    model.output(model.call("DEQUANTIZE", [part], tensor(3, 4)))


def runtime_pieces() -> Iterator[Case]:
    begin, size = tensor(4, dtype="int32", name="begin"), tensor(4, dtype="int32", name="size")
    held = given(begin=(1, 0, 2, 1), size=(1, 4, -1, 2))
    for dtype in ("float32", "int8", "uint8"):
        x, y = tensor(*IMAGE, dtype=dtype), tensor(1, 4, 5, 2, dtype=dtype)
        for place in BOTH:
            yield place("SLICE", f"{dtype}, begin and size known as it runs", [x, begin, size], y, given=held)
            fixed = [x, begin, constant([1, 4, 5, 2])]
            yield place("SLICE", f"{dtype}, begin known as it runs", fixed, y, given={"begin": held["begin"]})
            fixed = [x, constant([1, 0, 2, 1]), size]
            yield place("SLICE", f"{dtype}, size known as it runs", fixed, y, given={"size": held["size"]})
    steps = [held, given(begin=(0, 4, 0, 0), size=(-1, 1, 7, -1))]
    yield alone(
        "SLICE", "a result of unknown size", [tensor(*IMAGE), begin, size], tensor(None, None, None, None), given=steps
    )


# --- SPLIT_V ----------------------------------------------------------------------------------


def split(
    name: str, x: Spec, sizes: Sequence[int], axis: int, place: Placed = alone, kind: str = "int32", **case: Any
) -> Case:
    shape = [size or 0 for size in x.shape]
    whole = [shape[axis] - sum(sizes) - 1 if size == -1 else size for size in sizes]
    parts = []
    for size in whole:
        shape[axis] = size
        parts.append(replace(x, name="").shaped(*shape))
    operands = [x, constant(np.asarray(sizes, kind)), constant(axis)]
    return place("SPLIT_V", name, operands, *parts, options={"num_splits": len(sizes)}, **{"dtype": x.dtype, **case})


def parts() -> Iterator[Case]:
    """Sizes differ; one may be -1, which is the rest."""
    for dtype in REAL:
        for place in BOTH:
            yield split(dtype, tensor(*IMAGE, dtype=dtype), (2, 4, 1), 2, place, opsets=opsets(dtype))
    for axis in AXES:
        yield split(f"axis {axis}", tensor(*IMAGE), (1, IMAGE[axis] - 1), axis, BOTH[1])
    for k in range(3):
        sizes = [-1 if i == k else size for i, size in enumerate((1, 4, 2))]
        yield split(f"the rest is part {k}", tensor(*IMAGE), sizes, -2, BOTH[1])
    for dtype in ("int32", "int64"):
        yield split(dtype, tensor(5, 3, dtype=dtype), (1, 2), 1)
    yield split("int64 sizes", tensor(*IMAGE), (2, -1), 1, BOTH[1], kind="int64")
    yield split("one part", tensor(*IMAGE), (5,), 1)
    yield split("a part of nothing", tensor(5, 3), (3, 0, 2), 0)
    yield split("a rest of nothing", tensor(5, 3), (3, -1, 2), 0)
    yield split("rank 1", tensor(7), (3, 4), 0)
    yield split("rank 5", tensor(2, 3, 1, 5, 7), (1, 4), 3)


def runtime_parts() -> Iterator[Case]:
    sizes = tensor(3, dtype="int32", name="sizes")
    made = [tensor(2, None, 3) for _ in range(3)]
    options = {"num_splits": 3}
    for held in ((1, 4, 2), (1, -1, 2)):
        operands = [tensor(2, 7, 3), sizes, constant(1)]
        yield alone(
            "SPLIT_V", f"sizes {held} known as it runs", operands, *made, options=options, given=given(sizes=held)
        )
    operands = [tensor(2, None, 3), constant([1, -1, 2]), constant(-2)]
    steps = [{"x0": drawn(2, n, 3)} for n in (7, 9)]
    yield alone("SPLIT_V", "the rest of an unknown size", operands, *made, options=options, given=steps)
    axis = tensor(dtype="int32", name="axis")
    operands = [tensor(2, 7, 3), constant([1, 4, 2]), axis]
    refused = "must be a constant"
    yield alone(
        "SPLIT_V", "an axis known as it runs", operands, *made, options=options, given=given(axis=1), refused=refused
    )
