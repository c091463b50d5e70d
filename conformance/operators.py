"""Translate an operator's name and options into fields of a .tflite file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import flatbuffers
import flatbuffers.flexbuffers

from conformance.schema import (
    BuilderError,
    Table,
    did_you_mean,
    encode,
    enum,
    enum_value,
    options_table,
    options_tables,
)
from onnx_tflite_plugin.codes import COMPOSITE, CUSTOM, name_in_file


def code_parts(code: str | int) -> tuple[int, str, str]:
    """Return (builtin code, custom code, composite name) for the name of an operator.

    A name that does not apply is "". A number is returned as the builtin code.
    """
    if not isinstance(code, str):
        return code, "", ""
    if code.startswith(CUSTOM):
        return enum("BuiltinOperator")["CUSTOM"], name_in_file(code), ""
    if code.startswith(COMPOSITE):
        return enum("BuiltinOperator")["STABLEHLO_COMPOSITE"], "", name_in_file(code)
    if "." in code:
        custom = code.partition(".")[2] if code.upper().startswith(CUSTOM) else code
        raise BuilderError(f"TFLite has no operator {code!r}; did you mean {CUSTOM + custom!r}?")
    return enum_value("BuiltinOperator", code), "", ""


def options_fields(builtin: int, options: Mapping[str, Any], table: str | None) -> dict[str, Any]:
    """Return the fields of an operator that hold its options: the table and its type.

    ``table``: name of the options table; None for the table of the operator, "" for no table. Raises BuilderError for
    unknown options.
    """
    name = next((name for name, value in enum("BuiltinOperator").items() if value == builtin), f"operator {builtin}")
    if table is None:
        table = options_table(name)
    if not table:
        if options:
            remedy = "; write custom_options={...} for a custom operator" if name == "CUSTOM" else ""
            noun = "the option" if len(options) == 1 else "the options"
            names = ", ".join(map(repr, options))
            raise BuilderError(f"{name} has no options table, but was given {noun} {names}{remedy}")
        return {}
    for suffix in ("", "2"):
        if table in enum(f"BuiltinOptions{suffix}"):
            encode(flatbuffers.Builder(64), Table(table, options))  # raises here, where the wrong option is passed
            return {f"builtin_options{suffix}_type": table, f"builtin_options{suffix}": Table(table, options)}
    raise BuilderError(f"the schema has no options table {table!r}: {did_you_mean(table, options_tables())}")


def flexbuffer(value: bytes | Mapping[str, Any]) -> bytes:
    return value if isinstance(value, bytes) else bytes(flatbuffers.flexbuffers.Dumps(dict(value)))
