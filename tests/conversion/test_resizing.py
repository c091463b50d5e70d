"""Tests of requested and dynamic input shapes against resized LiteRT models."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnxruntime import InferenceSession

from conformance.builder import ModelBuilder
from conformance.models import Net, Spec, constant, random_array, tensor
from onnx_tflite_plugin.conversion import Conversion, convert
from onnx_tflite_plugin.errors import UnsupportedOperator, UnsupportedOption
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.normalize.resizing import derive_shapes
from onnx_tflite_plugin.source import read
from onnx_tflite_plugin.targets import TARGETS
from onnx_tflite_plugin.verify import verify
from onnx_tflite_plugin.verify.runtimes.litert import LiteRT

DIGITS = Path(__file__).parents[2] / "examples" / "digits_int8.tflite"


def dims(conversion: Conversion) -> dict[str, list[int | str | None]]:
    graph = conversion.model.graph
    return {
        str(value.name): [size if isinstance(size, int) else size.value for size in value.shape or ()]
        for value in (*graph.inputs, *graph.outputs)
    }


def agrees(data: bytes, conversion: Conversion, **shapes: tuple[int, ...]) -> bool:
    return verify(data, conversion.proto.SerializeToString(), shapes=shapes, runs=1).ok


def single_operator(code: str, *operands: Spec, **options: Any) -> bytes:
    """Return a model with one operator; the last spec is the result."""
    model = Net()
    model.output(model.call(code, operands[:-1], operands[-1], **options))
    return model.build()


def classifier(new_shape: list[int]) -> bytes:
    """Return an image classifier with a RESHAPE before its dense layer."""
    model = Net()
    image = tensor(1, 4, 6, 3)
    x = model.input(image)
    w, b = constant(random_array(5, 3, 3, 3)), constant(random_array(5))
    convolved = model.call("CONV_2D", [x, w, b], image.with_shape(1, 2, 3, 5), padding="SAME", stride_h=2, stride_w=2)
    flat = model.call("RESHAPE", [convolved, constant(new_shape)], tensor(1, 30))
    model.output(
        model.call("FULLY_CONNECTED", [flat, constant(random_array(7, 30)), constant(random_array(7))], tensor(1, 7))
    )
    return model.build()


@pytest.mark.parametrize("batch", [1, 2, 3])
@pytest.mark.parametrize("data", [classifier([-1, 30]), DIGITS.read_bytes()], ids=["float32", "int8"])
def test_dynamic_batch_agrees_at_every_size(data: bytes, batch: int) -> None:
    conversion = convert(data, dynamic_batch=True)
    name, *_ = dims(conversion)
    assert agrees(data, conversion, **{name: (batch, *[int(n or 0) for n in dims(conversion)[name][1:]])})  # type: ignore[arg-type]


def test_resized_batch_is_kept_with_dynamic_batch() -> None:
    data = single_operator("FULLY_CONNECTED", tensor(2, 3), tensor(5, 3), tensor(2, 5))
    assert dims(convert(data, dynamic_batch=True)) == {"x0": ["batch", 3], "x1": [5, 3], "y0": ["batch", 5]}


def test_dynamic_batch_has_one_name_in_inputs_and_outputs() -> None:
    assert dims(convert(classifier([-1, 30]), dynamic_batch=True)) == {"x0": ["batch", 4, 6, 3], "y0": ["batch", 7]}


def test_different_names_are_different_dimensions() -> None:
    """Both dimensions are stored as 5, but ADD needs dimensions that are always equal."""
    data = single_operator("ADD", tensor(5, 3), tensor(5, 3), tensor(5, 3))
    assert convert(data, input_shape={"x0": ["n", 3], "x1": ["n", 3]})
    with pytest.raises(UnsupportedOperator, match="op 0 ADD"):
        convert(data, input_shape={"x0": ["n", 3], "x1": ["m", 3]})


def transpose_and_reshape(*input_shape: int) -> bytes:
    """Return a RESHAPE to [5, 6] of an input whose two leading axes are swapped."""
    model = Net()
    x = model.call(
        "TRANSPOSE", [tensor(*input_shape), constant([1, 0, 2])], tensor(input_shape[1], input_shape[0], input_shape[2])
    )
    model.output(model.call("RESHAPE", [x, constant([5, 6])], tensor(5, 6)))
    return model.build()


def test_rejects_dynamic_batch_for_scalars() -> None:
    with pytest.raises(UnsupportedOption, match="no graph input has an axis that could be dynamic"):
        convert(single_operator("ADD", tensor(), tensor(), tensor()), dynamic_batch=True)


def test_stored_shape_follows_a_named_or_batch_dimension() -> None:
    """A leading size that is not the named or batch size does not change a RESHAPE."""
    rows = single_operator("RESHAPE", tensor(5, 2, 3), constant([5, 6]), tensor(5, 6))
    assert dims(convert(rows, input_shape={"x0": ["n", 2, 3]})) == {"x0": ["n", 2, 3], "y0": ["n", 6]}
    transposed = transpose_and_reshape(2, 5, 3)
    assert dims(convert(transposed, input_shape={"x0": [2, "n", 3]})) == {"x0": [2, "n", 3], "y0": ["n", 6]}
    with pytest.raises(UnsupportedOperator, match=r"op 1 RESHAPE v1 .*\[5, 6\] does not fit the 60 elements"):
        convert(transposed, dynamic_batch=True)


def test_names_the_operator_that_prevents_a_dynamic_batch() -> None:
    with pytest.raises(UnsupportedOperator, match=r"op 0 RESHAPE v1 .*\[30, 1\] does not fit the 60 elements"):
        convert(single_operator("RESHAPE", tensor(1, 5, 6), constant([30, 1]), tensor(30, 1)), dynamic_batch=True)


def test_error_of_a_requested_shape_names_the_stored_sizes() -> None:
    """The remedy repeats the size that the file leaves dynamic."""
    with pytest.raises(UnsupportedOperator) as caught:
        convert(classifier([1, 30]), input_shape={"x0": [1, 5, "w", 3]})
    assert caught.value.problems[0].hint == (
        "keep the stored sizes: input_shape={'x0': (1, 4, 6, 3)}, or leave the operator out with outputs=TENSOR"
    )


def test_rejects_a_rank_that_depends_on_the_batch() -> None:
    model = Net()
    model.output(model.call("SQUEEZE", [tensor(1, 5, 3)], tensor(5, 3)))
    with pytest.raises(UnsupportedOperator, match="the rank depends on the batch"):
        convert(model.build(), dynamic_batch=True)


@pytest.mark.parametrize("plan", ["least", "local"])
def test_fixed_dimensions_agree(plan: str) -> None:
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


def test_dynamic_batch_follows_the_derived_shape_of_a_stale_result() -> None:
    model = ModelBuilder()
    g = model.main
    g.operator("ABS", [g.input("x", (2, 3))], [y := g.tensor("y", (3, 2))])
    g.output(y)
    (result,) = convert(model.build(), dynamic_batch=True).proto.graph.output
    assert [dim.dim_param or dim.dim_value for dim in result.type.tensor_type.shape.dim] == ["batch", 3]


# --- constants that store the batch size ------------------------------------------------------


def run_per_item(data: bytes, *images: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return LiteRT's results for each image in turn."""
    session = LiteRT(data, "builtin")
    return np.concatenate([session.run([image])[0] for image in images])


