"""WHILE loops with counters that grow by one per iteration.

A counted loop may read and write arrays at the index of a counter.
"""

from __future__ import annotations

from collections.abc import Sequence

from onnx_tflite_plugin.api import Operator, Refusal, Subgraph, Tensor
from op_handlers.kernels.recurrent_cells import Dataflow

RESERVE, SET_ITEM = "CUSTOM.FlexTensorListReserve", "CUSTOM.FlexTensorListSetItem"


def constant_scalar(tensor: Tensor) -> int | None:
    """Return the element of a constant of one element, else ``None``."""
    return int(tensor.array.item()) if tensor.is_constant and tensor.array.size == 1 else None


class CountedLoop:
    """Analysis of the dataflow in condition and body of a WHILE.

    ``outer``: the subgraph of the WHILE. ``counters``: carried slot that grows by one per iteration -> initial
    value. ``forwarded``: carried slots that the body returns unchanged. Raises Refusal if the WHILE omits the output
    of a slot that the body changes: the kernel then cannot pass the new value to the next iteration
    (SetupUnconsumedOutputs, kernels/while.cc).
    """

    def __init__(self, op: Operator, cond: Subgraph, body: Subgraph, outer: Subgraph) -> None:
        self.op, self.cond, self.body = op, cond, body
        self.body_dataflow, self.outer_dataflow = Dataflow(body.operators), Dataflow(outer.operators)
        initial_values = {k: self._initial_counter(k) for k in range(len(body.outputs))}
        self.counters = {k: value for k, value in initial_values.items() if value is not None}
        self.forwarded = [k for k, tensor in enumerate(body.outputs) if tensor is body.inputs[k]]
        omitted = [k for k, result in enumerate(op.outputs) if result is None and k not in self.forwarded]
        if omitted:
            raise Refusal(f"output {omitted[0]} is omitted, so LiteRT does not carry its value to the next iteration")

    def _initial_counter(self, slot: int) -> int | None:
        """Return the initial value of an integer that the body increments, else ``None``."""
        initial_value = self.op.constant(slot)
        if initial_value is None or initial_value.shape != () or initial_value.dtype.kind != "i":
            return None
        value = self.body.inputs[slot]
        addends = [b for a, b in self.body_dataflow.operand_pairs(self.body.outputs[slot], "ADD") if a is value]
        return int(initial_value) if any(constant_scalar(addend) == 1 for addend in addends) else None

    def overwritten_slots(self) -> dict[int, int]:
        """Return {later slot: earlier slot} for later slots that get a wrong value.

        Example: a body returns ``(a + 1, a)`` for the slots ``(a, b)``. The kernel copies outputs to inputs in slot
        order (Eval_static, kernels/while.cc), so ``b`` becomes the new ``a``; the result is {1: 0}.
        """
        input_slots = {tensor: slot for slot, tensor in enumerate(self.body.inputs) if slot not in self.forwarded}
        returned_slots = {slot: input_slots.get(tensor, slot) for slot, tensor in enumerate(self.body.outputs)}
        return {slot: earlier_slot for slot, earlier_slot in returned_slots.items() if earlier_slot < slot}

    def is_step_count(self, tensor: Tensor, after: bool = False) -> bool:
        """True if a tensor of the body is the number of completed iterations.

        ``after``: the current iteration counts as completed.
        """
        values = self.body.outputs if after else self.body.inputs
        return any(tensor is values[k] for k, start in self.counters.items() if start == 0)

    # --- trip count ----------------------------------------------------------------------

    def trip_count(self) -> int | Tensor | None:
        """Return the trip count: a constant, an outer tensor, or ``None`` if unknown."""
        cond_dataflow, pending = Dataflow(self.cond.operators), list(self.cond.outputs)
        if any(op.code not in ("LESS", "LOGICAL_AND") for op in self.cond.operators):
            return None
        bounds: list[int | Tensor] = []
        while pending:
            tensor = pending.pop()
            conjunction = cond_dataflow.producer(tensor, "LOGICAL_AND")
            if conjunction is not None:
                pending += [conjunction[0], conjunction[1]]
                continue
            bound = self._allowed_steps(cond_dataflow.producer(tensor, "LESS"))
            if bound is None:
                return None
            bounds.append(bound)
        constants = [bound for bound in bounds if isinstance(bound, int)]
        if len(constants) == len(bounds):
            return min(constants, default=None)
        return bounds[0] if not constants and len({*bounds}) == 1 else None

    def _allowed_steps(self, less: Operator | None) -> int | Tensor | None:
        """Return the number of iterations that one comparison of a counter allows."""
        counter = next((k for k in self.counters if less is not None and less[0] is self.cond.inputs[k]), None)
        if less is None or counter is None:
            return None
        bound, start = self._trip_bound(less[1]), self.counters[counter]
        if isinstance(bound, int):
            return bound - start
        return bound if start == 0 else None

    def _trip_bound(self, tensor: Tensor) -> int | Tensor | None:
        """Return the bound of a comparison: a constant, or an operand of the WHILE.

        The body must not change the operand.
        """
        if tensor.is_constant:
            return int(tensor.array.item()) if tensor.array.size == 1 else None
        outer = next((self.op[k] for k in self.forwarded if tensor is self.cond.inputs[k]), None)
        return self._trip_bound(outer) if outer is not None and outer.is_constant else outer

    def trip_count_slot(self, trips: Tensor) -> int:
        """Return the slot that carries the trip count."""
        return next(k for k in self.forwarded if self.op[k] is trips)

    def has_row_per_step(self, slot: int, trips: int | Tensor) -> bool:
        """True if the first dimension of the operand in ``slot`` equals the trip count."""
        array = self.op[slot]
        count = self._reserved_size(array)
        if count is not None and count is trips:
            return True
        if isinstance(trips, int):
            size = constant_scalar(count) if count is not None else array.dims[0] if array.rank else None
            return size == trips
        sized_tensor = self._source_of_size(trips)
        if sized_tensor is not None and sized_tensor is self._skip_reversals(array):
            return True
        return self._fill_size(array) is trips

    def _reserved_size(self, array: Tensor) -> Tensor | None:
        """Return the number of elements of a tensor list that is created empty."""
        reserve = self.outer_dataflow.producer(array, RESERVE)
        return None if reserve is None else reserve[1]

    def single_element(self, slot: int) -> Tensor | None:
        """Return the tensor that the body writes to a list of one element, or ``None``."""
        set_item = self.body_dataflow.producer(self.body.outputs[slot], SET_ITEM)
        count = self._reserved_size(self.op[slot])
        if set_item is None or set_item[0] is not self.body.inputs[slot] or count is None:
            return None
        return set_item[2] if constant_scalar(count) == 1 and constant_scalar(set_item[1]) == 0 else None

    def _source_of_size(self, tensor: Tensor) -> Tensor | None:
        """Return the tensor whose first dimension SHAPE and STRIDED_SLICE extract."""
        op = self.outer_dataflow.producer(tensor, "STRIDED_SLICE")
        if op is None or op.options.shrink_axis_mask != 1 or op.options.begin_mask or op.options.end_mask:
            return None
        bounds = [op.constant(slot) for slot in (1, 2, 3)]
        if [None if bound is None else bound.tolist() for bound in bounds] != [[0], [1], [1]]:
            return None
        source = self.outer_dataflow.operand(op[0], "SHAPE")
        return None if source is None else self._skip_reversals(source)

    def _skip_reversals(self, tensor: Tensor) -> Tensor:
        """Return the tensor before all REVERSE_V2 operators, which preserve its shape."""
        while (source := self.outer_dataflow.operand(tensor, "REVERSE_V2")) is not None:
            tensor = source
        return tensor

    def _fill_size(self, tensor: Tensor) -> Tensor | None:
        """Return the scalar that is the first dimension of the output of a FILL."""
        sizes = self.outer_dataflow.operand(tensor, "FILL")
        concatenation = None if sizes is None else self.outer_dataflow.producer(sizes, "CONCATENATION")
        return None if concatenation is None else self.outer_dataflow.operand(concatenation[0], "RESHAPE")

    # --- array access --------------------------------------------------------------------

    def read_slot(self, op: Operator) -> int | None:
        """Return the slot of the array that an operator reads at the index of a counter."""
        if op.code != "GATHER" or op.options.axis or op.options.batch_dims or not self.is_step_count(op[1]):
            return None
        return next((k for k in self.forwarded if self.body.inputs[k] is op[0]), None)

    def row_written_at(self, slot: int) -> Tensor | None:
        """Return the row ``[1, ...]`` that the body writes to an array, or ``None``.

        The row must be written at the index of a counter. For a tensor list, the row is the written tensor itself.
        """
        array, old_array = self.body.outputs[slot], self.body.inputs[slot]
        set_item = self.body_dataflow.producer(array, SET_ITEM)
        if set_item is not None:
            return set_item[2] if set_item[0] is old_array and self.is_step_count(set_item[1]) else None
        cast_operand = self.body_dataflow.operand(array, "CAST")
        array = cast_operand if cast_operand is not None and cast_operand.dtype == array.dtype else array
        op = self.body_dataflow.producer(array, "CONCATENATION")
        if op is None or op.options.axis or len(op.inputs) != 3:
            return None
        rows_before, row, rows_after = op.inputs
        if rows_before is None or row is None or rows_after is None or row.dims[:1] != (1,):
            return None
        head, tail = (self.body_dataflow.producer(slice_result, "SLICE") for slice_result in (rows_before, rows_after))
        if head is None or tail is None or head[0] is not old_array or tail[0] is not old_array:
            return None
        begin, sizes = head.constant(1), tail.constant(2)
        row_dims = [*row.dims[1:]]
        if (
            begin is None
            or begin.any()
            or sizes is None
            or len(sizes) != len(row_dims) + 1
            or any(n not in (-1, size) for n, size in zip(sizes[1:], row_dims, strict=True))
        ):
            return None
        is_at_counter = (
            sizes[0] == -1
            and self._is_counter_index(head[2], row_dims, 0)
            and self._is_counter_index(tail[1], row_dims, 1)
        )
        return row if is_at_counter else None

    def rows(self) -> dict[int, Tensor]:
        """Return slot of a write-only array -> the written row.

        The leading axis of size 1 is removed if possible. Iteration ``t`` writes row ``t``.
        """
        rows_by_slot = {}
        for k, (array, old_array) in enumerate(zip(self.body.outputs, self.body.inputs, strict=True)):
            row = self.row_written_at(k)
            if row is None or array.dtype in ("string", "resource", "variant"):
                continue
            is_list_item = row.rank < array.rank
            write_uses = 1 if is_list_item else 2  # SET_ITEM reads the old array once, the two SLICEs twice
            is_only_written = (
                self._use_count(array) == 1
                and self._use_count(old_array) == write_uses
                and not self._is_read_by_condition(k)
            )
            if not is_only_written:
                continue
            if not array.quantization == old_array.quantization == row.quantization == self.op[k].quantization:
                continue
            reshape_operand = self.body_dataflow.operand(row, "RESHAPE")
            if is_list_item:
                rows_by_slot[k] = row
            elif reshape_operand is not None and reshape_operand.dims == row.dims[1:]:
                rows_by_slot[k] = reshape_operand
            elif self._use_count(row) == 1:
                rows_by_slot[k] = row
        return rows_by_slot

    def _use_count(self, tensor: Tensor) -> int:
        """Return how often the body reads or returns a tensor."""
        operands = [x for op in self.body.operators for x in op.inputs]
        return sum(tensor is operand for operand in (*operands, *self.body.outputs))

    def _is_read_by_condition(self, slot: int) -> bool:
        """True if the condition reads or outputs the value of a slot."""
        value = self.cond.inputs[slot]
        return any(value is operand for op in self.cond.operators for operand in (*op.inputs, *self.cond.outputs))

    def _is_counter_index(self, tensor: Tensor, row_dims: Sequence[int | None], increment: int) -> bool:
        """True if ``tensor`` is ``[counter + increment, ...]``.

        The other entries are zeros, or sizes of the row if ``increment`` is 0.
        """
        op = self.body_dataflow.producer(tensor, "CONCATENATION")
        other_entries = None if op is None else op.constant(1)
        index = None if op is None else self.body_dataflow.operand(op[0], "RESHAPE")
        if index is None or other_entries is None or len(other_entries) != len(row_dims):
            return False
        if increment:
            return not other_entries.any() and self.is_step_count(index, after=True)
        are_sizes = all(entry in (-1, size) for entry, size in zip(other_entries, row_dims, strict=True))
        return self.is_step_count(index) and are_sizes
