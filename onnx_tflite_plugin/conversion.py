"""From a .tflite file to an ONNX model: the stages in their order."""

from __future__ import annotations

import os
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from onnx_tflite_plugin import files
from onnx_tflite_plugin.api import VERSION
from onnx_tflite_plugin.api.budget import budget
from onnx_tflite_plugin.api.refusal import Refused
from onnx_tflite_plugin.binding.consistency import check_consistent, doubtful, stale
from onnx_tflite_plugin.binding.declared import resolve
from onnx_tflite_plugin.binding.fusion import Fused, fuse
from onnx_tflite_plugin.errors import (
    Blamed,
    ConversionError,
    InternalError,
    InvalidModel,
    Problem,
    StaleDtype,
    TooLarge,
)
from onnx_tflite_plugin.graph.metadata import read_states, write_authored, write_origin, write_weights
from onnx_tflite_plugin.graph.opening import check_opens
from onnx_tflite_plugin.graph.serialized import to_proto
from onnx_tflite_plugin.graph.validity import LARGEST_PROTO, check_valid, weight_bytes
from onnx_tflite_plugin.guard import BUILTIN, Failed, debug, raised
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.layout.order import axes, spelled
from onnx_tflite_plugin.layout.plan import LayoutPlan, plan_layout, tensor_bytes
from onnx_tflite_plugin.options import ConvertOptions, Shape, VerifyOptions, target_of
from onnx_tflite_plugin.passes import PASSES
from onnx_tflite_plugin.passes.rules import check_model
from onnx_tflite_plugin.progress import Progress, Stages
from onnx_tflite_plugin.quantization.opset import opset_of
from onnx_tflite_plugin.quantization.plan import StoragePlan, plan_storage
from onnx_tflite_plugin.quantization.unquantized import unquantized
from onnx_tflite_plugin.report import Report, Transposed, node_counts
from onnx_tflite_plugin.source import check_source, read
from onnx_tflite_plugin.source.metadata import described
from onnx_tflite_plugin.source.model import Model
from onnx_tflite_plugin.targets import Target
from onnx_tflite_plugin.telling.edges import edges
from onnx_tflite_plugin.telling.facts import doc_string, facts

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

    from onnx_tflite_plugin.verify import Verification


@dataclass(frozen=True, repr=False)
class Conversion:
    """A converted model and how it came about."""

    model: ir.Model
    report: Report
    source: Model = field(repr=False)
    verification: Verification | None = None

    def __repr__(self) -> str:
        return f"<Conversion: {self.report.line}>"

    def _repr_html_(self) -> str:
        from onnx_tflite_plugin.telling.notebook import as_html

        report = self.report
        return as_html(report.line, report.inputs, report.outputs, states=bool(report.states))

    @cached_property
    def proto(self) -> onnx.ModelProto:
        """The model as protobuf. Raises EncodeError above 2 GiB: use :meth:`save`."""
        return to_proto(self.model)

    def save(self, path: str | Path) -> list[Path]:
        """Write the model, whole or not at all; weights beyond 2 GB go to ``<path>.data``. Returns the files written."""
        path = files.place_of(path)
        if weight_bytes(self.model) > LARGEST_PROTO:
            return files.write_external(self.model, path)
        files.write(path, self.proto.SerializeToString())
        return [path]


