"""WHILE loops with counters that grow by one, and with arrays read and written at a counter's index."""

from __future__ import annotations

from collections.abc import Sequence

from onnx_tflite_plugin.api import Operator, Refusal, Subgraph, Tensor
from op_handlers.kernels.recurrent_cells import Body

RESERVE, SET_ITEM = "CUSTOM.FlexTensorListReserve", "CUSTOM.FlexTensorListSetItem"


def constant_scalar(tensor: Tensor) -> int | None:
    """Return the element of a constant of one element, else ``None``."""
    return int(tensor.array.item()) if tensor.is_constant and tensor.array.size == 1 else None


class CountedLoop:
    """Analysis of a WHILE: the dataflow of its condition and body; ``outer`` is the subgraph of the WHILE.

    ``counters``: initial value of each carried slot that grows by one per iteration. Raises Refusal if an output is
    omitted that the body does not forward: the kernel then has nowhere to keep it for the next iteration
    (SetupUnconsumedOutputs, kernels/while.cc).
    """

    def __init__(self, op: Operator, cond: Subgraph, body: Subgraph, outer: Subgraph) -> None:
        self.op, self.cond, self.graph = op, cond, body
        self.body, self.outer = Body(body.operators), Body(outer.operators)
        starts = {k: self._counter_start(k) for k in range(len(body.outputs))}
        self.counters = {k: start for k, start in starts.items() if start is not None}
        self.forwarded = [k for k, tensor in enumerate(body.outputs) if tensor is body.inputs[k]]
        dropped = [k for k, result in enumerate(op.outputs) if result is None and k not in self.forwarded]
        if dropped:
            raise Refusal(f"output {dropped[0]} is omitted, so LiteRT does not carry its value to the next iteration")

    def _counter_start(self, k: int) -> int | None:
        """Return the initial value of slot ``k`` if it is a scalar integer that the body increments by one."""
        start = self.op.constant(k)
        if start is None or start.shape != () or start.dtype.kind != "i":
            return None
        value = self.graph.inputs[k]
        steps = [b for a, b in self.body.operand_pairs(self.graph.outputs[k], "ADD") if a is value and b.is_constant]
        return int(start) if any(step.array.size == 1 and step.array.item() == 1 for step in steps) else None

    def overwritten_slots(self) -> dict[int, int]:
        """Return slots assigned the value of an earlier slot, which by then holds the next iteration's value.

        The kernel copies outputs one after the other to where the body reads its inputs (Eval_static,
        kernels/while.cc).
        """
        earlier = {tensor: j for j, tensor in enumerate(self.graph.inputs) if j not in self.forwarded}
        slots = {k: earlier.get(tensor, k) for k, tensor in enumerate(self.graph.outputs)}
        return {k: j for k, j in slots.items() if j < k}

    def is_step_count(self, tensor: Tensor, after: bool = False) -> bool:
        """True if a tensor of the body is the number of completed iterations, including this one if ``after``."""
        values = self.graph.outputs if after else self.graph.inputs
        return any(tensor is values[k] for k, start in self.counters.items() if start == 0)

    # --- trip count ----------------------------------------------------------------------

    def trip_count(self) -> int | Tensor | None:
        """Return the trip count as a constant or as the outer tensor that holds it; ``None`` if it cannot be derived."""
        condition, pending = Body(self.cond.operators), list(self.cond.outputs)
        if any(op.code not in ("LESS", "LOGICAL_AND") for op in self.cond.operators):
            return None
        bounds: list[int | Tensor] = []
        while pending:
            tensor = pending.pop()
            both = condition.producer(tensor, "LOGICAL_AND")
            if both is not None:
                pending += [both[0], both[1]]
                continue
            left = self._remaining_steps(condition.producer(tensor, "LESS"))
            if left is None:
                return None
            bounds.append(left)
        numbers = [bound for bound in bounds if isinstance(bound, int)]
        if len(numbers) == len(bounds):
            return min(numbers, default=None)
        return bounds[0] if not numbers and len({*bounds}) == 1 else None

    def _remaining_steps(self, less: Operator | None) -> int | Tensor | None:
        """Return the number of iterations that one comparison of a counter allows."""
        counter = next((k for k in self.counters if less is not None and less[0] is self.cond.inputs[k]), None)
        if less is None or counter is None:
            return None
        bound, start = self._trip_bound(less[1]), self.counters[counter]
        if isinstance(bound, int):
            return bound - start
        return bound if start == 0 else None

    def _trip_bound(self, tensor: Tensor) -> int | Tensor | None:
        """Return a constant bound of the condition, or the WHILE's operand that the body forwards unchanged."""
        if tensor.is_constant:
            return int(tensor.array.item()) if tensor.array.size == 1 else None
        outside = next((self.op[k] for k in self.forwarded if tensor is self.cond.inputs[k]), None)
        return self._trip_bound(outside) if outside is not None and outside.is_constant else outside

    def trip_count_slot(self, trips: Tensor) -> int:
        """Return the slot that carries the trip count."""
        return next(k for k in self.forwarded if self.op[k] is trips)

    def has_row_per_step(self, k: int, trips: int | Tensor) -> bool:
        """True if the first dimension of operand ``k`` equals the trip count."""
        array = self.op[k]
        count = self._reserved_size(array)
        if count is not None and count is trips:
            return True
        if isinstance(trips, int):
            stored = constant_scalar(count) if count is not None else array.dims[0] if array.rank else None
            return stored == trips
        measured = self._source_of_size(trips)
        return (measured is not None and measured is self._skip_reversals(array)) or self._fill_size(array) is trips

    def _reserved_size(self, array: Tensor) -> Tensor | None:
        """Return the number of elements of a tensor list that is created empty."""
        reserve = self.outer.producer(array, RESERVE)
        return None if reserve is None else reserve[1]

    def single_element(self, k: int) -> Tensor | None:
        """Return the tensor that the body writes to a list of one element."""
        put, count = self.body.producer(self.graph.outputs[k], SET_ITEM), self._reserved_size(self.op[k])
        if put is None or put[0] is not self.graph.inputs[k] or count is None:
            return None
        return put[2] if constant_scalar(count) == 1 and constant_scalar(put[1]) == 0 else None

    def _source_of_size(self, tensor: Tensor) -> Tensor | None:
        """Return the tensor that has the scalar as its first dimension."""
        op = self.outer.producer(tensor, "STRIDED_SLICE")
        if op is None or op.options.shrink_axis_mask != 1 or op.options.begin_mask or op.options.end_mask:
            return None
        places = [op.constant(slot) for slot in (1, 2, 3)]
        if [None if place is None else place.tolist() for place in places] != [[0], [1], [1]]:
            return None
        shown = self.outer.operand(op[0], "SHAPE")
        return None if shown is None else self._skip_reversals(shown)

    def _skip_reversals(self, tensor: Tensor) -> Tensor:
        """Return the tensor before all REVERSE_V2 operators, which preserve its shape."""
        while (before := self.outer.operand(tensor, "REVERSE_V2")) is not None:
            tensor = before
        return tensor

    def _fill_size(self, tensor: Tensor) -> Tensor | None:
        """Return the scalar that is the first dimension of the output of a FILL."""
        sizes = self.outer.operand(tensor, "FILL")
        joined = None if sizes is None else self.outer.producer(sizes, "CONCATENATION")
        return None if joined is None else self.outer.operand(joined[0], "RESHAPE")

    # --- array access --------------------------------------------------------------------

    def read_slot(self, op: Operator) -> int | None:
        """Return the slot of the array from which an operator gathers the element at a counter's index."""
        if op.code != "GATHER" or op.options.axis or op.options.batch_dims or not self.is_step_count(op[1]):
            return None
        return next((k for k in self.forwarded if self.graph.inputs[k] is op[0]), None)

    def row_written_at(self, k: int) -> Tensor | None:
        """Return the tensor ``[1, ...]`` that the body writes at a counter's index of array ``k``; ``None`` for other writes.

        For a tensor list, return the written tensor itself.
        """
        array, before = self.graph.outputs[k], self.graph.inputs[k]
        put = self.body.producer(array, SET_ITEM)
        if put is not None:
            return put[2] if put[0] is before and self.is_step_count(put[1]) else None
        kept = self.body.operand(array, "CAST")
        array = kept if kept is not None and kept.dtype == array.dtype else array
        op = self.body.producer(array, "CONCATENATION")
        if op is None or op.options.axis or len(op.inputs) != 3:
            return None
        before_row, row, behind_row = op.inputs
        if before_row is None or row is None or behind_row is None or row.dims[:1] != (1,):
            return None
        head, tail = (self.body.producer(part, "SLICE") for part in (before_row, behind_row))
        if head is None or tail is None or head[0] is not before or tail[0] is not before:
            return None
        begin, sizes = head.constant(1), tail.constant(2)
        whole = [*row.dims[1:]]
        if (
            begin is None
            or begin.any()
            or sizes is None
            or len(sizes) != len(whole) + 1
            or any(n not in (-1, size) for n, size in zip(sizes[1:], whole, strict=True))
        ):
            return None
        placed = (
            sizes[0] == -1 and self._is_counter_index(head[2], whole, 0) and self._is_counter_index(tail[1], whole, 1)
        )
        return row if placed else None

    def rows(self) -> dict[int, Tensor]:
        """Return, by slot, the rows written to arrays that the loop does not otherwise use.

        The axis of size 1 is removed if possible. Iteration ``t`` writes row ``t``.
        """
        rows_by_slot = {}
        for k, (array, before) in enumerate(zip(self.graph.outputs, self.graph.inputs, strict=True)):
            row = self.row_written_at(k)
            if row is None or array.dtype in ("string", "resource", "variant"):
                continue
            listed = row.rank < array.rank
            alone = (
                self._use_count(array) == 1
                and self._use_count(before) == 2 - listed
                and not self._is_read_by_condition(k)
            )
            if alone and array.quantization == before.quantization == row.quantization == self.op[k].quantization:
                inner = self.body.operand(row, "RESHAPE")
                if listed:
                    rows_by_slot[k] = row
                elif inner is not None and inner.dims == row.dims[1:]:
                    rows_by_slot[k] = inner
                elif self._use_count(row) == 1:
                    rows_by_slot[k] = row
        return rows_by_slot

    def _use_count(self, tensor: Tensor) -> int:
        """Return how often the body consumes or outputs a tensor."""
        used = [operand for op in self.graph.operators for operand in op.inputs]
        return sum(tensor is other for other in (*used, *self.graph.outputs))

    def _is_read_by_condition(self, k: int) -> bool:
        """True if the condition reads or outputs the value of slot ``k``."""
        value = self.cond.inputs[k]
        return any(value is operand for op in self.cond.operators for operand in (*op.inputs, *self.cond.outputs))

    def _is_counter_index(self, tensor: Tensor, whole: Sequence[int | None], more: int) -> bool:
        """True if ``tensor`` is ``[counter + more, ...]``, followed by the other axes' sizes or by zeros."""
        op = self.body.producer(tensor, "CONCATENATION")
        rest = None if op is None else op.constant(1)
        row = None if op is None else self.body.operand(op[0], "RESHAPE")
        if row is None or rest is None or len(rest) != len(whole):
            return False
        if more:
            return not rest.any() and self.is_step_count(row, after=True)
        return self.is_step_count(row) and all(n in (-1, size) for n, size in zip(rest, whole, strict=True))
