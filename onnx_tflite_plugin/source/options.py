"""Operator options: which fields a table has is asked of the ``tflite`` package, once a table; the file is read by us.

A generated class of that package is a list of accessors, each of which knows a slot, a type and a default. Calling them
on a recorder instead of a file tells us all three (``_layout``), so that no table is written down here, and none of
the package's unchecked reading is used.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import Any

from onnx_tflite_plugin.codes import UNKNOWN
from onnx_tflite_plugin.source import dtypes
from onnx_tflite_plugin.source.flatbuffer import Field, Layout, Table
from onnx_tflite_plugin.source.flexbuffer import attributes
from onnx_tflite_plugin.source.model import Options
from onnx_tflite_plugin.source.schema import NEWER_OPERATORS, NEWER_OPTIONS_2, NEWER_TABLES

# The schema gives these fields an enum; the generated classes do not say which. Never a 64-bit field: StableHLO's
# ``padding`` is a vector of longs.
ENUMS = {
    "algorithm": "RngAlgorithm",
    "combiner": "CombinerType",
    "compare_type": "StablehloComparisonType",
    "comparison_direction": "StablehloComparisonDirection",
    "composite_attributes_format": "CustomOptionsFormat",
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
    "type": "LSHProjectionType",
    "value_dtype": "TensorType",
    "weights_format": "FullyConnectedOptionsWeightsFormat",
}
_KINDS = {
    "bool": "bool",
    "int8": "byte",
    "uint8": "ubyte",
    "int16": "short",
    "uint16": "ushort",
    "int32": "int",
    "uint32": "uint",
    "int64": "long",
    "uint64": "ulong",
    "float32": "float",
    "float64": "double",
}
_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


@cache
def _generated(name: str) -> type | None:
    """A class of the ``tflite`` package, ``None`` where it has none of that name.

    The module that holds it is loaded by itself: the package imports all of its 190, which takes 40 ms.
    """
    package = find_spec("tflite")
    assert package is not None
    spec = PathFinder.find_spec(f"tflite.{name}", package.submodule_search_locations)
    if spec is None or spec.loader is None:
        return None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name, None)


def _enum(name: str) -> dict[int, str]:
    if name == "TensorType":  # the package's list is older than ours
        return dict(enumerate(word.upper() for word in dtypes.NAMES))
    return {number: word for word, number in vars(_generated(name)).items() if isinstance(number, int)}


@cache
def operator_names() -> Mapping[int, str]:
    """The schema's name of each builtin operator, by number."""
    return _enum("BuiltinOperator") | NEWER_OPERATORS


@cache
def _unions() -> Mapping[str, Mapping[int, str]]:
    """The table that each number of the two option unions stands for."""
    return {
        "builtin_options": _enum("BuiltinOptions"),
        "builtin_options_2": _enum("BuiltinOptions2") | NEWER_OPTIONS_2,
    }


class _Recorder:
    """Stands where an accessor expects ``flatbuffers.table.Table`` and notes what it would read."""

    Pos = 0

    def __init__(self, present: bool) -> None:
        self.present = present
        self.kind = "string"

    def Offset(self, slot: int) -> int:
        self.slot = slot
        return slot if self.present else 0

    def Get(self, flags: Any, offset: int) -> int:
        self.kind = _KINDS[flags.name]
        return 0

    def Vector(self, offset: int) -> int:
        return 0

    def String(self, offset: int) -> bytes:
        return b""


@cache
def _layout(table: str) -> Layout | None:
    """The fields of an options table, ``None`` if neither the package nor we know it."""
    if table in NEWER_TABLES:
        return NEWER_TABLES[table]
    generated = _generated(table)
    if generated is None:
        return None
    methods = {name: method for name, method in vars(generated).items() if inspect.isfunction(method)}
    fields = []
    for name, method in methods.items():
        if name == "Init" or name.removesuffix("AsNumpy").removesuffix("Length").removesuffix("IsNone") != name:
            continue
        vector = name + "AsNumpy" in methods
        instance = generated()
        instance._tab = recorder = _Recorder(present=True)
        method(instance, *([0] if vector else []))
        index, kind = recorder.slot // 2 - 2, recorder.kind
        instance._tab = _Recorder(present=False)
        default = 0 if vector else method(instance)
        fields.append(Field(_WORD.sub("_", name).lower(), index, kind, vector, default))
    return Layout(table, {field.name: field for field in sorted(fields, key=lambda field: field.index)})


