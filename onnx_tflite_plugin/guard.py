"""What others wrote is run here, so that whatever it raises is named: pack, function, file and line.

A pack must not end a conversion that does without it, nor be blamed on another; what a built-in handler raises is
treated the same.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType, MethodType, ModuleType

from onnx_tflite_plugin.errors import Blamed, InvalidModel, Problem

BUILTIN = "onnx-tflite-plugin"
INLINE = "inline"  # handlers given to a host as objects
DEBUG = "ONNX_TFLITE_PLUGIN_DEBUG"
_LONGEST = 400


class Terminated(SystemExit):
    """The process was told to end: no pack's doing."""


class Mismatch(TypeError):
    """A pack's function returned something else than it must; the host says so, so its own line is of no interest."""


class Failed(Exception):
    """What a pack wrote failed. ``reason``: which function of which pack, how, and where; ``__cause__``: its exception."""

    def __init__(self, pack: str, reason: str) -> None:
        self.pack, self.reason = pack, reason
        super().__init__(reason)

    @property
    def hint(self) -> str:
        """What the user can do."""
        if self.pack == BUILTIN:
            return "a bug of the converter: please report it with the model, or what `inspect --json` says of it"
        return "" if self.pack == INLINE else f"--block {self.pack} leaves it out; report it to its authors"

    def problem(self, where: str) -> Problem:
        return Blamed(where, self.reason, self.hint, self.pack == BUILTIN)


@contextmanager
def guarded(
    function: str, pack: str, by: object, at: str = "", passes: tuple[type[Exception], ...] = ()
) -> Iterator[None]:
    """Whatever is raised inside is raised as :class:`Failed`, but for the user's wish to end, and for what is wrong with the
    file, as constants say that cannot be decoded.

    ``by``: the function, module or object that belongs to the pack, or its module's name. ``at``: the operator it is
    called for, which an interruption tells. ``passes``: exceptions by which the function answers, raised as they are.
    """
    try:
        yield
    except passes:
        raise
    except (Failed, Terminated, GeneratorExit, InvalidModel):
        raise
    except KeyboardInterrupt as interruption:
        interruption.add_note(f"in {function} of {pack}{f', at {at}' if at else ''}")
        raise
    except BaseException as error:
        debug(error)
        place = _place(error, by)
        raise Failed(pack, f"{function} of {pack} failed: {raised(error)}{place and f', at {place}'}") from error


def raised(error: BaseException) -> str:
    """Type and text of an exception on one line; its text may itself fail."""
    try:
        text = " ".join(str(error).split())
    except Exception as second:
        text = f"(its text raises {type(second).__name__})"
    if len(text) > _LONGEST:
        text = text[:_LONGEST] + "…"
    if isinstance(error, Mismatch):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def raised_at(error: BaseException) -> str:
    """The same with the function, file and line that raised it."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{raised(error)}, in {frame.name}, {frame.filename}:{frame.lineno}"


def debugging() -> bool:
    return os.environ.get(DEBUG, "0") not in ("", "0")


def debug(error: BaseException) -> None:
    """The traceback on stderr, where it is asked for."""
    if debugging():
        traceback.print_exception(error)


# --- where ------------------------------------------------------------------------------------


def _place(error: BaseException, by: object) -> str:
    """``file:line in function``: the deepest in the pack's own code, else where its function is, else the deepest of all."""
    if isinstance(error, Mismatch):
        return definition(by)
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    package = _module(by).partition(".")[0]
    deepest = own = None
    for frame, line in traceback.walk_tb(error.__traceback__):
        deepest = frame, line
        if package and _package(frame) == package:
            own = deepest
    if own is None and (isinstance(by, str) or definition(by)):
        return definition(by)  # of an entry point nothing: what failed is the import system's
    shown = own or deepest
    return f"{shown[0].f_code.co_filename}:{shown[1]} in {shown[0].f_code.co_name}" if shown else ""


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def _module(by: object) -> str:
    if isinstance(by, str):
        return by
    if isinstance(by, ModuleType):
        return by.__name__
    return str(getattr(_innermost(by), "__module__", None) or type(by).__module__)


def definition(by: object) -> str:
    """Where a function was written, empty for what is none."""
    code = getattr(_innermost(by), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno} in {code.co_name}" if code else ""


def _innermost(by: object) -> object:
    """The function inside a partial or a bound method."""
    while isinstance(by, partial | MethodType):
        by = by.func if isinstance(by, partial) else by.__func__
    return by
