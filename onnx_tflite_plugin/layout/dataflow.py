"""Dataflow edges of a model, which become wires of the layout problem."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from onnx_tflite_plugin.binding.bound import Bound, BoundModel
from onnx_tflite_plugin.layout import labeling
from onnx_tflite_plugin.layout.boundaries import Place, execution_counts
from onnx_tflite_plugin.layout.constraints import LayoutConstraint, present_slots
from onnx_tflite_plugin.layout.propagation import InterfaceLayouts
from onnx_tflite_plugin.layout.shared_axes import OperatorLayout
from onnx_tflite_plugin.layout.tensor_layout import (
    TensorLayout,
    axis_set,
    drop_unit_axes,
    element_count,
    layout_axes,
    source_layout,
)
from onnx_tflite_plugin.source.dtypes import bits
from onnx_tflite_plugin.source.model import Tensor

TRANSPOSE_COST = 4096  # bytes: overhead of starting a Transpose (8 kB per microsecond)
RESHAPE_COST = 256  # bytes: a Reshape that moves or removes an axis of size 1

TensorBytes = Callable[[Tensor], int]


class PlannedTranspose(NamedTuple):
    """A transpose of one tensor between two layouts."""

    tensor: Tensor
    start: TensorLayout
    end: TensorLayout
    bytes: int
    producer: str
    consumers: tuple[str, ...]


class Endpoint(NamedTuple):
    """One use of a tensor.

    ``variable``: the solver's variable, None if the layout is fixed. ``layouts``: the candidates. ``label``: the name
    in the report.
    """

    variable: int | None
    layouts: Sequence[TensorLayout]
    label: str

    def pin(self, numbers: Mapping[TensorLayout, int]) -> labeling.Pin:
        """Return the solver's pin.

        ``numbers``: layout -> its number in the solver.
        """
        return labeling.Pin(self.variable, tuple(numbers[layout] for layout in self.layouts))

    def layout(self, labels: Sequence[int]) -> TensorLayout:
        """Return the layout under the solver's labels."""
        return self.layouts[0 if self.variable is None else labels[self.variable]]


class Edge(NamedTuple):
    """A tensor with its producer and its consumers.

    ``executions``: the estimated number of executions of its subgraph.
    """

    tensor: Tensor
    producer: Endpoint
    consumers: Sequence[Endpoint]
    executions: int = 1

    def wires(self, bytes_of: TensorBytes) -> Iterable[labeling.Wire]:
        """Yield a wire that prices transposes, and one or two that price reshapes.

        Each wire has its own key function: layouts with equal keys need no such node between them.
        """
        weighted_keys: list[tuple[int, Callable[[TensorLayout], object]]] = [
            (bytes_of(self.tensor) + TRANSPOSE_COST, drop_unit_axes),
            (RESHAPE_COST, layout_axes),
        ]
        layouts = dict.fromkeys(layout for endpoint in (self.producer, *self.consumers) for layout in endpoint.layouts)
        if len({*map(axis_set, layouts)}) > 1:
            weighted_keys.append((RESHAPE_COST, axis_set))
        for weight, key in weighted_keys:
            numbers = _number_by_key(layouts, key)
            consumers = tuple(consumer.pin(numbers) for consumer in self.consumers)
            yield labeling.Wire(weight * self.executions, self.producer.pin(numbers), consumers)

    def transposes(self, labels: Sequence[int], bytes_of: TensorBytes) -> Iterable[PlannedTranspose]:
        """Yield a transpose for each layout that differs from the producer's."""
        start = self.producer.layout(labels)
        consumers_by_layout: dict[TensorLayout, list[Endpoint]] = {}
        for consumer in self.consumers:
            layout = consumer.layout(labels)
            if drop_unit_axes(layout) != drop_unit_axes(start):
                consumers_by_layout.setdefault(drop_unit_axes(layout), []).append(consumer)
        for consumers in consumers_by_layout.values():
            yield PlannedTranspose(
                self.tensor,
                start,
                consumers[0].layout(labels),
                bytes_of(self.tensor),
                self.producer.label,
                tuple(consumer.label for consumer in consumers),
            )


