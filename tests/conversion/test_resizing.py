"""Tests of requested and dynamic input shapes against resized LiteRT models."""

from __future__ import annotations

import resource
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from conformance.builder import ModelBuilder
from conformance.models import Net, Spec, constant, random_array, tensor
from onnx_tflite_plugin.conversion import convert
from onnx_tflite_plugin.errors import UnsupportedOperator, UnsupportedOption
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.normalize.resizing import derive_shapes
from onnx_tflite_plugin.source import read
from onnx_tflite_plugin.targets import TARGETS
from onnx_tflite_plugin.verify import verify
from tests.helpers.resized_models import agrees, classifier, dims, single_operator


def test_different_names_are_different_dimensions() -> None:
    """Both dimensions are stored as 5, but ADD needs dimensions that are always equal."""
    data = single_operator("ADD", tensor(5, 3), tensor(5, 3), tensor(5, 3))
    assert convert(data, input_shape={"x0": ["n", 3], "x1": ["n", 3]})
    with pytest.raises(UnsupportedOperator, match="op 0 ADD"):
        convert(data, input_shape={"x0": ["n", 3], "x1": ["m", 3]})


def test_error_of_a_requested_shape_names_the_stored_sizes() -> None:
    """The remedy repeats the size that the file leaves dynamic."""
    with pytest.raises(UnsupportedOperator) as caught:
        convert(classifier([1, 30]), input_shape={"x0": [1, 5, "w", 3]})
    assert caught.value.problems[0].hint == (
        "keep the stored sizes: input_shape={'x0': (1, 4, 6, 3)}, or leave the operator out with outputs=TENSOR"
    )


@pytest.mark.parametrize("plan", ["least", "local"])
def test_input_shape_with_new_fixed_sizes_agrees_with_litert(plan: str) -> None:
    model = Net()
    x = model.input_through_conv(tensor(1, 4, 6, 3))
    pool: dict[str, Any] = {"padding": "SAME", "stride_h": 2, "stride_w": 2, "filter_height": 3, "filter_width": 3}
    pooled = model.call("MAX_POOL_2D", [x], tensor(1, 2, 3, 3), **pool)
    model.output(
        model.output_through_conv(model.call("MEAN", [pooled, constant([1, 2])], tensor(1, 1, 1, 3), keep_dims=True))
    )
    data = model.build()
    conversion = convert(data, input_shape={"x0": (2, 7, 11, 5)}, layout_plan=plan)
    assert dims(conversion) == {"x0": [2, 7, 11, 5], "y0": [2, 1, 1, 5]}
    assert agrees(data, conversion)


def test_input_shape_fixes_dynamic_dimensions() -> None:
    model = Net()
    x, w = model.input(tensor(None, None, None, 3)), constant(random_array(4, 3, 3, 3))
    y_spec = tensor(None, None, None, 4)
    options: dict[str, Any] = dict.fromkeys(("stride_h", "stride_w", "dilation_h_factor", "dilation_w_factor"), 2)
    model.output(model.call("CONV_2D", [x, w, constant(random_array(4))], y_spec, padding="SAME", **options))
    data = model.build()
    with pytest.raises(Exception, match="input_shape"):
        convert(data)
    conversion = convert(data, input_shape={"x0": (2, 5, 8, 3)})
    assert dims(conversion)["y0"] == [2, 3, 4, 4]
    assert agrees(data, conversion)


def test_computed_shapes_follow_a_fixed_shape() -> None:
    model = Net()
    x = model.input(tensor(2, 6, name="image"))
    size = model.call("SHAPE", [x], tensor(2, dtype="int32"), out_type="INT32")
    begin, end, strides = constant([0]), constant([1]), constant([1])
    rows = model.call("STRIDED_SLICE", [size, begin, end, strides], tensor(dtype="int32"), shrink_axis_mask=1)
    shape = model.call("PACK", [rows, constant(3), constant(2)], tensor(3, dtype="int32"), values_count=3, axis=0)
    model.output(model.call("RESHAPE", [x, shape], tensor(2, 3, 2)))
    data = model.build()
    fixed, dynamic = convert(data, input_shape={"image": (5, 6)}), convert(data, dynamic_batch=True)
    assert dims(fixed)["y0"] == [5, 3, 2]
    assert agrees(data, fixed)
    assert all(agrees(data, dynamic, image=(batch, 6)) for batch in (1, 3))


