"""Other sizes of graph inputs, and what follows from them for every tensor behind.

Each operator in turn is lowered by itself, its operands in their new sizes and its results in unknown ones; ONNX's shape
inference says what comes out. Where a lowering takes sizes from the file, its handler declares ``sizes``. Whole numbers
that follow from sizes alone are computed, for shapes are made of them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from math import prod

import numpy as np
import onnx_ir as ir

from onnx_tflite_plugin.api.declarations import Transparent
from onnx_tflite_plugin.api.refusal import Refused
from onnx_tflite_plugin.binding.bound import Bound, label
from onnx_tflite_plugin.binding.declared import resolve, resolved, sized
from onnx_tflite_plugin.binding.evaluation import Evaluated
from onnx_tflite_plugin.errors import ConversionError, InvalidModel, Problem, UnsupportedOperator, UnsupportedOption
from onnx_tflite_plugin.graph.names import UniqueNames
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.layout.candidates import default_axes
from onnx_tflite_plugin.layout.order import source_order
from onnx_tflite_plugin.layout.plan import plan_layout, tensor_bytes
from onnx_tflite_plugin.layout.spread import Edges
from onnx_tflite_plugin.lowering.emitter import Emitter
from onnx_tflite_plugin.lowering.interface import InterfaceNames
from onnx_tflite_plugin.lowering.lower import lower
from onnx_tflite_plugin.quantization.plan import plan_storage
from onnx_tflite_plugin.shapes.inference import infer, skeleton
from onnx_tflite_plugin.source.affine import affine
from onnx_tflite_plugin.source.dtypes import HANDLES
from onnx_tflite_plugin.source.model import Array, Dims, Model, Operator, Subgraph, Tensor, agree
from onnx_tflite_plugin.targets import Target

SAMPLES = (2, 3)
MOST_NUMBERS = 64  # elements of a tensor of sizes; computing more would be running the model
BATCH = "batch"

Places = Mapping[tuple[int, int], str]  # the position of a graph input and its axis, to the name of that size


def resized(
    model: Model,
    shapes: Mapping[str, Sequence[int | str]],
    batch: bool,
    names: InterfaceNames,
    host: Host,
    target: Target,
) -> tuple[Model, Places]:
    """The model with these shapes of graph inputs, by name, and with axis 0 open where ``batch`` asks for it.

    A size given as a name is left open. Returns the sizes that were named. Raises UnsupportedOption for a name or a rank
    the model does not have, UnsupportedOperator where sizes do not follow.
    """
    model = ranked(model, host, target)
    asked = _asked(model, shapes, names)
    fixed = {
        tensor: tuple(own if isinstance(size, str) else size for size, own in zip(sizes, tensor.dims, strict=True))
        for tensor, sizes in asked.items()
    }
    changed = {tensor: dims for tensor, dims in fixed.items() if dims != tensor.dims}
    if changed:
        model = with_dims(
            model, Sizes(model, host, target, "sizes that do not follow from --input-shape:").behind(changed)
        )
    places = {
        (position, axis): size
        for position, name in enumerate(names.inputs)
        for axis, size in enumerate(shapes.get(name, ()))
        if isinstance(size, str)
    }
    return opened(model, {**places, **(_batch(model) if batch else {})}, host, target)


def _asked(
    model: Model, shapes: Mapping[str, Sequence[int | str]], names: InterfaceNames
) -> dict[Tensor, tuple[int | str, ...]]:
    by_name = dict(zip(names.inputs, model.main.inputs, strict=True))
    for name, shape in shapes.items():
        flag = f"--input-shape {name}={','.join(map(str, shape))}"
        if name not in by_name:
            raise UnsupportedOption(f"{flag}: no graph input has that name; there are {', '.join(by_name)}")
        if len(shape) != by_name[name].rank:
            raise UnsupportedOption(f"{flag}: the input has {by_name[name].rank} axes, {list(by_name[name].shape)}")
    return {by_name[name]: tuple(shape) for name, shape in shapes.items()}


def rederived(model: Model, host: Host, target: Target, *, insist: bool = False) -> Model | None:
    """The model in the sizes that follow from its inputs, as LiteRT takes them; ``None`` where the file has no others.

    Raises InvalidModel, if it is to ``insist``, where the file contradicts itself beyond its sizes.
    """
    try:
        dims = Sizes(model, host, target, "sizes that do not follow:").behind({t: t.dims for t in model.main.inputs})
    except (ConversionError, Refused) as error:
        if insist and isinstance(error.__cause__, InvalidModel):
            raise error.__cause__ from error
        return None
    derived = {tensor: _filled(sizes, tensor) for tensor, sizes in dims.items()}
    changed = {tensor: sizes for tensor, sizes in derived.items() if not agree(sizes, tensor.dims)}
    return with_dims(model, changed) if changed else None


def _filled(sizes: Dims, tensor: Tensor) -> Dims:
    """The derived sizes, and the stored ones where nothing is derived."""
    if len(sizes) != tensor.rank:
        return sizes
    return tuple(stored if size is None else size for size, stored in zip(sizes, tensor.dims, strict=True))


def ranked(model: Model, host: Host, target: Target) -> Model:
    """The model with a rank for results of which its file tells none, where operands that broadcast give them one."""
    if all(tensor.has_rank for tensor in model.main.tensors):
        return model
    derived: dict[Tensor, Dims] = {}
    for op in model.main.operators:
        unknown = [tensor for tensor in op.outputs if tensor is not None and not tensor.has_rank]
        sized_op = replace(
            op, inputs=tuple(t if t is None or t not in derived else _sized(t, derived[t]) for t in op.inputs)
        )
        bound = host.take(sized_op, target, target.opsets[2]) if unknown else None
        if isinstance(bound, Bound):
            bound = resolved(bound, target, target.opsets[2])
            meets = bound.declared.aligned and isinstance(bound.declared.layout, Transparent)
            operands = [sized_op[slot].dims for slot in default_axes(bound) if slot >= 0] if meets else []
            derived.update((tensor, _broadcast(operands)) for tensor in unknown if any(operands))
    return with_dims(model, derived)


def _broadcast(shapes: Sequence[Dims]) -> Dims:
    """The shape that aligned shapes make; a size is unknown where one is, and no other is more than 1."""
    rank = max(map(len, shapes))
    rows = zip(*((1,) * (rank - len(shape)) + tuple(shape) for shape in shapes), strict=True)
    return tuple(next((n for n in row if n not in (1, None)), None if None in row else 1) for row in rows)


def _batch(model: Model) -> Places:
    """Axis 0 of the inputs that have the first one's size there."""
    stored = next((tensor.dims[0] for tensor in model.main.inputs if tensor.rank), None)
    freed = {(k, 0): BATCH for k, t in enumerate(model.main.inputs) if t.rank and t.dims[0] == stored}
    if not freed:
        raise UnsupportedOption("--dynamic-batch: no graph input has an axis that could be left open")
    return freed


