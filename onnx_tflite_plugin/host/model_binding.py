"""Binding of the reachable operators of a model to handlers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from onnx_tflite_plugin.api.target import Target
from onnx_tflite_plugin.binding.bound import (
    Bound,
    BoundGraph,
    BoundModel,
    check_calls,
    check_operand_sources,
    find_missing_subgraphs,
)
from onnx_tflite_plugin.binding.declared import subgraph_indices
from onnx_tflite_plugin.binding.evaluation import Evaluation
from onnx_tflite_plugin.binding.inlining import Inlining
from onnx_tflite_plugin.binding.rewriting import Site, rewrite_operator
from onnx_tflite_plugin.errors import CONTRADICTION, Contradiction, InvalidModel, Problem, UnsupportedOperator
from onnx_tflite_plugin.guard import Failed
from onnx_tflite_plugin.host.missing_operators import describe_location, describe_skipped_hooks, with_remedies
from onnx_tflite_plugin.source.model import Model, Operator

BindOperator = Callable[[Operator, Target, int], Bound | Problem]
"""Function that returns an operator with its handler, or a problem if no handler accepts it."""


class ModelBinding:
    """State of the binding of a model's operators to handlers.

    ``hook_failures``: pack -> failures of its skipped hooks. ``unused``: problems of unused entry points. A skipped hook
    or an unused entry point may be the cause of a missing handler.
    """

    def __init__(
        self,
        model: Model,
        bind_operator: BindOperator,
        hook_failures: Mapping[str, Sequence[Failed]],
        unused: Sequence[Problem],
        target: Target,
        opset: int,
    ) -> None:
        self.model, self.bind_operator, self.hook_failures, self.unused = model, bind_operator, hook_failures, unused
        self.target, self.opset = target, opset
        self.inlining = Inlining(model)
        self.graphs: dict[int, BoundGraph] = {}
        self.calls: dict[tuple[int, Operator], Sequence[int]] = {}
        self.contradictions: list[Problem] = []
        # unsupported operators and their problem, by (operator code, reason)
        self.missing: dict[tuple[str, str], list[Operator]] = defaultdict(list)
        self.problems: dict[tuple[str, str], Problem] = {}

    def bind(self) -> BoundModel:
        """Return the bound model.

        Raises InvalidModel and UnsupportedOperator with all problems.
        """
        pending = [self.model.root]
        while pending:
            index = pending.pop()
            if index not in self.graphs:
                pending += self._bind_graph(index)
        if self.contradictions:
            raise InvalidModel(CONTRADICTION, self.contradictions)
        if self.missing:
            raise UnsupportedOperator("operators that cannot be converted:", self._missing_problems())
        check_calls(self.calls)
        check_operand_sources(self.graphs[index] for index in sorted(self.graphs))
        graphs = (self.graphs.get(graph.index, BoundGraph(graph, ())) for graph in self.model.subgraphs)
        return BoundModel(self.model, tuple(graphs))

    def _bind_graph(self, index: int) -> list[int]:
        """Bind the operators of a subgraph; return the subgraphs that they call."""
        bound: list[Bound] = []
        called: list[int] = []
        evaluation = Evaluation()
        operators = self.model.subgraphs[index].operators
        for op, binding in self._bind_operators(operators, evaluation, (index,)):
            if isinstance(binding, Bound):
                bound.append(binding)
                evaluation.add_result(binding, self.target, self.opset)
                indices = subgraph_indices(binding.handler.subgraphs, binding.op)
                self.calls[index, binding.op] = indices
                missing_subgraphs = find_missing_subgraphs(binding.op, indices, len(self.model.subgraphs))
                self.contradictions += missing_subgraphs
                called.extend(() if missing_subgraphs else indices)
            elif isinstance(binding, Contradiction):
                self.contradictions.append(binding)
            else:
                self.missing[op.code, binding.reason].append(op)
                self.problems[op.code, binding.reason] = binding
        self.graphs[index] = BoundGraph(self.model.subgraphs[index], tuple(bound))
        return called

    def _bind_operators(
        self, operators: Sequence[Operator], evaluation: Evaluation, subgraph_path: tuple[int, ...]
    ) -> Iterator[tuple[Operator, Bound | Problem]]:
        """Yield each operator with its handler, or a problem if no handler accepts it.

        Calls are replaced by the operators of the inlined subgraph, and operators with ``rewrite`` by their
        replacements. ``subgraph_path``: the subgraph, then the nested subgraphs that are being inlined into it.
        """
        for op in operators:
            binding = self.bind_operator(evaluation.substitute(op), self.target, self.opset)
            inner = self.inlining.operators(binding, subgraph_path) if isinstance(binding, Bound) else None
            if isinstance(binding, Bound) and inner is not None:
                inner_path = (*subgraph_path, binding.op.options[binding.handler.inlined_subgraph])
                yield from self._bind_operators(inner, evaluation, inner_path)
            elif isinstance(binding, Bound) and binding.handler.rewrite is not None:
                yield from rewrite_operator(Site(binding, self.target, self.opset), evaluation.substitute)
            else:
                yield op, binding

    def _missing_problems(self) -> list[Problem]:
        """Return the problems of operators without a handler, and possible causes.

        Possible causes are skipped hooks and unused entry points.
        """
        problem_by_op = {op: self.problems[key] for key, ops in self.missing.items() for op in ops}
        in_model_order = dict(sorted(problem_by_op.items(), key=lambda item: (item[0].subgraph, item[0].index)))
        problem_by_op = with_remedies(in_model_order, self.model.main)
        problems = [replace(problem_by_op[ops[0]], where=describe_location(ops)) for ops in self.missing.values()]
        for pack, failures in self.hook_failures.items():
            problems += [failed.problem(describe_skipped_hooks(pack)) for failed in failures]
        reasons = "\n".join(problem.reason for problem in problems)
        return [*problems, *(problem for problem in self.unused if problem.where not in reasons)]
