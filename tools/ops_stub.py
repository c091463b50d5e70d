"""Generator of ``onnx_tflite_plugin/api/ops.pyi``: one method per ONNX operator.

Run ``python -m tools.ops_stub --write`` after a target supports a newer opset. ``--check`` fails if the file is out of
date.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from keyword import iskeyword
from pathlib import Path

import numpy as np
import onnx
import onnx.defs

from onnx_tflite_plugin.targets import TARGETS

STUB = Path(__file__).parent.parent / "onnx_tflite_plugin" / "api" / "ops.pyi"
OPSET = max(target.opsets[2] for target in TARGETS.values())
WIDTH = 120

HEADER = f'''"""Generated from the schemas of ONNX, opset {OPSET}, by tools/ops_stub.py."""

from collections.abc import Callable, Sequence
from typing import Any, overload

from onnx_tflite_plugin.api.values import Graph, Value, ValueLike
from onnx_tflite_plugin.source.model import Array

class Named:
    """An operator that is not known to editors."""
    @overload
    def __call__(self, *operands: ValueLike | None, outputs: int, **attributes: Any) -> tuple[Value, ...]: ...
    @overload
    def __call__(self, *operands: ValueLike | None, outputs: None = None, **attributes: Any) -> Value: ...

class AnyOps:
    """Operators of another domain."""
    def __getattr__(self, op_type: str) -> Callable[..., Any]: ...

class Ops:
    """ONNX operators as methods."""
    def __init__(self, emit: Callable[..., Sequence[Value]], domain: str = "") -> None: ...
    def domain(self, name: str) -> AnyOps: ...
    def named(self, op_type: str) -> Named: ...
'''

Kind = onnx.defs.OpSchema.AttrType
TYPES = {
    Kind.INT: "int",
    Kind.FLOAT: "float",
    Kind.STRING: "str",
    Kind.TENSOR: "Array",
    Kind.GRAPH: "Graph",
    Kind.INTS: "Sequence[int]",
    Kind.FLOATS: "Sequence[float]",
    Kind.STRINGS: "Sequence[str]",
}
DTYPES = ("to", "dtype", "output_dtype", "stash_type", "softmax_precision")
"""Attributes that hold an ONNX dtype number; the methods also accept the dtype's name."""


def stub() -> str:
    """Return the text of the stub file."""
    schemas = (s for s in onnx.defs.get_all_schemas_with_history() if s.domain == "" and s.since_version <= OPSET)
    newest = {s.name: s for s in sorted(schemas, key=lambda s: s.since_version)}
    methods = (line for name in sorted(newest) if not newest[name].deprecated for line in method(newest[name]))
    return HEADER + "".join(f"{line}\n" for line in methods)


def method(schema: onnx.defs.OpSchema) -> Iterator[str]:
    """Yield the declarations of a method; overloads if the number of outputs varies."""
    min_outputs, max_outputs = max(schema.min_output, 1), schema.max_output
    if max_outputs == 1:
        yield from format_declaration(schema, "", "Value")
    elif min_outputs == max_outputs:
        yield from format_declaration(
            schema, f"outputs: int = {max_outputs}", f"tuple[{', '.join(['Value'] * max_outputs)}]"
        )
    else:
        yield "    @overload"
        yield from format_declaration(schema, "outputs: int", "tuple[Value, ...]")
        yield "    @overload"
        return_type = "Value" if min_outputs == 1 else f"tuple[{', '.join(['Value'] * min_outputs)}]"
        yield from format_declaration(schema, "outputs: None = None", return_type)


def format_declaration(schema: onnx.defs.OpSchema, outputs: str, return_type: str) -> list[str]:
    """Return the lines of one declaration, broken as ruff does."""
    parameters = ["self", *operands(schema)]
    keywords = [*([outputs] if outputs else []), *attributes(schema)]
    if keywords and not parameters[-1].startswith("*"):
        keywords = ["*", *keywords]
    parameters += keywords
    start, end = f"    def {schema.name}(", f") -> {return_type}: ..."
    declaration = start + ", ".join(parameters) + end
    if len(declaration) <= WIDTH:
        return [declaration]
    parameter_line = " " * 8 + ", ".join(parameters)
    if len(parameter_line) <= WIDTH:
        return [start, parameter_line, "    " + end]
    return [start, *(f"        {parameter}," for parameter in parameters), "    " + end]


def operands(schema: onnx.defs.OpSchema) -> list[str]:
    """Return the operands as positional-only parameters."""
    option = onnx.defs.OpSchema.FormalParameterOption
    parameters: list[str] = []
    for k, formal in enumerate(schema.inputs):
        if formal.option == option.Variadic:
            return [*parameters, *(["/"] if parameters else []), f"*{parameter_name(formal.name)}: ValueLike | None"]
        optional = formal.option == option.Optional or k >= schema.min_input
        parameters.append(f"{parameter_name(formal.name)}: ValueLike" + (" | None = None" if optional else ""))
    return [*parameters, "/"] if parameters else []


def parameter_name(name: str) -> str:
    """Return a parameter name that is neither a keyword nor an attribute name."""
    name = name.lower()
    return f"{name}_" if iskeyword(name) or name in ("outputs", "self") else name


def attributes(schema: onnx.defs.OpSchema) -> list[str]:
    """Return the attributes as keyword parameters, required ones first."""
    operand_names = {parameter_name(formal.name) for formal in schema.inputs}
    keyword_attributes = [a for a in schema.attributes.values() if a.type in TYPES and a.name not in operand_names]
    parameters = []
    for attribute in sorted(keyword_attributes, key=lambda a: (not a.required, a.name)):
        parameter_type = TYPES[attribute.type] + (" | str" if attribute.name in DTYPES else "")
        default = "" if attribute.required else f" | None = {default_of(attribute)}"
        parameters.append(f"{attribute.name}: {parameter_type}{default}")
    return parameters


def default_of(attribute: onnx.defs.OpSchema.Attribute) -> str:
    """Return an attribute's default as source code; ``None`` for lists and tensors."""
    value = onnx.helper.get_attribute_value(attribute.default_value) if attribute.default_value.name else None
    if isinstance(value, bytes):
        return f'"{value.decode()}"'
    if isinstance(value, float):
        return str(np.float32(value))
    return str(value) if isinstance(value, int) else "None"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    mode = parser.add_mutually_exclusive_group(required=True)
    mode.add_argument("--write", action="store_true")
    mode.add_argument("--check", action="store_true")
    text = stub()
    if parser.parse_args().write:
        STUB.write_text(text, encoding="utf-8")
    elif STUB.read_text(encoding="utf-8") != text:
        print(f"{STUB} is out of date; run python -m tools.ops_stub --write", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
