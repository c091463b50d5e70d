"""TensorFlow's lists of tensors, which LiteRT has no kernels of: what they are is computed in NumPy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from conformance.builder import TensorRef
from conformance.case import EVERY_OPSET, Case
from conformance.models import Net, constant, net, tensor
from onnx_tflite_plugin.source.model import Array

PREFIX = "CUSTOM.FlexTensorList"
OPEN, WHOLE = (None, 3), (2, 3)


def cases() -> Iterator[Case]:
    usual: dict[str, Any] = {"opsets": EVERY_OPSET}
    for shape in (OPEN, WHOLE):
        for operator in ("Reserve", "SetItem", "Stack"):
            yield case(
                operator, f"two of {shape}", partial(written, shape=shape), put, **(usual if shape is OPEN else {})
            )
        for operator in ("FromTensor", "GetItem"):
            yield case(operator, f"one of {shape}", partial(read, shape=shape), taken)
    for operator in ("Reserve", "SetItem", "Stack"):
        yield case(operator, "int32 at places known as it runs", partial(written, shape=WHOLE, dtype="int32"), put)
        yield case(operator, "unknown tensors", untold, put, refused="does not say of what tensors its list is")


def case(operator: str, name: str, draw: Any, reference: Any, **given: Any) -> Case:
    places = {"place": np.asarray(3, np.int32)}
    return net(PREFIX + operator, name, draw, reference=reference, given=places, sizes=(), **given)


def put(arrays: Sequence[Array]) -> list[Array]:
    """Of five the second and the one that is asked for."""
    first, place, second = arrays
    result = np.zeros((5, *first.shape), first.dtype)
    result[1], result[int(place)] = first, second
    return [result]


def taken(arrays: Sequence[Array]) -> list[Array]:
    """One row, and all of them."""
    rows, place = arrays
    return [rows[int(place)], rows]


def items(model: Net, name: str, shape: Sequence[int | None], dtype: str = "float32") -> TensorRef:
    return model.graph.tensor(name, (), "variant", listed=(dtype, shape))


def sizes(shape: Sequence[int | None]) -> Array:
    return np.asarray([-1 if size is None else size for size in shape], np.int32)


def written(model: Net, shape: tuple[int | None, ...], dtype: str = "float32") -> None:
    lists = [items(model, f"list{k}", shape, dtype) for k in range(3)]
    of, count = model.place(constant(sizes(shape))), model.place(constant(np.asarray(5, np.int32)))
    model.graph.operator(PREFIX + "Reserve", [of, count], [lists[0]])
    first = model.input(tensor(*shape, dtype=dtype))
    places = model.place(constant(np.asarray(1, np.int32))), model.input(tensor(dtype="int32", name="place"))
    second = model.input(tensor(*shape, dtype=dtype))
    for k, (place, item) in enumerate(zip(places, (first, second), strict=True)):
        model.graph.operator(PREFIX + "SetItem", [lists[k], place, item], [lists[k + 1]])
    rows = model.result(tensor(5, *shape, dtype=dtype))
    model.graph.operator(PREFIX + "Stack", [lists[2], of], [rows])
    model.graph.output(rows)


def untold(model: Net) -> None:
    """The same, in a file that says nothing of the tensors."""
    written(model, WHOLE)
    for k, table in enumerate(model.graph.tensors):
        fields = {name: value for name, value in table.fields.items() if name != "variant_tensors"}
        model.graph.tensors[k] = replace(table, fields=fields)


def read(model: Net, shape: tuple[int | None, ...]) -> None:
    x = model.input(tensor(5, *shape))
    place = model.input(tensor(dtype="int32", name="place"))
    of, listed = model.place(constant(sizes(shape))), items(model, "list", shape)
    model.graph.operator(PREFIX + "FromTensor", [x, of], [listed])
    one, rows = model.result(tensor(*shape)), model.result(tensor(5, *shape))
    model.graph.operator(PREFIX + "GetItem", [listed, place, of], [one])
    model.graph.operator(PREFIX + "Stack", [listed, of], [rows])
    model.graph.output(one)
    model.graph.output(rows)
