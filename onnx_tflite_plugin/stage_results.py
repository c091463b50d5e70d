"""Results of the stages of a conversion after normalization."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from onnx_tflite_plugin.binding.bound import BoundModel
from onnx_tflite_plugin.binding.fusion import Fused
from onnx_tflite_plugin.layout.plan import LayoutPlan
from onnx_tflite_plugin.quantization.plan import StoragePlan
from onnx_tflite_plugin.report import Report
from onnx_tflite_plugin.source.model import Model

if TYPE_CHECKING:
    import onnx_ir as ir


class PlannedModel(NamedTuple):
    """Result of planning: fused operators, storage dtypes, opset and layouts."""

    fused: Fused
    storage: StoragePlan
    opset: int
    layout: LayoutPlan

    @property
    def model(self) -> BoundModel:
        return self.fused.model


class RewrittenModel(NamedTuple):
    """Result of rewriting.

    ``nodes``: number of nodes by operator. ``transposes``: number of Transposes before any rewrite.
    ``operator_transposes``: number of Transposes that handlers emitted, by operator label. ``passes``: number of changes
    by each pass. ``declined``: number of declined places by pass and reason. ``weights``: number of 8-bit products by the
    dtype of their weights. ``notes``: explanations of operators that become many nodes.
    """

    model: ir.Model
    nodes: Mapping[str, int]
    transposes: int
    operator_transposes: Mapping[str, int]
    passes: Mapping[str, int]
    declined: Mapping[str, Mapping[str, int]]
    weights: Mapping[str, int]
    notes: tuple[str, ...] = ()


class Converted(NamedTuple):
    """Result of the pipeline.

    ``source``: the converted submodel of the file, with the requested sizes.
    """

    model: ir.Model
    report: Report
    source: Model
