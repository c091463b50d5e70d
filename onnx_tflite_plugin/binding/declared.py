"""What a handler declares of one operator, every function of it called: the planners and the lowering read this record.

Each declared function is called once, with the instance, under one guard; what it returns is checked here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from onnx_tflite_plugin.api.activations import ACTIVATIONS
from onnx_tflite_plugin.api.declarations import (
    Along,
    Axes,
    Decline,
    Effects,
    Handler,
    Instance,
    Layout,
    Widened,
)
from onnx_tflite_plugin.api.dtypes import refusal
from onnx_tflite_plugin.api.quantization import Behaviour, OutputBehaviour
from onnx_tflite_plugin.api.refusal import Refused
from onnx_tflite_plugin.binding.activation import fused_declaration, with_applied_activation
from onnx_tflite_plugin.binding.bound import Bound, BoundModel, Declared, label
from onnx_tflite_plugin.checked import described, did_you_mean, fits, spelled
from onnx_tflite_plugin.errors import REFUSED, UNFIT, HandlerError, Problem
from onnx_tflite_plugin.guard import BUILTIN, Failed, Mismatch, definition, guarded
from onnx_tflite_plugin.source.model import Array, Dims, Operator
from onnx_tflite_plugin.source.options import operator_names
from onnx_tflite_plugin.targets import PRICED, Target


class At(NamedTuple):
    """An operator of a model converted for a target: what declared functions are given."""

    op: Operator
    target: Target
    opset: int


def resolve(model: BoundModel, target: Target, opset: int) -> BoundModel:
    """The model with the declarations of every operator. Raises HandlerError with each that refuses, fails or does not fit."""
    problems: list[Problem] = []
    heading = REFUSED
    graphs = []
    for graph in model.graphs:
        operators = []
        for bound in graph.operators:
            try:
                operators.append(bound if bound.resolved else resolved(bound, target, opset))
            except Failed as failed:
                heading = UNFIT
                problems.append(failed.problem(bound.label))
            except Refused as refusal:
                problems.append(Problem(bound.label, str(refusal), f"handler {bound.handler.name} in {bound.pack}"))
        graphs.append(graph.with_operators(tuple(operators)))
    if problems:
        raise HandlerError(heading, problems)
    return replace(model, graphs=tuple(graphs))


def resolved(bound: Bound, target: Target, opset: int) -> Bound:
    """The operator with its declarations. Raises Failed for one that fails or does not fit, Refused where it refuses."""
    handler, op = bound.handler, bound.op
    read = _Reader(handler, bound.pack, At(op, target, opset), bound.label)
    return replace(
        bound,
        resolved=Declared(
            layout=read("layout", handler.layout, Layout),
            axes=read("axes", handler.axes, Axes),
            aligned=handler.axes is None,
            along=read("along", handler.along, Along | None, _unpriced),
            indexed_by_axis=read("indexed_by_axis", handler.indexed_by_axis, Mapping[int, int]),
            holds_axes=frozenset(handler.holds_axes),
            reshapes=read("reshapes", handler.reshapes, Mapping[int, Dims], _unfit_shapes),
            requires_constant=frozenset(handler.requires_constant),
            quantization=read("quantization", handler.quantization, Behaviour),
            output_quantization=read(
                "output_quantization", handler.output_quantization, Mapping[int, OutputBehaviour], _no_outputs
            ),
            activation=_activation(read),
            activates_inside=(fused := fused_declaration(handler)) is not None and fused.inside,
            min_opset=read("min_opset", handler.min_opset, int),
            subgraphs=called(read("subgraphs", handler.subgraphs, tuple, _unknown_options), op),
            borders=handler.borders,
            effects=read("effects", handler.effects, Effects | None, _absent_slots),
            state=None if handler.effects is None else read("effects.names", handler.effects.names, str),
        ),
    )


Check = Callable[[Any, At], str]


class _Reader(NamedTuple):
    """Reads the declarations of one operator."""

    handler: Handler
    pack: str
    at: At
    label: str

    def __call__(self, name: str, declared: Any, kind: Any, wrong: Check = lambda value, at: "") -> Any:
        """A literal as it is, a function of the instance called; ``wrong`` says why a value of this kind will not do."""
        value = self._result(name, declared, kind) if callable(declared) else declared
        reason = wrong(value, self.at)
        if reason:
            by = declared if callable(declared) else self.handler.lower
            place = definition(by)
            text = f"{self._named(name)} of {self.pack} does not fit: {reason}"
            raise Failed(self.pack, text + (f", at {place}" if place else ""))
        return value

    def _result(self, name: str, function: Callable[[Instance], Any], kind: Any) -> Any:
        with guarded(self._named(name), self.pack, function, self.label, passes=(Refused,)):
            value = function(self.at)
            if not fits(value, kind):
                raise Mismatch(f"it returned {described(value)}, not {spelled(kind)}")
            return value

    def _named(self, name: str) -> str:
        return f"{name} declared by handler {self.handler.name}"


def accepted(handler: Handler, pack: str, at: Instance) -> Decline | None:
    """Return why a handler declines an operator, by ``types``, ``accepts`` or its fused activation; ``None`` where it does not.

    Raises Failed where a declaration fails.
    """
    reason = types_refused(handler, pack, at)
    if reason:
        return Decline(reason)
    refusal_ = declined(handler, pack, at)
    if refusal_ is not None:
        return refusal_
    activated = with_applied_activation(handler, pack, at)
    return activated if isinstance(activated, Decline) else None


def declined(handler: Handler, pack: str, at: Instance) -> Decline | None:
    """Return what ``accepts`` says of an operator; a refusal declines. Raises Failed where it fails."""
    if not callable(handler.accepts):
        return handler.accepts
    with guarded(f"accepts of handler {handler.name}", pack, handler.accepts, label(at.op)):
        try:
            answer = handler.accepts(at)
        except Refused as refused_:
            return Decline(str(refused_))
        if not (answer is None or isinstance(answer, Decline)):
            raise Mismatch(f"it returned {described(answer)}, not a Decline or None")
        return answer


def types_refused(handler: Handler, pack: str, at: Instance) -> str:
    """Why an operator's dtypes are none that its handler takes; "" where they are. Raises Failed where it cannot tell."""
    if not handler.types:
        return ""
    with guarded(
        f"types of handler {handler.name}",
        pack,
        handler.types if callable(handler.types) else handler.lower,
        label(at.op),
    ):
        types = handler.types(at) if callable(handler.types) else handler.types
        if not fits(types, str | Collection[str]):
            raise Mismatch(f"it returned {described(types)}, not a row of dtypes or several")
        kernels = pack == BUILTIN and handler.code == at.op.builtin and handler.code in operator_names().values()
        return refusal(at.op, types, "LiteRT's kernels take" if kernels else f"what {handler.name} declares is")


