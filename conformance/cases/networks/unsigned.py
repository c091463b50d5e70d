"""Dynamic sizes without shape_signature: tools insert operators with the sizes that they saw."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from conformance.case import Case
from conformance.models import Net, Spec, net, tensor


def cases() -> Iterator[Case]:
    for dtype in ("int8", "uint8", "int16"):
        for op in ("DEQUANTIZE", "QUANTIZE"):
            yield net(op, f"{dtype}, dynamic dimensions stored as 1", computed_sizes(op, dtype), dtype=dtype)


def computed_sizes(op: str, dtype: str) -> Callable[[Net], None]:
    """Return a model in which downstream operators compute their sizes."""

    def build(model: Net) -> None:
        integers, floats = tensor(None, None, 3, dtype=dtype, zero_point=0), Spec((None, None, 3))
        x, y = (integers, floats) if op == "DEQUANTIZE" else (floats, integers)
        written = model.call(op, [x], y.with_shape(1, 1, 3))
        model.output(written, model.call("SHAPE", [written], tensor(3, dtype="int32"), out_type="INT32"))

    return build
