"""Exceptions of the package, with location, reason and remedy."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace


class ConversionError(Exception):
    """A model was refused.

    ``str(error)``: a message for users. ``problems``: one entry per line of the message. ``exit_code``: the exit code
    of the command. ``fusions``: names of the fusions that were applied before the error.
    """

    exit_code = 1
    fusions: tuple[str, ...] = ()

    def __init__(self, message: str, problems: Sequence[Problem] = ()) -> None:
        self.message = message
        self.problems = tuple(problems)
        super().__init__("\n".join([message, *self._problem_lines()]))

    def _problem_lines(self) -> Iterator[str]:
        """Yield a line per problem.

        Problems with the same hint are adjacent, and the hint follows the last problem.
        """
        groups: dict[tuple[str, int], list[Problem]] = {}
        for number, problem in enumerate(self.problems):
            groups.setdefault((problem.hint, 0 if problem.hint else number), []).append(problem)
        for (hint, _), problems in groups.items():
            if len(problems) == 1:
                yield f"  {problems[0]}"
                continue
            yield from (f"  {replace(problem, hint='')}" for problem in problems)
            yield f"    hint to the {len(problems)} problems above: {hint}"


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
    """A field of the file that contradicts other fields."""


@dataclass(frozen=True)
class AttributedProblem(Problem):
    """A failure attributed to a pack, or to the converter.

    ``to_converter``: attributed to the converter. The file may still be the cause, if LiteRT refuses it too.
    """

    to_converter: bool = False


@dataclass(frozen=True)
class PackFailure(AttributedProblem):
    """Code of a pack that raised an exception or returned an invalid value.

    A Decline, a Refusal or a contradiction in the file is not a failure.
    """


@dataclass(frozen=True)
class NoHandler(Problem):
    """An operator that no pack converts; all such operators share their remedies."""


CONTRADICTION = "the file contradicts itself:"
REFUSED = "the model cannot be converted:"
DECLARATION_MISMATCH = "declarations of handlers do not match their operators:"


class InvalidModel(ConversionError):
    """The file is not a TFLite model, or its fields are inconsistent."""


class TooLarge(ConversionError):
    """The conversion exceeds a limit on memory, operators or nesting."""


class InternalError(ConversionError):
    """The converter failed outside of any pack's code."""


class UnsupportedOperator(ConversionError):
    """Operators have no handler, or their handler declines them."""


class HandlerError(ConversionError):
    """A handler failed, or returned a value that does not match its tensor."""


class TargetRefusal(ConversionError):
    """The target does not support tensors or operators of the model."""


class PackError(ConversionError):
    """An op pack could not be loaded, or two packs claim one operator."""


class NoSuchPart(InvalidModel):
    """A path names a model that the bundle lacks, or none of its several models."""

    exit_code = 2


class InvalidOnnx(ConversionError):
    """The model is not valid ONNX."""

    exit_code = 2


class UnsupportedOption(ConversionError):
    """Options are incompatible, or the target does not support them."""

    exit_code = 2


class SignaturesDiffer(UnsupportedOption):
    """Signatures cannot share one ONNX model because of ``reason``."""

    def __init__(self, reason: str, remedy: str = "convert each signature by its key") -> None:
        self.reason = reason
        super().__init__(f"--signature all: {reason}; {remedy}")


class OnnxTooOld(UnsupportedOption):
    """The installed package onnx lacks the opset that the model needs."""


class InvalidInputs(ConversionError):
    """Data for a verification or a benchmark does not match the model's inputs."""

    exit_code = 2


class VerificationError(ConversionError):
    """The converted model does not agree with the TFLite model."""

    exit_code = 3


class MismatchedModels(VerificationError):
    """The ONNX model was not converted from the TFLite model."""

    exit_code = 2


class InconclusiveError(VerificationError):
    """The TFLite model cannot be run, so a conversion cannot be compared with it."""

    exit_code = 4


class MissingExtra(ConversionError):
    """A package that an extra installs is missing."""

    exit_code = 2

    def __init__(self, package: str, extra: str = "verify") -> None:
        self.package, self.extra = package, extra
        packages = " ".join(_packages_of(extra))
        alternative = f", or its packages: pip install {packages}" if packages else ""
        super().__init__(f'{package} is not installed: pip install "onnx-tflite-plugin[{extra}]"{alternative}')


def _packages_of(extra: str) -> Iterator[str]:
    """Yield the names of the packages that an extra installs, from installed metadata."""
    from importlib.metadata import PackageNotFoundError, requires

    with suppress(PackageNotFoundError):
        for requirement in requires("onnx-tflite-plugin") or ():
            if re.search(rf"extra == ['\"]{extra}['\"]", requirement):
                yield re.split(r"[^\w.-]", requirement, maxsplit=1)[0]


def describe_signal(number: int) -> str:
    """Return a signal as text: ``signal 9 (SIGKILL, usually out of memory)``."""
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = "unknown"
    return f"signal {number} ({name}{', usually out of memory' if name == 'SIGKILL' else ''})"
