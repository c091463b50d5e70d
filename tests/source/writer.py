"""Writer of TFLite files for the tests of ``source``, by the package ``tflite``."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import flatbuffers
import numpy as np
import tflite

from onnx_tflite_plugin.source import read

Build = Callable[[flatbuffers.Builder], int]
INT8 = tflite.TensorType.INT8
VECTORS = {"Int32": (1, "<i4"), "Uint16": (2, "<u2"), "Uint8": (3, "<u1")}


def vector(builder: flatbuffers.Builder, values: Sequence[Any] | bytes | None, dtype: str = "<i4") -> int:
    """Write a vector of numbers, or of offsets for "table"; return 0 for None."""
    if values is None:
        return 0
    if dtype == "table":
        builder.StartVector(4, len(values), 4)
        for offset in reversed(values):
            builder.PrependUOffsetTRelative(offset)
        return int(builder.EndVector())
    array = np.frombuffer(values, np.uint8) if isinstance(values, bytes) else np.array(values, dtype)
    return int(builder.CreateNumpyVector(array))


def table(builder: flatbuffers.Builder, name: str, slots: int = 0, **fields: Any) -> int:
    """Write a table with the package's writers.

    ``slots`` reserves fields for ``raw``: (slot, "Int32", value).
    """
    raw = fields.pop("raw", ())
    if slots:
        builder.StartObject(slots)
    else:
        getattr(tflite, name + "Start")(builder)
    for key, value in fields.items():
        if value is not None:
            getattr(tflite, name + "Add" + key)(builder, value)
    for slot, kind, value in raw:
        getattr(builder, f"Prepend{kind}Slot")(slot, value, 0)
    return int(builder.EndObject())


@dataclass
class Tensor:
    name: str = ""
    shape: Sequence[int] | None = (4,)
    type: int = tflite.TensorType.FLOAT32
    data: bytes | None = None
    buffer: int | None = None
    signature: Sequence[int] | None = None
    scale: Sequence[float] | None = None
    zero_point: Sequence[int] | None = None
    axis: int = 0
    details: tuple[int, Build] | None = None
    variable: bool = False
    ranked: bool = True
    sparsity: Build | None = None
    external: int = 0
    lists: Sequence[tuple[int, Sequence[int], bool]] = ()  # element type, shape, whether its rank is known


@dataclass
class Operator:
    inputs: Sequence[int] = (0,)
    outputs: Sequence[int] = (1,)
    code: int = 0
    options: tuple[int, Build] | None = None
    options_2: tuple[int, Build] | None = None
    custom: bytes | None = None
    intermediates: Sequence[int] | None = None
    mutating: Sequence[bool] | None = None
    large: tuple[int, int] = (0, 0)


@dataclass
class Subgraph:
    tensors: Sequence[Tensor]
    operators: Sequence[Operator] = ()
    inputs: Sequence[int] = (0,)
    outputs: Sequence[int] = (1,)
    name: str = "main"


@dataclass
class Model:
    subgraphs: Sequence[Subgraph]
    # (deprecated_builtin_code, builtin_code, custom_code, version)
    codes: Sequence[tuple[int, int, str | None, int]] = ((0, 0, None, 1),)
    # Buffers after the empty first one; an (offset, size) pair lies after the FlatBuffer.
    buffers: Sequence[bytes | tuple[int, int] | None] = ()
    signatures: Sequence[tuple[str | None, int, Mapping[str, int], Mapping[str, int]]] = ()
    metadata: Mapping[str, int] = field(default_factory=dict)
    external: Sequence[tuple[int, int]] = ()
    version: int = 3
    identifier: bytes = b"TFL3"

    def write(self) -> bytes:
        builder = flatbuffers.Builder(1024)
        buffers = [None, *self.buffers]
        subgraphs = [_subgraph(builder, subgraph, buffers) for subgraph in self.subgraphs]
        codes = [_code(builder, *code) for code in self.codes]
        metadata = [
            table(builder, "Metadata", Name=name, Buffer=buffer)
            for name, buffer in [(builder.CreateString(name), buffer) for name, buffer in self.metadata.items()]
        ]
        signatures = [_signature(builder, *signature) for signature in self.signatures]
        external_group = table(builder, "", 1, raw=[(0, "UOffsetTRelative", builder.CreateString("weights.bin"))])
        external = [
            table(builder, "", 5, raw=[(0, "Uint32", number), (1, "Uint32", group_index)])
            for number, group_index in self.external
        ]
        buffer_tables = [_buffer(builder, buffer) for buffer in buffers]
        model_table = table(
            builder,
            "Model",
            10,
            Version=self.version,
            OperatorCodes=vector(builder, codes, "table"),
            Subgraphs=vector(builder, subgraphs, "table"),
            Description=builder.CreateString("a test"),
            Buffers=vector(builder, buffer_tables, "table"),
            Metadata=vector(builder, metadata, "table"),
            SignatureDefs=vector(builder, signatures, "table"),
            raw=[
                (8, "UOffsetTRelative", vector(builder, [external_group], "table")),
                (9, "UOffsetTRelative", vector(builder, external, "table")),
            ],
        )
        builder.Finish(model_table, self.identifier)
        return bytes(builder.Output())


def _code(builder: flatbuffers.Builder, deprecated: int, code: int, custom: str | None, version: int) -> int:
    name = builder.CreateString(custom) if custom is not None else None
    return table(
        builder, "OperatorCode", DeprecatedBuiltinCode=deprecated, CustomCode=name, Version=version, BuiltinCode=code
    )


def _buffer(builder: flatbuffers.Builder, data: bytes | tuple[int, int] | None) -> int:
    if isinstance(data, tuple):
        return table(builder, "Buffer", Offset=data[0], Size=data[1])
    return table(builder, "Buffer", Data=vector(builder, data) if data is not None else None)


def _signature(
    builder: flatbuffers.Builder, key: str | None, subgraph: int, inputs: Mapping[str, int], outputs: Mapping[str, int]
) -> int:
    maps = []
    for names in (inputs, outputs):
        offsets = [(builder.CreateString(name), tensor) for name, tensor in names.items()]
        entries = [table(builder, "TensorMap", Name=name, TensorIndex=tensor) for name, tensor in offsets]
        maps.append(vector(builder, entries, "table"))
    name = builder.CreateString(key) if key is not None else None
    return table(builder, "SignatureDef", Inputs=maps[0], Outputs=maps[1], SignatureKey=name, SubgraphIndex=subgraph)


def _subgraph(builder: flatbuffers.Builder, subgraph: Subgraph, buffers: list[Any]) -> int:
    tensors = vector(builder, [_tensor(builder, tensor, buffers) for tensor in subgraph.tensors], "table")
    operators = vector(builder, [_operator(builder, operator) for operator in subgraph.operators], "table")
    return table(
        builder,
        "SubGraph",
        Tensors=tensors,
        Inputs=vector(builder, subgraph.inputs),
        Outputs=vector(builder, subgraph.outputs),
        Operators=operators,
        Name=builder.CreateString(subgraph.name),
    )


def _tensor(builder: flatbuffers.Builder, tensor: Tensor, buffers: list[Any]) -> int:
    buffer = tensor.buffer or 0
    if tensor.data is not None:
        buffer = len(buffers)
        buffers.append(tensor.data)
    quantization = None
    if tensor.scale is not None or tensor.details is not None:
        kind, build = tensor.details or (0, None)
        quantization = table(
            builder,
            "QuantizationParameters",
            Scale=vector(builder, tensor.scale, "<f4"),
            ZeroPoint=vector(builder, tensor.zero_point, "<i8"),
            Details=build(builder) if build else None,
            DetailsType=kind,
            QuantizedDimension=tensor.axis,
        )
    variants = [
        table(builder, "VariantSubType", Shape=vector(builder, shape), Type=number, HasRank=ranked)
        for number, shape, ranked in tensor.lists
    ]
    return table(
        builder,
        "Tensor",
        11,
        Shape=vector(builder, tensor.shape),
        Type=tensor.type,
        Buffer=buffer,
        Name=builder.CreateString(tensor.name),
        Quantization=quantization,
        IsVariable=tensor.variable,
        Sparsity=tensor.sparsity(builder) if tensor.sparsity else None,
        ShapeSignature=vector(builder, tensor.signature),
        HasRank=tensor.ranked,
        VariantTensors=vector(builder, variants, "table"),
        raw=[(10, "Uint32", tensor.external)],
    )


def _operator(builder: flatbuffers.Builder, operator: Operator) -> int:
    kind, build = operator.options or (0, None)
    kind_2, build_2 = operator.options_2 or (0, None)
    return table(
        builder,
        "Operator",
        OpcodeIndex=operator.code,
        Inputs=vector(builder, operator.inputs),
        Outputs=vector(builder, operator.outputs),
        BuiltinOptionsType=kind,
        BuiltinOptions=build(builder) if build else None,
        CustomOptions=vector(builder, operator.custom),
        MutatingVariableInputs=vector(builder, operator.mutating, "?"),
        Intermediates=vector(builder, operator.intermediates),
        LargeCustomOptionsOffset=operator.large[0],
        LargeCustomOptionsSize=operator.large[1],
        BuiltinOptions2Type=kind_2,
        BuiltinOptions2=build_2(builder) if build_2 else None,
    )


def options(name: str, **fields: Any) -> Build:
    """Return a writer of the options table ``name``.

    ``fields``: the values by field name in the package ``tflite``.
    """

    def build(builder: flatbuffers.Builder) -> int:
        values = dict(fields)
        for key, value in fields.items():
            if isinstance(value, str):
                values[key] = builder.CreateString(value)
            elif isinstance(value, bytes | list):
                values[key] = vector(builder, value)
        return table(builder, name, **values)

    return build


def unary(**changes: Any) -> Model:
    """Return the model x [4] → ABS → y [4] with ``changes`` of its subgraph's fields."""
    fields: dict[str, Any] = {"tensors": [Tensor("x"), Tensor("y")], "operators": [Operator()]}
    return Model([Subgraph(**(fields | changes))], codes=[(101, 101, None, 1)])


