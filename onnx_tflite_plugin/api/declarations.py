"""What a handler declares about its operator: frozen data, read by the planners.

A *slot* is an operand position: inputs count 0, 1, 2, ...; output ``k`` is ``out(k)`` (that is ``~k``).
A *letter* names one axis of the operator's frame; slots that share a letter share that axis.
What depends on shapes, options or the target is declared as a function of the :class:`Instance`.
Every class here raises TypeError where it is made of something else than it says.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict, Unpack

from onnx_tflite_plugin.api.activations import FusedActivation
from onnx_tflite_plugin.api.dtypes import check_rows
from onnx_tflite_plugin.api.instance import Instance as Instance
from onnx_tflite_plugin.api.price import Price
from onnx_tflite_plugin.api.quantization import Behaviour, NotQuantizable, OutputBehaviour
from onnx_tflite_plugin.checked import Checked, check_keywords
from onnx_tflite_plugin.source.model import Array, Dims, Operator

Axes = str | None


def out(k: int) -> int:
    """The slot of output ``k``."""
    return ~k


# --- layout -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Implicit(Checked):
    """The ONNX operator wants its own axis order, given for each slot in the letters of ``axes``.

    An output that ``onnx`` does not name takes input 0's permutation if it has its rank, else source order.
    ``squeezable``: letters that are left out of every slot where all of them have size 1, as ``"h j y"`` in an image of one
    row: the operator is one of a dimension less, unless the target is slower so. A slot without such a letter (a
    sequence) shows it with size 1 where it is not left out.
    """

    onnx: Mapping[int, str]
    squeezable: tuple[str, ...] = ()


@dataclass(frozen=True)
class Transparent(Checked):
    """Any order, all tensors alike: elementwise operators, and those that only rename axes.

    Axes of size 1 may be missing.
    """


@dataclass(frozen=True)
class Attribute(Checked):
    """Like Transparent, but axis numbers, pads, masks are remapped to the planned order.

    ``unordered``: letters whose elements may come in any order within their axis (what a sum, a contraction
    or a softmax runs over); ``"*"`` for all, ``"..."`` for those the ellipsis stands for. Others are kept whole.
    """

    unordered: str = ""


@dataclass(frozen=True)
class Terminate(Checked):
    """Source order only.

    ``unordered``: neighbouring letters of this kind may trade places and be cut; what a flatten into a weight allows.
    """

    unordered: str = ""


Layout = Implicit | Transparent | Attribute | Terminate


@dataclass(frozen=True)
class Borders(Checked):
    """What an operator passes to its subgraphs and back, in any order that both sides choose together.

    Operands from slot ``first`` on are the subgraphs' inputs, their outputs the results. ``loops``: the outputs of the last
    subgraph are results, and the next inputs of all.
    """

    first: int = 0
    loops: bool = False


@dataclass(frozen=True)
class Along(Checked):
    """Which axes the emitted ONNX operator runs along, so that the plan can price orders.

    ``onnx`` is the key into the target's prices, ``letters`` the axes the operator works along, ``slot`` the operand
    whose bytes the price goes by. ``price``: what it costs on targets that have no price under this key; a key that no
    target prices needs one.
    """

    onnx: str
    letters: str
    slot: int = 0
    price: Price | None = None


# --- effects ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Effects(Checked):
    """State the operator touches.

    ``reads``, ``writes``: the slots that hold a resource it reads or writes. ``names``: a function of the instance that
    returns the key of the state that output 0, a resource, stands for.
    """

    reads: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()
    names: Callable[[Instance], str] | None = None


@dataclass(frozen=True)
class Decline(Checked):
    """Why a handler or a fusion does not take an operator, and what the user can do; both are shown."""

    reason: str
    hint: str = ""


@dataclass(frozen=True)
class Widened(Checked):
    """A result that has the numbers of the constant operand ``slot`` in a wider dtype: who uses it sees a constant, and
    the file keeps the operand.
    """

    slot: int = 0


@dataclass(frozen=True)
class Contents(Checked):
    """The dtype and shape of the tensors in a list. A dynamic dimension is None, as is a dtype or shape that is not known."""

    dtype: str | None = None
    dims: Dims | None = None


@dataclass(frozen=True)
class Replacement(Checked):
    """An operator that takes another's place, and the handler that converts it, whatever the file's operator is called."""

    handler: Handler
    op: Operator


# --- the handler ------------------------------------------------------------------------------

LayoutOf = Layout | Callable[[Instance], Layout]
AxesOf = Axes | Callable[[Instance], Axes]
AlongOf = Along | None | Callable[[Instance], Along | None]
IndexedOf = Mapping[int, int] | Callable[[Instance], Mapping[int, int]]
BehaviourOf = Behaviour | Callable[[Instance], Behaviour]
OutputsOf = Mapping[int, OutputBehaviour] | Callable[[Instance], Mapping[int, OutputBehaviour]]
ActivationOf = str | None | FusedActivation | Callable[[Instance], str]
OpsetOf = int | Callable[[Instance], int]
ShapesOf = Mapping[int, Dims] | Callable[[Instance], Mapping[int, Dims]]
TypesOf = str | Collection[str] | Callable[[Instance], str | Collection[str]]
Accepts = Decline | Callable[[Instance], Decline | None]
Evaluate = Callable[[Instance], Array | Widened | None]
SizesOf = Callable[[Instance], Dims]
ContentsOf = Callable[[Instance], Contents]
Rewrite = Callable[[Instance], Sequence["Replacement"]]
Kernel = Callable[..., Array | Sequence[Array]]

_NOT_QUANTIZABLE = NotQuantizable()


@dataclass(frozen=True, eq=False)
class Handler(Checked):
    """One operator's lowering and everything the host must know about it. Made by ``@handler``.

    ``lower(ctx, *inputs)`` returns one value per TFLite output (a single value for one output).
    ``reshapes``: shapes in which the lowering takes an operand, or gives a result, where that is not the slot's own; one size
    may be None. The host reshapes, on the integers where the slot is quantized.
    ``output_quantization``: outputs that ``quantization`` does not hold for, by slot: ``{out(1): Dequantized()}``. The
    handler returns floats for them, of ``ctx.dequantize(x, 0)`` where it is given integers, and the host quantizes those.
    ``activation``: the option that names a fused activation, for kernels that clamp (``ActivationKernel.CLAMPED``); a
    ``FusedActivation`` names other kernels; a function of the instance returns the name of the one that is applied.
    ``borders``: operands and results that are the subgraphs' own, whose order ``layout`` leaves to both sides.
    ``subgraphs``: the options that hold subgraph indices. ``inlines``: the one whose operators may take the operator's
    place, planned with those around it; the lowering serves where they cannot.
    ``types``: the dtypes that the kernel takes, a row for each combination (``"float32, float32 int8 -> float32"``; ``_`` is
    any); others are refused before conversion. ``accepts``: a reason to decline an instance, or None; a literal one declines
    all: the operator has no form in ONNX.
    ``evaluate``: output 0 where it is known at conversion time, or None; who uses it then sees a constant of the file
    (``Widened`` where the file keeps an operand in its place). A variable tensor begins with it.
    ``sizes``: output 0's, if the lowering takes them from the file instead of letting them follow from its operands', or
    if they follow more cheaply than by lowering the operator in isolation;
    raises Refused where there are none.
    ``holds_batch``: operands, or options, whose first number is the size of axis 0 that output 0 has from its operand, and
    the number that stands for whatever size that is: ``{1: -1}`` of a RESHAPE. So an axis that is left open stays open.
    ``converts``: dtypes that output 0 may have, by the dtype of the first activation, where both are float or quantized;
    ``"*"`` stands for any. Those not listed keep their dtype, as in an operator without ``converts``; a file in which
    they do not is refused.
    ``kernel``: what the operator computes, in NumPy, where LiteRT has no kernel of it: ``kernel(op, *operands)`` returns an
    array or one for each output, in the file's order of axes. Operands and results are float32 where ``quantization``
    dequantizes, else as stored, as results may be, too; an absent operand is None. It writes a variable operand's next value
    into the array that it is given. Only comparisons call it.
    ``overrides_kernel``: a function of the instance; True if comparisons call ``kernel`` although LiteRT has a kernel of the
    operator, because LiteRT's own fails on such instances.
    ``contents``: a function of the instance that returns what the operator tells of the tensors in its lists, the operands and
    results of dtype variant, all of one kind. It is called where the file does not say, before ``accepts``; what all operators
    of a list tell is put together, and the list becomes an array of one axis more.
    ``aliases``: further names its entry points may have; an entry point of another name is not taken.
    ``rewrite``: the operators that take the operator's place before anything is planned, in order; the last one gives its
    results. Layout, quantization and fusions see these operators instead, and their handlers lower them: ``lower``,
    ``layout``, ``quantization`` and ``evaluate`` of this handler only describe it. Raises Refused where there are none.
    """

    code: str
    lower: Callable[..., Any]
    max_version: int
    layout: LayoutOf
    axes: AxesOf = None
    along: AlongOf = None
    indexed_by_axis: IndexedOf = field(default_factory=dict)
    holds_axes: Collection[int] = ()
    reshapes: ShapesOf = field(default_factory=dict)
    requires_constant: Collection[int] = ()
    quantization: BehaviourOf = _NOT_QUANTIZABLE
    output_quantization: OutputsOf = field(default_factory=dict)
    activation: ActivationOf = None
    min_opset: OpsetOf = 13
    subgraphs: tuple[str, ...] = ()
    borders: Borders | None = None
    inlines: str = ""
    effects: Effects | None = None
    types: TypesOf = ""
    accepts: Accepts | None = None
    evaluate: Evaluate | None = None
    sizes: SizesOf | None = None
    holds_batch: Mapping[int | str, int] = field(default_factory=dict)
    converts: Mapping[str, Collection[str]] = field(default_factory=dict)
    aliases: tuple[str, ...] = ()
    kernel: Kernel | None = None
    contents: ContentsOf | None = None
    overrides_kernel: Callable[[Instance], bool] | None = None
    rewrite: Rewrite | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not callable(self.types):
            check_rows(self.types)

    @property
    def name(self) -> str:
        """``module:function`` of the lowering."""
        named = getattr(self.lower, "__name__", type(self.lower).__name__)
        return f"{getattr(self.lower, '__module__', None) or type(self.lower).__module__}:{named}"

    @property
    def summary(self) -> str:
        """The first line of the lowering's docstring."""
        return (self.lower.__doc__ or "").strip().partition("\n")[0]

    def __call__(self, *arguments: Any) -> Any:
        return self.lower(*arguments)