def test_name_makes_a_dimension_symbolic() -> None:
    data = classifier([-1, 30])
    conversion = convert(data, input_shape={"x0": ("N", 4, 6, 3)})
    assert dims(conversion) == {"x0": ["N", 4, 6, 3], "y0": ["N", 7]}
    assert all(agrees(data, conversion, x0=(n, 4, 6, 3)) for n in (1, 2, 5))


def test_several_dimensions_may_have_names() -> None:
    model = Net()
    x, w = model.input(tensor(1, 8, 6, 3)), constant(random_array(5, 3, 3, 3))
    model.output(
        model.call(
            "CONV_2D", [x, w, constant(random_array(5))], tensor(1, 8, 6, 5), padding="SAME", stride_h=1, stride_w=1
        )
    )
    data = model.build()
    conversion = convert(data, input_shape={"x0": ("N", "height", "width", 3)})
    assert dims(conversion) == {"x0": ["N", "height", "width", 3], "y0": ["N", "height", "width", 5]}
    assert all(agrees(data, conversion, x0=shape) for shape in ((1, 8, 6, 3), (3, 11, 7, 3), (2, 5, 13, 3)))


def test_equal_names_are_equal_dimensions() -> None:
    x, y = tensor(1, 3), tensor(1, 5)
    data = single_operator("CONCATENATION", x, y, tensor(1, 8), axis=1)
    conversion = convert(data, input_shape={"x0": ("N", 3), "x1": ("N", 5)})
    assert dims(conversion) == {"x0": ["N", 3], "x1": ["N", 5], "y0": ["N", 8]}
    assert agrees(data, conversion, x0=(4, 3), x1=(4, 5))


def test_named_and_fixed_dimensions_may_be_combined() -> None:
    data = single_operator("ADD", tensor(None, 3), constant(np.ones((1, 3), np.float32)), tensor(None, 3))
    assert dims(convert(data, input_shape={"x0": ("rows", 3)})) == {"x0": ["rows", 3], "y0": ["rows", 3]}


@pytest.mark.parametrize(
    ("shapes", "text"),
    [
        ({"y": (1, 4, 6, 3)}, "no graph input has this name; the model's inputs are x0"),
        ({"x0": (1, 4)}, "2 sizes are given, but the input has 4 axes"),
        ({"x0": (0, 4, 6, 3)}, "with a size of 0 every result is empty"),
    ],
)
def test_rejects_shapes_that_match_no_input(shapes: dict[str, tuple[int, ...]], text: str) -> None:
    with pytest.raises(UnsupportedOption, match=text):
        convert(classifier([-1, 30]), input_shape=shapes)


@pytest.mark.parametrize(("stored", "derived_size"), [(5, 5), (0, None)])
def test_runtime_shapes_are_stored_shapes_unless_derived(stored: int, derived_size: int | None) -> None:
    model = ModelBuilder()
    g = model.main
    g.operator("ABS", [g.input("x", (2, 3))], [a := g.tensor("a", (3, 2))])  # the stored shape is wrong
    g.operator("WHERE", [g.input("c", (2, 3), "bool")], [found := g.tensor("found", (stored, 2), "int64")])
    g.operator("NEG", [found], [y := g.tensor("y", (stored, 2), "int64")])
    g.output(a, y)
    derived = derive_shapes(read(model.build()), Host(packs="builtin"), TARGETS["generic"])
    assert derived is not None
    assert {t.name: t.dims for t in derived.main.outputs} == {"a": (2, 3), "y": (derived_size, 2)}


# --- names of dynamic sizes -------------------------------------------------------------------


