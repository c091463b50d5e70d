"""Python lines that run a converted model, and nodes of unknown operators."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import onnx_tflite_plugin as otp
from conformance.builder import ModelBuilder
from conformance.models import Net, tensor
from onnx_tflite_plugin.host.unknown import domain_and_name
from onnx_tflite_plugin.presentation.graph_io import GraphValue
from onnx_tflite_plugin.presentation.snippet import snippet
from tests.helpers.metadata_files import two_inputs


@pytest.mark.parametrize("has_signature", [True, False])
def test_snippet_runs_with_a_quote_in_the_file_name(tmp_path: Path, has_signature: bool) -> None:
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
    """ONNX Runtime rejects the model without the library of its operators."""
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
