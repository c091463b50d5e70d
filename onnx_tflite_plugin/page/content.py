"""Content of the report page, as one JSON object."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from onnx_tflite_plugin.checked import plural
from onnx_tflite_plugin.errors import ConversionError, InvalidInputs, MismatchedModels
from onnx_tflite_plugin.graph.metadata import props
from onnx_tflite_plugin.graph.model_metadata import read_author_metadata, read_origin, read_states
from onnx_tflite_plugin.graph.node_metadata import top_level_operators
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.inspection import declaration_names, handlers_of
from onnx_tflite_plugin.page.groups import (
    Group,
    all_graphs,
    group_operators,
    nodes_with_container,
    nodes_without_operator,
)
from onnx_tflite_plugin.page.provenance import describe_provenance
from onnx_tflite_plugin.page.stored_dtypes import (
    describe_metadata,
    interface_hints,
    onnx_dtype,
    stored_dtypes,
    worst_errors,
)
from onnx_tflite_plugin.page.transposes import stored_shape, transpose_rows
from onnx_tflite_plugin.progress import Progress
from onnx_tflite_plugin.source import read
from onnx_tflite_plugin.source.model import Model, Operator, Subgraph, Tensor
from onnx_tflite_plugin.targets import target_named
from onnx_tflite_plugin.verify.comparison.trial import mismatched_models
from onnx_tflite_plugin.verify.origin import check_origin
from onnx_tflite_plugin.verify.runtimes.structure import constant_producers

if TYPE_CHECKING:
    import onnx

    from onnx_tflite_plugin.options import VerifyOptions
    from onnx_tflite_plugin.page.measurements import Measurements
    from onnx_tflite_plugin.report import Report

_PROFILE_RUNS = 10
_JSON_KEYS = {"interface": "ends", "verification_notes": "remarks"}
"""Field name -> published key in the JSON of ``report``, where the two differ."""


@dataclass(frozen=True)
class Page:
    """Content of the report page.

    ``facts``: properties of the model, its inputs and its outputs. ``operators``: rows in execution order; operators that
    share nodes are one row, so that every node counts once. ``interface``: graph inputs and outputs. ``edges``: tensors
    between operators and ``interface``. ``errors``: a row for each compared tensor. ``compared``: a sentence on the number
    of compared tensors. ``wrong``: True if the models differ. ``outputs``: a row for each compared output.
    ``verification_notes``: the notes of the comparison. ``runtimes``: runtime -> seconds per run.
    """

    title: str
    facts: Mapping[str, Any]
    operators: Sequence[Mapping[str, Any]]
    edges: Sequence[Mapping[str, Any]]
    transposes: Sequence[Mapping[str, Any]] = ()
    interface: Sequence[Mapping[str, Any]] = ()
    errors: Sequence[Mapping[str, Any]] = ()
    compared: str = ""
    verdict: str = ""
    wrong: bool = False
    notes: Sequence[str] = field(default=())
    outputs: Sequence[Mapping[str, Any]] = ()
    verification_notes: Sequence[str] = ()
    runtimes: Mapping[str, float] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return the fields under their published keys in the JSON of ``report``."""
        return {_JSON_KEYS.get(name, name): value for name, value in vars(self).items()}


