"""Remedies for operators without a handler: an op pack, or a submodel."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple
from urllib.parse import quote

from onnx_tflite_plugin.keywords import FROM_COMMAND
from onnx_tflite_plugin.source.model import Operator, Subgraph, Tensor

_MAX_CODES, _MAX_TENSORS = 4, 8
_MAX_INNER_SUBMODELS = 16
"""Number of unsupported operators up to which submodels between these operators are searched."""
_MAX_NAME_LENGTH = 80
"""Characters of a tensor's name in a remedy; a longer one is replaced by the tensor's index."""


class _Submodel(NamedTuple):
    """Operators from the tensors ``starts`` to the tensors ``ends``.

    Empty ``ends`` stand for the model's outputs.
    """

    operators: tuple[Operator, ...]
    starts: tuple[Tensor, ...]
    ends: tuple[Tensor, ...]


def describe_remedies(without_handler: Sequence[Operator], unsupported: Sequence[Operator], main: Subgraph) -> str:
    """Return the remedies that operators without a handler share.

    ``unsupported``: all operators that cannot be converted, which a submodel must not have. ``main``: the converted
    subgraph.
    """
    codes = [*dict.fromkeys(quote(op.code, safe="._-") for op in without_handler)]
    pronoun = "it" if len(codes) == 1 else "them"
    count_text = f", …, {len(codes)} in all" if len(codes) > _MAX_CODES else ""
    further_options = ", ".join(f"--op {code}" for code in codes[1:_MAX_CODES])
    further_runs = (
        f"; run it again for each of the other operators: {further_options}{count_text}" if further_options else ""
    )
    pack = (
        f"an op pack can convert {pronoun}; create one with: onnx-tflite new-pack DIR --op {codes[0]}, "
        f"and --like KIND if the operator is not elementwise{further_runs}"
    )
    return "; ".join([pack, *_describe_submodels(unsupported, main)])


def _describe_submodels(unsupported: Sequence[Operator], main: Subgraph) -> Iterator[str]:
    """Yield the options that convert a submodel without unsupported operators."""
    if not {*main.operators}.issuperset(unsupported):
        return
    count = len(unsupported)

    def submodels_at(split_indices: Iterable[int]) -> list[tuple[int, _Submodel]]:
        submodels = ((k, _submodel_between(unsupported[:k], unsupported[k:], main)) for k in split_indices)
        return [(k, submodel) for k, submodel in submodels if submodel is not None]

    submodels = submodels_at((count, 0))  # after and before all unsupported operators
    if not submodels:
        inner_submodels = submodels_at(range(1, min(count, _MAX_INNER_SUBMODELS)))
        submodels = sorted(inner_submodels, key=lambda item: -len(item[1].operators))[:1]
    pronoun = "it" if count == 1 else "all of them"
    for k, submodel in submodels:
        number = len(submodel.operators)
        operators_text = "operator" if number == 1 else f"{number} operators"
        place = f"after {pronoun}" if k == count else f"before {pronoun}" if k == 0 else "between them"
        options = [
            _option(flag, tensors, main)
            for flag, tensors in (("--inputs-at", submodel.starts), ("--outputs", submodel.ends))
            if tensors
        ]
        yield f"to convert the {operators_text} {place}: {(' ' if FROM_COMMAND.get() else ', ').join(options)}"


def _submodel_between(before: Sequence[Operator], after: Sequence[Operator], main: Subgraph) -> _Submodel | None:
    """Return the submodel downstream of ``before`` and upstream of ``after``.

    Return None if it has no operator, or too many tensors at its boundary.
    """
    excluded = {*_upstream(before, main), *_downstream(after, main)}
    computed = {tensor for op in main.operators if op not in excluded for tensor in op.outputs if tensor is not None}
    used_later = {*main.outputs, *(t for op in excluded for t in op.inputs if t is not None)}
    is_complete = computed.issuperset(main.outputs)
    ends = tuple(main.outputs) if is_complete else tuple(t for t in main.tensors if t in computed & used_later)
    operators: list[Operator] = []
    needed: set[Tensor] = {*ends}
    for op in reversed(main.operators):
        if op not in excluded and needed.intersection(op.outputs):
            operators.insert(0, op)
            needed |= {t for t in op.inputs if t is not None and not t.is_constant and not t.is_variable}
    starts = tuple(t for t in main.tensors if t in needed - computed and t not in main.inputs)
    if not operators or len(starts) > _MAX_TENSORS or (not is_complete and len(ends) > _MAX_TENSORS):
        return None
    return _Submodel(tuple(operators), starts, () if is_complete else ends)


def _downstream(seeds: Sequence[Operator], main: Subgraph) -> set[Operator]:
    """Return ``seeds`` and the operators that depend on them."""
    reached, tensors = {*seeds}, {tensor for op in seeds for tensor in op.outputs}
    for op in main.operators:
        if op in reached or any(tensor is not None and tensor in tensors for tensor in op.inputs):
            reached.add(op)
            tensors |= {*op.outputs}
    return reached


def _upstream(seeds: Sequence[Operator], main: Subgraph) -> set[Operator]:
    """Return ``seeds`` and the operators that they depend on."""
    reached, tensors = {*seeds}, {tensor for op in seeds for tensor in op.inputs}
    for op in reversed(main.operators):
        if op in reached or any(tensor is not None and tensor in tensors for tensor in op.outputs):
            reached.add(op)
            tensors |= {*op.inputs}
    return reached


def _option(flag: str, tensors: Collection[Tensor], main: Subgraph) -> str:
    """Return an option of the command, or its keyword in Python, to paste."""
    names = [_name(tensor, main) for tensor in tensors]
    if FROM_COMMAND.get():
        return f"{flag} {shlex.quote(','.join(names))}"
    return f"{flag.removeprefix('--').replace('-', '_')}={names!r}"


def _name(tensor: Tensor, main: Subgraph) -> str:
    """Return the name that selects a tensor in an option: its own, or ``#index``."""
    name = tensor.name
    usable = name and "," not in name and not name.startswith("#") and len(name) <= _MAX_NAME_LENGTH
    is_unique = sum(other.name == name for other in main.tensors) == 1
    return name if usable and is_unique and name.isprintable() else f"#{tensor.index}"
