"""Files of a submodel that differs, for a bug report."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from onnx_tflite_plugin import files
from onnx_tflite_plugin.source.model import Array, Operator
from onnx_tflite_plugin.verify.runtimes import structure

if TYPE_CHECKING:
    from onnx import ModelProto


SUBMODEL_NAMES = ("part", "part2", "part3", "part4")
"""File names, without suffix, of the submodels that are written."""
_SUFFIXES = (".tflite", ".onnx", ".npz", ".onnx.npz")
SUBMODEL_FILES = tuple(name + suffix for name in SUBMODEL_NAMES for suffix in _SUFFIXES)
"""All files that may be written: both models, and the operands of one run for each of them."""


@dataclass(frozen=True, slots=True)
class SavedSubmodel:
    """A submodel in both formats, with operands on which they differ.

    ``inputs``: in the order, layout and dtypes of the TFLite file. ``feeds``: these inputs by the names of the
    ONNX model's inputs, in its layouts and dtypes.
    """

    tflite: bytes
    onnx: ModelProto
    inputs: Sequence[Array]
    feeds: Mapping[str, Array]
    operators: tuple[Operator, ...]

    def save(self, folder: Path, name: str = SUBMODEL_NAMES[0]) -> list[Path]:
        """Write the files and return their paths.

        The .npz file holds inputs for ``verify``, and the .onnx.npz file holds inputs for ONNX Runtime.
        """
        folder.mkdir(parents=True, exist_ok=True)
        names = structure.entry(structure.read(self.tflite)).input_names
        inputs = dict(zip(names, self.inputs, strict=True))
        paths = [folder / (name + suffix) for suffix in _SUFFIXES]
        contents = (self.tflite, self.onnx.SerializeToString(), _archive(inputs), _archive(self.feeds))
        for path, content in zip(paths, contents, strict=True):
            files.write(path, content)
        return paths


def save_all(folder: Path, submodels: Mapping[str, SavedSubmodel]) -> None:
    """Write each submodel to a file, and remove the files of an earlier run.

    If writing fails, no submodel is left. Raises OSError.
    """
    is_new = not folder.exists()
    _remove_submodels(folder)
    try:
        for name, submodel in submodels.items():
            submodel.save(folder, name)
    except OSError:
        with suppress(OSError):
            _remove_submodels(folder)
            if is_new:
                folder.rmdir()
        raise


def _remove_submodels(folder: Path) -> None:
    for name in SUBMODEL_FILES:
        (folder / name).unlink(missing_ok=True)


def _archive(arrays: Mapping[str, Array]) -> bytes:
    """Return the content of an .npz file."""
    content = io.BytesIO()
    np.savez(content, **arrays)  # type: ignore[arg-type]
    return content.getvalue()
