"""Provenance of the page: names of files, versions, processor and date."""

from __future__ import annotations

import time
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from onnx_tflite_plugin.errors import ConversionError
from onnx_tflite_plugin.verify.runtimes.processor import describe_processor

if TYPE_CHECKING:
    from onnx import ModelProto

    from onnx_tflite_plugin.report import Report

_RUNTIMES = {
    "ONNX Runtime": ("onnxruntime", "onnxruntime-gpu", "onnxruntime-directml"),
    "LiteRT": ("ai-edge-litert", "ai-edge-litert-nightly"),
}
"""Names of the distributions of each runtime; they install the same package."""


def describe_provenance(
    onnx: ModelProto, onnx_name: str, report: Report | None, *, uses_runtimes: bool
) -> dict[str, str]:
    """Return label -> known fact about the origin of the page.

    ``report``: the report of the conversion, if available. ``uses_runtimes``: the page has results of both runtimes.
    """
    facts = {
        "ONNX file": onnx_name,
        "converted by": f"{onnx.producer_name} {onnx.producer_version}".strip(),
        "target": report.target if report else "",
        "runtimes": _runtimes() if uses_runtimes else "",
        "processor": _processor(onnx) if uses_runtimes else "",
        "date": time.strftime("%Y-%m-%d %H:%M"),
    }
    return {label: text for label, text in facts.items() if text}


def _runtimes() -> str:
    versions = ((name, _version(distributions)) for name, distributions in _RUNTIMES.items())
    return ", ".join(f"{name} {number}" for name, number in versions if number)


def _version(distributions: tuple[str, ...]) -> str:
    """Return the version of the first installed distribution; empty if there is none."""
    for distribution in distributions:
        try:
            return version(distribution)
        except PackageNotFoundError:
            continue
    return ""


def _processor(onnx: ModelProto) -> str:
    try:
        return describe_processor(onnx.graph)
    except ConversionError:
        return ""
