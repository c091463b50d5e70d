"""TFLite metadata: unknown entries are ignored, tensors get their own texts."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.builder import ModelBuilder
from onnx_tflite_plugin.source import metadata, read
from onnx_tflite_plugin.source.authored import Metadata
from onnx_tflite_plugin.source.content import Content
from onnx_tflite_plugin.source.metadata import describe_interface, read_metadata
from tests.helpers.metadata_files import LABELS, append_files, classifier_metadata, serialize


def metadata_of_input(slots: dict[int, Any], model: bytes = b"") -> Metadata:
    """Return the metadata of one input, whose description has these slots."""
    authored = read_metadata(serialize({3: [{2: [slots]}]}), Content(model))
    assert authored is not None
    return authored


@pytest.mark.parametrize(
    ("number", "kind"), [(0, ""), (1, "feature"), (2, "image"), (3, "bounding box"), (4, "audio"), (5, ""), (255, "")]
)
def test_content_types_of_newer_schemas_have_no_kind(number: int, kind: str) -> None:
    assert metadata_of_input({3: {0: ("Uint8", number)}}).inputs[0][0].kind == kind


@pytest.mark.parametrize(
    ("number", "kind"), [(-1, ""), (0, ""), (1, "descriptions"), (5, "vocabulary"), (6, "index"), (7, "")]
)
def test_file_types_of_newer_schemas_have_no_kind(number: int, kind: str) -> None:
    (file,) = metadata_of_input({6: [{0: "words.txt", 2: ("Int8", number)}]}).inputs[0][0].files
    assert (file.name, file.kind) == ("words.txt", kind)


def test_process_units_without_options_are_ignored() -> None:
    (tensor,) = metadata_of_input({4: [{0: ("Uint8", 1)}, {0: ("Uint8", 3)}, {0: ("Uint8", 2), 1: {}}]}).inputs[0]
    assert (tensor.mean, tensor.std, tensor.threshold) == ((), (), None)


def test_files_of_model_and_subgraphs_are_merged() -> None:
    content = serialize({3: [{4: [{0: "of the subgraph"}]}], 6: [{0: "of the model"}]})
    authored = read_metadata(content, Content(b""))
    assert authored is not None
    assert [file.name for file in authored.files] == ["of the model", "of the subgraph"]


def test_files_that_belong_to_no_tensor_are_files_of_the_model() -> None:
    authored = read_metadata(serialize({6: [{0: "namen.txt"}, {0: "lost.txt"}]}), Content(append_files(b"model")))
    assert authored is not None
    labels = "\n".join(LABELS).encode()
    assert [(file.name, file.content, file.size) for file in authored.files] == [
        ("namen.txt", b"Katze\nHund", 10),
        ("lost.txt", b"", 0),
        ("labels.txt", labels, len(labels)),
    ]
    of_tensors = read_metadata(classifier_metadata(), Content(append_files(b"model")))
    assert of_tensors is not None
    assert of_tensors.files == ()


def test_subgraphs_beyond_the_metadata_have_no_description() -> None:
    model = ModelBuilder()
    for graph in (model.main, model.subgraph("second")):
        x, y = graph.input("x", (2, 3)), graph.tensor("y", (2, 3))
        graph.operator("NEG", [x], [y])
        graph.output(y)
    model.metadata("TFLITE_METADATA", classifier_metadata())
    by_tensor = describe_interface(read(model.build()))
    assert {location: entry.name for location, entry in by_tensor.items()} == {(0, 0): "image", (0, 1): "scores"}


@pytest.mark.parametrize(
    ("max_files", "max_bytes", "labels"),
    [
        (3, 1 << 20, tuple(LABELS)),
        (2, 1 << 20, ("Katze", "Hund")),  # the folder is counted too
        (1, 1 << 20, ()),
        (3, len("Katze\nHund"), ("Katze", "Hund")),
        (3, len("Katze\nHund") - 1, ()),
    ],
)
def test_number_and_bytes_of_appended_files_are_limited(
    max_files: int, max_bytes: int, labels: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata, "MAX_FILES", max_files)
    monkeypatch.setattr(metadata, "MAX_BYTES", max_bytes)
    authored = read_metadata(classifier_metadata(), Content(append_files(b"model")))
    assert authored is not None
    assert authored.outputs[0][0].labels == labels
