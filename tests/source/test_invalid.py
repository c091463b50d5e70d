"""Invalid and hostile files raise ``InvalidModel``, which names the field."""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import flatbuffers
import pytest
import tflite

from onnx_tflite_plugin.errors import InvalidModel
from onnx_tflite_plugin.source import read
from tests.source.writer import (
    Model,
    Operator,
    Subgraph,
    Tensor,
    conv,
    details,
    options,
    sparsity,
    strings,
    table,
    unary,
    vector,
)

X, Y = Tensor("x"), Tensor("y")
THREE_TENSORS = [Tensor("x"), Tensor("y"), Tensor("z")]


def weights(**changes: Any) -> Model:
    """Return a model of x, y and a constant float32 tensor w of shape [2, 3]."""
    return unary(tensors=[X, Y, Tensor(**({"name": "w", "shape": (2, 3), "data": bytes(24)} | changes))])


def in_blocks(scales: int) -> Model:
    """Return a model with blocks of size 1 and zero points."""
    scale_tensor = Tensor("s", (scales,), tflite.TensorType.FLOAT16, b"\0\x3c" * scales)
    w = Tensor("w", (2, 3), tflite.TensorType.INT8, bytes(6), details=(2, details(1, 3, 1)))
    return Model([Subgraph([X, scale_tensor, w, Tensor("z", (6,), tflite.TensorType.INT8, b"\0\0\0\0\0\1")])])


def with_codes(*codes: Any) -> Model:
    return Model(unary().subgraphs, codes=codes)


def with_signature(*signature: Any) -> Model:
    return Model(unary().subgraphs, codes=[(101, 101, None, 1)], signatures=[signature])


def with_fields(**fields: Any) -> Model:
    model = unary()
    for name, value in fields.items():
        setattr(model, name, value)
    return model


def with_add_options(build: Any) -> Model:
    model = unary(operators=[Operator(options=(11, build))])
    model.codes = [(0, 0, None, 1)]
    return model


def with_quantization(dtype: int, scale: float, zero_point: int) -> Model:
    return unary(tensors=[Tensor("x", type=dtype, scale=[scale], zero_point=[zero_point]), Y])


