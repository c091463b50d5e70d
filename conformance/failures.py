"""Failures of a case, grouped by message, and the description of an exception."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

from conformance.variants import Variant
from onnx_tflite_plugin.errors import AttributedProblem, ConversionError, InternalError, PackFailure
from onnx_tflite_plugin.guard import TRACEBACK_HINT, Failed, format_error, format_error_outside, is_debugging

_SKIPPED_PACKAGES = ("conformance", "onnx_tflite_plugin", "numpy", "onnx", "onnx_ir", "flatbuffers")
"""Packages whose traceback frames are skipped, because the error is in the code of the pack's author."""


class Failures:
    """Failure messages of a case, each with the variants in which it occurs."""

    def __init__(self) -> None:
        self._by_text: dict[str, list[str]] = {}

    def add(self, variant: Variant, *texts: str) -> None:
        for text in dict.fromkeys(texts):
            variants = self._by_text.setdefault(text, [])
            variants += [] if variant.text in variants else [variant.text]

    def followed_by(self, later: Failures) -> Failures:
        """Return these failures and then ``later``."""
        joined = Failures()
        joined._by_text = {**self._by_text, **later._by_text}
        return joined

    @property
    def status(self) -> Literal["passed", "failed"]:
        return "failed" if self._by_text else "passed"

    @property
    def lines(self) -> list[str]:
        return [f"{', '.join(variants)}: {text}" for text, variants in self._by_text.items()]


def describe_case_error(error: BaseException) -> str:
    """Describe an exception that a case, its reference or its kernel raised.

    The text contains the location in the author's code.
    """
    if isinstance(error.__cause__, Failed):  # raised by a kernel; the message has the location
        hint = error.__cause__.traceback_hint
        return format_error(error) + (f" ({hint})" if hint else "")
    if isinstance(error, Failed):
        return str(error) + (f" ({error.traceback_hint})" if error.traceback_hint else "")
    if isinstance(error, ConversionError):
        return format_error(error)
    hint = "" if is_debugging() else f" ({TRACEBACK_HINT})"
    return f"{format_error_outside(error, _SKIPPED_PACKAGES)}{hint}"


def format_on_one_line(error: ConversionError) -> str:
    """Return an error on one line, without hints on how to avoid a faulty pack.

    The reader is the author of that pack.
    """
    problems = [
        replace(problem, hint=TRACEBACK_HINT if TRACEBACK_HINT in problem.hint else "")
        if isinstance(problem, AttributedProblem) and not problem.to_converter
        else problem
        for problem in error.problems
    ]
    return " ".join(" ".join([error.message, *map(str, problems)]).split())


def describe_wrong_refusal(error: ConversionError, expected: str) -> Iterator[str]:
    """Yield a message if an error is not a refusal with the expected text.

    An exception in the code of a pack or of the converter is not a refusal.
    """
    problems = [problem for problem in error.problems if not isinstance(problem, PackFailure)]
    if expected in str(ConversionError(error.message, problems)) and not isinstance(error, InternalError):
        return
    reason = (
        f"the text {expected!r} must come from a Decline, a Refusal or a check of the converter, but an exception in the code contains it"
        if expected in str(error)
        else f"the model was refused, but without the expected text {expected!r}"
    )
    yield f"{reason}: {format_on_one_line(error)}"
