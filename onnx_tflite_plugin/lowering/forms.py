"""An operator in the form that the model's opset has for it: over the opsets attributes became operands.

What a handler writes is fitted by names alone: an operand that the schema lacks becomes the attribute of that name, an
attribute that it lacks the operand.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnx_ir as ir

from onnx_tflite_plugin.api.refusal import Refused


@cache
def schema_of(op_type: str, opset: int, domain: str) -> onnx.defs.OpSchema | None:
    """The schema a node must follow; ``None`` in a domain of which ONNX has no schemas.

    Raises LookupError naming the opset where there is none.
    """
    try:
        return onnx.defs.get_schema(op_type, opset, domain)
    except onnx.defs.SchemaError:
        if domain not in _domains():
            return None
        raise LookupError(f"ONNX has no operator {domain}{'.' if domain else ''}{op_type} at opset {opset}") from None


@cache
def attributes_of(schema: onnx.defs.OpSchema) -> Mapping[str, ir.AttributeType]:
    """The types of a schema's attributes by name; the schema makes all of its own objects anew whenever it is asked."""
    return {name: ir.AttributeType(int(one.type.value)) for name, one in schema.attributes.items()}  # type: ignore[attr-defined]


class Signature(NamedTuple):
    """What a schema says of operands and results, the last of which may repeat: ``inputs`` and ``outputs`` are what it
    calls their dtypes.

    ``uniform``: results that have one dtype, however often they repeat. ``only``: the dtype of results that may have one
    alone, by what it is called. ``optional``: results that a node may leave out.
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
    """Read once, for the schema makes all of its own objects anew."""
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


def fitted(
    schema: onnx.defs.OpSchema, opset: int, operands: list[Any], attributes: Mapping[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Operands and attributes as the opset has them.

    Raises Refused where an operand would have to be an attribute and is known at run time only.
    """
    given, kept = list(operands), dict(attributes)
    most = signature_of(schema).most
    for k in range(most, len(operands)):
        name = _operand_name(schema.name, schema.domain, k)
        if name in attributes_of(schema) and name not in kept:
            value = _constant(schema, opset, name, given.pop(most))
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
    """What the newest opset calls an operand; "" where it has none there."""
    newest = onnx.defs.get_schema(op_type, domain)
    return newest.inputs[k].name if k < len(newest.inputs) else ""


def _constant(schema: onnx.defs.OpSchema, opset: int, name: str, operand: Any) -> Any:
    array = operand
    if isinstance(operand, ir.Value):
        if operand.const_value is None:
            since = _operand_since(schema.name, schema.domain, name, opset)
            raise Refused(f"{name} known only at run time need opset {since} for {schema.name}; try --opset {since}")
        array = operand.const_value.numpy()
    if array is None:
        return None
    several = attributes_of(schema)[name] == ir.AttributeType.INTS
    return (np.reshape(array, -1) if several else np.asarray(array)).tolist()


def _operand_since(op_type: str, domain: str, name: str, opset: int) -> int:
    """The first opset above one that has an operand of that name."""
    newest = onnx.defs.get_schema(op_type, domain).since_version
    versions = (onnx.defs.get_schema(op_type, version, domain) for version in range(opset + 1, newest + 1))
    return next(s.since_version for s in versions if name in (formal.name for formal in s.inputs))
