"""From a .tflite file to an ONNX model: the stages in their order."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnx_tflite_plugin.binding.bound import BoundModel
from onnx_tflite_plugin.binding.declared import resolve
from onnx_tflite_plugin.binding.fusion import Fused, fuse
from onnx_tflite_plugin.errors import InvalidModel, Problem, UnsupportedOperator, UnsupportedOption
from onnx_tflite_plugin.graph.metadata import read_states, write_weights
from onnx_tflite_plugin.graph.validity import LARGEST_PROTO, check_valid, weight_bytes
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.layout.order import axes, spelled
from onnx_tflite_plugin.layout.plan import LayoutPlan, plan_layout, tensor_bytes
from onnx_tflite_plugin.options import ConvertOptions, target_of
from onnx_tflite_plugin.passes import PASSES
from onnx_tflite_plugin.passes.rules import check_model
from onnx_tflite_plugin.quantization.plan import StoragePlan, plan_storage
from onnx_tflite_plugin.quantization.unquantized import unquantized
from onnx_tflite_plugin.report import Report, Transposed, node_counts
from onnx_tflite_plugin.source import read
from onnx_tflite_plugin.source.affine import affine
from onnx_tflite_plugin.source.model import Model
from onnx_tflite_plugin.targets import Target

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

    from onnx_tflite_plugin.lowering.interface import InterfaceNames
    from onnx_tflite_plugin.verify import Verification


@dataclass(frozen=True)
class Conversion:
    """A converted model and how it came about."""

    model: ir.Model
    report: Report
    source: Model = field(repr=False)
    verification: Verification | None = None

    @cached_property
    def proto(self) -> onnx.ModelProto:
        """The model as protobuf. Raises EncodeError above 2 GiB: use :meth:`save`."""
        import onnx_ir as ir

        return ir.to_proto(self.model)

    def save(self, path: str | Path) -> list[Path]:
        """Write the model, whole or not at all; weights beyond 2 GB go to ``<path>.data``. Returns the files written."""
        path = Path(path)
        if weight_bytes(self.model) > LARGEST_PROTO:
            return _save_external(self.model, path)
        _write(path, self.proto.SerializeToString())
        return [path]


def convert(source: str | Path | bytes, *, host: Host | None = None, **options: Any) -> Conversion:
    """Convert a TFLite model given by path or content.

    Options are those of the command, in snake_case. Raises ConversionError with everything that stands in the way.
    """
    chosen = _options(options)
    target_of(chosen)
    conversion = convert_model(read(source), host, chosen)
    if not chosen.verify:
        return conversion
    return _verified(conversion, source, chosen.signature)


def _options(given: Mapping[str, Any]) -> ConvertOptions:
    try:
        return ConvertOptions(**given)
    except TypeError:
        unknown = sorted(given.keys() - ConvertOptions.__dataclass_fields__.keys())
        raise UnsupportedOption(f"there is no option {', '.join(unknown)}") from None


def convert_model(model: Model, host: Host | None = None, options: ConvertOptions | None = None) -> Conversion:
    """Convert a model that has been read; as :func:`convert`."""
    options = options or ConvertOptions()
    target = target_of(options)
    from onnx_tflite_plugin.graph.names import UniqueNames
    from onnx_tflite_plugin.lowering.emitter import Emitter
    from onnx_tflite_plugin.lowering.interface import entered, graph_edges, interface_names
    from onnx_tflite_plugin.lowering.lower import lower
    from onnx_tflite_plugin.shapes.dimensions import name_dimensions

    model = entered(model, options.signature)
    if not model.main.outputs:
        raise InvalidModel(
            "there is nothing to convert:", [Problem(f"subgraphs[{model.root}].outputs", "the model has no output")]
        )
    host = host or Host(prefer=options.prefer, block=options.block, packs=options.packs, options=asdict(options))
    names = interface_names(model, options.signature)
    highest = options.opset or target.opsets[2]
    model, batch = _resized(model, names, host, options, target)
    bound = host.bind(model, target, highest)
    if options.quantization == "float":
        bound = unquantized(resolve(bound, target, highest), target, highest)
    speed = options.optimize == "speed"
    fusions = host.fusions({call.handler.code for call in bound.operators()})
    fused = fuse(bound, fusions, target, opset=options.opset, inexact=speed)
    for failed in fused.failed.values():
        host.warn(f"{failed.reason}; it is left out")
    fused.model = resolve(fused.model, target, highest).called()
    packs = frozenset(bound.pack for bound in fused.model.operators())
    host.hooks.check(packs)
    storage = plan_storage(fused.model, target, fold=options.fold)
    opset = _opset(fused.model, storage, options, target)
    layout = plan_layout(
        fused.model,
        bytes_of=tensor_bytes,
        prices=target.price,
        edges=graph_edges(fused.model.main, names, options.layout, free=options.io_layout == "onnx"),
        local=options.layout_plan == "local",
        flat=lambda bound: storage.dtype(bound) not in target.keeps_unit_axes,
    )
    emitter = Emitter(opset, UniqueNames())
    lowered = lower(
        fused.model, layout, storage, target, emitter, names=names, reset=options.state == "reset",
        after=lambda bound, outputs: host.hooks.after_lowering(bound.op, outputs, packs),
    )  # fmt: skip
    name_dimensions(lowered, {names.inputs[k]: axes(layout.edge(fused.model.main.inputs[k])).index(0) for k in batch})
    check_model(lowered, target, opset)
    chosen = [name for name in target.passes if speed or (PASSES[name].exact and options.optimize == "faithful")]
    passes = {name: PASSES[name].run(lowered) for name in chosen}
    lowered = host.hooks.finish(lowered, packs)
    weights = _settled(lowered, target, options.weights_dtype)
    report = replace(_report(fused, layout, storage, lowered, host, target, opset, passes), weights=weights)
    conversion = Conversion(lowered, report, model)
    if weight_bytes(lowered) <= LARGEST_PROTO:
        check_valid(lowered, conversion.proto)
    return conversion


def _resized(
    model: Model, names: InterfaceNames, host: Host, options: ConvertOptions, target: Target
) -> tuple[Model, Collection[int]]:
    """The model in the sizes that are asked for, and its inputs that share a batch of any size."""
    if not options.input_shape and not options.dynamic_batch:
        return model, ()
    from onnx_tflite_plugin.shapes.resizing import batched, pinned

    if options.input_shape:
        model = pinned(model, options.input_shape, names, host, target)
    return batched(model, host, target) if options.dynamic_batch else (model, ())


def _settled(model: ir.Model, target: Target, form: str) -> Mapping[str, int]:
    """The dtypes of int8 weights of products, settled where the target's sums depend on the processor."""
    if not target.saturates:
        return {}
    from onnx_tflite_plugin.passes import weights

    forms = weights.settle(model, form)
    if form in ("auto", "uint8"):
        weights.check(model)
    if forms:
        write_weights(model.metadata_props, forms)
    return forms


