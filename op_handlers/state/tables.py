"""Hash tables from integers to text or back.

Tables are initialized once, and are constant at conversion time.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from onnx_tflite_plugin.api import (
    Array,
    Context,
    Effects,
    Operator,
    Raw,
    Refusal,
    Resource,
    State,
    Terminate,
    Transparent,
    Value,
    handler,
)

ML_DOMAIN = "ai.onnx.ml"


def table_key(op: Operator) -> str:
    """Return the key of a table, which is the same in all subgraphs."""
    return f"hashtable {op.options.table_id}"


@handler("HASHTABLE", max_version=1, layout=Terminate(), quantization=Raw(), effects=Effects())
def hashtable(ctx: Context) -> Resource:
    """Return the table's resource."""
    return ctx.make_resource(table_key(ctx.op))


@handler(
    "HASHTABLE_IMPORT",
    max_version=1,
    layout=Terminate(),
    requires_constant={1, 2},
    quantization=Raw(),
    effects=Effects(),
)
def hashtable_import(ctx: Context, _table: Resource, _keys: Value, _values: Value) -> tuple[()]:
    """Initialize the table once; the first of several equal keys wins.

    Source: StaticHashtable::Import (static_hashtable.cc).
    """
    if {ctx.op[1].dtype, ctx.op[2].dtype} != {"int64", "string"} or ctx.op[1].dims != ctx.op[2].dims:
        keys, values = (f"{ctx.op[slot].dtype} of shape {list(ctx.op[slot].dims)}" for slot in (1, 2))
        raise Refusal(f"keys are {keys} and values {values}; expected int64 and string of equal shapes")
    for slot, state in enumerate(table_states(ctx), 1):
        if state.initial is None:
            state.initial = ctx.constant(slot)
    return ()


@handler("HASHTABLE_SIZE", max_version=1, layout=Terminate(), quantization=Raw(), effects=Effects())
def hashtable_size(ctx: Context, _table: Resource) -> Value:
    """Return the number of keys."""
    keys, _ = table_contents(ctx)
    return ctx.constant_value(np.asarray([len(keys)], np.int64))


@handler(
    "HASHTABLE_FIND",
    max_version=1,
    layout=Transparent(),
    axes="_, ..., _ -> ...",
    quantization=Raw(),
    effects=Effects(),
    result_shape=lambda at: at.op[1].dims,
)
def hashtable_find(ctx: Context, _table: Resource, x: Value, default: Value) -> Value:
    """Emit LabelEncoder: the values of keys, and the default for missing keys."""
    keys, values = table_contents(ctx)
    constant_default, default_scalar = ctx.op.constant(2), ctx.ops.Reshape(default, np.zeros(0, np.int64))
    if not keys:
        return ctx.ops.Expand(default_scalar, ctx.ops.Shape(x))
    if constant_default is not None:
        return emit_label_encoder(ctx, x, keys, values, to_attribute(constant_default)[0])
    positions = emit_label_encoder(ctx, x, keys, list(range(len(keys))), -1)
    table = np.asarray(values, np.int64) if isinstance(values[0], int) else as_string_array(values)
    return ctx.ops.Where(ctx.ops.Less(positions, 0), default_scalar, ctx.ops.Gather(table, positions))


def as_string_array(texts: list[str]) -> Array:
    return np.asarray([text.encode() for text in texts], object)


def emit_label_encoder(ctx: Context, x: Value, keys: list[Any], values: list[Any], default: object) -> Value:
    """Emit the LabelEncoder for the dtypes of keys and values."""
    key_suffixes, value_suffixes = (
        ("strings", "string") if isinstance(column[0], str) else ("int64s", "int64") for column in (keys, values)
    )
    attributes = {
        f"keys_{key_suffixes[0]}": keys,
        f"values_{value_suffixes[0]}": values,
        f"default_{value_suffixes[1]}": default,
    }
    y: Value = ctx.ops.domain(ML_DOMAIN).LabelEncoder(x, **attributes)
    return y


def table_states(ctx: Context) -> tuple[State, State]:
    """Return the states that hold the keys and the values of a table."""
    key = ctx.resource(0).key
    return ctx.state(ctx.make_resource(f"{key}/keys")), ctx.state(ctx.make_resource(f"{key}/values"))


def table_contents(ctx: Context) -> tuple[list[Any], list[Any]]:
    """Return unique keys and their values.

    Raises Refusal if the table is not initialized yet.
    """
    keys, values = (state.initial for state in table_states(ctx))
    if keys is None or values is None:
        raise Refusal("the table is read before it is initialized, which LiteRT refuses too")
    values_by_key: dict[Any, Any] = {}
    for key, value in zip(to_attribute(keys), to_attribute(values), strict=True):
        values_by_key.setdefault(key, value)
    return list(values_by_key), list(values_by_key.values())


def to_attribute(array: Array) -> list[Any]:
    """Return Python numbers or text for an ONNX attribute.

    Raises Refusal for text that is not UTF-8.
    """
    try:
        return [item.decode() if isinstance(item, bytes) else int(item) for item in array.reshape(-1).tolist()]
    except UnicodeDecodeError:
        raise Refusal("the table holds text that is not UTF-8, which ONNX attributes cannot hold") from None
