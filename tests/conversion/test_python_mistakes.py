"""Errors for wrong calls name the argument, its value and the remedy."""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnx_tflite_plugin as otp
from conformance.language_model import Sizes, language_model
from onnx_tflite_plugin.errors import InvalidInputs, InvalidOnnx

DIGITS = Path(__file__).parents[2] / "examples" / "digits_int8.tflite"
IMAGE = np.zeros((1, 8, 8, 1), np.int8)


@cache
def conversion() -> Any:
    return otp.convert(DIGITS)


@cache
def session() -> Any:
    return otp.Session(conversion())


@cache
def decoder() -> Any:
    return otp.Session(otp.convert(language_model(Sizes("rows")), signature="decode"))


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: session().run({"image": [[1, 2], [3]]}), ValueError, "lists .*different lengths"),
        (lambda: session().run({"image": None}), ValueError, r"input 'image' is int8 .*, not None; give numbers"),
        (lambda: session().run({"image": (IMAGE + 0.5).tolist()}), ValueError, "not float64; pixels 0 to 255"),
        (lambda: session().run({"imag": IMAGE}), ValueError, "did you mean 'image'"),
        (lambda: otp.Session(conversion(), providers="CPU"), TypeError, r"give a list .* such as \['CPU'\]"),
        (lambda: otp.Session(conversion(), providers=None), TypeError, "providers is None; give a list"),
        (lambda: otp.Session(conversion(), providers=["CPU"]), ValueError, "has no provider 'CPU'; did you mean"),
        (lambda: otp.Session(conversion(), options={}), TypeError, "options is a dict; give an onnxruntime.Session"),
        (lambda: otp.Session(conversion(), states_of="x"), TypeError, "states_of is the str 'x'; give the Session"),
        (lambda: otp.Session(b""), ValueError, "cannot be loaded: it is empty"),
        (lambda: otp.Session(b"some text"), ValueError, "cannot be loaded: it is text; give the path of an ONNX file"),
        (lambda: conversion().verify("m.onnx"), TypeError, "takes only keywords, not the str 'm.onnx': it compares"),
        (
            lambda: otp.Session(conversion(), states_of=decoder()),
            ValueError,
            "this model has no states, and the other model the states '.*; omit states_of",
        ),
        (lambda: otp.Session("no.onnx"), FileNotFoundError, "no such file; relative paths begin at"),
        (lambda: otp.Session(DIGITS.parent), IsADirectoryError, "it is a folder"),
        (lambda: conversion().save(None), TypeError, "path is None; give the path of the file to write"),
        (lambda: conversion().save(io.BytesIO()), TypeError, r"a BytesIO; .*write\(file\) writes to an open file"),
        (lambda: conversion().save(""), FileNotFoundError, "the path is empty"),
        (lambda: conversion().write("m.onnx"), TypeError, "file is the str 'm.onnx'; give a file opened in binary"),
        (lambda: conversion().write(io.StringIO()), TypeError, "file is a StringIO; give a file opened in binary"),
        (lambda: otp.bundle_parts(b""), TypeError, "path is a bytes; give the path of a .task"),  # type: ignore[arg-type]
        (lambda: otp.bundle_parts("no.task"), FileNotFoundError, "there is no such file; relative"),
        (lambda: otp.verify(DIGITS, "no.onnx"), FileNotFoundError, "there is no such file; relative"),
        (
            lambda: otp.verify("no.tflite", conversion()),
            FileNotFoundError,
            "^no.tflite: there is no such file; relative",
        ),
        (lambda: otp.verify(DIGITS, DIGITS.parent), IsADirectoryError, "it is a folder"),
        (lambda: otp.verify(DIGITS, b"some text"), InvalidOnnx, "the model is not an ONNX model: it is text"),
        (lambda: otp.verify(DIGITS, b""), InvalidOnnx, "the model is not an ONNX model: it is empty"),
        (lambda: otp.verify(DIGITS, b"\x08\x0a"), InvalidOnnx, "the model is not an ONNX model: it has no graph"),
        (lambda: conversion().verify(inputs={"image": [[1], [2, 3]]}), InvalidInputs, "different lengths"),
        (lambda: conversion().verify(inputs={"image": IMAGE.astype(float)}), InvalidInputs, "int8 .*, not float64"),
        (lambda: conversion().verify(inputs={"image": IMAGE.view(np.uint8)}), InvalidInputs, "shift it: "),
    ],
)
def test_mistake_names_the_argument_and_the_remedy(call: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        (("a text", 3), TypeError, "tokens is the str 'a text'; give the numbers that the model's tokenizer returns"),
        ((["a"], 3), TypeError, r"tokens\[0\] is the str 'a', not a number of the vocabulary"),
        (([1.5], 3), TypeError, r"tokens\[0\] is the float 1.5"),
        (([[1, 2]], 3), TypeError, r"tokens\[0\] is a list, .*; give one sequence, without a batch axis"),
        ((5, 3), TypeError, "tokens is the int 5; give a list of numbers"),
        (([], 3), ValueError, "tokens is empty"),
        (([1, -1], 3), ValueError, r"tokens\[1\] is -1; tokens are 0 or more"),
        (([10**6], 3), ValueError, r"the token 1000000 is outside the vocabulary, 0 to \d+"),
        (([2**40], 3), ValueError, "1099511627776 is outside its range"),
        (([1], "3"), TypeError, "count is the str '3'; give an int"),
        (([1], -3), ValueError, "count is -3; give 0 or more"),
        (([1], 3, {"start": 1.5}), TypeError, "start is the float 1.5; give an int"),
        (([1], 3, {"stop": 7}), TypeError, r"stop is the int 7; .* such as \[7\]"),
        (([1], 3, {"prefill": 7}), TypeError, "prefill is the int 7; give the Session"),
    ],
)
def test_wrong_tokens_are_reported_before_the_model_runs(
    arguments: tuple[Any, ...], error: type[Exception], text: str
) -> None:
    tokens, count, *keywords = arguments
    with pytest.raises(error, match=text):
        decoder().generate(tokens, count, **dict(*keywords))


def test_tokens_may_be_an_array_of_integers() -> None:
    assert decoder().generate(np.array([1, 2]), np.int64(2)) == decoder().generate([1, 2], 2)
