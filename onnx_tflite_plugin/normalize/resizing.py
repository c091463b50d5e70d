"""Requested and dynamic sizes of graph inputs, and the derived shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain

from onnx_tflite_plugin.api.refusal import Refusal
from onnx_tflite_plugin.checked import did_you_mean
from onnx_tflite_plugin.errors import ConversionError, InvalidModel, Problem, UnsupportedOperator, UnsupportedOption
from onnx_tflite_plugin.graph.names import describe_key, resolve_keys
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.lowering.interface import InterfaceNames
from onnx_tflite_plugin.normalize.changes import with_dims, with_tensors
from onnx_tflite_plugin.normalize.derivation import ShapeDerivation, is_consistent
from onnx_tflite_plugin.normalize.ranks import complete_shapes
from onnx_tflite_plugin.source.model import Dims, Model, Tensor, agree
from onnx_tflite_plugin.targets import Target

SAMPLES = (2, 3)  # factors of the stored sizes
BATCH = "batch"

NamedAxes = Mapping[tuple[int, int], str]  # (position of a graph input, axis) to the name of the size


def resize_inputs(
    model: Model,
    shapes: Mapping[str, Sequence[int | str]],
    batch: bool,
    names: InterfaceNames,
    host: Host,
    target: Target,
) -> tuple[Model, NamedAxes]:
    """Return the model with the requested shapes of graph inputs, and its named axes.

    ``shapes``: input name -> requested shape; a size that is a name is dynamic. ``batch``: makes axis 0 dynamic. Raises
    UnsupportedOption for a name or rank that the model does not have, UnsupportedOperator if shapes cannot be derived.
    """
    model = complete_shapes(model, host)
    stored = [tensor.name for tensor in model.main.inputs]
    shapes = resolve_keys(shapes, names.inputs, stored, "--input-shape")
    requested = _parse_shapes(model, shapes, names)
    resized = {tensor: _with_stored(sizes, tensor) for tensor, sizes in requested.items()}
    changed_dims = {tensor: dims for tensor, dims in resized.items() if dims != tensor.dims}
    if changed_dims:
        derivation = ShapeDerivation(
            model,
            host,
            target,
            "shapes that cannot be derived from --input-shape:",
            remedy=_stored_sizes_remedy(model, shapes, names),
        )
        model = with_dims(model, derivation.propagate(changed_dims))
    named_axes = {
        (position, axis): size
        for position, name in enumerate(names.inputs)
        for axis, size in enumerate(shapes.get(name, ()))
        if isinstance(size, str)
    }
    return make_dynamic(model, {**named_axes, **(_batch_axes(model) if batch else {})}, host, target)


def _parse_shapes(
    model: Model, shapes: Mapping[str, Sequence[int | str]], names: InterfaceNames
) -> dict[Tensor, tuple[int | str, ...]]:
    """Return tensor -> requested shape. Raises UnsupportedOption."""
    by_name = dict(zip(names.inputs, model.main.inputs, strict=True))
    for name, shape in shapes.items():
        flag = f"--input-shape {name}={','.join(map(str, shape))}"
        if name not in by_name:
            input_list = ", ".join(by_name) + did_you_mean(name, by_name)
            raise UnsupportedOption(
                f"{flag}: no graph input has this {describe_key(name, by_name)}; the model's inputs are {input_list}"
            )
        if len(shape) != by_name[name].rank and by_name[name].rank:  # a converter may have written [] for any shape
            raise UnsupportedOption(
                f"{flag}: {len(shape)} sizes are given, but the input has {by_name[name].rank} axes, {list(by_name[name].shape)}"
            )
        negative = next((size for size in shape if not isinstance(size, str) and size < 0), None)
        if negative is not None:
            raise UnsupportedOption(
                f"{flag}: {negative} is not a size; give a number, or a name such as 'N' for a dynamic dimension"
            )
        if 0 in shape and 0 not in by_name[name].dims:
            raise UnsupportedOption(
                f"{flag}: with a size of 0 every result is empty; give sizes of at least 1, or a name"
            )
    return {by_name[name]: tuple(shape) for name, shape in shapes.items()}


def _stored_sizes_remedy(model: Model, shapes: Mapping[str, Sequence[int | str]], names: InterfaceNames) -> str:
    """Return the remedy that requests the stored sizes of the inputs.

    Sizes that the file does not store remain as requested.
    """
    flags = []
    resized_axes: set[int] = set()
    for tensor, name in zip(model.main.inputs, names.inputs, strict=True):
        if name in shapes and tensor.rank:
            sizes = [new if old is None else old for old, new in zip(tensor.dims, shapes[name], strict=True)]
            resized_axes.update(axis for axis, size in enumerate(sizes) if size != shapes[name][axis])
            flags.append(f"--input-shape {name}={','.join(map(str, sizes))}")
    batch = ", make the batch dynamic with --dynamic-batch" if resized_axes == {0} else ""
    return f"keep the stored sizes: {' '.join(flags)}{batch}" if flags else "keep the stored size"


def _with_stored(sizes: Sequence[int | str], tensor: Tensor) -> Dims:
    """Return the sizes, with the stored size instead of each name."""
    stored = tensor.dims or (None,) * len(sizes)
    pairs = zip(sizes, stored, strict=True)
    return tuple(stored_size if isinstance(size, str) else size for size, stored_size in pairs)


def derive_shapes(model: Model, host: Host, target: Target, *, strict: bool = False) -> Model | None:
    """Return the model with the shapes that LiteRT derives; ``None`` if unchanged.

    With ``strict``, raises InvalidModel if the file contradicts itself in more than shapes.
    """
    complete = complete_shapes(model, host)
    try:
        dims = ShapeDerivation(complete, host, target, "shapes that cannot be derived:").propagate(
            {t: t.dims for t in complete.main.inputs}
        )
    except (ConversionError, Refusal) as error:
        if strict and isinstance(error.__cause__, InvalidModel):
            raise error.__cause__ from error
        return None
    derived = {tensor: _fill_dynamic(sizes, tensor) for tensor, sizes in dims.items()}
    changed_dims = {tensor: sizes for tensor, sizes in derived.items() if not is_consistent(tensor.dims, sizes)}
    if changed_dims:
        return with_dims(complete, changed_dims)
    return None if complete is model else complete


def _fill_dynamic(sizes: Dims, tensor: Tensor) -> Dims:
    """Return the derived sizes; a nonzero stored size replaces a dynamic one."""
    if len(sizes) != tensor.rank:
        return sizes
    return tuple(stored or None if size is None else size for size, stored in zip(sizes, tensor.dims, strict=True))


def _batch_axes(model: Model) -> NamedAxes:
    """Return axis 0 of each input that has the first input's size along axis 0."""
    stored = next((tensor.dims[0] for tensor in model.main.inputs if tensor.rank), None)
    batch_axes = {(k, 0): BATCH for k, t in enumerate(model.main.inputs) if t.rank and t.dims[0] == stored}
    if not batch_axes:
        raise UnsupportedOption("--dynamic-batch: no graph input has an axis that could be dynamic")
    return batch_axes


