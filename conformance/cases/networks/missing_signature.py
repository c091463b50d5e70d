"""Dynamic dimensions that the file stores as 1 without shape_signature.

Tools that insert operators write such files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from conformance.case import Case
from conformance.models import Net, Spec, net, tensor


def cases() -> Iterator[Case]:
    for dtype in ("int8", "uint8", "int16"):
        for op in ("DEQUANTIZE", "QUANTIZE"):
            yield net(op, f"{dtype}, dynamic dimensions stored as 1", shape_after(op, dtype), dtype=dtype)


def shape_after(op: str, dtype: str) -> Callable[[Net], None]:
    """Return a builder of the operator, and of SHAPE of its result.

    The stored shape of the result has 1 for each dynamic dimension.
    """

    def build(model: Net) -> None:
        integers, floats = tensor(None, None, 3, dtype=dtype, zero_point=0), Spec((None, None, 3))
        x, y = (integers, floats) if op == "DEQUANTIZE" else (floats, integers)
        result = model.call(op, [x], y.with_shape(1, 1, 3))
        model.output(result, model.call("SHAPE", [result], tensor(3, dtype="int32"), out_type="INT32"))

    return build
