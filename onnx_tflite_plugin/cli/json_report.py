"""A conversion and its verification as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onnx_tflite_plugin.conversion import Conversion
    from onnx_tflite_plugin.verify import Verification


def report_json(conversion: Conversion, model: Path, files: Sequence[Path], seconds: float) -> dict[str, Any]:
    """Return the report and the verification of a conversion as JSON."""
    return {
        "model": str(model),
        "output": str(files[0]),
        "files": [{"path": str(file), "bytes": file.stat().st_size} for file in files],
        "seconds": round(seconds, 3),
        "verification_seconds": round(conversion.verification_seconds, 3),
        **conversion.report.as_dict(),
        "snippet": conversion.snippet(str(files[0])),
        "verification": None if conversion.verification is None else verification_json(conversion.verification),
    }


def verification_json(verification: Verification) -> dict[str, Any]:
    """Return a verification with its verdicts as JSON."""
    diverging = verification.diverging
    return {
        "ok": verification.ok,
        "verdict": verification.verdict,
        "reasons": verification.reasons,
        "kernels": verification.kernels,
        "runs": verification.runs,
        "operators": verification.operators,
        "processor": verification.processor,
        "outputs": [_comparison(comparison) for comparison in verification.comparisons],
        "diverging": None
        if diverging is None
        else {
            "tensor": diverging.tensor.index,
            "name": diverging.tensor.name,
            "operator": diverging.operator.index,
            "code": diverging.operator.code,
            "value": diverging.value,
            **_comparison(diverging.comparison),
        },
        "end_to_end": verification.end_to_end,
        "notes": verification.notes,
        "text": verification.text,
    }


def _comparison(comparison: Any) -> dict[str, Any]:
    from dataclasses import asdict

    return {**asdict(comparison), "ok": comparison.ok, "text": comparison.text}