W, OPS = "subgraphs[0].tensors[2]", "subgraphs[0].operators"
CASES: list[tuple[str, Callable[[], Model]]] = [
    ("version: schema version 2 is not supported; LiteRT runs only version 3", lambda: with_fields(version=2)),
    ("subgraphs: the model has no subgraphs", lambda: with_fields(subgraphs=[])),
    (
        f"{OPS}[0].opcode_index: operator code 1 does not exist; the model has 1 operator code",
        lambda: unary(operators=[Operator(code=1)]),
    ),
    ("operator_codes[0].custom_code: a custom operator must have a name", lambda: with_codes((32, 32, None, 1))),
    ("subgraphs[0].inputs[1]: tensor 2 does not exist; the subgraph has 2 tensors", lambda: unary(inputs=(0, 2))),
    ("subgraphs[0].outputs[0]: tensor -1 does not exist; the subgraph has 2 tensors", lambda: unary(outputs=(-1,))),
    ("subgraphs[0].outputs[0]: nothing computes tensor 1 'y'", lambda: unary(operators=[])),
    (
        f"{OPS}[0].inputs[1]: tensor 99 does not exist; the subgraph has 2 tensors",
        lambda: unary(operators=[Operator((0, 99))]),
    ),
    (f"{OPS}[0].inputs[0]: tensor -2 does not exist", lambda: unary(operators=[Operator((-2,))])),
    (f"{OPS}[0].outputs[1]: tensor 2 does not exist", lambda: unary(operators=[Operator((0,), (1, 2))])),
    (f"{OPS}[0].intermediates[0]: tensor 7 does not exist", lambda: unary(operators=[Operator(intermediates=(7,))])),
    (
        f"{OPS}[0].inputs[0]: tensor 1 'y' is used here, but computed later, by operators[0]",
        lambda: unary(operators=[Operator((1,))]),
    ),
    (
        f"{OPS}[0].inputs[0]: tensor 2 'z' is used here, but computed later, by operators[1]",
        lambda: unary(tensors=THREE_TENSORS, operators=[Operator((2,)), Operator((0,), (2,))]),
    ),
    (
        f"{OPS}[1].outputs[0]: tensor 1 is already computed by operators[0]",
        lambda: unary(operators=[Operator(), Operator()]),
    ),
    (f"{OPS}[0].outputs[0]: tensor 0 'x' is an input", lambda: unary(operators=[Operator((0,), (0,))], outputs=(0,))),
    (
        f"{OPS}[0].outputs[0]: tensor 1 'y' is a constant",
        lambda: unary(tensors=[X, Tensor("y", data=bytes(16))]),
    ),
    (f"{W}.type: 23 is not an element type", lambda: weights(type=23)),
    (f"{W}.shape: [2, -3] has a negative size", lambda: weights(shape=(2, -3))),
    (f"{W}.shape: [2147483647, 2147483647, 2147483647] has too many", lambda: weights(shape=(2**31 - 1,) * 3)),
    (f"{W}.shape: [536870912, 536870912] has too many", lambda: weights(shape=(1 << 29,) * 2)),  # 2^63 bits
    (f"{W}.shape: [0, 2147483647, 2147483647, 2147483647] has too", lambda: weights(shape=(0, *(2**31 - 1,) * 3))),
    (f"{W}.shape: 65 axes, more than 64", lambda: weights(shape=(1,) * 65)),
    (f"{W}.buffer: buffer 1 does not exist; the model has 1 buffer", lambda: weights(data=None, buffer=1)),
    (f"{W}.buffer: buffer 7 does not exist; the model has 1 buffer", lambda: weights(data=None, buffer=7)),
    (f"{W}.buffer: 23 bytes, but float32 of shape [2, 3] needs 24", lambda: weights(data=bytes(23))),
    (f"{W}.buffer: 2 bytes, but int4 of shape [5] needs 3", lambda: weights(data=bytes(2), type=17, shape=(5,))),
    (f"{W}.buffer: the tensor is a variable, but has a data buffer", lambda: weights(variable=True)),
    (f"{W}.buffer: a resource tensor cannot hold stored data", lambda: weights(type=tflite.TensorType.RESOURCE)),
    (f"{W}.buffer: a variant tensor cannot hold stored data", lambda: weights(type=tflite.TensorType.VARIANT)),
    (f"{W}.external_buffer: the data is in external buffer 5, which is not supported", lambda: weights(external=5)),
    (f"{W}.external_buffer: the data is in external buffer 1, which is not supported", lambda: weights(external=1)),
    (f"{W}.sparsity: strings cannot be sparse", lambda: weights(type=5, sparsity=sparsity((0, 1), (), [2, 3]))),
    (f"{W}.quantization.zero_point: 2 zero points for 1 scales", lambda: weights(scale=[1], zero_point=[0, 0])),
    (
        f"{W}.quantization.quantized_dimension: axis 2 does not exist in a tensor of rank 2",
        lambda: weights(scale=[1], axis=2),
    ),
    (f"{W}.quantization.quantized_dimension: axis -1", lambda: weights(scale=[1], axis=-1)),
    (f"{W}.quantization.scale: 3 scales for axis 0 of size 2", lambda: weights(scale=[1, 1, 1])),
    (
        f"{W}.quantization.details: the quantization details are declared but missing",
        lambda: weights(details=(2, lambda builder: None)),
    ),
    (f"{W}.quantization.details.scales: tensor 3 does not exist", lambda: weights(details=(2, details(3, -1, 1)))),
    (f"{W}.quantization.details.block_size: 0 is not", lambda: weights(details=(2, details(1, -1, 0)))),
    (
        f"{W}.quantization.details.block_shape: blocks of several dimensions are not supported",
        lambda: weights(details=(2, details(1, -1, 1, dimensions=(1, 1)))),
    ),
    (
        f"{W}.quantization.details.block_size: 2 does not divide the last axis of [2, 3]",
        lambda: weights(details=(2, details(1, -1, 2))),
    ),
    (
        f"{W}.quantization.details.scales: scales of blockwise quantization must be float16 constants; "
        "tensor 1 'y' is a variable float32 tensor",
        lambda: weights(details=(2, details(1, -1, 1))),
    ),
    (f"{W}.quantization.details.scales: tensor 1 's' has 5 scales for 6 blocks", lambda: in_blocks(5)),
    (f"{W}.quantization.details.scales: tensor 1 's' has 7 scales for 6 blocks", lambda: in_blocks(7)),
    (f"{W}.quantization.details.zero_points: tensor 3 'z' has nonzero values", lambda: in_blocks(6)),
    (
        f"{W}.quantization.details.zero_points: tensor -2",
        lambda: weights(details=(3, details(1, -2, 0, dimensions=(0,)))),
    ),
    (
        f"{W}.quantization.details.block_size: -1 is negative",
        lambda: weights(details=(3, details(1, -1, -1, dimensions=(0,)))),
    ),
    (f"{W}.quantization.details.quantized_dimensions: axes ()", lambda: weights(details=(3, details(1, -1, 0)))),
    (
        f"{W}.quantization.details.quantized_dimensions: axes (0, 2)",
        lambda: weights(details=(3, details(1, -1, 0, dimensions=(0, 2)))),
    ),
    ("signature_defs[0].signature_key: a signature must have a name", lambda: with_signature(None, 0, {}, {})),
    ("signature_defs[0].subgraph_index: subgraph 1 does not", lambda: with_signature("a", 1, {}, {})),
    (
        "signature_defs[0].outputs[0].tensor_index: tensor 2 does not exist; subgraph 0 has 2 tensors",
        lambda: with_signature("a", 0, {"x": 0}, {"y": 2}),
    ),
    (
        f"{OPS}[0].builtin_options.fused_activation_function: 9 is not one of NONE, RELU, ",
        lambda: with_add_options(options("AddOptions", FusedActivationFunction=9)),
    ),
    *(
        (
            f"subgraphs[0].tensors[0].quantization.scale: {scale} is not a valid scale of int8",
            lambda scale=scale: with_quantization(tflite.TensorType.INT8, scale, 0),
        )
        for scale in (-0.5, float("inf"), float("nan"))
    ),
    *(
        (
            f"subgraphs[0].tensors[0].quantization.zero_point: {point} is outside the range of {name.lower()}",
            lambda name=name, point=point: with_quantization(getattr(tflite.TensorType, name), 0.5, point),
        )
        for name, point in (("INT8", 128), ("UINT8", -1), ("INT16", -32769), ("INT4", 8))
    ),
    (f"{OPS}[0].large_custom_options_offset: bytes 99999 to", lambda: unary(operators=[Operator(large=(99999, 5))])),
    ("buffers[1].offset: bytes 18446744073709551615 to", lambda: big_buffer((1 << 64) - 1, 1)),
    ("buffers[1].offset: bytes 2 to 18446744073709551616", lambda: big_buffer(2, (1 << 64) - 2)),
]