def collect_page_data(
    tflite: bytes,
    onnx: onnx.ModelProto,
    title: str,
    *,
    report: Report | None = None,
    onnx_name: str = "",
    options: VerifyOptions | None = None,
    progress: Progress | None = None,
) -> Page:
    """Return all available facts about a conversion.

    If a runtime is not installed, the models are not compared and not timed. ``report``: the report of the conversion, if
    available. ``onnx_name``: name of the ONNX file. ``options``: data and tolerance of the comparison. Raises
    InvalidInputs for data that do not fit the model, and MismatchedModels if the ONNX model was converted from another
    file.
    """
    start_stage = progress or (lambda stage: None)
    model = read(tflite)
    start_stage("reading both models")
    origin_note = check_origin(tflite, title, onnx, onnx_name)
    subgraph = _subgraph_of(model, onnx)
    source_operators, dtypes = subgraph.operators, stored_dtypes(subgraph, onnx)
    _check_operators(source_operators, onnx)
    groups = group_operators(source_operators, onnx)
    group_indices = {op.index: group.index for group in groups for op in group.operators}
    notes: list[str] = []
    measurements: Measurements | None = None
    try:
        from onnx_tflite_plugin.page.measurements import measure_conversion

        start_stage("comparing every tensor with LiteRT")
        measurements = measure_conversion(tflite, onnx, _PROFILE_RUNS, options)
    except (InvalidInputs, MismatchedModels):
        raise
    except ConversionError as error:
        notes += [f"not compared and not timed: {error}", *([origin_note] if origin_note else [])]
    producers = {
        tensor.index: group_indices[op.index] for op in source_operators for tensor in op.outputs if tensor is not None
    }
    errors = [] if measurements is None else _error_rows(measurements, producers)
    seconds = measurements.seconds if measurements else {}
    operators = list(_operator_rows(model, source_operators, groups, seconds, errors, dtypes))
    outer_nodes, inner_nodes = nodes_without_operator(onnx)
    facts = {
        **_facts(tflite, onnx, len(source_operators)),
        "line": report.line if report else "",
        "provenance": describe_provenance(onnx, onnx_name, report, uses_runtimes=measurements is not None),
        "unowned": _count_names(outer_nodes),
        "unowned_inner": _count_names(inner_nodes),
        "unowned_microseconds": round(1e6 * (measurements.unowned_seconds if measurements else 0.0), 2),
    }
    names = {row["tensor"]: row["name"] for side in ("inputs", "outputs") for row in facts[side] if row.get("tensor")}
    facts["hints"] = report.hints if report else interface_hints(subgraph, facts["inputs"], facts["outputs"])
    interface = list(_interface_rows(subgraph, names, dtypes))
    edges = list(_edges(source_operators, interface, group_indices, dtypes))
    transposes = [
        {**transpose, "operators": list(dict.fromkeys(group_indices[index] for index in transpose["operators"]))}
        for transpose in transpose_rows(onnx)
    ]
    page = Page(title, facts, operators, edges, transposes, interface, errors, notes=notes)
    if measurements is None:
        return page
    return replace(
        page,
        compared=_describe_coverage(source_operators, errors, measurements.operators),
        verdict=measurements.verdict,
        wrong=measurements.differs,
        outputs=measurements.outputs,
        verification_notes=measurements.notes,
        runtimes=measurements.runtimes,
    )


def _error_rows(measurements: Measurements, producers: Mapping[int, int]) -> list[dict[str, Any]]:
    """Return a row for each compared tensor; the first wrong tensor is marked.

    ``producers``: tensor index -> index of the group that computes the tensor.
    """
    errors = list(worst_errors(measurements.errors))
    wrong_positions = (k for k, error in enumerate(errors) if not error["ok"])
    first_wrong = next(wrong_positions, None) if measurements.differs else None
    return [
        {**error, "operator": producers.get(error["tensor"]), "first_wrong": k == first_wrong}
        for k, error in enumerate(errors)
    ]


def _check_operators(operators: Sequence[Operator], onnx: onnx.ModelProto) -> None:
    """Raise MismatchedModels if a node refers to an operator that the file lacks."""
    sources = {
        index
        for node, _ in nodes_with_container(onnx.graph)
        for index in top_level_operators(props(node.metadata_props))
    }
    unknown_operators = sources - {op.index for op in operators}
    if unknown_operators:
        raise mismatched_models(
            f"ONNX nodes refer to operator {max(unknown_operators)}, but the TFLite model has {plural(len(operators), 'operator')}"
        )


def _subgraph_of(model: Model, onnx: onnx.ModelProto) -> Subgraph:
    """Return the subgraph from which the ONNX model was converted."""
    key, _ = read_origin(props(onnx.metadata_props))
    index = next((signature.subgraph for signature in model.signatures if signature.key == key), model.root)
    return model.subgraphs[index]


