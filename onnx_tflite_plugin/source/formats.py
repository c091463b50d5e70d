"""Formats of files that are not TFLite models, identified by their first bytes."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from onnx_tflite_plugin.checked import list_first
from onnx_tflite_plugin.source.content import Content
from onnx_tflite_plugin.source.streams import stream_of

_MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"\x1f\x8b", "it is compressed with gzip: gunzip it first"),
    (b"BZh", "it is compressed with bzip2: bunzip2 it first"),
    (b"\xfd7zXZ\0", "it is compressed with xz: unxz it first"),
    (b"\x28\xb5\x2f\xfd", "it is compressed with zstd: unzstd it first"),
    (b"LITERTLM", "it is a LiteRT-LM bundle of several models: give the path of its file, BUNDLE#PART for one of them"),
    (b"\x89HDF", "it is an HDF5 file, such as a Keras model: convert it to TFLite first"),
    (b"GGUF", "it is a GGUF file, not a TFLite model"),
    *(
        (bytes([0x80, protocol]), "it is a Python pickle, such as an older PyTorch file: export it to TFLite first")
        for protocol in range(2, 6)
    ),
    (b"\x93NUMPY", "it is a NumPy array, not a model: pass it as input data with --inputs"),
    (b"\xff\xd8\xff", "it is a JPEG image, not a model: pass it as input data with --inputs"),
    (b"\x89PNG", "it is a PNG image, not a model: pass it as input data with --inputs"),
    (b"\x7fELF", "it is a compiled program: convert the .tflite file that it was built from"),
    (b"<!DOCTYPE", "it is a web page: the download went wrong"),
    (b"<html", "it is a web page: the download went wrong"),
    (b"<?xml", "it is an XML file, such as an OpenVINO model: convert the .tflite file that it was made from"),
    (b"version https://git-lfs", "it is a Git LFS pointer: run git lfs pull to fetch the file"),
    *(
        (text, "it is C source, such as a model for microcontrollers: convert the .tflite file that it was made from")
        for text in (b"/*", b"//", b"#include", b"#ifndef", b"const ", b"alignas", b"unsigned char")
    ),
    (b"{", "it is JSON text, such as a TensorFlow.js model: convert the original model to TFLite first"),
)
_ZIP = (b"PK\x03\x04", b"PK\x05\x06")
_EXECUTORCH = (b"ET11", b"ET12", b"ET13")
_ONNX_FIELDS = b"\x12\x1a\x22\x28\x32\x3a\x42\x72"  # tags of ModelProto that follow ir_version
_SAVED_MODEL = "it is a TensorFlow SavedModel: convert it to TFLite first, with tf.lite.TFLiteConverter"
_IMAGES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".ppm", ".tif", ".tiff")
_MAX_NAMES = 5
ACCEPTED = "models are .tflite, .lite, .task and .litertlm files"


def describe_format(content: Content) -> str:
    """Return the format of a file and a remedy; empty if the format is unknown."""
    start = bytes(content.read(0, min(64, content.size)))
    for magic, text in _MAGIC:
        if start.startswith(magic):
            return text
    if start.startswith(_ZIP):
        return _describe_zip(content)
    if start[4:8] in _EXECUTORCH:
        return "it is an ExecuTorch program: export the original model to TFLite"
    if start[8:10] == b'{"' and int.from_bytes(start[:8], "little") < content.size:
        return "it is a safetensors file, which holds weights without a model: export the model to TFLite first"
    if not start:
        return "it is empty: copy, download or export the model again"
    return _describe_protobuf(start) or (f"it is text, not a model; {ACCEPTED}" if _is_text(start) else "")


def _is_text(start: bytes) -> bool:
    """True if the first bytes of a file are text, possibly cut inside a character."""
    text = start.decode(errors="ignore")
    return len(start) - len(text.encode()) < 4 and all(char.isprintable() or char in "\r\n\t" for char in text)


def _describe_protobuf(start: bytes) -> str:
    """Return the format of a file that begins like a known protobuf; else empty."""
    if len(start) > 2 and start[0] == 0x08 and 0 < start[1] < 32 and start[2] in _ONNX_FIELDS:
        # Field 2 is a name in an ONNX model, and a message in a SavedModel or a Core ML model.
        if start[2] == 0x12 and len(start) > 8 and not _starts_with_text(start[3:]):
            return _SAVED_MODEL if start[1] == 1 else "it is a Core ML model: export the original model to TFLite"
        return "it is an ONNX model already: pass the TFLite file that it was converted from"
    # A GraphDef begins with a node, which begins with its name.
    if (
        len(start) > 8
        and start[0] == 0x0A
        and any(start[k] == 0x0A and _starts_with_text(start[k + 1 :]) for k in (2, 3))
    ):
        return "it is a TensorFlow graph (.pb): convert it to TFLite first, with tf.lite.TFLiteConverter"
    return ""


def _starts_with_text(field: bytes) -> bool:
    """True if a protobuf field begins with printable text.

    ``field``: the bytes of the field, from its length on.
    """
    length = field[0]
    text = field[1 : 1 + length]
    return length < 0x80 and text.isascii() and text.decode().isprintable()


def _describe_zip(content: Content) -> str:
    """Return the format of a zip archive, such as a .task bundle or a PyTorch file."""
    try:
        with zipfile.ZipFile(stream_of(content)) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError):
        names = []
    return describe_archive(names) or "it is a zip archive: unpack it first"


def describe_archive(names: Sequence[str]) -> str:
    """Return the format of a zip archive with these files, and a remedy; or ""."""
    models = [name for name in names if name.endswith(".tflite") or name.startswith("TF_LITE")]
    if models:
        return f"it is a bundle of {list_first(models, _MAX_NAMES)}: give the path of its file, BUNDLE#PART for one of them"
    paths = [PurePosixPath(name) for name in names if not name.endswith("/")]
    file_names = {path.name for path in paths}
    if "data.pkl" in file_names:
        return "it is a PyTorch file: export it to TFLite first"
    if {"config.json", "model.weights.h5"} <= file_names:
        return "it is a Keras model: convert it to TFLite first, with tf.lite.TFLiteConverter"
    if "saved_model.pb" in file_names:
        return _SAVED_MODEL
    suffixes = {path.suffix.lower() for path in paths}
    if suffixes == {".npy"}:
        return "it holds NumPy arrays (.npz), not a model: pass it as input data with --inputs"
    if suffixes & {".mlmodel", ".onnx"}:
        kind = "ONNX" if ".onnx" in suffixes else "Core ML"
        return f"it is a zip archive of {kind} models, not TFLite models"
    if suffixes and suffixes <= {*_IMAGES}:
        return "it is a zip archive of images, not a model: unpack it and pass the folder with --inputs"
    return ""


def describe_folder(folder: Path) -> str:
    """Return the format of a folder without TFLite models; empty if unknown."""
    if (folder / "saved_model.pb").is_file():
        return _SAVED_MODEL
    if (folder / "Data" / "com.apple.CoreML").is_dir():
        return "it is a Core ML package: export the original model to TFLite"
    return ""
