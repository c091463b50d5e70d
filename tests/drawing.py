"""Single operators drawn at random, converted, and compared with LiteRT: what the tests of families have in common."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import Any

import numpy as np

from conformance.case import Case
from conformance.models import Spec
from conformance.runner import mismatches
from onnx_tflite_plugin.errors import ConversionError
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.source.model import Array
from onnx_tflite_plugin.verify import LiteRTError

Draw = np.random.Generator
Family = Callable[[Draw], Case]
SIZES = (2, 3, 5, 7, 1, 0)


def shape(draw: Draw, least: int = 0) -> tuple[int, ...]:
    """Distinct primes, now and then 1 or 0."""
    rank = int(draw.integers(least, 5))
    sizes = list(draw.permutation(SIZES[:4]))[:rank]
    return tuple(int(draw.choice([0, 1])) if draw.random() < 0.15 else int(size) for size in sizes)


def broadcast(draw: Draw, whole: tuple[int, ...]) -> tuple[int, ...]:
    kept = whole[int(draw.integers(0, len(whole) + 1)) :]
    return tuple(1 if draw.random() < 0.3 else size for size in kept)


def quantized(draw: Draw, sizes: tuple[int, ...], dtype: str) -> Spec:
    """Zero points at the ends of the dtype as well."""
    if dtype not in ("int8", "uint8", "int16"):
        return Spec(sizes, dtype)
    limits = np.iinfo(dtype)
    points = [0] if dtype == "int16" else [limits.min, limits.max, (limits.min + limits.max) // 2 + 7]
    return Spec(sizes, dtype, float(np.float32(10 ** draw.uniform(-3, -0.5))), int(draw.choice(points)))


def numbers(draw: Draw, spec: Spec, ends: bool = True) -> Array:
    if spec.dtype == "bool":
        return draw.integers(0, 2, spec.shape).astype(bool)
    if "float" in spec.dtype:
        return np.asarray(draw.normal(0, 3, spec.shape).astype(spec.dtype))
    limits = np.iinfo(spec.dtype)
    low, high = (limits.min, limits.max) if limits.bits < 32 or (ends and draw.random() < 0.2) else (-100, 100)
    return np.asarray(draw.integers(max(low, limits.min), high, spec.shape, endpoint=True).astype(spec.dtype))


def pick(draw: Draw, *choices: Any) -> Any:
    return choices[int(draw.integers(len(choices)))]


HOST = Host(packs="builtin")


def drawn(families: Sequence[Family], seed: int) -> Iterator[Case]:
    """Endless cases, each of some family."""
    draw = np.random.default_rng(seed)
    while True:
        case = pick(draw, *families)(draw)
        yield replace(case, runs=1 if isinstance(case.given, Mapping) else len(case.given or ()))


def wrong_with(case: Case) -> list[str] | None:
    """What is wrong with a case's conversion; None where LiteRT does not run it."""
    try:
        return mismatches(case, HOST)
    except LiteRTError:
        return None
    except ConversionError as error:
        return [f"refused: {error}"]


def trials(families: Sequence[Family], seed: int) -> Iterator[tuple[Case, list[str]]]:
    """Cases that LiteRT runs, each with what is wrong with its conversion."""
    for case in drawn(families, seed):
        wrong = wrong_with(case)
        if wrong is not None:
            yield case, wrong


def told(case: Case, wrong: Sequence[str]) -> str:
    given = case.given if isinstance(case.given, Mapping) else (case.given or [{}])[0]
    inputs = {name: (array.dtype.name, array.shape) for name, array in given.items()}
    return f"{case.op} {inputs}: {'; '.join(wrong)}"


def main(families: Sequence[Family]) -> None:
    """``python tests/test_x_drawn.py NUMBER SEED`` tries more than a test does, in a process of its own: LiteRT may crash."""
    number, seed = int(sys.argv[1]), int(sys.argv[2])
    cases = list(islice(drawn(families, seed), number))
    counted: Counter[str] = Counter()
    while (done := counted.total()) < number:
        for case, wrong in zip(cases[done:], chain(outcomes(cases[done:]), [["it crashed"]]), strict=False):
            counted["not run by LiteRT" if wrong is None else "different" if wrong else "equal"] += 1
            if wrong:
                print(counted.total() - 1, told(case, wrong), flush=True)
    print(dict(counted), flush=True)


def outcomes(cases: Sequence[Case]) -> Iterator[list[str] | None]:
    """What is wrong with each, up to one that brings the process down."""
    reader, writer = os.pipe()
    if not (child := os.fork()):
        with os.fdopen(writer, "w") as pipe:
            for case in cases:
                print(json.dumps(wrong_with(case)), file=pipe, flush=True)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        yield from map(json.loads, pipe)
    os.waitpid(child, 0)