def opened(model: Model, places: Places, host: Host, target: Target) -> tuple[Model, Places]:
    """The model with these sizes left open, equal ones under one name.

    A size that is another for the stored sizes, for their double or for three times as much is unknown. Raises
    UnsupportedOperator naming the operator that takes no other size, or whose sizes do not follow.
    """
    inputs = model.main.inputs
    stored: dict[str, int] = {}
    for (position, axis), name in places.items():
        size = inputs[position].dims[axis]
        if size is not None:
            stored.setdefault(name, size)
    if not stored:
        return model, places
    flag = "--dynamic-batch" if set(stored) == {BATCH} else "the names in --input-shape"
    what = "batch" if set(stored) == {BATCH} else "size"
    sizes = Sizes(model, host, target, f"operators that take no other {what}, or whose sizes do not follow from it:")

    def at(sample: int) -> dict[Tensor, Dims]:
        """Each size in proportion to what is stored; names grow apart, so that no two stay equal by chance."""
        factors = {name: 1 if sample == 0 else SAMPLES[sample - 1] + sample * k for k, name in enumerate(stored)}
        given = {
            position: tuple(
                stored[name] * factors[name] if (name := places.get((position, axis), "")) in stored else size
                for axis, size in enumerate(inputs[position].dims)
            )
            for position, _ in places
        }
        return sizes.behind({inputs[position]: dims for position, dims in given.items()})

    samples = [at(sample) for sample in range(len(SAMPLES) + 1)]
    for tensor, dims in samples[0].items():
        if tensor.has_rank and not agree(dims, tensor.dims):
            reason = f"the file gives it the shape {list(tensor.dims)}, from its operator follows {list(dims)}"
            raise UnsupportedOperator(sizes.message, [Problem(f"tensor {tensor}", reason, f"leave out {flag}")])
        if len({len(sample[tensor]) for sample in samples}) > 1:
            reason = f"its rank depends on the {what}: {', '.join(str(list(sample[tensor])) for sample in samples)}"
            raise UnsupportedOperator(sizes.message, [Problem(f"tensor {tensor}", reason, f"leave out {flag}")])
    varying = {
        tensor: tuple(
            sampled[0] if len(set(sampled)) == 1 else None
            for sampled in zip(*(s[tensor] for s in samples), strict=True)
        )
        for tensor in samples[0]
    }
    return with_dims(model, varying), places


