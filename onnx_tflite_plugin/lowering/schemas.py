"""ONNX schemas, and operators adapted to the schema of the model's opset.

Newer opsets turned some attributes into operands. An operand that the schema lacks therefore becomes the attribute of
the same name, and vice versa.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnx_ir as ir

from onnx_tflite_plugin.api.refusal import OpsetRefusal
from onnx_tflite_plugin.checked import did_you_mean


@cache
def schema_of(op_type: str, opset: int, domain: str) -> onnx.defs.OpSchema | None:
    """Return the schema of a node; ``None`` in a domain for which ONNX has no schemas.

    Raises Refusal if only a newer opset has the operator, LookupError if the domain does not have it.
    """
    try:
        return onnx.defs.get_schema(op_type, opset, domain)
    except onnx.defs.SchemaError:
        if domain not in _domains():
            return None
        refuse_if_newer_opset_supports(op_type, domain, opset, op_type, lambda _: True)
        raise LookupError(_describe_missing_operator(op_type, opset, domain)) from None


def _describe_missing_operator(op_type: str, opset: int, domain: str) -> str:
    """Return a message about an operator that ONNX lacks in this opset."""
    known = {schema.name for schema in onnx.defs.get_all_schemas() if schema.domain == domain}
    full_name = f"{domain}.{op_type}" if domain else op_type
    if op_type in known:
        return f"ONNX has no operator {full_name} at opset {opset}"
    return f"ONNX has no operator {full_name}{did_you_mean(op_type, known)}"


@cache
def decomposition(op_type: str, opset: int, domain: str) -> onnx.FunctionProto | None:
    """Return the function that ONNX defines for an operator of a newer opset.

    Return None if there is no such function, if its attributes are parameters, or if this opset lacks one of its operators.
    """
    newest = _newest_schema(op_type, domain)
    for version in range(opset + 1, (newest.since_version if newest else 0) + 1):
        try:
            schema = onnx.defs.get_schema(op_type, version, domain)
            if not schema.has_function:  # type: ignore[attr-defined]
                return None
            body = schema.function_body
            for node in body.node:
                onnx.defs.get_schema(node.op_type, opset, node.domain)
        except onnx.defs.SchemaError:
            continue
        has_parameters = any(attribute.ref_attr_name for node in body.node for attribute in node.attribute)
        return None if has_parameters else body
    return None


def refuse_if_newer_opset_supports(
    op_type: str, domain: str, opset: int, description: str, is_supported: Callable[[onnx.defs.OpSchema], bool]
) -> None:
    """Raise Refusal if the schema of a newer opset passes ``is_supported``.

    ``description``: the feature that the model's opset lacks, for the message.
    """
    if (newest := _newest_schema(op_type, domain)) is None or newest.since_version <= opset:
        return
    for version in range(opset + 1, newest.since_version + 1):
        try:
            schema = onnx.defs.get_schema(op_type, version, domain)
        except onnx.defs.SchemaError:
            continue
        if is_supported(schema):
            raise OpsetRefusal(description, opset, schema.since_version)


@cache
def schema_attributes(schema: onnx.defs.OpSchema) -> Mapping[str, ir.AttributeType]:
    """Return a schema's attribute types by name, cached because ONNX rebuilds them."""
    return {name: ir.AttributeType(int(attribute.type.value)) for name, attribute in schema.attributes.items()}  # type: ignore[attr-defined]


class Signature(NamedTuple):
    """Operands and outputs of a schema; the last operand or output may repeat.

    ``min_inputs`` and ``max_inputs``: number of operands. ``inputs`` and ``outputs``: type names. ``homogeneous``: True
    for variadic outputs of one dtype. ``single_dtypes``: type name that allows one dtype -> this dtype.
    ``required``: True for operands that a node must have. ``optional``: True for outputs that a node may omit.
    """

    min_inputs: int
    max_inputs: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    homogeneous: tuple[bool, ...]
    single_dtypes: Mapping[str, ir.DataType]
    required: tuple[bool, ...]
    optional: tuple[bool, ...]


@cache
def signature_of(schema: onnx.defs.OpSchema) -> Signature:
    """Return a schema's signature, cached because ONNX rebuilds its objects."""
    output_parameters = list(schema.outputs)
    allowed_types = {constraint.type_param_str: constraint.allowed_type_strs for constraint in schema.type_constraints}
    outputs = tuple(parameter.type_str for parameter in output_parameters)
    single_types = {name: types[0] for name in outputs if len(types := allowed_types.get(name, [name])) == 1}
    options = onnx.defs.OpSchema.FormalParameterOption
    return Signature(
        schema.min_input,
        schema.max_input,
        tuple(parameter.type_str for parameter in schema.inputs),
        outputs,
        tuple(parameter.is_homogeneous for parameter in output_parameters),
        {name: ir.DataType[text[7:-1].upper()] for name, text in single_types.items() if text.startswith("tensor(")},
        tuple(parameter.option == options.Single for parameter in schema.inputs),
        tuple(parameter.option == options.Optional for parameter in output_parameters),
    )