def _describe_coverage(operators: Sequence[Operator], errors: Sequence[Mapping[str, Any]], compared_count: int) -> str:
    """Return a sentence on the number of compared tensors and operators.

    ``compared_count``: the number of operators that the verification compared.
    """
    results = {tensor.index for op in operators for tensor in op.outputs if tensor is not None}
    compared_results = len({error["tensor"] for error in errors} & results)
    if compared_results == len(results):
        return f"All {compared_results} results of operators were compared."
    groups = f"{compared_results} compared group" + ("" if compared_results == 1 else "s")
    return (
        f"{compared_count or len(operators)} operators in {groups}; each dot is the result of a group. The ONNX model has no value "
        "for results inside a group, because their operators are fused or folded."
    )


def _operator_rows(
    model: Model,
    operators: Sequence[Operator],
    groups: Sequence[Group],
    seconds: Mapping[int, float],
    errors: Sequence[Mapping[str, Any]],
    dtypes: Mapping[int, str],
) -> Iterator[dict[str, Any]]:
    """Yield a row for each group of operators, with its nodes and its time.

    Name, dtype and shape describe the last operator's first output. ``dtypes``: tensor index -> dtype in the ONNX
    model, as returned by :func:`stored_dtypes`.
    """
    target = target_named("onnxruntime")
    bindings = handlers_of(model, Host(), target)
    has_quantized_values = any(
        _is_quantized(tensor) and not dtypes.get(tensor.index, tensor.dtype).startswith("float")
        for op in operators
        for tensor in op.outputs
        if tensor is not None
    )
    constant_indices = {op.index for op in constant_producers(operators).values()}
    wrong_texts = {error["tensor"]: error["text"] for error in errors if error["first_wrong"]}
    inputs = {tensor for graph in model.subgraphs for tensor in graph.inputs if graph.operators is operators}
    for group in groups:
        ops = group.operators
        layout, quantization = declaration_names(bindings[ops[0]], target) if len(ops) == 1 else ("Fused", "")
        is_quantized = any(tensor is not None and _is_quantized(tensor) for tensor in (*ops[0].inputs, *ops[0].outputs))
        output = next((tensor for tensor in ops[-1].outputs if tensor is not None), None)
        results = [tensor for op in ops for tensor in op.outputs if tensor is not None]
        times = [seconds[op.index] for op in ops if op.index in seconds]
        dtype = "" if output is None else dtypes.get(output.index, output.dtype)
        yield {
            "index": group.index,
            "place": group.operator_range,
            "operators": [op.index for op in ops],
            "codes": [op.code for op in ops],
            "code": group.code,
            "name": "" if output is None else output.name,
            "dtype": dtype,
            "tflite_dtype": "" if output is None else output.dtype,
            "shape": [] if output is None else list(output.dims),
            "layout": layout,
            "quantization": quantization if is_quantized else "",
            "nodes": _count_names(group.nodes),
            "inner": _count_names(group.inner),
            "float_island": has_quantized_values and dtype.startswith("float"),
            "microseconds": round(1e6 * sum(times), 2) if times else None,
            "first": any(tensor in inputs for op in ops for tensor in op.inputs),
            "constant": all(op.index in constant_indices for op in ops),
            "wrong": next((wrong_texts[tensor.index] for tensor in results if tensor.index in wrong_texts), ""),
        }


def _is_quantized(tensor: Tensor) -> bool:
    return tensor.quantization is not None and not tensor.dtype.startswith("float")


def _count_names(names: Sequence[str]) -> list[str]:
    return [name if count == 1 else f"{count} {name}" for name, count in Counter(names).most_common()]


def _interface_rows(graph: Subgraph, names: Mapping[str, str], dtypes: Mapping[int, str]) -> Iterator[dict[str, Any]]:
    """Yield a row for each input and output.

    Indices are strings such as ``input0``, so that they differ from operator indices. ``names``: TFLite name -> ONNX
    name, where the two differ. ``dtypes``: as for :func:`_operator_rows`.
    """
    for side, tensors in (("input", graph.inputs), ("output", graph.outputs)):
        for k, tensor in enumerate(tensors):
            row = {"index": f"{side}{k}", "side": side, "tensor": tensor.index}
            row["name"] = names.get(tensor.name, tensor.name)
            yield {**row, "dtype": dtypes.get(tensor.index) or tensor.dtype, "shape": list(tensor.dims)}