def evaluated(handler: Handler, pack: str, at: Instance) -> Array | Widened | None:
    """Output 0 of an operator where its handler knows it at conversion time. Raises Failed where that contradicts the file."""
    if handler.evaluate is None:
        return None
    with guarded(f"evaluate of handler {handler.name}", pack, handler.evaluate, label(at.op)):
        try:
            array = handler.evaluate(at)
        except Refused:  # the lowering says why
            return None
        if array is None:
            return None
        if isinstance(array, Widened) and at.op.constant(array.slot) is not None:
            return array
        if not isinstance(array, np.ndarray):
            raise Mismatch(f"it returned {described(array)}, not an array or None")
        tensor = at.op[~0]
        agrees = array.dtype.name == tensor.dtype and (not tensor.static or array.shape == tensor.shape)
        if not agrees and pack == BUILTIN:  # the file's fault, which is told where the result is checked
            return None
        if not agrees:
            wanted = f"{tensor.dtype} {list(tensor.shape)}"
            raise Mismatch(f"it returned {array.dtype.name} {list(array.shape)}, the tensor is {wanted}")
        return array


def sized(bound: Bound, target: Target, opset: int) -> Dims | None:
    """The sizes of output 0 that a handler declares; ``None`` where they follow from what it emits.

    Raises Failed where it fails, Refused where there are none.
    """
    if bound.handler.sizes is None:
        return None
    read = _Reader(bound.handler, bound.pack, At(bound.op, target, opset), label(bound.op))
    dims: Dims = read("sizes", bound.handler.sizes, tuple)
    return dims


