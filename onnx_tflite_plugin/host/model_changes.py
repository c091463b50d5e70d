"""Detection and undoing of changes that hooks and passes of packs make to a model."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any

from onnx_tflite_plugin.guard import format_error

if TYPE_CHECKING:
    import onnx_ir as ir


class ValueSnapshot:
    """Snapshot of a value and its producer, taken before a hook is called."""

    def __init__(self, value: ir.Value) -> None:
        self.value, self.node = value, value.producer()
        self._original = self._current()

    def _current(self) -> tuple[tuple[Any, ...], ...]:
        value, node = self.value, self.node
        shape = None if value.shape is None else value.shape.copy()
        value_fields = (value.name, copy(value.type), shape, value.const_value)
        if node is None:
            return (value_fields,)
        return value_fields, (node.op_type, node.domain, node.name), tuple(node.inputs), tuple(node.attributes.items())

    @property
    def has_changed(self) -> bool:
        return any(
            len(old) != len(new) or any(a is not b and a != b for a, b in zip(old, new, strict=True))
            for old, new in zip(self._original, self._current(), strict=True)
        )

    def restore(self) -> None:
        """Restore the value and its node."""
        value, node = self.value, self.node
        value_fields, *node_fields = self._original
        value.name, value.type, value.shape, value.const_value = value_fields
        if node is not None:
            (node.op_type, node.domain, node.name), inputs, attributes = node_fields
            node.resize_inputs(len(inputs))
            for k, operand in enumerate(inputs):
                node.replace_input_with(k, operand)
            node.attributes.clear()
            node.attributes.update(attributes)


def copy_model(model: ir.Model) -> ir.Model:
    """Return a copy of the model that shares only tensors."""
    copied = model.clone()
    for graph in copied.graphs():
        values = {*graph.inputs, *graph.initializers.values(), *(value for node in graph for value in node.outputs)}
        for value in values:
            value.type = copy(value.type)
    return copied


def describe_interface_change(before: ir.Model, after: ir.Model) -> str:
    """Return a description of changed graph inputs or outputs; empty if unchanged."""
    for side in ("inputs", "outputs"):
        old, new = ([_format_value(value) for value in getattr(model.graph, side)] for model in (before, after))
        if old != new:
            return f"it changed the graph's {side}, from {', '.join(old) or 'none'} to {', '.join(new) or 'none'}"
    return ""


def describe_violation(model: ir.Model) -> str:
    """Return the reason why a changed model is not valid ONNX; empty if valid."""
    from onnx_tflite_plugin.graph.streaming import proto_to_check
    from onnx_tflite_plugin.graph.validity import find_violation

    try:
        violation = find_violation(proto_to_check(model))
    except Exception as error:
        violation = format_error(error)
    return violation and f"it leaves an invalid model: {violation}"


def _format_value(value: ir.Value) -> str:
    dtype = "?" if value.type is None else value.type.dtype.name.lower()
    return f"{value.name!r} {dtype} {list(value.shape) if value.shape is not None else '?'}"
