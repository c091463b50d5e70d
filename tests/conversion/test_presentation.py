"""Descriptions of inputs and outputs: names, quantization, metadata, snippet."""

from __future__ import annotations

import pydoc
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import onnx_tflite_plugin as otp
from conformance.builder import ModelBuilder
from onnx_tflite_plugin.graph.metadata import props
from onnx_tflite_plugin.graph.model_metadata import read_author_metadata
from onnx_tflite_plugin.presentation.graph_io import author_metadata
from onnx_tflite_plugin.source import metadata, read
from onnx_tflite_plugin.source.authored import TensorMetadata
from onnx_tflite_plugin.source.content import Content
from onnx_tflite_plugin.source.metadata import read_metadata
from onnx_tflite_plugin.verify import verify
from tests.helpers.metadata_files import (
    IMAGE,
    LABELS,
    SCORES,
    classifier_metadata,
    model_with_metadata,
    serialize,
    two_inputs,
)


def names(conversion: otp.Conversion) -> list[str]:
    graph = conversion.proto.graph
    return [value.name for value in (*graph.input, *graph.output)]


# --- signatures -------------------------------------------------------------------------------


def test_main_signature_names_inputs_and_outputs_by_default() -> None:
    data = two_inputs().build()
    conversion = otp.convert(data, verify=True)
    assert names(conversion) == ["b", "a", "difference"]
    assert conversion.report.signature == "serve"
    assert conversion.verification is not None
    assert conversion.verification.ok
    assert names(otp.convert(two_inputs(has_signature=False).build())) == ["second:0", "first:0", "Identity"]


def test_operands_follow_signature_names() -> None:
    """LiteRT gets inputs by name; ``verify`` would miss a swap in both models."""
    import onnxruntime
    from ai_edge_litert.interpreter import Interpreter

    data = two_inputs().build()
    feeds = {"a": np.array([[1, 2, 50]], np.int8), "b": np.array([[-100, 5, 90]], np.int8)}
    runner = Interpreter(model_content=data).get_signature_runner("serve")
    session = onnxruntime.InferenceSession(otp.convert(data).proto.SerializeToString())
    np.testing.assert_array_equal(session.run(None, feeds)[0], runner(**feeds)["difference"])


def test_unnamed_outputs_keep_their_tensor_name() -> None:
    model = ModelBuilder()
    g = model.main
    x, z = g.input("x", (2, 3)), g.input("z", (5,))
    y, w = g.tensor("y", (2, 3)), g.tensor("w", (5,))
    g.operator("NEG", [x], [y])
    g.operator("NEG", [z], [w])
    g.output(w, y)
    model.signature("half", {"image": x}, {"result": y})
    conversion = otp.convert(model.build(), verify=True)
    assert names(conversion) == ["image", "z", "w", "result"]


def two_signatures() -> bytes:
    """Return the model with two inputs, and a signature ``negate`` of a subgraph."""
    model = two_inputs()
    other = model.subgraph("other")
    u, v = other.input("u", (5,)), other.tensor("v", (5,))
    other.operator("NEG", [u], [v])
    other.output(v)
    model.signature("negate", {"u": u}, {"v": v}, subgraph=1)
    return model.build()


def test_report_and_metadata_name_the_signatures() -> None:
    data = two_signatures()
    assert otp.convert(data).report.other_signatures == ("negate",)
    negated = otp.convert(data, signature="negate")
    assert negated.report.other_signatures == ("serve",)
    assert verify(data, negated.proto.SerializeToString()).ok


def test_input_shape_applies_to_any_signature() -> None:
    conversion = otp.convert(two_signatures(), signature="negate", input_shape={"u": [7]}, verify=True)
    assert [graph_value.shape for graph_value in (*conversion.report.inputs, *conversion.report.outputs)] == [
        (7,),
        (7,),
    ]


# --- inputs, outputs and metadata -------------------------------------------------------------


def test_report_has_quantization_of_inputs_and_outputs() -> None:
    report = otp.convert(two_inputs().build()).report
    b, a = report.inputs
    assert (a.name, a.dtype, a.scale, a.zero_point, a.tensor) == ("a", "int8", (0.25,), (7,), "first:0")
    assert (b.scale, b.zero_point) == ((0.5,), (-3,))
    assert [graph_value.shape[1] for graph_value in (a, b, *report.outputs)] == [3, 3, 3]


