"""Axes as a handler declares them, read before they are held against any operand."""

from __future__ import annotations

import re

_AXIS = re.compile(r"\([^)]*\)|\.\.\.|\w+")


def slots_of(text: str) -> tuple[list[list[str]], list[list[str]]]:
    """``"n (h w), _ -> n o"`` as the axes of each input and of each output, a group as one; ``["_"]`` where none are laid out.

    What is no such text gives other axes, and no error: the layout plan says what is wrong with it.
    """
    inputs, _, outputs = text.partition("->")
    return [_AXIS.findall(slot) for slot in inputs.split(",")], [_AXIS.findall(slot) for slot in outputs.split(",")]
