"""Measure the largest error of correct submodels for each criterion.

``python -m tests.qa.criteria FILES``: TFLite files with correct conversions. Errors are those of the best match in LiteRT.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import click

import onnx_tflite_plugin as otp
from onnx_tflite_plugin.errors import ConversionError
from onnx_tflite_plugin.source.model import Array
from onnx_tflite_plugin.verify import Comparison, Tolerance, criteria
from onnx_tflite_plugin.verify.submodels import segment_comparer

FLOATS = {criteria.OPERATOR: "OPERATOR", criteria.GROUP: "GROUP", criteria.RECURRENT: "RECURRENT"}


@dataclass
class CriterionErrors:
    """The largest error under a criterion, with its file and tensor.

    ``by_floor``: number of submodels that agree only because of the absolute error that rounding of sums allows.
    """

    allowed: float
    error: float = 0.0
    where: str = ""
    submodels: int = 0
    by_floor: int = 0

    def add(self, error: float, where: str) -> None:
        self.submodels += 1
        if error > self.error:
            self.error, self.where = error, where


@dataclass
class Survey:
    """Errors of all submodels that agree. ``file``: the current file."""

    file: str = ""
    rows: dict[str, CriterionErrors] = field(default_factory=dict)

    def record(self, comparison: Comparison, tolerance: Tolerance, *, by_floor: bool) -> None:
        where = f"{self.file}: {comparison.name}"
        if comparison.unit == "range" and tolerance.of_range in FLOATS:
            row = self._row(FLOATS[tolerance.of_range], tolerance.of_range)
        elif comparison.unit == "step" and tolerance.steps == criteria.STEPS:
            row = self._row("STEPS", criteria.STEPS)
        elif comparison.unit == "step":
            row = self._row("GROUP_MEAN", criteria.GROUP_MEAN)
        else:
            return
        if by_floor:
            row.submodels += 1
            row.by_floor += 1
        else:
            row.add(
                comparison.mean_error
                if tolerance.steps > criteria.STEPS and comparison.unit == "step"
                else comparison.max_error,
                where,
            )

    def _row(self, name: str, allowed: float) -> CriterionErrors:
        return self.rows.setdefault(name, CriterionErrors(allowed))


@contextmanager
def record_comparisons(survey: Survey) -> Iterator[None]:
    """Record every comparison of a submodel that agrees."""
    compare = segment_comparer.compare

    def compare_and_record(
        name: str, actual: Sequence[Array], expected: Any, tolerance: Tolerance, **options: Any
    ) -> Comparison:
        comparison = compare(name, actual, expected, tolerance, **options)
        if comparison.ok:
            survey.record(comparison, tolerance, by_floor=not compare(name, actual, expected, tolerance).ok)
        return comparison

    with mock.patch.object(segment_comparer, "compare", compare_and_record):
        yield


def measure(files: Sequence[Path]) -> dict[str, CriterionErrors]:
    """Return the largest error by criterion; report files that fail."""
    survey = Survey()
    with record_comparisons(survey):
        for survey.file, path in ((path.name, path) for path in files):
            try:
                otp.verify(path, otp.convert(path))
            except ConversionError as error:
                click.echo(f"{path}: {str(error).splitlines()[0]}", err=True)
    return dict(sorted(survey.rows.items()))


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
def main(files: Sequence[Path]) -> None:
    """Print the largest error of correct submodels next to each criterion."""
    click.echo(f"{'criterion':12} {'allowed':>9} {'largest':>9} {'submodels':>9} {'by floor':>9}  where")
    for name, row in measure(files).items():
        click.echo(f"{name:12} {row.allowed:9.2g} {row.error:9.2g} {row.submodels:9} {row.by_floor:9}  {row.where}")


if __name__ == "__main__":
    main()
