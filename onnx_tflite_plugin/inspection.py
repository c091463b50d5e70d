"""Description of a TFLite model as a dictionary, which ``inspect`` prints."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from onnx_tflite_plugin.api.declarations import Decline, Handler
from onnx_tflite_plugin.api.refusal import Refusal
from onnx_tflite_plugin.binding.bound import Bound, BoundGraph
from onnx_tflite_plugin.binding.declared import resolve_operator, subgraph_indices
from onnx_tflite_plugin.binding.evaluation import Evaluation
from onnx_tflite_plugin.binding.states import state_tensor, state_users
from onnx_tflite_plugin.errors import ConversionError, Problem
from onnx_tflite_plugin.guard import Failed
from onnx_tflite_plugin.host import Host, check_host
from onnx_tflite_plugin.host.missing_operators import with_remedies
from onnx_tflite_plugin.keywords import name_keywords
from onnx_tflite_plugin.normalize.tensor_list_elements import complete_lists
from onnx_tflite_plugin.options import ConvertOptions
from onnx_tflite_plugin.presentation.graph_io import author_metadata
from onnx_tflite_plugin.source import Member, Section, check_source, read
from onnx_tflite_plugin.source.authored import InterfaceMetadata, TensorMetadata
from onnx_tflite_plugin.source.constant_sizes import constant_sizes
from onnx_tflite_plugin.source.metadata import describe_interface
from onnx_tflite_plugin.source.model import Model, Operator, Signature, Tensor
from onnx_tflite_plugin.targets import Target, target_named

BY_INSTANCE = "by instance"


@name_keywords()
def inspect(
    source: str | os.PathLike[str] | bytes | Section | Member,
    *,
    host: Host | None = None,
    target: str = ConvertOptions.target,
) -> dict[str, Any]:
    """Return the content of a TFLite model and the handlers of its operators.

    The keys include "inputs", "outputs", "signatures", "constants" by dtype, "operators" with their handlers, "missing"
    (unsupported operators), "states", "metadata" and "files" (associated files of the whole model). Raises InvalidModel,
    TypeError and OSError.
    """
    check_source(source)
    check_host(host)
    content = os.fspath(source) if isinstance(source, os.PathLike) else source
    return inspect_model(read(content), host or Host(), target_named(target))


def inspect_model(model: Model, host: Host, target: Target) -> dict[str, Any]:
    """Return the content of a model, and the handlers of its operators."""
    model = complete_lists(model, host, target)
    bindings = handlers_of(model, host, target)
    reachable = _reachable_subgraphs(model, bindings)
    missing = {op: bound for op, bound in bindings.items() if isinstance(bound, Problem) and op.subgraph in reachable}
    bindings |= with_remedies(missing, model.main)
    signature_keys: dict[int, list[str]] = {graph.index: [] for graph in model.subgraphs}
    for signature in model.signatures:
        for index in _reachable_subgraphs(model, bindings, signature.subgraph):
            signature_keys[index].append(signature.key)
    operators = _count_operators(bindings, reachable, signature_keys, target)
    authored_by_tensor = describe_interface(model)
    return {
        "bytes": model.size,
        "schema_version": model.version,
        "description": model.description,
        "inputs": [_describe_interface(tensor, authored_by_tensor) for tensor in model.main.inputs],
        "outputs": [_describe_interface(tensor, authored_by_tensor) for tensor in model.main.outputs],
        "subgraphs": [
            {
                "index": graph.index,
                "name": graph.name,
                "operators": len(graph.operators),
                "tensors": len(graph.tensors),
                "called": graph.index in reachable,
                "signatures": signature_keys[graph.index],
            }
            for graph in model.subgraphs
        ],
        "constants": [asdict(size) for size in constant_sizes(model)],
        "operators": operators,
        "missing": sorted({row["code"] for row in operators if row["missing"] and row["called"]}),
        "signatures": [_describe_signature(model, signature) for signature in model.signatures],
        "states": list(_list_states(model, bindings, target)),
        "files": [
            {"name": file.name, "kind": file.kind, "description": file.description, "bytes": file.size}
            for file in (model.authored.files if model.authored else ())
        ],
        "metadata": [{"name": name, "bytes": len(content)} for name, content in model.metadata.items()],
        "overrides": dict(host.overrides),
        "warnings": list(host.warnings),
    }


def find_refusal(model: Model, host: Host, target: Target) -> ConversionError | None:
    """Return the error with which a conversion refuses the file before lowering; None if it does not.

    The error names contradictions of the file, and operators that no handler accepts.
    """
    from onnx_tflite_plugin.normalize.stage import normalize

    try:
        normalize(model, host, ConvertOptions(), target)
    except ConversionError as error:
        return error
    except Exception:  # a fault of a pack or of this package, which a conversion reports
        return None
    return None


def _describe_signature(model: Model, signature: Signature) -> dict[str, Any]:
    """Return a signature as a dictionary, with the names of its tensors as "tensors"."""
    tensors = model.subgraphs[signature.subgraph].tensors
    names = {**signature.inputs, **signature.outputs}
    return {**asdict(signature), "tensors": {name: tensors[index].name for name, index in names.items()}}


def handlers_of(model: Model, host: Host, target: Target) -> dict[Operator, Bound | Problem]:
    """Return the handler of each operator, or its problem, as in a conversion."""
    bindings: dict[Operator, Bound | Problem] = {}
    for graph in model.subgraphs:
        evaluation = Evaluation()
        for op in graph.operators:
            binding = bindings[op] = host.bind_operator(evaluation.substitute(op), target, target.opsets[2])
            if isinstance(binding, Bound):
                with suppress(ConversionError):  # a conversion reports the error
                    evaluation.add_result(binding, target, target.opsets[2])
    return bindings


def _reachable_subgraphs(model: Model, bindings: Mapping[Operator, Bound | Problem], root: int = 0) -> set[int]:
    """Return ``root`` and all subgraphs that it calls, directly or indirectly."""
    reachable: set[int] = set()
    pending = [root]
    while pending:
        index = pending.pop()
        if index in reachable or index >= len(model.subgraphs):
            continue
        reachable.add(index)
        for op in model.subgraphs[index].operators:
            bound = bindings[op]
            if isinstance(bound, Bound):
                pending += subgraph_indices(bound.handler.subgraphs, bound.op)
    return reachable


def _count_operators(
    bindings: Mapping[Operator, Bound | Problem],
    reachable: set[int],
    signature_keys: Mapping[int, Sequence[str]],
    target: Target,
) -> list[dict[str, Any]]:
    """Return one row per group of operators with equal code and handler.

    Unsupported operators come first, then frequent operators. ``signature_keys``: subgraph -> signatures that
    reach it. A row counts the operators of all signatures. Unsupported operators of one code may have two rows: one for
    operators that the main subgraph reaches ("called" is true), and one for operators that only "signatures" reach.
    """
    rows: dict[tuple[object, ...], dict[str, Any]] = {}
    for op, binding in bindings.items():
        is_main, is_missing = op.subgraph in reachable, isinstance(binding, Problem)
        called = is_main or (not is_missing and bool(signature_keys[op.subgraph]))
        signatures = () if is_main or not is_missing else tuple(signature_keys[op.subgraph])
        entry: dict[str, Any] = {"code": op.code, "called": called, "signatures": signatures}
        entry |= _missing_entry(binding) if isinstance(binding, Problem) else _operator_entry(binding, target)
        row = rows.setdefault(tuple(entry.values()), {**entry, "count": 0, "versions": [], "first": _location(op)})
        row["count"] += 1
        if op.version not in row["versions"]:
            row["versions"] = sorted([*row["versions"], op.version])
    return sorted(rows.values(), key=lambda row: (not row["missing"], -row["count"], row["code"]))


def _missing_entry(problem: Problem) -> dict[str, Any]:
    return {
        "handler": "",
        "pack": "",
        "layout": "",
        "quantization": "",
        "missing": problem.reason,
        "hint": problem.hint,
    }


def _operator_entry(bound: Bound, target: Target) -> dict[str, Any]:
    layout, quantization = declaration_names(bound, target)
    return {
        "handler": bound.handler.name,
        "pack": bound.pack,
        "layout": layout,
        "quantization": quantization,
        "missing": "",
        "hint": "",
    }


def declaration_names(bound: Bound | Problem, target: Target) -> tuple[str, str]:
    """Return the names of an operator's layout and quantization behavior.

    If the handler fails or refuses the operator, return the reason in place of the layout.
    """
    if isinstance(bound, Problem):
        return "nobody", ""
    try:
        declared = resolve_operator(bound, target, target.opsets[2]).declared
    except Failed as failed:
        return f"fails: {failed.reason}", ""
    except Refusal as refusal:
        return f"refuses: {refusal}", ""
    return type(declared.layout).__name__, type(declared.quantization).__name__


def declaration_name(declared: Any) -> str:
    """Return the name of a declaration, or ``BY_INSTANCE`` for a function."""
    return BY_INSTANCE if callable(declared) else type(declared).__name__


def describe_handler(code: str, pack: str, handler: Handler) -> dict[str, Any]:
    """Return the row of a handler in the list of all handlers."""
    return {
        "code": code,
        "pack": pack,
        "handler": handler.name,
        "layout": declaration_name(handler.layout),
        "quantization": declaration_name(handler.quantization),
        "max_version": handler.max_version,
        "summary": handler.summary,
        "error": handler.accepts.reason if isinstance(handler.accepts, Decline) else "",
    }


def _location(op: Operator) -> str:
    return f"subgraph {op.subgraph} op {op.index}" if op.subgraph else f"op {op.index}"


def _describe_interface(tensor: Tensor, by_tensor: InterfaceMetadata) -> dict[str, Any]:
    """Return a graph input or output, with the author's description as "metadata"."""
    metadata = by_tensor.get((tensor.subgraph, tensor.index), TensorMetadata())
    return {**_describe_tensor(tensor), "metadata": author_metadata(metadata)}