def behaviour(bound: Bound, target: Target, opset: int) -> Behaviour | None:
    """What a handler declares of quantization; ``None`` where that fails, which is told when all is read."""
    read = _Reader(bound.handler, bound.pack, At(bound.op, target, opset), label(bound.op))
    try:
        declared: Behaviour = read("quantization", bound.handler.quantization, Behaviour)
    except (Failed, Refused):
        return None
    return declared


def fused_activation(bound: Bound, target: Target, opset: int) -> str:
    """The fused activation's name, "NONE" where it cannot be told, which is refused when all is read."""
    try:
        return _activation(_Reader(bound.handler, bound.pack, At(bound.op, target, opset), label(bound.op)))
    except (Failed, Refused):
        return "NONE"


def called(options: Iterable[str], op: Operator) -> tuple[int, ...]:
    """Indices of the subgraphs that an operator's ``options`` hold, whether there are such or not."""
    fields = [op.options.get(name) for name in options]
    flat = [index for field in fields for index in (field if isinstance(field, tuple) else (field,))]
    return tuple(index for index in flat if isinstance(index, int))


def _activation(read: _Reader) -> str:
    """Return the name of the activation that is applied: what a function returns, what the declared option holds, or "NONE"."""
    declared, options = fused_declaration(read.handler), read.at.op.options
    if declared is None:
        function = read.handler.activation
        return "NONE" if function is None else str(read("activation", function, str, _unknown_activation))
    if options:  # an operator without a table of options has no activation either
        read("activation", (declared.option,), tuple, _unknown_options)
    name = str(options.get(declared.option, "NONE"))
    if name not in ACTIVATIONS:
        raise Refused(f"its fused activation {name} is not known")
    return name


def _unknown_activation(name: str, at: At) -> str:
    return "" if name in ACTIVATIONS else f"{name!r} is no activation{did_you_mean(name, ACTIVATIONS)}"


def _unknown_options(names: tuple[str, ...], at: At) -> str:
    absent = [name for name in names if name not in at.op.options]
    return f"the operator has no option {absent[0]!r}{did_you_mean(absent[0], at.op.options)}" if absent else ""


def _unpriced(along: Along | None, at: At) -> str:
    """A key that no target prices would cost nothing in silence."""
    if along is None or along.price is not None or along.onnx in PRICED or along.onnx in at.target.prices:
        return ""
    own = "give it one of its own, Along(..., price=Price(...))"
    return f"no target has a price for {along.onnx!r}{did_you_mean(along.onnx, PRICED)}; {own}"


def _unfit_shapes(shapes: Mapping[int, Dims], at: At) -> str:
    for slot, dims in shapes.items():
        if at.op.tensor(slot) is None:
            return f"the operator has nothing in slot {slot}"
        if dims.count(None) > 1:
            return f"{list(dims)} for slot {slot} leaves more than one size open"
    return ""


def _no_outputs(behaviours: Mapping[int, OutputBehaviour], at: At) -> str:
    wrong = [slot for slot in behaviours if slot >= 0 or at.op.tensor(slot) is None]
    return f"the operator has no output in slot {wrong[0]}: outputs are out(0), out(1), ..." if wrong else ""


def _absent_slots(effects: Effects | None, at: At) -> str:
    slots = () if effects is None else (*effects.reads, *effects.writes)
    absent = [slot for slot in slots if at.op.tensor(slot) is None]
    return f"the operator has nothing in slot {absent[0]}, which Effects names" if absent else ""
