"""Descriptions of inputs and outputs: names, quantization, metadata, snippet."""

from __future__ import annotations

import pydoc
from pathlib import Path

import numpy as np
import onnx
import pytest

import onnx_tflite_plugin as otp
from conformance.builder import ModelBuilder, quant
from conformance.models import Net, tensor
from onnx_tflite_plugin.graph.metadata import props
from onnx_tflite_plugin.graph.model_metadata import read_authored
from onnx_tflite_plugin.host.unknown import domain_and_name
from onnx_tflite_plugin.presentation.graph_io import GraphValue, author_metadata
from onnx_tflite_plugin.presentation.snippet import snippet
from onnx_tflite_plugin.source import metadata, read
from onnx_tflite_plugin.source.authored import TensorMetadata
from onnx_tflite_plugin.source.content import Content
from onnx_tflite_plugin.source.metadata import read_metadata
from onnx_tflite_plugin.verify import verify
from tests.helpers.metadata_files import IMAGE, LABELS, SCORES, classifier_metadata, model_with_metadata


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
    """Give LiteRT's inputs by tensor name: ``verify`` would miss a swap on both sides."""
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


# --- the snippet ------------------------------------------------------------------------------


@pytest.mark.parametrize("has_signature", [True, False])
def test_snippet_runs(tmp_path: Path, has_signature: bool) -> None:
    conversion = otp.convert(two_inputs(has_signature=has_signature).build())
    (path,) = conversion.save(tmp_path / "it's.onnx")
    scope: dict[str, object] = {}
    exec(snippet(str(path), conversion.report.inputs), scope)
    (result,) = scope["out"]  # type: ignore[misc]
    assert result.shape == (1, 3)  # type: ignore[has-type]


def test_snippet_carries_states(tmp_path: Path) -> None:
    from conformance.cases.state import variables

    conversion = otp.convert(next(iter(variables.cases())).build())
    assert conversion.report.states
    (path,) = conversion.save(tmp_path / "states.onnx")
    scope: dict[str, object] = {}
    exec(snippet(str(path), conversion.report.inputs, states=True), scope)
    assert set(scope["out"]) == {graph_value.name for graph_value in conversion.report.outputs}  # type: ignore[call-overload]


def test_snippet_loads_the_library_of_unknown_operators() -> None:
    """With the library, the error names the missing file.

    Without it, ONNX Runtime rejects the session.
    """
    net = Net()
    net.output(net.call("CUSTOM.vendor.Unknown", [tensor(2, 3)], tensor(2, 3)))
    conversion = otp.convert(net.build(), keep_unknown=True)
    text = conversion.snippet("m.onnx")
    compile(text, "snippet", "exec")
    assert "options.register_custom_ops_library('KERNELS.so')  # tflite.custom\n" in text
    assert "ort.InferenceSession('m.onnx', options)" in text
    assert "Options" not in otp.convert(two_inputs(has_signature=True).build()).snippet("m.onnx")


@pytest.mark.parametrize(
    ("value", "is_attribute"), [([2, 3], True), (["a", "b"], True), ([2, "b"], False), ([], False), ({"k": 2}, False)]
)
def test_unknown_operator_keeps_options_as_attributes_or_bytes(value: object, is_attribute: bool) -> None:
    net = Net()
    net.output(net.call("CUSTOM.Unknown", [tensor(2, 3)], tensor(2, 3), custom_options={"axis": 1, "of": value}))
    (node,) = otp.convert(net.build(), keep_unknown=True).proto.graph.node
    assert {attribute.name for attribute in node.attribute} == {"axis", "of" if is_attribute else "custom_options"}


@pytest.mark.parametrize(
    ("code", "domain", "name"),
    [
        ("CUSTOM.vendor.A", "tflite.custom", "vendor.A"),
        ("COMPOSITE.odml.A", "tflite.composite", "odml.A"),
        ("ABS", "tflite", "ABS"),
    ],
)
def test_domain_of_an_unknown_operator_states_its_kind(code: str, domain: str, name: str) -> None:
    assert domain_and_name(code) == (domain, name)