def _edges(
    operators: Sequence[Operator],
    interface: Sequence[Mapping[str, Any]],
    group_indices: Mapping[int, int],
    dtypes: Mapping[int, str],
) -> Iterator[dict[str, Any]]:
    """Yield one edge per tensor and consumer, between inputs, groups and outputs.

    ``group_indices``: operator index -> group index. ``dtypes``: as for :func:`_operator_rows`.
    """
    producers: dict[int, Any] = {row["tensor"]: row["index"] for row in interface if row["side"] == "input"}
    producers |= {
        tensor.index: group_indices[op.index] for op in operators for tensor in op.outputs if tensor is not None
    }
    seen_edges = set()

    def edge(tensor: Mapping[str, Any], consumer: Any) -> dict[str, Any]:
        return {
            "from": producers[tensor["tensor"]],
            "to": consumer,
            **{key: tensor[key] for key in ("name", "dtype", "shape")},
        }

    for op in operators:
        for tensor in dict.fromkeys(t for t in op.inputs if t is not None and not t.is_constant):
            group = group_indices[op.index]
            if producers.get(tensor.index, group) != group and (tensor.index, group) not in seen_edges:
                seen_edges.add((tensor.index, group))
                dtype = dtypes.get(tensor.index, tensor.dtype)
                facts = {"tensor": tensor.index, "name": tensor.name, "dtype": dtype, "shape": list(tensor.dims)}
                yield edge(facts, group)
    outputs = (row for row in interface if row["side"] == "output" and row["tensor"] in producers)
    yield from (edge(row, row["index"]) for row in outputs)


def _facts(tflite: bytes, onnx: onnx.ModelProto, operator_count: int) -> dict[str, Any]:
    """Return sizes, opset, counts, inputs, outputs and states of both models."""
    metadata = props(onnx.metadata_props)
    author_metadata = read_author_metadata(metadata)
    constants = sum(_initializer_bytes(tensor) for graph in all_graphs(onnx.graph) for tensor in graph.initializer)
    states = {state.input: state.output for state in read_states(metadata)}
    inputs, outputs = {info.name: info for info in onnx.graph.input}, {info.name: info for info in onnx.graph.output}
    return {
        "tflite_bytes": len(tflite),
        "onnx_bytes": onnx.ByteSize(),
        "constant_bytes": constants,
        "opset": next((entry.version for entry in onnx.opset_import if entry.domain == ""), None),
        "operators": operator_count,
        **_count_nodes(onnx),
        "inputs": [
            _graph_value(info, author_metadata.get("inputs", ())) for name, info in inputs.items() if name not in states
        ],
        "outputs": [
            _graph_value(info, author_metadata.get("outputs", ()))
            for name, info in outputs.items()
            if name not in states.values()
        ],
        "authored": {key: value for key, value in author_metadata.items() if isinstance(value, str)},
        "states": [{**_graph_value(inputs[name], ()), "next": states[name]} for name in states if name in inputs],
    }


def _initializer_bytes(tensor: onnx.TensorProto) -> int:
    """Return the bytes of an initializer's elements, without its name and shape."""
    from onnx_ir.serde import deserialize_tensor

    return deserialize_tensor(tensor).nbytes


def _count_nodes(onnx: onnx.ModelProto) -> dict[str, Any]:
    """Count all nodes and inner nodes, and list the op types that have inner graphs."""
    container_types = [container_type for _, container_type in nodes_with_container(onnx.graph)]
    inner = [container_type for container_type in container_types if container_type]  # "" in the main graph
    return {"nodes": len(container_types), "inner_nodes": len(inner), "containers": sorted(set(inner))}


def _graph_value(info: onnx.ValueInfoProto, author_metadata: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return name, dtype, shape and author's metadata of a graph input or output.

    The key ``metadata`` of the result holds the lines that describe the author's metadata.
    """
    author_entry = next((entry for entry in author_metadata if entry.get("name") == info.name), {})
    facts = {"name": info.name, "dtype": onnx_dtype(info.type.tensor_type.elem_type), "shape": stored_shape(info)}
    facts |= {key: value for key, value in author_entry.items() if key != "name"}
    lines = describe_metadata(facts)
    return {**facts, **({"metadata": lines} if lines else {})}