def convert(
    source: str | os.PathLike[str] | bytes,
    *,
    opset: int | None = None,
    target: str = "onnxruntime",
    quantization: str = "qdq",
    optimize: str = "faithful",
    weights: str = "keep",
    weights_dtype: str = "auto",
    io_layout: str = "source",
    layout: Mapping[str, str] | None = None,
    layout_plan: str = "least",
    input_shape: Mapping[str, Shape] | None = None,
    dynamic_batch: bool = False,
    state: str = "io",
    signature: str | None = None,
    inputs_at: Sequence[str] = (),
    outputs: Sequence[str] = (),
    keep_unknown: bool = False,
    verify: bool | VerifyOptions = False,
    check: str = "auto",
    prefer: Sequence[str] = (),
    block: Sequence[str] = (),
    packs: str | None = None,
    host: Host | None = None,
    progress: Progress | None = None,
) -> Conversion:
    """Convert a TFLite model, given by path or content, to ONNX.

    Args:
        source: a path, or the bytes of a .tflite file.
        opset: ONNX opset; by default the target's, raised where an operator needs it.
        target: runtime to write for: "onnxruntime", "generic", "openvino", "tvm" or "tensorrt".
        quantization: "qdq" keeps it as QuantizeLinear and DequantizeLinear, "float" drops it: float32 throughout.
        optimize: "faithful" rearranges convolutions where the runtime gains and no number changes, "speed" also where a
            rounding is skipped, "none" leaves every operator as it is written.
        weights: weight-only quantization stays as in the file ("keep") or becomes float32 ("fold").
        weights_dtype: weights of 8-bit products: "auto", "uint8", "int8" or "keep".
        io_layout: axis order of inputs and outputs: "source", or "onnx" for whichever costs least.
        layout: axis order of single inputs and outputs by name, ``{"image": "NHWC:NCHW"}``.
        layout_plan: "least", or "local" for the source's order everywhere between operators.
        input_shape: shapes of inputs by name; a size given as a str is left open under that name.
        dynamic_batch: leave the first axis of the inputs open.
        state: states as extra inputs and outputs ("io"), or reset in every run ("reset").
        signature: key of the signature to convert; by default the main subgraph's.
        inputs_at: tensors that become the inputs; what computes them is left out.
        outputs: tensors that become the outputs; what they do not need is left out.
        keep_unknown: write operators that nobody converts as nodes of the domain "tflite".
        verify: compare with LiteRT; a ``VerifyOptions`` says on which data and how closely.
        check: whether ONNX Runtime must open the result: "auto" where that is cheap or in doubt, "full", "standard" for never.
        prefer: op packs that win where several claim an operator.
        block: op packs to leave out.
        packs: "builtin", or a comma-separated list of the only other packs to use.
        host: the op packs themselves, where they are not those that are installed.
        progress: called with the name of each stage as it begins.

    Raises:
        ConversionError: with everything that stands in the way (``error.problems``).
        TypeError: an argument of another type than it takes.
        OSError: the file cannot be read.
    """
    given = {name: value for name, value in locals().items() if name not in ("source", "host", "progress")}
    chosen = ConvertOptions(**{**given, "layout": layout or {}, "input_shape": input_shape or {}})
    check_source(source)
    target_of(chosen)
    stages = Stages(progress)
    stages("reading")
    content = os.fspath(source) if isinstance(source, str | os.PathLike) else bytes(source)
    try:
        conversion = convert_model(read(content), host, chosen, stages)
    except ConversionError as error:
        from onnx_tflite_plugin.verify.diagnosis import diagnosed

        diagnosis = diagnosed(error, content)
        if diagnosis is error:
            raise
        raise diagnosis from error
    if chosen.verify:
        conversion = _verified(conversion, content, chosen, stages)
    stages.done()
    return conversion


def convert_model(
    model: Model, host: Host | None = None, options: ConvertOptions | None = None, stages: Progress | None = None
) -> Conversion:
    """Convert a model that has been read; as :func:`convert`."""
    options, stages = options or ConvertOptions(), stages or Stages()
    target = target_of(options)
    try:
        with budget():
            if doubtful(model):
                model = _rederived(model, host, options, target) or model
            retyped: set[tuple[int, int]] = set()
            while True:
                try:
                    return _converted(model, host, options, target, stages)
                except StaleDtype as error:
                    if retyped.issuperset(error.dtypes):
                        raise
                    retyped |= error.dtypes.keys()
                    model = _retyped(model, error)
                except ConversionError as error:
                    current = _rederived(model, host, options, target) if stale(error) else None
                    if current is None:
                        raise
                    return _converted(current, host, options, target, stages)
    except Refused as refusal:
        raise TooLarge(str(refusal)) from refusal
    except RecursionError as error:
        raise TooLarge("the model is nested too deeply: one thing in another more often than Python allows") from error
    except MemoryError as error:
        raise TooLarge("out of memory: the model needs more than this machine or its limits allow") from error
    except ConversionError:
        raise
    except Exception as error:
        debug(error)
        frame = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{raised(error)}, in {frame.name}, {frame.filename}:{frame.lineno}"
        problem = Blamed("the model", place, Failed(BUILTIN, place).hint, ours=True)
        raise InternalError("the conversion failed:", [problem]) from error


