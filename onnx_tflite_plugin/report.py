"""Report of a conversion as data, which the command prints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from onnx_tflite_plugin.checked import list_first
from onnx_tflite_plugin.presentation.graph_io import GraphValue
from onnx_tflite_plugin.renamed import REPORT, renamed_attributes

if TYPE_CHECKING:
    import onnx_ir as ir


SPARSE = "sparse "
"""Prefix of the dtype of sparse constants."""


@dataclass(frozen=True)
class TransposedTensor:
    """A tensor that the layout plan transposes.

    ``perm``: axes before and after, as text. ``bytes``: the size of the tensor, with dynamic dimensions of 1. ``producer``
    and ``consumers``: labels of operators. ``is_removed``: True if rewrites removed or replaced the Transpose.
    """

    tensor: str
    perm: str
    bytes: int
    producer: str
    consumers: tuple[str, ...]
    is_dynamic: bool = False
    is_removed: bool = False


@dataclass(frozen=True, repr=False)
class Report:
    """Counts, the layout plan, and other facts about a conversion.

    Attributes:
        target: name of the target.
        opset: opset of the model.
        operators: operator code -> number of operators in the file.
        nodes: ONNX operator -> number of nodes, including those in inner graphs.
        inner_nodes: ONNX operator -> number of nodes in inner graphs.
        layout: kind of layout plan: ``"least"`` (proven to be of least cost), ``"heuristic"`` or ``"local"``.
        layout_cost: cost of the layout plan, in bytes.
        local_plan_differences: number of operators whose layout differs from the layout in the plan ``"local"``.
        transposes: number of Transpose nodes before any rewrite, inserted by the plan or emitted by operators.
        operator_transposes: operator label -> number of Transposes that the operator emitted.
        transposed: tensors that the plan transposes, with the operators that require the Transpose.
        inputs: inputs of the model, without states.
        outputs: outputs of the model, without states.
        signature: key of the converted signature.
        other_signatures: keys of the signatures that were not converted.
        signature_lengths: number of tokens of each signature, if several signatures became one model.
        transposed_for_speed: operators for which the plan transposes more bytes than the minimum, with the saved time in
            bytes (8 kB per microsecond).
        fused: fusion -> number of times that it applied.
        fused_single: fusion -> number of times that it replaced a single operator.
        traits: trait of the target -> number of fused operators that require it.
        passes: rewrite for speed -> number of places that it changed.
        passes_declined: rewrite -> reason -> number of places that it did not change.
        fusions_declined: fusions that did not apply, with the reason.
        packs: pack -> number of operators that it converted.
        finished_by: packs with a hook ``finish`` that was called.
        overrides: operator code -> pack that replaced the built-in handler.
        states: names of the states.
        state_types: dtype and shape of each state, as text.
        domains: domains of operators that need a library of kernels, registered with the session.
        storage: storage dtype -> number of quantized tensors.
        file_constants: dtype -> stored bytes of the constants that the file's operators use, each counted once. Options
            do not change them. The key of sparse constants is, for example, ``"sparse float16"``.
        constants: dtype -> bytes of the model's constants.
        weights: weight dtype -> number of 8-bit matrix products.
        repairs: wrong entries of the file, with the values used instead.
        warnings: warnings of the conversion and of packs.
        hints: values to pass in place of quantized values, and options that fit the model.
    """

    target: str
    opset: int
    operators: Mapping[str, int]
    nodes: Mapping[str, int]
    layout: str
    layout_cost: int
    local_plan_differences: int
    transposes: int
    transposed: tuple[TransposedTensor, ...]
    inputs: tuple[GraphValue, ...] = ()
    outputs: tuple[GraphValue, ...] = ()
    signature: str | None = None
    other_signatures: tuple[str, ...] = ()
    signature_lengths: Mapping[str, int] = field(default_factory=dict)
    transposed_for_speed: tuple[tuple[str, int], ...] = ()
    fused: Mapping[str, int] = field(default_factory=dict)
    traits: Mapping[str, int] = field(default_factory=dict)
    passes: Mapping[str, int] = field(default_factory=dict)
    passes_declined: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    fusions_declined: tuple[str, ...] = ()
    packs: Mapping[str, int] = field(default_factory=dict)
    finished_by: tuple[str, ...] = ()
    overrides: Mapping[str, str] = field(default_factory=dict)
    states: tuple[str, ...] = ()
    domains: tuple[str, ...] = ()
    storage: Mapping[str, int] = field(default_factory=dict)
    weights: Mapping[str, int] = field(default_factory=dict)
    file_constants: Mapping[str, int] = field(default_factory=dict)
    constants: Mapping[str, int] = field(default_factory=dict)
    repairs: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()
    inner_nodes: Mapping[str, int] = field(default_factory=dict)
    state_types: tuple[str, ...] = ()
    operator_transposes: Mapping[str, int] = field(default_factory=dict)
    fused_single: Mapping[str, int] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<Report: {self.line}>"

    def __str__(self) -> str:
        return self.line

    @property
    def line(self) -> str:
        """Return a summary in one line."""
        operators, nodes = sum(self.operators.values()), sum(self.nodes.values())
        interface = f"{_format_names(self.inputs)} → {_format_names(self.outputs)}"
        transposes = self.nodes.get("Transpose", 0)
        transposes_text = "1 Transpose" if transposes == 1 else f"{transposes} Transposes"
        return (
            f"{interface}; {self.target}, opset {self.opset}; {operators} operators as {nodes} nodes, {transposes_text}"
        )

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    if not TYPE_CHECKING:
        __getattr__ = renamed_attributes(REPORT)


def _format_names(graph_values: Sequence[GraphValue]) -> str:
    """Return the first three names, and the number of omitted names."""
    return list_first([graph_value.name for graph_value in graph_values], 3)


def node_counts(model: ir.Model) -> dict[str, int]:
    """Return the number of nodes by operator, in all graphs, most frequent first."""
    return dict(_count(model.graph.all_nodes()).most_common())


def inner_node_counts(model: ir.Model) -> dict[str, int]:
    """Return the number of nodes in inner graphs by operator, most frequent first."""
    return dict((_count(model.graph.all_nodes()) - _count(model.graph)).most_common())


def constant_bytes(model: ir.Model) -> dict[str, int]:
    """Return the bytes of all initializers by dtype, most bytes first."""
    sizes = Counter[str]()
    for graph in model.graphs():
        for value in graph.initializers.values():
            if value.const_value is not None:
                name = value.const_value.dtype.name.lower()
                sizes[{"float": "float32", "double": "float64"}.get(name, name)] += value.const_value.nbytes
    return dict(sizes.most_common())


def _count(nodes: Iterable[ir.Node]) -> Counter[str]:
    return Counter(f"{node.domain}.{node.op_type}" if node.domain else node.op_type for node in nodes)


def describe_overrides(report: Report) -> list[str]:
    """Return a line for each pack that overrides built-in handlers."""
    lines = []
    for pack in sorted({*report.overrides.values()}):
        codes = [code for code, overriding_pack in report.overrides.items() if overriding_pack == pack]
        code_list = list_first(codes, _MAX_CODES)
        lines.append(f"{pack} converts {code_list} instead of the built-in handler; --block {pack} leaves the pack out")
    return lines


_MAX_CODES = 4
