"""What a file is that is no TFLite model, so that the message can say so: by its first bytes, as ``file`` does."""

from __future__ import annotations

import zipfile

from onnx_tflite_plugin.source.content import Content
from onnx_tflite_plugin.source.streams import stream_of

_MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"\x1f\x8b", "it is compressed with gzip: gunzip it first"),
    (b"BZh", "it is compressed with bzip2: bunzip2 it first"),
    (b"\xfd7zXZ\0", "it is compressed with xz: unxz it first"),
    (b"\x28\xb5\x2f\xfd", "it is compressed with zstd: unzstd it first"),
    (b"LITERTLM", "it is a LiteRT-LM bundle of several models: take the .tflite out of it"),
    (b"\x89HDF", "it is an HDF5 file, as Keras writes them: convert it to TFLite first"),
    (b"GGUF", "it is a GGUF file, which is no TFLite model"),
    (b"\x80\x02", "it is a Python pickle, as older PyTorch files are: export it to TFLite first"),
    (b"<!DOCTYPE", "it is a web page: the download went wrong"),
    (b"<html", "it is a web page: the download went wrong"),
    (b"version https://git-lfs", "it is a Git LFS pointer: git lfs pull fetches the file"),
)
_ZIP = (b"PK\x03\x04", b"PK\x05\x06")
_ONNX_FIELDS = b"\x12\x1a\x22\x28\x32\x3a\x42\x72"  # tags of ModelProto that follow ir_version
_MOST_NAMES = 5


def described(content: Content) -> str:
    """What the file is and what to do about it; empty where nothing is known of it."""
    start = bytes(content.read(0, min(32, content.size)))
    for magic, text in _MAGIC:
        if start.startswith(magic):
            return text
    if start.startswith(_ZIP):
        return _archive(content)
    if len(start) > 2 and start[0] == 0x08 and 0 < start[1] < 32 and start[2] in _ONNX_FIELDS:
        return "it is an ONNX model already"
    return "" if start else "it is empty"


def _archive(content: Content) -> str:
    """A zip archive, which a .task bundle and a PyTorch file are too, with the models in it."""
    try:
        with zipfile.ZipFile(stream_of(content)) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError):
        names = []
    models = [name for name in names if name.endswith(".tflite") or name.startswith("TF_LITE")]
    if models:
        more = f" and {len(models) - _MOST_NAMES} more" if len(models) > _MOST_NAMES else ""
        return f"it is a zip archive, as .task bundles are: unpack {', '.join(models[:_MOST_NAMES])}{more} first"
    if any(name.endswith("data.pkl") for name in names):
        return "it is a PyTorch file: export it to TFLite first"
    return "it is a zip archive: unpack it first"
