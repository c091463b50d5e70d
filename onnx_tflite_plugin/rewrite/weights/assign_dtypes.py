"""Assign dtypes to int8 weights so that sums are exact on every processor.

Weights whose sums overflow on no processor stay int8. Other weights become uint8 (128 is added to values and zero point), or the model
selects their dtype at load time.

For this selection, the model multiplies two constant matrices: the probe. Its result shows whether the processor computes exact sums.
The weights of a graph are dequantized in one ``If`` on the probe. ONNX Runtime computes the probe while it loads the model, keeps one
branch, and constant-folds it. Only int8 or only uint8 weights remain.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import onnx_ir as ir
from onnx_ir.passes import InPlacePass, PassResult

from onnx_tflite_plugin.errors import Problem, TargetRefusal
from onnx_tflite_plugin.lowering.ir_values import tensor_value
from onnx_tflite_plugin.rewrite.editor import Editor, remove_unused_outputs
from onnx_tflite_plugin.rewrite.matching import constant, label_of
from onnx_tflite_plugin.rewrite.weights.dtypes import CHOSEN, DEPENDENT, INT8, PROBE, SHIFT, UINT8, shift_to_uint8
from onnx_tflite_plugin.rewrite.weights.int8_operands import Int8Operand, int8_operands
from onnx_tflite_plugin.rewrite.weights.processor_probe import Emit, emit_choice, emit_probe

MAX_GROWTH = 2**20  # maximum bytes of the copies of one constant that several nodes read


class AssignWeightDtypes(InPlacePass):
    """Assign a dtype to all int8 operands of convolutions and matrix multiplications.

    ``option``: the value of ``--weights-dtype``, which applies to weights whose sums overflow on some processors.
    ``"auto"`` selects their dtype at load time, ``"uint8"`` converts them, ``"int8"`` and ``"keep"`` leave them unchanged,
    so that results depend on the processor. ``is_uniform``: if any weights become uint8, all constant weights do, for
    graphs that people read. ``dtypes``: after the pass, dtype -> number of operands.
    """

    def __init__(self, option: str, *, is_uniform: bool = False) -> None:
        self.option, self.is_uniform, self.dtypes = option, is_uniform, dict[str, int]()

    def call(self, model: ir.Model) -> PassResult:
        self.dtypes = _assign(model, self.option, is_uniform=self.is_uniform)
        return PassResult(model, bool(self.dtypes))

    def ensures(self, model: ir.Model) -> None:
        """Raise TargetRefusal if a sum may overflow, unless the option allows this."""
        if self.option in ("auto", "uint8"):
            check_overflow(model)


def _assign(model: ir.Model, option: str, *, is_uniform: bool) -> dict[str, int]:
    """Assign a dtype to each int8 operand, and return dtype -> number of operands."""
    assignment = _DtypeAssignment(model)
    dtypes: Counter[str] = Counter()
    operands = list(int8_operands(model))
    use_counts = Counter(operand.stored for operand in operands)
    dtype_of = {
        operand: _dtype(operand, option, (use_counts[operand.stored] - 1) * operand.weights.nbytes)
        for operand in operands
        if operand.weights is not None
    }
    if is_uniform and UINT8 in dtype_of.values():
        dtype_of = dict.fromkeys(dtype_of, UINT8)
    assign_by_dtype = {
        INT8: assignment.keep,
        DEPENDENT: assignment.keep,
        UINT8: assignment.widen,
        CHOSEN: assignment.choose,
    }
    for operand in operands:
        if operand.weights is None:
            assignment.convert_at_runtime(operand)
            continue
        dtype = dtype_of[operand]
        assign_by_dtype[dtype](operand)
        if not operand.on_exact_branch:  # otherwise the operand on the other branch is counted
            dtypes[CHOSEN if operand.on_else_branch and option == "auto" else dtype] += 1
    assignment.finish()
    return dict(dtypes)


def _dtype(operand: Int8Operand, option: str, growth: int) -> str:
    """Return the dtype to assign to constant weights.

    ``growth``: bytes by which the file grows if each reader of the weights gets a copy.
    """
    if option in ("int8", "keep"):
        return INT8 if operand.exact else DEPENDENT
    if growth > MAX_GROWTH:
        return UINT8
    if operand.exact or (operand.on_exact_branch and option == "auto"):
        return INT8
    return UINT8 if option == "uint8" or operand.has_int8_min or operand.on_else_branch else CHOSEN


def check_overflow(model: ir.Model) -> None:
    """Raise TargetRefusal if sums of a node may overflow on a processor that runs it.

    A node that runs only if the probe is true may overflow on processors where the probe is false.
    """
    problems = [
        Problem(
            f"node {operand.node.name!r}",
            f"operand {operand.slot} is int8, and sums overflow on processors that add products in 16 bits",
            "--weights-dtype uint8, or report the problem to the author of the handler",
        )
        for operand in int8_operands(model)
        if operand.has_int8_min or not (operand.on_exact_branch or operand.exact)
    ]
    if problems:
        raise TargetRefusal("multiplications that are not exact on every processor:", problems)


class _Choice(NamedTuple):
    """An operand whose dtype is selected at load time.

    ``inputs``: the integers and, if they are dequantized, scale and zero point.
    """

    operand: Int8Operand
    inputs: Sequence[ir.Value]


class _DtypeAssignment:
    """Assigns dtypes, one operand at a time.

    :meth:`finish` emits the common ``If`` of each graph. Each operand gets its own integers, scale and zero point, because
    ONNX Runtime converts them node by node under ``session.x64quantprecision``.
    """

    def __init__(self, model: ir.Model) -> None:
        self.editor = Editor(model)
        self._probe: ir.Value | None = None
        self._used_constants: set[ir.Value] = set()
        self._pending: defaultdict[ir.Graph, dict[tuple[ir.Node, int], _Choice]] = defaultdict(dict)

    # --- dtypes -------------------------------------------------------------------------------

    def keep(self, operand: Int8Operand) -> None:
        """Keep the weights in int8."""
        if operand.dequantize is not None:
            self._replace(operand, lambda: self._emit_as_int8(operand, *self._unshared_inputs(operand)))

    def widen(self, operand: Int8Operand) -> None:
        """Store the weights as uint8."""
        assert operand.weights is not None
        integers = self.editor.store(shift_to_uint8(operand.weights), like=operand.stored)
        self._replace(operand, lambda: self._emit_as_uint8(operand, integers))

    def choose(self, operand: Int8Operand) -> None:
        """Select the dtype of the weights at load time.

        If the probe is false, uint8 weights are computed from the int8 weights. Dequantized weights are emitted by
        :meth:`finish`. An integer operator such as MatMulInteger is emitted in both branches, each with its weight dtype.
        """
        if operand.dequantize is None:
            choice = _Choice(operand, self._unshared_inputs(operand))
            self._emit_probe()
            self._replace(operand, lambda: self._emit_choice([choice])[0])
            return
        graph = operand.insertion_point.graph
        assert isinstance(graph, ir.Graph)
        pending = self._pending[graph]
        key = operand.insertion_point, -1 if operand.is_rearranged else operand.slot
        if key not in pending:  # all readers of the same rearranged weights share one choice
            pending[key] = _Choice(operand, self._unshared_inputs(operand))

    def convert_at_runtime(self, operand: Int8Operand) -> None:
        """Convert computed integers to uint8 at runtime."""
        node = operand.node
        if operand.dequantize is not None:
            self._replace(operand, lambda: self._emit_as_uint8(operand, self._emit_uint8(operand.stored)))
            return
        assert operand.zero_point_slot is not None
        with self.editor.replacing(node):
            shifted, zero_point = self._emit_uint8(operand.stored), self._emit_zero_point(operand)
        node.resize_inputs(max(len(node.inputs), operand.zero_point_slot + 1))
        node.replace_input_with(operand.slot, shifted)
        node.replace_input_with(operand.zero_point_slot, zero_point)

    def finish(self) -> None:
        """Emit one ``If`` for the pending weights of each graph, and remove unused nodes."""
        for graph, pending in self._pending.items():
            probe, choices = self._emit_probe().producer(), list(pending.values())
            assert probe is not None
            has_probe = probe.graph is graph
            with self.editor.replacing(probe if has_probe else graph[0], after=has_probe, label=PROBE, props={}):
                values = self._emit_choice(choices)
            for choice, value in zip(choices, values, strict=True):
                self._replace_operand(choice.operand, value)
        self.editor.remove_unused()
        remove_unused_outputs(self.editor.graph, self.editor.graph.opset_imports[""])

    # --- emitted values -----------------------------------------------------------------------

    def _emit_as_int8(self, operand: Int8Operand, integers: ir.Value, *parameters: ir.Value) -> ir.Value:
        """Emit the dequantized int8 weights, or the integer operator with int8 weights."""
        if operand.dequantize is None:
            return self._emit_integer_operator(operand, integers, _input(operand.node, operand.zero_point_slot))
        return self._emit_dequantize(operand, integers, *parameters)

    def _emit_as_uint8(self, operand: Int8Operand, integers: ir.Value) -> ir.Value:
        """Emit the dequantized uint8 weights, or the integer operator with uint8 weights."""
        zero_point = self._emit_zero_point(operand)
        if operand.dequantize is None:
            return self._emit_integer_operator(operand, integers, zero_point)
        scale = operand.dequantize.inputs[1]
        assert scale is not None
        return self._emit_dequantize(operand, integers, scale, zero_point)

    def _emit_zero_point(self, operand: Int8Operand) -> ir.Value:
        """Return the constant zero point for the integers as uint8.

        Raises TargetRefusal if the zero point for int8 is computed.
        """
        zero_point = (
            _input(operand.node, operand.zero_point_slot)
            if operand.dequantize is None
            else _input(operand.dequantize, 2)
        )
        array = np.asarray(0, np.int8) if zero_point is None else constant(zero_point)
        if array is None:
            problem = Problem(
                f"node {operand.node.name!r}", "the int8 weights cannot be converted to uint8", "--weights-dtype int8"
            )
            raise TargetRefusal("weights with a zero point that is not constant:", [problem])
        return self.editor.store(shift_to_uint8(array), like=None)

    def _emit_dequantize(self, operand: Int8Operand, *inputs: ir.Value) -> ir.Value:
        value = self.editor.emit("DequantizeLinear", *inputs, like=operand.dequantize)
        # From opset 23 on, the dtype of the result is not inferred from the scale.
        value.type, value.shape = inputs[1].type, operand.stored.shape
        return value

    def _emit_integer_operator(self, operand: Int8Operand, integers: ir.Value, zero_point: ir.Value | None) -> ir.Value:
        inputs = [*operand.node.inputs]
        assert operand.zero_point_slot is not None
        inputs += [None] * (operand.zero_point_slot + 1 - len(inputs))
        inputs[operand.slot], inputs[operand.zero_point_slot] = integers, zero_point
        value = self.editor.emit(operand.node.op_type, *inputs, like=operand.node)
        value.shape = operand.node.outputs[0].shape
        return value

    def _emit_uint8(self, integers: ir.Value) -> ir.Value:
        """Emit the conversion of int8 to uint8."""
        int32_values = self.editor.emit("Cast", integers, to="int32")
        return self.editor.emit("Cast", self.editor.emit("Add", int32_values, np.asarray(SHIFT, np.int32)), to="uint8")

    def _emit_choice(self, choices: Sequence[_Choice]) -> list[ir.Value]:
        """Emit one ``If`` on the probe, and name its results after their readers."""
        exact = self._emit_all(choices, lambda choice: self._emit_as_int8(choice.operand, *choice.inputs))
        fallback = self._emit_all(
            choices, lambda choice: self._emit_as_uint8(choice.operand, self._emit_uint8(choice.inputs[0]))
        )
        values = emit_choice(self.editor, self._emit_probe(), exact, fallback)
        for choice, value in zip(choices, values, strict=True):
            value.name = self.editor.emitter.names.unique(f"{label_of(choice.operand.insertion_point)}/If:out")
        return values

    def _emit_all(self, choices: Sequence[_Choice], emit: Callable[[_Choice], ir.Value]) -> Emit:
        """Return a function that calls ``emit`` for each choice.

        Emitted nodes get name and metadata of the node that they replace.
        """

        def values() -> Iterator[ir.Value]:
            for choice in choices:
                with self.editor.within_node(choice.operand.insertion_point):
                    yield emit(choice)

        return lambda: [*values()]

    def _unshared_inputs(self, operand: Int8Operand) -> list[ir.Value]:
        """Return integers, scale and zero point; copies if an earlier operand uses them."""
        inputs = [operand.stored] if operand.dequantize is None else operand.dequantize.inputs[:3]
        return [self._copy_if_used(value, operand.stored) for value in inputs if value is not None]

    def _copy_if_used(self, value: ir.Value, stored: ir.Value) -> ir.Value:
        array = constant(value)
        if array is None or value not in self._used_constants:
            self._used_constants.add(value)
            return value
        copy = tensor_value(array, self.editor.emitter.names.unique(value.name or stored.name or "weights"))
        self.editor.register([copy])
        self._used_constants.add(copy)
        return copy

    def _emit_probe(self) -> ir.Value:
        self._probe = self._probe or emit_probe(self.editor)
        return self._probe

    def _replace(self, operand: Int8Operand, emit: Callable[[], ir.Value]) -> None:
        """Emit a value at the insertion point; replace the operand or node with it."""
        # Rearranged weights are replaced for all their readers at once; after that, their DequantizeLinear is unused.
        if not operand.is_rearranged or (operand.dequantize is not None and operand.dequantize.outputs[0].uses()):
            with self.editor.replacing(operand.insertion_point):
                value = emit()
            self._replace_operand(operand, value)

    def _replace_operand(self, operand: Int8Operand, value: ir.Value) -> None:
        """Replace an operand, or an integer operator, with ``value``.

        Rearranged weights are replaced at their DequantizeLinear; other dequantized weights only in ``operand.node``.
        """
        if operand.dequantize is not None and not operand.is_rearranged:
            operand.node.replace_input_with(operand.slot, value)
        else:
            self.editor.replace_value(operand.insertion_point.outputs[0], value)


def _input(node: ir.Node, slot: int | None) -> ir.Value | None:
    """Return an operand, or ``None`` if it is absent."""
    return node.inputs[slot] if slot is not None and slot < len(node.inputs) else None
