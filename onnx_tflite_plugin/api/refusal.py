"""How a handler says no while it lowers."""

from __future__ import annotations


class Refused(Exception):
    """The instance cannot be lowered; the text is the reason, and what would help. The host gathers it."""
