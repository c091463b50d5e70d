"""Models of the matrix, converted for a target, with inputs and the results of LiteRT."""

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
from onnx_tflite_plugin.verify import LiteRT, draw
from onnx_tflite_plugin.verify.runtimes import structure

STEPS = 2
"""Quantized results, and floats dequantized from such, are right within this many steps."""
QUANTIZED = ("int8", "uint8", "int16")
"""Classes of models whose activations are quantized."""
SHARE = 1e-3
"""Floats are right within this share of the largest of LiteRT's."""


@dataclass(frozen=True)
class Source:
    """A file with inputs, and the results of each of LiteRT's kernel sets; ``kind``: its class by dtypes.

    ``steps``: for each output, the size of a quantization step if it is a float dequantized right before, else 0.
    ``growth``: for each output, the steps by which one step of a quantized Softmax's input can change it.
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
        """Return the largest difference of a result between LiteRT's kernel sets."""
        first, *others = (run[k].astype(np.float64) for run in self.runs)
        differences = [np.nan_to_num(np.abs(other - first)).max(initial=0) for other in others]
        return float(max(differences, default=0))


@dataclass(frozen=True)
class Converted:
    """A converted file. ``refusal``: the reason if there is none. ``is_unquantized``: the target drops quantization."""

    source: Source
    target: str
    path: Path
    inputs: Path
    refusal: str = ""
    is_unquantized: bool = False


def find_sources(given: Sequence[Path]) -> Iterator[Source]:
    """Yield every .tflite file that LiteRT runs with random inputs."""
    for path in given:
        for file in sorted(path.rglob("*.tflite")) if path.is_dir() else [path]:
            try:
                yield _read(file)
            except Exception as error:
                logging.warning(
                    "%s: left out, LiteRT does not run it: %s",
                    file.name,
                    next(iter(str(error).splitlines()), type(error).__name__),
                )


def _read(path: Path) -> Source:
    data = path.read_bytes()
    entry = structure.entry(structure.read(data))
    graph = entry.subgraph
    inputs = draw(entry)[0]
    runs = [run for run in (_run_litert(data, kernels, inputs) for kernels in ("builtin", "xnnpack")) if run]
    if not runs:
        raise ValueError("LiteRT aborts")
    if any(array.dtype.kind not in "biuf" for array in (*inputs, *runs[0])):
        raise ValueError("inputs or outputs are strings or complex numbers")
    feeds = dict(zip(entry.input_names, inputs, strict=True))
    steps = [_step(graph, tensor) for tensor in entry.outputs]
    growth = [_softmax_growth(graph, tensor) for tensor in entry.outputs]
    return Source(path, _kind(graph.tensors), entry.inputs, entry.outputs, feeds, runs, steps, growth)


def _run_litert(data: bytes, kernels: str, inputs: Sequence[Array]) -> list[Array]:
    """Return LiteRT's results, none where its process aborts."""
    with ProcessPoolExecutor(1, get_context("spawn")) as process, suppress(BrokenProcessPool):
        return process.submit(_results, data, kernels, inputs).result()
    return []


def _results(data: bytes, kernels: str, inputs: Sequence[Array]) -> list[Array]:
    return LiteRT(data, kernels).run(inputs)


def _step(graph: Subgraph, tensor: Tensor) -> float:
    """Return the size of a quantization step of a float output, 0 if it is not dequantized right before."""
    makers = (op for op in graph.operators if op.code == "DEQUANTIZE" and tensor in op.outputs)
    quantization = next((affine(op[0]) for op in makers), None)
    return max(quantization.scale) if quantization else 0.0


def _softmax_growth(graph: Subgraph, tensor: Tensor) -> float:
    """Return by how many steps of a quantized Softmax's output one step of its input can change it; 0 for other outputs.

    A logit that is rounded to the next step changes a probability p by p (1 - p) steps of the logit, at most a quarter.
    """
    maker = next((op for op in graph.operators if op.code == "SOFTMAX" and tensor in op.outputs), None)
    before, after = (affine(maker[0]), affine(tensor)) if maker is not None else (None, None)
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
    if source.kind == "dynamic range":  # kernels round the activations
        drops = not TARGETS[target].rounds_activations
    else:
        drops = source.kind in QUANTIZED and "QuantizeLinear" not in conversion.report.nodes
    return Converted(source, target, path, inputs, "", drops)


def _is_float(value: Any) -> bool:
    return value.dtype is not None and value.dtype.is_floating_point()


def _dequantize(array: Array, tensor: Tensor) -> Array:
    """Return the floats that quantized values stand for; the array itself if it is not quantized."""
    quantization = affine(tensor)
    if quantization is None or array.dtype.kind == "f":
        return array
    floats = (array.astype(np.float64) - quantization.zero_point[0]) * quantization.scale[0]
    return np.asarray(floats, np.float32)


def find_error(converted: Converted, results: Sequence[Array], reference: Sequence[Array] | None = None) -> str:
    """Return the first difference of results from LiteRT's, or from ``reference``'s, beyond the tolerance; empty if none.

    ``reference``: another runtime's results of the same file, which replace LiteRT's where quantization is dropped.
    """
    source = converted.source
    wanted = list(source.results)
    if converted.is_unquantized:
        if reference is None:
            return "no other runtime computes it"
        wanted = list(reference)
    if len(results) != len(wanted):
        return f"{len(results)} results instead of {len(wanted)}"
    for k, (found, right, tensor) in enumerate(zip(results, wanted, source.outputs, strict=True)):
        expected = _dequantize(right, tensor) if found.dtype.kind == "f" else right
        if found.shape != expected.shape:
            return f"result {k} has the shape {list(found.shape)} instead of {list(expected.shape)}"
        error = np.abs(found.astype(np.float64) - expected.astype(np.float64)) if found.size else np.zeros(1)
        both = np.isnan(error) & np.isnan(expected.astype(np.float64)) if found.size else np.zeros(1, bool)
        worst = float(np.where(both, 0, np.nan_to_num(error, nan=np.inf)).max())
        if found.dtype.kind == "f":
            finite = np.abs(expected[np.isfinite(expected)])
            limit = max(SHARE * float(finite.max(initial=0)) + 1e-6, STEPS * source.steps[k])
        else:
            limit = max(STEPS, source.growth[k]) if is_quantized(tensor) else 0
        limit = max(limit, 0.0 if converted.is_unquantized else source.spread(k))
        if worst > limit:
            return f"result {k} differs by {worst:.3g}, more than {limit:.3g}"
    return ""
