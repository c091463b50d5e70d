"""Tests of the size of each dtype, in the file and as an array."""

from __future__ import annotations

import pytest

from onnx_tflite_plugin.source.dtypes import bits, size_in_file, size_in_memory


@pytest.mark.parametrize(
    ("dtype", "in_file", "decoded"),
    [
        ("float32", 60, 60),
        ("bool", 15, 15),
        ("int4", 8, 15),
        ("int2", 4, 15),
        ("bfloat16", 30, 30),
        ("int64", 120, 120),
    ],
)
def test_sub_byte_elements_are_packed_only_in_the_file(dtype: str, in_file: int, decoded: int) -> None:
    assert (size_in_file(dtype, (3, 5)), size_in_memory(dtype, (3, 5), 0)) == (in_file, decoded)


def test_size_of_strings_in_memory_includes_one_object_per_string() -> None:
    assert (bits("string"), bits("resource"), bits("variant")) == (0, 0, 0)
    assert size_in_memory("string", (3, 5), 7) == 15 * 48 + 7
