"""``--unroll`` unrolls only loops with a constant trip count up to the limit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest

from conformance.cases.fusions.directions import BACKWARD
from conformance.cases.fusions.loops import SIMILAR, TIME, Layer
from conformance.lstms import TIME as STEPS
from conformance.lstms import Lstm
from conformance.models import Net, random_array
from onnx_tflite_plugin import convert
from onnx_tflite_plugin.errors import ConversionError
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.source.model import Array
from onnx_tflite_plugin.verify import verify
from tests.helpers.passes_networks import apply, parse_model

CLIPPED = Lstm(options=(("cell_clip", 0.31),))
NETWORKS: dict[str, tuple[Callable[[Net], None], int]] = {
    "Loop": (SIMILAR["unsupported update function"].build, TIME),
    "Loop that writes rows": (Layer("GRU", all_outputs=True, weight_sum=1.5).build, TIME),
    "Scan": (CLIPPED.build, STEPS),
    "Scan from the end": (BACKWARD["float32 with clipped cells"].build, STEPS),
    "Scan of integers": (Lstm(dtype="int8", weights="int8").build, STEPS),
}


def build_model(build: Callable[[Net], None]) -> bytes:
    model = Net()
    build(model)
    return model.build()


def loops(data: bytes, limit: int) -> Counter[str]:
    model = convert(data, host=Host(packs="builtin"), unroll=limit).model
    return Counter(node.op_type for node in model.graph.all_nodes() if node.op_type in ("Loop", "Scan"))


@pytest.mark.parametrize("name", NETWORKS)
def test_loop_of_few_iterations_is_unrolled(name: str) -> None:
    build, trips = NETWORKS[name]
    data = build_model(build)
    assert loops(data, trips) == {}
    assert loops(data, trips - 1) == loops(data, 0) == {name.split()[0]: 1}


@pytest.mark.parametrize("name", NETWORKS)
def test_unrolled_loop_agrees_with_litert(name: str) -> None:
    build, trips = NETWORKS[name]
    data = build_model(build)
    conversion = convert(data, host=Host(packs="builtin"), unroll=trips)
    assert conversion.report.passes["unroll_loops"] == 1
    assert verify(data, conversion.proto, runs=4).ok


def test_loop_of_dynamic_length_is_kept() -> None:
    data = build_model(Layer("RNN", dynamic_length=True, all_outputs=False, defect="axis").build)
    assert loops(data, 1000) == {"Loop": 1}


def test_target_without_control_flow_accepts_unrolled_loops() -> None:
    data = build_model(NETWORKS["Loop"][0])
    with pytest.raises(ConversionError, match="Loop"):
        convert(data, host=Host(packs="builtin"), target="tvm")
    model = convert(data, host=Host(packs="builtin"), target="tvm", unroll=TIME).model
    assert not {"Loop", "Scan", "If"} & {node.op_type for node in model.graph.all_nodes()}


COUNTED = """
    <ir_version: 8, opset_import: ["" : 17]>
    counted (float[2,3] x, bool go) => (float[2,3] y)
    <int64 three = {3}, bool yes = {1}, bool no = {0}> {
        y = LOOP (three, GO, x) <body = body (int64 k, bool go_on, float[2,3] one) => (bool on, float[2,3] other) {
            other = Neg (one)
            on = ON
        }>
    }
"""
"""A Loop that runs three times unless its condition ends it."""


@pytest.mark.parametrize(
    ("start", "on", "count"),
    [
        ("yes", "Identity (go_on)", 1),
        ("", "Identity (yes)", 1),
        ("yes", "Identity (yes)", 1),
        ("no", "Identity (go_on)", 0),
        ("go", "Identity (go_on)", 0),
        ("yes", "Identity (no)", 0),
        ("yes", "Not (go_on)", 0),
        ("", "Identity (go)", 0),
    ],
)
def test_loop_is_kept_if_its_condition_may_end_it(start: str, on: str, count: int) -> None:
    text = COUNTED.replace("LOOP", "Loop").replace("GO", start).replace("ON", on)
    model = ir.from_proto(onnx.parser.parse_model(text))
    assert apply("unroll_loops", model, unroll=3) == count
    assert {node.op_type for node in model.graph} == ({"Neg", "Identity"} if count else {"Loop"})


def test_loop_of_another_domain_is_kept() -> None:
    text = COUNTED.replace("LOOP", "elsewhere.Loop").replace("GO", "yes").replace("ON", "Identity (go_on)")
    assert apply("unroll_loops", ir.from_proto(onnx.parser.parse_model(text)), unroll=3) == 0


@pytest.mark.parametrize(
    ("axes", "count"), [("scan_input_axes = [0]", 1), ("scan_input_axes = [1]", 0), ("scan_output_axes = [1]", 0)]
)
def test_scan_along_another_axis_is_kept(axes: str, count: int) -> None:
    body = "step (float[3] sum, float[3] row) => (float[3] after, float[3] seen) { after = Add (sum, row) seen = Neg (row) }"
    scan = f"y, all = Scan <num_scan_inputs = 1, {axes}, body = {body}> (x, z)"
    assert (
        apply(
            "unroll_loops",
            parse_model(f"(float[3] x, float[3,3] z) => (float[3] y, float[3,3] all) {{ {scan} }}"),
            unroll=3,
        )
        == count
    )


def compute(model: ir.Model, **inputs: Array) -> list[Array]:
    session = onnxruntime.InferenceSession(ir.to_proto(model).SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, inputs))


@pytest.mark.parametrize(
    ("directions", "back_in", "back_out"),
    [("", 1, 1), ("scan_input_directions = [1], ", -1, 1), ("scan_output_directions = [1, 0], ", 1, -1)],
)
def test_values_that_a_scan_body_passes_through_are_unchanged(directions: str, back_in: int, back_out: int) -> None:
    """The body passes through a carried value, two swapped values, and the rows.

    Without unrolling, ONNX Runtime's Scan leaves the output of the rows uninitialized.
    """
    body = (
        "step (float[3] kept, float[3] one, float[3] two, float[3] row) => "
        "(float[3] kept, float[3] two, float[3] after, float[3] row, float[3] seen) "
        "{ after = Add (one, row) seen = Mul (after, kept) }"
    )
    ports = "float[3] a, float[3] b, float[3] c, float[5,3] rows", "float[5,3] each, float[5,3] all"
    scan = f"x, y, z, each, all = Scan <num_scan_inputs = 1, {directions}body = {body}> (a, b, c, rows)"
    model = parse_model(f"({ports[0]}) => (float[3] x, float[3] y, float[3] z, {ports[1]}) {{ {scan} }}")
    inputs = {name: random_array(3, seed=name) for name in "abc"} | {"rows": random_array(5, 3, seed="rows")}
    assert apply("unroll_loops", model, unroll=5) == 1
    first, second, rows, products = inputs["b"], inputs["c"], inputs["rows"][::back_in], []
    for row in rows:
        first, second = second, first + row
        products.append(second * inputs["a"])
    expected = [inputs["a"], first, second, rows[::back_out], np.stack(products)]
    for result, expected_array in zip(compute(model, **inputs), expected, strict=True):
        np.testing.assert_allclose(result, expected_array, rtol=1e-6)
