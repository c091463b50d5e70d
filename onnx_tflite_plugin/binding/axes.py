"""Parser of declared axes, independent of any operand."""

from __future__ import annotations

import re

_AXIS = re.compile(r"\([^)]*\)|\.\.\.|\w+")


def parse_axes(text: str) -> tuple[list[list[str]], list[list[str]]]:
    """Return the axes of each input and each output of a declaration such as ``"n (h w), _ -> n o"``.

    A group in parentheses is one axis. A slot without axes is ``["_"]``.

    Malformed text yields wrong axes, not an error: the layout plan reports it.
    """
    inputs, _, outputs = text.partition("->")
    return [_AXIS.findall(slot) for slot in inputs.split(",")], [_AXIS.findall(slot) for slot in outputs.split(",")]
