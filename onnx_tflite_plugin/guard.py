"""Guard around code of packs, which attributes exceptions to a function.

A message names pack, function, file and line. A pack must not end a conversion that does not use it. Exceptions of
built-in handlers are treated in the same way.
"""

from __future__ import annotations

import os
import re
import sys
import traceback
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType, MethodType, ModuleType

from onnx_tflite_plugin.checked import did_you_mean
from onnx_tflite_plugin.errors import InvalidModel, PackFailure, Problem, VerificationError, describe_signal

BUILTIN = "onnx-tflite-plugin"
INLINE = "inline"  # pack of handlers that are passed to a host as objects
DEBUG = "ONNX_TFLITE_PLUGIN_DEBUG"
TRACEBACK_HINT = f"{DEBUG}=1 shows the traceback"
_MAX_ERROR_LENGTH = 400
_MISSING_NAME = re.compile(r"cannot import name '(\w+)' from '([\w.]+)'")


class Terminated(SystemExit):
    """A signal from outside ended the process. ``status``: 128 + its number."""

    def __init__(self, status: int) -> None:
        self.status = status
        super().__init__(status)

    def __str__(self) -> str:
        return f"terminated by {describe_signal(self.status - 128)}"


class Mismatch(TypeError):
    """A pack's function returned an invalid value; its definition is reported."""


class WrongResult(Mismatch):
    """A pack's function returned an invalid value; its only ``return`` is reported."""


class Failed(Exception):
    """Code of a pack failed. ``reason``: function, pack, error and location."""

    def __init__(self, pack: str, reason: str) -> None:
        self.pack, self.reason = pack, reason
        super().__init__(reason)

    @property
    def hint(self) -> str:
        """Return the remedy for the user."""
        if self.pack == BUILTIN:
            return "a bug in the converter: please report it with the model, or with the output of `inspect --json`"
        remedy = f"--block {self.pack} disables the pack; if it is not yours, report the error to its authors"
        return "; ".join(filter(None, ("" if self.pack == INLINE else remedy, self.traceback_hint)))

    @property
    def traceback_hint(self) -> str:
        """Return how to see the traceback; empty if there is none or it was printed."""
        has_traceback = self.__cause__ is not None and not isinstance(self.__cause__, Mismatch)
        return TRACEBACK_HINT if has_traceback and not is_debugging() else ""

    def problem(self, where: str) -> Problem:
        """Return the failure as a problem at ``where``."""
        return PackFailure(where, self.reason, self.hint, self.pack == BUILTIN)


@contextmanager
def attribute_errors(
    function: str, pack: str, origin: object, at: str = "", expected: tuple[type[Exception], ...] = ()
) -> Iterator[None]:
    """Convert exceptions to :class:`Failed`, except interruptions and InvalidModel.

    ``origin``: the function, module or object of the pack, or the name of its module. ``at``: the operator being
    processed. An interruption gets a note with pack, function and operator, unless the pack is built in. ``expected``:
    exceptions that are part of the function's interface; they are raised unchanged.
    """
    try:
        yield
    except expected:
        raise
    except (Failed, Terminated, GeneratorExit, InvalidModel):
        raise
    except KeyboardInterrupt as interruption:
        if pack != BUILTIN:  # the pack may hang
            interruption.add_note(f"in {function} of {pack}{f', at {at}' if at else ''}")
        raise
    except BaseException as error:
        debug(error)
        location = _error_location(error, origin)
        raise Failed(
            pack, f"{function}{of_pack(pack)} failed: {format_error(error)}{location and f', at {location}'}"
        ) from error


def of_pack(pack: str) -> str:
    """Return `` of <pack>`` for messages; empty for a handler passed as an object."""
    return "" if pack == INLINE else f" of {pack}"


class PackSkipped(Failed):
    """A pack is skipped because of its requirements; blocking it changes nothing."""

    @property
    def hint(self) -> str:
        return ""


def describe_decline(pack: str, reason: str) -> str:
    """Return why a pack declined an operator, and which pack if it is not built in."""
    return reason if pack == BUILTIN else f"declined by {pack}: {reason}"


