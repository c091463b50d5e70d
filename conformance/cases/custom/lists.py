"""TensorFlow's tensor lists, for which LiteRT has no kernels.

References are computed in NumPy.
"""

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
from conformance.tensorflow import node, select_options
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
                partial(write_list, element_shape=shape),
                reference_of_write_list,
                **(every_opset if shape is DYNAMIC else {}),
            )
        for operator in ("FromTensor", "GetItem"):
            yield case(
                operator, f"one element of {shape}", partial(read_list, element_shape=shape), reference_of_read_list
            )
        yield net(
            PREFIX + "Length",
            f"five elements of {shape}",
            partial(count_elements, element_shape=shape),
            reference=lambda arrays: [np.asarray(len(arrays[0]), np.int32)],
            dynamic_sizes=(),
        )
    for operator in ("Reserve", "SetItem", "Stack"):
        yield case(
            operator,
            "int32, runtime index",
            partial(write_list, element_shape=STATIC, dtype="int32"),
            reference_of_write_list,
        )
        yield case(
            operator,
            "tensors of unknown shape",
            write_list_without_types,
            reference_of_write_list,
            refusal="does not store the shape and dtype of the list's elements",
        )
    for index in (7, 2):
        yield net(
            PREFIX + "SetItem",
            f"growing list, index {index}",
            write_beyond_end,
            reference=lambda arrays, index=index: [reference_of_growing_list(arrays, index)],
            input_arrays={"index": np.asarray(index, np.int32)},
            dynamic_sizes=(),
        )
    yield from older_file_cases()


def older_file_cases() -> Iterator[Case]:
    """Yield cases of files as TensorFlow wrote them before 2.13.

    In these files, the list operators store the dtype of the elements, and the list tensors do not.
    """
    for shape in (DYNAMIC, STATIC):
        for operator in ("Reserve", "SetItem", "Stack"):
            yield case(
                operator,
                f"two elements of {shape}, older file",
                as_older_file(partial(write_list, element_shape=shape)),
                reference_of_write_list,
            )
        for operator in ("FromTensor", "GetItem"):
            yield case(
                operator,
                f"one element of {shape}, older file",
                as_older_file(partial(read_list, element_shape=shape)),
                reference_of_read_list,
            )
    int32_list: dict[str, Any] = {"element_shape": STATIC, "dtype": "int32"}
    yield case(
        "Reserve", "int32, older file", as_older_file(partial(write_list, **int32_list)), reference_of_write_list
    )
    yield case(
        "Reserve",
        "unknown rank, older file",
        as_older_file(partial(write_list, element_shape=STATIC, reserved=-1)),
        reference_of_write_list,
    )
    nested_loop_requirements = {"reference": reference_of_nested_loops, "dynamic_sizes": ()}
    for operator in ("Reserve", "SetItem", "Stack"):
        yield net(
            PREFIX + operator,
            "nested loops with a branch, older file",
            as_older_file(nested_loops),
            **nested_loop_requirements,
        )
    yield case(
        "SetItem",
        "different reserved shape, older file",
        as_older_file(partial(write_list, element_shape=STATIC, reserved=(2, 5))),
        reference_of_write_list,
        refusal="does not store the shape and dtype of the list's elements",
    )


def case(operator: str, name: str, build: Any, reference: Any, **options: Any) -> Case:
    index_arrays = {"index": np.asarray(3, np.int32)}
    return net(
        PREFIX + operator, name, build, reference=reference, input_arrays=index_arrays, dynamic_sizes=(), **options
    )


def reference_of_write_list(arrays: Sequence[Array]) -> list[Array]:
    """Return the list of five elements, of which two are written.

    The elements at index 1 and at the runtime index are written; the others are zeros.
    """
    first_element, index, second_element = arrays
    result = np.zeros((5, *first_element.shape), first_element.dtype)
    result[1], result[int(index)] = first_element, second_element
    return [result]


def reference_of_read_list(arrays: Sequence[Array]) -> list[Array]:
    """Compute the element at the runtime index, and all elements."""
    rows, index = arrays
    return [rows[int(index)], rows]