def require_dtypes(schema: onnx.defs.OpSchema, opset: int, dtypes: Sequence[ir.DataType | None]) -> None:
    """Raise Refusal if only a newer opset supports an operand's dtype.

    ``None`` stands for an unknown dtype.
    """
    for k, dtype in enumerate(dtypes):
        if dtype is not None and not _allows(schema, k, dtype):
            description = f"{schema.name} of {dtype.name.lower()}"
            refuse_if_newer_opset_supports(
                schema.name, schema.domain, opset, description, partial(_allows, k=k, dtype=dtype)
            )


def _has_attribute(schema: onnx.defs.OpSchema, name: str) -> bool:
    return name in schema_attributes(schema)


def _has_operand(schema: onnx.defs.OpSchema, name: str) -> bool:
    return name in [parameter.name for parameter in schema.inputs]


def _allows(schema: onnx.defs.OpSchema, k: int, dtype: ir.DataType) -> bool:
    """True if operand ``k`` may have the dtype."""
    dtypes = _operand_dtypes(schema)
    return dtype in dtypes[min(k, len(dtypes) - 1)]


@cache
def _operand_dtypes(schema: onnx.defs.OpSchema) -> tuple[frozenset[ir.DataType], ...]:
    """Return the tensor dtypes that a schema allows for each operand."""
    types_by_parameter = {
        constraint.type_param_str: constraint.allowed_type_strs for constraint in schema.type_constraints
    }
    # parameter.types would suffice, but onnx 1.20 cannot read it.
    type_texts = [types_by_parameter.get(parameter.type_str, [parameter.type_str]) for parameter in schema.inputs]
    names = [[text[7:-1].upper() for text in texts if text.startswith("tensor(")] for texts in type_texts]
    return tuple(frozenset(map(ir.DataType.__getitem__, dtype_names)) for dtype_names in names)


def is_operator(name: str) -> bool:
    """True if ONNX's main domain has an operator with this name."""
    return _newest_schema(name, "") is not None


@cache
def _newest_schema(op_type: str, domain: str) -> onnx.defs.OpSchema | None:
    try:
        return onnx.defs.get_schema(op_type, domain)
    except onnx.defs.SchemaError:
        return None


@cache
def _domains() -> frozenset[str]:
    return frozenset(schema.domain for schema in onnx.defs.get_all_schemas())


def fit_to_opset(
    schema: onnx.defs.OpSchema, opset: int, operands: list[Any], attributes: Mapping[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Return operands and attributes as the opset's schema requires them.

    Raises Refusal if the opset lacks an attribute, or requires an attribute in place of a runtime value.
    """
    new_operands, new_attributes = list(operands), dict(attributes)
    max_inputs = signature_of(schema).max_inputs
    for k in range(max_inputs, len(operands)):
        name = _operand_name(schema.name, schema.domain, k)
        if name in schema_attributes(schema) and name not in new_attributes:
            value = _attribute_value(schema, opset, name, new_operands.pop(max_inputs))
            new_attributes.update({} if value is None else {name: value})
    unknown = [name for name in new_attributes if name not in schema_attributes(schema)]
    names = [parameter.name for parameter in schema.inputs] if unknown else []
    for name in unknown:
        position = names.index(name) if name in names else 0
        if name in names and (position >= len(new_operands) or new_operands[position] is None):
            new_operands += [None] * (position + 1 - len(new_operands))
            new_operands[position] = new_attributes.pop(name)
        elif name not in names:
            description = f"{schema.name} with {name}"
            refuse_if_newer_opset_supports(
                schema.name, schema.domain, opset, description, partial(_has_attribute, name=name)
            )
    # An empty constant replaces an operand that is optional only in newer opsets, such as the scales of Resize before opset 13.
    required = signature_of(schema).required
    absent = [operand is None and any(required[k : k + 1]) for k, operand in enumerate(new_operands)]
    pairs = zip(new_operands, absent, strict=True)
    return [np.zeros(0, np.float32) if is_absent else operand for operand, is_absent in pairs], new_attributes


@cache
def _operand_name(op_type: str, domain: str, k: int) -> str:
    """Return the name of operand ``k`` in the newest opset; "" if there is none."""
    newest = onnx.defs.get_schema(op_type, domain)
    return newest.inputs[k].name if k < len(newest.inputs) else ""


def _attribute_value(schema: onnx.defs.OpSchema, opset: int, name: str, operand: Any) -> Any:
    """Return a constant operand as an attribute value.

    Raises Refusal for a runtime value.
    """
    array = operand
    if isinstance(operand, ir.Value):
        if operand.const_value is None:
            description = f"{schema.name} with {name} as a runtime value"
            refuse_if_newer_opset_supports(
                schema.name, schema.domain, opset, description, partial(_has_operand, name=name)
            )
            raise TypeError(f"{schema.name} takes {name} only as a constant")
        array = operand.const_value.numpy()
    if array is None:
        return None
    is_list = schema_attributes(schema)[name] == ir.AttributeType.INTS
    return (np.reshape(array, -1) if is_list else np.asarray(array)).tolist()
