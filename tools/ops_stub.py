"""Writes ``onnx_tflite_plugin/api/ops.pyi``: a method for each ONNX operator, with its operands and attributes.

``python -m tools.ops_stub --write`` after a target takes a newer opset; ``--check`` says whether that is due.
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
"""Attributes that number a dtype: they take its name too."""


def stub() -> str:
    schemas = (s for s in onnx.defs.get_all_schemas_with_history() if s.domain == "" and s.since_version <= OPSET)
    newest = {s.name: s for s in sorted(schemas, key=lambda s: s.since_version)}
    methods = (line for name in sorted(newest) if not newest[name].deprecated for line in method(newest[name]))
    return HEADER + "".join(f"{line}\n" for line in methods)


def method(schema: onnx.defs.OpSchema) -> Iterator[str]:
    """Return the declarations of a method: two if ``outputs`` decides between one value and several."""
    least, most = max(schema.min_output, 1), schema.max_output
    if most == 1:
        yield from format_declaration(schema, "", "Value")
    elif least == most:
        yield from format_declaration(schema, f"outputs: int = {most}", f"tuple[{', '.join(['Value'] * most)}]")
    else:
        yield "    @overload"
        yield from format_declaration(schema, "outputs: int", "tuple[Value, ...]")
        yield "    @overload"
        one = "Value" if least == 1 else f"tuple[{', '.join(['Value'] * least)}]"
        yield from format_declaration(schema, "outputs: None = None", one)


def format_declaration(schema: onnx.defs.OpSchema, outputs: str, returned: str) -> list[str]:
    """Return one declaration, broken into lines as ruff does."""
    parameters = ["self", *operands(schema)]
    keywords = [*([outputs] if outputs else []), *attributes(schema)]
    if keywords and not parameters[-1].startswith("*"):
        keywords = ["*", *keywords]
    parameters += keywords
    start, end = f"    def {schema.name}(", f") -> {returned}: ..."
    whole = start + ", ".join(parameters) + end
    if len(whole) <= WIDTH:
        return [whole]
    inside = " " * 8 + ", ".join(parameters)
    if len(inside) <= WIDTH:
        return [start, inside, "    " + end]
    return [start, *(f"        {parameter}," for parameter in parameters), "    " + end]


def operands(schema: onnx.defs.OpSchema) -> list[str]:
    option = onnx.defs.OpSchema.FormalParameterOption
    taken: list[str] = []
    for k, formal in enumerate(schema.inputs):
        if formal.option == option.Variadic:
            return [*taken, *(["/"] if taken else []), f"*{parameter_name(formal.name)}: ValueLike | None"]
        optional = formal.option == option.Optional or k >= schema.min_input
        taken.append(f"{parameter_name(formal.name)}: ValueLike" + (" | None = None" if optional else ""))
    return [*taken, "/"] if taken else []


def parameter_name(name: str) -> str:
    """Return a parameter name that is neither a keyword nor an attribute name."""
    name = name.lower()
    return f"{name}_" if iskeyword(name) or name in ("outputs", "self") else name


def attributes(schema: onnx.defs.OpSchema) -> list[str]:
    """Return the attributes, required ones first."""
    taken = {parameter_name(formal.name) for formal in schema.inputs}
    given = [a for a in schema.attributes.values() if a.type in TYPES and a.name not in taken]
    parameters = []
    for attribute in sorted(given, key=lambda a: (not a.required, a.name)):
        kind = TYPES[attribute.type] + (" | str" if attribute.name in DTYPES else "")
        default = "" if attribute.required else f" | None = {default_of(attribute)}"
        parameters.append(f"{attribute.name}: {kind}{default}")
    return parameters


def default_of(attribute: onnx.defs.OpSchema.Attribute) -> str:
    value = onnx.helper.get_attribute_value(attribute.default_value) if attribute.default_value.name else None
    if isinstance(value, bytes):
        return f'"{value.decode()}"'
    if isinstance(value, float):
        return str(np.float32(value))
    return str(value) if isinstance(value, int) else "None"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    chosen = parser.add_mutually_exclusive_group(required=True)
    chosen.add_argument("--write", action="store_true")
    chosen.add_argument("--check", action="store_true")
    text = stub()
    if parser.parse_args().write:
        STUB.write_text(text, encoding="utf-8")
    elif STUB.read_text(encoding="utf-8") != text:
        print(f"{STUB} is not what the schemas say: python -m tools.ops_stub --write", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