class Declarations(TypedDict, total=False):
    """The optional fields of :class:`Handler`, as keywords of ``@handler`` and ``@fusion``."""

    axes: AxesOf
    along: AlongOf
    indexed_by_axis: IndexedOf
    holds_axes: Collection[int]
    reshapes: ShapesOf
    requires_constant: Collection[int]
    quantization: BehaviourOf
    output_quantization: OutputsOf
    activation: ActivationOf
    min_opset: OpsetOf
    subgraphs: tuple[str, ...]
    borders: Borders | None
    inlines: str
    effects: Effects | None
    types: TypesOf
    accepts: Accepts | None
    evaluate: Evaluate | None
    sizes: SizesOf | None
    holds_batch: Mapping[int | str, int]
    converts: Mapping[str, Collection[str]]
    aliases: tuple[str, ...]
    kernel: Kernel | None
    contents: ContentsOf | None
    overrides_kernel: Callable[[Instance], bool] | None
    rewrite: Rewrite | None


def handler(
    code: str, *, max_version: int, layout: LayoutOf, **declared: Unpack[Declarations]
) -> Callable[[Callable[..., Any]], Handler]:
    """Declare the lowering of operator ``code`` (the schema's name, ``CUSTOM.<code>`` or ``COMPOSITE.<name>``).

    Keywords are the fields of :class:`Handler`. Raises TypeError for a keyword it does not have, naming the nearest
    that it has, and for a declaration of another type than it takes.
    """
    check_keywords("@handler", declared, Declarations.__annotations__)

    def declare(lower: Callable[..., Any]) -> Handler:
        return Handler(code, lower, max_version, layout, **declared)

    return declare