def test_dimensions_that_must_be_equal_share_a_name() -> None:
    x, y = tensor(None, 3), tensor(None, 5)
    sizes = dims(convert(single_operator("CONCATENATION", x, y, tensor(None, 8), axis=1)))
    assert sizes == {"x0": ["x0_dim0", 3], "x1": ["x0_dim0", 5], "y0": ["x0_dim0", 8]}


def test_dimensions_that_may_broadcast_have_separate_names() -> None:
    data = single_operator("ADD", tensor(None, 3), tensor(None, 3), tensor(None, 3))
    conversion = convert(data)
    assert dims(conversion) == {"x0": ["x0_dim0", 3], "x1": ["x1_dim0", 3], "y0": [None, 3]}
    assert agrees(data, conversion, x0=(1, 3), x1=(4, 3))


def test_verify_tests_dynamic_dimensions() -> None:
    """A cumulative sum over the batch is the identity at the stored batch size of 1."""
    data = single_operator("ADD", tensor(None, 3), constant(np.ones((1, 3), np.float32)), tensor(None, 3))
    proto = convert(data).proto
    (add_node,) = proto.graph.node
    sum_node = helper.make_node("CumSum", ["added", "axis"], list(add_node.output))
    add_node.output[0] = "added"
    proto.graph.node.append(sum_node)
    proto.graph.initializer.append(helper.make_tensor("axis", TensorProto.INT64, [], [0]))
    assert not verify(data, proto.SerializeToString()).ok
    assert verify(data, proto.SerializeToString(), shapes={"x0": (1, 3)}).ok


def test_naming_dimensions_of_long_vectors_is_cheap() -> None:
    """Shape inference evaluates small vectors; with trial sizes, this one is large."""
    model = Net()
    flat = model.call("RESHAPE", [tensor(None, 512, 8), constant([-1])], tensor(None))
    scaled = model.call("MUL", [flat, constant(np.float32(3))], tensor(None))
    model.output(model.call("RESHAPE", [scaled, constant([-1, 512, 8])], tensor(None, 512, 8)))
    data = model.build()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    conversion = convert(data)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # kB
    assert dims(conversion)["x0"] == dims(conversion)["y0"]
    assert agrees(data, conversion)


def test_naming_dimensions_of_a_runtime_transpose_is_cheap() -> None:
    """A transpose with a runtime permutation has one table entry per element."""
    model = ModelBuilder()
    g = model.main
    x = g.input("x", (2, 5, 7), signature=(-1, -1, -1))
    y = g.tensor("y", (2, 5, 7), signature=(-1, -1, -1))
    g.operator("TRANSPOSE", [x, g.input("perm", (3,), "int32")], [y])
    g.output(y)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    convert(model.build())
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kB


def test_requested_shape_errors_are_not_attributed_to_the_file() -> None:
    model = Net()
    x = model.input(Spec((1, 2, 3, 5, 7)))
    transposed = model.call("TRANSPOSE", [x, constant([4, 0, 1, 3, 2])], Spec((7, 1, 2, 5, 3)))
    steps = {f"stride_{axis}": 1 for axis in "dhw"} | {f"dilation_{axis}_factor": 1 for axis in "dhw"}
    operands = [transposed, constant(random_array(1, 1, 1, 3, 5)), constant(random_array(5))]
    model.output(model.call("CONV_3D", operands, Spec((7, 1, 2, 5, 5)), padding="SAME", **steps))
    assert convert(model.build())
    with pytest.raises(UnsupportedOperator, match="input_shape leads to contradictory sizes") as caught:
        convert(model.build(), input_shape={"x0": (1, 2, 4, 5, 7)})
    assert "convert the original" not in str(caught.value)


def test_refusal_names_the_sizes_that_were_tried() -> None:
    model = ModelBuilder()
    g = model.main
    x, y = g.input("x", (1, 2, 2, 1)), g.tensor("y", (1, 2, 2, 1))
    g.operator("ADD", [x, g.constant("c", np.ones((1, 2, 2, 1), np.float32))], [y])
    g.output(y)
    with pytest.raises(UnsupportedOperator, match=r"support only the stored size.* \(tried with N=4, M=6\):"):
        convert(model.build(), input_shape={"x": (1, "N", "M", 1)})
