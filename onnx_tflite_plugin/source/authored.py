"""Model metadata written by the author, as immutable objects.

:mod:`.metadata` reads this metadata from a file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

_LABELS = ("axis labels", "value labels")


class AssociatedFile(NamedTuple):
    """A file that belongs to a model or a tensor.

    ``content`` is empty if the model does not contain the file, or if the file is too large. ``size``: number of bytes of
    the file in the model.
    """

    name: str
    kind: str
    description: str = ""
    locale: str = ""
    content: bytes = b""
    size: int = 0


class TensorMetadata(NamedTuple):
    """The author's description of one graph input or output.

    ``kind`` is "image", "audio", "feature", "bounding box" or "". The model's input is ``(x - mean) / std`` of the user's
    data, with one entry for all channels or one per channel. ``low`` and ``high`` are the range of the tensor's values.
    Applications should ignore scores below ``threshold``.
    """

    name: str = ""
    description: str = ""
    kind: str = ""
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    threshold: float | None = None
    files: tuple[AssociatedFile, ...] = ()

    @property
    def labels(self) -> tuple[str, ...]:
        """The lines of the model's first label file, preferably one without a locale."""
        files = [file for file in self.files if file.kind in _LABELS and file.content]
        label_file = min(files, key=lambda file: bool(file.locale), default=None)
        return () if label_file is None else tuple(label_file.content.decode("utf-8", "replace").splitlines())


class Metadata(NamedTuple):
    """The author's description of a model.

    ``inputs`` and ``outputs``: the descriptions of each subgraph's inputs and outputs, in the order of the subgraph.
    ``files``: the files of the model, of its subgraphs, and those in its archive that belong to no tensor.
    """

    name: str = ""
    description: str = ""
    version: str = ""
    author: str = ""
    license: str = ""
    inputs: tuple[tuple[TensorMetadata, ...], ...] = ()
    outputs: tuple[tuple[TensorMetadata, ...], ...] = ()
    files: tuple[AssociatedFile, ...] = ()


InterfaceMetadata = Mapping[tuple[int, int], TensorMetadata]
"""(subgraph, tensor) -> metadata of a graph input or output."""
