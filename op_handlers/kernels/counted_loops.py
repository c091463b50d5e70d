"""Loops that count: a WHILE whose counters grow by one, that reads and writes the rows of arrays they tell."""

from __future__ import annotations

from collections.abc import Sequence

from onnx_tflite_plugin.api import Operator, Refused, Subgraph, Tensor
from op_handlers.kernels.spelled_cells import Body

RESERVE, SET_ITEM = "CUSTOM.FlexTensorListReserve", "CUSTOM.FlexTensorListSetItem"


def number(tensor: Tensor) -> int | None:
    """A constant of one element."""
    return int(tensor.array.item()) if tensor.constant and tensor.array.size == 1 else None


class CountedLoop:
    """What the operators of a WHILE's condition and body do with the values it carries; ``outer``: those around it.

    ``counters``: what those slots begin with that grow by one at each time step. Raises Refused where a result is left out that the
    body does not hand on: the kernel has nowhere to keep it for the next step (SetupUnconsumedOutputs, kernels/while.cc).
    """

    def __init__(self, op: Operator, cond: Subgraph, body: Subgraph, outer: Subgraph) -> None:
        self.op, self.cond, self.graph = op, cond, body
        self.body, self.outer = Body(body.operators), Body(outer.operators)
        starts = {k: self._start(k) for k in range(len(body.outputs))}
        self.counters = {k: start for k, start in starts.items() if start is not None}
        self.forwarded = [k for k, tensor in enumerate(body.outputs) if tensor is body.inputs[k]]
        lost = [k for k, result in enumerate(op.outputs) if result is None and k not in self.forwarded]
        if lost:
            raise Refused(
                f"its result {lost[0]} is left out, of which LiteRT then gives no step what the last one made"
            )

    def _start(self, k: int) -> int | None:
        start = self.op.constant(k)
        if start is None or start.shape != () or start.dtype.kind != "i":
            return None
        value = self.graph.inputs[k]
        steps = [b for a, b in self.body.pairs(self.graph.outputs[k], "ADD") if a is value and b.constant]
        return int(start) if any(step.array.size == 1 and step.array.item() == 1 for step in steps) else None

    def overtaken(self) -> dict[int, int]:
        """Slots that the body gives another slot's value, an earlier one's: by then it is the next time step's.

        The kernel copies results one after the other to where the body reads its operands (Eval_static, kernels/while.cc).
        """
        earlier = {tensor: j for j, tensor in enumerate(self.graph.inputs) if j not in self.forwarded}
        slots = {k: earlier.get(tensor, k) for k, tensor in enumerate(self.graph.outputs)}
        return {k: j for k, j in slots.items() if j < k}

    def counted(self, tensor: Tensor, after: bool = False) -> bool:
        """Whether a tensor of the body is how many time steps came before, or ``after``: how many there are with this one."""
        values = self.graph.outputs if after else self.graph.inputs
        return any(tensor is values[k] for k, start in self.counters.items() if start == 0)

    # --- how often ------------------------------------------------------------------------

    def trips(self) -> int | Tensor | None:
        """How often it runs, a number or what it is carried in from outside; ``None`` where anything else may end it."""
        condition, waiting = Body(self.cond.operators), list(self.cond.outputs)
        if any(op.code not in ("LESS", "LOGICAL_AND") for op in self.cond.operators):
            return None
        bounds: list[int | Tensor] = []
        while waiting:
            tensor = waiting.pop()
            both = condition.maker(tensor, "LOGICAL_AND")
            if both is not None:
                waiting += [both[0], both[1]]
                continue
            left = self._left(condition.maker(tensor, "LESS"))
            if left is None:
                return None
            bounds.append(left)
        numbers = [bound for bound in bounds if isinstance(bound, int)]
        if len(numbers) == len(bounds):
            return min(numbers, default=None)
        return bounds[0] if not numbers and len({*bounds}) == 1 else None

    def _left(self, less: Operator | None) -> int | Tensor | None:
        """How many time steps one comparison of a counter allows."""
        counter = next((k for k in self.counters if less is not None and less[0] is self.cond.inputs[k]), None)
        if less is None or counter is None:
            return None
        bound, start = self._bound(less[1]), self.counters[counter]
        if isinstance(bound, int):
            return bound - start
        return bound if start == 0 else None

    def _bound(self, tensor: Tensor) -> int | Tensor | None:
        """A number of the condition's, or the loop's own operand that it is given every time."""
        if tensor.constant:
            return int(tensor.array.item()) if tensor.array.size == 1 else None
        outside = next((self.op[k] for k in self.forwarded if tensor is self.cond.inputs[k]), None)
        return self._bound(outside) if outside is not None and outside.constant else outside

    def slot(self, trips: Tensor) -> int:
        """Where the number is carried."""
        return next(k for k in self.forwarded if self.op[k] is trips)

    def has_a_row_each(self, k: int, trips: int | Tensor) -> bool:
        """Whether the first axis of an operand is as long as the loop runs."""
        array = self.op[k]
        count = self._reserved(array)
        if count is not None and count is trips:
            return True
        if isinstance(trips, int):
            stored = number(count) if count is not None else array.dims[0] if array.rank else None
            return stored == trips
        measured = self._measured(trips)
        return (measured is not None and measured is self._straight(array)) or self._filled(array) is trips

    def _reserved(self, array: Tensor) -> Tensor | None:
        """How many tensors there are in a list that begins empty."""
        reserve = self.outer.maker(array, RESERVE)
        return None if reserve is None else reserve[1]

    def only(self, k: int) -> Tensor | None:
        """What the body makes of a list of one tensor."""
        put, count = self.body.maker(self.graph.outputs[k], SET_ITEM), self._reserved(self.op[k])
        if put is None or put[0] is not self.graph.inputs[k] or count is None:
            return None
        return put[2] if number(count) == 1 and number(put[1]) == 0 else None

    def _measured(self, tensor: Tensor) -> Tensor | None:
        """The tensor whose first axis a number is the size of."""
        op = self.outer.maker(tensor, "STRIDED_SLICE")
        if op is None or op.options.shrink_axis_mask != 1 or op.options.begin_mask or op.options.end_mask:
            return None
        places = [op.constant(slot) for slot in (1, 2, 3)]
        if [None if place is None else place.tolist() for place in places] != [[0], [1], [1]]:
            return None
        shown = self.outer.of(op[0], "SHAPE")
        return None if shown is None else self._straight(shown)

    def _straight(self, tensor: Tensor) -> Tensor:
        """Without the reversals, which change no size."""
        while (before := self.outer.of(tensor, "REVERSE_V2")) is not None:
            tensor = before
        return tensor

    def _filled(self, tensor: Tensor) -> Tensor | None:
        """The number that is the first size of a tensor of equal numbers."""
        sizes = self.outer.of(tensor, "FILL")
        joined = None if sizes is None else self.outer.maker(sizes, "CONCATENATION")
        return None if joined is None else self.outer.of(joined[0], "RESHAPE")

    # --- rows -----------------------------------------------------------------------------

    def read(self, op: Operator) -> int | None:
        """The slot of the array of which an operator of the body takes the row that a counter tells."""
        if op.code != "GATHER" or op.options.axis or op.options.batch_dims or not self.counted(op[1]):
            return None
        return next((k for k in self.forwarded if self.graph.inputs[k] is op[0]), None)

    def written(self, k: int) -> Tensor | None:
        """What the body puts in the place of the array's row that a counter tells, [1, ...]; ``None`` where it does else.

        Of a list, the tensor itself.
        """
        array, before = self.graph.outputs[k], self.graph.inputs[k]
        put = self.body.maker(array, SET_ITEM)
        if put is not None:
            return put[2] if put[0] is before and self.counted(put[1]) else None
        kept = self.body.of(array, "CAST")
        array = kept if kept is not None and kept.dtype == array.dtype else array
        op = self.body.maker(array, "CONCATENATION")
        if op is None or op.options.axis or len(op.inputs) != 3:
            return None
        before_row, row, behind_row = op.inputs
        if before_row is None or row is None or behind_row is None or row.dims[:1] != (1,):
            return None
        head, tail = (self.body.maker(part, "SLICE") for part in (before_row, behind_row))
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
        placed = sizes[0] == -1 and self._place(head[2], whole, 0) and self._place(tail[1], whole, 1)
        return row if placed else None

    def rows(self) -> dict[int, Tensor]:
        """By slot, what is written into arrays of which the loop does nothing else; without the axis of size 1 if it can be.

        The first step writes the first row, the next one the next.
        """
        rows_by_slot = {}
        for k, (array, before) in enumerate(zip(self.graph.outputs, self.graph.inputs, strict=True)):
            row = self.written(k)
            if row is None or array.dtype in ("string", "resource", "variant"):
                continue
            listed = row.rank < array.rank
            alone = self._users(array) == 1 and self._users(before) == 2 - listed and not self._asked(k)
            if alone and array.quantization == before.quantization == row.quantization == self.op[k].quantization:
                inner = self.body.of(row, "RESHAPE")
                if listed:
                    rows_by_slot[k] = row
                elif inner is not None and inner.dims == row.dims[1:]:
                    rows_by_slot[k] = inner
                elif self._users(row) == 1:
                    rows_by_slot[k] = row
        return rows_by_slot

    def _users(self, tensor: Tensor) -> int:
        """How often the body uses a tensor, or gives it."""
        used = [operand for op in self.graph.operators for operand in op.inputs]
        return sum(tensor is other for other in (*used, *self.graph.outputs))

    def _asked(self, k: int) -> bool:
        value = self.cond.inputs[k]
        return any(value is operand for op in self.cond.operators for operand in (*op.inputs, *self.cond.outputs))

    def _place(self, tensor: Tensor, whole: Sequence[int | None], more: int) -> bool:
        """Whether this is ``[counter + more, ...]``: all of the other axes as a size, or their beginning."""
        op = self.body.maker(tensor, "CONCATENATION")
        rest = None if op is None else op.constant(1)
        row = None if op is None else self.body.of(op[0], "RESHAPE")
        if row is None or rest is None or len(rest) != len(whole):
            return False
        if more:
            return not rest.any() and self.counted(row, after=True)
        return self.counted(row) and all(n in (-1, size) for n, size in zip(rest, whole, strict=True))