def _describe_tensor(tensor: Tensor) -> dict[str, Any]:
    return {
        "name": tensor.name,
        "index": tensor.index,
        "dtype": tensor.dtype,
        "shape": list(tensor.dims) if tensor.has_rank else None,
        "quantization": _parameters(tensor),
    }


def _parameters(tensor: Tensor) -> dict[str, Any] | None:
    """Return the quantization parameters; blockwise scales as a tensor index."""
    if tensor.blocks is not None:
        return {"scales": tensor.blocks.scales.index, "block_size": tensor.blocks.block_size}
    return None if tensor.quantization is None else asdict(tensor.quantization)


def _list_states(
    model: Model, bindings: Mapping[Operator, Bound | Problem], target: Target
) -> Iterator[dict[str, Any]]:
    """Yield the variable tensors, and the resources of operators, once per name.

    A resource that operators read or write has the dtype and the shape of its value.
    """
    values, seen = _values_of_states(model, bindings, target), set()
    for graph in model.subgraphs:
        for tensor in graph.tensors:
            if tensor.is_variable:
                yield {"kind": "variable tensor", **_describe_tensor(tensor)}
        for op in graph.operators:
            if not op.inputs and any(tensor is not None and tensor.dtype == "resource" for tensor in op.outputs):
                name = "/".join(value for value in op.options.values() if isinstance(value, str) and value)
                if name not in seen:
                    seen.add(name)
                    value = _describe_tensor(values[op]) if op in values else {}
                    value.pop("index", None)  # one of several tensors that hold the value
                    yield {"kind": "resource", **value, "name": name}


def _values_of_states(
    model: Model, bindings: Mapping[Operator, Bound | Problem], target: Target
) -> dict[Operator, Tensor]:
    """Return creating operator -> a tensor with the value of the resource.

    The tensor is the result of a reader or an operand of a writer. Operators whose declarations fail are left out.
    """
    creators: dict[str | None, list[Operator]] = {}
    tensors: dict[str | None, Tensor] = {}
    for graph in model.subgraphs:
        operators = []
        for op in graph.operators:
            binding = bindings[op]
            if isinstance(binding, Bound) and binding.handler.effects is not None:
                with suppress(Failed, Refusal):
                    operators.append(resolve_operator(binding, target, target.opsets[2]))
        for bound in operators:
            if bound.declared.state_key is not None:
                creators.setdefault(bound.declared.state_key, []).extend(bound.members)
        for key, bound in state_users(BoundGraph(graph, tuple(operators))):
            with suppress(LookupError):
                tensors.setdefault(key, state_tensor(bound))
    return {op: tensors[key] for key, members in creators.items() if key in tensors for op in members}
