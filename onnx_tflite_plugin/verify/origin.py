"""Check that an ONNX model was converted from a given TFLite file."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from onnx_tflite_plugin.errors import MismatchedModels
from onnx_tflite_plugin.graph.metadata import props
from onnx_tflite_plugin.graph.model_metadata import read_digest
from onnx_tflite_plugin.graph.ort_options import stored_metadata
from onnx_tflite_plugin.source import Member, Model, Section, Source, Tensor, read
from onnx_tflite_plugin.source.content import Content
from onnx_tflite_plugin.verify.runtimes import structure

if TYPE_CHECKING:
    from onnx import ModelProto


def check_origin(data: bytes, tflite_name: str, onnx: ModelProto | bytes | Path, onnx_name: str = "") -> str:
    """Raise MismatchedModels if the ONNX model has the digest of another TFLite file.

    Raises InvalidModel instead if the file cannot be read, for example because it is cut short.
    A model without a digest is accepted, because earlier versions and other converters write no digest. Return a note on
    the missing digest; empty if the model has the file's digest.
    """
    if isinstance(onnx, Path) and not onnx.is_file():
        return ""  # the session reports the missing file
    if isinstance(onnx, Path):
        metadata = stored_metadata(str(onnx))
    else:
        metadata = stored_metadata(onnx) if isinstance(onnx, bytes) else props(onnx.metadata_props)
    digest = read_digest(metadata)
    if digest and digest != Content(data).digest():
        read(data, tflite_name)
        raise MismatchedModels(
            f"{onnx_name or name_onnx(onnx)} was converted from a different TFLite file, not {tflite_name}, so the two cannot be compared; "
            f"pass the file it was converted from, or convert {tflite_name} again"
        )
    if digest:
        return ""
    return f"the ONNX model does not record its TFLite file, so it may not be the conversion of {tflite_name}"


def check_signature(model: Model, signature: str | None, converted_keys: Sequence[str], onnx_name: str) -> None:
    """Raise MismatchedModels if the ONNX model was converted from other signatures.

    ``converted_keys``: the keys of the converted signatures; empty if unknown. Signatures with the same inputs and outputs
    are equivalent. ``signature``: the key of the signature to run; None for the converted one.
    """
    keys = {item.key for item in model.signatures}.intersection(converted_keys)
    if signature is None or not keys:
        return
    requested = _interface(model, signature)
    if any(_interface(model, key) == requested for key in keys):
        return
    noun = "signature" if len(converted_keys) == 1 else "signatures"
    raise MismatchedModels(
        f"{onnx_name} was converted from {noun} {', '.join(map(repr, converted_keys))}, not {signature!r}, so the two cannot "
        f"be compared; leave out --signature, or convert with --signature {shlex.quote(signature)}"
    )


def _interface(model: Model, key: str) -> tuple[int, tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Return the index of a signature's subgraph, its inputs and its outputs."""
    entry = structure.entry(model, key)
    return entry.subgraph.index, entry.inputs, entry.outputs


def mismatch_without_digest(fact: str) -> MismatchedModels:
    """Return the error for a model without a digest that does not fit the file.

    ``fact``: the difference between the ONNX model and the file.
    """
    return MismatchedModels(
        f"{fact}, so the ONNX model is not the conversion of this TFLite file; "
        "pass the file that was converted, or convert this one again"
    )


def name_onnx(onnx: ModelProto | bytes | Path) -> str:
    """Return the name of an ONNX model in a message."""
    return onnx.name if isinstance(onnx, Path) else "the ONNX model"


def name_source(tflite: Source) -> str:
    """Return the name of a TFLite model in a message."""
    if isinstance(tflite, str | os.PathLike):
        return Path(tflite).name
    return tflite.name if isinstance(tflite, Section | Member) else "the given TFLite model"
