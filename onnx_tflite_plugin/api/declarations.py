"""Declarations of handlers: frozen data, read by the planners.

A *slot* is an operand position: inputs count 0, 1, 2, ...; output ``k`` is ``out(k)`` (that is ``~k``).
A *letter* names one axis of the operator; slots with the same letter share that axis.
A declaration that depends on shapes, options or the target is a function of the :class:`Instance`.
Every class here raises TypeError for a field of the wrong type.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict, Unpack

from onnx_tflite_plugin.api.activations import FusedActivation
from onnx_tflite_plugin.api.behavior import Behavior, declared_slots, find_trait_error
from onnx_tflite_plugin.api.dtypes import check_dtypes, check_rows
from onnx_tflite_plugin.api.instance import Instance as Instance
from onnx_tflite_plugin.api.layouts import AxisPrice, Implicit, Layout, SubgraphBoundary, declared_letters
from onnx_tflite_plugin.api.notation import (
    AxesError,
    describe_unknown_letter,
    describe_wrong_order,
    letters_by_slot,
    parse_axes,
)
from onnx_tflite_plugin.api.quantization import NotQuantizable, OutputBehavior
from onnx_tflite_plugin.checked import Checked, maximum_operands, plural, with_checked_keywords
from onnx_tflite_plugin.renamed import DECLARATIONS, EFFECTS, rename_fields, rename_keywords
from onnx_tflite_plugin.source.model import Array, Dims, Operator

Axes = str | None


def out(k: int) -> int:
    """Return the slot of output ``k``."""
    return ~k


# --- effects ----------------------------------------------------------------------------------


@rename_fields(EFFECTS)
@dataclass(frozen=True)
class Effects(Checked):
    """States that the operator accesses.

    ``reads``, ``writes``: the slots of resources that the operator reads or writes. ``state_key``: a function of the
    instance, for an operator that creates a resource. It returns the state key of the resource in output 0. Resources
    with equal keys are the same state.
    """

    reads: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()
    state_key: Callable[[Instance], str] | None = None


@dataclass(frozen=True)
class Decline(Checked):
    """Returned by a handler or fusion to reject an operator.

    ``reason`` describes what is not supported. ``hint`` tells the user what to do.
    """

    reason: str
    hint: str = ""


@dataclass(frozen=True)
class WidenedConstant(Checked):
    """A result with the values of the constant operand ``slot`` in a wider dtype.

    Consumers see the widened constant; the ONNX file stores only the narrow operand.
    """

    slot: int = 0


@dataclass(frozen=True)
class ListContents(Checked):
    """Dtype and shape of the tensors in a list.

    None stands for an unknown dtype or shape, and within ``dims`` for a dynamic dimension.
    """

    dtype: str | None = None
    dims: Dims | None = None


@dataclass(frozen=True)
class Replacement(Checked):
    """An operator that replaces another, and the handler that converts it.

    No other handler is looked up for ``op``.
    """

    handler: Handler
    op: Operator


# --- the handler ------------------------------------------------------------------------------

LayoutOrFunction = Layout | Callable[[Instance], Layout]
AxesOrFunction = Axes | Callable[[Instance], Axes]
AxisPriceOrFunction = AxisPrice | None | Callable[[Instance], AxisPrice | None]
SlotsOrFunction = Mapping[int, int] | Callable[[Instance], Mapping[int, int]]
BehaviorOrFunction = Behavior | Callable[[Instance], Behavior]
OutputBehaviorsOrFunction = Mapping[int, OutputBehavior] | Callable[[Instance], Mapping[int, OutputBehavior]]
ActivationOrFunction = str | None | FusedActivation | Callable[[Instance], str]
OpsetOrFunction = int | Callable[[Instance], int]
ShapesOrFunction = Mapping[int, Dims] | Callable[[Instance], Mapping[int, Dims]]
TypesOrFunction = str | Collection[str] | Callable[[Instance], str | Collection[str]]
Accepts = Decline | Callable[[Instance], Decline | None]
Evaluate = Callable[[Instance], Array | WidenedConstant | None]
ShapeFunction = Callable[[Instance], Dims]
ListContentsFunction = Callable[[Instance], ListContents]
Rewrite = Callable[[Instance], Sequence["Replacement"]]
Kernel = Callable[..., Array | Sequence[Array]]

_NOT_QUANTIZABLE = NotQuantizable()


@dataclass(frozen=True, eq=False)
class Handler(Checked):
    """Lowering of one operator, with all its declarations. Created by ``@handler``."""

    code: str
    """Code of the operator: the schema's name, ``CUSTOM.<code>`` or ``COMPOSITE.<name>``."""
    lower: Callable[..., Any]
    """Function ``lower(ctx, *inputs)``: emits nodes and returns one value per TFLite output, or a single value for one output."""
    max_version: int
    """Highest version of the operator that the handler supports."""
    layout: LayoutOrFunction
    """Layouts in which the lowering accepts its operands. The plan chooses one of them."""
    axes: AxesOrFunction = None
    """Axes of operands and results, as text: ``"n h w c -> n c"``."""
    axis_price: AxisPriceOrFunction = None
    """Axes along which the emitted operator works. The plan uses them to price layouts."""
    indexed_by_axis: SlotsOrFunction = field(default_factory=dict)
    """Slot with one entry per axis → slot whose axes the entries describe. The entries are remapped to the planned layout."""
    axis_number_slots: Collection[int] = ()
    """Slots that hold axis numbers, which are remapped to the planned layout."""
    reshapes: ShapesOrFunction = field(default_factory=dict)
    """Slot → shape in which the lowering gets the operand or returns the result, if it is not the slot's shape.

    One size may be None. The host inserts the Reshape, before dequantization if the slot is quantized.
    """
    requires_constant: Collection[int] = ()
    """Slots of operands that must be constant. An operator with a runtime value in such a slot is refused."""
    value_dependent_slots: Collection[int] = ()
    """Slots whose values have a property that the fusion's ``check`` found, such as equal halves.

    The lowering relies on this property. Comparisons use the model's own values for these slots, never random ones.
    """
    quantization: BehaviorOrFunction = _NOT_QUANTIZABLE
    """Behavior that describes what the kernel does with quantized tensors."""
    output_quantization: OutputBehaviorsOrFunction = field(default_factory=dict)
    """Slot of an output to which ``quantization`` does not apply → its behavior: ``{out(1): Dequantized()}``.

    The lowering returns floats for these outputs, and the host quantizes them. If the lowering gets quantized values, it
    dequantizes them with ``ctx.dequantize(x, 0)``.
    """
    activation: ActivationOrFunction = None
    """Option that names a fused activation, for kernels that clamp (``ActivationKernel.CLAMPED``).

    For kernels that do not clamp, give a ``FusedActivation``. A function of the instance returns the name of the applied
    activation.
    """
    min_opset: OpsetOrFunction = 1
    """Lowest opset that the lowering supports."""
    subgraphs: tuple[str, ...] = ()
    """Options that hold the indices of subgraphs that the operator calls."""
    boundary: SubgraphBoundary | None = None
    """Operands and results shared with subgraphs. Each has one layout inside and outside; ``layout`` does not apply to it."""
    inlined_subgraph: str = ""
    """Option that holds the index of a subgraph whose operators may replace this operator before planning.

    If the subgraph cannot be inlined, the lowering is used.
    """
    effects: Effects | None = None
    """States that the operator reads or writes."""
    types: TypesOrFunction = ""
    """Supported dtypes, one row per combination: ``"float32, float32 int8 -> float32"``; ``_`` is any dtype.

    An operator with other dtypes is refused before conversion.
    """
    accepts: Accepts | None = None
    """Function of the instance: returns a Decline, or None if the handler accepts the operator.

    A literal Decline refuses all instances: the operator is not expressible in ONNX.
    """
    evaluate: Evaluate | None = None
    """Function of the instance: returns output 0 if it is constant, otherwise None.

    Consumers then see a constant, which the ONNX file stores. Return a ``WidenedConstant`` if the file should store only
    the operand. If output 0 is a variable tensor, the constant is its initial value.
    """
    result_shape: ShapeFunction | None = None
    """Function of the instance: returns the shape of output 0. Raises Refusal if the operands have no valid shape.

    Required if the lowering takes this shape from the file instead of deriving it from its operands. Also useful if the function is
    cheaper than lowering the operator in isolation.
    """
    dynamic_batch_values: Mapping[int | str, int] = field(default_factory=dict)
    """Slot or option that stores a shape beginning with the batch size → value for a dynamic batch: ``{1: -1}`` for RESHAPE.

    Other dimensions of operand 0 that the user makes dynamic are replaced in the same way.
    """
    shape_options: Collection[str] = ()
    """Options that change the shapes of results, but not their elements: ``{"keep_dims"}``.

    Signatures that become one model may differ in these options.
    """
    result_dtypes: Mapping[str, Collection[str]] = field(default_factory=dict)
    """dtype of the first non-constant operand → dtypes of output 0, if both are float or quantized; ``"*"`` is any dtype.

    If the operand's dtype is not listed, output 0 must have the same dtype. A file with another dtype is refused.
    """
    aliases: tuple[str, ...] = ()
    """Entry-point names that are valid in addition to ``code``. Entry points with any other name are rejected."""
    kernel: Kernel | None = None
    """NumPy reference for an operator without a LiteRT kernel. Only comparisons call it.

    ``kernel(op, *operands)`` returns an array, or one per output, in source layout. Operands and results are float32 if
    ``quantization`` dequantizes, otherwise quantized values; results may always be quantized. An absent operand is None. A
    variable operand is updated in place.
    """
    list_contents: ListContentsFunction | None = None
    """Function of the instance: returns dtype and shape of the tensors in the operator's lists (dtype variant).

    The function is called before ``accepts`` if the file does not store dtype and shape. Its results for all operators of
    a list are merged, and the list becomes an array with one more axis.
    """
    overrides_kernel: Callable[[Instance], bool] | None = None
    """Function of the instance: returns True if LiteRT's kernel fails on it, so that comparisons call ``kernel``."""
    rewrite: Rewrite | None = None
    """Function of the instance: returns operators that replace the operator before planning, in order.

    The last one computes the results. Raises Refusal if no operators can replace it. Layout, quantization and fusions see
    the new operators, and the handlers of these operators lower them. ``lower``, ``layout``, ``quantization`` and
    ``evaluate`` of this handler are then only descriptive.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if not callable(self.types):
            check_rows(self.types)
        check_dtypes(
            "result_dtypes", (name for pair in self.result_dtypes.items() for name in (pair[0], *pair[1])), "*"
        )
        if isinstance(self.axes, str):
            try:
                parse_axes(self.axes)
            except AxesError as error:
                raise TypeError(str(error)) from None
            if not (callable(self.layout) or callable(self.axis_price)):
                error_text = describe_unknown_letter(self.axes, declared_letters(self.layout, self.axis_price))
                if error_text:
                    raise TypeError(error_text)
        if isinstance(self.layout, Implicit) and self.rewrite is None:
            self._check_orders(self.layout)
        if isinstance(self.quantization, Behavior) and (error_text := find_trait_error(self.quantization)):
            raise TypeError(error_text)
        self._check_slots()

    def _check_orders(self, layout: Implicit) -> None:
        """Raise TypeError if an axis order of the layout contradicts the axes."""
        if self.axes is None:
            raise TypeError("layout=Implicit requires axes=, such as axes='n h w c -> n h w c'")
        letters_of_slots = letters_by_slot(self.axes) if isinstance(self.axes, str) else {}
        for slot, order in layout.onnx.items():
            axes = letters_of_slots.get(slot, ["..."])
            if "..." not in axes and (
                error := describe_wrong_order(slot, order, axes, str(self.axes), layout.squeezable)
            ):
                raise TypeError(error)

    def _check_slots(self) -> None:
        """Raise TypeError if a declaration names an operand that the lowering lacks."""
        maximum = maximum_operands(self.lower)
        if maximum is None or self.rewrite is not None:
            return
        fact = f"the lowering {getattr(self.lower, '__name__', '')} takes {plural(maximum, 'operand')}"
        if isinstance(self.axes, str) and (axes_operands := len(parse_axes(self.axes)[0])) > maximum:
            raise TypeError(f"axes {self.axes!r} have {plural(axes_operands, 'operand')}, but {fact}")
        for name, slots in self._declared_slots():
            for slot in slots:
                if isinstance(slot, int) and slot >= maximum:
                    raise TypeError(f"{name} names slot {slot}, but {fact}; the first is slot 0")

    def _declared_slots(self) -> Iterator[tuple[str, Iterable[int | str]]]:
        """Yield the slots of each literal declaration."""
        yield "requires_constant", self.requires_constant
        yield "axis_number_slots", self.axis_number_slots
        yield "dynamic_batch_values", self.dynamic_batch_values
        if not callable(self.indexed_by_axis):
            yield "indexed_by_axis", (*self.indexed_by_axis, *self.indexed_by_axis.values())
        if isinstance(self.layout, Implicit):
            yield "layout=Implicit", self.layout.onnx
        if isinstance(self.axis_price, AxisPrice):
            yield "axis_price", (self.axis_price.slot,)
        if isinstance(self.quantization, Behavior):
            yield f"quantization={type(self.quantization).__name__}", declared_slots(self.quantization)

    @property
    def name(self) -> str:
        """Return ``module:function`` of the lowering."""
        function_name = getattr(self.lower, "__name__", type(self.lower).__name__)
        return f"{getattr(self.lower, '__module__', None) or type(self.lower).__module__}:{function_name}"

    @property
    def summary(self) -> str:
        """Return the first line of the lowering's docstring."""
        return (self.lower.__doc__ or "").strip().partition("\n")[0]

    def __call__(self, *arguments: Any) -> Any:
        return self.lower(*arguments)