@cache
def _field_enums(layout: Layout) -> Mapping[str, Mapping[int, str]]:
    """Number → name for the fields of ``layout`` that hold an enum."""
    enums = ((field, ENUMS.get(field.name)) for field in layout.fields.values())
    return {field.name: _enum(enum) for field, enum in enums if enum and field.kind not in ("long", "ulong")}


def _decode(layout: Layout, table: Table) -> Options:
    values = {name: table.value(name) for name in layout.fields}
    for name, names in _field_enums(layout).items():
        number = values[name]
        try:
            values[name] = tuple(names[n] for n in number) if layout.fields[name].vector else names[number]
        except KeyError:
            reason = f"{number} is none of {', '.join(names.values())}"
            raise table.invalid(name, reason, "written for a newer LiteRT, or damaged") from None
    for name in layout.fields:
        if values.get(f"{name}_format") == "FLEXBUFFERS":
            with suppress(ValueError):  # LiteRT runs the model without a look at them, so what is damaged stays bytes
                values[name] = attributes(values[name], name)
    return Options(layout.name, values)


@cache
def default_options(table: str) -> Options:
    """What an empty table holds: the schema's defaults. An unknown table has no fields."""
    layout = _layout(table)
    return Options(table) if layout is None else _decode(layout, Table.empty(layout))


@cache
def _named_after() -> Mapping[str, str]:
    """Operator, as its table spells it, to the table of that name."""
    spelled = {operator.replace("_", "").lower() for operator in operator_names().values()}
    names = (name for union in _unions().values() for name in union.values())
    return {key: name for name in names if (key := name.lower().removesuffix("options")) in spelled}


@cache
def table_of(operator: str) -> str:
    """The options table named like a builtin operator (CONV_2D → Conv2DOptions), "" if none is."""
    return _named_after().get(operator.replace("_", "").lower(), "")


@cache
def shared_defaults() -> Mapping[str, Any]:
    """The schema's defaults in tables named after no operator, which several share (ReducerOptions); no two differ."""
    tables = {name for union in _unions().values() for name in union.values() if name != "NONE"}
    shared = sorted(tables - set(_named_after().values()))
    return {field: value for table in shared for field, value in default_options(table).items()}


@cache
def _belongs(table: str, operator: str) -> bool:
    """Whether a table may be an operator's: its own; where it has none, one named after no operator (ReducerOptions), or
    after one whose name it begins with (the transposed convolution's is the convolution's).
    """
    own = table_of(operator)
    if own or operator == "CUSTOM" or operator.startswith(UNKNOWN):
        return own in ("", table)
    named = next((key for key, name in _named_after().items() if name == table), "")
    return operator.replace("_", "").lower().startswith(named)


def read_options(operator: Table, builtin: str) -> Options:
    """The operator's options in the file; the defaults where it has none, or a table of another operator.

    A custom operator, or one that is newer than the schema we know, has whatever the file gives it. LiteRT asks for
    the operator's own table and finds no other (``ParseOpData``, flatbuffer_conversions.cc). Old converters leave an
    empty table out, and LiteRT then has all fields 0; here they have the schema's defaults. Which shared table an operator
    would have nothing tells, so there its fields are those of all.
    """
    for union, tables in _unions().items():
        number = operator.number(union + "_type")
        name = tables.get(number, f"{union}[{number}]")
        if number and _belongs(name, builtin):
            layout = _layout(name)
            table = operator.table(union, layout) if layout is not None else None
            options = default_options(name) if layout is None or table is None else _decode(layout, table)
            # Another table is taken where nothing tells which is the operator's own: fields that it lacks have defaults.
            return options if table_of(builtin) else Options(options.table, dict(options), shared_defaults())
    own = table_of(builtin)
    return default_options(own) if own else Options(absent=shared_defaults())
