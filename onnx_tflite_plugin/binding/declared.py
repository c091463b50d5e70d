"""Declarations of one operator, as a record for planners and lowering.

Each declared function is called once, with the instance. Errors are attributed to the function, and its result is
checked.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np

from onnx_tflite_plugin.api.activations import ACTIVATIONS
from onnx_tflite_plugin.api.behavior import Behavior, find_trait_error
from onnx_tflite_plugin.api.declarations import Axes, Decline, Effects, Handler, Instance, WidenedConstant
from onnx_tflite_plugin.api.dtypes import refusal
from onnx_tflite_plugin.api.layouts import AxisPrice, Layout
from onnx_tflite_plugin.api.notation import AxesError, parse_axes
from onnx_tflite_plugin.api.quantization import OutputBehavior
from onnx_tflite_plugin.api.refusal import OpsetRefusal, Refusal
from onnx_tflite_plugin.binding.activation import activation_declaration, resolve_activation
from onnx_tflite_plugin.binding.bound import Bound, BoundModel, Declared, label
from onnx_tflite_plugin.checked import append_clause, describe, did_you_mean, format_type, has_type, plural
from onnx_tflite_plugin.errors import DECLARATION_MISMATCH, REFUSED, HandlerError, Problem
from onnx_tflite_plugin.guard import (
    BUILTIN,
    INLINE,
    Failed,
    WrongResult,
    attribute_errors,
    caller_in_pack,
    definition_location,
)
from onnx_tflite_plugin.source.model import Array, Dims, Operator
from onnx_tflite_plugin.source.options import operator_names
from onnx_tflite_plugin.targets import PRICED, Target


class OperatorInstance(NamedTuple):
    """Instance that is passed to declarations that are functions."""

    op: Operator
    target: Target
    opset: int


def _refuse_attribute(at: OperatorInstance, name: str) -> NoReturn:
    """Raise AttributeError, with a remedy if the operator has this attribute."""
    remedy = f"write at.op.{name}" if hasattr(at.op, name) else "the operator is at.op"
    raise AttributeError(f"a declared function gets an Instance, which has no {name!r}; {remedy}")


def _refuse_index(at: OperatorInstance, slot: object) -> NoReturn:
    """Raise TypeError, because only the operator of an Instance can be indexed."""
    raise TypeError(f"a declared function gets an Instance; write at.op[{slot!r}]")


if not TYPE_CHECKING:  # mypy would accept every attribute
    OperatorInstance.__getattr__ = _refuse_attribute
    OperatorInstance.__getitem__ = _refuse_index


def resolve(model: BoundModel, target: Target, opset: int) -> BoundModel:
    """Return the model with the declarations of every operator.

    Raises HandlerError with a problem for each operator whose declarations refuse it, fail or are invalid.
    """
    problems: list[Problem] = []
    heading = REFUSED
    graphs = []
    for graph in model.graphs:
        operators = []
        for bound in graph.operators:
            try:
                operators.append(bound if bound.resolved else resolve_operator(bound, target, opset))
            except Failed as failed:
                heading = DECLARATION_MISMATCH
                problems.append(failed.problem(bound.label))
            except Refusal as refusal:
                problems.append(refusal_problem(bound, refusal))
        graphs.append(graph.with_operators(tuple(operators)))
    if problems:
        raise HandlerError(heading, problems)
    return replace(model, graphs=tuple(graphs))


def resolve_operator(bound: Bound, target: Target, opset: int) -> Bound:
    """Return the operator with its declarations.

    Raises Failed if a declaration fails or is invalid, and Refusal if it refuses the operator.
    """
    handler, op = bound.handler, bound.op
    read = _Reader(handler, bound.pack, OperatorInstance(op, target, opset), bound.label)
    return replace(
        bound,
        resolved=Declared(
            layout=read("layout", handler.layout, Layout),
            axes=read("axes", handler.axes, Axes, _check_axes),
            aligned=handler.axes is None,
            axis_price=read("axis_price", handler.axis_price, AxisPrice | None, _check_price),
            indexed_by_axis=read("indexed_by_axis", handler.indexed_by_axis, Mapping[int, int]),
            axis_number_slots=frozenset(handler.axis_number_slots),
            reshapes=read("reshapes", handler.reshapes, Mapping[int, Dims], _check_shapes),
            requires_constant=frozenset(handler.requires_constant),
            quantization=read("quantization", handler.quantization, Behavior, _check_traits),
            output_quantization=read(
                "output_quantization", handler.output_quantization, Mapping[int, OutputBehavior], _check_outputs
            ),
            activation=_activation_name(read),
            activation_in_lowering=(fused := activation_declaration(handler)) is not None and fused.in_lowering,
            min_opset=read("min_opset", handler.min_opset, int),
            subgraphs=subgraph_indices(read("subgraphs", handler.subgraphs, tuple, _check_options), op),
            boundary=handler.boundary,
            effects=read("effects", handler.effects, Effects | None, _check_slots),
            state_key=None if handler.effects is None else read("effects.state_key", handler.effects.state_key, str),
        ),
    )


FindError = Callable[[Any, OperatorInstance], str]


class _Reader(NamedTuple):
    """Reader of the declarations of one operator."""

    handler: Handler
    pack: str
    at: OperatorInstance
    label: str

    def __call__(self, name: str, declared: Any, hint: Any, find_error: FindError = lambda value, at: "") -> Any:
        """Return the value of a declaration. A function is called with the instance.

        ``name``: the field of the handler, for messages. The result of a function must have the type ``hint``.
        ``find_error`` gets the value and the instance, and returns the reason why the value is invalid, or "". Raises
        Failed for an invalid value, and Refusal if the function refuses the operator.
        """
        value = self._call(name, declared, hint) if callable(declared) else declared
        error = find_error(value, self.at)
        if error:
            source = declared if callable(declared) else self.handler.lower
            location = definition_location(source)
            text = f"{self._describe(name)} of {self.pack} is invalid: {error}"
            raise Failed(self.pack, append_clause(text, location and f"at {location}"))
        return value

    def _call(self, name: str, function: Callable[[Instance], Any], hint: Any) -> Any:
        with attribute_errors(self._describe(name), self.pack, function, self.label, expected=(Refusal,)):
            value = function(self.at)
            if not has_type(value, hint):
                raise WrongResult(f"it returned {describe(value)}, not {format_type(hint)}")
            return value

    def _describe(self, name: str) -> str:
        return f"{name} declared by handler {self.handler.name}"


def check_acceptance(handler: Handler, pack: str, at: Instance) -> Decline | None:
    """Return a Decline if ``types``, ``accepts`` or ``activation`` rejects it.

    Return None if the handler accepts the operator. Raises Failed if a declaration fails.
    """
    type_error = check_types(handler, pack, at)
    if type_error:
        remedy = f"if the operator computes these dtypes, add them to `types` of {handler.name}"
        return Decline(type_error, "" if pack == BUILTIN else remedy)
    decline = call_accepts(handler, pack, at)
    if decline is not None:
        return decline
    activation = resolve_activation(handler, pack, at)
    return activation if isinstance(activation, Decline) else None


def call_accepts(handler: Handler, pack: str, at: Instance) -> Decline | None:
    """Return the Decline from ``accepts``, or None.

    A Refusal becomes a Decline. Raises Failed if the function fails.
    """
    if not callable(handler.accepts):
        return handler.accepts
    with attribute_errors(f"accepts of handler {handler.name}", pack, handler.accepts, label(at.op)):
        try:
            decline = handler.accepts(at)
        except Refusal as error:
            return Decline(str(error))
        if not (decline is None or isinstance(decline, Decline)):
            raise WrongResult(f"it returned {describe(decline)}, not a Decline or None")
        return decline


def check_types(handler: Handler, pack: str, at: Instance) -> str:
    """Return the reason why an operator's dtypes are not supported; else "".

    Raises Failed if ``types`` fails.
    """
    if not handler.types:
        return ""
    with attribute_errors(
        f"types of handler {handler.name}",
        pack,
        handler.types if callable(handler.types) else handler.lower,
        label(at.op),
    ):
        types = handler.types(at) if callable(handler.types) else handler.types
        if not has_type(types, str | Collection[str]):
            raise WrongResult(f"it returned {describe(types)}, not a row of dtypes or a collection of rows")
        is_builtin = pack == BUILTIN and handler.code == at.op.builtin and handler.code in operator_names().values()
        return refusal(at.op, types, "LiteRT's kernels take" if is_builtin else f"{handler.name} declares")


def evaluate_output(handler: Handler, pack: str, at: Instance) -> Array | WidenedConstant | None:
    """Return output 0 if the handler evaluates it at conversion time, otherwise None.

    Raises Failed if ``evaluate`` fails, or returns an array of another dtype or shape than the tensor in the file.
    """
    if handler.evaluate is None:
        return None
    with attribute_errors(f"evaluate of handler {handler.name}", pack, handler.evaluate, label(at.op)):
        try:
            array = handler.evaluate(at)
        except Refusal:  # reported by the lowering
            return None
        if array is None:
            return None
        if isinstance(array, WidenedConstant) and at.op.constant(array.slot) is not None:
            return array
        if not isinstance(array, np.ndarray):
            raise WrongResult(f"it returned {describe(array)}, not an array or None")
        tensor = at.op[~0]
        matches = array.dtype.name == tensor.dtype and (not tensor.is_static or array.shape == tensor.shape)
        if not matches and pack == BUILTIN:  # the file is wrong; reported when the result is checked
            return None
        if not matches:
            expected = f"{tensor.dtype} {list(tensor.shape)}"
            raise WrongResult(f"it returned {array.dtype.name} {list(array.shape)}, but the tensor is {expected}")
        return array


def size_of_output(bound: Bound, target: Target, opset: int) -> Dims | None:
    """Return the shape of output 0 that the handler's function ``sizes`` returns.

    Return None if the handler does not declare ``sizes``. Raises Failed if the function fails, and Refusal if the
    operands have no valid shape.
    """
    if bound.handler.result_shape is None:
        return None
    read = _Reader(bound.handler, bound.pack, OperatorInstance(bound.op, target, opset), label(bound.op))
    dims: Dims = read("result_shape", bound.handler.result_shape, tuple)
    return dims


def declared_behavior(bound: Bound, target: Target, opset: int) -> Behavior | None:
    """Return the declared quantization behavior.

    Return None if the declaration is a function that fails or refuses the operator.
    """
    read = _Reader(bound.handler, bound.pack, OperatorInstance(bound.op, target, opset), label(bound.op))
    try:
        declared: Behavior = read("quantization", bound.handler.quantization, Behavior)
    except (Failed, Refusal):
        return None
    return declared


def fused_activation(bound: Bound, target: Target, opset: int) -> str:
    """Return the name of the fused activation; "NONE" if the declaration fails."""
    try:
        return _activation_name(
            _Reader(bound.handler, bound.pack, OperatorInstance(bound.op, target, opset), label(bound.op))
        )
    except (Failed, Refusal):
        return "NONE"


def subgraph_indices(options: Iterable[str], op: Operator) -> tuple[int, ...]:
    """Return the subgraph indices in ``options`` of an operator, even if invalid."""
    fields = [op.options.get(name) for name in options]
    flat = [index for field in fields for index in (field if isinstance(field, tuple) else (field,))]
    return tuple(index for index in flat if isinstance(index, int))


def _activation_name(read: _Reader) -> str:
    """Return the fused activation; "NONE" if the handler declares no activation."""
    declared, options = activation_declaration(read.handler), read.at.op.options
    if declared is None:
        function = read.handler.activation
        return "NONE" if function is None else str(read("activation", function, str, _check_activation))
    if options:  # an operator without a table of options has no activation either
        read("activation", (declared.option,), tuple, _check_activation_option)
    name = str(options.get(declared.option, "NONE"))
    if name not in ACTIVATIONS:
        raise Refusal(f"the fused activation {name} is unknown")
    return name


def _check_axes(axes: Axes, at: OperatorInstance) -> str:
    try:
        _, outputs = parse_axes(axes or "->")
    except AxesError as error:
        return str(error)
    if len(outputs) > max(len(at.op.outputs), 1):  # "n ->" has one output without axes
        output_count = plural(len(outputs), "output")
        return (
            f"axes {axes!r} have {output_count}, but the operator has {len(at.op.outputs)}; write axes for each output"
        )
    return ""


def _check_traits(behavior: Behavior, at: OperatorInstance) -> str:
    return find_trait_error(behavior)


def _check_activation(name: str, at: OperatorInstance) -> str:
    return "" if name in ACTIVATIONS else f"{name!r} is not an activation{did_you_mean(name, ACTIVATIONS)}"


def _check_options(names: tuple[str, ...], at: OperatorInstance) -> str:
    absent = [name for name in names if name not in at.op.options]
    return f"the operator has no option {absent[0]!r}{did_you_mean(absent[0], at.op.options)}" if absent else ""


def _check_activation_option(names: tuple[str, ...], at: OperatorInstance) -> str:
    reason = _check_options(names, at)
    if not reason or did_you_mean(names[0], at.op.options):
        return reason
    return (
        f"{reason}; if the option may be absent, declare activation=lambda at: at.op.options.get({names[0]!r}, 'NONE')"
    )


def _check_price(axis_price: AxisPrice | None, at: OperatorInstance) -> str:
    """Return an error if neither the declaration nor any target has the price."""
    if axis_price is None or axis_price.price is not None:
        return ""
    if axis_price.price_key in PRICED or axis_price.price_key in at.target.prices:
        return ""
    remedy = "declare one with AxisPrice(..., price=Price(...))"
    return f"no target has a price for {axis_price.price_key!r}{did_you_mean(axis_price.price_key, PRICED) or ';'} {remedy}"


def _check_shapes(shapes: Mapping[int, Dims], at: OperatorInstance) -> str:
    for slot, dims in shapes.items():
        if at.op.tensor(slot) is None:
            return f"the operator has no tensor in slot {slot}"
        if dims.count(None) > 1:
            return f"{list(dims)} for slot {slot} has more than one dynamic dimension"
    return ""


def _check_outputs(behaviors: Mapping[int, OutputBehavior], at: OperatorInstance) -> str:
    wrong = [slot for slot in behaviors if slot >= 0 or at.op.tensor(slot) is None]
    return f"the operator has no output in slot {wrong[0]}: outputs are out(0), out(1), ..." if wrong else ""


def _check_slots(effects: Effects | None, at: OperatorInstance) -> str:
    slots = () if effects is None else (*effects.reads, *effects.writes)
    absent = [slot for slot in slots if at.op.tensor(slot) is None]
    return f"the operator has no tensor in slot {absent[0]}, which Effects lists" if absent else ""


def refusal_problem(bound: Bound, refusal: Refusal) -> Problem:
    """Return the problem to report if a handler refuses its operator.

    For a handler of a pack, the problem also names the handler and the line of the call that refused. If a newer opset is
    needed, it mentions ``min_opset``.
    """
    text = str(refusal)
    if isinstance(refusal, OpsetRefusal) and bound.pack != BUILTIN:
        text = f"{refusal}; the handler's author can declare min_opset={refusal.required}"
    if bound.pack in (BUILTIN, INLINE):
        return Problem(bound.label, text, refusal.hint)
    caller = caller_in_pack(refusal, bound.handler.lower)
    source = f"in handler {bound.handler.name} of {bound.pack}{caller and f', at {caller}'}"
    return Problem(bound.label, append_clause(text, source), refusal.hint)