def list_tensor(model: Net, name: str, shape: Sequence[int | None], dtype: str = "float32") -> TensorRef:
    return model.graph.tensor(name, (), "variant", list_elements=(dtype, shape))


def shape_operand(shape: Sequence[int | None]) -> Array:
    return np.asarray([-1 if size is None else size for size in shape], np.int32)


def write_list(
    model: Net,
    element_shape: tuple[int | None, ...],
    dtype: str = "float32",
    reserved: int | tuple[int, ...] | None = None,
) -> None:
    """Build a list of five tensors, of which two are written.

    ``reserved``: shape operand of Reserve, by default ``element_shape``.
    """
    lists = [list_tensor(model, f"list{k}", element_shape, dtype) for k in range(3)]
    shape = model.add_operand(constant(shape_operand(element_shape)))
    count = model.add_operand(constant(np.asarray(5, np.int32)))
    reserved_shape = shape if reserved is None else model.add_operand(constant(np.asarray(reserved, np.int32)))
    model.graph.operator(PREFIX + "Reserve", [reserved_shape, count], [lists[0]])
    first_element = model.input(tensor(*element_shape, dtype=dtype))
    indices = model.add_operand(constant(np.asarray(1, np.int32))), model.input(tensor(dtype="int32", name="index"))
    second_element = model.input(tensor(*element_shape, dtype=dtype))
    for k, (index, element) in enumerate(zip(indices, (first_element, second_element), strict=True)):
        model.graph.operator(PREFIX + "SetItem", [lists[k], index, element], [lists[k + 1]])
    rows = model.result(tensor(5, *element_shape, dtype=dtype))
    model.graph.operator(PREFIX + "Stack", [lists[2], shape], [rows])
    model.graph.output(rows)


def write_list_without_types(model: Net) -> None:
    """Build ``write_list`` in a file without shape and dtype of the elements."""
    write_list(model, STATIC)
    for k, table in enumerate(model.graph.tensors):
        fields = {name: value for name, value in table.fields.items() if name != "variant_tensors"}
        model.graph.tensors[k] = replace(table, fields=fields)


def read_list(model: Net, element_shape: tuple[int | None, ...]) -> None:
    """Build a list from a tensor of five elements; output one element and all of them."""
    x = model.input(tensor(5, *element_shape))
    index = model.input(tensor(dtype="int32", name="index"))
    shape, list_ = model.add_operand(constant(shape_operand(element_shape))), list_tensor(model, "list", element_shape)
    model.graph.operator(PREFIX + "FromTensor", [x, shape], [list_])
    element, rows = model.result(tensor(*element_shape)), model.result(tensor(5, *element_shape))
    model.graph.operator(PREFIX + "GetItem", [list_, index, shape], [element])
    model.graph.operator(PREFIX + "Stack", [list_, shape], [rows])
    model.graph.output(element)
    model.graph.output(rows)


def count_elements(model: Net, element_shape: tuple[int | None, ...]) -> None:
    """Build a list from a tensor of five elements; output their number."""
    x, list_ = model.input(tensor(5, *element_shape)), list_tensor(model, "list", element_shape)
    shape = model.add_operand(constant(shape_operand(element_shape)))
    model.graph.operator(PREFIX + "FromTensor", [x, shape], [list_])
    count = model.result(tensor(dtype="int32"))
    model.graph.operator(PREFIX + "Length", [list_], [count])
    model.graph.output(count)


def write_beyond_end(model: Net) -> None:
    """Build a list of five elements that grows if the index requires it."""
    lists = [list_tensor(model, f"list{k}", STATIC) for k in range(2)]
    shape = model.add_operand(constant(shape_operand(STATIC)))
    x, index = model.input(tensor(5, *STATIC)), model.input(tensor(dtype="int32", name="index"))
    element = model.input(tensor(*STATIC))
    model.graph.operator(PREFIX + "FromTensor", [x, shape], [lists[0]])
    attributes = {"element_dtype": "float32", "resize_if_index_out_of_bounds": True}
    options = select_options("TensorListSetItem", node("TensorListSetItem", attributes))
    model.graph.operator(PREFIX + "SetItem", [lists[0], index, element], [lists[1]], custom_options=options)
    rows = model.result(tensor(None, *STATIC))
    model.graph.operator(PREFIX + "Stack", [lists[1], shape], [rows])
    model.graph.output(rows)


