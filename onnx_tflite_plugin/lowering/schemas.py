"""ONNX schemas, and operators adapted to the schema of the model's opset.

Over the opsets attributes became operands. They are matched by name: an operand that the schema lacks becomes the
attribute of that name, and the reverse.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnx_ir as ir

from onnx_tflite_plugin.api.refusal import Refusal


@cache
def schema_of(op_type: str, opset: int, domain: str) -> onnx.defs.OpSchema | None:
    """Return the schema of a node; ``None`` in a domain of which ONNX has no schemas.

    Raises LookupError with the opset if the domain has no such operator.
    """
    try:
        return onnx.defs.get_schema(op_type, opset, domain)
    except onnx.defs.SchemaError:
        if domain not in _domains():
            return None
        raise LookupError(f"ONNX has no operator {domain}{'.' if domain else ''}{op_type} at opset {opset}") from None


@cache
def attributes_of(schema: onnx.defs.OpSchema) -> Mapping[str, ir.AttributeType]:
    """Return the types of a schema's attributes by name; cached because the schema rebuilds its objects on each access."""
    return {name: ir.AttributeType(int(one.type.value)) for name, one in schema.attributes.items()}  # type: ignore[attr-defined]


class Signature(NamedTuple):
    """Operands and outputs of a schema, of which the last may repeat; ``inputs`` and ``outputs`` are their type names.

    ``uniform``: outputs that have one dtype, however often they repeat. ``only``: the dtype of each type name with a single
    one. ``optional``: outputs that a node may leave out.
    """

    least: int
    most: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    uniform: tuple[bool, ...]
    only: Mapping[str, ir.DataType]
    optional: tuple[bool, ...]


@cache
def signature_of(schema: onnx.defs.OpSchema) -> Signature:
    """Return the signature of a schema; cached because the schema rebuilds its objects on each access."""
    formal = list(schema.outputs)
    allowed = {one.type_param_str: one.allowed_type_strs for one in schema.type_constraints}
    outputs = tuple(one.type_str for one in formal)
    single = {kind: types[0] for kind in outputs if len(types := allowed.get(kind, [kind])) == 1}
    options = onnx.defs.OpSchema.FormalParameterOption
    return Signature(
        schema.min_input,
        schema.max_input,
        tuple(one.type_str for one in schema.inputs),
        outputs,
        tuple(one.is_homogeneous for one in formal),
        {kind: ir.DataType[t[7:-1].upper()] for kind, t in single.items() if t.startswith("tensor(")},
        tuple(one.option == options.Optional for one in formal),
    )


@cache
def _domains() -> frozenset[str]:
    return frozenset(schema.domain for schema in onnx.defs.get_all_schemas())


def fit_to_opset(
    schema: onnx.defs.OpSchema, opset: int, operands: list[Any], attributes: Mapping[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Return operands and attributes as the schema of the opset has them.

    Raises Refusal if an operand would have to be an attribute but is a runtime value.
    """
    given, kept = list(operands), dict(attributes)
    most = signature_of(schema).most
    for k in range(most, len(operands)):
        name = _operand_name(schema.name, schema.domain, k)
        if name in attributes_of(schema) and name not in kept:
            value = _attribute_value(schema, opset, name, given.pop(most))
            kept.update({} if value is None else {name: value})
    unknown = [name for name in kept if name not in attributes_of(schema)]
    names = [formal.name for formal in schema.inputs] if unknown else []
    for name in unknown:
        place = names.index(name) if name in names else 0
        if name in names and (place >= len(given) or given[place] is None):
            given += [None] * (place + 1 - len(given))
            given[place] = kept.pop(name)
    return given, kept


@cache
def _operand_name(op_type: str, domain: str, k: int) -> str:
    """Return the name of operand ``k`` in the newest opset; "" if there is none."""
    newest = onnx.defs.get_schema(op_type, domain)
    return newest.inputs[k].name if k < len(newest.inputs) else ""


def _attribute_value(schema: onnx.defs.OpSchema, opset: int, name: str, operand: Any) -> Any:
    """Return a constant operand as an attribute value. Raises Refusal for a runtime value."""
    array = operand
    if isinstance(operand, ir.Value):
        if operand.const_value is None:
            since = _first_opset_with_operand(schema.name, schema.domain, name, opset)
            raise Refusal(f"{schema.name} takes {name} as a runtime value only from opset {since}; try --opset {since}")
        array = operand.const_value.numpy()
    if array is None:
        return None
    several = attributes_of(schema)[name] == ir.AttributeType.INTS
    return (np.reshape(array, -1) if several else np.asarray(array)).tolist()


def _first_opset_with_operand(op_type: str, domain: str, name: str, opset: int) -> int:
    """Return the first opset after ``opset`` whose schema has an operand of that name."""
    newest = onnx.defs.get_schema(op_type, domain).since_version
    versions = (onnx.defs.get_schema(op_type, version, domain) for version in range(opset + 1, newest + 1))
    return next(s.since_version for s in versions if name in (formal.name for formal in s.inputs))