def make_dynamic(model: Model, named_axes: NamedAxes, host: Host, target: Target) -> tuple[Model, NamedAxes]:
    """Return the model with dynamic sizes along the named axes, and these axes.

    Axes of one name have equal sizes. Shapes are derived for the stored sizes and for multiples of them; a size that
    differs between these shapes is dynamic. Constants that store a dynamic size are replaced as their handlers declare.
    Raises UnsupportedOperator with the operator that accepts no other size, or whose shapes cannot be derived.
    """
    inputs = model.main.inputs
    stored: dict[str, int] = {}
    for (position, axis), name in named_axes.items():
        size = inputs[position].shape[axis] if axis == 0 else inputs[position].dims[axis]
        if size is not None:
            stored.setdefault(name, size)
    if not stored:
        return model, named_axes
    flag = "--dynamic-batch" if set(stored) == {BATCH} else "the names in --input-shape"
    kind = "batch" if set(stored) == {BATCH} else "size"
    derivation = ShapeDerivation(
        model,
        host,
        target,
        f"operators that support only the stored {kind}, or whose shapes cannot be derived from the new {kind}:",
        named_sizes={size for name, size in stored.items() if name != BATCH},
    )
    try:
        samples = [_sample_shapes(derivation, named_axes, stored, factor) for factor in (1, *SAMPLES)]
    except UnsupportedOperator:
        if all(inputs[position].dims[axis] is None for position, axis in named_axes):
            return model, named_axes  # already dynamic in the file
        raise
    # Samples omit the tensors of a called subgraph whose operands have their stored shapes.
    shapes = {t: [sample.get(t, t.dims) for sample in samples] for t in dict.fromkeys(chain(*samples))}
    for tensor, sampled in shapes.items():
        if reason := _describe_bad_samples(tensor, sampled, model, kind):
            raise UnsupportedOperator(derivation.message, [Problem(f"tensor {tensor}", reason, f"leave out {flag}")])
    dynamic_dims = {
        tensor: tuple(axis_sizes[0] if len({*axis_sizes}) == 1 else None for axis_sizes in zip(*sampled, strict=True))
        for tensor, sampled in shapes.items()
    }
    graphs = [
        replace(g, operators=tuple(derivation.replaced_operators.get(op, op) for op in g.operators))
        for g in model.subgraphs
    ]
    replacements = {
        tensor: replace(tensor, dims=dims, shape=tuple(size or 1 for size in shapes[tensor][0]), has_rank=True)
        for tensor, dims in dynamic_dims.items()
    }
    return with_tensors(replace(model, subgraphs=tuple(graphs)), replacements), named_axes