def test_dropped_quantization_leaves_no_scale() -> None:
    graph_value = otp.convert(two_inputs().build(), quantization="float").report.inputs[0]
    assert (graph_value.dtype, graph_value.scale) == ("float32", ())


@pytest.mark.parametrize("quantization", ["float", "symmetric"])
def test_range_of_a_dequantized_value_consists_of_real_values(quantization: Any) -> None:
    whole_range = {2: [{5: {0: [127.0], 1: [-128.0]}}, {5: {0: [2.0], 1: [-1.0]}}], 3: [{5: {0: [127.0], 1: [-128.0]}}]}
    data = two_inputs(metadata=serialize({3: [whole_range]})).build()
    report = otp.convert(data, quantization=quantization).report
    assert [(x.dtype, x.range) for x in report.outputs] == [("float32", ((-129.0,), (126.0,)))]
    assert [x.range for x in report.inputs] == [((-62.5,), (65.0,)), ((-1.0,), (2.0,))]
    assert otp.convert(data).report.outputs[0].range == ((-128.0,), (127.0,))


def test_associated_files_above_the_size_limit_are_skipped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If only the German labels fit, they are used in place of the unmarked ones."""
    monkeypatch.setattr(metadata, "MAX_BYTES", len("Katze\nHund") + len("\n".join(LABELS).encode()) - 1)
    (y,) = otp.convert(model_with_metadata(classifier_metadata())).report.outputs
    assert y.labels == ("Katze", "Hund")


def test_metadata_describes_its_input_or_output() -> None:
    report = otp.convert(model_with_metadata(classifier_metadata())).report
    (x,), (y,) = report.inputs, report.outputs
    assert (x.kind, x.description, x.mean, x.std) == ("image", IMAGE, (127.5,), (63.5,))
    assert x.range == ((-2.0,), (1.0,))
    assert (y.description, y.threshold, y.labels) == (SCORES, 0.25, tuple(LABELS))
    assert y.files == ("namen.txt", "labels.txt")


def test_range_needs_both_limits() -> None:
    assert author_metadata(TensorMetadata(low=(-1.0,), high=(2.0,)))["range"] == ((-1.0,), (2.0,))
    assert (
        author_metadata(TensorMetadata(low=(-1.0,)))["range"]
        is author_metadata(TensorMetadata(high=(2.0,)))["range"]
        is None
    )


def test_metadata_of_the_model_is_read() -> None:
    authored = read(model_with_metadata(classifier_metadata())).authored
    assert authored is not None
    assert (authored.name, authored.description, authored.version) == ("pets", "classifies pets", "v7")
    assert (authored.author, authored.license) == ("somebody", "MIT")


def test_missing_label_files_are_named_without_labels() -> None:
    (y,) = otp.convert(model_with_metadata(classifier_metadata(), files=False)).report.outputs
    assert (y.labels, y.files) == ((), ("namen.txt", "labels.txt"))


@pytest.mark.parametrize("keep", range(0, 200, 7))
def test_damaged_metadata_never_stops_a_conversion(keep: int) -> None:
    report = otp.convert(model_with_metadata(classifier_metadata()[:keep])).report
    assert report.inputs[0].name == "x"


def test_omits_labels_of_a_damaged_archive() -> None:
    data = model_with_metadata(classifier_metadata())
    start = data.rindex(b"cat\ndog")
    broken = data[:start] + b"\xff" * 7 + data[start + 7 :]
    assert read_metadata(classifier_metadata(), Content(broken)) is not None
    assert otp.convert(broken).report.outputs[0].labels == ("Katze", "Hund")


def test_ignores_metadata_with_a_different_number_of_tensors() -> None:
    report = otp.convert(two_inputs(metadata=classifier_metadata()).build()).report
    assert [graph_value.description for graph_value in report.inputs] == ["", ""]


def test_metadata_passes_the_onnx_checker() -> None:
    onnx.checker.check_model(otp.convert(two_inputs().build()).proto)


# --- metadata of the ONNX file ----------------------------------------------------------------


@pytest.mark.parametrize(("description", "doc_string"), [("a sign reader", "a sign reader"), ("TOCO Converted.", "")])
def test_keeps_the_description_unless_generated_by_a_converter(description: str, doc_string: str) -> None:
    model = ModelBuilder(description)
    x, y = model.main.input("x", (2, 3)), model.main.tensor("y", (2, 3))
    model.main.operator("NEG", [x], [y])
    model.main.output(y)
    assert otp.convert(model.build()).proto.doc_string == doc_string


def test_author_metadata_is_copied() -> None:
    proto = otp.convert(model_with_metadata(classifier_metadata())).proto
    assert proto.producer_name == "onnx-tflite-plugin"
    assert proto.producer_version == otp.__version__
    assert proto.doc_string == "pets\nclassifies pets"
    reported = read_author_metadata(props(proto.metadata_props))
    assert (reported["name"], reported["version"], reported["author"], reported["license"]) == (
        "pets",
        "v7",
        "somebody",
        "MIT",
    )
    (x,), (y,) = reported["inputs"], reported["outputs"]
    assert (x["mean"], x["std"], x["kind"]) == ([127.5], [63.5], "image")
    assert (y["labels"], y["threshold"]) == (LABELS, 0.25)


def test_model_metadata_has_quantization_parameters() -> None:
    reported = read_author_metadata(props(otp.convert(two_inputs().build()).proto.metadata_props))
    assert [
        (graph_value["name"], graph_value["tensor"], graph_value["scale"], graph_value["zero_point"])
        for graph_value in reported["inputs"]
    ] == [
        ("b", "second:0", [0.5], [-3]),
        ("a", "first:0", [0.25], [7]),
    ]
    assert set(reported) == {"inputs", "outputs"}, "entries without a value are omitted"


def test_ignores_descriptions_generated_by_converters() -> None:
    model = two_inputs()
    for description, expected in (("MLIR Converted.", ""), ("reads digits", "reads digits")):
        model.description = description
        assert otp.convert(model.build()).proto.doc_string == expected


def test_node_names_are_short_and_unique() -> None:
    model = ModelBuilder()
    g = model.main
    long = "network/" * 40 + "output;" * 20
    x, y = g.input("x", (2, 3)), g.tensor(long, (2, 3))
    g.operator("TANH", [x], [y])
    z = g.tensor("z", (2, 3))
    g.operator("HARD_SWISH", [y], [z])
    g.output(z)
    proto = otp.convert(model.build()).proto
    names = [node.name for node in proto.graph.node]
    assert len(set(names)) == len(names)
    assert max(map(len, names)) < 30
    assert props(proto.graph.node[0].metadata_props)["onnx_tflite_plugin.name"] == "network/" * 40 + "output"


def test_initializers_are_described_once(tmp_path: Path) -> None:
    digits = Path(__file__).parents[2] / "examples" / "digits_float.tflite"
    proto = otp.convert(digits).proto
    constants = {tensor.name for tensor in proto.graph.initializer}
    assert len(constants) > 5
    assert not constants & {info.name for info in proto.graph.value_info}


def test_external_initializers_are_described_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import onnx_tflite_plugin.conversion as module

    monkeypatch.setattr(module, "MAX_PROTO_BYTES", 100)
    digits = Path(__file__).parents[2] / "examples" / "digits_float.tflite"
    path, data = otp.convert(digits).save(tmp_path / "d.onnx")
    proto = onnx.load(path, load_external_data=False)
    assert data.stat().st_size > 1000
    assert not {t.name for t in proto.graph.initializer} & {info.name for info in proto.graph.value_info}
    assert verify(digits, path).ok


def test_help_on_verify_documents_the_function() -> None:
    lines = pydoc.render_doc(otp.verify, renderer=pydoc.plaintext).splitlines()
    (title,) = (line for line in lines if line.strip().startswith("onnx_tflite_plugin.verify - verify(tflite"))
    assert "tolerance=None" in title
    assert "FUNCTIONS" not in lines
    assert lines[lines.index("DESCRIPTION") + 1].strip() == (verify.__doc__ or "").splitlines()[0]
    assert len(lines) < 80
