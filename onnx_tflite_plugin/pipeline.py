"""Stages of a conversion after normalization, from fusion to rewriting."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from onnx_tflite_plugin.api import VERSION
from onnx_tflite_plugin.binding.bound import BoundGraph, BoundModel
from onnx_tflite_plugin.binding.declared import resolve
from onnx_tflite_plugin.binding.fusion import FusedModel, fuse
from onnx_tflite_plugin.diagnosis.packs import pack_declarations
from onnx_tflite_plugin.graph.kernels import attention_warnings
from onnx_tflite_plugin.graph.model_metadata import (
    write_activations,
    write_author_metadata,
    write_causal,
    write_lengths,
    write_origin,
    write_renames,
    write_runtime,
    write_weights,
)
from onnx_tflite_plugin.graph.names import UniqueNames
from onnx_tflite_plugin.graph.streaming import proto_to_check
from onnx_tflite_plugin.graph.validity import check_valid
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.layout.dataflow import tensor_bytes
from onnx_tflite_plugin.layout.plan import plan_layout
from onnx_tflite_plugin.layout.tensor_layout import layout_axes
from onnx_tflite_plugin.lowering.axis_warnings import axis_warnings
from onnx_tflite_plugin.lowering.emitter import Emitter
from onnx_tflite_plugin.lowering.interface import InterfaceNames, interface_layouts, rename_interface
from onnx_tflite_plugin.lowering.lower import lower
from onnx_tflite_plugin.lowering.values import outer_scopes
from onnx_tflite_plugin.normalize.dimensions import name_dimensions
from onnx_tflite_plugin.normalize.joining import SEQUENCE
from onnx_tflite_plugin.normalize.stage import Normalized
from onnx_tflite_plugin.options import ConvertOptions
from onnx_tflite_plugin.presentation.facts import doc_string, facts
from onnx_tflite_plugin.presentation.graph_io import dynamic_input_warnings, graph_values
from onnx_tflite_plugin.presentation.hints import (
    attention_hints,
    input_hints,
    output_hints,
    readable_hints,
    table_hints,
)
from onnx_tflite_plugin.presentation.option_warnings import option_warnings
from onnx_tflite_plugin.progress import Progress
from onnx_tflite_plugin.quantization.dequantization import dequantize_model
from onnx_tflite_plugin.quantization.opset import plan_storage_and_opset
from onnx_tflite_plugin.quantization.symmetric import make_symmetric
from onnx_tflite_plugin.report import SPARSE, Report, constant_bytes, node_counts
from onnx_tflite_plugin.report_builder import build_report, count_operator_transposes, transposed_tensors
from onnx_tflite_plugin.rewrite import RULES, find_rule
from onnx_tflite_plugin.rewrite.fold_constants import FoldConstants
from onnx_tflite_plugin.rewrite.name_constants import NameConstants
from onnx_tflite_plugin.rewrite.name_values import NameValues
from onnx_tflite_plugin.rewrite.notes import write_notes
from onnx_tflite_plugin.rewrite.rule import RewriteOptions, apply_rules, run_passes
from onnx_tflite_plugin.rewrite.target_check import check_model, describe_added_operators, unaccelerated_warnings
from onnx_tflite_plugin.rewrite.tokens.last_token import keep_last_token
from onnx_tflite_plugin.rewrite.weights.assign_dtypes import AssignWeightDtypes
from onnx_tflite_plugin.rewrite.weights.dtypes import describe_runtime
from onnx_tflite_plugin.rewrite.weights.separate_constants import SeparateConstants
from onnx_tflite_plugin.source.constant_sizes import constant_sizes
from onnx_tflite_plugin.source.metadata import describe_interface
from onnx_tflite_plugin.source.model import Model
from onnx_tflite_plugin.stage_results import ConvertedModel, PlannedModel, RewrittenModel
from onnx_tflite_plugin.targets import Target

if TYPE_CHECKING:
    import onnx_ir as ir


_CAUSAL_ATTENTION = "fuses_cached_attention"
"""Trait of targets with an operator for attention over a cache."""
_DYNAMIC_QUANTIZATION = "fast_dynamic_quantization"
"""Trait of targets in which dynamic quantization makes products faster."""


class _StageResults(NamedTuple):
    """Results of all stages of a conversion.

    ``names``: names of graph inputs and outputs, after renaming.
    """

    normalized: Normalized
    planned: PlannedModel
    rewritten: RewrittenModel
    names: InterfaceNames

    @property
    def signature_key(self) -> str | None:
        return None if self.normalized.signature is None else self.normalized.signature.key


class Pipeline:
    """Stages of a conversion, each of which runs once.

    ``stages``: called with the name of each stage when it begins. ``fuses``: apply fusions. ``bound``: the latest bound
    model. ``applied``: names of the applied fusions. ``traits``: trait of the target -> number of
    fused operators that require it. ``warnings``: warnings of the lowering.
    """

    def __init__(
        self, host: Host, options: ConvertOptions, target: Target, stages: Progress, *, fuses: bool = True
    ) -> None:
        self.host, self.options, self.target, self.stages, self.fuses = host, options, target, stages, fuses
        self.max_opset = options.opset or target.opsets[2]
        self.bound: BoundModel | None = None
        self.applied: tuple[str, ...] = ()
        self.traits = Counter[str]()
        self.warnings: list[str] = []

    @np.errstate(all="ignore")  # constants are computed with IEEE semantics, as in kernels
    def run(self, normalized: Normalized) -> ConvertedModel:
        """Plan, lower and rewrite a model. Raises ConversionError with a stage's problems."""
        planned = self.plan(self.apply_fusions(self.change_quantization(normalized.bound)), normalized.names)
        names = self.rename(normalized.names, planned.model)
        lowered = self.lower(planned, names)
        _name_dimensions(lowered, normalized, planned, names)
        if self.options.logits == "last":
            keep_last_token(lowered, normalized.head)
        results = _StageResults(normalized, planned, self.rewrite(lowered, planned), names)
        model, source = results.rewritten.model, normalized.model
        self._write_metadata(results)
        report = self._report(results)
        report = replace(
            report,
            warnings=(*report.warnings, *self._model_warnings(results, report)),
            hints=tuple(self._hints(results, report)),
        )
        model.producer_version, model.doc_string = VERSION, doc_string(source)
        write_author_metadata(model.metadata_props, facts(source, report.inputs, report.outputs))
        return ConvertedModel(model, report, source)

    @property
    def has_causal_attention(self) -> bool:
        """True if attention over caches was fused to one operator."""
        return _CAUSAL_ATTENTION in self.traits

    # --- stages -------------------------------------------------------------------------------

    def change_quantization(self, bound: BoundModel) -> BoundModel:
        """Return the model, dequantized or with symmetric int8 if an option requests it."""
        self.bound = bound
        if self.options.quantization == "qdq":
            return bound
        change = make_symmetric if self._is_symmetric else dequantize_model
        return change(resolve(bound, self.target, self.max_opset), self.target, self.max_opset)

    def apply_fusions(self, bound: BoundModel) -> FusedModel:
        """Return the model after fusion, with the declarations of all its operators."""
        self.stages("fusions")
        codes = {operator.handler.code for operator in bound.operators()}
        fusions = self.host.fusions(codes) if self.fuses else []
        inexact = self.options.optimize == "speed"
        fused = fuse(bound, fusions, self.target, opset=self.options.opset, inexact=inexact)
        for failed in fused.failed.values():
            self.host.warn(f"{failed.reason}; the fusion is skipped")
        self.applied = tuple(fused.applied)
        self.traits = Counter[str]()
        for trait, name in {
            (fusion.trait, fusion.name) for _, fusion in fusions if fusion.trait and fusion.name in fused.applied
        }:
            self.traits[trait] += fused.applied[name]
        if self.options.attention == "causal" and not self.has_causal_attention:
            names = tuple(f"{fusion.name} at" for _, fusion in fusions if fusion.trait == _CAUSAL_ATTENTION)
            reasons = [reason for reason in fused.declined if reason.startswith(names)]
            reason = reasons[0] if reasons else "no attention over a cache was recognized"
            self.host.warn(f"--attention causal: {reason}; the option has no effect")
        fused.model = resolve(fused.model, self.target, self.max_opset).drop_uncalled_graphs()
        self.host.hooks.check(packs_of(fused.model))
        self.bound = fused.model
        return fused

    def plan(self, fused: FusedModel, names: InterfaceNames) -> PlannedModel:
        """Choose a dtype for every tensor, an opset, and a layout for every operator."""
        options, target, model = self.options, self.target, fused.model
        self.stages("planning dtypes")
        storage, opset = plan_storage_and_opset(model, options.opset, target, fold=options.folds_constants)
        self.stages("planning the layout")
        layout = plan_layout(
            model,
            bytes_of=tensor_bytes,
            prices=target.price,
            interface=interface_layouts(
                model.main,
                names,
                options.layout,
                plan_all=options.io_layout == "onnx",
                plan_caches=self.has_causal_attention,
                channels_first=options.channels_first,
            ),
            local=options.layout_plan == "local",
            can_squeeze=lambda bound: storage.dtype(bound) not in target.keeps_unit_axes,
            keeps_source_layout=lambda tensor: storage.storage(tensor).dtype in target.channels_last,
        )
        return PlannedModel(fused, storage, opset, layout)

    def rename(self, names: InterfaceNames, model: BoundModel) -> InterfaceNames:
        """Return the new names of graph inputs and outputs.

        ``--rename`` takes precedence over the packs' hooks.
        """
        hook_names = self.host.hooks.rename(names.inputs, names.outputs, packs_of(model))
        requested = rename_interface(names, model.main, self.options.rename, "--rename")
        old_names, new_names = (*names.inputs, *names.outputs), (*requested.inputs, *requested.outputs)
        unchanged = {old for old, new in zip(old_names, new_names, strict=True) if old == new}
        return rename_interface(
            requested, model.main, {old: new for old, new in hook_names.items() if old in unchanged}, "hook rename"
        )

    def lower(self, planned: PlannedModel, names: InterfaceNames) -> ir.Model:
        """Return the ONNX model emitted by handlers."""
        self.stages("lowering")
        hooks, packs = self.host.hooks, packs_of(planned.model)
        emitter = Emitter(planned.opset, UniqueNames(), self.target.wider_dtypes)
        lowered = lower(
            planned.model,
            planned.layout,
            planned.storage,
            self.target,
            emitter,
            names=names,
            reset=self.options.state == "reset",
            after_operator=lambda bound, outputs: hooks.after_lowering(bound.op, outputs, packs),
        )
        self.warnings = emitter.warnings
        declared = pack_declarations(planned.model)
        if declared:  # checked before passes rewrite the model, so that an error names its handler
            check_valid(lowered, proto_to_check(lowered), declared)
        return lowered

    def rewrite(self, model: ir.Model, planned: PlannedModel) -> RewrittenModel:
        """Apply the target's rules and the packs' hooks, and assign weight dtypes."""
        self.stages("rewriting")
        optimize, target = self.options.optimize, self.target
        notes: tuple[str, ...] = ()
        options = RewriteOptions(self._weights_dtype, self.options.unroll)
        outcomes = apply_rules([RULES["unroll_loops"]] if options.unroll else [], model, options)
        check_model(model, target, planned.opset)
        options = options._replace(check=partial(describe_added_operators, target=target))
        transposes = node_counts(model).get("Transpose", 0)
        operator_transposes = count_operator_transposes(model, planned.model)
        transposed = transposed_tensors(model)
        rules = [find_rule(name, self.host.targets.pack_of(target.name)) for name in target.passes]
        if optimize == "readable":
            outcomes |= apply_rules([RULES["merge_reshapes"]], model, options)
        selected = [rule for rule in rules if optimize == "speed" or (rule.exact and optimize == "faithful")]
        outcomes |= apply_rules(selected, model, options)
        if target.quantizes_weights:
            apply_rules([RULES["keep_float_weights"]], model, options)
        apply_rules([RULES["reshape_before_if"], RULES["copy_captures"]], model, options)
        model = self.host.hooks.finish(model, packs_of(planned.model), options.check)
        changed = {name: outcome.applied for name, outcome in outcomes.items() if outcome.applied}
        declined = {name: reasons for name, outcome in outcomes.items() if (reasons := outcome.reasons())}
        product_counts = self._assign_weight_dtypes(model)
        if optimize == "readable":
            run_passes(model, [FoldConstants(), NameValues(outer_scopes(planned.model.source)), NameConstants()])
            notes = write_notes(model)
        nodes = node_counts(model)
        if runtime := describe_runtime(product_counts, nodes):
            write_runtime(model.metadata_props, runtime)
        return RewrittenModel(
            model, nodes, transposes, operator_transposes, changed, declined, product_counts, notes,
            transposed - transposed_tensors(model),
        )  # fmt: skip

    # --- metadata and report ------------------------------------------------------------------

    def _write_metadata(self, results: _StageResults) -> None:
        """Write what the file and the options tell about the model to its metadata."""
        normalized, names, metadata = results.normalized, results.names, results.rewritten.model.metadata_props
        write_origin(metadata, results.signature_key, normalized.part)
        write_lengths(metadata, normalized.lengths)
        if (size := activation_bytes(results.planned.model.main)) is not None:
            write_activations(metadata, size)
        if self.has_causal_attention:
            write_causal(metadata)
        old_names = (*normalized.names.inputs, *normalized.names.outputs)
        pairs = zip(old_names, (*names.inputs, *names.outputs), strict=True)
        write_renames(metadata, {old: new for old, new in pairs if old != new})

    def _report(self, results: _StageResults) -> Report:
        """Return the report, with warnings of the lowering and the host only."""
        (normalized, planned, rewritten, names), graph = results, results.rewritten.model.graph
        main, file_main = planned.model.main, normalized.bound.main
        tensor_metadata = describe_interface(normalized.model)
        return replace(
            build_report(
                planned, rewritten, self.host, target=self.target.name, traits=self.traits, warnings=self.warnings
            ),
            inputs=graph_values(graph.inputs, names.inputs, main.inputs, file_main.inputs, tensor_metadata),
            outputs=graph_values(graph.outputs, names.outputs, main.outputs, file_main.outputs, tensor_metadata),
            signature=results.signature_key,
            other_signatures=tuple(
                entry.key
                for entry in normalized.model.signatures
                if entry is not normalized.signature and entry.key not in normalized.lengths
            ),
            signature_lengths=normalized.lengths,
            repairs=normalized.repairs,
            file_constants=_file_constants(normalized.file),
            constants=constant_bytes(rewritten.model),
        )

    def _model_warnings(self, results: _StageResults, report: Report) -> Iterator[str]:
        """Yield warnings about the options, the inputs and the nodes of the model."""
        normalized, planned, rewritten, _ = results
        yield from option_warnings(self.options, planned.model, rewritten.model, rewritten.product_counts)
        yield from axis_warnings(planned.model.main, normalized.names, self.options, normalized.stored_dims)
        yield from dynamic_input_warnings(report.inputs, self.target)
        yield from attention_warnings(rewritten.model)
        yield from unaccelerated_warnings(rewritten.model, self.target)

    def _hints(self, results: _StageResults, report: Report) -> Iterator[str]:
        """Yield hints on how to use the model."""
        normalized, planned, rewritten, names = results
        file_main = normalized.bound.main
        yield from rewritten.notes
        yield from input_hints(report.inputs, dict(zip(names.inputs, file_main.inputs, strict=True)))
        yield from output_hints(report.outputs, dict(zip(names.outputs, file_main.outputs, strict=True)))
        yield from attention_hints(report.inputs, report.outputs, self.options, self.target)
        quantizes_dynamically = _DYNAMIC_QUANTIZATION in self.traits
        yield from table_hints(rewritten.model, planned.model, quantizes_dynamically=quantizes_dynamically)
        yield from readable_hints(self.options, self.target, planned.model, report.nodes)

    @property
    def _is_symmetric(self) -> bool:
        return self.options.quantization == "symmetric"

    @property
    def _weights_dtype(self) -> str:
        """Return the dtype of 8-bit weights: the option, or uint8 in a readable model.

        A readable model must not have an If, which "auto" needs.
        """
        option = self.options.weights_dtype
        return "uint8" if option == "auto" and self.options.optimize == "readable" else option

    def _assign_weight_dtypes(self, model: ir.Model) -> Mapping[str, int]:
        """Assign the dtypes of int8 weights if int8 products may saturate on the target.

        Return the number of 8-bit matrix products by weight dtype.
        """
        if not self.target.may_saturate:
            return {}
        assign = AssignWeightDtypes(self._weights_dtype, is_uniform=self.options.optimize == "readable")
        run_passes(model, [assign, SeparateConstants()])
        if assign.dtypes:
            write_weights(model.metadata_props, assign.dtypes)
        return assign.dtypes