class Sizes:
    """Derives the sizes of a model's tensors. ``message``: what a refusal begins with."""

    def __init__(self, model: Model, host: Host, target: Target, message: str) -> None:
        self.model, self.host, self.target, self.message = model, host, target, message

    def behind(self, given: Mapping[Tensor, Dims]) -> dict[Tensor, Dims]:
        """The sizes of these graph inputs and of every tensor that depends on them.

        Raises UnsupportedOperator naming the first operator whose results' sizes do not follow.
        """
        dims, numbers = dict(given), dict[Tensor, Array]()
        for op in self.model.main.operators:
            touched = any(tensor in dims or tensor in numbers for tensor in op.inputs if tensor is not None)
            if not (touched or (op.outputs and all(_small(tensor) for tensor in op.outputs))):
                continue
            try:
                results = self._results(op, dims, numbers)
            except (ConversionError, Refused) as error:
                if not touched:
                    continue
                problems = error.problems if isinstance(error, ConversionError) else ()
                reason = problems[0].reason if problems else str(error)
                raise UnsupportedOperator(self.message, [Problem(label(op), reason)]) from error
            moved = any(tensor in dims for tensor in op.inputs if tensor is not None)
            for tensor, (sizes, value) in results.items():
                if moved or sizes != tensor.dims:
                    dims[tensor] = sizes
                if value is not None:
                    numbers[tensor] = value
        return dims

    def _results(
        self, op: Operator, dims: Mapping[Tensor, Dims], numbers: Mapping[Tensor, Array]
    ) -> dict[Tensor, tuple[Dims, Array | None]]:
        """Sizes, and small integers that nothing at run time changes, of an operator's results."""
        if any(tensor.dtype in HANDLES for tensor in op.inputs if tensor is not None):
            raise Refused("what its resource holds has a size of its own")
        operands = {
            tensor: _valued(_sized(tensor, dims.get(tensor, tensor.dims)), numbers.get(tensor))
            for tensor in op.inputs
            if tensor is not None
        }
        opened = [None if t is None else _sized(t, (None,) * _rank(t, op, operands)) for t in op.outputs]
        alone = replace(op, inputs=tuple(None if t is None else operands[t] for t in op.inputs), outputs=tuple(opened))
        bound = self._bound(alone)
        if any(tensor in dims for tensor in operands):
            _check_free(bound, dims.keys() & operands.keys())
        sizes = sized(bound, self.target, self.target.opsets[2])
        if sizes is not None and opened[0] is not None:
            opened[0] = _sized(opened[0], sizes)
            alone = replace(alone, outputs=tuple(opened))
        model = self._lowered(alone)
        fixed = _value(model) if all(t is not None and _small(t) for t in op.outputs) else None
        results: dict[Tensor, tuple[Dims, Array | None]] = {}
        for tensor, inferred in zip((t for t in op.outputs if t is not None), infer(skeleton(model)), strict=True):
            if inferred is None and not tensor.has_rank:
                raise Refused(f"the rank of {tensor.name!r} is known only at run time")
            sizes = (None,) * tensor.rank if inferred is None else inferred
            sizes = sizes[: -1 if inferred and tensor.dtype.startswith("complex") else None]
            _check_scales(tensor, sizes)
            results[tensor] = sizes, fixed
        return results

    def _bound(self, op: Operator) -> Bound:
        bound = self.host.take(op, self.target, self.target.opsets[2])
        if isinstance(bound, Problem):
            raise UnsupportedOperator(self.message, [bound])
        return resolved(bound, self.target, self.target.opsets[2])

    def _lowered(self, op: Operator) -> ir.Model:
        """One operator as an ONNX model of its own, all of it in the file's order."""
        inputs = tuple(dict.fromkeys(t for t in op.inputs if t is not None and not t.constant))
        outputs = tuple(t for t in op.outputs if t is not None)
        main = Subgraph(self.model.root, "", (), inputs, outputs, (op,))
        opset = self.target.opsets[2]
        model = self.host.bind(with_main(self.model, main), self.target, opset)
        model = resolve(model, self.target, opset)
        edges = Edges({tensor: source_order(tensor.dims) for tensor in (*inputs, *outputs)})
        layout = plan_layout(model, bytes_of=tensor_bytes, prices=self.target.price, edges=edges, local=True)
        names = InterfaceNames(tuple(f"x{k}" for k in range(len(inputs))), tuple(f"y{k}" for k in range(len(outputs))))
        emitter = Emitter(opset, UniqueNames(), self.target.widens)
        return lower(model, layout, plan_storage(model, self.target), self.target, emitter, names=names)


