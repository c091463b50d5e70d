"""Parts of the pack ``author``, which tests edit to make mistakes."""

from __future__ import annotations

from collections.abc import Callable

Edits = tuple[tuple[str, str, str], ...]
FailingOutput = Callable[..., str]
HANDLER, CASES = "author/acme.py", "author/cases.py"
RETURN = "return ctx.ops.Softsign(x)"
INT8_CASE = 'unary(OP, "int8", tensor(2, 5, 7, 3, dtype="int8"), place=between_convolutions)'
FLOAT_CASE = 'unary(OP, "float32", tensor(2, 5, 7, 3), place=between_convolutions)'
