"""Constants: every element type, packing, strings, sparsity, locations."""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tflite

from onnx_tflite_plugin.errors import InvalidModel
from onnx_tflite_plugin.source import buffers as limits
from onnx_tflite_plugin.source import read
from onnx_tflite_plugin.source.dtypes import NAMES
from tests.source.writer import Model, Operator, Tensor, sparsity, strings, unary


def constant(shape: Sequence[int], dtype: str, data: bytes, **fields: Any) -> Any:
    """Return ``data`` as the reader decodes it."""
    tensor = Tensor("c", shape, NAMES.index(dtype), data, **fields)
    return read(unary(tensors=[Tensor("x"), Tensor("y"), tensor]).write()).main.tensors[2].array


PLAIN = [name for name in NAMES if name not in ("string", "resource", "variant", "int4", "uint4", "int2", "bool")]


@pytest.mark.parametrize("dtype", PLAIN)
def test_plain_types_are_views(dtype: str) -> None:
    expected = np.arange(1, 7).astype(getattr(ml_dtypes, dtype, dtype)).reshape(2, 3)
    array = constant((2, 3), dtype, expected.tobytes() + b"spare")
    np.testing.assert_array_equal(array, expected)
    assert (array.dtype.name, array.flags.writeable, array.flags.owndata) == (dtype, False, False)


def test_tensors_of_one_buffer_share_values_if_dtype_and_shape_match() -> None:
    kinds = [("float32", (2, 3)), ("int32", (2, 3)), ("float32", (3, 2)), ("float32", (2, 3)), ("int8", (2, 3))]
    numbers = np.arange(1, 7, dtype=np.float32)
    tensors = [Tensor("c", (2, 3), NAMES.index("float32"), numbers.tobytes())]
    shared = [Tensor(f"c{k}", shape, NAMES.index(dtype), buffer=1) for k, (dtype, shape) in enumerate(kinds)]
    constants = read(unary(tensors=[Tensor("x"), Tensor("y"), *tensors, *shared]).write()).main.tensors[3:]
    for tensor, (dtype, shape) in zip(constants, kinds, strict=True):
        expected = np.frombuffer(numbers.tobytes(), dtype)[:6].reshape(shape)
        np.testing.assert_array_equal(tensor.array, expected)
        assert tensor.array.dtype == dtype
    assert constants[0].data is constants[3].data
    assert len({id(tensor.data) for tensor in constants}) == 4


@pytest.mark.parametrize(
    ("dtype", "data", "expected"),
    [
        ("int4", b"\x21\x8f\x07", [[1, 2, -1], [-8, 7, 0]]),
        ("uint4", b"\x21\x8f\x07", [[1, 2, 15], [8, 7, 0]]),
        ("int2", bytes([0b11100100, 0b0001]), [[0, 1, -2], [-1, 1, 0]]),
    ],
)
def test_packed_types_start_in_the_low_bits(dtype: str, data: bytes, expected: list[list[int]]) -> None:
    array = constant((2, 3), dtype, data)
    assert array.dtype.name == dtype
    assert array.astype(int).tolist() == expected
    assert not array.flags.writeable


def test_odd_number_of_packed_values_ignores_the_last_half_byte() -> None:
    assert constant((3,), "int4", b"\x21\xf3").astype(int).tolist() == [1, 2, 3]
    assert constant((), "int4", b"\x0f").astype(int).tolist() == -1


def test_any_byte_but_0_is_true() -> None:
    array = constant((4,), "bool", b"\x00\x01\x02\xff")
    assert array.tolist() == [False, True, True, True]
    assert array.view(np.uint8).tolist() == [0, 1, 1, 1]
    assert constant((2,), "bool", b"\x02\x00").view(np.uint8).tolist() == [1, 0]
    valid = constant((2,), "bool", b"\x01\x00")
    assert valid.tolist() == [True, False]
    while isinstance(valid.base, np.ndarray):
        valid = valid.base
    assert not valid.flags.owndata, "valid bytes must not be copied"


