"""Times of the nodes of ONNX Runtime's optimized graph, with their operators.

ONNX Runtime drops the metadata of nodes, and names new nodes after values. Therefore the profiled model is a copy whose
nodes and values are named after TFLite operators.
"""

from __future__ import annotations

import json
import re
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from onnx_tflite_plugin.graph.metadata import props
from onnx_tflite_plugin.graph.node_metadata import top_level_operators
from onnx_tflite_plugin.graph.node_subgraphs import node_subgraphs
from onnx_tflite_plugin.source.model import Array
from onnx_tflite_plugin.verify.runtimes.ort import OnnxRuntime

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto

_LABEL = re.compile(r"(?<![^\W_])op(\d+)#\d+")  # ONNX Runtime adds a prefix to names from a branch


@dataclass(frozen=True, slots=True)
class NodeTime:
    """Time of a node of the optimized graph.

    ``operator``: the first TFLite operator that the node computes, or None if it is unknown. ``seconds``: per run.
    """

    op_type: str
    operator: int | None
    seconds: float


def node_times(
    proto: ModelProto, feeds: Mapping[str, Array], runs: int, run_seconds: float | None = None
) -> list[NodeTime]:
    """Return the times of the nodes of the main graph, in one thread.

    The time of a node includes its inner graphs. It is the mean of the middle half of ``runs``, less the profiler's
    overhead. ``run_seconds``: time of a run without profiler, measured by default; the sum of the times does not exceed it.
    Raises OrtError if the model does not run.
    """
    import onnx

    labeled_model = label_nodes(proto)
    with tempfile.TemporaryDirectory() as folder:
        optimized_path = Path(folder) / "optimized.onnx"
        node_seconds, counts = _profile_nodes(labeled_model, feeds, runs, Path(folder), optimized_path)
        nodes = list(onnx.load(optimized_path, load_external_data=False).graph.node)
    named_nodes = zip(nodes, _profile_names(nodes, node_seconds), _node_operators(labeled_model, nodes), strict=True)
    timed_nodes = [(node, operator, node_seconds[name]) for node, name, operator in named_nodes if name in node_seconds]
    operand_counts = [_profiled_operand_count(node, counts) for node, _, _ in timed_nodes]
    run_seconds = run_seconds or _time_run(labeled_model, feeds, runs)
    seconds = _subtract_overhead([duration for *_, duration in timed_nodes], operand_counts, run_seconds)
    return [
        NodeTime(node.op_type, operator, duration)
        for (node, operator, _), duration in zip(timed_nodes, seconds, strict=True)
    ]


def _profile_nodes(
    proto: ModelProto, feeds: Mapping[str, Array], runs: int, folder: Path, optimized: Path
) -> tuple[dict[str, float], dict[str, float]]:
    """Return node name -> seconds per run, and node name -> number of runs.

    A node of a loop may run several times in a run of the model.
    """
    session = OnnxRuntime(proto, profile=folder / "profile", optimized=optimized)
    for _ in range(runs + 1):
        session.run(feeds)
    events = json.loads(Path(session.session.end_profiling()).read_text(encoding="utf-8"))
    durations: dict[str, list[int]] = defaultdict(list)
    for event in events:
        name, suffix, _ = event["name"].partition("_kernel_time")
        if event.get("cat") == "Node" and suffix:
            durations[name].append(event["dur"])
    seconds = {name: _trimmed_mean(times[-runs:]) / 1e6 for name, times in durations.items()}  # without the first run
    return seconds, {name: len(times) / (runs + 1) for name, times in durations.items()}


def _profiled_operand_count(node: NodeProto, counts: Mapping[str, float]) -> float:
    """Return the number of operands that the profiler records, also in subgraphs."""
    inner_nodes = (inner for subgraph in node_subgraphs(node) for inner in subgraph.node)
    inner_count = sum(counts.get(inner.name, 0.0) * _profiled_operand_count(inner, counts) for inner in inner_nodes)
    return 1 + len(node.input) + len(node.output) + inner_count


def _time_run(proto: ModelProto, feeds: Mapping[str, Array], runs: int) -> float:
    """Return the median processor time of a run of the model, in seconds."""
    session = OnnxRuntime(proto)
    times = []
    for _ in range(runs + 1):
        start = time.process_time()
        session.run(feeds)
        times.append(time.process_time() - start)
    return float(np.median(times[1:]))


