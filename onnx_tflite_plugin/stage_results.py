"""Results of the conversion stages that follow normalization."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from onnx_tflite_plugin.binding.bound import BoundModel
from onnx_tflite_plugin.binding.fusion import FusedModel
from onnx_tflite_plugin.layout.plan import LayoutPlan
from onnx_tflite_plugin.quantization.plan import StoragePlan
from onnx_tflite_plugin.report import Report
from onnx_tflite_plugin.source.model import Model

if TYPE_CHECKING:
    import onnx_ir as ir


class PlannedModel(NamedTuple):
    """Result of planning: fused operators, storage dtypes, opset and layouts."""

    fused: FusedModel
    storage: StoragePlan
    opset: int
    layout: LayoutPlan

    @property
    def model(self) -> BoundModel:
        return self.fused.model


class RewrittenModel(NamedTuple):
    """Result of rewriting.

    ``node_counts``: ONNX operator -> number of nodes. ``transpose_count``: number of Transposes before any rewrite.
    ``operator_transposes``: operator label -> number of Transposes that the handler emitted. ``change_counts``: pass ->
    number of changes. ``declined``: pass -> reason -> number of declined matches. ``product_counts``: weight dtype ->
    number of 8-bit matrix products. ``notes``: explanations of operators that become many nodes. ``removed_transposes``:
    (subgraph, tensor) of the Transposes of the layout plan that rewrites removed.
    """

    model: ir.Model
    node_counts: Mapping[str, int]
    transpose_count: int
    operator_transposes: Mapping[str, int]
    change_counts: Mapping[str, int]
    declined: Mapping[str, Mapping[str, int]]
    product_counts: Mapping[str, int]
    notes: tuple[str, ...] = ()
    removed_transposes: frozenset[tuple[int, int]] = frozenset()


class ConvertedModel(NamedTuple):
    """Result of the pipeline.

    ``source``: the converted submodel of the file, with the requested sizes.
    """

    model: ir.Model
    report: Report
    source: Model