def big_buffer(offset: int, size: int) -> Model:
    model = weights(data=None, buffer=1)
    model.buffers = [(offset, size)]
    return model


@pytest.mark.parametrize(("message", "build"), CASES, ids=[message for message, _ in CASES])
def test_inconsistency_is_refused_with_its_field(message: str, build: Callable[[], Model]) -> None:
    with pytest.raises(InvalidModel) as caught:
        read(build().write())
    head, line = str(caught.value).splitlines()
    assert head == "cannot read the given bytes"
    assert line.strip().startswith(message)
    [problem] = caught.value.problems
    assert problem.hint, "every refusal needs a hint"


def test_an_external_buffer_is_named_with_its_file() -> None:
    model = weights(external=5)
    model.external = [(5, 0)]
    with pytest.raises(InvalidModel, match=r"external buffer 5, in 'weights.bin', which is not supported"):
        read(model.write())


@pytest.mark.parametrize("data", [b"", b"TFL3", b"This is an invalid model.", b"\x1c\x00\x00\x00TFL2" + bytes(90)])
def test_files_of_other_formats_are_refused(data: bytes, tmp_path: Path) -> None:
    with pytest.raises(InvalidModel, match=r"not a TFLite file \(no TFL3 identifier\)"):
        read(data)
    path = tmp_path / "other.bin"
    path.write_bytes(data)
    with pytest.raises(InvalidModel, match=r"cannot read .*other\.bin"):
        read(path)


def test_missing_file_raises_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no such file"):
        read(tmp_path / "none.tflite")


def test_a_model_without_buffers_is_refused() -> None:
    builder = flatbuffers.Builder(64)
    builder.Finish(table(builder, "Model", Version=3), b"TFL3")
    with pytest.raises(InvalidModel, match="buffers: the model has no buffers"):
        read(bytes(builder.Output()))


