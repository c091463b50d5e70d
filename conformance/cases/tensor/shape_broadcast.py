"""BROADCAST_ARGS: the shape that two shapes broadcast to, with ones and zeros among the sizes."""

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
    for kind in ("int32", "int64"):
        for first, second in PAIRS:
            a, b = np.asarray(first, kind), np.asarray(second, kind)
            y = tensor(max(len(a), len(b)), dtype=kind)
            given = {"a": a, "b": b}
            for fixed in ((), ("a",), ("b",), ("a", "b")):
                operands = [
                    constant(shape) if name in fixed else tensor(len(shape), dtype=kind, scale=0, name=name)
                    for name, shape in given.items()
                ]
                which = f", {' and '.join(fixed)} constant" if fixed else ""
                tested_opsets = EVERY_OPSET if first == [5, 3] else (None,)
                name = f"{kind} {list(first)} and {list(second)}{which}"
                runtime_shapes = {key: shape for key, shape in given.items() if key not in fixed}
                yield in_isolation(OP, name, operands, y, dtype=kind, input_arrays=runtime_shapes, opsets=tested_opsets)
    yield net(OP, "the shape to broadcast to", build, dtype="int32")
    runs = [{"a": np.asarray(shape, np.int32)} for shape in ([3], [2, 7, 1, 3], [1, 0, 1])]
    unknown, rows = tensor(None, dtype="int32", scale=0, name="a"), tensor(None, dtype="int32")
    for name, operands in {"first": [unknown, constant([7, 1, 1])], "second": [constant([7, 1, 1]), unknown]}.items():
        yield in_isolation(
            OP, f"{name} of dynamic length", operands, rows, input_arrays=runs, runs=len(runs), dynamic_sizes=()
        )
    operands = [constant([2, 3]), constant([5, 3])]
    yield in_isolation(
        OP, "shapes that do not broadcast", operands, tensor(2, dtype="int32"), refusal="do not broadcast"
    )


def build(model: Net) -> None:
    """Build the broadcast shape of two operands, as converters write it."""
    x, y = model.add_operand(tensor(2, 1, 3)), model.add_operand(tensor(5, 1))
    first = model.call("SHAPE", [x], tensor(3, dtype="int32"), out_type="INT32")
    both = model.call(OP, [first, constant([5, 1])], tensor(3, dtype="int32"))
    model.output(model.call("BROADCAST_TO", [y, both], tensor(2, 5, 3)))
