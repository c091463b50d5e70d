"""Models of conformance cases with changed table fields."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np

from conformance.builder import serialize_table
from conformance.schema import Table
from tests.qa.fuzz.seeds import cases, seed_model

Change = Callable[[Table], None]


def change_fields(case: str, *changes: Change) -> bytes:
    """Return the file of a case's model after some changes."""
    seed = seed_model([case.id for case in cases()].index(case))
    assert seed is not None
    model = deepcopy(seed.table)
    for change in changes:
        change(model)
    return serialize_table(model)


def tensor(number: int, **fields: Any) -> Change:
    """Change fields of a tensor of the main subgraph.

    Negative numbers count from the last tensor.
    """
    return lambda model: model.fields["subgraphs"][0].fields["tensors"][number].fields.update(fields)  # type: ignore[no-any-return]


def option(name: str, value: Any) -> Change:
    """Change an option of the first operator."""
    return lambda model: (
        model.fields["subgraphs"][0].fields["operators"][0].fields["builtin_options"].fields.update({name: value})
    )


def operands(*numbers: int) -> Change:
    """Replace the operands of the first operator."""
    return lambda model: model.fields["subgraphs"][0].fields["operators"][0].fields.update(inputs=list(numbers))  # type: ignore[no-any-return]


def results(*numbers: int, operator: int = 0) -> Change:
    """Replace the results of an operator."""
    return lambda model: model.fields["subgraphs"][0].fields["operators"][operator].fields.update(outputs=list(numbers))  # type: ignore[no-any-return]


def outputs(*numbers: int, graph: int = 0) -> Change:
    """Replace the outputs of a subgraph."""
    return lambda model: model.fields["subgraphs"][graph].fields.update(outputs=list(numbers))  # type: ignore[no-any-return]


def without(field: str) -> Change:
    """Remove a field of the main subgraph."""
    return lambda model: model.fields["subgraphs"][0].fields.pop(field)  # type: ignore[no-any-return]


def order_operators(*numbers: int) -> Change:
    """Reorder the operators of the main subgraph."""

    def change(model: Table) -> None:
        fields = model.fields["subgraphs"][0].fields
        fields.update(operators=[fields["operators"][number] for number in numbers])

    return change


def set_shared_name(name: str) -> Change:
    """Set the shared name of every variable."""

    def change(model: Table) -> None:
        operators = [op for graph in model.fields["subgraphs"] for op in graph.fields["operators"]]
        options = [op.fields.get("builtin_options") for op in operators]
        for table in options:
            if table is not None and "shared_name" in table.fields:
                table.fields["shared_name"] = name

    return change


def option2(name: str, value: Any) -> Change:
    """Change an option of the first operator, whose options are in ``builtin_options2``."""
    return lambda model: (
        model.fields["subgraphs"][0].fields["operators"][0].fields["builtin_options2"].fields.update({name: value})
    )


def change_subgraph_tensor(graph: int, name: str, **fields: Any) -> Change:
    """Change fields of a tensor of another subgraph."""

    def change(model: Table) -> None:
        tensors = model.fields["subgraphs"][graph].fields["tensors"]
        next(table for table in tensors if table.fields["name"] == name).fields.update(fields)

    return change


def buffer(number: int, values: list[int] | list[float], dtype: str = "int32") -> Change:
    """Replace the bytes of a buffer."""
    return lambda model: model.fields["buffers"][number].fields.update(data=np.array(values, dtype).tobytes())  # type: ignore[no-any-return]


def change_constant(graph: int, name: str, values: list[int]) -> Change:
    """Change the value of a constant in another subgraph."""

    def change(model: Table) -> None:
        tensors = model.fields["subgraphs"][graph].fields["tensors"]
        number = next(table.fields["buffer"] for table in tensors if table.fields["name"] == name)
        buffer(number, values)(model)

    return change


def set_parameters(number: int, scale: list[float], zero_point: list[int]) -> Change:
    """Set the quantization parameters of a tensor of the main subgraph."""
    fields = {"scale": scale, "zero_point": zero_point, "quantized_dimension": 0}
    return tensor(number, quantization=Table("QuantizationParameters", fields))


def copy_parameters(number: int, source: int) -> Change:
    """Copy the quantization parameters of another tensor."""

    def change(model: Table) -> None:
        tensors = model.fields["subgraphs"][0].fields["tensors"]
        tensors[number].fields["quantization"] = tensors[source].fields["quantization"]

    return change