def _name_dimensions(model: ir.Model, normalized: Normalized, planned: PlannedModel, names: InterfaceNames) -> None:
    """Name the dynamic dimensions of graph inputs and outputs."""
    main, layout = planned.model.main, planned.layout.interface_layout
    inputs = {
        (names.inputs[k], layout_axes(layout(main.inputs[k])).index(axis)): name
        for (k, axis), name in normalized.dimensions.items()
    }
    outputs = {
        (name, layout_axes(layout(tensor)).index(axis)): SEQUENCE
        for name, tensor in zip(names.outputs, main.outputs, strict=True)
        for axis in normalized.sequence_axes(tensor)
    }
    name_dimensions(model, inputs, outputs)


def packs_of(model: BoundModel) -> frozenset[str]:
    """Return the names of the op packs that convert the model's operators."""
    return frozenset(bound.pack for bound in model.operators())


def _file_constants(file: Model) -> dict[str, int]:
    """Return dtype -> bytes of the constants that the file's operators use."""
    return {f"{SPARSE * size.sparse}{size.dtype}": size.bytes for size in constant_sizes(file)}


def activation_bytes(graph: BoundGraph) -> int | None:
    """Return the total bytes of the operators' results; None if a shape is dynamic."""
    results = [tensor for bound in graph.operators for tensor in bound.op.outputs if tensor is not None]
    return sum(map(tensor_bytes, results)) if all(tensor.is_static for tensor in results) else None
