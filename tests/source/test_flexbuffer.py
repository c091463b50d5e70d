"""Options of custom operators and composites, stored as FlexBuffers."""

from __future__ import annotations

from typing import Any

import flatbuffers.flexbuffers
import pytest

from onnx_tflite_plugin.source import flexbuffer
from onnx_tflite_plugin.source.flexbuffer import decode_attributes


def flexbuffer_bytes(value: Any) -> bytes:
    return bytes(flatbuffers.flexbuffers.Dumps(value))


def with_entry(method: str, *arguments: Any) -> bytes:
    """Return a map with one entry ``a``, written by a method of the builder."""
    builder = flatbuffers.flexbuffers.Builder()
    with builder.Map():
        builder.Key("a")
        getattr(builder, method)(*arguments)
    return bytes(builder.Finish())


@pytest.mark.parametrize(
    ("method", "arguments", "expected"),
    [
        ("Bool", (True,), True),
        ("Int", (-7,), -7),
        ("Float", (0.5,), 0.5),
        ("String", ("Ñ",), "Ñ"),
        ("Key", ("k",), "k"),
        ("Blob", (b"\x00\x02",), b"\x00\x02"),
        ("Null", (), None),
        ("TypedVectorFromElements", ([3, 5, 7],), (3, 5, 7)),
        ("FixedTypedVectorFromElements", ([3, 5],), (3, 5)),
        ("VectorFromElements", ([3, "b", [1.5]],), (3, "b", (1.5,))),
        ("MapFromElements", ({"b": 1},), None),
    ],
)
def test_flexbuffer_entry_is_scalar_text_bytes_or_tuple(method: str, arguments: tuple[Any, ...], expected: Any) -> None:
    decoded = decode_attributes(with_entry(method, *arguments), "T")["a"]
    assert decoded == expected
    assert type(decoded) is type(expected)


@pytest.mark.parametrize("value", [[1, 2], 7, "text"])
def test_content_other_than_a_map_gives_no_options(value: Any) -> None:
    assert dict(decode_attributes(flexbuffer_bytes(value), "T").items()) == {}


@pytest.mark.parametrize("data", [b"\x01", b"\xff\xff\xff", bytes([7, 7, 0x24, 1])])
def test_damaged_content_raises_value_error(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode_attributes(data, "T")


@pytest.mark.parametrize(("max_entries", "is_accepted"), [(4, False), (5, True)])
def test_entries_are_counted_with_the_items_of_lists(
    max_entries: int, is_accepted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flexbuffer, "MAX_ENTRIES", max_entries)
    data = flexbuffer_bytes({"a": [3, 5, 7], "b": 1})
    if is_accepted:
        assert decode_attributes(data, "T")["a"] == (3, 5, 7)
        return
    with pytest.raises(ValueError, match="the FlexBuffer holds more than 4 entries"):
        decode_attributes(data, "T")