def reshape(shape: list[int], *, as_option: bool = False) -> bytes:
    x, y = tensor(1, 5, 2, 3), tensor(1, 10, 3)
    model = Net()
    options = {"new_shape": shape} if as_option else {}
    model.output(model.call("RESHAPE", [model.input(x), *([] if as_option else [constant(shape)])], y, **options))
    return model.build()


def convolve_transposed() -> bytes:
    w, x = constant(random_array(5, 3, 3, 2)), tensor(1, 4, 3, 2)
    return single_operator(
        "TRANSPOSE_CONV", constant([1, 8, 6, 5]), w, x, tensor(1, 8, 6, 5), padding="SAME", stride_h=2, stride_w=2
    )


STORED_BATCH = {
    "RESHAPE": reshape([1, 10, 3]),
    "RESHAPE with a size to infer": reshape([1, -1, 3]),
    "RESHAPE by its options": reshape([1, -1, 3], as_option=True),
    "SLICE": single_operator("SLICE", tensor(1, 5, 3), constant([0, 1, 0]), constant([1, 3, -1]), tensor(1, 3, 3)),
    "STRIDED_SLICE": single_operator(
        "STRIDED_SLICE", tensor(1, 7, 3), constant([0, 1, 0]), constant([1, 6, 3]), constant([1, 2, 1]), tensor(1, 3, 3)
    ),
    "BROADCAST_TO": single_operator("BROADCAST_TO", tensor(1, 1, 3), constant([1, 5, 3]), tensor(1, 5, 3)),
    "TRANSPOSE_CONV": convolve_transposed(),
    "CONV_2D, RESHAPE, FULLY_CONNECTED": classifier([1, 30]),
}


