"""Each stage runs once, even for files with wrong shapes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from conformance.case import Case
from conformance.cases import builtin_cases
from onnx_tflite_plugin.conversion import convert_model
from onnx_tflite_plugin.errors import ConversionError
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.normalize.changes import with_tensors
from onnx_tflite_plugin.options import ConvertOptions
from onnx_tflite_plugin.source import read
from onnx_tflite_plugin.source.model import Model, Tensor

CASE_COUNT = 208
PARTS = 4
STAGES = (
    "binding operators to handlers",
    "fusions",
    "planning dtypes",
    "planning the layout",
    "lowering",
    "rewriting",
    "checking",
)
HOST = Host(packs="builtin")


def remove_rank(tensor: Tensor) -> Tensor:
    return replace(tensor, shape=(), dims=(), has_rank=False)


def increase_sizes(tensor: Tensor) -> Tensor:
    dims = tuple(None if size is None else size + 1 for size in tensor.dims)
    return replace(tensor, shape=tuple(size + 1 for size in tensor.shape), dims=dims)


def reverse_axes(tensor: Tensor) -> Tensor:
    return replace(tensor, shape=tensor.shape[::-1], dims=tensor.dims[::-1])


def make_scalar(tensor: Tensor) -> Tensor:
    return replace(tensor, shape=(), dims=())


WRONG_SHAPES = (remove_rank, increase_sizes, reverse_axes, make_scalar)


def models_with_wrong_shapes(remainder: int) -> Iterator[tuple[Case, Model]]:
    """Yield every PARTS-th case; the first result of each operator has a wrong shape."""
    cases = builtin_cases()
    for number in range(remainder, CASE_COUNT, PARTS):
        case = cases[number * len(cases) // CASE_COUNT]
        change = WRONG_SHAPES[number // PARTS % len(WRONG_SHAPES)]
        model = read(case.build())
        results = [op.outputs[0] for op in model.main.operators if op.outputs and op.outputs[0] is not None]
        yield case, with_tensors(model, {tensor: change(tensor) for tensor in results})


@pytest.mark.parametrize("remainder", range(PARTS))
def test_each_stage_runs_at_most_once_on_files_with_wrong_shapes(remainder: int) -> None:
    last_stages = set()
    for case, model in models_with_wrong_shapes(remainder):
        stages: list[str] = []
        options = {**case.options, "target": case.targets[0], "check": "standard", "on_fusion_error": "raise"}
        try:
            convert_model(model, HOST, ConvertOptions(**options), stages.append)
        except ConversionError:
            assert stages, case.id
        assert stages == [*STAGES[: len(stages)]], case.id
        last_stages.add(stages[-1])
    assert STAGES[-1] in last_stages
