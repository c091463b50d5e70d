"""Supported dtypes of a kernel, as declared by ``types``: one row per combination.

A row is written like ``axes``: ``"float32, float32 int8 -> float32"`` has a float32 operand, an operand that is float32 or
int8, and a float32 result. Operands are in the order of their slots.
``_`` matches any dtype, and so does a slot beyond the end of a row. A capital letter matches any dtype, but the same
dtype at each occurrence: ``"bool, T, T"``. ``...`` repeats the dtypes of the last operand: ``"T..."``. An absent operand always
matches.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import cache

from onnx_tflite_plugin.checked import did_you_mean
from onnx_tflite_plugin.source.dtypes import NAMES
from onnx_tflite_plugin.source.model import Operator

Row = tuple[tuple[str, ...], tuple[str, ...]]
_ELLIPSIS = "..."
_ONNX_ONLY = frozenset({"uint2"})


@cache
def parse_row(row: str) -> Row:
    """Return the dtypes that each input accepts, and those that each output accepts.

    Each slot is a string of dtypes, separated by spaces. Raises TypeError for an unknown dtype.
    """
    operands, arrow, results = row.partition("->")
    sides = tuple(tuple(" ".join(slot.split()) for slot in side.split(",")) for side in (operands, results))
    for name in (name for side in sides for slot in side for name in slot.removesuffix(_ELLIPSIS).split()):
        if name not in (*NAMES, "_") and not _is_variable(name):
            raise TypeError(f"types: {name!r} is not a dtype{_suggest_dtype(name)}")
    if not all(slot for side in sides[: 2 if arrow else 1] for slot in side):
        raise TypeError(f"types: {row!r} has an empty slot; write _ for any dtype")
    variables = {name.removesuffix(_ELLIPSIS) for name in sides[0]}
    for name in sides[1] if arrow else ():
        if _is_variable(name) and name != "_" and name not in variables:
            problem = f"the result dtype {name} is not the dtype variable of any operand"
            raise TypeError(f"types: {row!r}: {problem}; write the result dtypes explicitly")
    return sides[0], sides[1] if arrow else ()


def check_rows(types: str | Collection[str]) -> None:
    """Raise TypeError for a malformed row."""
    for row in as_rows(types):
        parse_row(row)


def check_dtypes(field: str, names: Iterable[str], wildcard: str = "") -> None:
    """Raise TypeError if a name in a field is not a dtype.

    ``field``: the field, for the message. ``wildcard`` is allowed in addition to dtypes.
    """
    for name in names:
        if name != wildcard and name not in NAMES and name not in _ONNX_ONLY:
            raise TypeError(f"{field}: {name!r} is not a dtype{_suggest_dtype(name)}")


_DTYPES_OF_C = {"float": "float32", "double": "float64", "half": "float16", "int": "int32", "uint": "uint32"}
"""C type → dtype that LiteRT's kernels have for it."""


def _suggest_dtype(name: str) -> str:
    return did_you_mean(_DTYPES_OF_C.get(name, name), NAMES)


def as_rows(types: str | Collection[str]) -> tuple[str, ...]:
    """Return the rows as a tuple; empty for ""."""
    return tuple(filter(None, (types,) if isinstance(types, str) else types))


def dtypes_by_slot(types: str | Collection[str]) -> dict[int, set[str]]:
    """Return {slot: dtypes that occur in this slot of any row}."""
    dtypes: dict[int, set[str]] = {}
    for inputs, outputs in map(parse_row, as_rows(types)):
        for slot, names in [*enumerate(inputs), *((~k, names) for k, names in enumerate(outputs))]:
            dtypes.setdefault(slot, set()).update(set(names.removesuffix(_ELLIPSIS).split()) & {*NAMES})
    return dtypes


def refusal(op: Operator, types: str | Collection[str], subject: str) -> str:
    """Return the reason why an operator's dtypes are not supported.

    Return "" if a row matches or there are no rows. ``subject`` begins the clause of the message that lists the supported
    dtypes, for example "LiteRT's kernels take".
    """
    table = [parse_row(row) for row in as_rows(types)]
    if not table or any(_matches(op, row) for row in table):
        return ""
    inputs, outputs = (max(len(row[side]) for row in table) for side in (0, 1))
    operands = ", ".join(_dtype(op, slot) for slot in range(inputs))
    results = ", ".join(_dtype(op, ~k) for k in range(outputs))
    supported = "; ".join(_format_row(row) for row in table)
    return f"no kernel for dtypes {operands}{' -> ' if results else ''}{results}; {subject} {supported}"


def _is_variable(name: str) -> bool:
    """True for a dtype variable such as ``T``, and for ``_``."""
    return len(name) == 1


def _matches(op: Operator, row: Row) -> bool:
    inputs, outputs = row
    bound_variables: dict[str, str] = {}
    for slot, names in [
        *enumerate(_expand_inputs(op, inputs)),
        *((~k, names) for k, names in enumerate(outputs)),
    ]:
        dtype = _dtype(op, slot)
        if dtype == "none" or names == "_":
            continue
        allowed = [bound_variables.setdefault(names, dtype)] if _is_variable(names) else names.split()
        if dtype not in allowed:
            return False
    return True


def _expand_inputs(op: Operator, inputs: tuple[str, ...]) -> tuple[str, ...]:
    """Repeat the slot before ``...`` for every further operand."""
    last_slot = inputs[-1].removesuffix(_ELLIPSIS)
    return (*inputs[:-1], *[last_slot] * (len(op.inputs) - len(inputs) + 1)) if last_slot != inputs[-1] else inputs


def _dtype(op: Operator, slot: int) -> str:
    tensor = op.tensor(slot)
    return "none" if tensor is None else tensor.dtype


def _format_row(row: Row) -> str:
    inputs, outputs = (", ".join(slot.replace(" ", " or ").replace("_", "any") for slot in side) for side in row)
    return f"{inputs} -> {outputs}" if outputs else inputs
