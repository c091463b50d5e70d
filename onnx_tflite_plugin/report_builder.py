"""Report of a conversion, from the results of its stages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from onnx_tflite_plugin.binding.bound import BoundModel
from onnx_tflite_plugin.graph.load_check import foreign_domains
from onnx_tflite_plugin.graph.model_metadata import read_states
from onnx_tflite_plugin.graph.node_metadata import source_operators
from onnx_tflite_plugin.graph.value_metadata import read_tensor
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.layout.tensor_layout import format_transposition
from onnx_tflite_plugin.lowering.emitter import CONVERTS_LAYOUT
from onnx_tflite_plugin.report import Report, TransposedTensor, inner_node_counts
from onnx_tflite_plugin.stage_results import PlannedModel, RewrittenModel

if TYPE_CHECKING:
    import onnx_ir as ir


def build_report(
    planned: PlannedModel,
    rewritten: RewrittenModel,
    host: Host,
    *,
    target: str,
    traits: Mapping[str, int],
    warnings: Iterable[str],
) -> Report:
    """Return the report without inputs, outputs, signatures and repairs.

    ``traits``: trait of the target -> number of fused operators that require it. ``warnings``: warnings in
    addition to the host's.
    """
    model, layout, fused = planned.model, planned.layout, planned.fused
    states = read_states(rewritten.model.metadata_props)
    operators = Counter(op.code for op in {op for bound in model.operators() for op in bound.members})
    return Report(
        target=target,
        opset=planned.opset,
        operators=dict(sorted(operators.items(), key=lambda item: (-item[1], item[0]))),
        nodes=rewritten.node_counts,
        inner_nodes=inner_node_counts(rewritten.model),
        layout="local" if layout.method == "local" else "least" if layout.exact else "heuristic",
        layout_cost=layout.cost,
        local_plan_differences=layout.differences,
        transposes=rewritten.transpose_count,
        operator_transposes=rewritten.operator_transposes,
        transposed=tuple(
            TransposedTensor(
                str(change.tensor.name),
                format_transposition(change.start, change.end),
                change.bytes,
                change.producer,
                change.consumers,
                is_dynamic=None in change.tensor.dims,
                is_removed=(change.tensor.subgraph, change.tensor.index) in rewritten.removed_transposes,
            )
            for change in layout.transposes
        ),
        transposed_for_speed=layout.chosen_for_speed,
        fused=fused.applied,
        fused_single=_count_single_operator_fusions(planned),
        traits=dict(sorted(traits.items())),
        passes=rewritten.change_counts,
        passes_declined=rewritten.declined,
        fusions_declined=tuple(fused.declined),
        packs=dict(Counter(bound.pack for bound in model.operators())),
        finished_by=host.hooks.finish_packs(),
        overrides=dict(host.overrides),
        states=tuple(state.input for state in states),
        state_types=tuple(f"{s.dtype} [{', '.join(str(n) if n >= 0 else '?' for n in s.shape)}]" for s in states),
        domains=foreign_domains(rewritten.model),
        storage=dict(Counter(f"{t.dtype} stored as {storage.dtype}" for t, storage in planned.storage.shifted.items())),
        weights=rewritten.product_counts,
        warnings=(*host.warnings, *warnings),
    )


def _count_single_operator_fusions(planned: PlannedModel) -> dict[str, int]:
    """Return fusion -> number of times that it replaced a single operator."""
    return dict(
        Counter(
            bound.op.code
            for bound in planned.model.operators()
            if bound.op.code in planned.fused.applied and len(bound.members) == 1
        )
    )


def count_operator_transposes(model: ir.Model, source: BoundModel) -> dict[str, int]:
    """Return operator label -> number of Transposes that the handler emitted.

    ``source``: the bound operators.
    """
    labels = {(op.subgraph, op.index): bound.label for bound in source.operators() for op in (bound.op, *bound.members)}
    operators = [
        source_operators(node.metadata_props)
        for node in model.graph.all_nodes()
        if node.op_type == "Transpose" and CONVERTS_LAYOUT not in node.meta
    ]
    return dict(Counter(labels.get(locations[0], "") for locations in operators if locations))


def transposed_tensors(model: ir.Model) -> frozenset[tuple[int, int]]:
    """Return (subgraph, tensor) of the results of the layout plan's Transposes."""
    values = [
        read_tensor("", node.outputs[0].metadata_props)
        for node in model.graph.all_nodes()
        if node.op_type == "Transpose" and CONVERTS_LAYOUT in node.meta
    ]
    return frozenset((value.subgraph, value.tensor) for value in values if value is not None)