def _sample_shapes(
    derivation: ShapeDerivation, named_axes: NamedAxes, stored: Mapping[str, int], factor: int
) -> dict[Tensor, Dims]:
    """Return the shapes at multiples of the ``stored`` sizes of the named axes.

    ``factor``: the factor of the first name; 1 returns the shapes at the stored sizes. Raises UnsupportedOperator with the
    tried sizes.
    """
    # Factors differ by name, so that no two sizes are equal by chance.
    sizes = {name: size * (factor + (factor - 1) * k) for k, (name, size) in enumerate(stored.items())}
    inputs = derivation.model.main.inputs
    input_dims = {
        inputs[position]: tuple(
            sizes.get(named_axes.get((position, axis), ""), size) for axis, size in enumerate(inputs[position].dims)
        )
        for position, _ in named_axes
    }
    batches = {
        sizes[name]: stored[name]
        for (_, axis), name in named_axes.items()
        if axis == 0 and name in stored and factor > 1
    }
    try:
        return derivation.propagate(input_dims, batches)
    except UnsupportedOperator as error:
        if factor == 1:
            raise
        size_list = ", ".join(f"{name}={size}" for name, size in sizes.items())
        message = f"{error.message.removesuffix(':')} (tried with {size_list}):"
        raise UnsupportedOperator(message, error.problems) from error.__cause__


def _describe_bad_samples(tensor: Tensor, sampled: Sequence[Dims], model: Model, kind: str) -> str:
    """Return why sampled shapes cannot be one dynamic shape; "" if they can.

    The first sample has the stored sizes.
    """
    if tensor.has_rank and tensor.subgraph == model.root and not agree(sampled[0], tensor.dims):
        return f"the file stores shape {list(tensor.dims)}, but the operator computes {list(sampled[0])}"
    if len({*map(len, sampled)}) > 1:
        return f"the rank depends on the {kind}: {', '.join(str(list(dims)) for dims in sampled)}"
    return ""
