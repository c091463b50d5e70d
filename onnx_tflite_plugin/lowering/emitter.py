"""Emission of nodes: schema checks, names, and metadata of their origin."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from onnx_tflite_plugin.api.refusal import Refusal
from onnx_tflite_plugin.api.roles import NamedArray
from onnx_tflite_plugin.checked import did_you_mean
from onnx_tflite_plugin.graph.names import UniqueNames
from onnx_tflite_plugin.lowering.attributes import make_attribute
from onnx_tflite_plugin.lowering.ir_values import onnx_dtype, require_value, set_type, tensor_value
from onnx_tflite_plugin.lowering.schemas import (
    Signature,
    decomposition,
    fit_to_opset,
    require_dtypes,
    schema_attributes,
    schema_of,
    signature_of,
)
from onnx_tflite_plugin.source.model import Array, Dims

ROLES, NOTE = "onnx_tflite_plugin.roles", "onnx_tflite_plugin.note"
CONVERTS_LAYOUT = "onnx_tflite_plugin.converts_layout"
"""Keys in the ``meta`` of nodes. ``meta`` is not written to the file.

``ROLES``: slot -> role of the operand. ``NOTE``: the handler's note. ``CONVERTS_LAYOUT``: marks the Transposes of the
layout plan.
"""

Operand = ir.Value | Array | bool | int | float | Sequence[int] | Sequence[float] | None

_VERSIONS = {"ai.onnx.ml": 3}
"""Opset by domain, for domains other than ``ai.onnx`` with several opsets.

