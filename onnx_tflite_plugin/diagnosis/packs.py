"""Declarations of op packs' handlers, listed where a false one may be the cause of a failure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields

from onnx_tflite_plugin.api.declarations import Layout
from onnx_tflite_plugin.api.quantization import Behaviour
from onnx_tflite_plugin.binding.bound import BoundModel, Declared
from onnx_tflite_plugin.errors import Blamed, InternalError
from onnx_tflite_plugin.guard import BUILTIN, Failed

PackDeclarations = Mapping[tuple[str, str], tuple[str, str]]
"""By handler and pack: the first operator it lowers, and what it declares of that."""


def pack_declarations(model: BoundModel) -> PackDeclarations:
    """Return the handlers of the model that are not built in, with what is known by now of their declarations."""
    first: dict[tuple[str, str], tuple[str, str]] = {}
    for bound in model.operators():
        if bound.pack != BUILTIN:
            told = "not read yet" if bound.resolved is None else declarations(bound.resolved)
            first.setdefault((bound.handler.name, bound.pack), (bound.label, told))
    return first


def declarations(declared: Declared) -> str:
    """``layout=Transparent(), axes='n c -> n c', quantization=SameScale()``: what decides order and dtype of its tensors."""
    axes = [] if declared.axes is None else [f"axes={declared.axes!r}"]
    told = [f"layout={_brief(declared.layout)}", *axes]
    if declared.quantization.is_quantizable:
        told.append(f"quantization={_brief(declared.quantization)}")
    return ", ".join(told)


def blame_packs(where: str, declared: PackDeclarations) -> InternalError:
    """Return the error for a failure of the converter's own code on these declarations. ``where``: what failed, and where."""
    problems = [
        Blamed(
            label,
            f"where what handler {handler} of {pack} declares is not true ({text}), it is the reason of {where}",
            Failed(pack, "").hint,
        )
        for (handler, pack), (label, text) in declared.items()
    ]
    return InternalError("the conversion failed, on declarations of an op pack:", problems)


def _brief(value: Layout | Behaviour) -> str:
    """A declaration as it is written: without fields that have their defaults."""
    given = []
    for field in fields(value):
        default = field.default_factory() if field.default_factory is not MISSING else field.default
        if (own := getattr(value, field.name)) != default:
            given.append(f"{field.name}={own!r}")
    return f"{type(value).__name__}({', '.join(given)})"
