"""Explain failures by wrong ``axes`` or ``layout`` declarations of a handler."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations

from conformance.declared import declarations_of, find_operators
from onnx_tflite_plugin.api import Attribute, Implicit, Operator, Tensor, Terminate, Transparent
from onnx_tflite_plugin.api.notation import parse_axes
from onnx_tflite_plugin.conversion import Conversion
from onnx_tflite_plugin.guard import definition_location
from onnx_tflite_plugin.host import BUILTIN, Host
from onnx_tflite_plugin.source.model import Model
from onnx_tflite_plugin.verify.runtimes.ort import tensor_values

SUGGESTIONS = {
    Transparent: "if the operator works along an axis, declare Attribute() and use ctx.axis; if it depends on the order of the "
    "file's elements, declare Terminate(); otherwise declare the `axes` that the slots share",
    Attribute: "remap axis numbers, and lists with one entry per axis (ctx.axis, ctx.permute_entries, axis_number_slots, indexed_by_axis), "
    "or correct `axes`",
    Terminate: "`axes` may list the axes of a group in the wrong order, or `unordered` may name an axis that must keep its place",
}


def wrong_layout_message(code: str, model: Model, host: Host, conversion: Conversion | None) -> str:
    """Return a message on the layout declaration of an operator, or "".

    Call it if a case fails only in layouts other than the file's. ``model``: the model as read from the file.
    ``conversion``: the failing conversion, or None if the model did not convert. The result is "" if the conversion used
    only the file's layout for the operator.
    """
    for op in find_operators(model, code):
        declarations = declarations_of(op, host)
        layout = None if declarations is None else declarations.layout
        if not isinstance(layout, Transparent | Attribute) and not (isinstance(layout, Terminate) and layout.unordered):
            continue  # the operator fixes its layout, so an error shows in every plan
        layouts = [] if conversion is None else list(_transposed_layouts(op, conversion))
        if conversion is not None and not layouts:
            continue
        kind = type(layout)
        symptom = (
            f"the result differs in layouts other than the file's, such as axes {layouts[0]}"
            if layouts
            else "the operator does not convert in layouts other than the file's"
        )
        return f"layout={kind.__name__} is wrong: {symptom}; {SUGGESTIONS[kind]}"
    return ""


def messages_for_every_layout(code: str, model: Model, host: Host, symptom: str = "") -> Iterator[str]:
    """Yield a message on the axes of a pack's operator that differs in every layout.

    Only an Implicit layout and groups of axes can be wrong in every layout. ``symptom``: text that describes how the results
    show a wrong layout, or "" if they do not show it.
    """
    for op in find_operators(model, code):
        declared = declarations_of(op, host)
        if declared is None or _is_builtin(op, host):
            continue
        axes, layout = f"axes={declared.axes!r}", declared.layout
        if isinstance(layout, Implicit):
            declaration, mistake = f"{axes} and Implicit(onnx={dict(layout.onnx)!r})", "name a wrong axis"
        elif "(" in (declared.axes or "") and not (isinstance(layout, Terminate) and not layout.unordered):
            declaration, mistake = axes, "list the axes of a group in the wrong order"
        else:
            continue
        if symptom:
            yield f"{symptom}, in every layout: {declaration} may {mistake}, or the lowering or the kernel reorders elements"
        else:
            yield f"the result differs in every layout: the lowering or the kernel is wrong, or {declaration} {mistake}"
        return


def messages_on_axis_sizes(code: str, model: Model, host: Host) -> Iterator[str]:
    """Yield a message if declared axes contradict the sizes of an operator's tensors.

    Axes with one letter must have one size, except axes of size 1, which may be broadcast. Operators with Attribute or
    Terminate may change the size of an axis, as a slice or a pad does. For these, and for built-in operators, a message
    is yielded only if the result has the size of an operand's axis that it is declared to lack.
    """
    for op in find_operators(model, code):
        declared = declarations_of(op, host)
        if declared is None or declared.axes is None:
            continue
        if _is_builtin(op, host) or not isinstance(declared.layout, Implicit | Transparent):
            if conflict := _replaced_letter(op, declared.axes):
                yield f"axes={declared.axes!r}: {conflict}{_declaration_locations(op, host)}"
                return
            continue
        sizes: dict[str, tuple[str, int]] = {}
        inputs, outputs = parse_axes(declared.axes)
        for slot, groups in (*enumerate(inputs), *((~k, groups) for k, groups in enumerate(outputs))):
            slot_name = f"operand {slot}" if slot >= 0 else f"result {~slot}"
            for letter, size in _sizes_of_letters(groups, op.tensor(slot)):
                first_slot, first_size = sizes.setdefault(letter, (slot_name, size))
                if size != first_size:
                    conflict = f"axis {letter!r} has size {first_size} in {first_slot} but {size} in {slot_name}"
                    remedy = "use different letters for axes of different sizes, or correct the shapes in the case"
                    yield f"axes={declared.axes!r}: {conflict}; {remedy}{_declaration_locations(op, host)}"
                    return


def _replaced_letter(op: Operator, axes: str) -> str:
    """Return a message if a result has the size of an axis that it should lack.

    Example: the declaration is "n h w -> n h", the operand has the sizes 2, 5, 7 and the result 2, 7. The second axis of
    the result is w, not h. Return "" if no letters or several choices of letters fit the result.
    """
    inputs, outputs = parse_axes(axes)
    operand_sizes = [dict(_sizes_of_letters(groups, op.tensor(slot))) for slot, groups in enumerate(inputs)]
    for slot, result in enumerate(outputs):
        result_sizes = dict(_sizes_of_letters(result, op.tensor(~slot)))
        result_letters = {letter for group in result or () for letter in group}
        for operand, sizes in enumerate(operand_sizes):
            changed_sizes = {
                letter: size for letter, size in result_sizes.items() if letter in sizes and sizes[letter] != size
            }
            missing_letters = {letter for letter_sizes in operand_sizes for letter in letter_sizes} - result_letters
            if not changed_sizes or any(
                letter_sizes.get(letter) == n for letter, n in changed_sizes.items() for letter_sizes in operand_sizes
            ):
                continue
            candidates = [*changed_sizes, *(letter for letter in missing_letters if letter in sizes)]
            choices = [
                dict(zip(changed_sizes, choice, strict=True))
                for choice in permutations(candidates, len(changed_sizes))
                if all(sizes[new] == n for new, n in zip(choice, changed_sizes.values(), strict=True))
            ]
            size_is_in_other_operands = any(
                size in changed_sizes.values()
                for letter_sizes in operand_sizes
                for letter, size in letter_sizes.items()
                if letter not in sizes
            )
            if len(choices) != 1 or size_is_in_other_operands or not missing_letters & {*choices[0].values()}:
                continue
            old, new = next((old, new) for old, new in choices[0].items() if new in missing_letters)
            corrected_axes = " ".join(
                _group_text([choices[0].get(letter, letter) for letter in group]) for group in result or ()
            )
            return (
                f"letter {old} is {sizes[old]} in operand {operand} and {changed_sizes[old]} in result {slot}, the size of {new}, "
                f"which the declared result lacks; if so, declare {corrected_axes!r} for result {slot}"
            )
    return ""


def _group_text(group: Sequence[str]) -> str:
    return "1" if not group else group[0] if len(group) == 1 else f"({' '.join(group)})"


def _sizes_of_letters(groups: Sequence[Sequence[str]] | None, tensor: Tensor | None) -> Iterator[tuple[str, int]]:
    """Yield (letter, size) for each ungrouped axis with a static size above 1."""
    if groups is None or tensor is None or ("...",) in groups or len(groups) != tensor.rank:
        return
    for group, size in zip(groups, tensor.dims, strict=True):
        if len(group) == 1 and size not in (None, 1):
            yield group[0], size


def _declaration_locations(op: Operator, host: Host) -> str:
    """Return where packs declare handlers of an operator, in brackets; "" if nowhere."""
    locations = ", ".join(
        f"the declaration of {handler.name} in {pack}, at {definition_location(handler.lower)}"
        for pack, handler in host.registered_handlers(op.code)
        if pack != BUILTIN
    )
    return f" ({locations})" if locations else ""


def _is_builtin(op: Operator, host: Host) -> bool:
    return all(pack == BUILTIN for pack, _ in host.registered_handlers(op.code))


def _transposed_layouts(op: Operator, conversion: Conversion) -> Iterator[str]:
    """Yield the layouts of the operator's tensors that the ONNX model transposes."""
    tensor_indices = {t.index for t in (*op.inputs, *op.outputs) if t is not None}
    for value in tensor_values(conversion.proto):
        if value.subgraph == op.subgraph and value.tensor in tensor_indices and value.order is not None:
            axes = [axis for axis in value.order if axis >= 0]
            if axes != sorted(axes):
                yield ",".join(map(str, value.order))
