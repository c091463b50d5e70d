"""Decode operator attributes in a FlexBuffer.

The attributes are a map from names to numbers, text, and lists of these. Converters write nothing else.
"""

from __future__ import annotations

from typing import Any

from onnx_tflite_plugin.source.model import Options

MAX_ENTRIES = 1 << 16
"""Maximum number of entries in one map, including the items of its lists. Operators have few attributes."""


class _Budget:
    """Limit of the entries that are read, because offsets may repeat one list."""

    def __init__(self) -> None:
        self.remaining = MAX_ENTRIES

    def spend(self, count: int) -> int:
        self.remaining -= count
        if self.remaining < 0:
            raise ValueError(f"the FlexBuffer holds more than {MAX_ENTRIES} entries")
        return count


def decode_attributes(data: bytes, table: str) -> Options:
    """Return the root map of a FlexBuffer as options of ``table``.

    The options are empty if the FlexBuffer is empty or not a map. Raises ValueError if it is damaged or holds more
    than ``MAX_ENTRIES`` entries.
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
        return Options(table, {names[k].AsKey: _decode_value(values[k], budget) for k in range(count)})
    except ValueError:
        raise
    except Exception as error:  # the package reads unchecked and raises struct.error, IndexError, TypeError and more
        raise ValueError(f"not a FlexBuffer: {type(error).__name__}: {error}") from error


def _decode_value(reference: Any, budget: _Budget) -> Any:
    """Return a number, text, a blob or a tuple of these.

    The result is ``None`` for null and for nested maps.
    """
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
    return tuple(_decode_value(items[k], budget) for k in range(budget.spend(len(items))))
