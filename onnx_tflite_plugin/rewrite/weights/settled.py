"""The dtype of a product's int8 weights, so that ONNX Runtime's sums are exact on every processor.

Weights that no processor can overflow stay int8. Every other one is uint8 (value and zero point + 128: the same
numbers), or chosen as the model loads: one product of constants, the probe, shows whether the processor at hand adds
exactly, and the weights of a graph are dequantized in one ``If`` on its result. ONNX Runtime computes the probe while it
loads the model, keeps one branch and folds it, so that what runs is the plain int8 or the plain uint8 form.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.errors import Problem, TargetRefusal
from onnx_tflite_plugin.lowering.emitter import tensor_value
from onnx_tflite_plugin.rewrite.graph import Editor, constant, drop_idle_results, label_of
from onnx_tflite_plugin.rewrite.weights.choice import Emit, chosen, probed
from onnx_tflite_plugin.rewrite.weights.forms import CHOSEN, DEPENDENT, INT8, PROBE, UINT8
from onnx_tflite_plugin.rewrite.weights.products import Product, products

SHIFT = 128  # from int8 to uint8
COPIES = 2**20  # bytes by which a weight that several products share may grow, each having its own


def settle(model: ir.Model, form: str) -> Mapping[str, int]:
    """Give every int8 weight of a product its dtype; returns how many have which.

    ``form`` is what becomes of weights that overflow on some processors: ``"auto"`` (chosen as the model loads),
    ``"uint8"``, or ``"int8"`` and ``"keep"`` (they stay, and the result depends on the processor).
    """
    work = _Weights(model)
    forms: Counter[str] = Counter()
    multiplications = list(products(model))
    sharing = Counter(product.stored for product in multiplications)
    write = {INT8: work.keep, DEPENDENT: work.keep, UINT8: work.widen, CHOSEN: work.choose}
    for product in multiplications:
        if product.weights is None:
            work.computed(product)
            continue
        copied = (sharing[product.stored] - 1) * product.weights.nbytes
        settled = _form(product, form, copied)
        write[settled](product)
        if not product.guarded:  # else it is one with the product of the other branch
            forms[CHOSEN if product.otherwise and form == "auto" else settled] += 1
    work.finish()
    return dict(forms)


def _form(product: Product, form: str, copied: int) -> str:
    """What a product's weights become; ``copied``: bytes by which the file grows if each product has its own."""
    if form in ("int8", "keep"):
        return INT8 if product.exact else DEPENDENT
    if copied > COPIES:
        return UINT8
    if product.exact or (product.guarded and form == "auto"):
        return INT8
    return UINT8 if form == "uint8" or product.holds_least or product.otherwise else CHOSEN


def check(model: ir.Model) -> None:
    """Raises TargetRefusal for products that overflow on some processors, unless the probe chose them."""
    problems = [
        Problem(
            f"node {product.node.name!r}",
            f"its operand {product.slot} is int8 that overflows on processors without 32 bit sums of products",
            "--weights-dtype uint8, or report it to who emits the node",
        )
        for product in products(model)
        if product.holds_least or not (product.guarded or product.exact)
    ]
    if problems:
        raise TargetRefusal("products that not every processor computes exactly:", problems)


class _Choice(NamedTuple):
    """A product and the operands of its weights: integers, and scale and zero point where they are dequantized."""

    product: Product
    operands: Sequence[ir.Value]