All supported runtimes have these opsets.
"""

_PREFIX_BYTES = 256
"""Number of leading bytes by which candidates for an equal constant are found, before all bytes are compared."""


class Emitter:
    """Collects the nodes of one ONNX model, or of its inner graphs.

    ``wider_dtypes``: {operator: {dtype: wider dtype}}, for dtypes without a kernel of the operator.
    """

    outer_scopes = ""
    """Outer scopes that value names leave out (:func:`shared_scopes`)."""
    note = ""
    """The handler's note on the operator whose nodes are emitted."""

    def __init__(
        self, opset: int, names: UniqueNames, wider_dtypes: Mapping[str, Mapping[str, str]] | None = None
    ) -> None:
        self.opset = opset
        self.wider_dtypes = wider_dtypes or {}
        self.names = names
        self.nodes: list[ir.Node] = []
        self.warnings: list[str] = []
        self.domains: dict[str, int] = {"": opset}
        self._constants: dict[tuple[np.dtype[Any], tuple[int, ...], bytes], list[tuple[ir.Value, Array]]] = {}
        self._registered: set[ir.Value] = set()
        self._label = ""
        self._metadata: dict[str, str] = {}

    def clear(self) -> None:
        """Drop references to nodes and values; the finished graph owns them."""
        self.nodes = []
        self._constants.clear()
        self._registered.clear()

    @contextmanager
    def label_nodes(self, label: str, metadata: Mapping[str, str]) -> Iterator[None]:
        """Give nodes emitted inside the context the name prefix ``label`` and metadata."""
        previous = self._label, self._metadata, self.note
        self._label, self._metadata, self.note = label, dict(metadata), ""
        try:
            yield
        finally:
            self._label, self._metadata, self.note = previous

    @contextmanager
    def collect_inner_nodes(self) -> Iterator[list[ir.Node]]:
        """Collect the nodes emitted inside the context in the returned list."""
        outer, self.nodes = self.nodes, []
        try:
            yield self.nodes
        finally:
            self.nodes = outer

    def constant(self, array: Array, name: str = "") -> ir.Value:
        """Return an initializer, shared by equal arrays.

        Unused initializers are dropped later.
        """
        contiguous = np.ascontiguousarray(array) if array.ndim else array
        name = name or f"{self._label}/constant"
        if contiguous.dtype == object:
            return self.register(tensor_value(contiguous, self.names.unique(name)))
        content = contiguous.reshape(-1).view(np.uint8)
        candidates = self._constants.setdefault(
            (contiguous.dtype, contiguous.shape, content[:_PREFIX_BYTES].tobytes()), []
        )
        for value, candidate_content in candidates:
            if len(content) <= _PREFIX_BYTES or np.array_equal(content, candidate_content):
                return value
        value = self.register(tensor_value(contiguous, self.names.unique(name)))
        candidates.append((value, content))
        return value

    def register(self, value: ir.Value) -> ir.Value:
        """Register a graph input, a constant or a node's output; return it."""
        self._registered.add(value)
        return value

    def is_registered(self, value: ir.Value) -> bool:
        """True if a value belongs to this model, not to another conversion."""
        return value in self._registered

    def operand(self, operand: Operand, name: str = "") -> ir.Value | None:
        """Return an operand as a value of the model.

        Ints become int64, floats float32, and arrays keep their dtype. Raises TypeError for anything else.
        """
        if operand is None or isinstance(operand, ir.Value):
            return operand
        if isinstance(operand, np.ndarray | np.generic):
            return self.constant(np.asarray(operand), name)
        array = np.asarray(operand)
        if array.dtype.kind not in "bifu":
            raise TypeError(
                f"{type(operand).__name__} {operand!r} cannot be an operand: pass a value, an array or numbers"
            )
        dtype = {"f": np.dtype(np.float32), "b": array.dtype}.get(
            array.dtype.kind if array.size else "i", np.dtype(np.int64)
        )
        return self.constant(array.astype(dtype), name)

    def emit(
        self,
        op_type: str,
        inputs: Sequence[Operand],
        attributes: Mapping[str, Any],
        outputs: int | None = None,
        domain: str = "",
    ) -> list[ir.Value]:
        """Emit one node and return its outputs.

        Arguments that are operands in some opsets and attributes in others may be passed as either. An operator of a
        newer opset becomes the function that ONNX defines for it. Operands in a dtype without a kernel are cast to a
        wider dtype, and the results are cast back. Raises LookupError or TypeError for an operator, arity or attribute
        that ONNX does not have, Refusal if only a newer opset has the operator.
        """
        version = self.domains.setdefault(domain, _VERSIONS.get(domain, 1))
        try:
            schema = schema_of(op_type, version, domain)
        except Refusal:
            body = decomposition(op_type, version, domain)
            if body is None or attributes:
                raise
            return self._emit_function(body, inputs)
        present_attributes = {name: value for name, value in attributes.items() if value is not None}
        operands = list(inputs)
        if schema is not None:
            operands, present_attributes = fit_to_opset(schema, version, operands, present_attributes)
        values = [self.operand(operand) for operand in operands]
        while values and values[-1] is None:
            values.pop()
        if schema is None:
            return self._append_node(op_type, values, present_attributes, outputs or 1, None, domain)
        signature = signature_of(schema)
        _check_schema(schema, version, values, present_attributes)
        count = outputs or max(schema.min_output, 1)
        narrow_dtype, wide_dtype, widened_type = self._widening_for(schema, values, present_attributes)
        if wide_dtype:
            values = [
                self._convert_operand(operand, value, wide_dtype)
                if type_name == widened_type and _dtype(value) == narrow_dtype
                else value
                for operand, value, type_name in zip(
                    operands, values, _type_names(signature.inputs, len(values)), strict=False
                )
            ]
        require_dtypes(schema, version, [None if value is None else value.dtype for value in values])
        results = self._append_node(op_type, values, present_attributes, count, schema, domain)
        roles = {
            slot: operand.role
            for slot, operand in enumerate(operands)
            if isinstance(operand, NamedArray) and operand.role
        }
        if roles:
            self.nodes[-1].meta[ROLES] = roles
        if not wide_dtype:
            return results
        output_types = _type_names(signature.outputs, len(results))
        return [
            self._cast(value, narrow_dtype) if type_name == widened_type else value
            for value, type_name in zip(results, output_types, strict=True)
        ]

    def _emit_function(self, body: onnx.FunctionProto, inputs: Sequence[Operand]) -> list[ir.Value]:
        """Emit the nodes of an ONNX function and return its outputs."""
        values = dict(zip(body.input, map(self.operand, inputs), strict=True))
        for node in body.node:
            attributes = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
            outputs = self.emit(
                node.op_type, [values[name] for name in node.input], attributes, len(node.output), node.domain
            )
            values.update(zip(node.output, outputs, strict=True))
        return [require_value(values[name]) for name in body.output]

    def _widening_for(
        self, schema: onnx.defs.OpSchema, values: Sequence[ir.Value | None], attributes: Mapping[str, Any]
    ) -> tuple[str, str, str]:
        """Return (narrow dtype, wider dtype, type name in the schema) of operands to cast.

        The wider dtype is empty if the operator has a kernel for the operands.
        """
        reduction = attributes.get("reduction", "none")
        wider_dtypes = self.wider_dtypes.get(schema.name if reduction == "none" else f"{schema.name}/{reduction}", {})
        if not wider_dtypes:
            return "", "", ""
        signature = signature_of(schema)
        type_names = _type_names(signature.inputs, len(values))
        widened_type = signature.outputs[0] if signature.outputs[0] in type_names else type_names[0]
        dtypes = {
            _dtype(value) for value, type_name in zip(values, type_names, strict=True) if type_name == widened_type
        }
        narrow_dtype = next((dtype for dtype in dtypes if dtype in wider_dtypes), "")
        return narrow_dtype, wider_dtypes.get(narrow_dtype, ""), widened_type

    def _convert_operand(self, operand: Operand, value: ir.Value | None, dtype: str) -> ir.Value | None:
        """Return an operand cast to another dtype; arrays are cast at conversion."""
        if value is None:
            return None
        if isinstance(operand, np.ndarray | np.generic):
            return self.constant(np.asarray(operand).astype(onnx_dtype(dtype).numpy()))
        return self._cast(value, dtype)

    def _cast(self, value: ir.Value, dtype: str) -> ir.Value:
        return self.emit("Cast", [value], {"to": dtype})[0]

    def _append_node(
        self,
        op_type: str,
        values: Sequence[ir.Value | None],
        attributes: Mapping[str, Any],
        outputs: int,
        schema: onnx.defs.OpSchema | None,
        domain: str,
    ) -> list[ir.Value]:
        node = ir.Node(
            domain,
            op_type,
            values,
            [make_attribute(name, value, schema) for name, value in attributes.items()],
            num_outputs=outputs,
            name=self.names.unique(f"{self._label}/{op_type}" if self._label else op_type),
            metadata_props=dict(self._metadata),
        )
        if self.note:
            node.meta[NOTE] = self.note
        for k, value in enumerate(node.outputs):
            value.name = self.names.unique(f"{node.name}:out")
            value.type = None if schema is None else _output_type(signature_of(schema), k, values, node)
            self._registered.add(value)
        self.nodes.append(node)
        return list(node.outputs)

    def emit_foreign(
        self,
        domain: str,
        op_type: str,
        inputs: Sequence[Operand],
        attributes: Mapping[str, Any],
        outputs: Sequence[tuple[str, Dims | None] | None],
    ) -> list[ir.Value]:
        """Emit one node of an operator without an ONNX schema.

        Attributes that are arrays become tensors. ``outputs``: the dtype and shape of each output, which no schema
        determines.
        """
        self.domains.setdefault(domain, 1)
        node = ir.Node(
            domain,
            op_type,
            [self.operand(operand) for operand in inputs],
            [
                ir.AttrTensor(name, ir.Tensor(value, name=name))
                if isinstance(value, np.ndarray)
                else ir.convenience.convert_attribute(name, list(value) if isinstance(value, tuple) else value)
                for name, value in attributes.items()
            ],
            num_outputs=len(outputs),
            name=self.names.unique(f"{self._label}/{op_type}" if self._label else op_type),
            metadata_props=dict(self._metadata),
        )
        for value, type_ in zip(node.outputs, outputs, strict=True):
            value.name = self.names.unique(f"{node.name}:out")
            if type_ is not None:
                set_type(value, *type_)
            self._registered.add(value)
        self.nodes.append(node)
        return list(node.outputs)