@pytest.mark.parametrize(("options", "attributes"), [({"axis": 1}, {"axis"}), ({}, set())])
def test_options_are_attributes_or_bytes_but_not_both(options: dict[str, object], attributes: set[str]) -> None:
    net = Net()
    net.output(net.call("CUSTOM.Unknown", [tensor(2, 3)], tensor(2, 3), custom_options=options))
    (node,) = otp.convert(net.build(), keep_unknown=True).proto.graph.node
    assert {attribute.name for attribute in node.attribute} - {"custom_options"} == attributes
    assert ("custom_options" in {attribute.name for attribute in node.attribute}) is not bool(attributes)


def test_unknown_operator_keeps_positions_of_absent_results() -> None:
    model = ModelBuilder()
    g = model.main
    y = g.tensor("y", (2, 3))
    g.operator("CUSTOM.Unknown", [g.input("x", (2, 3))], [None, y])
    g.output(y)
    (node,) = otp.convert(model.build(), keep_unknown=True).proto.graph.node
    assert len(node.output) == 2
    assert node.output[1] == "y"


def test_result_of_unknown_operator_has_the_stored_shape() -> None:
    model = ModelBuilder()
    g = model.main
    inner, y, z = g.tensor("inner", None), g.tensor("y", (2, None, 3)), g.tensor("z", (2, 3))
    g.operator("CUSTOM.Unknown", [g.input("x", (2, 3)), None], [inner, y])
    g.operator("CUSTOM.Unknown", [inner, y], [z])
    g.output(z)
    first, _ = otp.convert(model.build(), keep_unknown=True).model.graph
    unranked, ranked = first.outputs
    assert unranked.shape is None
    assert ranked.shape is not None
    assert [size if isinstance(size, int) else None for size in ranked.shape] == [2, None, 3]


@pytest.mark.parametrize("dtype", ["resource", "float32"])
def test_rejects_keeping_an_unknown_operator_on_a_resource(dtype: str) -> None:
    model = ModelBuilder()
    g = model.main
    handle, y = g.tensor("handle", (1,), dtype), g.tensor("y", (2, 3))
    g.operator("CUSTOM.Made", [g.input("x", (2, 3))], [handle])
    g.operator("CUSTOM.Unknown", [g.input("z", (2, 3)), handle], [y])
    g.output(y)
    if dtype == "float32":
        assert len(otp.convert(model.build(), keep_unknown=True).proto.graph.node) == 2
        return
    with pytest.raises(otp.ConversionError, match=r"CUSTOM\.Unknown"):
        otp.convert(model.build(), keep_unknown=True)


def test_snippet_with_states_and_unknown_operators_imports_its_names() -> None:
    assert "session.run(None, {'x': np.zeros((2, 3), np.float32)})" in snippet(
        "m.onnx", [GraphValue("x", "float32", (2, 3))]
    )
    text = snippet("m.onnx", [GraphValue("x", "float32", (2, 3))], states=True, domains=["tflite.custom"])
    imports = [line for line in text.splitlines() if line.startswith("import")]
    assert "import onnxruntime as ort" in imports
    assert "Session('m.onnx', options=options)" in text


def test_snippet_fits_80_columns() -> None:
    graph_values = [GraphValue(name, "uint8", (1, 320, 320, 3)) for name in ("x", "normalized_input_image_tensor")]
    text = snippet("m.onnx", graph_values)
    compile(text, "snippet", "exec")
    assert max(map(len, text.splitlines())) <= 80 - 13
    assert "    'x': np.zeros((1, 320, 320, 3), np.uint8),\n" in text
    assert "'normalized_input_image_tensor':\n        np.zeros((1, 320, 320, 3), np.uint8),\n" in text


def test_snippet_supports_every_numpy_dtype() -> None:
    for dtype in ("float32", "float16", "int8", "uint8", "int64", "bool", "string"):
        text = snippet("m.onnx", [GraphValue("x", dtype, ("batch", 3))])
        array = eval(
            text[text.index("np.", text.index("run(")) : text.rindex(")", 0, text.rindex("}"))] + ")", {"np": np}
        )
        assert array.shape == (1, 3)
        assert array.dtype == (object if dtype == "string" else np.dtype(dtype))


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
    reported = read_authored(props(proto.metadata_props))
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
    reported = read_authored(props(otp.convert(two_inputs().build()).proto.metadata_props))
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