def _subtract_overhead(seconds: Sequence[float], operand_counts: Sequence[float], run_seconds: float) -> list[float]:
    """Subtract the profiler's overhead, which is proportional to a node's operands.

    ``run_seconds``: time of a run without profiler, which the sum of the result does not exceed.
    """
    overhead = max(0.0, sum(seconds) - run_seconds) / max(1.0, sum(operand_counts))
    corrected_times = [
        max(0.0, duration - overhead * count) for duration, count in zip(seconds, operand_counts, strict=True)
    ]
    scale = min(1.0, run_seconds / max(sum(corrected_times), 1e-12))
    return [duration * scale for duration in corrected_times]


def label_nodes(proto: ModelProto) -> ModelProto:
    """Return a copy whose nodes and values are named after their operator.

    Node 7 of operator 3 is ``op3#7``. Graph inputs and outputs keep their names. Constants with a single reader are
    renamed too, because only their names remain if ONNX Runtime replaces the node.
    """
    model = type(proto)()
    model.CopyFrom(proto)
    graph = model.graph
    graph_io = {info.name for info in (*graph.input, *graph.output)}
    nodes = [*_all_nodes(graph)]
    use_counts = Counter(name for node in nodes for name in node.input)
    single_use_constants = {
        constant.name for constant in graph.initializer if use_counts[constant.name] == 1
    } - graph_io
    new_names: dict[str, str] = {}
    for k, node in enumerate(nodes):
        operator = next(iter(top_level_operators(props(node.metadata_props))), None)
        if operator is None:
            continue
        node.name = f"op{operator}#{k}"
        new_names |= {name: f"{node.name}:in{j}" for j, name in enumerate(node.input) if name in single_use_constants}
        new_names |= {name: f"{node.name}:{j}" for j, name in enumerate(node.output) if name and name not in graph_io}
    for item in (*graph.value_info, *graph.initializer):
        item.name = new_names.get(item.name, item.name)
    _rename(graph, new_names)
    return model


def _all_nodes(graph: GraphProto) -> Iterator[NodeProto]:
    """Yield all nodes, including those of inner graphs.

    ONNX Runtime may replace an If with one of its branches at load time.
    """
    for node in graph.node:
        yield node
        for subgraph in node_subgraphs(node):
            yield from _all_nodes(subgraph)


def _rename(graph: GraphProto, new_names: Mapping[str, str]) -> None:
    """Rename values in a graph and its subgraphs; names are unique across graphs."""
    for node in graph.node:
        for names in (node.input, node.output):
            names[:] = [new_names.get(name, name) for name in names]
        for subgraph in node_subgraphs(node):
            _rename(subgraph, new_names)
            for info in subgraph.output:
                info.name = new_names.get(info.name, info.name)


def _trimmed_mean(times: list[int]) -> float:
    """Return the mean of the times between the quartiles, or of all if there are none.

    A median is too coarse for integers, and the mean of all times includes interruptions.
    """
    low, high = np.percentile(times, (25, 75))
    return float(np.mean([duration for duration in times if low <= duration <= high] or times))


def _profile_names(nodes: Sequence[NodeProto], seconds: Mapping[str, float]) -> Iterator[str]:
    """Yield each node's name in the profile: its own, or its type and a number."""
    numbered_names: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for name in seconds:
        op_type, _, number = name.rpartition("_")
        if number.isdigit():
            numbered_names[op_type].append((int(number), name))
    names = {op_type: iter([name for _, name in sorted(pairs)]) for op_type, pairs in numbered_names.items()}
    for node in nodes:
        yield node.name or next(names.get(node.op_type, iter(())), "")


def _node_operators(labeled: ModelProto, nodes: Sequence[NodeProto]) -> Iterator[int | None]:
    """Yield the operator of each node, by the names of the node and its values."""
    by_value: dict[str, int] = {}
    for node in labeled.graph.node:
        if label := _LABEL.search(node.name):
            by_value.update(dict.fromkeys(node.output, int(label[1])))
    for node in nodes:
        names = (node.name, node.name.removesuffix("_nchwc"), *node.output, *node.input)
        operator = next((index for name in names if (index := _operator_of_name(name, by_value)) is not None), None)
        if operator is not None:
            by_value.update(dict.fromkeys(node.output, operator))
        yield operator


def _operator_of_name(name: str, by_value: Mapping[str, int]) -> int | None:
    """Return the operator of a node or value by its name; None if unknown."""
    label = _LABEL.search(name)
    return int(label[1]) if label else by_value.get(name)
