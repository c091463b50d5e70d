"""Tests of the type checks of declarations, and of their messages."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pytest

from onnx_tflite_plugin.api import Raw, Terminate, fusion, handler
from onnx_tflite_plugin.checked import append_clause, describe, did_you_mean, format_type, has_type


@pytest.mark.parametrize(
    ("hint", "accepted", "rejected"),
    [
        (Any, [None, 3, str], []),
        (int, [3, np.int64(3)], [True, 3.0, "3", None]),
        (float, [3.0, 3, np.float32(3)], [True, "3", None, 3j]),
        (bool, [True], [1, None]),
        (str, ["", "a"], [b"a", None]),
        (None, [None], [0, ""]),
        (int | None, [3, None], [True, "3"]),
        (Literal["a", "b"], ["a", "b"], ["c", None]),
        (Callable[..., Any], [len, lambda: 0], [str, "len", None]),
        (Mapping[str, int], [{}, {"a": 3}], [{3: 3}, {"a": "3"}, [("a", 3)], None]),
        (tuple[int, str], [(3, "a")], [(3,), (3, "a", "a"), ("a", 3), [3, "a"]]),
        (tuple[int, ...], [(), (3, 5)], [[3], (3, "a"), "35"]),
        (Collection[str], [(), ["a"], {"a"}], ["a", [3], 3]),
        (Sequence[str], [(), ["a"]], ["a", b"a", ["a", 3], 3, {"a"}]),
        (Mapping[str, Sequence[int | str]], [{"x": [1, "n"]}], [{"x": "1,2"}, {"x": b"12"}, {0: [1]}, {"x": [True]}]),
    ],
)
def test_values_are_compared_with_annotations(hint: Any, accepted: list[Any], rejected: list[Any]) -> None:
    assert [value for value in accepted if not has_type(value, hint)] == []
    assert [value for value in rejected if has_type(value, hint)] == []


@pytest.mark.parametrize(
    ("hint", "text"),
    [
        (Any, "anything"),
        (int, "int"),
        (int | None, "int or None"),
        (int | str | None, "int, str or None"),
        (Literal["a", "b"], "'a' or 'b'"),
        (Literal["a", "b", "c"], "'a', 'b' or 'c'"),
        (Callable[..., Any], "a function"),
        (Mapping[str, int], "a mapping of str to int"),
        (tuple[int, str], "a tuple of int, str"),
        (tuple[int, ...], "a tuple of int"),
        (Mapping[str, Sequence[int | str]], "a mapping of str to a sequence of int or str"),
    ],
)
def test_annotations_are_described_in_words(hint: Any, text: str) -> None:
    assert format_type(hint) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "None"),
        ([], "a list"),
        ("a", "the str 'a'"),
        (3, "the int 3"),
        (2.5, "the float 2.5"),
        (dict, "the class dict: write dict(...)"),
        ("x" * 100, "the str '" + "x" * 71),
    ],
)
def test_describe_gives_the_type_and_small_values(value: object, text: str) -> None:
    assert describe(value) == text


def test_unknown_keyword_is_reported_with_a_suggestion() -> None:
    keywords: dict[str, Any] = {"quantisation": Raw()}
    with pytest.raises(TypeError, match="@handler takes no keyword 'quantisation'; did you mean 'quantization'"):
        handler("CUSTOM.A", max_version=1, layout=Terminate(), **keywords)(lambda ctx, x: x)


def test_misspelled_required_keyword_is_named() -> None:
    keywords: dict[str, Any] = {"max_version": 1, "layuot": Terminate()}
    with pytest.raises(TypeError, match="@handler takes no keyword 'layuot'; did you mean 'layout'"):
        handler("CUSTOM.A", **keywords)
    with pytest.raises(TypeError, match="@fusion takes no keyword 'layuot'; did you mean 'layout'"):
        fusion("A", layuot=Terminate())  # type: ignore[call-arg]


def test_only_similar_names_are_suggested() -> None:
    assert did_you_mean("layot", ["layout", "types"]) == "; did you mean 'layout'?"
    assert did_you_mean("xyz", ["layout", "types"]) == ""
    assert did_you_mean("typ", ["type", "types"]) == "; did you mean 'type'?"


@pytest.mark.parametrize(
    ("text", "clause", "joined"), [("a", "at b", "a, at b"), ("a?", "at b", "a? (at b)"), ("a?", "", "a?")]
)
def test_clause_after_a_question_has_no_comma(text: str, clause: str, joined: str) -> None:
    assert append_clause(text, clause) == joined