def format_error(error: BaseException) -> str:
    """Return type and text of an exception on one line.

    The type is omitted for errors of this project. ``str(error)`` may fail.
    """
    try:
        text = " ".join(str(error).split())
    except Exception as text_error:
        text = f"(its text raises {type(text_error).__name__})"
    if isinstance(error, ImportError) and (missing := _MISSING_NAME.match(text)) and missing[2] in sys.modules:
        text = f"module {missing[2]!r} has no {missing[1]!r}{did_you_mean(missing[1], dir(sys.modules[missing[2]]))}"
    if len(text) > _MAX_ERROR_LENGTH:
        text = text[:_MAX_ERROR_LENGTH] + "…"
    if isinstance(error, Mismatch | Failed | VerificationError) and text:
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def format_error_outside(error: BaseException, packages: Collection[str]) -> str:
    """Return an exception as text, with its deepest frame outside ``packages``."""
    outside_frame = None
    for frame, line in traceback.walk_tb(error.__traceback__):
        if _package_name(frame) not in packages:
            outside_frame = frame, line
    location = _format_frame(outside_frame)
    return f"{format_error(error)}{location and f', at {location}'}"


def format_error_location(error: BaseException) -> str:
    """Return type and text of an exception, with its function, file and line."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{format_error(error)}, in {frame.name}, {frame.filename}:{frame.lineno}"


def is_debugging() -> bool:
    """True if tracebacks are requested by the environment variable."""
    return os.environ.get(DEBUG, "0") not in ("", "0")


def debug(error: BaseException) -> None:
    """Print the traceback to stderr, if requested."""
    if is_debugging():
        traceback.print_exception(error)


# --- locations --------------------------------------------------------------------------------


def _error_location(error: BaseException, origin: object) -> str:
    """Return ``file:line in function`` of an error.

    The location is the first of these that exists: the deepest frame in the pack's code, the definition of ``origin``,
    the deepest frame.
    """
    if isinstance(error, WrongResult):
        return result_location(origin)
    if isinstance(error, Mismatch):
        return definition_location(origin)
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    in_pack, deepest = _deepest_frames(error, origin)
    if in_pack is None and (isinstance(origin, str) or definition_location(origin)):
        return definition_location(origin)  # empty for an entry point, whose failing frame belongs to the import system
    return _format_frame(in_pack or deepest)


def caller_in_pack(error: BaseException, origin: object) -> str:
    """Return the location of the pack's call that failed; empty if the pack raised."""
    in_pack, deepest = _deepest_frames(error, origin)
    return "" if in_pack == deepest else _format_frame(in_pack)


Location = tuple[FrameType, int]


def _deepest_frames(error: BaseException, origin: object) -> tuple[Location | None, Location | None]:
    """Return the deepest frame of an error in the pack's code, and the deepest of all."""
    package = _module_name(origin).partition(".")[0]
    deepest = in_pack = None
    for frame, line in traceback.walk_tb(error.__traceback__):
        deepest = frame, line
        if package and _package_name(frame) == package:
            in_pack = deepest
    return in_pack, deepest


def _format_frame(location: Location | None) -> str:
    return f"{location[0].f_code.co_filename}:{location[1]} in {location[0].f_code.co_name}" if location else ""


def _package_name(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def _module_name(origin: object) -> str:
    if isinstance(origin, str):
        return origin
    if isinstance(origin, ModuleType):
        return origin.__name__
    return str(getattr(_innermost(origin), "__module__", None) or type(origin).__module__)


def definition_location(origin: object) -> str:
    """Return the location where a function is defined; empty for other objects."""
    code = getattr(_innermost(origin), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno} in {code.co_name}" if code else ""


def result_location(origin: object) -> str:
    """Return the location of a function's only return, else of its definition."""
    return _return_statement(origin) or definition_location(origin)


def _return_statement(origin: object) -> str:
    """Return the location of a function's only return statement; otherwise empty."""
    from dis import get_instructions

    code = getattr(_innermost(origin), "__code__", None)
    if code is None:
        return ""
    returns = (step for step in get_instructions(code) if step.opname in ("RETURN_VALUE", "RETURN_CONST"))
    lines = {step.positions and step.positions.lineno for step in returns}
    line = lines.pop() if len(lines) == 1 else None
    return "" if line is None else f"{code.co_filename}:{line} in {code.co_name}"


def _innermost(origin: object) -> object:
    """Return the function inside a partial or a bound method."""
    while isinstance(origin, partial | MethodType):
        origin = origin.func if isinstance(origin, partial) else origin.__func__
    return origin
