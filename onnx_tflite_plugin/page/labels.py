"""Which TFLite operator a node of the ONNX model is named after."""

from __future__ import annotations

import re

_LABEL = re.compile(r"(?:^|\W)op(\d+)/")


def operator_of(name: str) -> int | None:
    """The operator of a node of the main graph, or of what ONNX Runtime made of it; the first where there are several."""
    match = _LABEL.search(name)
    return int(match[1]) if match else None
