"""Comparison of all submodels on the same operands: the decision of a verification."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from onnx_tflite_plugin.errors import ConversionError
from onnx_tflite_plugin.graph.metadata import TensorValue, belongs_to, is_causal, props
from onnx_tflite_plugin.source.model import Array, Operator, Tensor
from onnx_tflite_plugin.verify import criteria
from onnx_tflite_plugin.verify.comparison.compare import Comparison, compare
from onnx_tflite_plugin.verify.comparison.rounding import inherited_step, rounds, undecided_reason, weight_scale
from onnx_tflite_plugin.verify.comparison.tensors import HeldTensors
from onnx_tflite_plugin.verify.comparison.trial import Run, Trial
from onnx_tflite_plugin.verify.criteria import Tolerance
from onnx_tflite_plugin.verify.inputs.random_inputs import may_reorder
from onnx_tflite_plugin.verify.runtimes.litert import LiteRTError
from onnx_tflite_plugin.verify.runtimes.ort import OnnxRuntime
from onnx_tflite_plugin.verify.runtimes.structure import block_scales, is_dynamic_range
from onnx_tflite_plugin.verify.runtimes.structure import operands as operands_of
from onnx_tflite_plugin.verify.submodels.cut import CutModel
from onnx_tflite_plugin.verify.submodels.expand import Expanded
from onnx_tflite_plugin.verify.submodels.operands import KINDS, random_operands
from onnx_tflite_plugin.verify.submodels.references import FLOAT_WEIGHTS, OperandSet, References

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto

_RECURRENT = {"Loop", "Scan", "If", "LSTM", "GRU", "RNN"}
_FAILED_NODE = re.compile(r"Node number (\d+) ")
_LONG = (
    20  # seconds after which no further run is observed: builtin kernels of 4 bits take 45 s for a prompt of 128 tokens
)
_RETRIES = 8  # operators whose random operands LiteRT refuses


class Submodel(NamedTuple):
    """The operators that compute a tensor from cut tensors and graph inputs, which are its ``leaves``."""

    value: TensorValue
    tensor: Tensor
    operators: tuple[Operator, ...]
    leaves: frozenset[int]
    recurrent: bool


class Finding(NamedTuple):
    """The comparison of a submodel on one set of operands."""

    submodel: Submodel
    comparison: Comparison
    operands: OperandSet


@dataclass
class Decision:
    """Comparisons that agree, by ONNX value; submodels and constants that differ; reasons why some are undecided, or all.

    ``operators``: the number of operators compared. ``outputs``: LiteRT's in each run that was observed.
    """

    agreed: dict[str, Comparison] = field(default_factory=dict)
    differing: list[Finding] = field(default_factory=list)
    undecided: list[str] = field(default_factory=list)
    constants: list[tuple[Operator, Comparison]] = field(default_factory=list)
    error: str = ""
    operators: int = 0
    outputs: list[Run] = field(default_factory=list)


class Engine:
    """Compares the submodels of one conversion. ``skipped``: tensors that are not compared. ``allowed``: the tolerance
    that a user gave. ``fresh``: LiteRT forgets its states every run. Raises ConversionError if either model does not run in this form.
    """

    def __init__(
        self,
        trial: Trial,
        session: OnnxRuntime,
        *,
        skipped: Collection[int] = (),
        allowed: Tolerance | None = None,
        stateful: bool,
        fresh: bool,
        patience: float | None = None,
    ) -> None:
        self.allowed, self.patience = allowed, patience
        self.trial, self.session, self.skipped, self.stateful, self.fresh = trial, session, skipped, stateful, fresh
        self.dequantized = HeldTensors(trial, session, fresh=fresh).is_dequantized
        self.decision = Decision()

    def decide(self, runs: Sequence[Run]) -> Decision:
        """Compare every submodel on LiteRT's own operands in these runs, then on random ones."""
        first = None
        for arrays, kept in self._observe_operands(runs):
            if first is None:
                self._prepare(kept)
            if not self.cut.cut <= kept.keys():  # a tensor without memory in this run
                continue
            operands = {index: kept[index] for index in self.cut.cut}
            expected = {s.tensor.index: kept[s.tensor.index] for s in self.submodels if s.tensor.index in kept}
            one = OperandSet("observed", arrays, operands, expected)
            self._compare(one, self.submodels)
            first = first or one
        if first is not None and self._takes_random_operands():
            self._compare_random(first)
        self.decision.operators = len({op.index for submodel in self.submodels for op in submodel.operators})
        return self.decision

    def _observe_operands(self, runs: Sequence[Run]) -> Iterator[tuple[Run, Mapping[int, Array]]]:
        """Yield each run's inputs and LiteRT's tensors; fewer runs if they take long, or if LiteRT refuses one after the first."""
        session = self.trial.session("builtin", preserve=True, patience=self.patience)
        start = time.monotonic()
        for k, arrays in enumerate(runs):
            if k and self.fresh:
                session = self.trial.session("builtin", preserve=True, patience=self.patience)
            self.trial.progress(f"LiteRT (builtin), all tensors, run {k + 1} of {len(runs)}")
            try:
                self.decision.outputs.append(session.run(arrays))
            except LiteRTError:
                if not k:
                    raise
                return
            yield arrays, session.tensors()
            if time.monotonic() - start > _LONG:
                break

    def _prepare(self, kept: Mapping[int, Array]) -> None:
        """Cut the ONNX model, and find the operators of each submodel."""
        self.cut = CutModel(self.trial.entry, self.session, kept)
        nodes = self.session.proto.graph.node
        kinds = [(index, node.op_type) for node in nodes for index in belongs_to(props(node.metadata_props))]
        self.recurrent = {index for index, kind in kinds if kind in _RECURRENT}
        self.inexact = {index: criteria.KERNELS[kind] for index, kind in kinds if kind in criteria.KERNELS}
        self.sources = _onnx_sources(self.session.proto.graph, self.cut)
        self.submodels = [self._submodel(v) for v in self.cut.values if v.tensor not in self.skipped]
        self.submodels.sort(key=lambda one: one.operators[-1].index)
        self.entered = {tensor.index for tensor in self.trial.entry.inputs}
        operators = (op for graph in self.trial.model.subgraphs for op in graph.operators)
        self.references = References(
            self.trial,
            sorted(self.cut.cut),
            sorted({s.tensor.index for s in self.submodels}),
            dynamic_range=any(map(is_dynamic_range, operators)),
            stateful=self.stateful and not self.fresh,
            fresh=self.fresh,
        )

    def _submodel(self, value: TensorValue) -> Submodel:
        tensors, producers = self.trial.entry.subgraph.tensors, self.cut.producers
        chosen: dict[int, Operator] = {}
        leaves: set[int] = set()
        waiting = [value.tensor]
        while waiting:
            operator = producers.get(waiting.pop())
            if operator is None or operator.index in chosen:
                continue
            chosen[operator.index] = operator
            for tensor in operands_of(operator):
                if tensor.index in self.cut.cut or tensor.index not in producers:
                    leaves.add(tensor.index)
                else:
                    waiting.append(tensor.index)
        operators = tuple(chosen[index] for index in sorted(chosen))
        recurrent = any(
            op.index in self.recurrent or any(t is not None and t.is_variable for t in op.inputs) for op in operators
        )
        return Submodel(value, tensors[value.tensor], operators, frozenset(leaves), recurrent)

    def _takes_random_operands(self) -> bool:
        """False if LiteRT lacks operators, if nothing saturates as in LiteRT, or if masks were declared causal."""
        whole = not (self.trial.substitutes.pack_kernels or self.trial.substitutes.from_onnx)
        return whole and not self.dequantized and not is_causal(props(self.session.proto.metadata_props))

    # --- random operands ----------------------------------------------------------------------

    def _compare_random(self, first: OperandSet) -> None:
        """Compare submodels on operands of the shapes of ``first``, if they read what LiteRT's operators do and compute no more."""
        chosen = [s for s in self.submodels if self._is_comparable(s)]
        results = sorted({s.tensor.index for s in chosen})
        if not chosen:
            return
        try:
            expanded = Expanded(self.trial, self.cut.cut, results)
        except ConversionError:
            return
        self.cut.reset()
        for kind in KINDS:
            if self.fresh:
                expanded = Expanded(self.trial, self.cut.cut, results)
            one = self._random_set(expanded, kind, first)
            if one is not None:
                with suppress(ConversionError):  # ONNX Runtime refuses them, as an index beyond the end
                    self._compare(one, chosen)

    def _is_comparable(self, submodel: Submodel) -> bool:
        """True if the ONNX submodel is no larger than that of LiteRT, as it is where a tensor has a second value that is not cut."""
        leaves, operators = self.sources[submodel.value.name]
        return leaves <= submodel.leaves and not operators > {op.index for op in submodel.operators}

    def _random_set(self, expanded: Expanded, kind: str, first: OperandSet) -> OperandSet | None:
        """Draw operands that LiteRT takes; those of an operator that fails are the observed ones."""
        entry = self.trial.entry
        observed = {**{t.index: a for t, a in zip(entry.inputs, first.inputs, strict=True)}, **first.operands}
        tensors = [entry.subgraph.tensors[index] for index in observed]
        operators = entry.subgraph.operators
        counters = {
            t.index
            for op in operators
            if op.index in self.recurrent
            for t in op.inputs
            if t is not None and t.index in observed and observed[t.index].size == 1 and t.dtype in ("int32", "int64")
        }
        drawn = random_operands(kind, entry.subgraph, tensors, observed, counters)
        drawn |= {index: observed[index] for index in _constant_tensors(operators) if index in observed}
        if kind == "special":
            ordered = (t for op in operators if may_reorder(op) for t in op.inputs if t is not None)
            drawn |= {t.index: observed[t.index] for t in ordered if t.index in observed}
        for _ in range(_RETRIES):
            inputs = [drawn[t.index] for t in entry.inputs]
            try:
                return OperandSet(kind, inputs, drawn, expanded.run(inputs, drawn))
            except LiteRTError as error:
                failed = _FAILED_NODE.search(str(error))
                if failed is None or int(failed[1]) >= len(operators):
                    return None
                drawn |= {
                    t.index: observed[t.index]
                    for t in operators[int(failed[1])].inputs
                    if t is not None and t.index in observed
                }
        return None

    # --- comparison ---------------------------------------------------------------------------

    def _compare(self, one: OperandSet, submodels: Sequence[Submodel]) -> None:
        """Compare submodels with LiteRT's builtin kernels, and what does not match with its other answers."""
        actual = self.cut.run(one.inputs, one.operands)
        self.references.begin(one)
        for submodel in submodels:
            name = submodel.value.name
            if name not in actual or submodel.tensor.index not in one.expected:
                continue
            found = self._judge(submodel, one, actual[name], one.expected[submodel.tensor.index], "builtin")
            matched = found if found.ok else self._find_match(submodel, one, actual[name])
            if matched is not None:
                self.decision.agreed.setdefault(name, matched)
            else:
                self._record_mismatch(submodel, one, found)

    def _judge(
        self,
        submodel: Submodel,
        one: OperandSet,
        actual: Array,
        expected: Array,
        kernels: str,
        allowed: Tolerance | None = None,
    ) -> Comparison:
        tolerance = (
            allowed
            or self.allowed
            or criteria.tolerance_of(
                len(submodel.operators),
                roundings=sum(map(rounds, submodel.operators)),
                recurrent=submodel.recurrent,
                dequantized=self.dequantized,
            )
        )
        if one.kind != "observed" or actual.dtype == np.int16:
            actual, expected = criteria.without_overflow(actual, expected, wide=one.kind == "wide")
        given = {**one.operands, **{t.index: a for t, a in zip(self.trial.entry.inputs, one.inputs, strict=True)}}
        sums = any(len(op.inputs) > 1 for op in submodel.operators)
        largest = criteria.largest_of([given[index] for index in submodel.leaves if index in given]) if sums else 0.0
        floor = max(
            criteria.CANCELLATION * largest,
            *(self.inexact.get(op.index, 0.0) for op in submodel.operators),
            inherited_step(submodel.tensor, self.cut.producers, tolerance, self.cut.cut | self.entered),
        )
        if kernels != FLOAT_WEIGHTS:
            scale = max(weight_scale(op, self._block_scales) for op in submodel.operators)
            floor = max(floor, criteria.ROUNDED * largest * scale)
        return compare(str(submodel.tensor), [actual], {kernels: [expected]}, tolerance, floor=floor)

    @cached_property
    def _block_scales(self) -> dict[int, float]:
        return block_scales(self.trial.data, self.trial.entry.subgraph.index)

    def _find_match(self, submodel: Submodel, one: OperandSet, actual: Array) -> Comparison | None:
        """Return the comparison with the first answer that a submodel matches; None if it matches none."""
        if self.trial.substitutes.pack_kernels or self.trial.substitutes.from_onnx:
            return None
        index = submodel.tensor.index
        missing = False
        for name, answer in self.references.answers():
            missing |= name == FLOAT_WEIGHTS and index not in answer
            if index in answer and (found := self._judge(submodel, one, actual, answer[index], name)).ok:
                return found
        if not missing:
            return None
        # float kernels refuse the operator, as one with a fused TANH: what dynamic quantization makes of a network
        found = self._judge(submodel, one, actual, one.expected[index], "builtin", self.trial.tolerance)
        return found if found.ok else None

    def _record_mismatch(self, submodel: Submodel, one: OperandSet, found: Comparison) -> None:
        """Record a submodel as differing, or as undecided with the reason; random operands alone say nothing then."""
        codes = " and ".join(dict.fromkeys(op.code for op in submodel.operators))
        if reason := undecided_reason(submodel.operators, found):
            if one.kind == "observed":
                self.decision.undecided.append(f"{submodel.tensor.name!r} of {codes}: {reason}")
            return
        name = f"{submodel.tensor.name} of {codes} in isolation"
        self.decision.differing.append(Finding(submodel, replace(found, name=name), one))