def file_of_shared_tables(*, operands: int, tensors: int, operators: int, subgraphs: int) -> bytes:
    """Return a file that lists one tensor, one operator and one subgraph repeatedly."""
    builder = flatbuffers.Builder(1024)
    tensor = table(builder, "Tensor", Shape=vector(builder, (4,)))
    operator = table(builder, "Operator", Inputs=vector(builder, [0] * operands), Outputs=vector(builder, ()))
    subgraph = table(
        builder,
        "SubGraph",
        Tensors=vector(builder, [tensor] * tensors, "table"),
        Operators=vector(builder, [operator] * operators, "table"),
    )
    code = table(builder, "OperatorCode", BuiltinCode=101)
    model_table = table(
        builder,
        "Model",
        Version=3,
        OperatorCodes=vector(builder, [code], "table"),
        Subgraphs=vector(builder, [subgraph] * subgraphs, "table"),
        Buffers=vector(builder, [table(builder, "Buffer")], "table"),
    )
    builder.Finish(model_table, b"TFL3")
    return bytes(builder.Output())


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (file_of_shared_tables(operands=0, tensors=20_000, operators=20_000, subgraphs=50_000), "tables"),
        (
            file_of_shared_tables(operands=50_000, tensors=1, operators=1_000, subgraphs=1),
            "shapes, operands and scales",
        ),
    ],
    ids=["tables", "operands"],
)
def test_shared_tables_that_would_multiply_are_refused(data: bytes, kind: str) -> None:
    """50,000 references to one subgraph would expand to 10^9 operators from 300 kB."""
    started = time.perf_counter()
    with pytest.raises(InvalidModel, match=rf"more than \d+ {kind} in \d+ bytes"):
        read(data)
    assert time.perf_counter() - started < 10


def test_shared_text_is_copied_once() -> None:
    builder = flatbuffers.Builder(1024)
    tensor = table(builder, "Tensor", Shape=vector(builder, (4,)), Name=builder.CreateString("x" * 50_000))
    subgraph = table(builder, "SubGraph", Tensors=vector(builder, [tensor] * 11, "table"))
    buffers = vector(builder, [table(builder, "Buffer")], "table")
    model_table = table(builder, "Model", Version=3, Subgraphs=vector(builder, [subgraph], "table"), Buffers=buffers)
    builder.Finish(model_table, b"TFL3")
    assert {tensor.name for tensor in read(bytes(builder.Output())).main.tensors} == {"x" * 50_000}


def small_model() -> bytes:
    """Return a file with nearly every kind of content."""
    model = conv()
    model.subgraphs = [
        Subgraph(
            [
                *model.subgraphs[0].tensors,
                Tensor("words", (2,), tflite.TensorType.STRING, strings(b"ab", b"c")),
                Tensor("int4", (3,), tflite.TensorType.INT4, b"\x21\x03", details=(2, details(8, -1, 1))),
                Tensor(
                    "sparse",
                    (2, 3),
                    tflite.TensorType.INT8,
                    b"\x07\x08",
                    sparsity=sparsity((0, 1), (), [2, ([0, 1, 2], [0, 2], "Uint16", "Uint8")]),
                ),
                Tensor("flag", (2,), tflite.TensorType.BOOL, b"\x01\x00"),
                Tensor("state", variable=True),
                Tensor("scales", (3,), tflite.TensorType.FLOAT16, b"\0\x3c" * 3),
            ],
            [
                *model.subgraphs[0].operators,
                Operator((2, 3, 4, 5, 6, 7), (), 1, custom=b"custom", mutating=(False,) * 5 + (True,)),
            ],
            outputs=(2,),
        )
    ]
    model.codes = [*model.codes, (32, 32, "Mine", 1)]
    model.buffers = [b"metadata"]
    model.metadata = {"about": 1}
    model.signatures = [("serve", 0, {"in": 0}, {"out": 2})]
    return model.write()


def decode_all(data: bytes) -> None:
    for subgraph in read(data).subgraphs:
        for tensor in subgraph.tensors:
            if tensor.is_constant:
                assert tensor.array.shape == tensor.shape


def test_damaged_files_are_read_or_refused_in_one_line() -> None:
    data = small_model()
    decode_all(data)
    generator = random.Random(2026)
    errors = []
    for _ in range(4000):
        damaged = bytearray(data)
        for _ in range(generator.choice((1, 1, 2, 6))):
            position = generator.randrange(8, len(damaged) - 4)
            match generator.randrange(4):
                case 0:
                    damaged[position] = generator.randrange(256)
                case 1:
                    damaged[position] ^= 1 << generator.randrange(8)
                case 2:
                    word = generator.choice(
                        (0, 1, 2, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, generator.randrange(len(data)))
                    )
                    struct.pack_into("<I", damaged, position & ~3, word)
                case 3:
                    del damaged[max(16, position) :]
        try:
            decode_all(bytes(damaged))
        except InvalidModel as error:
            errors.append(str(error))
    assert 1000 < len(errors) < 4000
    assert {len(error.splitlines()) for error in errors} == {2}


def test_every_prefix_of_a_file_is_refused_or_read() -> None:
    data = small_model()
    for size in range(0, len(data), 3):
        with pytest.raises(InvalidModel):
            decode_all(data[:size])
