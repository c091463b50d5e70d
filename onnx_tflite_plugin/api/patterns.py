"""Fusions: several TFLite operators that are one ONNX operator, as a pattern and a lowering.

    x, gamma, beta, epsilon, axes = operands("x gamma beta epsilon axes")
    mean = Call("MEAN", x, axes)
    variance = Call("MEAN", Call("SQUARED_DIFFERENCE", x, mean), axes)
    ...
A ``Call`` used twice must be one operator, an operand used twice one tensor. Where an operator has several outputs,
``split[1]`` is the second; the call alone is the first.

The entry point lists operators of which each pattern holds one, by the codes of their handlers or by the names of
fusions that come before: the fusion is loaded where one of them is present. One that lists none is loaded for any model.

    [options.entry_points]
    onnx_tflite_plugin.fusions =
        layer_normalization = my_pack.fusions:layer_normalization [MEAN]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Unpack

from onnx_tflite_plugin.api.declarations import Declarations, Decline, Handler, LayoutOf
from onnx_tflite_plugin.checked import Checked, check_keywords
from onnx_tflite_plugin.source.model import Array, Operator, Subgraph, Tensor


@dataclass(frozen=True, eq=False)
class Operand(Checked):
    """A tensor the pattern takes from outside; with ``constant``, only a constant of the file."""

    name: str
    constant: bool = False


@dataclass(frozen=True, eq=False, init=False)
class Call:
    """One operator of a pattern, by the code its handler declares. ``commutes``: operands match in either order.

    It has as many operands as the operator has that are present: one with a bias and one without are two patterns.
    ``options``: values the operator's options must have. ``beside``: further operators, of the pattern's last one alone,
    that use none of its results but some of its operands; their results follow its own as those of the fused operator.
    ``shared``: its result may be used outside the match, too; the operator stays for those who do.
    """

    code: str
    operands: tuple[Call | Output | Operand, ...]
    commutes: bool
    beside: tuple[Call, ...]
    shared: bool
    options: Mapping[str, Any]

    def __init__(
        self,
        code: str,
        *operands: Call | Output | Operand,
        commutes: bool = False,
        beside: tuple[Call, ...] = (),
        shared: bool = False,
        **options: Any,
    ) -> None:
        fields = {"code": code, "operands": operands, "commutes": commutes, "beside": beside, "shared": shared}
        for name, value in {**fields, "options": options}.items():
            object.__setattr__(self, name, value)

    def __getitem__(self, k: int) -> Output:
        """Output ``k`` as an operand. Raises TypeError for what is no place of an output."""
        return Output(self, k)

    def codes(self) -> frozenset[str]:
        """Its operator, those its operands come from, and those beside it."""
        calls = [part.call if isinstance(part, Output) else part for part in (*self.operands, *self.beside)]
        return frozenset({self.code}).union(*(part.codes() for part in calls if isinstance(part, Call)))


@dataclass(frozen=True)
class Output(Checked):
    """One output of an operator of the pattern, as an operand of another: ``split[1]``."""

    call: Call
    k: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.k < 0:
            raise TypeError(f"{self.call.code}[{self.k}]: outputs count from 0")


def operands(names: str, constant: bool = False) -> tuple[Operand, ...]:
    return tuple(Operand(name, constant) for name in names.split())


@dataclass(frozen=True, eq=False)
class Match:
    """Where a pattern was found: tensors by operand, operators by call.

    ``graphs``: the model's subgraphs by index as they were before any fusion, for operators that call some.
    """

    tensors: Mapping[Operand, Tensor]
    calls: Mapping[Call, Operator]
    graphs: Sequence[Subgraph] = ()

    def __getitem__(self, operand: Operand) -> Tensor:
        return self.tensors[operand]

    def constant(self, operand: Operand) -> Array | None:
        tensor = self.tensors[operand]
        return tensor.array if tensor.constant else None


@dataclass(frozen=True, eq=False)
class Region(Checked):
    """Operators that a function of the graph found to be one: all that make ``outputs`` of ``inputs`` and constants.

    ``options``: those of the operator that replaces them.
    """

    inputs: Sequence[Tensor | None]
    outputs: Sequence[Tensor | None]
    options: Mapping[str, Any]


Where = Callable[[Match], Mapping[str, Any] | Decline]
Regions = Callable[[Sequence[Operator]], Iterable[Region]]


@dataclass(frozen=True, eq=False)
class Fusion(Checked):
    """A pattern and the handler of what replaces it.

    ``where`` looks at a match and returns the options of the new operator, or a reason to decline
    (an empty one where nobody would have expected the fusion).
    ``inputs``: the operands it takes, in order. ``exact``: whether no rounding is skipped; others run only
    under ``--optimize speed``. ``trait``: the trait of the target without which it gains nothing. ``regions``: in place of
    patterns, operands and ``where`` a function of a graph's operators, for what no pattern of fixed size holds.
    """

    name: str
    patterns: tuple[Call, ...]
    inputs: tuple[Operand, ...]
    where: Where
    exact: bool
    handler: Handler
    trait: str = ""
    regions: Regions | None = None


def fusion(
    name: str,
    *,
    layout: LayoutOf,
    pattern: Call | Sequence[Call] = (),
    inputs: Sequence[Operand] = (),
    regions: Regions | None = None,
    where: Where = lambda match: {},
    exact: bool = True,
    trait: str = "",
    **declared: Unpack[Declarations],
) -> Callable[[Callable[..., Any]], Fusion]:
    """Declare a fusion; the decorated function lowers the fused operator. Keywords as for ``@handler``."""
    check_keywords("@fusion", declared, Declarations.__annotations__)
    if bool(pattern) == (regions is not None):
        raise TypeError(f"@fusion({name!r}): it needs a pattern, or a function that finds regions, and not both")
    patterns = (pattern,) if isinstance(pattern, Call) else tuple(pattern)

    def declare(lower: Callable[..., Any]) -> Fusion:
        handler = Handler(name, lower, 1, layout, **declared)
        return Fusion(name, patterns, tuple(inputs), where, exact, handler, trait, regions)

    return declare
