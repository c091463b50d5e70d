"""Models converted for a target, with inputs and LiteRT's results."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

import onnx_tflite_plugin as otp
from onnx_tflite_plugin.errors import ConversionError, UnsupportedOption
from onnx_tflite_plugin.source.affine import affine, is_quantized
from onnx_tflite_plugin.source.model import Array, Subgraph, Tensor
from onnx_tflite_plugin.targets import TARGETS
from onnx_tflite_plugin.verify import LiteRT, generate_inputs
from onnx_tflite_plugin.verify.runtimes import structure

STEPS = 2
"""Tolerance in quantization steps, for quantized results and floats that are dequantized from them."""
QUANTIZED = ("int8", "uint8", "int16")
"""Classes of models whose activations are quantized."""
FLOAT_TOLERANCE = 1e-3
"""Tolerance of float results, relative to LiteRT's largest result."""


@dataclass(frozen=True)
class Source:
    """A file with inputs, and the results of each of LiteRT's kernel sets.

    ``runs``: these results. ``kind``: the class of the file by dtypes. ``steps``: per output, the quantization step if
    DEQUANTIZE computes it, else 0. ``growth``: per output of a quantized Softmax, the number of output steps that one
    step of the input can cause, else 0.
    """

    path: Path
    kind: str
    inputs: Sequence[Tensor]
    outputs: Sequence[Tensor]
    feeds: Mapping[str, Array]
    runs: Sequence[Sequence[Array]]
    steps: Sequence[float]
    growth: Sequence[float]

    @property
    def results(self) -> Sequence[Array]:
        return self.runs[0]

    def spread(self, k: int) -> float:
        """Return the maximum difference of result ``k`` between LiteRT's kernel sets."""
        first, *remaining = (run[k].astype(np.float64) for run in self.runs)
        differences = [np.nan_to_num(np.abs(array - first)).max(initial=0) for array in remaining]
        return float(max(differences, default=0))


@dataclass(frozen=True)
class Converted:
    """A converted file.

    ``refusal``: the reason if it is refused. ``is_unquantized``: the target drops quantization.
    """

    source: Source
    target: str
    path: Path
    inputs: Path
    refusal: str = ""
    is_unquantized: bool = False


def find_sources(paths: Sequence[Path]) -> Iterator[Source]:
    """Yield every .tflite file that LiteRT runs with random inputs."""
    for path in paths:
        for file in sorted(path.rglob("*.tflite")) if path.is_dir() else [path]:
            try:
                yield _read(file)
            except Exception as error:
                logging.warning(
                    "%s: skipped, LiteRT does not run it: %s",
                    file.name,
                    next(iter(str(error).splitlines()), type(error).__name__),
                )


def _read(path: Path) -> Source:
    data = path.read_bytes()
    entry = structure.entry(structure.read(data))
    graph = entry.subgraph
    inputs = generate_inputs(entry)[0]
    runs = [run for run in (_run_litert(data, kernels, inputs) for kernels in ("builtin", "xnnpack")) if run]
    if not runs:
        raise ValueError("LiteRT crashes")
    if any(array.dtype.kind not in "biuf" for array in (*inputs, *runs[0])):
        raise ValueError("inputs or outputs are strings or complex numbers")
    feeds = dict(zip(entry.input_names, inputs, strict=True))
    steps = [_step(graph, tensor) for tensor in entry.outputs]
    growth = [_softmax_growth(graph, tensor) for tensor in entry.outputs]
    return Source(path, _kind(graph.tensors), entry.inputs, entry.outputs, feeds, runs, steps, growth)


def _run_litert(data: bytes, kernels: str, inputs: Sequence[Array]) -> list[Array]:
    """Return LiteRT's results; an empty list if its process crashes."""
    with ProcessPoolExecutor(1, get_context("spawn")) as process, suppress(BrokenProcessPool):
        return process.submit(_results, data, kernels, inputs).result()
    return []


def _results(data: bytes, kernels: str, inputs: Sequence[Array]) -> list[Array]:
    return LiteRT(data, kernels).run(inputs)


def _step(graph: Subgraph, tensor: Tensor) -> float:
    """Return the quantization step of a DEQUANTIZE's output, else 0."""
    producers = (op for op in graph.operators if op.code == "DEQUANTIZE" and tensor in op.outputs)
    quantization = next((affine(op[0]) for op in producers), None)
    return max(quantization.scale) if quantization else 0.0