def _opset(model: BoundModel, storage: StoragePlan, options: ConvertOptions, target: Target) -> int:
    """The asked-for opset, or the target's default raised to what operators and dtypes need.

    Raises UnsupportedOperator naming the operators that need a newer one than was asked for.
    """
    low, default, high = target.opsets
    problems, needed = [], low
    for bound in model.operators():
        tensors = [t for t in (*bound.op.outputs, *storage.dequantized(bound)) if t is not None]
        kept = {t: _dtype_opset(storage.storage(t).dtype, affine(t) is not None) for t in tensors}
        least = max([bound.declared.min_opset, *kept.values()])
        needed = max(needed, least)
        if least > (options.opset or high):
            folds = all(tensor.constant for tensor, opset in kept.items() if opset == least)
            hint = f"--opset {least}" + (" or --weights fold" if folds and least in kept.values() else "")
            problems.append(Problem(bound.label, f"needs opset {least}", hint))
    if problems:
        raise UnsupportedOperator(f"operators that opset {options.opset or high} cannot express:", problems)
    return options.opset or max(default, needed)


def _dtype_opset(dtype: str, quantized: bool) -> int:
    """ONNX has int4 from opset 21 on and int2 from 25; QuantizeLinear takes int16, which is no new dtype, from 21."""
    if dtype == "int16":
        return 21 if quantized else 13
    return {"int4": 21, "uint4": 21, "int2": 25}.get(dtype, 13)


def _report(
    fused: Fused, layout: LayoutPlan, storage: StoragePlan, model: ir.Model, host: Host, target: Target, opset: int,
    passes: Mapping[str, int],
) -> Report:  # fmt: skip
    operators: dict[str, int] = {}
    packs: dict[str, int] = {}
    for bound in fused.model.operators():
        packs[bound.pack] = packs.get(bound.pack, 0) + 1
        for op in bound.members:
            operators[op.code] = operators.get(op.code, 0) + 1
    kept: dict[str, int] = {}
    for tensor, stored in storage.shifted.items():
        text = f"{tensor.dtype} kept as {stored.dtype}"
        kept[text] = kept.get(text, 0) + 1
    nodes = node_counts(model)
    return Report(
        target=target.name,
        opset=opset,
        operators=dict(sorted(operators.items(), key=lambda item: (-item[1], item[0]))),
        nodes=nodes,
        layout="local" if layout.method == "local" else "least" if layout.exact else "heuristic",
        layout_cost=layout.cost,
        transposes=nodes.get("Transpose", 0),
        transposed=tuple(
            Transposed(str(c.tensor.name), f"{spelled(c.start)} -> {spelled(c.end)}", c.bytes, c.producer, c.consumers)
            for c in layout.copies
        ),
        bought=layout.bought,
        fused=fused.applied,
        passes={name: count for name, count in passes.items() if count},
        declined=tuple(fused.declined),
        packs=packs,
        overrides=dict(host.overrides),
        states=tuple(state.input for state in read_states(model.metadata_props)),
        storage=kept,
        warnings=tuple(host.warnings),
    )


# --- the end: checks and files ----------------------------------------------------------------


def _verified(conversion: Conversion, source: str | Path | bytes, signature: str | None) -> Conversion:
    from onnx_tflite_plugin.errors import VerificationError
    from onnx_tflite_plugin.verify import verify

    data = source if isinstance(source, bytes) else Path(source)
    verification = verify(data, conversion.proto.SerializeToString(), signature=signature)
    if not verification.ok:
        raise VerificationError(f"the converted model does not agree with LiteRT:\n{verification.text}")
    return replace(conversion, verification=verification)


def _write(path: Path, content: bytes) -> None:
    """Write beside the target and rename, so that a failure leaves nothing."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current


def _save_external(model: ir.Model, path: Path) -> list[Path]:
    import onnx_ir as ir

    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
        ir.save(model, Path(folder) / path.name, external_data=f"{path.name}.data")
        written = [path.with_name(f"{path.name}.data"), path]
        for file in written:
            os.replace(Path(folder) / file.name, file)
    return written[::-1]