def reference_of_growing_list(arrays: Sequence[Array], index: int) -> Array:
    """Compute the list with zeros between its end and the written element."""
    rows, _, element = arrays
    result = np.zeros((max(len(rows), index + 1), *rows.shape[1:]), rows.dtype)
    result[: len(rows)] = rows
    result[index] = element
    return result


# --- older files ------------------------------------------------------------------------------


def as_older_file(build_full: Callable[[Net], None]) -> Callable[[Net], None]:
    """Return a function that builds the same model as TensorFlow wrote it before 2.13.

    The file lacks ``variant_tensors``; each list operator has a NodeDef instead.
    """

    def build(model: Net) -> None:
        build_full(model)
        drop_variant_tensors(model.model)

    return build


def drop_variant_tensors(model: ModelBuilder) -> None:
    """Remove the stored list contents; add a NodeDef to each list operator.

    Each NodeDef contains the dtype of the elements.
    """
    codes = list(model._codes)
    for graph in model.subgraphs:
        contents_by_tensor = [table.fields.get("variant_tensors") for table in graph.tensors]
        for k, table in enumerate(graph.operators):
            name = codes[table.fields["opcode_index"]][1]
            if not f"CUSTOM.{name}".startswith(PREFIX):
                continue
            slots = (*table.fields["inputs"], *table.fields["outputs"])
            (dtype, *_) = (contents[0].fields["type"] for slot in slots if (contents := contents_by_tensor[slot]))
            options = node_def(name.removeprefix("Flex"), DTYPES[dtype])
            graph.operators[k] = replace(table, fields={**table.fields, "custom_options": options})
        for k, table in enumerate(graph.tensors):
            fields = {name: value for name, value in table.fields.items() if name != "variant_tensors"}
            graph.tensors[k] = replace(table, fields=fields)


DTYPES = {enum_value("TensorType", "float32"): 1, enum_value("TensorType", "int32"): 3}
"""TensorFlow's DataType by TFLite's TensorType."""


def node_def(name: str, dtype: int) -> bytes:
    """Return the options of a select operator.

    The options are a FlexBuffer vector of the operator's name and a NodeDef with ``element_dtype``.
    """
    from flatbuffers import flexbuffers

    def field(number: int, data: bytes) -> bytes:
        """Return a protobuf field of bytes."""
        return bytes([number << 3 | 2, len(data)]) + data

    entry = field(1, b"element_dtype") + field(2, bytes([6 << 3, dtype]))
    builder = flexbuffers.Builder()
    with builder.Vector():
        builder.String(name)
        builder.Blob(field(1, b"op") + field(2, name.encode()) + field(5, entry))
    return bytes(builder.Finish())


OUTER, INNER = 3, 2


def nested_loops(model: Net) -> None:
    """Build nested loops that write a tensor into a list.

    One branch writes the tensor, the other its negative.
    """
    x = model.input(tensor(*STATIC))
    shape, count = (
        model.add_operand(constant(np.asarray(-1, np.int32))),
        model.add_operand(constant(np.asarray(6, np.int32))),
    )
    list_ = list_tensor(model, "list", STATIC)
    model.graph.operator(PREFIX + "Reserve", [shape, count], [list_])
    index = model.add_operand(constant(np.asarray(0, np.int32)))

    def add_inner_loop(graph: GraphBuilder, values: Sequence[TensorRef]) -> list[TensorRef]:
        return add_counting_loop(graph, values, INNER, write_row_in_branches)

    _, written_list, _ = add_counting_loop(model.graph, [index, list_, x], OUTER, add_inner_loop)
    rows = model.result(tensor(OUTER * INNER, *STATIC))
    model.graph.operator(PREFIX + "Stack", [written_list, shape], [rows])
    model.output(rows)


