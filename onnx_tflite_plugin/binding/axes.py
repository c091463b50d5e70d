"""Parser of declared axes, independent of any operand."""

from __future__ import annotations

import re

_AXIS = re.compile(r"\([^)]*\)|\.\.\.|\w+")


def slots_of(text: str) -> tuple[list[list[str]], list[list[str]]]:
    """Return the axes of each input and output of ``"n (h w), _ -> n o"``; a group is one axis, a slot without axes ``["_"]``.

    Malformed text yields wrong axes, not an error: the layout plan reports it.
    """
    inputs, _, outputs = text.partition("->")
    return [_AXIS.findall(slot) for slot in inputs.split(",")], [_AXIS.findall(slot) for slot in outputs.split(",")]
