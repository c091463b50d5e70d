"""Exceptions of the package, with place, reason and remedy."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace


class ConversionError(Exception):
    """A model was refused.

    ``str(error)``: a message for users. ``problems``: one entry per line of the message. ``exit_code``: the exit code
    of the command. ``fusions``: fusions that had been applied when it was raised.
    """

    exit_code = 1
    fusions: tuple[str, ...] = ()

    def __init__(self, message: str, problems: Sequence[Problem] = ()) -> None:
        self.message = message
        self.problems = tuple(problems)
        super().__init__("\n".join([message, *self._problem_lines()]))

    def _problem_lines(self) -> Iterator[str]:
        """Yield a line per problem; a hint that several share follows the last of them."""
        counts = Counter(problem.hint for problem in self.problems if problem.hint)
        remaining = counts.copy()
        for problem in self.problems:
            if counts[problem.hint] < 2:
                yield f"  {problem}"
                continue
            yield f"  {replace(problem, hint='')}"
            remaining[problem.hint] -= 1
            if not remaining[problem.hint]:
                yield f"    hint to these {counts[problem.hint]}: {problem.hint}"


@dataclass(frozen=True)
class Problem:
    """One reason for a refusal.

    ``where``: the operator, tensor or field. ``hint``: the remedy.
    """

    where: str
    reason: str
    hint: str = ""

    def __str__(self) -> str:
        where = f"{self.where}: " if self.where else ""
        return f"{where}{self.reason}" + (f" ({self.hint})" if self.hint else "")


@dataclass(frozen=True)
class Contradiction(Problem):
    """An error in the file: a field that is inconsistent with the rest."""


@dataclass(frozen=True)
class AttributedProblem(Problem):
    """A failure attributed to a pack, or to the converter.

    ``to_converter``: attributed to the converter; a file that LiteRT refuses too may be the cause.
    """

    to_converter: bool = False


@dataclass(frozen=True)
class NoHandler(Problem):
    """An operator that no pack converts. All such operators of a model share remedies."""


CONTRADICTION = "the file contradicts itself:"
REFUSED = "the model cannot be converted:"
UNFIT = "declarations of handlers do not match their operators:"


class InvalidModel(ConversionError):
    """The file is not a TFLite model, or its fields are inconsistent."""


class TooLarge(ConversionError):
    """The conversion exceeds a limit on memory, on the number of operators or on nesting."""


class InternalError(ConversionError):
    """The converter failed outside of any pack's code."""


class UnsupportedOperator(ConversionError):
    """Operators without a handler, or declined by it."""


class HandlerError(ConversionError):
    """A handler failed, or returned a value that does not match its tensor."""


class TargetRefusal(ConversionError):
    """Tensors or operators that the target does not support."""


class PackError(ConversionError):
    """An op pack could not be loaded, or two packs claim one operator."""


class NoSuchPart(InvalidModel):
    """A path names no model of a bundle, or does not say which of several."""

    exit_code = 2


class InvalidOnnx(ConversionError):
    """The given model is not valid ONNX."""

    exit_code = 2


class UnsupportedOption(ConversionError):
    """Options that are incompatible, or not supported by the target."""

    exit_code = 2


class SignaturesDiffer(UnsupportedOption):
    """Signatures that cannot be one model, because of ``reason``."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"--signature all: {reason}; convert the signatures one by one, each by its key")


class OnnxTooOld(UnsupportedOption):
    """The installed package onnx lacks the opset that the model needs."""


class InvalidInputs(ConversionError):
    """Data for a verification or a benchmark that does not match the model's inputs."""

    exit_code = 2


class VerificationError(ConversionError):
    """The converted model does not agree with the original."""

    exit_code = 3


class MismatchedModels(VerificationError):
    """The ONNX model is not the conversion of the TFLite model."""

    exit_code = 2


class InconclusiveError(VerificationError):
    """The TFLite model cannot be run, so a conversion cannot be compared with it."""

    exit_code = 4


class MissingExtra(ConversionError):
    """A package of an extra is not installed."""

    exit_code = 2

    def __init__(self, package: str, extra: str = "verify") -> None:
        self.package, self.extra = package, extra
        packages = " ".join(_packages_of(extra))
        alternative = f", or its packages: pip install {packages}" if packages else ""
        super().__init__(f'{package} is not installed: pip install "onnx-tflite-plugin[{extra}]"{alternative}')


def _packages_of(extra: str) -> Iterator[str]:
    """Yield the names of the packages of an extra, by the installed metadata."""
    from importlib.metadata import PackageNotFoundError, requires

    with suppress(PackageNotFoundError):
        for requirement in requires("onnx-tflite-plugin") or ():
            if re.search(rf"extra == ['\"]{extra}['\"]", requirement):
                yield re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
