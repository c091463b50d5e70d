"""Exception that a handler raises to refuse an operator during lowering."""

from __future__ import annotations


class Refusal(Exception):
    """A handler cannot lower an operator.

    The text is the reason and the remedy. The host collects all refusals of a model.
    """

    hint = ""
    """Remedy that is reported separately from the text."""


class OpsetRefusal(Refusal):
    """A lowering needs a newer opset than the model has."""

    def __init__(self, description: str, opset: int, required: int) -> None:
        self.reason = f"{description} needs opset {required}, the model has opset {opset}"
        self.required = required
        super().__init__(f"{self.reason}; try --opset {required}")