def test_strings_are_objects_of_bytes() -> None:
    texts = [b"ab", b"", b"\xff\x00c"]
    array = constant((3, 1), "string", strings(*texts))
    assert (array.dtype, array.tolist()) == (np.dtype(object), [[text] for text in texts])
    assert constant((), "string", strings(b"one")).item() == b"one"
    assert constant((0,), "string", b"").shape == (0,)
    assert constant((0,), "string", strings()).shape == (0,)


@pytest.mark.parametrize(
    "data",
    [
        b"\x01",
        strings(b"a"),
        strings(b"a", b"b")[:8],
        struct.pack("<4i", 2, 16, 99, 16),
        struct.pack("<4i", 2, 16, 14, 16),
    ],
)
def test_broken_strings_are_refused(data: bytes) -> None:
    with pytest.raises(InvalidModel, match=r"subgraphs\[0\].tensors\[2\].buffer: "):
        constant((2,), "string", data)


def test_huge_string_tensor_in_a_small_buffer_is_refused_at_once() -> None:
    with pytest.raises(InvalidModel):
        constant((1 << 30,), "string", struct.pack("<3i", 1 << 30, 12, 12))


def test_buffers_and_options_after_the_flatbuffer(tmp_path: Path) -> None:
    model = unary(
        tensors=[Tensor("x"), Tensor("y"), Tensor("w", (2,), buffer=1)],
        operators=[Operator((0, 2), large=(1 << 20, 3))],
    )
    model.codes = [(32, 32, "Big", 1)]
    model.buffers = [(1 << 20, 8)]
    size = len(model.write())
    model.buffers = [(size + 3, 8)]
    model.subgraphs[0].operators[0].large = (size, 3)
    path = tmp_path / "big.tflite"
    path.write_bytes(model.write() + b"opt" + np.array([1.5, -2.5], "<f4").tobytes())
    source = read(path)
    assert source.main.operators[0].custom_options == b"opt"
    weights = source.main.tensors[2].array
    assert weights.tolist() == [1.5, -2.5]
    assert not weights.flags.owndata
    assert not weights.flags.aligned, "the test requires an unaligned address"


def test_inline_options_precede_options_after_the_flatbuffer() -> None:
    model = unary(operators=[Operator(custom=b"own", large=(8, 3))])
    assert read(model.write()).main.operators[0].custom_options == b"own"


def test_offset_of_1_is_unset_as_in_litert() -> None:
    """An offset of 0 or 1 is unset (BufferHasValidOffset).

    A buffer without data is no constant.
    """
    model = unary(tensors=[Tensor("x"), Tensor("y"), Tensor("z", (2,), buffer=1)])
    model.buffers = [(1, 8)]
    assert read(model.write()).main.tensors[2].data is None


def test_tensors_with_the_same_bytes_share_their_value() -> None:
    tensors = [Tensor("x"), Tensor("y"), *(Tensor("", shape, buffer=1) for shape in ((2, 2), (2, 2), (4,)))]
    model = unary(tensors=tensors)
    model.buffers = [bytes(16)]
    _, _, first, second, flat = read(model.write()).main.tensors
    assert first.data is second.data
    assert flat.data is not first.data


def test_array_is_decoded_once() -> None:
    tensor = Tensor("c", (3,), tflite.TensorType.INT4, b"\x21\x03")
    decoded = read(unary(tensors=[Tensor("x"), Tensor("y"), tensor]).write()).main.tensors[2]
    assert decoded.array is decoded.array


def test_a_tensor_computed_at_run_time_has_no_array() -> None:
    with pytest.raises(ValueError, match="1 'y' is not a constant"):
        _ = read(unary().write()).main.tensors[1].array


# Sparse tensors -------------------------------------------------------------------------------------------------------