def test_written_model_can_be_read() -> None:
    model = read(unary().write())
    assert [tensor.name for tensor in model.main.tensors] == ["x", "y"]
    assert [operator.code for operator in model.main.operators] == ["ABS"]


def conv() -> Model:
    weights = np.arange(2 * 3 * 5 * 7, dtype=np.int8).tobytes()
    tensors = [
        Tensor("image", (1, 8, 9, 7), INT8, signature=(-1, 8, 9, 7), scale=[0.5], zero_point=[-3]),
        Tensor("weights", (2, 3, 5, 7), INT8, weights, scale=[0.25, 0.125], zero_point=[0, 0]),
        Tensor("out", (1, 3, 2, 2), INT8, scale=[2.0]),
    ]
    fields = {
        "Padding": tflite.Padding.VALID,
        "StrideW": 4,
        "StrideH": 2,
        "FusedActivationFunction": tflite.ActivationFunctionType.RELU6,
        "DilationHFactor": 3,
    }
    conv_options = (tflite.BuiltinOptions.Conv2DOptions, options("Conv2DOptions", **fields))
    operator = Operator((0, 1, -1), (2,), options=conv_options)
    return Model([Subgraph(tensors, [operator], outputs=(2,))], codes=[(3, 3, None, 5)])


def details(*numbers: int, dimensions: tuple[int, ...] = ()) -> Any:
    def build(builder: Any) -> int:
        vector = builder.CreateNumpyVector(np.array(dimensions, np.int32)) if dimensions else 0
        scalars = [(slot, "Int32", value) for slot, value in enumerate(numbers)]
        return table(builder, "", 4, raw=[*scalars, (3, "UOffsetTRelative", vector)])

    return build