class _Weights:
    """One model whose weights are settled, one product after another; :meth:`finish` writes what they have in common.

    Each product gets integers, scale and zero point of its own: ``session.x64quantprecision`` replaces them one by one.
    """

    def __init__(self, model: ir.Model) -> None:
        self.editor = Editor(model)
        self._probe: ir.Value | None = None
        self._taken: set[ir.Value] = set()
        self._waiting: defaultdict[ir.Graph, dict[tuple[ir.Node, int], _Choice]] = defaultdict(dict)

    # --- the forms ----------------------------------------------------------------------------

    def keep(self, product: Product) -> None:
        """int8 as it is."""
        if product.dequantize is not None:
            self._replace(product, lambda: self._int8(product, *self._own(product)))

    def widen(self, product: Product) -> None:
        """uint8, written so into the file."""
        assert product.weights is not None
        integers = self.editor.stored((product.weights.astype(np.int16) + SHIFT).astype(np.uint8), like=product.stored)
        self._replace(product, lambda: self._uint8(product, integers))

    def choose(self, product: Product) -> None:
        """int8 where the probe is true, else uint8 made of the same integers.

        Dequantized weights wait for :meth:`finish`. A product of integers is chosen whole, for its operand's dtype differs.
        """
        if product.dequantize is None:
            choice = _Choice(product, self._own(product))
            self._probed()
            self._replace(product, lambda: self._chosen([choice])[0])
            return
        graph = product.place.graph
        assert isinstance(graph, ir.Graph)
        waiting = self._waiting[graph]
        key = product.place, -1 if product.moved else product.slot
        if key not in waiting:  # else it is chosen for all that move it
            waiting[key] = _Choice(product, self._own(product))

    def computed(self, product: Product) -> None:
        """Integers that are computed, or fed, become uint8 on their way."""
        node = product.node
        if product.dequantize is not None:
            self._replace(product, lambda: self._uint8(product, self._shifted(product.stored)))
            return
        assert product.zero_point is not None
        with self.editor.replacing(node):
            shifted, zero_point = self._shifted(product.stored), self._zero_point(product)
        node.resize_inputs(max(len(node.inputs), product.zero_point + 1))
        node.replace_input_with(product.slot, shifted)
        node.replace_input_with(product.zero_point, zero_point)

    def finish(self) -> None:
        """Choose what waits, the weights of each graph at once, and drop what nothing uses any more."""
        for graph, waiting in self._waiting.items():
            probe, choices = self._probed().producer(), list(waiting.values())
            assert probe is not None
            here = probe.graph is graph
            with self.editor.replacing(probe if here else graph[0], after=here, label=PROBE, props={}):
                values = self._chosen(choices)
            for choice, value in zip(choices, values, strict=True):
                self._take(choice.product, value)
        self.editor.tidy()
        drop_idle_results(self.editor.graph, self.editor.graph.opset_imports[""])

    # --- their parts --------------------------------------------------------------------------

    def _int8(self, product: Product, integers: ir.Value, *parameters: ir.Value) -> ir.Value:
        """The operand, or the product itself where it takes integers, as it was."""
        if product.dequantize is None:
            return self._product(product, integers, _input(product.node, product.zero_point))
        return self._dequantized(product, integers, *parameters)

    def _uint8(self, product: Product, integers: ir.Value) -> ir.Value:
        """The same of integers that are ``SHIFT`` more."""
        zero_point = self._zero_point(product)
        if product.dequantize is None:
            return self._product(product, integers, zero_point)
        scale = product.dequantize.inputs[1]
        assert scale is not None
        return self._dequantized(product, integers, scale, zero_point)

    def _zero_point(self, product: Product) -> ir.Value:
        """Of integers that are ``SHIFT`` more. Raises TargetRefusal where it is computed."""
        given = (
            _input(product.node, product.zero_point) if product.dequantize is None else _input(product.dequantize, 2)
        )
        least = np.asarray(0, np.int8) if given is None else constant(given)
        if least is None:
            problem = Problem(
                f"node {product.node.name!r}", "its int8 weights cannot be made uint8", "--weights-dtype int8"
            )
            raise TargetRefusal("weights whose zero point is computed:", [problem])
        return self.editor.stored((least.astype(np.int16) + SHIFT).astype(np.uint8), like=None)

    def _dequantized(self, product: Product, *operands: ir.Value) -> ir.Value:
        value = self.editor.emit("DequantizeLinear", *operands, like=product.dequantize)
        # From opset 23 on no schema ties the result's dtype to the scale's.
        value.type, value.shape = operands[1].type, product.stored.shape
        return value

    def _product(self, product: Product, integers: ir.Value, zero_point: ir.Value | None) -> ir.Value:
        inputs = [*product.node.inputs]
        assert product.zero_point is not None
        inputs += [None] * (product.zero_point + 1 - len(inputs))
        inputs[product.slot], inputs[product.zero_point] = integers, zero_point
        value = self.editor.emit(product.node.op_type, *inputs, like=product.node)
        value.shape = product.node.outputs[0].shape
        return value

    def _shifted(self, integers: ir.Value) -> ir.Value:
        """int8 as uint8, computed by whatever runs the model."""
        wide = self.editor.emit("Cast", integers, to="int32")
        return self.editor.emit("Cast", self.editor.emit("Add", wide, np.asarray(SHIFT, np.int32)), to="uint8")

    def _chosen(self, choices: Sequence[_Choice]) -> list[ir.Value]:
        """Results of one ``If`` on the probe, named after the nodes that take them."""
        exact = self._all(choices, lambda choice: self._int8(choice.product, *choice.operands))
        other = self._all(choices, lambda choice: self._uint8(choice.product, self._shifted(choice.operands[0])))
        values = chosen(self.editor, self._probed(), exact, other)
        for choice, value in zip(choices, values, strict=True):
            value.name = self.editor.emitter.names.unique(f"{label_of(choice.product.place)}/If:out")
        return values

    def _all(self, choices: Sequence[_Choice], emit: Callable[[_Choice], ir.Value]) -> Emit:
        """Emits the operands of all choices, each as a part of the node that takes it."""

        def values() -> Iterator[ir.Value]:
            for choice in choices:
                with self.editor.part_of(choice.product.place):
                    yield emit(choice)

        return lambda: [*values()]

    def _own(self, product: Product) -> list[ir.Value]:
        """Integers, and scale and zero point where they are dequantized, that no other product has."""
        operands = [product.stored] if product.dequantize is None else product.dequantize.inputs[:3]
        return [self._copy(value, product.stored) for value in operands if value is not None]

    def _copy(self, value: ir.Value, stored: ir.Value) -> ir.Value:
        array = constant(value)
        if array is None or value not in self._taken:
            self._taken.add(value)
            return value
        copy = tensor_value(array, self.editor.emitter.names.unique(value.name or stored.name or "weights"))
        self.editor.register([copy])
        self._taken.add(copy)
        return copy

    def _probed(self) -> ir.Value:
        self._probe = self._probe or probed(self.editor)
        return self._probe

    def _replace(self, product: Product, emit: Callable[[], ir.Value]) -> None:
        """Emit beside the product, and let it take what is emitted."""
        if not product.moved or (product.dequantize is not None and product.dequantize.outputs[0].uses()):
            with self.editor.replacing(product.place):
                value = emit()
            self._take(product, value)

    def _take(self, product: Product, value: ir.Value) -> None:
        """What is emitted takes the place of the operand, of the product that takes integers, or of what is moved."""
        if product.dequantize is not None and not product.moved:
            product.node.replace_input_with(product.slot, value)
        else:
            self.editor.replace_value(product.place.outputs[0], value)


def _input(node: ir.Node, slot: int | None) -> ir.Value | None:
    """An operand, ``None`` where it is left out."""
    return node.inputs[slot] if slot is not None and slot < len(node.inputs) else None
