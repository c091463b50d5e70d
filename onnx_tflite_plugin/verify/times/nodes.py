"""Time each node of ONNX Runtime's own graph, and find the TFLite operator that it computes.

ONNX Runtime drops the metadata of nodes, and names new nodes after values. Therefore the profiled model is a copy whose nodes and
values are named after TFLite operators.
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

from onnx_tflite_plugin.graph.metadata import converted_operators, props
from onnx_tflite_plugin.source.model import Array
from onnx_tflite_plugin.verify.runtimes.ort import OnnxRuntime

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto

_LABEL = re.compile(r"(?<![^\W_])op(\d+)#\d+")  # ONNX Runtime adds a prefix to names from a branch


@dataclass(frozen=True, slots=True)
class NodeTime:
    """A node of the optimized graph: ``seconds`` per run, and the first TFLite operator that it computes, None if unknown."""

    op_type: str
    operator: int | None
    seconds: float


def node_times(proto: ModelProto, feeds: Mapping[str, Array], runs: int) -> list[NodeTime]:
    """Return the times of the nodes of the main graph, in one thread; a node's time includes its inner graphs.

    A time is the mean of the middle half of ``runs``, less the profiler's overhead. Raises OrtError if the model does not run.
    """
    import onnx

    copy = label_nodes(proto)
    with tempfile.TemporaryDirectory() as folder:
        optimized = Path(folder) / "optimized.onnx"
        profiled, counts = _profile_nodes(copy, feeds, runs, Path(folder), optimized)
        nodes = list(onnx.load(optimized, load_external_data=False).graph.node)
    paired = zip(nodes, _names(nodes, profiled), _operators(copy, nodes), strict=True)
    timed = [(node, operator, profiled[name]) for node, name, operator in paired if name in profiled]
    slots = [_profiled_slots(node, counts) for node, _, _ in timed]
    seconds = _subtract_overhead([taken for *_, taken in timed], slots, _time_run(copy, feeds, runs))
    return [NodeTime(node.op_type, operator, taken) for (node, operator, _), taken in zip(timed, seconds, strict=True)]


def _profile_nodes(
    proto: ModelProto, feeds: Mapping[str, Array], runs: int, folder: Path, optimized: Path
) -> tuple[dict[str, float], dict[str, float]]:
    """Return seconds per run of each node by its name in the profile, and how often it runs, as often as its loop does."""
    session = OnnxRuntime(proto, profile=folder / "profile", optimized=optimized)
    for _ in range(runs + 1):
        session.run(feeds)
    events = json.loads(Path(session.session.end_profiling()).read_text(encoding="utf-8"))
    durations: dict[str, list[int]] = defaultdict(list)
    for event in events:
        name, is_kernel, _ = event["name"].partition("_kernel_time")
        if event.get("cat") == "Node" and is_kernel:
            durations[name].append(event["dur"])
    seconds = {name: _middle(times[-runs:]) / 1e6 for name, times in durations.items()}  # the first run allocates
    return seconds, {name: len(times) / (runs + 1) for name, times in durations.items()}


def _profiled_slots(node: NodeProto, counts: Mapping[str, float]) -> float:
    """Return the operands that the profiler records in a run of a node, with those of its inner graphs."""
    inner = (each for graph in _inner_graphs(node) for each in graph.node)
    inside = sum(counts.get(each.name, 0.0) * _profiled_slots(each, counts) for each in inner)
    return 1 + len(node.input) + len(node.output) + inside


def _time_run(proto: ModelProto, feeds: Mapping[str, Array], runs: int) -> float:
    """Return the median processor time of a whole run."""
    session = OnnxRuntime(proto)
    times = []
    for _ in range(runs + 1):
        start = time.process_time()
        session.run(feeds)
        times.append(time.process_time() - start)
    return float(np.median(times[1:]))


def _subtract_overhead(seconds: Sequence[float], slots: Sequence[float], whole: float) -> list[float]:
    """Return times less the profiler's overhead, which is proportional to the number of operands; their sum is ``whole`` at most."""
    excess = max(0.0, sum(seconds) - whole) / max(1.0, sum(slots))
    left = [max(0.0, taken - excess * count) for taken, count in zip(seconds, slots, strict=True)]
    share = min(1.0, whole / max(sum(left), 1e-12))
    return [taken * share for taken in left]


