"""The TFLite schema, read from the ``tflite`` package, and an encoder of tables.

To find a table's fields, slots and defaults, the package's generated writer functions are called with a recorder in
place of the builder. Tables that the package lacks are listed here. A table to write is plain data, such as
``Table("Conv2DOptions", {"padding": "SAME", "stride_h": 2})``, and is nested like the file.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

import flatbuffers
import numpy as np
import tflite


@dataclass(frozen=True, slots=True)
class Field:
    """Slot, type and default of a field in a table.

    ``number_type``: type of a scalar, or of the elements of a vector; "" for strings and tables.
    """

    slot: int
    kind: Literal["scalar", "vector", "offset"]
    number_type: str = ""
    default: int | float = 0


_NUMPY = {
    "Bool": "?",
    "Int8": "<i1",
    "Uint8": "<u1",
    "Byte": "<u1",
    "Int16": "<i2",
    "Uint16": "<u2",
    "Int32": "<i4",
    "Uint32": "<u4",
    "Int64": "<i8",
    "Uint64": "<u8",
    "Float32": "<f4",
    "Float64": "<f8",
}
_ALIGNMENT = {("Buffer", "data"): 16, ("Uint8Vector", "values"): 4, ("Uint16Vector", "values"): 4}

# The enum of each field; the package's readers return plain integers. Ambiguous names are "Table.field".
_ENUM_OF = {
    "Tensor.type": "TensorType",
    "LSHProjectionOptions.type": "LSHProjectionType",
    "DimensionMetadata.format": "DimensionType",
    "algorithm": "RngAlgorithm",
    "array_indices_type": "SparseIndexVector",
    "array_segments_type": "SparseIndexVector",
    "builtin_options2_type": "BuiltinOptions2",
    "builtin_options_type": "BuiltinOptions",
    "combiner": "CombinerType",
    "compare_type": "StablehloComparisonType",
    "comparison_direction": "StablehloComparisonDirection",
    "composite_attributes_format": "CustomOptionsFormat",
    "custom_options_format": "CustomOptionsFormat",
    "details_type": "QuantizationDetails",
    "fused_activation_function": "ActivationFunctionType",
    "idx_out_type": "TensorType",
    "in_data_type": "TensorType",
    "kernel_type": "LSTMKernelType",
    "key_dtype": "TensorType",
    "mode": "MirrorPadMode",
    "out_data_type": "TensorType",
    "out_type": "TensorType",
    "output_type": "TensorType",
    "padding": "Padding",
    "precision_config": "StablehloPrecisionConfig",
    "quantized_bias_type": "TensorType",
    "reduce_function": "ReduceWindowFunction",
    "value_dtype": "TensorType",
    "weights_format": "FullyConnectedOptionsWeightsFormat",
}

# Additions to the schema after tflite 2.18.
_LATER_ENUM_VALUES: Mapping[str, Mapping[str, int]] = {
    "TensorType": {"INT2": 19, "UINT4": 20, "FLOAT8_E4M3FN": 21, "FLOAT8_E5M2": 22},
    "BuiltinOperator": {"STABLEHLO_SHIFT_LEFT": 207, "STABLEHLO_CBRT": 208, "STABLEHLO_CASE": 209},
    "BuiltinOptions2": {"StablehloShiftLeftOptions": 22, "StablehloCaseOptions": 23},
    "QuantizationDetails": {"BlockwiseQuantization": 2, "MultiAxisQuantization": 3},
}
_BLOCKWISE = {
    "scales": Field(0, "scalar", "Int32"),
    "zero_points": Field(1, "scalar", "Int32"),
    "block_size": Field(2, "scalar", "Int32"),
}
_LATER_TABLES: Mapping[str, Mapping[str, Field]] = {
    "StablehloCaseOptions": {"branch_subgraph_indices": Field(0, "vector", "Int32")},
    "BlockwiseQuantization": _BLOCKWISE,
    "MultiAxisQuantization": {**_BLOCKWISE, "quantized_dimensions": Field(3, "vector", "Int32")},
}

_SHARED_TABLES = {
    "AVERAGE_POOL_2D": "Pool2DOptions",
    "CONV_3D_TRANSPOSE": "Conv3DOptions",
    "L2_NORMALIZATION": "L2NormOptions",
    "L2_POOL_2D": "Pool2DOptions",
    "MAXIMUM": "MaximumMinimumOptions",
    "MAX_POOL_2D": "Pool2DOptions",
    "MEAN": "ReducerOptions",
    "MINIMUM": "MaximumMinimumOptions",
    "MULTINOMIAL": "RandomOptions",
    "RANDOM_STANDARD_NORMAL": "RandomOptions",
    "RANDOM_UNIFORM": "RandomOptions",
    "REDUCE_ALL": "ReducerOptions",
    "REDUCE_ANY": "ReducerOptions",
    "REDUCE_MAX": "ReducerOptions",
    "REDUCE_MIN": "ReducerOptions",
    "REDUCE_PROD": "ReducerOptions",
    "SUM": "ReducerOptions",
    "UNIDIRECTIONAL_SEQUENCE_RNN": "SequenceRNNOptions",
}


class BuilderError(ValueError):
    """A name or value is not in the schema. The message lists the valid names."""


@dataclass(frozen=True)
class Table:
    """A table to write. Names of tables and fields are those of the schema.

    Give an enum value by its name, and a child table as a nested Table.
    """

    name: str
    fields: Mapping[str, Any] = field(default_factory=dict)


class _Recorder:
    """Stands in for a flatbuffers builder and records a call of a generated function."""

    def __init__(self) -> None:
        self.call: tuple[str, tuple[Any, ...]] = ("", ())

    def __getattr__(self, name: str) -> Any:
        def record(*arguments: Any) -> None:
            self.call = (name, arguments)

        return record


def did_you_mean(wrong: str, known: Iterable[str]) -> str:
    """Return the end of a message about a wrong name: the valid names.

    The closest name comes first. If there are many names, only similar names are listed.
    """
    names = list(known)
    closest = difflib.get_close_matches(wrong, names, n=1)
    names_text = ", ".join(names if len(names) <= 40 else difflib.get_close_matches(wrong, names, n=8, cutoff=0.4))
    return (f"did you mean {closest[0]!r}? " if closest else "") + (
        f"known: {names_text}" if names_text else "there are none"
    )


@cache
def fields_of(table: str) -> Mapping[str, Field]:
    """Return the fields of a table by their snake_case name, in slot order."""
    if not hasattr(tflite, table + "Start"):
        if table not in _LATER_TABLES:
            raise BuilderError(f"the schema has no table {table!r}: {did_you_mean(table, options_tables())}")
        return _LATER_TABLES[table]
    fields = {}
    for function in dir(tflite):
        if not function.startswith(table + "Add"):
            continue
        camel_case_name = function.removeprefix(table + "Add")
        recorder = _Recorder()
        getattr(tflite, function)(recorder, 0)
        method, (slot, _, default) = recorder.call
        name = re.sub(r"(?<!^)([A-Z])", r"_\1", camel_case_name).lower()
        if method != "PrependUOffsetTRelativeSlot":
            fields[name] = Field(slot, "scalar", method.removeprefix("Prepend").removesuffix("Slot"), default)
        elif hasattr(tflite, f"{table}Start{camel_case_name}Vector"):
            fields[name] = Field(slot, "vector", _element_type(table, camel_case_name))
        else:
            fields[name] = Field(slot, "offset")
    return dict(sorted(fields.items(), key=lambda item: item[1].slot))


def _element_type(table: str, camel_case_name: str) -> str:
    """Return the number type of a vector's elements; "" for strings and tables.

    The type is derived from names that the generated reader function uses.
    """
    names = getattr(getattr(tflite, table), camel_case_name).__code__.co_names
    flags = [name.removesuffix("Flags") for name in names if name.endswith("Flags") and name != "UOffsetTFlags"]
    return flags[0] if flags else ""


@cache
def enum(name: str) -> Mapping[str, int]:
    """Return name -> value of an enum or union."""
    values = {key: value for key, value in vars(getattr(tflite, name)).items() if isinstance(value, int)}
    return {**values, **_LATER_ENUM_VALUES.get(name, {})}


def enum_value(name: str, value: str | int) -> int:
    """Return the number of the enum value ``value``: a name in any case, or a number."""
    if not isinstance(value, str):
        return int(value)
    values = enum(name)
    for key in (value, value.upper()):
        if key in values:
            return values[key]
    raise BuilderError(f"{name} has no value {value!r}: {did_you_mean(value.upper(), values)}")


@cache
def options_tables() -> tuple[str, ...]:
    return tuple(name for union in ("BuiltinOptions", "BuiltinOptions2") for name in enum(union) if name != "NONE")


@cache
def options_table(code: str) -> str:
    """Return the name of a builtin operator's options table; "" if it has none.

    The name follows from the schema's naming convention.
    """
    if code in _SHARED_TABLES:
        return _SHARED_TABLES[code]
    table_name = code.replace("_", "").lower() + "options"
    return next((name for name in options_tables() if name.lower() == table_name), "")


def encode(builder: flatbuffers.Builder, table: Table) -> int:
    """Write a table with all its children; return its offset."""
    fields = fields_of(table.name)
    values: dict[str, Any] = {}
    for name, value in table.fields.items():
        if name not in fields:
            raise BuilderError(f"{table.name} has no field {name!r}: {did_you_mean(name, fields)}")
        if value is None:
            continue
        try:
            values[name] = _slot_content(builder, table.name, name, fields[name], value)
        except (TypeError, ValueError, OverflowError) as error:
            if isinstance(error, BuilderError):
                raise
            raise BuilderError(f"{table.name}.{name} cannot hold {value!r}: {error}") from error
    builder.StartObject(_slot_count(table.name))
    for name, value in values.items():
        entry = fields[name]
        if entry.kind == "scalar":
            getattr(builder, f"Prepend{entry.number_type}Slot")(entry.slot, value, entry.default)
        else:
            builder.PrependUOffsetTRelativeSlot(entry.slot, value, 0)
    return int(builder.EndObject())


@cache
def _slot_count(table: str) -> int:
    """Return the number of slots in a table, including those of deprecated fields."""
    return max((entry.slot for entry in fields_of(table).values()), default=-1) + 1


@cache
def _integer_bounds(number_type: str) -> tuple[int, int]:
    """Return the minimum and maximum of a number type."""
    info = np.iinfo(_NUMPY[number_type])
    return int(info.min), int(info.max)


def _slot_content(builder: flatbuffers.Builder, table: str, name: str, entry: Field, value: Any) -> Any:
    """Return the content of a slot: a number, or the offset of a child.

    Numbers are checked, and children are written.
    """
    if entry.kind == "vector":
        return _write_vector(builder, table, name, entry, value)
    if entry.kind == "offset":
        if isinstance(value, Table):
            return encode(builder, value)
        if isinstance(value, str | bytes):
            return builder.CreateString(value)
        raise BuilderError(f"{table}.{name} takes a string or a table, not {value!r}")
    enum_name = _ENUM_OF.get(f"{table}.{name}", _ENUM_OF.get(name))
    if enum_name:
        return enum_value(enum_name, value)
    if isinstance(value, str):
        raise BuilderError(f"{table}.{name} takes a number, not {value!r}")
    if entry.number_type == "Bool" and value not in (0, 1):
        raise BuilderError(f"{table}.{name} takes True or False, not {value!r}")
    if entry.number_type.startswith("Float"):
        return float(value)
    number = int(value)
    if number != value:
        raise BuilderError(f"{table}.{name} takes an integer, not {value!r}")
    minimum, maximum = (0, 1) if entry.number_type == "Bool" else _integer_bounds(entry.number_type)
    if not minimum <= number <= maximum:
        raise BuilderError(f"{table}.{name} takes numbers from {minimum} to {maximum}, not {number}")
    return number


def _write_vector(builder: flatbuffers.Builder, table: str, name: str, entry: Field, value: Any) -> int:
    if not entry.number_type:
        offsets = [encode(builder, child) for child in value]
        builder.StartVector(4, len(offsets), 4)
        for offset in reversed(offsets):
            builder.PrependUOffsetTRelative(offset)
        return int(builder.EndVector())
    if not isinstance(value, bytes | bytearray | Sequence | np.ndarray) or isinstance(value, str):
        raise BuilderError(f"{table}.{name} takes a list, not {value!r}")
    dtype = np.dtype(_NUMPY[entry.number_type])
    if isinstance(value, bytes | bytearray):
        data = bytes(value)
    else:
        enum_name = _ENUM_OF.get(f"{table}.{name}", _ENUM_OF.get(name)) if name == "precision_config" else None
        elements = np.asarray([enum_value(enum_name, item) for item in value] if enum_name else value)
        stored = elements.astype(dtype)
        if dtype.kind != "f" and elements.size and not np.array_equal(stored, elements):
            raise BuilderError(f"{table}.{name} takes a list of {dtype.name} values, not {value!r}")
        data = stored.tobytes()
    builder.StartVector(dtype.itemsize, len(data) // dtype.itemsize, _ALIGNMENT.get((table, name), dtype.itemsize))
    builder.head = builder.head - len(data)
    builder.Bytes[builder.head : builder.head + len(data)] = data
    return int(builder.EndVector())