@pytest.mark.parametrize("name", STORED_BATCH)
def test_batch_items_equal_separate_litert_runs(name: str) -> None:
    data = STORED_BATCH[name]
    proto = convert(data, dynamic_batch=True).proto
    (x,) = (info.type.tensor_type.shape.dim for info in proto.graph.input)
    images = [
        np.asarray(random_array(1, *(dim.dim_value for dim in x[1:]), seed=str(seed)), np.float32) for seed in (2, 3, 5)
    ]
    session = InferenceSession(proto.SerializeToString())
    (batch,) = session.run(None, {session.get_inputs()[0].name: np.concatenate(images)})
    np.testing.assert_allclose(batch, run_per_item(data, *images), rtol=1e-5, atol=1e-5)
    assert verify(data, proto.SerializeToString(), runs=1).runs == 2


def test_dynamic_batch_replaces_a_stored_batch_of_1() -> None:
    data = single_operator("RESHAPE", tensor(None, 5, 6), constant([1, 6, 5]), tensor(1, 6, 5))
    assert dims(convert(data)) == {"x0": ["x0_dim0", 5, 6], "y0": [1, 6, 5]}
    assert dims(convert(data, dynamic_batch=True)) == {"x0": ["batch", 5, 6], "y0": ["batch", 6, 5]}


def test_verify_detects_mixed_batch_items() -> None:
    data = STORED_BATCH["RESHAPE"]
    proto = convert(data, dynamic_batch=True).proto
    (node,) = proto.graph.node
    maximum = helper.make_node("ReduceMax", ["reshaped", "axis"], ["largest"])
    mixed_output = helper.make_node("Max", ["reshaped", "largest"], list(node.output))
    node.output[0] = "reshaped"
    proto.graph.node.extend([maximum, mixed_output])
    proto.graph.initializer.append(helper.make_tensor("axis", TensorProto.INT64, [1], [0]))
    assert not verify(data, proto.SerializeToString()).ok
    assert verify(data, convert(data, dynamic_batch=True).proto.SerializeToString()).ok


def test_verify_skips_a_batch_if_litert_rejects_its_items() -> None:
    """Some random integers are negative, and LiteRT's RSQRT rejects them."""
    x = tensor(None, 5, dtype="int16", scale=0.01, zero_point=0)
    data = single_operator("RSQRT", x, x.rescale(3.0))
    assert verify(data, convert(data).proto.SerializeToString()).ok


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


def test_error_of_a_requested_batch_suggests_dynamic_batch() -> None:
    with pytest.raises(UnsupportedOperator) as caught:
        convert(classifier([1, 30]), input_shape={"x0": [8, 4, 6, 3]})
    assert "make the batch dynamic with dynamic_batch=True" in caught.value.problems[0].hint