def _constant_tensors(operators: Sequence[Operator]) -> set[int]:
    """Return the tensors that are computed from constants alone, which the ONNX model may hold as constants of its own."""
    fixed: set[int] = set()
    for operator in operators:
        taken = [t for t in operator.inputs if t is not None]
        if taken and all(t.is_constant or t.index in fixed for t in taken):
            fixed |= {t.index for t in operator.outputs if t is not None}
    return fixed


def _onnx_sources(graph: GraphProto, cut: CutModel) -> dict[str, tuple[frozenset[int], frozenset[int]]]:
    """Return the tensors that each compared value is computed from in the cut model, and the operators of its nodes."""
    makers = {name: node for node in graph.node for name in node.output}
    tensors = {value.name: value.tensor for value in cut.values if value.name in cut.given}
    tensors |= {info.name: t.index for info, t in zip(cut.pairs.inputs, cut.entry.inputs, strict=True)}
    states = {state.input for state in cut.session.states}
    sources = {}
    for value in cut.values:
        found: set[int] = set()
        operators: set[int] = set()
        seen: set[str] = set()
        waiting = [value.name]
        while waiting:
            name = waiting.pop()
            if name in seen or name in states:
                continue
            seen.add(name)
            if name in tensors and name != value.name:
                found.add(tensors[name])
            elif name in makers:
                operators.update(_operators(makers[name]))
                waiting += _reads(makers[name])
        sources[value.name] = frozenset(found), frozenset(operators)
    return sources


def _operators(node: NodeProto) -> Iterator[int]:
    """Yield the TFLite operators that a node and those of its bodies belong to."""
    yield from belongs_to(props(node.metadata_props))
    for attribute in node.attribute:
        if attribute.HasField("g"):
            for inner in attribute.g.node:
                yield from _operators(inner)


def _reads(node: NodeProto) -> Iterator[str]:
    """Yield the values that a node reads, with those that its bodies read."""
    yield from (name for name in node.input if name)
    for attribute in node.attribute:
        if attribute.HasField("g"):
            for inner in attribute.g.node:
                yield from _reads(inner)
            yield from (info.name for info in attribute.g.output)