def encode(
    dense: Any, order: Sequence[int], csr: set[int], blocks: dict[int, int], widths: Sequence[str]
) -> tuple[Any, list[Any]]:
    """Return ``dense`` as (values, levels) in the schema's sparse format.

    ``blocks`` maps an axis to the size of its blocks, ``csr`` holds the levels to compress.
    """
    rank = dense.ndim
    sizes = [size // blocks.get(axis, 1) for axis, size in enumerate(dense.shape)] + list(blocks.values())

    def element(coordinates: dict[int, int]) -> Any:
        index = [coordinates[axis] for axis in range(rank)]
        for block, axis in enumerate(blocks):
            index[axis] = index[axis] * blocks[axis] + coordinates[rank + block]
        return dense[tuple(index)]

    def has_values(coordinates: dict[int, int], depth: int) -> bool:
        remaining = order[depth:]
        points = itertools.product(*(range(sizes[dimension]) for dimension in remaining))
        return any(element(coordinates | dict(zip(remaining, point, strict=True))) != 0 for point in points)

    entries: list[dict[int, int]] = [{}]
    levels: list[Any] = []
    for depth, dimension in enumerate(order):
        next_entries: list[dict[int, int]] = []
        segments, indices = [0], []
        for coordinates in entries:
            for coordinate in range(sizes[dimension]):
                extended = coordinates | {dimension: coordinate}
                if depth not in csr or has_values(extended, depth + 1):
                    next_entries.append(extended)
                    indices.append(coordinate)
            segments.append(len(indices))
        levels.append((segments, indices, *widths) if depth in csr else sizes[dimension])
        entries = next_entries
    return np.array([element(coordinates) for coordinates in entries], dense.dtype), levels


@pytest.mark.parametrize("widths", [("Int32", "Uint8"), ("Uint16", "Uint16"), ("Uint8", "Int32")])
@pytest.mark.parametrize(
    ("shape", "order", "csr", "blocks"),
    [
        ((3, 5), (0, 1), {1}, {}),
        ((3, 5), (0, 1), {0}, {}),
        ((3, 5), (0, 1), {0, 1}, {}),
        ((3, 5), (1, 0), {1}, {}),
        ((3, 5), (0, 1), set(), {}),
        ((2, 3, 5), (0, 2, 1), {0, 2}, {}),
        ((6, 10), (0, 1, 2, 3), {1}, {0: 2, 1: 5}),
        ((6, 10), (1, 0, 3, 2), {1}, {0: 3, 1: 2}),
        ((6, 5), (0, 1, 2), {0, 1}, {0: 2}),
        ((7,), (0,), {0}, {}),
    ],
)
def test_sparse_constants_decode(
    shape: tuple[int, ...], order: tuple[int, ...], csr: set[int], blocks: dict[int, int], widths: tuple[str, str]
) -> None:
    generator = np.random.default_rng(math.prod(shape))
    dense = (generator.integers(1, 9, shape) * (generator.random(shape) < 0.25)).astype(np.float32)
    dense[(-1,) * dense.ndim] = 3.0
    values, levels = encode(dense, order, csr, blocks, widths)
    array = constant(shape, "float32", values.tobytes(), sparsity=sparsity(order, tuple(blocks), levels))
    np.testing.assert_array_equal(array, dense)
    assert not array.flags.writeable


def test_sparse_constants_of_packed_type_and_without_values() -> None:
    build = sparsity((0, 1), (), [2, ([0, 1, 2], [2, 0], "Uint8", "Uint8")])
    array = constant((2, 3), "int4", b"\xf3", sparsity=build)
    assert array.astype(int).tolist() == [[0, 0, 3], [-1, 0, 0]]
    build = sparsity((0,), (), [([0, 0], [], "Uint8", "Uint8")])
    assert constant((5,), "float32", bytes(4), sparsity=build).tolist() == [0] * 5


ONE_OF_MANY = ([0, 1], [5], "Int32", "Int32")
BAD_SPARSITY: dict[str, Any] = {
    "traversal_order: 1 dimensions for rank 2": ((0,), (), [2]),
    "traversal_order: (0, 0)": ((0, 0), (), [2, 3]),
    "block_map: ": ((0, 1, 2), (5,), [2, 3, 1]),
    "dim_metadata: 1 entries": ((0, 1), (), [2]),
    "dim_metadata[0].dense_size: -1": ((0, 1), (), [-1, 3]),
    "dim_metadata[0].dense_size: 4 coordinates": ((0, 1), (), [4, 1]),
    "dim_metadata[1].array_segments: 2 segments": ((0, 1), (), [2, ([0, 1], [0], "Uint8", "Uint8")]),
    "dim_metadata[1].array_segments: segments must": ((0, 1), (), [2, ([0, 2, 1], [0, 1], "Uint8", "Uint8")]),
    "dim_metadata[1].array_segments: segments must increase from 0": (
        (0, 1),
        (),
        [2, ([1, 1, 2], [0, 1], "Uint8", "Uint8")],
    ),
    "dim_metadata[1].array_segments: segments must increase from 0 to 2, the number of indices": (
        (0, 1),
        (),
        [2, ([0, 1, 1], [0, 1], "Uint8", "Uint8")],
    ),
    "dim_metadata[1].array_segments: segments must increase from 0 to 1,": (
        (0, 1),
        (),
        [2, ([0, 2, 1], [0], "Uint8", "Uint8")],
    ),
    "dim_metadata[1].array_indices: indices must": ((0, 1), (), [2, ([0, 1, 2], [0, 3], "Uint8", "Uint8")]),
    "dim_metadata[1].array_indices: indices must be in 0..0": (
        (0, 1, 2),
        (1,),
        [2, ([0, 1, 1], [1], "Uint8", "Uint8"), 3],
    ),
    "dim_metadata[2].dense_size: a block": ((0, 1, 2), (1,), [2, 3, 0]),
    "buffer: 16 bytes, but 6 sparse values": ((0, 1), (), [2, 3]),
}


@pytest.mark.parametrize("message", BAD_SPARSITY)
def test_broken_sparsity_is_refused(message: str) -> None:
    with pytest.raises(InvalidModel) as caught:
        constant((2, 3), "float32", bytes(16), sparsity=sparsity(*BAD_SPARSITY[message]))
    prefix = "" if message.startswith("buffer") else "sparsity."
    assert f"subgraphs[0].tensors[2].{prefix}{message}" in str(caught.value)


def test_small_sparse_constant_may_expand_without_limit() -> None:
    array = constant((100_003,), "float32", np.float32(7).tobytes(), sparsity=sparsity((0,), (), [ONE_OF_MANY]))
    assert (np.flatnonzero(array).tolist(), array[5]) == ([5], 7)


def test_sparse_decompression_bomb_is_refused() -> None:
    levels = [ONE_OF_MANY]
    with pytest.raises(InvalidModel, match="would take 1200000000 bytes in memory"):
        constant((300_000_000,), "float32", bytes(4), sparsity=sparsity((0,), (), levels))


def test_buffer_decoded_in_many_shapes_counts_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "DECODED_BYTES", 1 << 10)
    tensors = [
        Tensor("x"),
        Tensor("y"),
        *(Tensor("", (size,), tflite.TensorType.INT8, buffer=1) for size in range(1, 33)),
    ]
    model = Model(unary(tensors=tensors).subgraphs, codes=[(101, 101, None, 1)], buffers=[bytes(32)])
    read(model.write())
    monkeypatch.setattr(limits, "DECODED_RATIO", 1)
    monkeypatch.setattr(limits, "DECODED_BYTES", 1 << 9)
    with pytest.raises(InvalidModel, match="constants stored in 32 bytes would take"):
        read(model.write())