class Declarations(TypedDict, total=False):
    """Optional fields of :class:`Handler`: keywords of ``@handler`` and ``@fusion``."""

    axes: AxesOrFunction
    axis_price: AxisPriceOrFunction
    indexed_by_axis: SlotsOrFunction
    axis_number_slots: Collection[int]
    reshapes: ShapesOrFunction
    requires_constant: Collection[int]
    value_dependent_slots: Collection[int]
    quantization: BehaviorOrFunction
    output_quantization: OutputBehaviorsOrFunction
    activation: ActivationOrFunction
    min_opset: OpsetOrFunction
    subgraphs: tuple[str, ...]
    boundary: SubgraphBoundary | None
    inlined_subgraph: str
    effects: Effects | None
    types: TypesOrFunction
    accepts: Accepts | None
    evaluate: Evaluate | None
    result_shape: ShapeFunction | None
    dynamic_batch_values: Mapping[int | str, int]
    shape_options: Collection[str]
    result_dtypes: Mapping[str, Collection[str]]
    aliases: tuple[str, ...]
    kernel: Kernel | None
    list_contents: ListContentsFunction | None
    overrides_kernel: Callable[[Instance], bool] | None
    rewrite: Rewrite | None


_EXAMPLES = {"max_version": "1", "layout": 'Transparent(), Implicit(onnx={0: "n c h w"}), Attribute() or Terminate()'}
"""Example values of required keywords, for error messages."""


@with_checked_keywords("@handler", [*Declarations.__annotations__, *DECLARATIONS], _EXAMPLES)
def handler(
    code: str, *, max_version: int, layout: LayoutOrFunction, **declared: Unpack[Declarations]
) -> Callable[[Callable[..., Any]], Handler]:
    """Declare the lowering of operator ``code``.

    ``code`` is the schema's name, ``CUSTOM.<code>`` or ``COMPOSITE.<name>``. Keywords are the fields of
    :class:`Handler`. Raises TypeError for a declaration of the wrong type, and for an unknown keyword; the message then
    names the most similar keyword.
    """
    keywords = rename_keywords("@handler", declared, DECLARATIONS, stacklevel=5)

    def declare(lower: Callable[..., Any]) -> Handler:
        return Handler(code, lower, max_version, layout, **keywords)

    return declare