def _softmax_growth(graph: Subgraph, tensor: Tensor) -> float:
    """Return the output steps that one input step of a quantized Softmax causes.

    Other outputs have 0. Changing a logit by one step changes a probability p by p (1 - p) times the step, which is at
    most a quarter of it.
    """
    softmax = next((op for op in graph.operators if op.code == "SOFTMAX" and tensor in op.outputs), None)
    before, after = (affine(softmax[0]), affine(tensor)) if softmax is not None else (None, None)
    return before.scale[0] / after.scale[0] / 4 if before and after else 0.0


def _kind(tensors: Sequence[Tensor]) -> str:
    """Return the class of a model by the dtypes of its tensors."""
    computed = {t.dtype for t in tensors if is_quantized(t) and not t.is_constant}
    for dtype in ("int16", "int8", "uint8"):
        if dtype in computed:
            return dtype
    if any(is_quantized(t) and t.is_constant for t in tensors):
        return "dynamic range"
    return "float16" if any(t.dtype == "float16" for t in tensors) else "float32"


def convert_for(source: Source, target: str, folder: Path) -> Converted:
    """Convert a file for a target, and store its inputs."""
    path, inputs = folder / "model.onnx", folder / "inputs.npz"
    folder.mkdir(parents=True)
    try:
        shapes = (
            {name: array.shape for name, array in source.feeds.items()} if TARGETS[target].needs_static_shapes else {}
        )
        conversion = otp.convert(source.path, target=target, state="reset", input_shape=shapes)
    except (ConversionError, UnsupportedOption) as refusal:
        return Converted(source, target, path, inputs, str(refusal).splitlines()[-1].strip()[:300])
    conversion.save(path)
    feeds = {}
    for value, tensor in zip(conversion.model.graph.inputs, source.inputs, strict=True):
        array = source.feeds[str(value.name)]
        feeds[str(value.name)] = _dequantize(array, tensor) if _is_float(value) else array
    np.savez(inputs, **feeds)
    if source.kind == "dynamic range":  # LiteRT's kernels round the activations
        is_unquantized = not TARGETS[target].rounds_activations
    else:
        is_unquantized = source.kind in QUANTIZED and "QuantizeLinear" not in conversion.report.nodes
    return Converted(source, target, path, inputs, "", is_unquantized)


def _is_float(value: Any) -> bool:
    return value.dtype is not None and value.dtype.is_floating_point()


def _dequantize(array: Array, tensor: Tensor) -> Array:
    """Return the dequantized array; floats and unquantized arrays stay as they are."""
    quantization = affine(tensor)
    if quantization is None or array.dtype.kind == "f":
        return array
    floats = (array.astype(np.float64) - quantization.zero_point[0]) * quantization.scale[0]
    return np.asarray(floats, np.float32)


def find_error(converted: Converted, results: Sequence[Array], reference: Sequence[Array] | None = None) -> str:
    """Return the first difference from LiteRT beyond the tolerance, or "".

    ``reference``: another runtime's results, which replace LiteRT's if quantization is dropped.
    """
    source = converted.source
    expected_results = list(source.results)
    if converted.is_unquantized:
        if reference is None:
            return "no other runtime computes it"
        expected_results = list(reference)
    if len(results) != len(expected_results):
        return f"{len(results)} results instead of {len(expected_results)}"
    for k, (actual, correct, tensor) in enumerate(zip(results, expected_results, source.outputs, strict=True)):
        expected = _dequantize(correct, tensor) if actual.dtype.kind == "f" else correct
        if actual.shape != expected.shape:
            return f"result {k} has the shape {list(actual.shape)} instead of {list(expected.shape)}"
        error = np.abs(actual.astype(np.float64) - expected.astype(np.float64)) if actual.size else np.zeros(1)
        both_nan = np.isnan(error) & np.isnan(expected.astype(np.float64)) if actual.size else np.zeros(1, bool)
        worst = float(np.where(both_nan, 0, np.nan_to_num(error, nan=np.inf)).max())
        if actual.dtype.kind == "f":
            finite = np.abs(expected[np.isfinite(expected)])
            limit = max(FLOAT_TOLERANCE * float(finite.max(initial=0)) + 1e-6, STEPS * source.steps[k])
        else:
            limit = max(STEPS, source.growth[k]) if is_quantized(tensor) else 0
        limit = max(limit, 0.0 if converted.is_unquantized else source.spread(k))
        if worst > limit:
            return f"result {k} differs by {worst:.3g}, more than {limit:.3g}"
    return ""
