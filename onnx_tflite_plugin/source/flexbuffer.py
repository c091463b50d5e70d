"""Attributes in a FlexBuffer: a map of names to numbers, text and lists of these, which is all that converters write."""

from __future__ import annotations

from typing import Any

from onnx_tflite_plugin.source.model import Options

MOST = 1 << 16
"""Entries of one map, lists counted item by item; the attributes of an operator are a handful."""


class _Budget:
    """Entries that may still be read: offsets may lead to one list over and over."""

    def __init__(self) -> None:
        self.left = MOST

    def spend(self, count: int) -> int:
        self.left -= count
        if self.left < 0:
            raise ValueError(f"it holds more than {MOST} entries")
        return count


def attributes(data: bytes, table: str) -> Options:
    """The map at the root of a FlexBuffer, as options of ``table``; nothing where it is empty or no map.

    Raises ValueError where it is damaged or larger than ``MOST``.
    """
    if not data:
        return Options(table)
    from flatbuffers import flexbuffers

    try:
        root = flexbuffers.GetRoot(data)
        if not root.IsMap:
            return Options(table)
        budget = _Budget()
        entries = root.AsMap
        names, values = entries.Keys, entries.Values
        count = budget.spend(len(names))
        return Options(table, {names[k].AsKey: _value(values[k], budget) for k in range(count)})
    except ValueError:
        raise
    except Exception as error:  # the package reads unchecked: struct.error, IndexError, TypeError and more
        raise ValueError(f"it is no FlexBuffer: {type(error).__name__}: {error}") from error


def _value(reference: Any, budget: _Budget) -> Any:
    """A number, text, a blob or a tuple of these; ``None`` for null and for maps within."""
    if reference.IsBool or reference.IsInt or reference.IsFloat:
        return reference.AsBool if reference.IsBool else reference.AsInt if reference.IsInt else reference.AsFloat
    if reference.IsString or reference.IsKey or reference.IsBlob:
        value = reference.AsBlob if reference.IsBlob else reference.AsKey if reference.IsKey else reference.AsString
        budget.spend(len(value))
        return value
    if reference.IsTypedVector or reference.IsFixedTypedVector:
        items = reference.AsTypedVector if reference.IsTypedVector else reference.AsFixedTypedVector
    elif reference.IsVector and not reference.IsMap:
        items = reference.AsVector
    else:
        return None
    return tuple(_value(items[k], budget) for k in range(budget.spend(len(items))))
