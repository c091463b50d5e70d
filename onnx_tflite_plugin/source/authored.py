"""What the author of a model says of it, as immutable objects: see :mod:`.metadata`, which reads them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

_LABELS = ("axis labels", "value labels")


class AssociatedFile(NamedTuple):
    """A file that belongs to a model or a tensor; ``content`` is empty where the model does not contain it."""

    name: str
    kind: str
    description: str = ""
    locale: str = ""
    content: bytes = b""


class TensorMetadata(NamedTuple):
    """One graph input or output as its author describes it.

    ``kind`` is "image", "audio", "feature", "bounding box" or "". The model takes ``(x - mean) / std`` of what a user
    has, one entry for all channels or one a channel; ``low`` and ``high`` bound the tensor's values. Scores below
    ``threshold`` count for nothing.
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
        """The lines of the first label file that the model contains, one without a locale before others."""
        files = [file for file in self.files if file.kind in _LABELS and file.content]
        file_of_labels = min(files, key=lambda file: bool(file.locale), default=None)
        return () if file_of_labels is None else tuple(file_of_labels.content.decode("utf-8", "replace").splitlines())


class Metadata(NamedTuple):
    """A model as its author describes it; ``inputs`` and ``outputs`` by subgraph, in its order."""

    name: str = ""
    description: str = ""
    version: str = ""
    author: str = ""
    license: str = ""
    inputs: tuple[tuple[TensorMetadata, ...], ...] = ()
    outputs: tuple[tuple[TensorMetadata, ...], ...] = ()
    files: tuple[AssociatedFile, ...] = ()


Described = Mapping[tuple[int, int], TensorMetadata]
"""The metadata of graph inputs and outputs by subgraph and tensor."""
