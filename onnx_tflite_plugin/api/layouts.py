"""Layouts that a handler declares, and the axes that determine their price.

A layout is the axis order in which a lowering accepts an operand. A *letter* names one axis of the operator, as in
``axes``. Every class here raises TypeError for a field of the wrong type.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from onnx_tflite_plugin.api.price import Price
from onnx_tflite_plugin.checked import Checked
from onnx_tflite_plugin.renamed import AXIS_PRICE, BOUNDARY, renames_fields


@dataclass(frozen=True)
class Implicit(Checked):
    """Fixed axis order of an ONNX operator.

    ``onnx`` gives it for each slot, in the letters of ``axes``. An output that ``onnx`` does not name takes input 0's
    permutation if it has the same rank, otherwise source layout. ``squeezable``: letters to omit from every slot if all
    of them have size 1. For example, ``"h j y"`` removes one dimension from an operator on an image of one row. The
    letters are not omitted where the additional dimension is faster on the target. Then a slot that lacks one of the
    letters, such as a sequence, gets an axis of size 1 for it.
    """

    onnx: Mapping[int, str]
    squeezable: tuple[str, ...] = ()


@dataclass(frozen=True)
class Transparent(Checked):
    """Any layout, as long as it is the same for all tensors.

    Use it for elementwise operators, and for operators that only rename axes. Axes of size 1 may be omitted.
    """


@dataclass(frozen=True)
class Attribute(Checked):
    """Any layout, like Transparent; axis numbers, pads and masks are remapped to it.

    ``unordered``: letters whose elements may be permuted within their axis (the axes of a sum, a contraction or a softmax);
    ``"*"`` for all, ``"..."`` for those of the ellipsis. Other axes are kept intact.
    """

    unordered: str = ""


@dataclass(frozen=True)
class Terminate(Checked):
    """Source layout only.

    ``unordered``: adjacent letters in this list may be reordered and split, for instance if a flatten precedes a dense
    layer.
    """

    unordered: str = ""


Layout = Implicit | Transparent | Attribute | Terminate


@renames_fields(BOUNDARY)
@dataclass(frozen=True)
class SubgraphBoundary(Checked):
    """Operands and results that the operator shares with subgraphs.

    Each may have any layout, which is then the same inside and outside the subgraphs. Operands from slot ``first_slot``
    on are the subgraphs' inputs; the subgraphs' outputs are the results. ``loops``: the outputs of the last subgraph
    are the results, and also the inputs of all subgraphs in the next iteration.
    """

    first_slot: int = 0
    loops: bool = False


@renames_fields(AXIS_PRICE)
@dataclass(frozen=True)
class AxisPrice(Checked):
    """Axes along which the emitted ONNX operator works.

    The plan uses them to price layouts. ``price_key``: the key into the target's prices. ``letters``: the axes the
    operator works along. ``slot``: the operand that determines the number of bytes. ``price``: the cost on targets
    without a price for this key; required if no target has one.
    """

    price_key: str
    letters: str
    slot: int = 0
    price: Price | None = None


def declared_letters(layout: Layout, axis_price: AxisPrice | None) -> dict[str, str]:
    """Return the letters of ``axes`` in a layout and a price, by field name."""
    letters = {} if axis_price is None else {"letters": axis_price.letters}
    if isinstance(layout, Attribute | Terminate):
        letters["unordered"] = layout.unordered
    return letters
