"""Read TFLite metadata: the author's description and associated files.

The tables follow ``metadata_schema.fbs`` (mediapipe/tasks/metadata), slot for slot. The files are in a zip archive that
is appended to the model's bytes, as ``metadata_writer`` does. Unreadable metadata is ignored, because it does not
affect a model's results.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence

from onnx_tflite_plugin.errors import InvalidModel
from onnx_tflite_plugin.source.authored import AssociatedFile, Metadata, TensorMetadata
from onnx_tflite_plugin.source.content import Content
from onnx_tflite_plugin.source.flatbuffer import File, Layout, Table
from onnx_tflite_plugin.source.model import Model
from onnx_tflite_plugin.source.streams import stream_of

KEY = "TFLITE_METADATA"
MAX_FILES, MAX_BYTES = 64, 1 << 23  # limits on the zip; a vocabulary of 250k entries takes 4 MB

_MODEL = Layout.parse(
    "ModelMetadata",
    "name:string; description:string; version:string; subgraph_metadata:[table]; author:string; license:string;"
    "associated_files:[table]; min_parser_version:string",
)
_SUBGRAPH = Layout.parse(
    "SubGraphMetadata",
    "name:string; description:string; input_tensor_metadata:[table]; output_tensor_metadata:[table];"
    "associated_files:[table]; input_process_units:[table]; output_process_units:[table]",
)
_TENSOR = Layout.parse(
    "TensorMetadata",
    "name:string; description:string; dimension_names:[string]; content:table; process_units:[table]; stats:table;"
    "associated_files:[table]",
)
_CONTENT = Layout.parse("Content", "content_properties:union; range:table")
_STATS = Layout.parse("Stats", "max:[float]; min:[float]")
_UNIT = Layout.parse("ProcessUnit", "options:union")
_NORMALIZATION, _THRESHOLDING = 1, 3  # types in the union ProcessUnitOptions
_NORMALIZATION_OPTIONS = Layout.parse("NormalizationOptions", "mean:[float]; std:[float]")
_THRESHOLDING_OPTIONS = Layout.parse("ScoreThresholdingOptions", "global_score_threshold:float")
_FILE = Layout.parse("AssociatedFile", "name:string; description:string; type:byte; locale:string; version:string")
_CONTENT_KINDS = ("", "feature", "image", "bounding box", "audio")
_FILE_KINDS = ("", "descriptions", "axis labels", "value labels", "score calibration", "vocabulary", "index")


def read_metadata(content: bytes, model: Content) -> Metadata | None:
    """Return the metadata in buffer TFLITE_METADATA.

    ``model``: the bytes of the model, which contain the associated files. The result is ``None`` if the metadata is
    unreadable.
    """
    try:
        table = File(content, KEY).root(_MODEL)
        archive_files = _ArchiveFiles(*_unpack_files(model))
        graphs = table.tables("subgraph_metadata", _SUBGRAPH)
        inputs, outputs = (
            tuple(_read_tensors(graph, side, archive_files) for graph in graphs) for side in ("input", "output")
        )
        model_files = [file for owner in (table, *graphs) for file in archive_files.listed_by(owner)]
        tensors = (tensor for side in (inputs, outputs) for graph_tensors in side for tensor in graph_tensors)
        listed_names = {file.name for files in (model_files, *(tensor.files for tensor in tensors)) for file in files}
        return Metadata(
            **{name: table.text(name) for name in ("name", "description", "version", "author", "license")},
            inputs=inputs,
            outputs=outputs,
            files=(*model_files, *archive_files.except_names(listed_names)),
        )
    except InvalidModel:
        return None


def describe_interface(model: Model) -> dict[tuple[int, int], TensorMetadata]:
    """Return (subgraph, tensor) -> metadata of a graph input or output."""
    by_tensor: dict[tuple[int, int], TensorMetadata] = {}
    if model.authored is None:
        return by_tensor
    for graph in model.subgraphs:
        for tensors, entries in ((graph.inputs, model.authored.inputs), (graph.outputs, model.authored.outputs)):
            if graph.index < len(entries) and len(tensors) == len(entries[graph.index]):
                pairs = zip(tensors, entries[graph.index], strict=True)
                by_tensor |= {(tensor.subgraph, tensor.index): entry for tensor, entry in pairs}
    return by_tensor


def _read_tensors(graph: Table, side: str, archive_files: _ArchiveFiles) -> tuple[TensorMetadata, ...]:
    return tuple(_read_tensor(table, archive_files) for table in graph.tables(f"{side}_tensor_metadata", _TENSOR))


def _read_tensor(table: Table, archive_files: _ArchiveFiles) -> TensorMetadata:
    content, stats = table.table("content", _CONTENT), table.table("stats", _STATS)
    kind = content.number("content_properties_type") if content is not None else 0
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    threshold: float | None = None
    for unit in table.tables("process_units", _UNIT):
        unit_type = unit.number("options_type")
        if unit_type == _NORMALIZATION and (options := unit.table("options", _NORMALIZATION_OPTIONS)) is not None:
            mean, std = options.numbers("mean"), options.numbers("std")
        elif unit_type == _THRESHOLDING and (options := unit.table("options", _THRESHOLDING_OPTIONS)) is not None:
            threshold = float(options.value("global_score_threshold"))
    return TensorMetadata(
        table.text("name"),
        table.text("description"),
        _CONTENT_KINDS[kind] if kind < len(_CONTENT_KINDS) else "",
        mean,
        std,
        stats.numbers("min") if stats is not None else (),
        stats.numbers("max") if stats is not None else (),
        threshold,
        tuple(archive_files.listed_by(table)),
    )


class _ArchiveFiles:
    """The files in the zip archive after a model: name -> content and size.

    A file that is too large has no content.
    """

    def __init__(self, contents: Mapping[str, bytes], sizes: Mapping[str, int]) -> None:
        self._contents, self._sizes = contents, sizes

    def listed_by(self, owner: Table) -> Sequence[AssociatedFile]:
        """Return the files that a table of the metadata lists."""
        files = []
        for table in owner.tables("associated_files", _FILE):
            kind = table.number("type")
            name = table.text("name")
            files.append(
                AssociatedFile(
                    name,
                    _FILE_KINDS[kind] if 0 <= kind < len(_FILE_KINDS) else "",
                    table.text("description"),
                    table.text("locale"),
                    self._contents.get(name, b""),
                    self._sizes.get(name, 0),
                )
            )
        return files

    def except_names(self, names: Collection[str]) -> Iterator[AssociatedFile]:
        """Yield the files whose names are not in ``names``."""
        for name, size in self._sizes.items():
            if name not in names:
                yield AssociatedFile(name, "", content=self._contents.get(name, b""), size=size)


def _unpack_files(model: Content) -> tuple[dict[str, bytes], dict[str, int]]:
    """Return name -> content, and name -> size, of the files after the model.

    Contents of files that are unreadable or too large are omitted.
    """
    contents: dict[str, bytes] = {}
    sizes: dict[str, int] = {}
    try:
        with zipfile.ZipFile(stream_of(model)) as archive:
            remaining = MAX_BYTES
            for entry in archive.infolist()[:MAX_FILES]:
                if entry.is_dir():
                    continue
                sizes[entry.filename] = entry.file_size
                if entry.file_size > remaining:
                    continue
                with archive.open(entry) as stream:
                    contents[entry.filename] = stream.read(remaining)
                remaining -= len(contents[entry.filename])
    except (zipfile.BadZipFile, zlib.error, OSError, EOFError, ValueError, RuntimeError, NotImplementedError):
        return contents, sizes
    return contents, sizes
