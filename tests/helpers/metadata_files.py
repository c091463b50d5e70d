"""TFLite metadata for tests: metadata tables, and archives of associated files."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from typing import Any

import flatbuffers

from conformance.builder import ModelBuilder, quant

Slots = Mapping[int, Any]  # by slot: (type, number), text, a table (Slots), or a list of tables or floats


def serialize(root: Slots) -> bytes:
    """Return a metadata flatbuffer with this root table."""
    builder = flatbuffers.Builder(256)
    builder.Finish(_table(builder, root), file_identifier=b"M001")
    return bytes(builder.Output())


def _table(builder: Any, slots: Slots) -> int:
    offsets = {slot: value if isinstance(value, tuple) else _offset(builder, value) for slot, value in slots.items()}
    builder.StartObject(max(offsets, default=-1) + 1)
    for slot, value in offsets.items():
        if isinstance(value, tuple):
            kind, number = value
            getattr(builder, f"Prepend{kind}Slot")(slot, number, 0)
        else:
            builder.PrependUOffsetTRelativeSlot(slot, value, 0)
    return int(builder.EndObject())


def _offset(builder: Any, value: Any) -> int:
    if isinstance(value, str):
        return int(builder.CreateString(value))
    if isinstance(value, Mapping):
        return _table(builder, value)
    if isinstance(value[0], float):
        builder.StartVector(4, len(value), 4)
        for number in reversed(value):
            builder.PrependFloat32(number)
        return int(builder.EndVector())
    offsets = [_offset(builder, item) for item in value]
    builder.StartVector(4, len(offsets), 4)
    for offset in reversed(offsets):
        builder.PrependUOffsetTRelative(offset)
    return int(builder.EndVector())


IMAGE, SCORES = "an image", "one score per class"
LABELS = ["cat", "dog", "Ñandú", "", "bird"]


def classifier_metadata() -> bytes:
    """Return an image classifier's metadata, with labels in two languages."""
    image = {
        0: "image",
        1: IMAGE,
        3: {0: ("Uint8", 2), 1: {}},
        4: [{0: ("Uint8", 1), 1: {0: [127.5], 1: [63.5]}}],
        5: {0: [1.0], 1: [-2.0]},
    }
    german_labels = {0: "namen.txt", 2: ("Int8", 2), 3: "de"}
    labels = {0: "labels.txt", 1: "the classes", 2: ("Int8", 2)}
    scores = {0: "scores", 1: SCORES, 4: [{0: ("Uint8", 3), 1: {0: ("Float32", 0.25)}}], 6: [german_labels, labels]}
    return serialize(
        {0: "pets", 1: "classifies pets", 2: "v7", 3: [{2: [image], 3: [scores]}], 4: "somebody", 5: "MIT"}
    )


def append_files(model: bytes) -> bytes:
    """Append the label files as a zip archive, as TFLite Support stores them."""
    stream = io.BytesIO(model)
    with zipfile.ZipFile(stream, "a") as archive:
        archive.writestr("folder/", "")  # an empty folder entry
        archive.writestr("namen.txt", "Katze\nHund")
        archive.writestr("labels.txt", "\n".join(LABELS))
    return stream.getvalue()


def model_with_metadata(metadata: bytes, *, files: bool = True) -> bytes:
    """Return the model ``y = -x`` with this metadata, and with label files by default."""
    model = ModelBuilder()
    g = model.main
    x, y = g.input("x", (1, 2, 2, 3)), g.tensor("y", (1, 2, 2, 3))
    g.operator("NEG", [x], [y])
    g.output(y)
    model.metadata("TFLITE_METADATA", metadata)
    return append_files(model.build()) if files else model.build()


def two_inputs(*, has_signature: bool = True, metadata: bytes | None = None) -> ModelBuilder:
    """Return quantized ``y = a - b``; the signature reverses the operands."""
    model = ModelBuilder()
    g = model.main
    b = g.input("second:0", (None, 3), "int8", quantization=quant(0.5, -3))
    a = g.input("first:0", (None, 3), "int8", quantization=quant(0.25, 7))
    y = g.tensor("Identity", (None, 3), "int8", quantization=quant(1.0, 1))
    g.operator("SUB", [a, b], [y])
    g.output(y)
    if has_signature:
        model.signature("serve", {"a": a, "b": b}, {"difference": y})
    if metadata is not None:
        model.metadata("TFLITE_METADATA", metadata)
    return model