def _retyped(model: Model, error: StaleDtype) -> Model:
    from onnx_tflite_plugin.shapes.resizing import retyped

    return retyped(model, error.dtypes)


def _rederived(model: Model, host: Host | None, options: ConvertOptions, target: Target) -> Model | None:
    """The model in the sizes that follow from its inputs, ``None`` where they are those that are stored."""
    from onnx_tflite_plugin.shapes.resizing import rederived

    return rederived(model, host or Host(prefer=options.prefer, block=options.block, packs=options.packs), target)


def _converted(
    model: Model, host: Host | None, options: ConvertOptions, target: Target, stages: Progress
) -> Conversion:
    from onnx_tflite_plugin.graph.names import UniqueNames
    from onnx_tflite_plugin.lowering.emitter import Emitter
    from onnx_tflite_plugin.lowering.interface import chosen, entered, graph_edges
    from onnx_tflite_plugin.lowering.lower import lower
    from onnx_tflite_plugin.shapes.cutting import cut
    from onnx_tflite_plugin.shapes.dimensions import name_dimensions
    from onnx_tflite_plugin.shapes.resizing import resized

    signature, told = chosen(model, options.signature), described(model)
    model, names = entered(model, signature)
    if not model.main.outputs:
        raise InvalidModel(
            "there is nothing to convert:", [Problem(f"subgraphs[{model.root}].outputs", "the model has no output")]
        )
    host = host or Host(
        prefer=options.prefer, block=options.block, packs=options.packs, options=asdict(options),
        keep_unknown=options.keep_unknown,
    )  # fmt: skip
    highest = options.opset or target.opsets[2]
    model, names, part = cut(model, names, options.inputs_at, options.outputs)
    stages("binding operators to handlers")
    model, places = resized(model, options.input_shape, options.dynamic_batch, names, host, target)
    bound = host.bind(model, target, highest)
    check_consistent(bound, target, highest)
    if options.quantization == "float":
        bound = unquantized(resolve(bound, target, highest), target, highest)
    stages("fusions")
    speed = options.optimize == "speed"
    fusions = host.fusions({call.handler.code for call in bound.operators()})
    fused = fuse(bound, fusions, target, opset=options.opset, inexact=speed)
    for failed in fused.failed.values():
        host.warn(f"{failed.reason}; it is left out")
    fused.model = resolve(fused.model, target, highest).called()
    packs = frozenset(bound.pack for bound in fused.model.operators())
    host.hooks.check(packs)
    stages("planning dtypes")
    storage = plan_storage(fused.model, target, fold=options.fold)
    opset = opset_of(fused.model, storage, options.opset, target)
    stages("planning the layout")
    layout = plan_layout(
        fused.model,
        bytes_of=tensor_bytes,
        prices=target.price,
        edges=graph_edges(fused.model.main, names, options.layout, free=options.io_layout == "onnx"),
        local=options.layout_plan == "local",
        flat=lambda bound: storage.dtype(bound) not in target.keeps_unit_axes,
    )
    stages("lowering")
    emitter = Emitter(opset, UniqueNames(), target.widens)
    lowered = lower(
        fused.model, layout, storage, target, emitter, names=names, reset=options.state == "reset",
        after=lambda bound, outputs: host.hooks.after_lowering(bound.op, outputs, packs),
    )  # fmt: skip
    main = fused.model.main
    name_dimensions(
        lowered,
        {(names.inputs[k], axes(layout.edge(main.inputs[k])).index(axis)): name for (k, axis), name in places.items()},
    )
    stages("rewriting")
    check_model(lowered, target, opset)
    planned = node_counts(lowered).get("Transpose", 0)
    selected = [name for name in target.passes if speed or (PASSES[name].exact and options.optimize == "faithful")]
    passes = {name: PASSES[name].run(lowered) for name in selected}
    lowered = host.hooks.finish(lowered, packs)
    weights = _settled(lowered, target, options.weights_dtype)
    write_origin(lowered.metadata_props, None if signature is None else signature.key, part)
    report = replace(
        _report(fused, layout, storage, lowered, host, target, opset, planned, passes),
        weights=weights,
        inputs=edges(lowered.graph.inputs, names.inputs, main.inputs, told),
        outputs=edges(lowered.graph.outputs, names.outputs, main.outputs, told),
        signature=None if signature is None else signature.key,
        other_signatures=tuple(one.key for one in model.signatures if one is not signature),
    )
    lowered.producer_version, lowered.doc_string = VERSION, doc_string(model)
    write_authored(lowered.metadata_props, facts(model, report.inputs, report.outputs))
    conversion = Conversion(lowered, report, model)
    stages("checking")
    if weight_bytes(lowered) <= LARGEST_PROTO:
        check_valid(lowered, conversion.proto)
        if target.opens:
            check_opens(lowered, conversion.proto, options.check)
    return conversion


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


