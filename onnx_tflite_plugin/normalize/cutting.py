"""Submodels: the operators between selected tensors."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from onnx_tflite_plugin.checked import has_letters, list_first
from onnx_tflite_plugin.errors import UnsupportedOption
from onnx_tflite_plugin.graph.model_metadata import Part
from onnx_tflite_plugin.graph.names import expand_name
from onnx_tflite_plugin.lowering.interface import InterfaceNames
from onnx_tflite_plugin.normalize.changes import with_main
from onnx_tflite_plugin.source.model import Model, Operator, Subgraph, Tensor

_MAX_EXAMPLES, _MAX_NAME_LENGTH = 6, 60  # tensor names in a message
_MAX_SIMILAR_NAMES = 3


def cut(
    model: Model, names: InterfaceNames, inputs_at: Sequence[str], outputs: Sequence[str]
) -> tuple[Model, InterfaceNames, Part | None]:
    """Return the submodel between named tensors of the main subgraph, and its names.

    ``inputs_at``: tensors that become inputs; the operators that compute them are left out. Graph inputs that the
    submodel still needs are kept. ``outputs``: tensors that become outputs; by default, the model's outputs. Names
    may be joined by commas, and a name may have "…" in place of its middle. Raises UnsupportedOption for an unknown or
    ambiguous name, and for a tensor that cannot be an input.
    """
    if not inputs_at and not outputs:
        return model, names, None
    main = model.main
    by_name = dict(zip((*names.inputs, *names.outputs), (*main.inputs, *main.outputs), strict=True))
    known = [*by_name.items(), *((tensor.name, tensor) for tensor in main.tensors)]
    full_names = {name for name, _ in known}
    inputs_at = [expand_name(name, known, "--inputs-at") for name in _split_names(inputs_at, full_names)]
    outputs = [expand_name(name, known, "--outputs") for name in _split_names(outputs, full_names)]
    ends = [_find_tensor(main, by_name, name, "--outputs") for name in outputs] or list(main.outputs)
    end_names = tuple(outputs) or names.outputs
    starts = [_find_tensor(main, by_name, name, "--inputs-at") for name in inputs_at]
    for tensor, name in zip(starts, inputs_at, strict=True):
        if tensor.is_constant:
            raise UnsupportedOption(f"--inputs-at {name}: the tensor is a constant")
        if tensor in ends:
            raise UnsupportedOption(
                f"--inputs-at {name}: the tensor is also an output, so the submodel would have no operator"
            )
    operators = tuple(operators_between(main, starts, ends))
    _check_computed(operators, {*starts, *main.inputs}, zip(ends, outputs, strict=False))
    used = {tensor for op in operators for tensor in op.inputs if tensor is not None} | set(ends)
    remaining_inputs = [
        (tensor, name)
        for tensor, name in zip(main.inputs, names.inputs, strict=True)
        if tensor in used and tensor not in starts
    ]
    unused = [name for tensor, name in zip(starts, inputs_at, strict=True) if tensor not in used]
    if unused:
        subject = "this input" if len(unused) == 1 else "these inputs"
        raise UnsupportedOption(f"--inputs-at {', '.join(unused)}: no output depends on {subject}")
    inputs = (*starts, *(tensor for tensor, _ in remaining_inputs))
    graph = replace(main, inputs=inputs, outputs=tuple(ends), operators=operators)
    submodel_names = InterfaceNames((*inputs_at, *(name for _, name in remaining_inputs)), end_names)
    part = Part(tuple(tensor.index for tensor in inputs), tuple(tensor.index for tensor in ends))
    return with_main(model, graph), submodel_names, part


def _split_names(texts: Iterable[str], known: Collection[str]) -> Iterator[str]:
    """Yield the names in comma-separated texts; known names may contain commas."""
    for text in texts:
        parts = text.split(",")
        while parts:
            known_counts = (count for count in range(len(parts), 0, -1) if ",".join(parts[:count]) in known)
            count = next(known_counts, 1)
            name = ",".join(parts[:count])
            if name := name if name in known else name.strip():
                yield name
            parts = parts[count:]


def _check_computed(
    operators: Collection[Operator], available: Collection[Tensor], ends: Iterable[tuple[Tensor, str]]
) -> None:
    """Raise UnsupportedOption for a tensor of ``--outputs`` that has no value."""
    computed = {tensor for op in operators for tensor in op.outputs if tensor is not None}
    for tensor, name in ends:
        if not (tensor in computed or tensor in available or tensor.is_constant or tensor.is_variable):
            raise UnsupportedOption(f"--outputs {name}: no operator computes the tensor, so it has no value")


def _find_tensor(main: Subgraph, by_name: dict[str, Tensor], name: str, flag: str) -> Tensor:
    """Return the tensor with an interface name, a name in the file, or ``#index``."""
    if name in by_name:
        return by_name[name]
    if name.startswith("#") and name[1:].isdigit() and int(name[1:]) < len(main.tensors):
        return main.tensors[int(name[1:])]
    tensors = [tensor for tensor in main.tensors if tensor.name == name]
    if len(tensors) == 1:
        return tensors[0]
    if tensors:
        indices = ", ".join(f"#{tensor.index}" for tensor in tensors[:4])
        raise UnsupportedOption(
            f"{flag} {name}: {len(tensors)} tensors have this name; select one by its index: {indices}"
        )
    similar_names = _similar_names(name, by_name, (t.name for t in main.tensors if not t.is_constant))
    if similar_names:
        hint = f"; did you mean {' or '.join(map(repr, similar_names))}?{_list_outputs(main, by_name) if flag == '--outputs' else ''}"
    elif name.endswith(".onnx"):
        hint = "; give the output file as an argument: convert MODEL MODEL.onnx"
    else:
        results = [op.outputs[0] for op in main.operators if op.outputs and op.outputs[0] is not None]
        names = dict.fromkeys(
            [*by_name, *(tensor.name for tensor in reversed(results) if len(tensor.name) <= _MAX_NAME_LENGTH)]
        )
        examples = ", ".join([*names][:_MAX_EXAMPLES])
        hint = f"; some names: {examples}; Netron shows all names, and #12 selects tensor 12"
    raise UnsupportedOption(f"{flag} {name}: no tensor has this name{hint}")


