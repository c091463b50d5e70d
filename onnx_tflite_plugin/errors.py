"""The one exception family: what failed, where, why, and what to do next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class ConversionError(Exception):
    """A model was refused. ``str(error)`` is fit for a user; ``problems`` holds one line each.

    ``exit_code``: what the command exits with. ``fusions``: those that had applied when it was raised.
    """

    exit_code = 1
    fusions: tuple[str, ...] = ()

    def __init__(self, message: str, problems: Sequence[Problem] = ()) -> None:
        self.message = message
        self.problems = tuple(problems)
        super().__init__("\n".join([message, *(f"  {problem}" for problem in self.problems)]))


@dataclass(frozen=True)
class Problem:
    """One reason for a refusal: ``where`` names operator, tensor or field; ``hint`` is the next step."""

    where: str
    reason: str
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.where}: {self.reason}" + (f" ({self.hint})" if self.hint else "")


@dataclass(frozen=True)
class Contradiction(Problem):
    """The file's own fault: a field that does not go with the rest."""


@dataclass(frozen=True)
class Blamed(Problem):
    """A failure that is taken to be a pack's, or the converter's own; of ``ours`` a file that LiteRT refuses may be the reason."""

    ours: bool = False


CONTRADICTION = "the file contradicts itself:"
REFUSED = "the model cannot be converted:"
UNFIT = "what handlers declare does not fit their operators:"


class InvalidModel(ConversionError):
    """The file is not a TFLite model, or one of its fields contradicts the rest."""


class TooLarge(ConversionError):
    """The conversion would take more memory than it may, or calls more deeply nested."""


class InternalError(ConversionError):
    """The converter failed where no pack's code was running."""


class UnsupportedOperator(ConversionError):
    """Operators nobody handles, or that their handler declined."""


class HandlerError(ConversionError):
    """A handler failed, or returned something that does not fit the tensor it stands for."""


class TargetRefusal(ConversionError):
    """Tensors or operators that the target's rules exclude."""


class PackError(ConversionError):
    """An op pack could not be loaded, or two packs claim the same operator."""


class InvalidOnnx(ConversionError):
    """What was given as the converted model is not ONNX."""

    exit_code = 2


class UnsupportedOption(ConversionError):
    """Options that do not go together, or that the target cannot honour."""

    exit_code = 2


class OnnxTooOld(UnsupportedOption):
    """The installed package onnx does not have the opset that the model needs."""


class InvalidInputs(ConversionError):
    """Data given for a verification or a benchmark that does not fit the model's inputs."""

    exit_code = 2


class VerificationError(ConversionError):
    """The converted model does not compute what the original computes."""

    exit_code = 3


class MissingExtra(ConversionError):
    """A package that only an extra brings is not installed."""

    exit_code = 2

    def __init__(self, package: str, extra: str = "verify") -> None:
        self.package, self.extra = package, extra
        super().__init__(f'{package} is not installed: pip install "onnx-tflite-plugin[{extra}]"')