def _report(
    fused: Fused, layout: LayoutPlan, storage: StoragePlan, model: ir.Model, host: Host, target: Target, opset: int,
    transposes: int, passes: Mapping[str, int],
) -> Report:  # fmt: skip
    operators: dict[str, int] = {}
    packs: dict[str, int] = {}
    for bound in fused.model.operators():
        packs[bound.pack] = packs.get(bound.pack, 0) + 1
    for op in {op for bound in fused.model.operators() for op in bound.members}:
        operators[op.code] = operators.get(op.code, 0) + 1
    kept: dict[str, int] = {}
    for tensor, stored in storage.shifted.items():
        text = f"{tensor.dtype} stored as {stored.dtype}"
        kept[text] = kept.get(text, 0) + 1
    return Report(
        target=target.name,
        opset=opset,
        operators=dict(sorted(operators.items(), key=lambda item: (-item[1], item[0]))),
        nodes=node_counts(model),
        layout="local" if layout.method == "local" else "least" if layout.exact else "heuristic",
        layout_cost=layout.cost,
        moved=layout.moved,
        transposes=transposes,
        transposed=tuple(
            Transposed(str(c.tensor.name), f"{spelled(c.start)} -> {spelled(c.end)}", c.bytes, c.producer, c.consumers)
            for c in layout.copies
        ),
        transposed_for_speed=layout.bought,
        fused=fused.applied,
        passes={name: count for name, count in passes.items() if count},
        fusions_declined=tuple(fused.declined),
        packs=packs,
        overrides=dict(host.overrides),
        states=tuple(state.input for state in read_states(model.metadata_props)),
        storage=kept,
        warnings=tuple(host.warnings),
    )


# --- the end: checks and files ----------------------------------------------------------------


def _verified(conversion: Conversion, source: str | bytes, options: ConvertOptions, stages: Progress) -> Conversion:
    from onnx_tflite_plugin.errors import VerificationError
    from onnx_tflite_plugin.verify import verify

    chosen = options.verify if isinstance(options.verify, VerifyOptions) else VerifyOptions()
    data = source if isinstance(source, bytes) else Path(source)
    given = {"signature": options.signature, "progress": stages, **vars(chosen)}
    large = weight_bytes(conversion.model) > LARGEST_PROTO
    if large:  # runs from a file only
        with tempfile.TemporaryDirectory() as folder:
            verification = verify(data, conversion.save(Path(folder) / "model.onnx")[0], **given)
    else:
        verification = verify(data, conversion.proto, **given)
    if not verification.ok:
        raise VerificationError(f"the converted model does not agree with LiteRT:\n{verification.text}")
    verified = replace(conversion, verification=verification)
    if not large:
        vars(verified)["proto"] = conversion.proto  # the same model: what was verified is what is saved
    return verified