def label_nodes(proto: ModelProto) -> ModelProto:
    """Return a copy whose nodes and values are named ``op3#7`` after their operator, except for inputs and outputs.

    Constants with a single user are renamed too: if ONNX Runtime replaces a node, only their names remain.
    """
    copy = type(proto)()
    copy.CopyFrom(proto)
    graph = copy.graph
    ends = {info.name for info in (*graph.input, *graph.output)}
    nodes = [*_all_nodes(graph)]
    uses = Counter(name for node in nodes for name in node.input)
    own = {constant.name for constant in graph.initializer if uses[constant.name] == 1} - ends
    renamed: dict[str, str] = {}
    for k, node in enumerate(nodes):
        operator = next(iter(converted_operators(props(node.metadata_props))), None)
        if operator is None:
            continue
        node.name = f"op{operator}#{k}"
        renamed |= {name: f"{node.name}:in{j}" for j, name in enumerate(node.input) if name in own}
        renamed |= {name: f"{node.name}:{j}" for j, name in enumerate(node.output) if name and name not in ends}
    for named in (*graph.value_info, *graph.initializer):
        named.name = renamed.get(named.name, named.name)
    _rename(graph, renamed)
    return copy


def _all_nodes(graph: GraphProto) -> Iterator[NodeProto]:
    """Yield all nodes with those of inner graphs, because ONNX Runtime replaces an If by a branch at load time."""
    for node in graph.node:
        yield node
        for inner in _inner_graphs(node):
            yield from _all_nodes(inner)


def _inner_graphs(node: NodeProto) -> Iterator[GraphProto]:
    for attribute in node.attribute:
        yield from attribute.graphs
        if attribute.HasField("g"):
            yield attribute.g


def _rename(graph: GraphProto, renamed: Mapping[str, str]) -> None:
    """Rename values, also in inner graphs: names are unique over all of them."""
    for node in graph.node:
        for names in (node.input, node.output):
            names[:] = [renamed.get(name, name) for name in names]
        for inner in _inner_graphs(node):
            _rename(inner, renamed)
            for info in inner.output:
                info.name = renamed.get(info.name, info.name)


def _middle(times: list[int]) -> float:
    """Return the mean of the middle half: a median is too coarse for whole microseconds, and a mean includes interruptions."""
    low, high = np.percentile(times, (25, 75))
    return float(np.mean([time for time in times if low <= time <= high]))


def _names(nodes: Sequence[NodeProto], seconds: Mapping[str, float]) -> Iterator[str]:
    """Return the name of each node in the profile: its own, or its type and a rising number."""
    nameless: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for name in seconds:
        kind, _, number = name.rpartition("_")
        if number.isdigit():
            nameless[kind].append((int(number), name))
    rising = {kind: iter([name for _, name in sorted(pairs)]) for kind, pairs in nameless.items()}
    for node in nodes:
        yield node.name or next(rising.get(node.op_type, iter(())), "")


def _operators(copy: ModelProto, nodes: Sequence[NodeProto]) -> Iterator[int | None]:
    """Return the operator of each node: by the node's name, else by its results, else by its operands."""
    by_value: dict[str, int] = {}
    for node in copy.graph.node:
        if label := _LABEL.search(node.name):
            by_value.update(dict.fromkeys(node.output, int(label[1])))
    for node in nodes:
        texts = (node.name, node.name.removesuffix("_nchwc"), *node.output, *node.input)
        operator = next((one for text in texts if (one := _operator(text, by_value)) is not None), None)
        if operator is not None:
            by_value.update(dict.fromkeys(node.output, operator))
        yield operator


def _operator(text: str, by_value: Mapping[str, int]) -> int | None:
    label = _LABEL.search(text)
    return int(label[1]) if label else by_value.get(text)
