"""TFLite operators that ONNX nodes are named after."""

from __future__ import annotations

import re

_LABEL = re.compile(r"(?:^|\W)op(\d+)/")


def operator_of(name: str) -> int | None:
    """Return the operator index of a node of the main graph, or of a node that ONNX Runtime fused; the first of several."""
    match = _LABEL.search(name)
    return int(match[1]) if match else None
