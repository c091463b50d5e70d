"""Mutations of a model's tables: plausible values and changed references."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

import numpy as np

from conformance.builder import serialize_table
from conformance.schema import BuilderError, Table, enum, options_tables

NUMBERS = (
    -(2**31),
    -65536,
    -129,
    -8,
    -2,
    -1,
    0,
    0,
    1,
    1,
    2,
    3,
    4,
    5,
    7,
    8,
    16,
    127,
    128,
    255,
    256,
    65536,
    1 << 24,
    2**31 - 1,
)
FLOATS = (0.0, -0.0, 1.0, -1.0, 1e-30, 1e-9, 0.5, 2.0, 65504.0, 1e30, 3e38, float("nan"), float("inf"), float("-inf"))
SIZES = (0, 0, 1, 1, 1, 2, 3, 5, 7, 8, 64, 1000, 65536, 1 << 24, 1 << 28, 2**31 - 1)
TYPES = 23  # number of element types in the schema

Mutation = Callable[["Draw", Table], bool]


class Draw(random.Random):
    """Random choices among the tables of a model."""

    def graph(self, model: Table) -> Any:
        return self.choice(model.fields["subgraphs"])

    def tensor(self, model: Table) -> Table:
        chosen: Table = self.choice(self.graph(model).fields["tensors"])
        return chosen

    def operator(self, model: Table) -> tuple[Table, Table] | None:
        graph = self.graph(model)
        operators = graph.fields["operators"]
        return (graph, self.choice(operators)) if operators else None

    def number(self) -> int:
        return self.choice(NUMBERS) if self.random() < 0.8 else self.randrange(-300, 300)


def mutate(model: Table, seed: int) -> bytes | None:
    """Return the file after up to three mutations; ``None`` if not writable."""
    draw, copy = Draw(seed), deepcopy(model)
    remaining = draw.choice((1, 1, 1, 2, 3))
    for _ in range(20):
        remaining -= draw.choice(MUTATIONS)(draw, copy)
        if remaining <= 0:
            break
    try:
        return serialize_table(copy)
    except (BuilderError, OverflowError, ValueError, TypeError):
        return None


def _set(table: Table, field: str, value: Any) -> bool:
    assert isinstance(table.fields, dict)
    table.fields[field] = value
    return True


# --- tensors ----------------------------------------------------------------------------------


def size(draw: Draw, model: Table) -> bool:
    tensor = draw.tensor(model)
    shape = list(tensor.fields["shape"])
    if not shape:
        return False
    shape[draw.randrange(len(shape))] = draw.choice(SIZES)
    return _set(tensor, "shape", shape)


def rank(draw: Draw, model: Table) -> bool:
    tensor = draw.tensor(model)
    shape = list(tensor.fields["shape"])
    kind = draw.randrange(4)
    if kind == 0 and shape:
        shape.pop(draw.randrange(len(shape)))
    elif kind == 1:
        shape.insert(draw.randrange(len(shape) + 1), draw.choice((1, 1, 2, 3)))
    elif kind == 2:
        draw.shuffle(shape)
    else:
        shape = [] if draw.random() < 0.5 else [draw.choice(SIZES) for _ in range(draw.randrange(7))]
    return _set(tensor, "shape", shape)


def dtype(draw: Draw, model: Table) -> bool:
    return _set(draw.tensor(model), "type", draw.randrange(TYPES))


def buffer(draw: Draw, model: Table) -> bool:
    return _set(draw.tensor(model), "buffer", draw.choice((0, draw.randrange(len(model.fields["buffers"])))))


def flags(draw: Draw, model: Table) -> bool:
    tensor = draw.tensor(model)
    if draw.random() < 0.5:
        return _set(tensor, draw.choice(("is_variable", "has_rank")), draw.random() < 0.7)
    return _set(tensor, "shape_signature", [draw.choice((-1, -1, 0, 1, 3)) for _ in tensor.fields["shape"]])


def scales(draw: Draw, model: Table) -> bool:
    """Remove, copy or change quantization parameters, or set unusual values."""
    tensor = draw.tensor(model)
    kind = draw.randrange(6)
    if kind == 0:
        return _set(tensor, "quantization", None)
    if kind == 1:
        return _set(tensor, "quantization", draw.tensor(model).fields.get("quantization"))
    count, axis = (1, 0) if kind < 5 or not tensor.fields["shape"] else (draw.choice(list(tensor.fields["shape"])), 0)
    if kind == 5 and tensor.fields["shape"]:
        axis = draw.randrange(len(tensor.fields["shape"]))
        count = tensor.fields["shape"][axis]
    if count > 4096:
        return False
    scale = [draw.choice((*FLOATS, 0.01, 0.1, 1 / 128, 1 / 256, 1 / 32768)) for _ in range(count)]
    if kind in (2, 3, 5):
        scale = [draw.choice((0.003, 0.05, 1 / 128, 1 / 256, 2.0)) for _ in range(count)]
    point = [draw.choice((0, 0, -128, 127, 5, -7, 255, 128, draw.number())) for _ in range(count)]
    fields = {"scale": scale, "zero_point": point, "quantized_dimension": axis}
    return _set(tensor, "quantization", Table("QuantizationParameters", fields))


def contents(draw: Draw, model: Table) -> bool:
    """Truncate, extend or randomize the bytes of a constant, or change one number."""
    constants = [
        table for table in model.fields["buffers"][1:] if isinstance(table.fields.get("data"), bytes | np.ndarray)
    ]
    if not constants:
        return False
    table = draw.choice(constants)
    data = bytearray(bytes(table.fields["data"]))
    kind = draw.randrange(4)
    if kind == 0:
        data = data[: draw.randrange(len(data) + 1)]
    elif kind == 1:
        data += bytes(draw.randrange(256) for _ in range(draw.choice((1, 4, 8, 64))))
    elif kind == 2:
        data = bytearray(draw.randrange(256) for _ in data)
    elif len(data) >= 4:
        at = 4 * draw.randrange(len(data) // 4)
        word = np.float32(draw.choice(FLOATS)).tobytes() if draw.random() < 0.4 else np.int32(draw.number()).tobytes()
        data[at : at + 4] = word
    return _set(table, "data", bytes(data))


# --- operators --------------------------------------------------------------------------------


def operands(draw: Draw, model: Table) -> bool:
    """Remove, replace, add or swap operands."""
    chosen = draw.operator(model)
    if chosen is None:
        return False
    graph, op = chosen
    field = draw.choice(("inputs", "inputs", "outputs"))
    slots, count = list(op.fields[field]), len(graph.fields["tensors"])
    kind = draw.randrange(5)
    if kind == 0 and slots:
        slots[draw.randrange(len(slots))] = -1
    elif kind == 1 and slots:
        slots[draw.randrange(len(slots))] = draw.randrange(count)
    elif kind == 2 and slots:
        slots.pop(draw.randrange(len(slots)))
    elif kind == 3:
        slots.insert(draw.randrange(len(slots) + 1), draw.randrange(-1, count))
    elif len(slots) > 1:
        first, second = draw.sample(range(len(slots)), 2)
        slots[first], slots[second] = slots[second], slots[first]
    return _set(op, field, slots)


def code(draw: Draw, model: Table) -> bool:
    """Change the operator code or its version."""
    table = draw.choice(model.fields["operator_codes"])
    if draw.random() < 0.2:
        return _set(table, "version", draw.choice((0, 1, 2, 3, 5, 9, 99)))
    number = draw.choice([*enum("BuiltinOperator").values()])
    _set(table, "builtin_code", number)
    return _set(table, "deprecated_builtin_code", min(number, 127))


def options(draw: Draw, model: Table) -> bool:
    """Change a number in the options, replace the options table, or remove it."""
    chosen = draw.operator(model)
    if chosen is None:
        return False
    _, op = chosen
    table = op.fields.get("builtin_options") or op.fields.get("builtin_options2")
    kind = draw.randrange(8)
    if kind == 0 or table is None:
        names = [name for name in options_tables() if name in enum("BuiltinOptions")]
        name = draw.choice(names)
        _set(op, "builtin_options_type", name)
        return _set(op, "builtin_options", Table(name, {}))
    if kind == 1:
        _set(op, "builtin_options_type", None)
        return _set(op, "builtin_options", None)
    fields: Mapping[str, Any] = table.fields
    if not fields:
        return False
    name = draw.choice([*fields])
    value = fields[name]
    if isinstance(value, bool):
        return _set(table, name, not value)
    if isinstance(value, float):
        return _set(table, name, draw.choice(FLOATS))
    if isinstance(value, int):
        return _set(table, name, draw.number() if draw.random() < 0.5 else draw.choice((0, 1, 2, -1, value + 1)))
    if isinstance(value, str):
        return _set(table, name, draw.randrange(6))
    if isinstance(value, list | tuple) and value and all(isinstance(item, int) for item in value):
        items = list(value)
        items[draw.randrange(len(items))] = draw.choice((-1, 0, 1, 2, 3, draw.number()))
        return _set(table, name, items[: draw.choice((len(items), len(items), len(items) - 1))])
    return False


def operator_order(draw: Draw, model: Table) -> bool:
    """Remove or repeat an operator, or shuffle the operators."""
    graph = draw.graph(model)
    operators = list(graph.fields["operators"])
    if not operators:
        return False
    kind, op = draw.randrange(3), draw.choice(operators)
    if kind == 0:
        operators.remove(op)
    elif kind == 1:
        operators.insert(draw.randrange(len(operators) + 1), deepcopy(op))
    else:
        draw.shuffle(operators)
    return _set(graph, "operators", operators)


def interface(draw: Draw, model: Table) -> bool:
    """Add, remove or replace a graph input or output."""
    graph = draw.graph(model)
    field = draw.choice(("inputs", "outputs"))
    tensors = [int(number) for number in graph.fields[field]]
    kind, number = draw.randrange(3), draw.randrange(len(graph.fields["tensors"]))
    if kind == 0 and tensors:
        tensors.pop(draw.randrange(len(tensors)))
    elif kind == 1:
        tensors.append(number)
    elif tensors:
        tensors[draw.randrange(len(tensors))] = number
    return _set(graph, field, tensors)


MUTATIONS: tuple[Mutation, ...] = (
    size, size, rank, dtype, dtype, buffer, flags, scales, scales, contents, contents,
    operands, operands, code, options, options, options, operator_order, interface,
)  # fmt: skip