def strings(*texts: bytes) -> bytes:
    offsets = np.cumsum([4 * (len(texts) + 2), *map(len, texts)])
    return struct.pack(f"<{len(texts) + 2}i", len(texts), *offsets) + b"".join(texts)


def sparsity(order: Sequence[int], block_map: Sequence[int], levels: Sequence[Any]) -> Any:
    """Return a sparsity table.

    ``levels``: per axis a size, or (segments, indices, types of both).
    """

    def build(builder: Any) -> int:
        metadata = []
        for level in levels:
            fields: dict[str, Any] = {"Format": 0, "DenseSize": level}
            if isinstance(level, tuple):
                fields = {"Format": 1}
                for name, values, width in zip(("ArraySegments", "ArrayIndices"), level[:2], level[2:], strict=True):
                    number, dtype = VECTORS[width]
                    value_vector = vector(builder, values, dtype)
                    fields[name + "Type"] = number
                    fields[name] = table(builder, width + "Vector", Values=value_vector)
            metadata.append(table(builder, "DimensionMetadata", **fields))
        return table(
            builder,
            "SparsityParameters",
            TraversalOrder=vector(builder, order),
            BlockMap=vector(builder, block_map) if block_map else None,
            DimMetadata=vector(builder, metadata, "table"),
        )

    return build
