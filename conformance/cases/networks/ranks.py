"""Results without a stored rank, which the conversion must derive as LiteRT does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from conformance.case import Case
from conformance.cases.math.fourier import LENGTHS
from conformance.models import Net, Spec, constant, net, random_array, tensor

IMAGE = (2, 5, 7, 3)
X = tensor(*IMAGE)
RUNTIME_VECTOR = Spec((2,), "int32", name="vector")


def cases() -> Iterator[Case]:
    yield from single_operator_cases()
    for dtype in ("float32", "int8"):
        yield net("CONV_2D", f"{dtype}, chain without ranks", chain(dtype), dtype=dtype)
    yield net("RESHAPE", "empty tensor without rank", reshape_empty)


def single_operator_cases() -> Iterator[Case]:
    stride: dict[str, Any] = {"padding": "SAME", "stride_h": 2, "stride_w": 3}
    pool = {**stride, "filter_height": 2, "filter_width": 3}
    yield rankless_case("MAX_POOL_2D", [X], **pool)
    yield rankless_case("CONV_2D", [X, constant(random_array(4, 3, 3, 3)), constant(random_array(4))], **stride)
    yield rankless_case("FULLY_CONNECTED", [X, constant(random_array(11, 3)), None], keep_num_dims=True)
    yield rankless_case("FULLY_CONNECTED", [X, constant(random_array(11, 3)), None], "flattened batch")
    for keep_dims in (True, False):
        for op in ("MEAN", "REDUCE_MAX", "SUM"):
            yield rankless_case(op, [X, constant([1, -1])], f"keep_dims {keep_dims}", keep_dims=keep_dims)
    integers = tensor(*IMAGE, dtype="int32")
    yield rankless_case("REDUCE_PROD", [integers, constant([1, 2])], "keep_dims False", keep_dims=False)
    yield rankless_case("REDUCE_PROD", [integers, constant([1, 2])], "keep_dims True", keep_dims=True)
    yield rankless_case("MEAN", [X, RUNTIME_VECTOR], "runtime axes", input_arrays=runtime_vector(1, -1), keep_dims=True)
    yield rankless_case("ARG_MAX", [X, constant(2)], output_type="INT32", result=Spec((), "int32"))
    yield rankless_case("RESHAPE", [X, constant([10, -1, 3])])
    yield rankless_case("RESHAPE", [tensor(5, 7), RUNTIME_VECTOR], "runtime shape", input_arrays=runtime_vector(7, 5))
    yield rankless_case("TRANSPOSE", [X, constant([3, 0, 2, 1])])
    yield rankless_case("SQUEEZE", [tensor(1, 5, 1, 3)])
    yield rankless_case("EXPAND_DIMS", [tensor(5, 7), constant(-1)])
    yield rankless_case("TILE", [X, constant([1, 2, 1, 3])])
    yield rankless_case("BROADCAST_TO", [tensor(7, 1), constant([2, 5, 7, 3])])
    yield rankless_case("BROADCAST_TO", [tensor(), constant([5, 7])], "scalar operand")
    yield rankless_case("FILL", [RUNTIME_VECTOR, tensor()], input_arrays=runtime_vector(5, 7))
    yield rankless_case("GATHER", [X, constant([[2, 0], [1, 1]])], axis=2)
    yield rankless_case("CONCATENATION", [X, tensor(2, 5, 7, 4)], axis=3)
    yield rankless_case("PACK", [X, X], axis=1, values_count=2)
    yield rankless_case("PAD", [X, constant([[0, 0], [1, 2], [0, 3], [0, 0]])])
    yield rankless_case("SLICE", [X, constant([0, 1, 2, 0]), constant([2, 3, -1, 1])])
    bounds = [constant(values) for values in ([0, 1, 6], [1, 5, 0], [1, 2, -3])]
    yield rankless_case("STRIDED_SLICE", [X, *bounds], shrink_axis_mask=1)
    yield rankless_case(
        "SPARSE_TO_DENSE", [constant([[1, 2]]), constant([3, 5]), tensor(1), constant(7.0)], result=Spec(())
    )
    yield rankless_case(
        "SELECT",
        [tensor(dtype="bool"), constant(random_array(5, 7)), tensor(5, 7)],
        "scalar condition",
        result=Spec(()),
    )
    yield rankless_case("SPACE_TO_BATCH_ND", [X, constant([1, 7]), constant([[0, 0], [0, 0]])])
    yield rankless_case("RFFT2D", [tensor(3, 8, 4), constant(LENGTHS)], result=Spec((), "complex64"))


def runtime_vector(*values: int) -> dict[str, Any]:
    return {"vector": np.asarray(values, np.int32)}


def rankless_case(
    op: str, operands: Sequence[Spec | None], name: str = "", *, input_arrays: Any = None, result: Spec | None = None, **options: Any
) -> Case:  # fmt: skip
    data = next(spec for spec in operands if spec is not None and spec.name != RUNTIME_VECTOR.name)

    def build(model: Net) -> None:
        y = model.call(op, operands, result or Spec((), data.dtype, data.scale, data.zero_point), **options)
        model.remove_rank(y)
        model.output(y)

    return net(op, f"result without rank{name and ', '}{name}", build, dtype=data.dtype, input_arrays=input_arrays)


def chain(dtype: str) -> Callable[[Net], None]:
    """Return a builder of a chain of operators that reduces an image to a matrix.

    No result has a stored rank.
    """

    def build(model: Net) -> None:
        x = tensor(*IMAGE, dtype=dtype)
        result_spec = Spec((), dtype, x.scale, x.zero_point)
        window: dict[str, Any] = {
            "padding": "VALID",
            "stride_h": 1,
            "stride_w": 1,
            "filter_height": 2,
            "filter_width": 2,
        }
        image = model.input_through_conv(x)
        steps = [image]
        steps.append(model.call("MAX_POOL_2D", [image], result_spec, **window))
        steps.append(model.call("RESHAPE", [steps[-1], constant([2, -1, 6])], result_spec))
        steps.append(model.call("TRANSPOSE", [steps[-1], constant([0, 2, 1])], result_spec))
        steps.append(model.call("MEAN", [steps[-1], constant([2])], result_spec, keep_dims=False))
        model.remove_rank(*steps)
        model.output(steps[-1])

    return build


def reshape_empty(model: Net) -> None:
    """Build a RESHAPE of an empty tensor.

    The sizes of its result, one of them 0, must be derived too.
    """
    y = model.call("RESHAPE", [tensor(0, 5, 7), constant([5, -1, 7, 2])], Spec(()))
    model.remove_rank(y)
    model.output(y)
