"""A pack's failure is reported in one line, with its location in the pack."""

from __future__ import annotations

import json
import os
from functools import partial
from importlib import import_module
from types import MethodType
from typing import Any

import pytest

from onnx_tflite_plugin.errors import InvalidModel
from onnx_tflite_plugin.guard import (
    BUILTIN,
    INLINE,
    Failed,
    Mismatch,
    WrongResult,
    attribute_errors,
    definition_location,
    format_error,
)


def inner(error: BaseException) -> None:
    raise error


def outer(error: BaseException) -> None:
    inner(error)


class Pack:
    def method(self, error: BaseException) -> None:
        outer(error)


def failure(error: BaseException, by: Any = outer) -> Failed:
    with pytest.raises(Failed) as caught, attribute_errors("handler x", "some-pack", by):
        outer(error)
    return caught.value


def test_error_text_is_one_line_of_bounded_length() -> None:
    assert format_error(ValueError("one\n  two\tthree")) == "ValueError: one two three"
    assert format_error(KeyError()) == "KeyError"
    assert len(format_error(ValueError("a" * 100_000))) < 500


def test_mismatch_is_reported_with_the_function() -> None:
    failed = failure(Mismatch("it returned 2 values"))
    assert failed.reason == f"handler x of some-pack failed: it returned 2 values, at {definition_location(outer)}"


def returns_once(x: int) -> tuple[int, int]:
    if x:
        raise ValueError
    return (
        x,
        x,
    )


def returns_twice(x: int) -> int:
    if x:
        return 1
    return x


def test_wrong_result_is_located_at_the_only_return() -> None:
    for by, line in ((returns_once, 3), (partial(returns_once), 3), (returns_twice, 0), (lambda: 1, 0)):
        start = getattr(by, "func", by).__code__.co_firstlineno
        assert f", at {__file__}:{start + line} in " in failure(WrongResult("it returned 2 values"), by).reason
    assert failure(WrongResult("it returned 2 values"), __name__).reason.endswith("it returned 2 values")


def test_hint_names_the_traceback_of_an_exception(monkeypatch: pytest.MonkeyPatch) -> None:
    assert failure(ValueError("no")).hint.endswith("; ONNX_TFLITE_PLUGIN_DEBUG=1 shows the traceback")
    assert "traceback" not in failure(Mismatch("it returned 2 values")).hint
    monkeypatch.setenv("ONNX_TFLITE_PLUGIN_DEBUG", "1")
    assert "shows the traceback" not in failure(ValueError("no")).hint


@pytest.mark.parametrize("by", [outer, partial(outer), Pack().method, __name__])
def test_failure_is_located_in_the_innermost_pack_function(by: Any) -> None:
    assert failure(ValueError("no"), by).reason.endswith(" in inner")


def test_library_failure_is_located_at_the_packs_call() -> None:
    for by, location in ((outer, f"{__file__}:"), (None, os.path.join("json", "decoder.py:"))):
        with pytest.raises(Failed, match="JSONDecodeError") as caught, attribute_errors("handler x", "some-pack", by):
            json.loads("{")
        assert location in caught.value.reason.rpartition(", at ")[2]


def test_syntax_error_has_location_and_missing_module_has_none() -> None:
    failed = failure(SyntaxError("no", ("pack.py", 7, 1, "x = = 2")), "pack")
    assert failed.reason.endswith(", at pack.py:7")
    with pytest.raises(Failed) as caught, attribute_errors("entry point x", "some-pack", "no_such_pack"):
        import_module("no_such_pack")
    assert caught.value.reason == (
        "entry point x of some-pack failed: ModuleNotFoundError: No module named 'no_such_pack'"
    )


def test_syntax_error_without_file_is_located_where_raised() -> None:
    assert failure(SyntaxError("no")).reason.endswith(" in inner")


def test_nested_failure_keeps_its_first_pack() -> None:
    failed = failure(ValueError("no"))
    with pytest.raises(Failed) as caught, attribute_errors("handler x", "other-pack", outer):
        raise failed
    assert caught.value is failed


def test_invalid_file_is_not_attributed_to_a_pack() -> None:
    with pytest.raises(InvalidModel), attribute_errors("handler x", "some-pack", outer):
        raise InvalidModel("broken:", [])


@pytest.mark.parametrize(
    ("by", "name"),
    [
        (outer, "outer"),
        (partial(outer), "outer"),
        (Pack().method, "method"),
        (MethodType(partial(outer), Pack()), "outer"),
    ],
)
def test_finds_the_function_of_partials_and_methods(by: Any, name: str) -> None:
    assert definition_location(by).endswith(f" in {name}")


def test_hint_depends_on_the_pack() -> None:
    assert "--block some-pack" in Failed("some-pack", "").hint
    assert "report it" in Failed(BUILTIN, "").hint
    assert "--block" not in Failed(BUILTIN, "").hint, "the converter needs its built-in pack"
    assert Failed(INLINE, "").hint == ""
