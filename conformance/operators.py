"""Translate an operator's name and options into the fields of a file."""

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


def split(code: str | int) -> tuple[int, str, str]:
    """Return (builtin code, custom code, composite name) for the name of an operator."""
    if not isinstance(code, str):
        return code, "", ""
    if code.startswith(CUSTOM):
        return enum("BuiltinOperator")["CUSTOM"], name_in_file(code), ""
    if code.startswith(COMPOSITE):
        return enum("BuiltinOperator")["STABLEHLO_COMPOSITE"], "", name_in_file(code)
    return enum_value("BuiltinOperator", code), "", ""


def options_fields(builtin: int, given: Mapping[str, Any], table: str | None) -> dict[str, Any]:
    """Return the fields of an operator for its options: union and table."""
    name = next((name for name, value in enum("BuiltinOperator").items() if value == builtin), f"operator {builtin}")
    if table is None:
        table = options_table(name)
    if not table:
        if given:
            remedy = "; options of a custom operator are custom_options=" if name == "CUSTOM" else ""
            raise BuilderError(f"{name} has no options table, but was given {', '.join(given)}{remedy}")
        return {}
    for suffix in ("", "2"):
        if table in enum(f"BuiltinOptions{suffix}"):
            encode(flatbuffers.Builder(64), Table(table, given))  # a wrong option fails here, at the call that holds it
            return {f"builtin_options{suffix}_type": table, f"builtin_options{suffix}": Table(table, given)}
    raise BuilderError(f"the schema has no options table {table!r}: {did_you_mean(table, options_tables())}")


def flexbuffer(value: bytes | Mapping[str, Any]) -> bytes:
    return value if isinstance(value, bytes) else bytes(flatbuffers.flexbuffers.Dumps(dict(value)))