def loop_values(graph: GraphBuilder, name: str) -> list[TensorRef]:
    """Add the tensors that a loop carries besides its counter.

    These are an index, the list and a tensor.
    """
    list_ = graph.tensor(f"{name} list", (), "variant", list_elements=("float32", STATIC))
    return [graph.tensor(f"{name} index", (), "int32"), list_, graph.tensor(f"{name} x", STATIC)]


def add_counting_loop(
    graph: GraphBuilder,
    values: Sequence[TensorRef],
    iterations: int,
    build_body: Callable[[GraphBuilder, Sequence[TensorRef]], list[TensorRef]],
) -> list[TensorRef]:
    """Add a WHILE that runs ``build_body`` a number of times; return the last values.

    The loop carries an index, a list and a tensor.
    """
    model, subgraphs, subgraph_values = graph.model, [], list[list[TensorRef]]()
    for name in ("cond", "body"):
        subgraph = model.subgraph(f"{name} of {iterations}")
        subgraph_values.append([subgraph.tensor("count", (), "int32"), *loop_values(subgraph, "input")])
        subgraph.inputs += subgraph_values[-1]
        subgraphs.append(subgraph)
    condition, body_graph = subgraphs
    is_below_limit, limit = (
        condition.tensor("go on", (), "bool"),
        condition.constant("limit", np.asarray(iterations, np.int32)),
    )
    condition.operator("LESS", [condition.inputs[0], limit], [is_below_limit])
    condition.output(is_below_limit)
    count, *carried_values = subgraph_values[-1]
    next_count = body_graph.tensor("next", (), "int32")
    body_graph.operator("ADD", [count, body_graph.constant("one", np.asarray(1, np.int32))], [next_count])
    body_graph.output(next_count, *build_body(body_graph, carried_values))
    start = graph.constant(f"start of {iterations}", np.asarray(0, np.int32))
    results = [graph.tensor(f"count of {iterations}", (), "int32"), *loop_values(graph, f"after {iterations}")]
    subgraph_indices = {"cond_subgraph_index": condition.index, "body_subgraph_index": body_graph.index}
    graph.operator("WHILE", [start, *values], results, subgraph_indices)
    return results[1:]


def write_row_in_branches(graph: GraphBuilder, values: Sequence[TensorRef]) -> list[TensorRef]:
    """Add an IF that writes the tensor, negated at odd indices, into the list.

    Returns the next index, the list and the doubled tensor.
    """
    index, list_, x = values
    two, zero = (graph.constant(name, np.asarray(n, np.int32)) for name, n in (("two", 2), ("zero", 0)))
    remainder, is_even = graph.tensor("remainder", (), "int32"), graph.tensor("even", (), "bool")
    graph.operator("FLOOR_MOD", [index, two], [remainder])
    graph.operator("EQUAL", [remainder, zero], [is_even])
    branches = []
    for name in ("then", "else"):
        branch = graph.model.subgraph(name)
        branch.inputs += loop_values(branch, "input")
        branch_index, branch_list, element = branch.inputs
        if name == "else":
            negative = branch.tensor("negative", STATIC)
            branch.operator("NEG", [element], [negative])
            element = negative
        (_, written_list, _) = loop_values(branch, "result")
        branch.operator(PREFIX + "SetItem", [branch_list, branch_index, element], [written_list])
        branch.output(written_list)
        branches.append(branch)
    _, written_list, doubled = loop_values(graph, "written")
    subgraph_indices = {"then_subgraph_index": branches[0].index, "else_subgraph_index": branches[1].index}
    graph.operator("IF", [is_even, index, list_, x], [written_list], subgraph_indices)
    next_index = graph.tensor("following", (), "int32")
    graph.operator("ADD", [index, graph.constant("1", np.asarray(1, np.int32))], [next_index])
    graph.operator("ADD", [x, x], [doubled])
    return [next_index, written_list, doubled]


def reference_of_nested_loops(arrays: Sequence[Array]) -> list[Array]:
    (x,) = arrays
    return [np.stack([x * 2**k * (-1) ** k for k in range(OUTER * INNER)])]
