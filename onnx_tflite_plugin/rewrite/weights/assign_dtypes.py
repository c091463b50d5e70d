"""Assign dtypes to int8 weights so that sums are exact on every processor.

Weights whose sums overflow on no processor stay int8. Other weights become uint8 (128 is added to values and zero point), or the model
selects their dtype at load time.

For this selection, one product of constants, the probe, tests whether the processor adds products exactly. The weights of a graph are
dequantized in one ``If`` on the probe. ONNX Runtime computes the probe while it loads the model, keeps one branch, and constant-folds
it. Only int8 or only uint8 weights remain.
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
from onnx_tflite_plugin.rewrite.weights.dtypes import CHOSEN, DEPENDENT, INT8, PROBE, UINT8
from onnx_tflite_plugin.rewrite.weights.processor_probe import Emit, emit_choice, emit_probe
from onnx_tflite_plugin.rewrite.weights.products import Product, products

SHIFT = 128  # from int8 to uint8
MAX_GROWTH = 2**20  # maximum bytes of the copies of one weight that several products share


class AssignWeightDtypes(InPlacePass):
    """Assign a dtype to all int8 weights of products.

    ``option``: the value of ``--weights-dtype``, which applies to weights whose sums overflow on some processors.
    ``"auto"`` selects their dtype at load time, ``"uint8"`` converts them, ``"int8"`` and ``"keep"`` leave them unchanged,
    so that results depend on the processor. ``is_uniform``: if any weights become uint8, all constant weights do, for
    graphs that people read. ``dtypes``: after the pass, the number of products by dtype.
    """

    def __init__(self, option: str, *, is_uniform: bool = False) -> None:
        self.option, self.is_uniform, self.dtypes = option, is_uniform, dict[str, int]()

    def call(self, model: ir.Model) -> PassResult:
        self.dtypes = _assign(model, self.option, is_uniform=self.is_uniform)
        return PassResult(model, bool(self.dtypes))

    def ensures(self, model: ir.Model) -> None:
        """Raise TargetRefusal if a product overflows, unless the option allows this."""
        if self.option in ("auto", "uint8"):
            check_overflow(model)


def _assign(model: ir.Model, option: str, *, is_uniform: bool) -> dict[str, int]:
    assignment = _DtypeAssignment(model)
    dtypes: Counter[str] = Counter()
    all_products = list(products(model))
    use_counts = Counter(product.stored for product in all_products)
    dtype_of = {
        product: _dtype(product, option, (use_counts[product.stored] - 1) * product.weights.nbytes)
        for product in all_products
        if product.weights is not None
    }
    if is_uniform and UINT8 in dtype_of.values():
        dtype_of = dict.fromkeys(dtype_of, UINT8)
    assign_by_dtype = {
        INT8: assignment.keep,
        DEPENDENT: assignment.keep,
        UINT8: assignment.widen,
        CHOSEN: assignment.choose,
    }
    for product in all_products:
        if product.weights is None:
            assignment.convert_at_runtime(product)
            continue
        dtype = dtype_of[product]
        assign_by_dtype[dtype](product)
        if not product.on_exact_branch:  # otherwise the product of the other branch is counted
            dtypes[CHOSEN if product.on_else_branch and option == "auto" else dtype] += 1
    assignment.finish()
    return dict(dtypes)


def _dtype(product: Product, option: str, growth: int) -> str:
    """Return the dtype to assign to a product's weights.

    ``growth``: bytes by which the file grows if each product gets a copy of the weights.
    """
    if option in ("int8", "keep"):
        return INT8 if product.exact else DEPENDENT
    if growth > MAX_GROWTH:
        return UINT8
    if product.exact or (product.on_exact_branch and option == "auto"):
        return INT8
    return UINT8 if option == "uint8" or product.has_int8_min or product.on_else_branch else CHOSEN


def check_overflow(model: ir.Model) -> None:
    """Raise TargetRefusal if a product overflows on some processors.

    A product that runs only if the probe is true may overflow on the other processors.
    """
    problems = [
        Problem(
            f"node {product.node.name!r}",
            f"operand {product.slot} is int8, and sums overflow on processors that add products in 16 bits",
            "--weights-dtype uint8, or report the problem to the author of the handler",
        )
        for product in products(model)
        if product.has_int8_min or not (product.on_exact_branch or product.exact)
    ]
    if problems:
        raise TargetRefusal("products that are not exact on every processor:", problems)


class _Choice(NamedTuple):
    """A product whose weight dtype is selected at load time.

    ``operands``: the integers and, if they are dequantized, scale and zero point.
    """

    product: Product
    operands: Sequence[ir.Value]


class _DtypeAssignment:
    """Assigns weight dtypes, one product at a time.

    :meth:`finish` emits the common ``If`` of each graph. Products share neither integers nor scales nor zero points, because
    ONNX Runtime replaces these one product at a time under ``session.x64quantprecision``.
    """

    def __init__(self, model: ir.Model) -> None:
        self.editor = Editor(model)
        self._probe: ir.Value | None = None
        self._used_constants: set[ir.Value] = set()
        self._pending: defaultdict[ir.Graph, dict[tuple[ir.Node, int], _Choice]] = defaultdict(dict)

    # --- dtypes -------------------------------------------------------------------------------

    def keep(self, product: Product) -> None:
        """Keep the weights of a product in int8."""
        if product.dequantize is not None:
            self._replace(product, lambda: self._emit_as_int8(product, *self._unshared_operands(product)))

    def widen(self, product: Product) -> None:
        """Store the weights of a product as uint8."""
        assert product.weights is not None
        integers = self.editor.store((product.weights.astype(np.int16) + SHIFT).astype(np.uint8), like=product.stored)
        self._replace(product, lambda: self._emit_as_uint8(product, integers))

    def choose(self, product: Product) -> None:
        """Select the dtype of a product's weights at load time.

        If the probe is false, uint8 weights are computed from the int8 weights. :meth:`finish` emits dequantized weights. For an
        integer operator, the whole product is emitted in both branches, since its operand dtypes differ.
        """
        if product.dequantize is None:
            choice = _Choice(product, self._unshared_operands(product))
            self._emit_probe()
            self._replace(product, lambda: self._emit_choice([choice])[0])
            return
        graph = product.insertion_point.graph
        assert isinstance(graph, ir.Graph)
        pending = self._pending[graph]
        key = product.insertion_point, -1 if product.is_rearranged else product.slot
        if key not in pending:  # one choice is enough for all products of the same rearranged weights
            pending[key] = _Choice(product, self._unshared_operands(product))

    def convert_at_runtime(self, product: Product) -> None:
        """Convert integers that are not constant to uint8 at runtime."""
        node = product.node
        if product.dequantize is not None:
            self._replace(product, lambda: self._emit_as_uint8(product, self._emit_uint8(product.stored)))
            return
        assert product.zero_point is not None
        with self.editor.replacing(node):
            shifted, zero_point = self._emit_uint8(product.stored), self._emit_zero_point(product)
        node.resize_inputs(max(len(node.inputs), product.zero_point + 1))
        node.replace_input_with(product.slot, shifted)
        node.replace_input_with(product.zero_point, zero_point)

    def finish(self) -> None:
        """Emit one ``If`` for the pending weights of each graph, and remove unused nodes."""
        for graph, pending in self._pending.items():
            probe, choices = self._emit_probe().producer(), list(pending.values())
            assert probe is not None
            has_probe = probe.graph is graph
            with self.editor.replacing(probe if has_probe else graph[0], after=has_probe, label=PROBE, props={}):
                values = self._emit_choice(choices)
            for choice, value in zip(choices, values, strict=True):
                self._replace_operand(choice.product, value)
        self.editor.remove_unused()
        remove_unused_outputs(self.editor.graph, self.editor.graph.opset_imports[""])

    # --- operands and products ----------------------------------------------------------------

    def _emit_as_int8(self, product: Product, integers: ir.Value, *parameters: ir.Value) -> ir.Value:
        """Emit the int8 operand, or the whole product if its operator takes integers."""
        if product.dequantize is None:
            return self._emit_product(product, integers, _input(product.node, product.zero_point))
        return self._emit_dequantize(product, integers, *parameters)

    def _emit_as_uint8(self, product: Product, integers: ir.Value) -> ir.Value:
        """Emit the uint8 operand, or the whole product if its operator takes integers."""
        zero_point = self._emit_zero_point(product)
        if product.dequantize is None:
            return self._emit_product(product, integers, zero_point)
        scale = product.dequantize.inputs[1]
        assert scale is not None
        return self._emit_dequantize(product, integers, scale, zero_point)

    def _emit_zero_point(self, product: Product) -> ir.Value:
        """Return the constant zero point for the integers as uint8.

        Raises TargetRefusal if the zero point for int8 is computed.
        """
        zero_point = (
            _input(product.node, product.zero_point) if product.dequantize is None else _input(product.dequantize, 2)
        )
        array = np.asarray(0, np.int8) if zero_point is None else constant(zero_point)
        if array is None:
            problem = Problem(
                f"node {product.node.name!r}", "the int8 weights cannot be converted to uint8", "--weights-dtype int8"
            )
            raise TargetRefusal("weights with a zero point that is not constant:", [problem])
        return self.editor.store((array.astype(np.int16) + SHIFT).astype(np.uint8), like=None)

    def _emit_dequantize(self, product: Product, *operands: ir.Value) -> ir.Value:
        value = self.editor.emit("DequantizeLinear", *operands, like=product.dequantize)
        # From opset 23 on, the dtype of the result is not inferred from the scale.
        value.type, value.shape = operands[1].type, product.stored.shape
        return value

    def _emit_product(self, product: Product, integers: ir.Value, zero_point: ir.Value | None) -> ir.Value:
        inputs = [*product.node.inputs]
        assert product.zero_point is not None
        inputs += [None] * (product.zero_point + 1 - len(inputs))
        inputs[product.slot], inputs[product.zero_point] = integers, zero_point
        value = self.editor.emit(product.node.op_type, *inputs, like=product.node)
        value.shape = product.node.outputs[0].shape
        return value

    def _emit_uint8(self, integers: ir.Value) -> ir.Value:
        """Emit the conversion of int8 to uint8."""
        int32_values = self.editor.emit("Cast", integers, to="int32")
        return self.editor.emit("Cast", self.editor.emit("Add", int32_values, np.asarray(SHIFT, np.int32)), to="uint8")

    def _emit_choice(self, choices: Sequence[_Choice]) -> list[ir.Value]:
        """Emit one ``If`` on the probe, and name its results after their readers."""
        exact = self._emit_all(choices, lambda choice: self._emit_as_int8(choice.product, *choice.operands))
        fallback = self._emit_all(
            choices, lambda choice: self._emit_as_uint8(choice.product, self._emit_uint8(choice.operands[0]))
        )
        values = emit_choice(self.editor, self._emit_probe(), exact, fallback)
        for choice, value in zip(choices, values, strict=True):
            value.name = self.editor.emitter.names.unique(f"{label_of(choice.product.insertion_point)}/If:out")
        return values

    def _emit_all(self, choices: Sequence[_Choice], emit: Callable[[_Choice], ir.Value]) -> Emit:
        """Return a function that calls ``emit`` for each choice.

        Emitted nodes get name and metadata of the choice's product or DequantizeLinear.
        """

        def values() -> Iterator[ir.Value]:
            for choice in choices:
                with self.editor.within_node(choice.product.insertion_point):
                    yield emit(choice)

        return lambda: [*values()]

    def _unshared_operands(self, product: Product) -> list[ir.Value]:
        """Return integers, scale and zero point, as copies if another product uses them."""
        operands = [product.stored] if product.dequantize is None else product.dequantize.inputs[:3]
        return [self._copy(value, product.stored) for value in operands if value is not None]

    def _copy(self, value: ir.Value, stored: ir.Value) -> ir.Value:
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

    def _replace(self, product: Product, emit: Callable[[], ir.Value]) -> None:
        """Emit a value before the product, and replace the product or its operand by it."""
        if not product.is_rearranged or (product.dequantize is not None and product.dequantize.outputs[0].uses()):
            with self.editor.replacing(product.insertion_point):
                value = emit()
            self._replace_operand(product, value)

    def _replace_operand(self, product: Product, value: ir.Value) -> None:
        """Replace a product or its operand by ``value``.

        A product of integers is replaced itself. A dequantized operand is replaced where the product reads it, or at its
        DequantizeLinear if it is rearranged.
        """
        if product.dequantize is not None and not product.is_rearranged:
            product.node.replace_input_with(product.slot, value)
        else:
            self.editor.replace_value(product.insertion_point.outputs[0], value)


def _input(node: ir.Node, slot: int | None) -> ir.Value | None:
    """Return an operand, or ``None`` if it is absent."""
    return node.inputs[slot] if slot is not None and slot < len(node.inputs) else None
