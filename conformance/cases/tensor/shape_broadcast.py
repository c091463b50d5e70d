"""BROADCAST_ARGS: the shape that two shapes broadcast to.

Some sizes are 1 or 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from conformance.case import EVERY_OPSET, Case
from conformance.models import Net, constant, in_isolation, net, tensor

OP = "BROADCAST_ARGS"
PAIRS: tuple[tuple[Sequence[int], Sequence[int]], ...] = (
    ([2, 1, 3], [1, 5, 3]),
    ([5, 3], [2, 1, 3]),
    ([2, 7, 1, 3], [7, 1, 1]),
    ([2, 1, 3], [0, 3]),
    ([0, 3], [1, 1, 1]),
    ([1], [1]),
    ([], [2, 3]),
)


def cases() -> Iterator[Case]:
    for dtype in ("int32", "int64"):
        for first, second in PAIRS:
            a, b = np.asarray(first, dtype), np.asarray(second, dtype)
            y = tensor(max(len(a), len(b)), dtype=dtype)
            shapes = {"a": a, "b": b}
            for constant_names in ((), ("a",), ("b",), ("a", "b")):
                operands = [
                    constant(shape) if name in constant_names else tensor(len(shape), dtype=dtype, scale=0, name=name)
                    for name, shape in shapes.items()
                ]
                suffix = f", {' and '.join(constant_names)} constant" if constant_names else ""
                tested_opsets = EVERY_OPSET if first == [5, 3] else (None,)
                name = f"{dtype} {list(first)} and {list(second)}{suffix}"
                runtime_shapes = {key: shape for key, shape in shapes.items() if key not in constant_names}
                yield in_isolation(
                    OP, name, operands, y, dtype=dtype, input_arrays=runtime_shapes, opsets=tested_opsets
                )
    yield net(OP, "shape operand of a BROADCAST_TO", broadcast_to_common_shape, dtype="int32")
    runs = [{"a": np.asarray(shape, np.int32)} for shape in ([3], [2, 7, 1, 3], [1, 0, 1])]
    unknown_length, y = tensor(None, dtype="int32", scale=0, name="a"), tensor(None, dtype="int32")
    for name, operands in {
        "first": [unknown_length, constant([7, 1, 1])],
        "second": [constant([7, 1, 1]), unknown_length],
    }.items():
        yield in_isolation(
            OP, f"{name} of dynamic length", operands, y, input_arrays=runs, runs=len(runs), dynamic_sizes=()
        )
    operands = [constant([2, 3]), constant([5, 3])]
    yield in_isolation(
        OP, "shapes that do not broadcast", operands, tensor(2, dtype="int32"), refusal="do not broadcast"
    )


def broadcast_to_common_shape(model: Net) -> None:
    """Build the broadcast shape of two operands, as converters write it."""
    x, y = model.add_operand(tensor(2, 1, 3)), model.add_operand(tensor(5, 1))
    first = model.call("SHAPE", [x], tensor(3, dtype="int32"), out_type="INT32")
    shape = model.call(OP, [first, constant([5, 1])], tensor(3, dtype="int32"))
    model.output(model.call("BROADCAST_TO", [y, shape], tensor(2, 5, 3)))
