"""What a handler declares about its operator: frozen data, read by the planners.

A *slot* is an operand position: inputs count 0, 1, 2, ...; output ``k`` is ``out(k)`` (that is ``~k``).
A *letter* names one axis of the operator's frame; slots that share a letter share that axis.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from onnx_tflite_plugin.source.model import Array, Operator

if TYPE_CHECKING:
    from onnx_tflite_plugin.api.context import Target

Axes = str | None


def out(k: int) -> int:
    """The slot of output ``k``."""
    return ~k


# --- layout -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Implicit:
    """The ONNX operator wants its own axis order, given for each slot in the letters of ``axes``.

    An output that ``onnx`` does not name takes input 0's permutation if it has its rank, else source order.
    ``lines``: letters that are left out of every slot where all of them have size 1, as ``"h j y"`` in an image of one
    row: the operator is one of a dimension less, unless the target is slower so. A slot without such a letter (a
    sequence) shows it with size 1 where it is not left out.
    """

    onnx: Mapping[int, str]
    lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class Transparent:
    """Any order, all tensors alike: elementwise operators, and those that only rename axes.

    Axes of size 1 may be missing.
    """


@dataclass(frozen=True)
class Attribute:
    """Like Transparent, but axis numbers, pads, masks are remapped to the planned order.

    ``unordered``: letters whose elements may come in any order within their axis (what a sum, a contraction
    or a softmax runs over); ``"*"`` for all, ``"..."`` for those the ellipsis stands for. Others are kept whole.
    """

    unordered: str = ""


@dataclass(frozen=True)
class Terminate:
    """Source order only.

    ``unordered``: neighbouring letters of this kind may trade places and be cut; what a flatten into a weight allows.
    """

    unordered: str = ""


Layout = Implicit | Transparent | Attribute | Terminate


@dataclass(frozen=True)
class Along:
    """Which axes the emitted ONNX operator runs along, so that the plan can price orders.

    ``onnx`` is the key into the target's prices, ``letters`` the axes the operator works along, ``slot`` the operand
    whose bytes the price goes by.
    """

    onnx: str
    letters: str
    slot: int = 0


# --- quantization -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Dequantized:
    """Dequantize, compute in float, quantize.

    ``bias`` maps a slot to the two slots whose scales multiply to its scale (the kernels ignore the stored one).
    ``weights``: slots whose constants are weights rather than activations; those named second in ``bias`` are.
    ``blocks``: slots whose constants may have a scale per block of their last axis, which no plan may cut.
    ``stored``: slots that are not dequantized: the handler gets the file's integers, and assigns them where it writes.
    """

    bias: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    weights: tuple[int, ...] = ()
    blocks: tuple[int, ...] = ()
    stored: tuple[int, ...] = ()

    @property
    def weight_slots(self) -> tuple[int, ...]:
        return (*self.weights, *(weight for _, weight in self.bias.values()))


@dataclass(frozen=True)
class SameScale:
    """The stored integers pass through where all quantization parameters agree.

    ``unequal``: what the kernel does where they differ: ``"dequantize"`` (it rescales) or ``"refuse"`` (it is an error).
    ``among``: the slots that must agree; all quantized ones by default.
    ``onnx``: the ONNX operator that must have an integer kernel on the target; without one the float path is taken.
    """

    unequal: str = "dequantize"
    among: tuple[int, ...] | None = None
    onnx: str = ""


@dataclass(frozen=True)
class FixedOutputRange:
    """As Dequantized, with an output scale and zero point per dtype that the kernel insists on."""

    parameters: Mapping[str, tuple[float, int]]


@dataclass(frozen=True)
class Raw:
    """The kernel works on the stored bytes and never rescales.

    ``shift_safe``: adding one number to all stored values changes nothing (a maximum, a copy), so the storage may be
    shifted. ``onnx``: the ONNX operator that must have an integer kernel on the target; without one the float path is
    taken where all parameters agree.
    """

    shift_safe: bool = False
    onnx: str = ""


@dataclass(frozen=True)
class Integer:
    """The handler gets the stored integers, and their parameters from ``ctx.quantization(slot)``.

    ``outputs``: per dtype, an output scale and zero point that the kernel insists on.
    """

    outputs: Mapping[str, tuple[float, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class NotQuantizable:
    """The kernel has no quantized form: quantized operands are refused."""


Behaviour = Dequantized | SameScale | FixedOutputRange | Raw | Integer | NotQuantizable


# --- effects ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Effects:
    """State the operator touches.

    ``reads``, ``writes``: the slots that hold a resource it reads or writes. ``names``: the key of the state that
    output 0, a resource, stands for.
    """

    reads: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()
    names: Callable[[Operator], str] | None = None


@dataclass(frozen=True)
class Decline:
    """Why a handler or a fusion does not take an operator; shown to the user."""

    reason: str


# --- the handler ------------------------------------------------------------------------------

LayoutOf = Layout | Callable[[Operator], Layout]
AxesOf = Axes | Callable[[Operator], Axes]
AlongOf = Along | None | Callable[[Operator], Along | None]
IndexedOf = Mapping[int, int] | Callable[[Operator], Mapping[int, int]]
BehaviourOf = Behaviour | Callable[[Operator, "Target"], Behaviour]
ActivationOf = str | None | Callable[[Operator], str]
OpsetOf = int | Callable[[Operator], int]


def resolve(declared: Any, *arguments: Any) -> Any:
    """A literal declaration as it is, a function of the instance called."""
    return declared(*arguments) if callable(declared) else declared


@dataclass(frozen=True, eq=False)
class Handler:
    """One operator's lowering and everything the host must know about it. Made by ``@handler``.

    ``lower(ctx, *inputs)`` returns one value per TFLite output (a single value for one output).
    ``activation``: the option that names a fused activation, or a function of the instance that returns its name.
    ``subgraphs``: the options that hold subgraph indices. ``accepts``: a reason to decline an instance, or None.
    ``evaluate``: output 0 where it is known at conversion time, or None; who uses it then sees a constant of the file.
    """

    code: str
    lower: Callable[..., Any]
    max_version: int
    layout: LayoutOf
    axes: AxesOf = None
    along: AlongOf = None
    indexed_by_axis: IndexedOf = field(default_factory=dict)
    holds_axes: Collection[int] = ()
    requires_constant: Collection[int] = ()
    quantization: BehaviourOf = NotQuantizable()
    activation: ActivationOf = None
    min_opset: OpsetOf = 13
    subgraphs: tuple[str, ...] = ()
    effects: Effects | None = None
    accepts: Callable[[Operator], Decline | None] | None = None
    evaluate: Callable[[Operator], Array | None] | None = None

    @property
    def name(self) -> str:
        return f"{self.lower.__module__}:{self.lower.__name__}"

    @property
    def summary(self) -> str:
        """The first line of the lowering's docstring."""
        return (self.lower.__doc__ or "").strip().partition("\n")[0]

    def __call__(self, *arguments: Any) -> Any:
        return self.lower(*arguments)


class Declared(TypedDict, total=False):
    """The optional fields of :class:`Handler`, as keywords of ``@handler`` and ``@fusion``."""

    axes: AxesOf
    along: AlongOf
    indexed_by_axis: IndexedOf
    holds_axes: Collection[int]
    requires_constant: Collection[int]
    quantization: BehaviourOf
    activation: ActivationOf
    min_opset: OpsetOf
    subgraphs: tuple[str, ...]
    effects: Effects | None
    accepts: Callable[[Operator], Decline | None] | None
    evaluate: Callable[[Operator], Array | None] | None


def handler(
    code: str, *, max_version: int, layout: LayoutOf, **declared: Unpack[Declared]
) -> Callable[[Callable[..., Any]], Handler]:
    """Declare the lowering of operator ``code`` (the schema's name, ``CUSTOM.<code>`` or ``COMPOSITE.<name>``).

    Keywords are the fields of :class:`Handler`. Raises TypeError for a keyword it does not have.
    """

    def declare(lower: Callable[..., Any]) -> Handler:
        return Handler(code, lower, max_version, layout, **declared)

    return declare