def _check_schema(
    schema: onnx.defs.OpSchema, version: int, values: Sequence[ir.Value | None], attributes: Mapping[str, Any]
) -> None:
    """Raise TypeError for a wrong number of operands or an unknown attribute."""
    signature = signature_of(schema)
    if not signature.min_inputs <= len(values) <= signature.max_inputs:
        expected = f"{signature.min_inputs} to {signature.max_inputs} inputs"
        raise TypeError(f"{schema.name} takes {expected} at opset {version}, not {len(values)}")
    unknown = sorted(attributes.keys() - schema_attributes(schema).keys())
    if unknown:
        suggestion = did_you_mean(unknown[0], schema_attributes(schema)) or f" at opset {version}"
        raise TypeError(f"{schema.name} has no attribute {', '.join(unknown)}{suggestion}")


def _type_names(parameters: Sequence[str], count: int) -> list[str]:
    """Return the schema's type names of ``count`` operands; the last may repeat."""
    return [parameters[min(k, len(parameters) - 1)] for k in range(count)]


def _dtype(value: ir.Value | None) -> str:
    """Return the lower-case ONNX dtype name of a value; "" if unknown."""
    return "" if value is None or value.type is None else value.type.dtype.name.lower()


def _output_type(
    signature: Signature, k: int, inputs: Sequence[ir.Value | None], node: ir.Node
) -> ir.TypeProtocol | None:
    """Return the type of an output, or None if it is unknown.

    The type is derived from an inner graph, an input, the schema or an attribute.
    """
    position = min(k, len(signature.outputs) - 1)
    if not signature.homogeneous[position]:
        # An output of If, Loop or Scan has the type of the inner graph's output at the same position from the end.
        inner = next((a.as_graph() for a in node.attributes.values() if a.type == ir.AttributeType.GRAPH), None)
        return None if inner is None else inner.outputs[k - len(node.outputs)].type
    type_name = signature.outputs[position]
    for value, kind in zip(inputs, _type_names(signature.inputs, len(inputs)), strict=True):
        if kind == type_name and value is not None and value.type is not None:
            return ir.TensorType(value.type.dtype)
    if type_name in signature.single_dtypes:
        return ir.TensorType(signature.single_dtypes[type_name])
    dtype = node.attributes.get("to") or node.attributes.get("dtype")
    return None if dtype is None else ir.TensorType(ir.DataType(dtype.as_int()))
