"""GATHER along every axis, GATHER_ND, WHERE, and rows of EMBEDDING_LOOKUP's tables, which may be of 8, 4 or 2 bits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from conformance.case import EVERY_OPSET, Case
from conformance.models import (
    PLACEMENTS,
    Net,
    Placement,
    Spec,
    constant,
    in_isolation,
    net,
    opsets,
    random_array,
    tensor,
)
from conformance.weights import block_weights, fold_weights, scales, weight
from onnx_tflite_plugin.verify import Tolerance

IMAGE = (2, 5, 7, 3)
AXES = (0, 1, 2, 3, -1, -2, -3, -4)
REAL = ("float32", "int8", "uint8", "int16")
READ_BACK: dict[str, Any] = {
    "tolerance": Tolerance(of_range=1e-6),
    "tolerance_reason": "dequantized, for neither runtime hands int4 out",
}


def cases() -> Iterator[Case]:
    yield from axis_cases()
    yield from dtype_cases()
    yield from batch_cases()
    yield from scalar_index_cases()
    yield from corner_cases()
    yield from gather_nd_cases()
    yield from where_cases()
    yield from table_cases()
    yield from blockwise_table_cases()
    yield from refused_table_cases()


def gather_case(
    name: str,
    x: Spec,
    shape: Sequence[int],
    axis: int,
    shared: int = 0,
    place: Placement = in_isolation,
    kind: str = "int32",
    fixed: bool = True,
    **case: Any,
) -> Case:
    """Return a case with random indices of ``shape``: a constant if ``fixed``, else a runtime value."""
    size, at = x.shape[axis] or 1, axis % len(x.shape)
    first = shared % (len(shape) + 1) if shared >= 0 else shared + len(shape)
    numbers = random_array(*shape, dtype="int32", seed=name, low=0, high=size - 1).astype(kind)
    indices = constant(numbers) if fixed else tensor(*shape, dtype=kind, scale=0, name="places")
    y = replace(x, value=None, name="").with_shape(*x.shape[:at], *shape[first:], *x.shape[at + 1 :])
    inputs = {} if fixed else {"input_arrays": {"places": numbers}}
    options = {"axis": axis, "batch_dims": shared}
    return place("GATHER", name, [x, indices], y, options=options, **{"dtype": x.dtype, **inputs, **case})


def axis_cases() -> Iterator[Case]:
    for axis in AXES:
        for fixed in (True, False):
            text = "" if fixed else ", known at runtime"
            yield gather_case(
                f"four along axis {axis}{text}", tensor(*IMAGE), (4,), axis, place=PLACEMENTS[1], fixed=fixed
            )
        for shape in ((), (2, 3), (2, 1, 3)):
            yield gather_case(f"{shape} along axis {axis}", tensor(*IMAGE), shape, axis)
    for shape in ((), (2, 3)):
        yield gather_case(
            f"{shape} along the channels between convolutions", tensor(*IMAGE), shape, 3, place=PLACEMENTS[1]
        )
        yield gather_case(f"{shape}, known at runtime", tensor(*IMAGE), shape, 1, fixed=False)
    yield gather_case("all elements", tensor(*IMAGE), (3,), 3, place=PLACEMENTS[1])
    for axis in (1, 3):
        yield gather_case(f"equal dimensions, along axis {axis}", tensor(3, 3, 3, 3), (3,), axis, place=PLACEMENTS[1])
    yield gather_case("many pixels, channels first for speed", tensor(1, 32, 32, 16), (16,), 3, place=PLACEMENTS[1])


def dtype_cases() -> Iterator[Case]:
    for dtype in REAL:
        x = tensor(*IMAGE, dtype=dtype)
        for place in PLACEMENTS:
            yield gather_case(dtype, x, (4,), 2, place=place, opsets=opsets(dtype))
        yield gather_case(
            f"{dtype} from a table", replace(x, value=random_array(*IMAGE, dtype=dtype)), (2, 4), 0, fixed=False
        )
    for dtype in ("int32", "int64", "bool", "float16"):
        yield gather_case(dtype, tensor(5, 3, dtype=dtype), (4,), 0)
    for kind in ("int16", "int64"):
        for fixed in (True, False):
            text = "constant" if fixed else "running"
            yield gather_case(
                f"{kind} {text} indices", tensor(*IMAGE), (4,), 1, place=PLACEMENTS[1], kind=kind, fixed=fixed
            )
            yield gather_case(f"{kind} {text} indices of batches", tensor(*IMAGE), (2, 4), 1, 1, kind=kind, fixed=fixed)
    rows = {"places": np.array([1, 6, 0, 6], np.int32)}
    yield net(
        "GATHER",
        "int4 from a table",
        from_narrow_table,
        dtype="int4",
        opsets=(None, 26),
        input_arrays=rows,
        **READ_BACK,
    )
    texts = np.array([b"", b"a", b"bc", b"d", b"efg"], object)
    operands, z = [tensor(5, dtype="string"), constant([3, 1])], tensor(2, dtype="string")
    yield in_isolation("GATHER", "text", operands, z, options={"axis": 0}, input_arrays={"x0": texts})
    x = tensor(*IMAGE, dtype="int8")
    y = x.rescale(2, 17).with_shape(2, 2, 7, 3)
    for place in PLACEMENTS:
        yield place(
            "GATHER",
            "int8 to different quantization parameters, which the kernel ignores",
            [x, constant([4, 0])],
            y,
            options={"axis": 1},
        )


def from_narrow_table(model: Net) -> None:
    table = constant(random_array(7, 6, dtype="int4"), None, 0.2, 1)
    row = Spec((4, 6), "int4", 0.2, 1)
    rows = model.call("GATHER", [table, tensor(4, dtype="int32", name="places")], row, axis=0)
    model.output(model.call("DEQUANTIZE", [rows], tensor(4, 6)))


def batch_cases() -> Iterator[Case]:
    """Yield gathered axes after axes that are no batch; indices may have only batch axes."""
    x = tensor(*IMAGE)
    for axis in (1, 2, 3, -1):
        for shape in ((2,), (2, 4), (2, 4, 3)):
            yield gather_case(f"one batch axis, {shape} along axis {axis}", x, shape, axis, 1)
    for axis in (2, 3):
        yield gather_case(f"two batch axes along axis {axis}", x, (2, 5, 4), axis, 2)
    yield gather_case("three batch axes", x, (2, 5, 7, 2), 3, 3)
    yield gather_case("batch axes counted from the indices' last", x, (2, 5, 4), 2, -1)
    for fixed in (True, False):
        for axis in (1, 3):
            name = f"one batch axis, {'constant' if fixed else 'runtime'} indices along axis {axis}"
            yield gather_case(name, x, (2, 4), axis, 1, PLACEMENTS[1], fixed=fixed, max_transposes=4)
    for dtype in ("int8", "uint8", "int16", "int32", "bool"):
        yield gather_case(f"{dtype} of one batch axis", tensor(*IMAGE, dtype=dtype), (2, 4), 2, 1, opsets=opsets(dtype))


def scalar_index_cases() -> Iterator[Case]:
    """Yield scalar indices, which remove an axis; the others keep their layout between convolutions."""

    def gather_between_convolutions(axis: int, dtype: str) -> Callable[[Net], None]:
        def row(model: Net) -> None:
            x = tensor(*IMAGE, dtype=dtype)
            rest = (*IMAGE[:axis], *IMAGE[axis + 1 :])
            part = model.call("GATHER", [model.input_through_conv(x), constant(1)], x.with_shape(*rest), axis=axis)
            shape = (*rest[:axis], 1, *rest[axis:])
            model.output(
                model.output_through_conv(model.call("EXPAND_DIMS", [part, constant(axis)], x.with_shape(*shape)))
            )

        return row

    for axis in range(4):
        for dtype in ("float32", "int8"):
            yield net(
                "GATHER",
                f"{dtype}, one along axis {axis} between convolutions",
                gather_between_convolutions(axis, dtype),
                dtype=dtype,
                max_transposes=2,
            )


def corner_cases() -> Iterator[Case]:
    yield gather_case("one index of rank 1", tensor(5), (), 0)
    yield gather_case("rank 6", tensor(2, 3, 2, 2, 3, 2), (4,), 4)
    yield gather_case("empty", tensor(5, 3), (0,), 0)
    runs = [{"x0": random_array(n, 5, 3)} for n in (1, 4)]
    unknown = tensor(None, 5, 3)
    yield in_isolation(
        "GATHER",
        "dynamic batch",
        [unknown, constant([4, 0, 2])],
        unknown.with_shape(None, 3, 3),
        options={"axis": 1},
        input_arrays=runs,
    )
    options = {"axis": 1, "batch_dims": 1}
    runs = [{"x0": random_array(n, 5, 3), "places": random_array(n, 2, dtype="int32", low=0, high=4)} for n in (1, 4)]
    places = tensor(None, 2, dtype="int32", name="places")
    yield in_isolation(
        "GATHER",
        "dynamic batches",
        [unknown, places],
        unknown.with_shape(None, 2, 3),
        options=options,
        input_arrays=runs,
    )
    refuses = "indices_has_only_positive_elements"
    yield in_isolation(
        "GATHER",
        "negative index",
        [tensor(5, 3), constant([-1])],
        tensor(1, 3),
        options={"axis": 0},
        kernel_refusal=refuses,
    )


# --- GATHER_ND --------------------------------------------------------------------------------


def gather_nd_case(
    name: str,
    rows: Sequence[int],
    depth: int,
    dtype: str = "float32",
    kind: str = "int32",
    fixed: bool = True,
    place: Placement = in_isolation,
    **case: Any,
) -> Case:
    """Return a case with ``rows`` indices of the first ``depth`` axes: a constant if ``fixed``, else a runtime value."""
    x = tensor(*IMAGE, dtype=dtype)
    each = [random_array(*rows, 1, dtype="int32", seed=f"{axis}", low=0, high=IMAGE[axis] - 1) for axis in range(depth)]
    numbers = np.concatenate(each, axis=-1).astype(kind)
    places = constant(numbers) if fixed else tensor(*numbers.shape, dtype=kind, scale=0, name="places")
    y = replace(x, name="").with_shape(*rows, *IMAGE[depth:])
    inputs = {} if fixed else {"input_arrays": {"places": numbers}}
    return place("GATHER_ND", name, [x, places], y, **{"dtype": dtype, **inputs, **case})


def gather_nd_cases() -> Iterator[Case]:
    for depth in (1, 2, 3, 4):
        yield gather_nd_case(f"the first {depth} axes", (11,), depth, opsets=EVERY_OPSET)
        yield gather_nd_case(f"indices of rank 3, {depth} axes", (3, 2), depth)
    yield gather_nd_case("indices of rank 3, 2 axes", (3, 2), 2, place=PLACEMENTS[-1], max_transposes=4)
    for dtype in ("int8", "uint8", "int16", "int32", "int64", "bool", "string"):
        yield gather_nd_case(dtype, (11,), 2, dtype=dtype)
    for kind in ("int16", "int64"):
        yield gather_nd_case(f"{kind} indices", (11,), 3, kind=kind)
        yield gather_nd_case(f"{kind} indices known at runtime", (11,), 3, kind=kind, fixed=False)
    yield gather_nd_case("int32 indices known at runtime", (11,), 2, fixed=False)


# --- WHERE ------------------------------------------------------------------------------------


def where_cases() -> Iterator[Case]:
    for dtype in ("bool", "float32", "int32", "int64", "uint32", "int8", "uint8"):
        for shape in ((13,), (5, 7), (2, 5, 7, 3)):
            array = random_array(*shape, dtype="int32", seed="held", low=0, high=2).astype(dtype)
            x = tensor(*shape, dtype=dtype, scale=0, name="held")
            y = tensor(None, len(shape), dtype="int64")
            tested_opsets = EVERY_OPSET if shape == (5, 7) and dtype == "float32" else (None,)
            yield in_isolation(
                "WHERE",
                f"{dtype} of rank {len(shape)}",
                [x],
                y,
                dtype=dtype,
                input_arrays={"held": array},
                opsets=tested_opsets,
            )
    x, none = tensor(5, 7, dtype="bool", name="held"), np.zeros((5, 7), bool)
    y, refuses = tensor(None, 2, dtype="int64"), "Invalid tensor size"
    yield in_isolation("WHERE", "nowhere", [x], y, dtype="bool", input_arrays={"held": none}, kernel_refusal=refuses)


DENSE, LOOKUP = "FULLY_CONNECTED", "EMBEDDING_LOOKUP"


# --- rows of a table --------------------------------------------------------------------------


PLACES = {"ids": np.array([6, 1, 0, 1, 2], np.int32)}


def embedding_case(name: str, table: Spec, wide: str = "", **case: Any) -> Case:
    """Return a lookup of five rows in a table of seven, stored or dequantized (``wide``)."""
    y = replace(table, value=None).with_shape(5, *table.shape[1:])
    places = tensor(5, dtype="int32", scale=0, name="ids")
    operands = [places, table]
    return in_isolation(
        LOOKUP,
        name,
        operands,
        Spec(y.shape, wide) if wide else y,
        **{"dtype": table.dtype, "input_arrays": PLACES, **case},
    )


def table_cases() -> Iterator[Case]:
    for dtype in ("float32", "float16", "int32"):
        yield embedding_case(f"{dtype} table", constant(random_array(7, 11, dtype=dtype)))
    for dtype in ("int8", "uint8"):
        yield embedding_case(f"{dtype} table", constant(random_array(7, 11, dtype=dtype), None, 0.3, 4))
    yield embedding_case("table as a graph input", tensor(7, 11, name="table"))
    yield embedding_case("rows of two axes", constant(random_array(7, 5, 3)))
    places = tensor(None, dtype="int32", scale=0, name="ids")
    some = [{"ids": np.arange(n, dtype=np.int32)} for n in (3, 1)]
    yield in_isolation(
        LOOKUP,
        "dynamic number of rows",
        [places, weight((7, 12), "int4", 0)],
        tensor(None, 12),
        dtype="int4",
        input_arrays=some,
    )
    for dtype in ("int8", "int4", "int2"):
        for per_axis in (False, True):
            for wide in ("float32", "float16"):
                yield embedding_case(
                    f"{dtype} to {wide} {scales(per_axis)}", weight((7, 12), dtype, 0 if per_axis else None), wide
                )
        yield embedding_case(f"{dtype} to float32 in rows of two axes", weight((7, 3, 4), dtype, 0), "float32")
        yield fold_weights(embedding_case(f"{dtype} to float32", weight((7, 12), dtype, 0), "float32"))
    unsigned = replace(weight((7, 12), "uint8"), zero_point=0)
    yield embedding_case("uint8 to float32, which the kernel reads as int8", unsigned, "float32")


def blockwise_table_cases() -> Iterator[Case]:
    for dtype, size in (("int4", 4), ("int4", 6), ("int2", 4)):
        for wide in ("float32", "float16"):
            yield block_table_case(f"{dtype} to {wide} in blocks of {size}", dtype, size, wide)
    yield fold_weights(block_table_case("int4 to float32 in blocks", "int4", 4, "float32"))


def block_table_case(name: str, dtype: str, size: int, wide: str, **case: Any) -> Case:
    def build(model: Net) -> None:
        places = model.add_operand(tensor(5, dtype="int32", scale=0, name="ids"))
        model.output(model.call(LOOKUP, [places, block_weights(model, (7, 12), size, dtype)], Spec((5, 12), wide)))

    return net(LOOKUP, name, build, **{"dtype": f"{dtype} by block", "input_arrays": PLACES, **case})


def refused_table_cases() -> Iterator[Case]:
    """Yield tables that LiteRT refuses or reads past the end of a row."""
    yield embedding_case(
        "int4 rows of 13", weight((7, 13), "int4"), "float32", refusal="end within a byte, and the kernel reads beyond"
    )
    yield block_table_case("blocks of 3", "int4", 3, "float32", refusal="blocks of 3, which the kernel does not read")
    places, table = constant(np.array([6, 1, 0], np.int32)), weight((7, 12), "int2")
    y = replace(table, value=None).with_shape(3, 12)
    yield in_isolation("GATHER", "int2", [table, places], y, kernel_refusal="Type 'INT2' is not supported by gather")
    yield block_table_case("int8 in blocks", "int8", 4, "float32", kernel_refusal="only supports Int4 and Int2 data")
