"""Lines of the summary about sizes of files and constants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from onnx_tflite_plugin.cli.output import Row, format_seconds, format_size

if TYPE_CHECKING:
    from onnx_tflite_plugin.report import Report

_MIN_GROWTH, _MIN_GROWN_BYTES = 1.5, 100_000  # relative and absolute growth of a file above which it is printed
_MAX_DTYPES = 3  # maximum number of dtypes whose constants are listed


def files_row(files: Sequence[Path], seconds: float, source_bytes: int) -> Row:
    """Return the row with the written files, and the source's size if they are larger."""
    sizes = [file.stat().st_size for file in files]
    origin = f", from {format_size(source_bytes)}" if has_grown(files, source_bytes) else ""
    file_texts = " and ".join(f"{file} ({format_size(size)}{origin})" for file, size in zip(files, sizes, strict=True))
    return Row("wrote", [f"{file_texts}, converted in {format_seconds(seconds)}"], "bold green")


def has_grown(files: Sequence[Path], source_bytes: int) -> bool:
    """True if the written files are much larger than the source."""
    limit = max(_MIN_GROWTH * source_bytes, source_bytes + _MIN_GROWN_BYTES)
    return source_bytes > 0 and sum(file.stat().st_size for file in files) > limit


def constant_lines(report: Report) -> list[str]:
    """Return a line with the constants' bytes by dtype, in the file and in the model."""
    from onnx_tflite_plugin.report import SPARSE  # imports numpy, which the help must not

    sides = (("TFLite", report.file_constants), ("ONNX", report.constants))
    texts = [f"{name}: {_format_bytes(sizes)}" for name, sizes in sides if sizes]
    if any(dtype.startswith(SPARSE) for dtype in report.file_constants):
        texts.append("ONNX stores the zeros of sparse constants too")
    return ["; ".join(texts)] if texts else []


def _format_bytes(sizes: Mapping[str, int]) -> str:
    """Return the three largest sizes with their dtypes, and the sum of the rest."""
    largest_first = sorted(sizes.items(), key=lambda item: -item[1])
    texts = [f"{format_size(size)} {dtype}" for dtype, size in largest_first[:_MAX_DTYPES]]
    if remaining_bytes := sum(size for _, size in largest_first[_MAX_DTYPES:]):
        texts.append(f"{format_size(remaining_bytes)} of other dtypes")
    return ", ".join(texts)
