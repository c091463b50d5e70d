"""Layouts that a handler declares, and the axes that determine their price.

A layout is the axis order in which a lowering accepts an operand. A *letter* names one axis of the operator, as in
``axes``. Every class here raises TypeError for a field of the wrong type.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from onnx_tflite_plugin.api.price import Price
from onnx_tflite_plugin.checked import Checked
from onnx_tflite_plugin.renamed import AXIS_PRICE, BOUNDARY, rename_fields


@dataclass(frozen=True)
class Implicit(Checked):
    """Fixed axis order of an ONNX operator.

    ``onnx`` maps each slot to its axis order, in the letters of ``axes``. An output that is not in ``onnx`` is permuted
    like input 0 if it has the same rank; otherwise it keeps the source layout.

    ``squeezable``: groups of letters. If all axes of a group have size 1, they are omitted from every slot. For example,
    ``"h j y"`` lets a 2-D operator on a one-row image become 1-D. If the target is faster with the extra dimension, the
    letters stay, and each slot without one of them (such as a sequence) gets an axis of size 1 in its place.
    """

    onnx: Mapping[int, str]
    squeezable: tuple[str, ...] = ()


@dataclass(frozen=True)
class Transparent(Checked):
    """Any layout, as long as all operands and results have the same layout.

    Use it for elementwise operators, and for operators that keep the order of the elements. Axes of size 1 may be omitted.
    """


@dataclass(frozen=True)
class Attribute(Checked):
    """Any layout, for operators whose attributes refer to axes, such as a reduction.

    As with Transparent, all operands and results have the same layout. Axis numbers, pads and masks are remapped to it.

    ``unordered``: letters of axes along which the order of elements does not matter, such as the axes of a sum, a
    contraction or a softmax. The plan may permute elements along these axes. ``"*"`` stands for all axes, ``"..."`` for
    the axes of the ellipsis. The order of elements along all other axes stays.
    """

    unordered: str = ""


@dataclass(frozen=True)
class Terminate(Checked):
    """Source layout only: the planned layout ends at this operator.

    ``unordered``: letters of axes that are exempt. Adjacent axes of this list may be reordered, or split into parts. An
    example is the input axis of a dense layer after a flatten.
    """

    unordered: str = ""


Layout = Implicit | Transparent | Attribute | Terminate


@rename_fields(BOUNDARY)
@dataclass(frozen=True)
class SubgraphBoundary(Checked):
    """Operands and results that the operator shares with subgraphs.

    Each of these tensors may have any layout, which is then the same inside and outside the subgraphs. Operands from
    slot ``first_slot`` on are the subgraphs' inputs; the subgraphs' outputs are the results. ``loops``: True if the
    outputs of the last subgraph are the results, and also the inputs of all subgraphs in the next iteration.
    """

    first_slot: int = 0
    loops: bool = False


@rename_fields(AXIS_PRICE)
@dataclass(frozen=True)
class AxisPrice(Checked):
    """Axes along which the emitted ONNX operator works.

    The plan adds their price to the cost of a layout. ``price_key``: the price is looked up under this key in
    ``Target.prices``. ``letters``: letters of these axes. ``slot``: the operand whose size in bytes is multiplied by the
    price. ``price``: default for targets that do not list ``price_key``; required if no target lists it.
    """

    price_key: str
    letters: str
    slot: int = 0
    price: Price | None = None


def declared_letters(layout: Layout, axis_price: AxisPrice | None) -> dict[str, str]:
    """Return field name -> letters to which a layout and an axis price refer."""
    letters = {} if axis_price is None else {"letters": axis_price.letters}
    if isinstance(layout, Attribute | Terminate):
        letters["unordered"] = layout.unordered
    return letters
