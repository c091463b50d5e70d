"""Results without a stored rank: the rank derived from the operators equals LiteRT's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from conformance.case import Case
from conformance.cases.math.fourier import LENGTHS
from conformance.models import Net, Spec, constant, net, random_array, tensor

IMAGE = (2, 5, 7, 3)
X = tensor(*IMAGE)
RUNNING = Spec((2,), "int32", name="numbers")


def cases() -> Iterator[Case]:
    yield from of_one_operator()
    for dtype in ("float32", "int8"):
        yield net("CONV_2D", f"{dtype} in a chain without ranks", chain(dtype), dtype=dtype)
    yield net("RESHAPE", "empty, without ranks", stored_sizes_of_0)


def of_one_operator() -> Iterator[Case]:
    stride: dict[str, Any] = {"padding": "SAME", "stride_h": 2, "stride_w": 3}
    pool = {**stride, "filter_height": 2, "filter_width": 3}
    yield rankless("MAX_POOL_2D", [X], **pool)
    yield rankless("CONV_2D", [X, constant(random_array(4, 3, 3, 3)), constant(random_array(4))], **stride)
    yield rankless("FULLY_CONNECTED", [X, constant(random_array(11, 3)), None], keep_num_dims=True)
    yield rankless("FULLY_CONNECTED", [X, constant(random_array(11, 3)), None], "rows")
    for keep in (True, False):
        for op in ("MEAN", "REDUCE_MAX", "SUM"):
            yield rankless(op, [X, constant([1, -1])], f"kept {keep}", keep_dims=keep)
    whole = tensor(*IMAGE, dtype="int32")
    yield rankless("REDUCE_PROD", [whole, constant([1, 2])], "dropped", keep_dims=False)
    yield rankless("REDUCE_PROD", [whole, constant([1, 2])], "kept", keep_dims=True)
    yield rankless("MEAN", [X, RUNNING], "axes known at runtime", given=numbers(1, -1), keep_dims=True)
    yield rankless("ARG_MAX", [X, constant(2)], output_type="INT32", result=Spec((), "int32"))
    yield rankless("RESHAPE", [X, constant([10, -1, 3])])
    yield rankless("RESHAPE", [tensor(5, 7), RUNNING], "shape known at runtime", given=numbers(7, 5))
    yield rankless("TRANSPOSE", [X, constant([3, 0, 2, 1])])
    yield rankless("SQUEEZE", [tensor(1, 5, 1, 3)])
    yield rankless("EXPAND_DIMS", [tensor(5, 7), constant(-1)])
    yield rankless("TILE", [X, constant([1, 2, 1, 3])])
    yield rankless("BROADCAST_TO", [tensor(7, 1), constant([2, 5, 7, 3])])
    yield rankless("BROADCAST_TO", [tensor(), constant([5, 7])], "a number")
    yield rankless("FILL", [RUNNING, tensor()], given=numbers(5, 7))
    yield rankless("GATHER", [X, constant([[2, 0], [1, 1]])], axis=2)
    yield rankless("CONCATENATION", [X, tensor(2, 5, 7, 4)], axis=3)
    yield rankless("PACK", [X, X], axis=1, values_count=2)
    yield rankless("PAD", [X, constant([[0, 0], [1, 2], [0, 3], [0, 0]])])
    yield rankless("SLICE", [X, constant([0, 1, 2, 0]), constant([2, 3, -1, 1])])
    bounds = [constant(row) for row in ([0, 1, 6], [1, 5, 0], [1, 2, -3])]
    yield rankless("STRIDED_SLICE", [X, *bounds], shrink_axis_mask=1)
    yield rankless("SPARSE_TO_DENSE", [constant([[1, 2]]), constant([3, 5]), tensor(1), constant(7.0)], result=Spec(()))
    yield rankless(
        "SELECT", [tensor(dtype="bool"), constant(random_array(5, 7)), tensor(5, 7)], "by one answer", result=Spec(())
    )
    yield rankless("SPACE_TO_BATCH_ND", [X, constant([1, 7]), constant([[0, 0], [0, 0]])])
    yield rankless("RFFT2D", [tensor(3, 8, 4), constant(LENGTHS)], result=Spec((), "complex64"))


def numbers(*values: int) -> dict[str, Any]:
    return {"numbers": np.asarray(values, np.int32)}


def rankless(
    op: str, operands: Sequence[Spec | None], name: str = "", *, given: Any = None, result: Spec | None = None, **options: Any
) -> Case:  # fmt: skip
    first = next(spec for spec in operands if spec is not None and spec.name != RUNNING.name)

    def build(model: Net) -> None:
        y = model.call(op, operands, result or Spec((), first.dtype, first.scale, first.zero_point), **options)
        model.remove_rank(y)
        model.output(y)

    case: dict[str, Any] = {} if given is None else {"input_arrays": given}
    return net(op, f"result without rank{name and ', '}{name}", build, dtype=first.dtype, **case)


def chain(dtype: str) -> Callable[[Net], None]:
    """Return a chain from an image to a vector, whose results have no stored rank."""

    def build(model: Net) -> None:
        x = tensor(*IMAGE, dtype=dtype)
        anything = Spec((), dtype, x.scale, x.zero_point)
        window: dict[str, Any] = {
            "padding": "VALID",
            "stride_h": 1,
            "stride_w": 1,
            "filter_height": 2,
            "filter_width": 2,
        }
        image = model.input_through_conv(x)
        steps = [image]
        steps.append(model.call("MAX_POOL_2D", [image], anything, **window))
        steps.append(model.call("RESHAPE", [steps[-1], constant([2, -1, 6])], anything))
        steps.append(model.call("TRANSPOSE", [steps[-1], constant([0, 2, 1])], anything))
        steps.append(model.call("MEAN", [steps[-1], constant([2])], anything, keep_dims=False))
        model.remove_rank(*steps)
        model.output(steps[-1])

    return build


def stored_sizes_of_0(model: Net) -> None:
    """Build stored sizes of 0, which are derived again, as are the ranks."""
    y = model.call("RESHAPE", [tensor(0, 5, 7), constant([5, -1, 7, 2])], Spec(()))
    model.remove_rank(y)
    model.output(y)
