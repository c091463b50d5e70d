"""Find a wrong layout declaration of a handler, if a case fails only in another layout than the file's."""

from __future__ import annotations

from collections.abc import Iterator

from conformance.declared import declarations_of, instances
from onnx_tflite_plugin.api import Attribute, Implicit, Operator, Transparent
from onnx_tflite_plugin.conversion import Conversion
from onnx_tflite_plugin.host import BUILTIN, Host
from onnx_tflite_plugin.source.model import Model
from onnx_tflite_plugin.verify.runtimes.ort import tensor_values

SUGGESTIONS = {
    Transparent: "declare Attribute() and use ctx.axis, or declare the `axes` that the slots share",
    Attribute: "remap each axis number and each entry per axis (ctx.axis, ctx.permute_entries, holds_axes, indexed_by_axis), "
    "or correct `axes`",
}


def false_layout(code: str, model: Model, host: Host, conversion: Conversion | None, difference: str) -> str:
    """Return a message on the wrong layout declaration, or "" if only the file's layout was used. ``model``: as read from the file."""
    for op in instances(model, code):
        declarations = declarations_of(op, host)
        layout = None if declarations is None else declarations.layout
        if not isinstance(layout, Transparent | Attribute):
            continue  # a layout that the operator fixes is wrong in every plan
        layouts = [] if conversion is None else list(_layouts(op, conversion))
        if conversion is not None and not layouts:
            continue
        kind = type(layout)
        differs = (
            f"with axes {layouts[0]} the result differs by {difference}"
            if layouts
            else "in another layout than the file's the operator does not convert"
        )
        return f"layout={kind.__name__} is wrong: {differs}; {SUGGESTIONS[kind]}"
    return ""


def wrong_in_every_layout(code: str, model: Model, host: Host) -> Iterator[str]:
    """Yield a message on an Implicit declaration of a pack if results differ in every layout."""
    for op in instances(model, code):
        declared = declarations_of(op, host)
        if declared is not None and isinstance(declared.layout, Implicit) and not _is_builtin(op, host):
            named = f"axes={declared.axes!r} and Implicit(onnx={dict(declared.layout.onnx)!r})"
            yield f"the result differs in every layout: {named} may name a wrong axis, or the lowering or the kernel is wrong"
            return


def _is_builtin(op: Operator, host: Host) -> bool:
    return all(pack == BUILTIN for pack, _ in host.registered(op.code))


def _layouts(op: Operator, conversion: Conversion) -> Iterator[str]:
    """Yield the layouts, other than the file's, of the operator's operands and results in the model."""
    tensors = {t.index for t in (*op.inputs, *op.outputs) if t is not None}
    for value in tensor_values(conversion.proto):
        if value.subgraph == op.subgraph and value.tensor in tensors and value.order is not None:
            kept = [axis for axis in value.order if axis >= 0]
            if kept != sorted(kept):
                yield ",".join(map(str, value.order))
