"""Notation of declared axes: ``"n (h w), _ -> n o"``.

A group in parentheses is one axis, ``...`` any number of axes, ``1`` an axis of size 1, ``_`` a slot without axes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache

Group = tuple[str, ...]
Slots = tuple[tuple[Group, ...] | None, ...]

_AXIS = re.compile(r"\s*(\([\w\s]*\)|\.\.\.|[A-Za-z]\w*|1)")


class AxesError(ValueError):
    """A declaration of axes that does not parse or does not fit the operands."""


@cache
def parse_axes(text: str) -> tuple[Slots, Slots]:
    """Return the axis groups per input and per output.

    ``_`` becomes ``None``, and ``1`` becomes an empty group.
    Raises AxesError if the text does not parse, or a letter names two axes of one operand or result.
    """
    operands, arrow, results = text.partition("->")
    if not arrow:
        raise AxesError(f"axes {text!r} have no '->'; write operands -> results, such as 'n h w c -> n c'")
    inputs = tuple(_parse_slot(slot, text) for slot in operands.split(","))
    outputs = tuple(_parse_slot(slot, text) for slot in results.split(","))
    for role, slots in (("operand", inputs), ("result", outputs)):
        for k, groups in enumerate(slots):
            letters = [letter for group in groups or () for letter in group]
            if repeated := next((letter for letter in letters if letters.count(letter) > 1), ""):
                raise AxesError(
                    f"axes {text!r}: letter {repeated} names two axes of {role} {k}; give each axis its own letter"
                )
    return inputs, outputs


def _parse_slot(slot: str, text: str) -> tuple[Group, ...] | None:
    slot = slot.strip()
    if slot == "_":
        return None
    groups: list[Group] = []
    position = 0
    while position < len(slot):
        match = _AXIS.match(slot, position)
        if not match:
            remainder = slot[position:].strip()
            reason = (
                "')' is missing"
                if remainder.startswith("(") and ")" not in remainder
                else "expected a letter, a group (a b), ... or 1"
            )
            raise AxesError(f"axes {text!r} cannot be parsed at {remainder!r}: {reason}")
        axis, position = match.group(1), match.end()
        groups.append(() if axis == "1" else tuple(axis.strip("()").split()))
    return tuple(groups)


def letters_by_slot(text: str) -> dict[int, list[str]]:
    """Return {slot: axes} of a declaration, with the letters of a group joined.

    Slots without axes are omitted.
    """
    inputs, outputs = parse_axes(text)
    groups_by_slot = {**dict(enumerate(inputs)), **{~k: groups for k, groups in enumerate(outputs)}}
    return {slot: ["".join(group) for group in groups] for slot, groups in groups_by_slot.items() if groups is not None}


def letters_of(text: str) -> tuple[str, ...]:
    """Return the letters of a declaration in order of appearance, ``...`` included."""
    inputs, outputs = parse_axes(text)
    groups = (group for slot in (*inputs, *outputs) for group in slot or ())
    return tuple(dict.fromkeys(letter for group in groups for letter in group))


def describe_wrong_order(slot: int, order: str, axes: Sequence[str], text: str, squeezable: Iterable[str] = ()) -> str:
    """Return a message if ``order`` does not reorder the axes of a slot; else "".

    ``axes``: the axes of the slot. ``text``: the declaration that contains them, for the message. ``squeezable``: letters
    that ``order`` may contain although the slot lacks them, such as ``["h j y"]``.
    """
    required = order.split()
    squeezable_letters = {letter for group in squeezable for letter in group.split()}
    if len(required) == len({*required}) and {*axes} <= {*required} <= {*axes} | squeezable_letters:
        return ""
    if "" in axes:
        unused = next(letter for letter in "mqrstuvxyzabcdefghijklnop" if letter not in letters_of(text))
        return (
            f"slot {slot}: {order!r} cannot permute the axis that {text!r} writes as 1, because a 1 has no letter; give this axis "
            f"a letter, such as {unused}, in axes and in onnx"
        )
    unknown = sorted({*required} - {*axes} - squeezable_letters)
    missing = sorted({*axes} - {*required})
    faults = [
        f"{' '.join(letters)} is {kind}" for letters, kind in ((unknown, "unknown"), (missing, "missing")) if letters
    ]
    remedy = suggest_spaces(required)
    return (
        f"slot {slot}: {order!r} does not reorder the axes declared in {text!r}"
        f"{': ' if faults else ''}{', '.join(faults)}{remedy and f'; {remedy}'}"
    )


def suggest_spaces(names: Sequence[str]) -> str:
    """Return a remedy for letters written without spaces, such as ``nhwc``; else ""."""
    name = names[0] if len(names) == 1 else ""
    return f"separate letters by spaces: {' '.join(name)!r}" if name.isalpha() and len({*name}) == len(name) > 1 else ""


def describe_unknown_letter(text: str, letters_by_field: Mapping[str, str]) -> str:
    """Return a message if a field uses a letter that the declared axes lack; else "".

    ``letters_by_field``: the letters that each field uses, separated by spaces. ``*`` stands for all letters.
    """
    axis_letters = letters_of(text)
    for field, letters in letters_by_field.items():
        unknown = [letter for letter in letters.split() if letter != "*" and letter not in axis_letters]
        if unknown:
            return f"{field}={letters!r}: axes {text!r} have no letter {unknown[0]!r}, only {', '.join(axis_letters)}"
    return ""