def _number_by_key(layouts: Iterable[TensorLayout], key: Callable[[TensorLayout], object]) -> dict[TensorLayout, int]:
    """Return one number per layout, which is faster to compare than its key.

    Layouts with equal keys get equal numbers.
    """
    numbers: dict[object, int] = {}
    return {layout: numbers.setdefault(key(layout), len(numbers)) for layout in layouts}


class EndpointLookup(NamedTuple):
    """Lookup of the endpoints of tensors.

    ``candidates`` and ``variables``: candidate layouts and solver variables of flexible operators. ``representatives``: the
    operator that stands for all users of a state. ``interface_endpoints``: graph inputs and outputs that may follow the plan.
    ``boundaries``: endpoints at subgraph boundaries.
    """

    constraints: Mapping[Bound, LayoutConstraint]
    candidates: Mapping[Bound, Sequence[OperatorLayout]]
    variables: Mapping[Bound, int]
    representatives: Mapping[Bound, Bound]
    interface_endpoints: Mapping[Tensor, Endpoint]
    interface: InterfaceLayouts
    boundaries: Mapping[Place, Endpoint]

    def operator(self, bound: Bound, slot: int) -> Endpoint:
        """Return the endpoint of an operator's slot."""
        boundary = self.boundaries.get((bound, slot))
        if boundary is not None:
            return boundary._replace(label=bound.label)
        constraint = self.constraints[bound]
        if constraint.shared_axes is None or slot not in constraint.shared_axes.slots:
            return Endpoint(None, [constraint.layout(slot)], bound.label)
        representative = self.representatives.get(bound, bound)
        layouts = [constraint.shared_axes.slot_layout(layout, slot) for layout in self.candidates[representative]]
        return Endpoint(
            self.variables[representative], [layout for layout in layouts if layout is not None], bound.label
        )

    def interface_endpoint(self, tensor: Tensor, label: str) -> Endpoint:
        """Return the endpoint of a graph input or output."""
        endpoint = self.interface_endpoints.get(tensor) or self.boundaries.get(tensor)
        if endpoint is not None:
            return endpoint._replace(label=label)
        return Endpoint(None, [self.interface.fixed.get(tensor) or source_layout(tensor.dims)], label)


def dataflow_edges(model: BoundModel, endpoints: EndpointLookup) -> Iterable[Edge]:
    """Yield the dataflow edges of all subgraphs."""
    executions = execution_counts(model)
    for graph in model.graphs:
        inputs = set(graph.inputs)
        producers: dict[Tensor, Endpoint] = {}
        consumers: dict[Tensor, list[Endpoint]] = {}
        for bound in graph.operators:
            for slot in present_slots(bound):
                tensor = bound.op[slot]
                if slot < 0:
                    producers[tensor] = endpoints.operator(bound, slot)
                elif not tensor.is_constant:
                    consumers.setdefault(tensor, []).append(endpoints.operator(bound, slot))
        # The graph of an operator in isolation may have many inputs and outputs that the operator does not use.
        for tensor in graph.outputs:
            if tensor in producers or tensor in inputs:
                consumers.setdefault(tensor, []).append(endpoints.interface_endpoint(tensor, "graph output"))
        for tensor, endpoints_of_consumers in consumers.items():
            producer = producers.get(tensor)
            if producer is None and tensor in inputs:
                producer = endpoints.interface_endpoint(tensor, "graph input")
            if producer is not None:
                yield Edge(tensor, producer, endpoints_of_consumers, executions.get(graph.subgraph.index, 1))


def tensor_bytes(tensor: Tensor) -> int:
    """Return the bytes that a transpose of the tensor moves.

    A dynamic dimension counts as 1, an element of variable length as 4 bytes.
    """
    return element_count(tensor.dims) * (bits(tensor.dtype) or 32) // 8
