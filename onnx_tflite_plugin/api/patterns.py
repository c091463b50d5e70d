"""Fusions: a pattern of TFLite operators, and the lowering to one operator.

    x, gamma, beta, epsilon, axes = operands("x gamma beta epsilon axes")
    mean = Call("MEAN", x, axes)
    variance = Call("MEAN", Call("SQUARED_DIFFERENCE", x, mean), axes)
    ...
All occurrences of the same ``Call`` match the same operator; all occurrences of the same operand match the same tensor.
A call stands for output 0 of its operator, and ``split[1]`` for output 1 of the call ``split``.

Name operators in brackets after the entry point: handler codes, or names of earlier fusions. Every pattern must contain
at least one of these operators. The fusion is loaded only if the model contains one of them. With empty brackets, it is
loaded for every model.

    [options.entry_points]
    onnx_tflite_plugin.fusions =
        layer_normalization = my_pack.fusions:layer_normalization [MEAN]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Unpack

from onnx_tflite_plugin.api.declarations import Declarations, Decline, Handler, LayoutOrFunction
from onnx_tflite_plugin.checked import Checked, describe, describe_arity_mismatch, has_type, with_checked_keywords
from onnx_tflite_plugin.renamed import CALL, FUSION, rename_keywords
from onnx_tflite_plugin.source.model import Array, Operator, Subgraph, Tensor


@dataclass(frozen=True, eq=False)
class Operand(Checked):
    """An input tensor of the pattern. ``constant``: True if only constants match."""

    name: str
    constant: bool = False


@dataclass(frozen=True, eq=False, init=False)
class Call:
    """One operator of a pattern.

    ``code``: the code of the handler that the operator must have. ``operands``: what its operands must match. Operands
    that are ``None`` are dropped; the operator must have exactly the remaining ones. An operator with an optional bias
    therefore needs two patterns. ``commutes``: True if the operands may match in any order. ``options``: values that the operator's
    options must have, as keywords.

    ``siblings``: calls that share operands with this call but do not use its results. Only the last call of a pattern may
    have siblings; their outputs become additional outputs of the fused operator. ``shared``: True if operators outside
    the match may use the result; the operator, and the operators upstream of it, are then kept for them.
    """

    code: str
    operands: tuple[Call | Output | Operand, ...]
    commutes: bool
    siblings: tuple[Call, ...]
    shared: bool
    options: Mapping[str, Any]

    def __init__(
        self,
        code: str,
        *operands: Call | Output | Operand | None,
        commutes: bool = False,
        siblings: tuple[Call, ...] = (),
        shared: bool = False,
        **options: Any,
    ) -> None:
        pattern_operands = tuple(operand for operand in operands if operand is not None)
        for operand in pattern_operands:
            if not isinstance(operand, Call | Output | Operand):
                remedy = 'make operands with `x, y = operands("x y")`'
                raise TypeError(f"Call({code!r}): {describe(operand)} is not an operand of a pattern; {remedy}")
        required_options = rename_keywords("Call", options, CALL)
        siblings = required_options.pop("siblings", siblings)
        fields = {
            "code": code,
            "operands": pattern_operands,
            "commutes": commutes,
            "siblings": siblings,
            "shared": shared,
        }
        for name, value in {**fields, "options": required_options}.items():
            object.__setattr__(self, name, value)

    def __getitem__(self, k: int) -> Output:
        """Return output ``k`` as an operand. Raises TypeError for an invalid index."""
        return Output(self, k)

    def codes(self) -> frozenset[str]:
        """Return the codes of the call, of the calls of its operands, and of its siblings."""
        calls = [
            operand.call if isinstance(operand, Output) else operand for operand in (*self.operands, *self.siblings)
        ]
        return frozenset({self.code}).union(*(call.codes() for call in calls if isinstance(call, Call)))


@dataclass(frozen=True)
class Output(Checked):
    """One output of an operator, as an operand in the pattern: ``split[1]``."""

    call: Call
    k: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.k < 0:
            raise TypeError(f"{self.call.code}[{self.k}]: the index of an output must be 0 or higher")


def operands(names: str, constant: bool = False) -> tuple[Operand, ...]:
    """Return one operand for each name in ``names``, which are separated by spaces.

    ``constant``: True if all of them match only constants.
    """
    return tuple(Operand(name, constant) for name in names.split())


@dataclass(frozen=True, eq=False)
class Match:
    """One match of a pattern: tensors by operand, operators by call.

    ``graphs``: the model's subgraphs as they were before any fusion. A ``check`` needs them for operators that call
    subgraphs.
    """

    tensors: Mapping[Operand, Tensor]
    calls: Mapping[Call, Operator]
    graphs: Sequence[Subgraph] = ()

    def __getitem__(self, operand: Operand) -> Tensor:
        """Return the tensor that an operand matched.

        Raises TypeError for anything but an Operand, and KeyError for an operand that the matched pattern lacks.
        """
        if isinstance(operand, Call | Output):
            code = operand.code if isinstance(operand, Call) else operand.call.code
            raise TypeError(
                f"match[...] takes an operand, not the call {code} of the pattern; match.calls[...] is the operator that the call matched"
            )
        if not isinstance(operand, Operand):
            raise TypeError(f"match[...] takes an operand of the pattern, not {describe(operand)}")
        if operand not in self.tensors:
            raise KeyError(f"the pattern has no operand {operand.name!r}")
        return self.tensors[operand]

    def constant(self, operand: Operand) -> Array | None:
        """Return the array of an operand; None if the tensor is not constant."""
        tensor = self[operand]
        return tensor.array if tensor.is_constant else None


@dataclass(frozen=True, eq=False)
class Region(Checked):
    """A group of operators to be replaced by one operator.

    The region consists of all operators that compute ``outputs`` from ``inputs`` and constants. The new operator has
    these inputs, outputs and ``options``.
    """

    inputs: Sequence[Tensor | None]
    outputs: Sequence[Tensor | None]
    options: Mapping[str, Any]


Check = Callable[[Match], Mapping[str, Any] | Decline]
Regions = Callable[[Sequence[Operator]], Iterable[Region]]


@dataclass(frozen=True, eq=False)
class Fusion(Checked):
    """Patterns, and the handler of the operator that replaces a match.

    ``check`` gets a match and returns the options of the new operator, or a Decline (with an empty reason if the mismatch
    is not worth reporting). ``inputs``: the operands of the new operator, in order. If the matched pattern
    lacks an operand, the lowering gets ``None`` for it.

    ``exact``: False if the fusion skips a rounding; it then applies only with ``--optimize speed``. ``trait``: name of a
    target trait that must be true for the fusion to apply. ``after``: names of fusions that run before this one. Fusions
    whose results occur in the patterns always run first, and need not be listed.

    ``raises_opset``: True if the model's opset may be raised to the one that the new operator needs. A requested opset is
    never raised. If False, the fusion declines if the new operator needs a newer opset.

    ``regions``: a function for structures of variable size, in place of patterns, ``inputs`` and ``check``. The function
    gets the operators of a graph and returns the regions to replace.
    """

    name: str
    patterns: tuple[Call, ...]
    inputs: tuple[Operand, ...]
    check: Check
    exact: bool
    handler: Handler
    trait: str = ""
    regions: Regions | None = None
    after: tuple[str, ...] = ()
    raises_opset: bool = False


_EXAMPLES = {"layout": "Transparent()"}
"""Example values of required keywords, for error messages."""


@with_checked_keywords("@fusion", [*Declarations.__annotations__, *FUSION], _EXAMPLES)
def fusion(
    name: str,
    *,
    layout: LayoutOrFunction,
    pattern: Call | Iterable[Call] = (),
    inputs: Iterable[Operand] = (),
    regions: Regions | None = None,
    check: Check = lambda match: {},
    exact: bool = True,
    trait: str = "",
    after: Sequence[str] = (),
    raises_opset: bool = False,
    **declared: Unpack[Declarations],
) -> Callable[[Callable[..., Any]], Fusion]:
    """Declare a fusion; the decorated function lowers the fused operator.

    Keywords are the fields of :class:`Fusion`, and those of ``@handler``.
    """
    keywords = rename_keywords("@fusion", declared, FUSION, stacklevel=5)
    condition: Check = keywords.pop("check", check)
    patterns = (pattern,) if isinstance(pattern, Call) else _as_tuple(pattern or ())
    fused_inputs = _as_tuple(inputs or ())
    if bool(patterns) == (regions is not None):
        raise TypeError(f"@fusion({name!r}): needs either a pattern or a function that finds regions")
    if not has_type(patterns, tuple[Call, ...]):
        raise TypeError(f"@fusion({name!r}): pattern= takes a Call or a list of them, not {describe(pattern)}")
    if isinstance(inputs, Operand) or not has_type(fused_inputs, tuple[Operand, ...]):
        raise TypeError(f"@fusion({name!r}): inputs= takes a list of operands, such as [x], not {describe(inputs)}")

    def declare(lower: Callable[..., Any]) -> Fusion:
        handler = Handler(name, lower, 1, layout, **keywords)
        if regions is None and (
            arity_error := describe_arity_mismatch(lower, len(fused_inputs), "lowering", "inputs= has")
        ):
            raise TypeError(f"@fusion({name!r}): {arity_error}")
        pattern_operands = frozenset[Operand]().union(*(_operands_of(call) for call in patterns))
        if (
            regions is None and fused_inputs and pattern_operands.isdisjoint(fused_inputs)
        ):  # a pattern may lack some operands
            names = ", ".join(repr(operand.name) for operand in fused_inputs)
            raise TypeError(
                f"@fusion({name!r}): none of the operands in inputs= ({names}) occurs in a pattern; list operands that do"
            )
        return Fusion(
            name, patterns, fused_inputs, condition, exact, handler, trait, regions, tuple(after), raises_opset
        )

    return declare


def _as_tuple(items: Any) -> tuple[Any, ...]:
    """Return an iterable as a tuple, and any other object as a tuple of one."""
    return tuple(items) if isinstance(items, Iterable) and not isinstance(items, str) else (items,)


def _operands_of(call: Call) -> frozenset[Operand]:
    """Return all operands of a call, including those of nested calls and siblings."""
    calls_and_operands = [item.call if isinstance(item, Output) else item for item in (*call.operands, *call.siblings)]
    direct_operands = frozenset(item for item in calls_and_operands if isinstance(item, Operand))
    return direct_operands.union(*(_operands_of(item) for item in calls_and_operands if isinstance(item, Call)))
