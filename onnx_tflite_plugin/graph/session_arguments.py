"""Checks of the arguments of a session: model, options, tokens and counts."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from onnx_tflite_plugin.checked import describe, did_you_mean, has_type
from onnx_tflite_plugin.graph.serialized import Converted, check_exists, describe_other_format

_MODEL_KINDS = "the path of an ONNX file, its content as bytes, a ModelProto or a Conversion"


def read_source(model: str | Path | bytes | Converted) -> str | bytes:
    """Return a model's path, or its content.

    Raises FileNotFoundError and IsADirectoryError, and TypeError for other objects.
    """
    if isinstance(model, bytes):
        return model
    if not isinstance(model, str | os.PathLike):
        if hasattr(model, "SerializeToString"):  # a ModelProto
            return bytes(model.SerializeToString())
        if not hasattr(model, "proto"):
            raise TypeError(f"a model must be a path, bytes, a ModelProto or a Conversion, not {type(model).__name__}")
        return bytes(model.proto.SerializeToString())
    check_exists(Path(model))
    return os.fspath(model)


def describe_load_failure(source: str | bytes, error: Exception) -> str:
    """Return the reason why ONNX Runtime cannot load a model."""
    other_format = describe_other_format(source if isinstance(source, bytes) else Path(source))
    if other_format == "it is a TFLite model":
        other_format += ", and a Session runs its conversion; give onnx_tflite_plugin.convert(model)"
    elif other_format:
        other_format += f"; give {_MODEL_KINDS}"
    return f"the model cannot be loaded: {other_format or error}"


def check_session_options(onnxruntime: Any, providers: object, options: object) -> list[Any]:
    """Return the execution providers.

    Raises TypeError and ValueError for arguments that ONNX Runtime misunderstands.
    """
    if options is not None and not isinstance(options, onnxruntime.SessionOptions):
        raise TypeError(f"options is {describe(options)}; give an onnxruntime.SessionOptions")
    if isinstance(providers, str | bytes) or not isinstance(providers, Iterable):
        hint = f" such as [{providers!r}]" if isinstance(providers, str) else ""
        raise TypeError(f"providers is {describe(providers)}; give a list of ONNX Runtime's providers{hint}")
    known = onnxruntime.get_all_providers()
    provider_list = list(providers)
    for provider in provider_list:
        name = provider[0] if isinstance(provider, tuple) and provider else provider
        if name not in known:
            similar = did_you_mean(name, known) if isinstance(name, str) else ""
            available = ", ".join(onnxruntime.get_available_providers())
            raise ValueError(f"ONNX Runtime has no provider {name!r}{similar}; installed providers: {available}")
    return provider_list


def check_generation(tokens: object, count: object, start: object, stop: object, slots: int) -> list[int]:
    """Return the tokens of a prompt as a list.

    Raises TypeError and ValueError for invalid arguments of ``generate``. ``slots``: number of tokens that the caches
    can hold.
    """
    numbers = _check_tokens(tokens)
    for name, value in (("count", count), ("start", start)):
        if not has_type(value, int):
            raise TypeError(f"{name} is {describe(value)}; give an int")
        if isinstance(value, int) and value < 0:
            raise ValueError(f"{name} is {value}; give 0 or more")
    if not isinstance(stop, Collection) or isinstance(stop, str | bytes):
        hint = f", such as [{stop}]" if has_type(stop, int) else ""
        raise TypeError(f"stop is {describe(stop)}; give the tokens that end the result{hint}")
    assert isinstance(count, int | np.integer)
    assert isinstance(start, int | np.integer)
    if start + len(numbers) + count - 1 > slots:
        raise ValueError(
            f"{len(numbers)} tokens from position {start} and {count} generated tokens exceed the {slots} slots of the caches"
        )
    return numbers


def _check_tokens(tokens: object) -> list[int]:
    """Return tokens as a list. Raises TypeError and ValueError."""
    if isinstance(tokens, str | bytes):
        raise TypeError(
            f"tokens is {describe(tokens)}; give the numbers that the model's tokenizer returns for the text, such as [3, 17, 5]"
        )
    if not isinstance(tokens, Iterable):
        raise TypeError(f"tokens is {describe(tokens)}; give a list of numbers such as [3, 17, 5]")
    numbers = list(tokens)
    if not numbers:
        raise ValueError("tokens is empty; give at least one token, such as the token that begins a text")
    for position, number in enumerate(numbers):
        if not has_type(number, int):
            hint = "; give one sequence, without a batch axis" if isinstance(number, list | tuple | np.ndarray) else ""
            raise TypeError(f"tokens[{position}] is {describe(number)}, not a number of the vocabulary{hint}")
        if number < 0:
            raise ValueError(f"tokens[{position}] is {number}; tokens are 0 or more")
    return [int(number) for number in numbers]
