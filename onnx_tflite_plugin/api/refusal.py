"""Exception that a handler raises to refuse an operator during lowering."""

from __future__ import annotations


class Refusal(Exception):
    """The instance cannot be lowered.

    The text is the reason and the remedy; the host collects it.
    """

    hint = ""
    """Remedy that is reported apart from the text."""
