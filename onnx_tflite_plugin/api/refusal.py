"""Exception that a handler raises to refuse an operator during lowering."""

from __future__ import annotations


class Refusal(Exception):
    """A handler cannot lower an operator.

    The text is the reason and the remedy. The host collects all refusals of a model.
    """

    hint = ""
    """Remedy that is reported separately from the text."""
