"""Read operator options.

The ``tflite`` package knows the fields of each options table, but reads files without checks. Therefore the module
``flatbuffer`` reads the file, and only the layout of the fields comes from the package. A generated class of the
package has one accessor per field. ``_record_layout`` calls each accessor on a recorder to learn its slot, type and
default.
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
from onnx_tflite_plugin.source.flexbuffer import decode_attributes
from onnx_tflite_plugin.source.model import Options
from onnx_tflite_plugin.source.schema import NEWER_OPERATORS, NEWER_OPTIONS_2, NEWER_TABLES

# Enum of each enum field, because the generated classes do not name it. 64-bit fields with these names are not enums:
# StableHLO's ``padding`` is a vector of longs.
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
def _load_class(name: str) -> type | None:
    """Return a class of the ``tflite`` package, ``None`` if it does not exist.

    Loads only the module of the class: importing the package loads all 190 modules, which takes 40 ms.
    """
    package = find_spec("tflite")
    assert package is not None
    spec = PathFinder.find_spec(f"tflite.{name}", package.submodule_search_locations)
    if spec is None or spec.loader is None:
        return None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name, None)


def _enum_names(name: str) -> dict[int, str]:
    if name == "TensorType":  # the package's enum is older than dtypes.NAMES
        return dict(enumerate(word.upper() for word in dtypes.NAMES))
    return {number: word for word, number in vars(_load_class(name)).items() if isinstance(number, int)}


@cache
def operator_names() -> Mapping[int, str]:
    """Return number -> the schema's name of the builtin operator."""
    return _enum_names("BuiltinOperator") | NEWER_OPERATORS


@cache
def _option_unions() -> Mapping[str, Mapping[int, str]]:
    """Return the table name of each number of the two option unions."""
    return {
        "builtin_options": _enum_names("BuiltinOptions"),
        "builtin_options_2": _enum_names("BuiltinOptions2") | NEWER_OPTIONS_2,
    }


class _Recorder:
    """Stand-in for ``flatbuffers.table.Table`` that records the reads of an accessor."""

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
def _record_layout(table: str) -> Layout | None:
    """Return the fields of an options table; ``None`` for an unknown table."""
    if table in NEWER_TABLES:
        return NEWER_TABLES[table]
    generated = _load_class(table)
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
        index, kind = recorder.slot // 2 - 2, recorder.kind  # slots have 2 bytes and begin at byte 4 of the vtable
        instance._tab = _Recorder(present=False)
        default = 0 if vector else method(instance)
        fields.append(Field(_WORD.sub("_", name).lower(), index, kind, vector, default))
    return Layout(table, {field.name: field for field in sorted(fields, key=lambda field: field.index)})


@cache
def _field_enums(layout: Layout) -> Mapping[str, Mapping[int, str]]:
    """Return number-to-name maps for the enum fields of ``layout``."""
    enums = ((field, ENUMS.get(field.name)) for field in layout.fields.values())
    return {field.name: _enum_names(enum) for field, enum in enums if enum and field.kind not in ("long", "ulong")}


def _decode(layout: Layout, table: Table) -> Options:
    values = {name: table.value(name) for name in layout.fields}
    for name, names in _field_enums(layout).items():
        number = values[name]
        try:
            values[name] = tuple(names[n] for n in number) if layout.fields[name].vector else names[number]
        except KeyError:
            reason = f"{number} is not one of {', '.join(names.values())}"
            raise table.invalid(name, reason, "the file was written for a newer LiteRT, or is damaged") from None
    for name in layout.fields:
        if values.get(f"{name}_format") == "FLEXBUFFERS":
            with suppress(ValueError):  # LiteRT does not read these attributes, so damaged attributes stay bytes
                values[name] = decode_attributes(values[name], name)
    return Options(layout.name, values)


@cache
def default_options(table: str) -> Options:
    """Return the schema's defaults of a table; empty for an unknown table."""
    layout = _record_layout(table)
    return Options(table) if layout is None else _decode(layout, Table.empty(layout))


@cache
def _operator_tables() -> Mapping[str, str]:
    """Return a key such as "conv2d" -> the options table named after an operator."""
    operators = {operator.replace("_", "").lower() for operator in operator_names().values()}
    names = (name for union in _option_unions().values() for name in union.values())
    return {key: name for name in names if (key := name.lower().removesuffix("options")) in operators}


@cache
def options_table(operator: str) -> str:
    """Return the options table named after a builtin operator; "" if there is none.

    For example, CONV_2D has Conv2DOptions.
    """
    return _operator_tables().get(operator.replace("_", "").lower(), "")


@cache
def shared_defaults() -> Mapping[str, Any]:
    """Return the field defaults of all shared tables, such as ReducerOptions.

    Fields of equal name have equal defaults.
    """
    tables = {name for union in _option_unions().values() for name in union.values() if name != "NONE"}
    shared = sorted(tables - set(_operator_tables().values()))
    return {field: value for table in shared for field, value in default_options(table).items()}


@cache
def _is_table_of(table: str, operator: str) -> bool:
    """True if a table may belong to an operator.

    The table is the one named after the operator. Without such a table, it may be a shared table, or one named after a
    prefix of the operator's name. A custom or unknown operator may have any table.
    """
    expected = options_table(operator)
    if expected or operator == "CUSTOM" or operator.startswith(UNKNOWN):
        return expected in ("", table)
    table_operator = next((key for key, name in _operator_tables().items() if name == table), "")
    return operator.replace("_", "").lower().startswith(table_operator)


def read_options(operator: Table, builtin: str) -> Options:
    """Return the operator's options.

    The options are defaults if the file has no table, or the table of a different operator, which LiteRT does not read
    either (``ParseOpData``, flatbuffer_conversions.cc). Old converters leave an empty table out. LiteRT then sets all
    fields to 0; here they have the schema's defaults. If the file leaves out a shared table, the options have the
    fields of all shared tables.
    """
    for union, tables in _option_unions().items():
        number = operator.number(union + "_type")
        name = tables.get(number, f"{union}[{number}]")
        if number and _is_table_of(name, builtin):
            layout = _record_layout(name)
            table = operator.table(union, layout) if layout is not None else None
            options = default_options(name) if layout is None or table is None else _decode(layout, table)
            # Without a table named after the operator, fields missing from the shared table have defaults.
            return options if options_table(builtin) else Options(options.table, dict(options), shared_defaults())
    named_table = options_table(builtin)
    return default_options(named_table) if named_table else Options(absent=shared_defaults())
