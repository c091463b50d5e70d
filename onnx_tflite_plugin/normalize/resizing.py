"""Other sizes of graph inputs, asked for or left open, and the model in all that follows from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from onnx_tflite_plugin.api.refusal import Refused
from onnx_tflite_plugin.errors import ConversionError, InvalidModel, Problem, UnsupportedOperator, UnsupportedOption
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.lowering.interface import InterfaceNames
from onnx_tflite_plugin.normalize.changes import with_dims
from onnx_tflite_plugin.normalize.derivation import Sizes, follows
from onnx_tflite_plugin.normalize.ranks import completed
from onnx_tflite_plugin.source.model import Dims, Model, Tensor, agree
from onnx_tflite_plugin.targets import Target

SAMPLES = (2, 3)
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
    model = completed(model, host)
    asked = _asked(model, shapes, names)
    fixed = {tensor: _with_stored(sizes, tensor) for tensor, sizes in asked.items()}
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
            raise UnsupportedOption(
                f"{flag}: no graph input has that name; the model's inputs are {', '.join(by_name)}"
            )
        if len(shape) != by_name[name].rank and by_name[name].rank:  # [] may be what a converter wrote of any shape
            raise UnsupportedOption(f"{flag}: the input has {by_name[name].rank} axes, {list(by_name[name].shape)}")
    return {by_name[name]: tuple(shape) for name, shape in shapes.items()}


def _with_stored(sizes: Sequence[int | str], tensor: Tensor) -> Dims:
    """The sizes, with those that the file stores in place of names."""
    stored = tensor.dims or (None,) * len(sizes)
    return tuple(own if isinstance(size, str) else size for size, own in zip(sizes, stored, strict=True))


def rederived(model: Model, host: Host, target: Target, *, insist: bool = False) -> Model | None:
    """The model in the sizes that follow from its inputs, as LiteRT takes them; ``None`` where the file has no others.

    Raises InvalidModel, if it is to ``insist``, where the file contradicts itself beyond its sizes.
    """
    told = completed(model, host)
    try:
        dims = Sizes(told, host, target, "sizes that do not follow:").behind({t: t.dims for t in told.main.inputs})
    except (ConversionError, Refused) as error:
        if insist and isinstance(error.__cause__, InvalidModel):
            raise error.__cause__ from error
        return None
    derived = {tensor: _filled(sizes, tensor) for tensor, sizes in dims.items()}
    changed = {tensor: sizes for tensor, sizes in derived.items() if not follows(tensor.dims, sizes)}
    if changed:
        return with_dims(told, changed)
    return None if told is model else told


def _filled(sizes: Dims, tensor: Tensor) -> Dims:
    """The derived sizes, and the stored ones where nothing is derived; but 0 is no size that anything may go by."""
    if len(sizes) != tensor.rank:
        return sizes
    return tuple(stored or None if size is None else size for size, stored in zip(sizes, tensor.dims, strict=True))


def _batch(model: Model) -> Places:
    """Axis 0 of the inputs that have the first one's size there."""
    stored = next((tensor.dims[0] for tensor in model.main.inputs if tensor.rank), None)
    freed = {(k, 0): BATCH for k, t in enumerate(model.main.inputs) if t.rank and t.dims[0] == stored}
    if not freed:
        raise UnsupportedOption("--dynamic-batch: no graph input has an axis that could be left open")
    return freed


def opened(model: Model, places: Places, host: Host, target: Target) -> tuple[Model, Places]:
    """The model with these sizes left open, equal ones under one name.

    A size that is another for the stored sizes, for their double or for three times as much is unknown. Constants that hold
    a size of axis 0 which is left open hold what their handlers declare in its place. Raises UnsupportedOperator naming
    the operator that takes no other size, or whose sizes do not follow.
    """
    inputs = model.main.inputs
    stored: dict[str, int] = {}
    for (position, axis), name in places.items():
        size = inputs[position].shape[axis] if axis == 0 else inputs[position].dims[axis]
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
        batches = {
            stored[name] * factors[name]: stored[name]
            for (_, axis), name in places.items()
            if axis == 0 and name in stored and factors[name] > 1
        }
        return sizes.behind({inputs[position]: dims for position, dims in given.items()}, batches)

    try:
        samples = [at(sample) for sample in range(len(SAMPLES) + 1)]
    except UnsupportedOperator:
        if all(inputs[position].dims[axis] is None for position, axis in places):
            return model, places  # the file leaves them open itself
        raise
    for tensor, dims in samples[0].items():
        if tensor.has_rank and tensor.subgraph == model.root and not agree(dims, tensor.dims):
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
    graphs = [replace(g, operators=tuple(sizes.freed.get(op, op) for op in g.operators)) for g in model.subgraphs]
    return with_dims(replace(model, subgraphs=tuple(graphs)), varying), places
