"""Names of ONNX operators in the traits of a target."""

from __future__ import annotations

from functools import cache

from onnx_tflite_plugin.api.target import Target
from onnx_tflite_plugin.checked import did_you_mean

_BY_OPERATOR = (
    "no_integer_kernel",
    "dequantized_operators",
    "wider_dtypes",
    "fast_operators",
    "channel_blocked_operators",
    "last_axes_only",
)
_TRAITS = (*_BY_OPERATOR, "no_int8_moves", "wrapping_int8_operators", "missing_operators")


def find_unknown_operator(target: Target) -> str:
    """Return a message about a trait that names an unknown ONNX operator; else "".

    A target with domains of its own may name their operators.
    """
    if target.domains:
        return ""
    for trait in _TRAITS:
        for name in sorted(getattr(target, trait)):
            if name not in ("*", "") and name.partition("/")[0] not in _onnx_operators():
                return f"its trait {trait} names {name!r}, which is no operator of ONNX{did_you_mean(name, _onnx_operators())}"
    return ""


@cache
def _onnx_operators() -> frozenset[str]:
    from onnx.defs import get_all_schemas

    return frozenset(schema.name for schema in get_all_schemas() if not schema.domain)
