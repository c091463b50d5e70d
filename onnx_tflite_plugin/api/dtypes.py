"""Dtypes that a kernel takes, as declared by ``types``: a row for each combination, as ``axes`` are written.

``"float32, float32 int8 -> float32"`` is float32 by float32 or int8 to float32. Operands come in the order of their slots,
``_`` stands for any dtype, and so does what a row does not reach; a capital stands for any dtype, the same wherever it is
written: ``"bool, T, T"``. Operands behind an ``...`` are as the last one: ``"T..."``. An operand that is absent fits.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cache

from onnx_tflite_plugin.checked import did_you_mean
from onnx_tflite_plugin.source.dtypes import NAMES
from onnx_tflite_plugin.source.model import Operator

Row = tuple[tuple[str, ...], tuple[str, ...]]
_MORE = "..."


@cache
def parsed(row: str) -> Row:
    """The dtypes of inputs and of outputs, several of one slot apart by spaces. Raises TypeError naming what is none."""
    operands, arrow, results = row.partition("->")
    sides = tuple(tuple(" ".join(slot.split()) for slot in side.split(",")) for side in (operands, results))
    for name in (name for side in sides for slot in side for name in slot.removesuffix(_MORE).split()):
        if name not in (*NAMES, "_") and not _is_variable(name):
            raise TypeError(f"types: {name!r} is no dtype{did_you_mean(name, NAMES)}")
    if not all(slot for side in sides[: 2 if arrow else 1] for slot in side):
        raise TypeError(f"types: {row!r} leaves a slot empty; _ is any dtype")
    return sides[0], sides[1] if arrow else ()


def check_rows(types: str | Collection[str]) -> None:
    """Raises TypeError for a row that cannot be read."""
    for row in rows(types):
        parsed(row)


def rows(types: str | Collection[str]) -> tuple[str, ...]:
    """One or several; "" is none."""
    return tuple(filter(None, (types,) if isinstance(types, str) else types))


def accepted_dtypes(types: str | Collection[str]) -> dict[int, set[str]]:
    """The dtypes that rows name, by slot."""
    named: dict[int, set[str]] = {}
    for inputs, outputs in map(parsed, rows(types)):
        for slot, spelled in [*enumerate(inputs), *((~k, dtypes) for k, dtypes in enumerate(outputs))]:
            named.setdefault(slot, set()).update(set(spelled.removesuffix(_MORE).split()) & {*NAMES})
    return named


def refusal(op: Operator, types: str | Collection[str], whose: str) -> str:
    """Why an operator's dtypes are none that are taken; "" where a row fits or there is none.

    ``whose`` types these are, for the text: "LiteRT's kernels take".
    """
    table = [parsed(row) for row in rows(types)]
    if not table or any(_fits(op, row) for row in table):
        return ""
    inputs, outputs = (max(len(row[side]) for row in table) for side in (0, 1))
    operands = ", ".join(_dtype(op, slot) for slot in range(inputs))
    results = ", ".join(_dtype(op, ~k) for k in range(outputs))
    taken = "; ".join(_spelled(row) for row in table)
    return f"its dtypes are {operands}{' -> ' if results else ''}{results}; {whose} {taken}"


def _is_variable(name: str) -> bool:
    """Whether it stands for a dtype that a row has in several places."""
    return len(name) == 1


def _fits(op: Operator, row: Row) -> bool:
    inputs, outputs = row
    bound: dict[str, str] = {}
    for slot, spelled in [*enumerate(_repeated(op, inputs)), *((~k, dtypes) for k, dtypes in enumerate(outputs))]:
        dtype = _dtype(op, slot)
        if dtype == "none" or spelled == "_":
            continue
        if dtype != bound.setdefault(spelled, dtype) if _is_variable(spelled) else dtype not in spelled.split():
            return False
    return True


def _repeated(op: Operator, inputs: tuple[str, ...]) -> tuple[str, ...]:
    """What stands before an ``...`` once more for every operand."""
    last = inputs[-1].removesuffix(_MORE)
    return (*inputs[:-1], *[last] * (len(op.inputs) - len(inputs) + 1)) if last != inputs[-1] else inputs


def _dtype(op: Operator, slot: int) -> str:
    tensor = op.tensor(slot)
    return "none" if tensor is None else tensor.dtype


def _spelled(row: Row) -> str:
    inputs, outputs = (", ".join(slot.replace(" ", " or ").replace("_", "any") for slot in side) for side in row)
    return f"{inputs} -> {outputs}" if outputs else inputs