def _check_free(bound: Bound, changed: Collection[Tensor]) -> None:
    """Raises Refused where an operand cannot have another size."""
    op, declared = bound.op, bound.declared
    if declared.hands_on or any(t.is_variable for t in op.inputs if t is not None):
        raise Refused("it runs a subgraph or keeps a state, which has sizes of its own")
    by_axis = {*declared.holds_axes, *declared.indexed_by_axis}
    for slot, tensor in enumerate(op.inputs):
        if slot in by_axis and any(tensor is not None and tensor.index == other.index for other in changed):
            raise Refused(f"its operand {slot} has an entry for each axis of another")


def _check_scales(tensor: Tensor, dims: Dims) -> None:
    quantization = affine(tensor)
    if quantization is not None and quantization.per_axis and dims[quantization.axis] != len(quantization.scale):
        raise Refused(f"{tensor.name!r} has {len(quantization.scale)} scales along axis {quantization.axis}")


def _rank(tensor: Tensor, op: Operator, operands: Mapping[Tensor, Tensor]) -> int:
    """A result's rank: where the operand that it has it from has another by now, that one."""
    first = next((t for t in op.inputs if t is not None), None)
    return operands[first].rank if first is not None and first.rank == tensor.rank else tensor.rank


def _small(tensor: Tensor | None) -> bool:
    """Whether a result may hold sizes."""
    return (
        tensor is not None
        and tensor.dtype in ("int32", "int64")
        and tensor.static
        and prod(tensor.shape) <= MOST_NUMBERS
    )


def _sized(tensor: Tensor, dims: Dims) -> Tensor:
    """The tensor in other sizes; an unknown one is stored as 1."""
    if dims == tensor.dims:
        return tensor
    return replace(tensor, shape=tuple(1 if n is None else n for n in dims), dims=dims, has_rank=True)


def _valued(tensor: Tensor, value: Array | None) -> Tensor:
    return tensor if value is None else replace(tensor, data=Evaluated(value))


def _value(model: ir.Model) -> Array | None:
    """The result where no graph input takes part in it."""
    used = {value for node in model.graph for value in node.inputs}
    if used & set(model.graph.inputs):
        return None
    from onnx.reference import ReferenceEvaluator

    (value,) = ReferenceEvaluator(ir.to_proto(model)).run(
        None, {str(value.name): _nothing(value) for value in model.graph.inputs}
    )
    return np.asarray(value)


def _nothing(value: ir.Value) -> Array:
    """An array for a graph input that no node takes."""
    return np.zeros((), value.type.dtype.numpy() if value.type is not None else np.float32)


def with_dims(model: Model, dims: Mapping[Tensor, Dims]) -> Model:
    """The model with other sizes of some of its main subgraph's tensors."""
    return with_main(model, _changed(model.main, {tensor: _sized(tensor, sizes) for tensor, sizes in dims.items()}))


def retyped(model: Model, dtypes: Mapping[tuple[int, int], str]) -> Model:
    """The model with other dtypes of some tensors, which are given by subgraph and index."""
    graphs = []
    for graph in model.subgraphs:
        named = {tensor: dtypes.get((graph.index, tensor.index), tensor.dtype) for tensor in graph.tensors}
        graphs.append(_changed(graph, {tensor: replace(tensor, dtype=dtype) for tensor, dtype in named.items()}))
    return replace(model, subgraphs=tuple(graphs))


def _changed(main: Subgraph, changed: Mapping[Tensor, Tensor]) -> Subgraph:
    """The subgraph with other tensors in the places of some."""

    def all_of(tensors: Collection[Tensor | None]) -> tuple[Tensor | None, ...]:
        return tuple(None if tensor is None else changed.get(tensor, tensor) for tensor in tensors)

    def some(tensors: Collection[Tensor]) -> tuple[Tensor, ...]:
        return tuple(changed.get(tensor, tensor) for tensor in tensors)

    operators = tuple(
        replace(op, inputs=all_of(op.inputs), outputs=all_of(op.outputs), intermediates=all_of(op.intermediates))
        for op in main.operators
    )
    return replace(
        main, tensors=some(main.tensors), inputs=some(main.inputs), outputs=some(main.outputs), operators=operators
    )


def with_main(model: Model, main: Subgraph) -> Model:
    """The model with another main subgraph in the place of its own."""
    return replace(model, subgraphs=(*model.subgraphs[: model.root], main, *model.subgraphs[model.root + 1 :]))
