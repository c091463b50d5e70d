"""TensorFlow's tensor lists, for which LiteRT has no kernels; references are computed in NumPy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from conformance.builder import GraphBuilder, ModelBuilder, TensorRef
from conformance.case import EVERY_OPSET, Case
from conformance.models import Net, constant, net, tensor
from conformance.schema import enum_value
from onnx_tflite_plugin.source.model import Array

PREFIX = "CUSTOM.FlexTensorList"
DYNAMIC, STATIC = (None, 3), (2, 3)


def cases() -> Iterator[Case]:
    every_opset: dict[str, Any] = {"opsets": EVERY_OPSET}
    for shape in (DYNAMIC, STATIC):
        for operator in ("Reserve", "SetItem", "Stack"):
            yield case(
                operator,
                f"two elements of {shape}",
                partial(write_list, shape=shape),
                written_list,
                **(every_opset if shape is DYNAMIC else {}),
            )
        for operator in ("FromTensor", "GetItem"):
            yield case(operator, f"one element of {shape}", partial(read, shape=shape), row_and_all)
    for operator in ("Reserve", "SetItem", "Stack"):
        yield case(operator, "int32 at runtime indices", partial(write_list, shape=STATIC, dtype="int32"), written_list)
        yield case(
            operator,
            "tensors of unknown shape",
            without_contents,
            written_list,
            refusal="does not store the shape and dtype of the list's elements",
        )
    yield from older_file_cases()


def older_file_cases() -> Iterator[Case]:
    """Yield files without stored list contents, as TensorFlow wrote them before 2.13; only their operators have the dtype."""
    for shape in (DYNAMIC, STATIC):
        for operator in ("Reserve", "SetItem", "Stack"):
            yield case(
                operator,
                f"two elements of {shape}, older file",
                without_stored_contents(partial(write_list, shape=shape)),
                written_list,
            )
        for operator in ("FromTensor", "GetItem"):
            yield case(
                operator,
                f"one element of {shape}, older file",
                without_stored_contents(partial(read, shape=shape)),
                row_and_all,
            )
    whole: dict[str, Any] = {"shape": STATIC, "dtype": "int32"}
    yield case("Reserve", "int32, older file", without_stored_contents(partial(write_list, **whole)), written_list)
    yield case(
        "Reserve",
        "unknown rank, older file",
        without_stored_contents(partial(write_list, shape=STATIC, reserved=-1)),
        written_list,
    )
    nested = {"reference": rows_of_loops, "dynamic_sizes": ()}
    for operator in ("Reserve", "SetItem", "Stack"):
        yield net(
            PREFIX + operator,
            "through loops and branches, older file",
            without_stored_contents(nested_loops),
            **nested,
        )
    yield case(
        "SetItem",
        "two shapes, older file",
        without_stored_contents(partial(write_list, shape=STATIC, reserved=(2, 5))),
        written_list,
        refusal="does not store the shape and dtype of the list's elements",
    )


def case(operator: str, name: str, build: Any, reference: Any, **options: Any) -> Case:
    places = {"place": np.asarray(3, np.int32)}
    return net(PREFIX + operator, name, build, reference=reference, input_arrays=places, dynamic_sizes=(), **options)


def written_list(arrays: Sequence[Array]) -> list[Array]:
    """Write the second of five list elements and the one at the given index."""
    first, place, second = arrays
    result = np.zeros((5, *first.shape), first.dtype)
    result[1], result[int(place)] = first, second
    return [result]


def row_and_all(arrays: Sequence[Array]) -> list[Array]:
    """Return one row, and all rows."""
    rows, place = arrays
    return [rows[int(place)], rows]


def list_tensor(model: Net, name: str, shape: Sequence[int | None], dtype: str = "float32") -> TensorRef:
    return model.graph.tensor(name, (), "variant", listed=(dtype, shape))


def shape_operand(shape: Sequence[int | None]) -> Array:
    return np.asarray([-1 if size is None else size for size in shape], np.int32)


def write_list(
    model: Net, shape: tuple[int | None, ...], dtype: str = "float32", reserved: int | tuple[int, ...] | None = None
) -> None:
    """Build a list of five tensors and write two. ``reserved``: the reserved element shape, by default ``shape``."""
    lists = [list_tensor(model, f"list{k}", shape, dtype) for k in range(3)]
    of, count = model.add_operand(constant(shape_operand(shape))), model.add_operand(constant(np.asarray(5, np.int32)))
    first_of = of if reserved is None else model.add_operand(constant(np.asarray(reserved, np.int32)))
    model.graph.operator(PREFIX + "Reserve", [first_of, count], [lists[0]])
    first = model.input(tensor(*shape, dtype=dtype))
    places = model.add_operand(constant(np.asarray(1, np.int32))), model.input(tensor(dtype="int32", name="place"))
    second = model.input(tensor(*shape, dtype=dtype))
    for k, (place, item) in enumerate(zip(places, (first, second), strict=True)):
        model.graph.operator(PREFIX + "SetItem", [lists[k], place, item], [lists[k + 1]])
    rows = model.result(tensor(5, *shape, dtype=dtype))
    model.graph.operator(PREFIX + "Stack", [lists[2], of], [rows])
    model.graph.output(rows)


def without_contents(model: Net) -> None:
    """Build the same list in a file that stores neither shape nor dtype of the elements."""
    write_list(model, STATIC)
    for k, table in enumerate(model.graph.tensors):
        fields = {name: value for name, value in table.fields.items() if name != "variant_tensors"}
        model.graph.tensors[k] = replace(table, fields=fields)


def read(model: Net, shape: tuple[int | None, ...]) -> None:
    x = model.input(tensor(5, *shape))
    place = model.input(tensor(dtype="int32", name="place"))
    of, listed = model.add_operand(constant(shape_operand(shape))), list_tensor(model, "list", shape)
    model.graph.operator(PREFIX + "FromTensor", [x, of], [listed])
    item, rows = model.result(tensor(*shape)), model.result(tensor(5, *shape))
    model.graph.operator(PREFIX + "GetItem", [listed, place, of], [item])
    model.graph.operator(PREFIX + "Stack", [listed, of], [rows])
    model.graph.output(item)
    model.graph.output(rows)


# --- older files ------------------------------------------------------------------------------


def without_stored_contents(build_full: Callable[[Net], None]) -> Callable[[Net], None]:
    """Return a function that builds the same model without variant_tensors, with the NodeDef of each operator."""

    def build(model: Net) -> None:
        build_full(model)
        drop_variant_tensors(model.model)

    return build


def drop_variant_tensors(model: ModelBuilder) -> None:
    """Remove the stored list contents; add a NodeDef with the dtype to each list operator."""
    codes = list(model._codes)
    for graph in model.subgraphs:
        listed = [table.fields.get("variant_tensors") for table in graph.tensors]
        for k, table in enumerate(graph.operators):
            name = codes[table.fields["opcode_index"]][1]
            if not f"CUSTOM.{name}".startswith(PREFIX):
                continue
            slots = (*table.fields["inputs"], *table.fields["outputs"])
            (dtype, *_) = (contents[0].fields["type"] for slot in slots if (contents := listed[slot]))
            options = node_def(name.removeprefix("Flex"), DTYPES[dtype])
            graph.operators[k] = replace(table, fields={**table.fields, "custom_options": options})
        for k, table in enumerate(graph.tensors):
            fields = {name: value for name, value in table.fields.items() if name != "variant_tensors"}
            graph.tensors[k] = replace(table, fields=fields)


DTYPES = {enum_value("TensorType", "float32"): 1, enum_value("TensorType", "int32"): 3}
"""TensorFlow's DataType by TFLite's TensorType."""


def node_def(name: str, dtype: int) -> bytes:
    """Return the options of a select operator: a FlexBuffer vector of its name and a NodeDef with ``element_dtype``."""
    from flatbuffers import flexbuffers

    def field(number: int, data: bytes) -> bytes:
        return bytes([number << 3 | 2, len(data)]) + data

    entry = field(1, b"element_dtype") + field(2, bytes([6 << 3, dtype]))
    builder = flexbuffers.Builder()
    with builder.Vector():
        builder.String(name)
        builder.Blob(field(1, b"op") + field(2, name.encode()) + field(5, entry))
    return bytes(builder.Finish())


OUTER, INNER = 3, 2


def nested_loops(model: Net) -> None:
    """Build nested loops that write a tensor into a list in one branch, and its negative in the other."""
    x = model.input(tensor(*STATIC))
    of, count = (
        model.add_operand(constant(np.asarray(-1, np.int32))),
        model.add_operand(constant(np.asarray(6, np.int32))),
    )
    listed = list_tensor(model, "list", STATIC)
    model.graph.operator(PREFIX + "Reserve", [of, count], [listed])
    place = model.add_operand(constant(np.asarray(0, np.int32)))

    def inner(graph: GraphBuilder, values: Sequence[TensorRef]) -> list[TensorRef]:
        return loop(graph, values, INNER, put_row)

    _, after, _ = loop(model.graph, [place, listed, x], OUTER, inner)
    rows = model.result(tensor(OUTER * INNER, *STATIC))
    model.graph.operator(PREFIX + "Stack", [after, of], [rows])
    model.output(rows)


def loop_values(graph: GraphBuilder, name: str) -> list[TensorRef]:
    """Return an index, the list, and a tensor."""
    listed = graph.tensor(f"{name} list", (), "variant", listed=("float32", STATIC))
    return [graph.tensor(f"{name} place", (), "int32"), listed, graph.tensor(f"{name} x", STATIC)]


def loop(
    graph: GraphBuilder,
    values: Sequence[TensorRef],
    times: int,
    body: Callable[[GraphBuilder, Sequence[TensorRef]], list[TensorRef]],
) -> list[TensorRef]:
    """Add a WHILE that counts, and carries other values."""
    model, subgraphs, values_of = graph.model, [], list[list[TensorRef]]()
    for name in ("cond", "body"):
        inside = model.subgraph(f"{name} of {times}")
        values_of.append([inside.tensor("count", (), "int32"), *loop_values(inside, "given")])
        inside.inputs += values_of[-1]
        subgraphs.append(inside)
    cond, step = subgraphs
    go_on, limit = cond.tensor("go on", (), "bool"), cond.constant("limit", np.asarray(times, np.int32))
    cond.operator("LESS", [cond.inputs[0], limit], [go_on])
    cond.output(go_on)
    count, *given = values_of[-1]
    following = step.tensor("next", (), "int32")
    step.operator("ADD", [count, step.constant("one", np.asarray(1, np.int32))], [following])
    step.output(following, *body(step, given))
    first = graph.constant(f"start of {times}", np.asarray(0, np.int32))
    results = [graph.tensor(f"count of {times}", (), "int32"), *loop_values(graph, f"after {times}")]
    indices = {"cond_subgraph_index": cond.index, "body_subgraph_index": step.index}
    graph.operator("WHILE", [first, *values], results, indices)
    return results[1:]


def put_row(graph: GraphBuilder, values: Sequence[TensorRef]) -> list[TensorRef]:
    """Write the tensor (negated at odd indices) into the list; return the next index, the list, and the doubled tensor."""
    place, listed, x = values
    two, zero = (graph.constant(name, np.asarray(n, np.int32)) for name, n in (("two", 2), ("zero", 0)))
    rest, even = graph.tensor("rest", (), "int32"), graph.tensor("even", (), "bool")
    graph.operator("FLOOR_MOD", [place, two], [rest])
    graph.operator("EQUAL", [rest, zero], [even])
    branches = []
    for name in ("then", "else"):
        branch = graph.model.subgraph(name)
        branch.inputs += loop_values(branch, "given")
        at, into, item = branch.inputs
        if name == "else":
            negative = branch.tensor("negative", STATIC)
            branch.operator("NEG", [item], [negative])
            item = negative
        (_, result, _) = loop_values(branch, "made")
        branch.operator(PREFIX + "SetItem", [into, at, item], [result])
        branch.output(result)
        branches.append(branch)
    _, result, doubled = loop_values(graph, "written")
    indices = {"then_subgraph_index": branches[0].index, "else_subgraph_index": branches[1].index}
    graph.operator("IF", [even, place, listed, x], [result], indices)
    following = graph.tensor("following", (), "int32")
    graph.operator("ADD", [place, graph.constant("1", np.asarray(1, np.int32))], [following])
    graph.operator("ADD", [x, x], [doubled])
    return [following, result, doubled]


def rows_of_loops(arrays: Sequence[Array]) -> list[Array]:
    (x,) = arrays
    return [np.stack([x * 2**k * (-1) ** k for k in range(OUTER * INNER)])]