def _similar_names(name: str, interface_names: Iterable[str], tensor_names: Iterable[str]) -> list[str]:
    """Return up to three similar names.

    Names that begin with ``name`` come first, then names of inputs and outputs that ``name`` abbreviates.
    """
    inputs_and_outputs = [*interface_names]
    names = dict.fromkeys([*inputs_and_outputs, *tensor_names])
    extended = [known for known in names if name and known.lower().startswith(name.lower())]
    abbreviated = [known for known in inputs_and_outputs if has_letters(known, name)]
    similar = dict.fromkeys([*extended, *abbreviated, *(() if extended else difflib.get_close_matches(name, names))])
    return [*similar][:_MAX_SIMILAR_NAMES]


def _list_outputs(main: Subgraph, by_name: Mapping[str, Tensor]) -> str:
    """Return a text that lists the model's outputs."""
    outputs = [name for name, tensor in by_name.items() if tensor in main.outputs]
    return f" The model's outputs are {list_first(outputs, _MAX_EXAMPLES)}" if outputs else ""


def operators_between(main: Subgraph, starts: Collection[Tensor], ends: Collection[Tensor]) -> Iterator[Operator]:
    """Yield the operators that compute ``ends`` from ``starts``, in order.

    An operator without results, which writes a state, is included if its operands are computed anyway.
    """
    needed = {tensor for tensor in ends if tensor not in starts}
    selected: set[Operator] = set()
    for op in reversed(main.operators):
        if any(tensor in needed for tensor in op.outputs if tensor is not None):
            selected.add(op)
            needed |= {t for t in op.inputs if t is not None and not t.is_constant and t not in starts}
    available = {*starts, *main.inputs, *(t for op in selected for t in op.outputs if t is not None)}
    handle_producers = {t: op for op in main.operators if not op.inputs for t in op.outputs if t is not None}
    for op in main.operators:
        operands = [t for t in op.inputs if t is not None and not t.is_constant]
        if not any(op.outputs) and all(t in available or t in handle_producers for t in operands):
            selected |= {op, *(handle_producers[t] for t in operands if t in handle_producers)}
    return (op for op in main.operators if op in selected)
