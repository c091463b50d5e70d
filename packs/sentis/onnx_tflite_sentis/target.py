"""Target for Unity Sentis: ``portable`` with the operators that Sentis supports.

The default opset is 13; Unity documents opsets 7 to 15.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import onnx

from onnx_tflite_plugin.api import Target, builtin_target

OPERATORS = Path(__file__).with_name("operators.txt")
"""Supported ONNX operators, one per line; comments at the top name the source."""

REMEDIES = {
    "If": "Sentis has no branches; --outputs leaves the operator out",
    "Loop": "Sentis has no loops; --unroll N unrolls those of constant length",
    "Scan": "Sentis has no loops; --unroll N unrolls those of constant length",
    "QuantizeLinear": "use --quantization float, the default of this target",
    "DequantizeLinear": "use --quantization float, the default of this target",
}


def supported_operators() -> frozenset[str]:
    """Return the names of the operators that Sentis supports."""
    lines = OPERATORS.read_text(encoding="utf-8").split("\n")
    return frozenset(line for line in lines if line and not line.startswith("#"))


def missing_operators() -> dict[str, str]:
    """Return the ONNX operators that Sentis lacks, with a remedy or an empty text."""
    names = {schema.name for schema in onnx.defs.get_all_schemas() if schema.domain == ""}
    return {name: REMEDIES.get(name, "") for name in sorted(names - supported_operators())}


SENTIS: Target = replace(
    builtin_target("portable"),
    name="sentis",
    opsets=(11, 13, 15),
    missing_operators=missing_operators(),
)
