"""Find gaps in the cases: handlers without a case, declared dtypes, layouts and fusions without one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from conformance.case import Case
from conformance.declared import declarations_of, instances
from conformance.packs import Suite
from conformance.registered import REGISTERED
from conformance.runner import channels_first
from onnx_tflite_plugin.api import Decline, Handler, Refusal, Terminate
from onnx_tflite_plugin.api.dtypes import dtypes_by_slot
from onnx_tflite_plugin.binding.bound import Declared
from onnx_tflite_plugin.binding.declared import resolve
from onnx_tflite_plugin.errors import ConversionError
from onnx_tflite_plugin.guard import BUILTIN, Failed
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.layout.plan import plan_layout, tensor_bytes
from onnx_tflite_plugin.layout.tensor_layout import source_layout
from onnx_tflite_plugin.lowering.interface import apply_signature, interface_layouts
from onnx_tflite_plugin.source import read
from onnx_tflite_plugin.targets import target_named
from onnx_tflite_plugin.verify.runtimes import structure


@dataclass(frozen=True)
class Coverage:
    """The operators that LiteRT registers: those of which every kernel dtype has a passing case and the newest version a
    handler, those with a handler for some (with the missing ones), those without a handler, and those that ONNX cannot express.
    """

    full: tuple[str, ...]
    part: Mapping[str, str]
    missing: tuple[str, ...]
    refused: tuple[str, ...]

    @property
    def text(self) -> str:
        """Return one sentence on the coverage."""
        converted = len(self.full) + len(self.part)
        dtypes = f"{len(self.full)} of them" if self.part else "all of them"
        exceptions = [
            *([f"{len(self.part)} convert in some dtypes only"] if self.part else []),
            *([f"{len(self.missing)} have no handler yet"] if self.missing else []),
            f"{len(self.refused)} cannot be expressed in ONNX",
        ]
        return (
            f"Of the {len(REGISTERED)} builtin operators that LiteRT registers, {converted} convert, {dtypes} in every dtype that "
            f"their kernels accept. {'; '.join(exceptions)}."
        )


def coverage(handlers: Mapping[str, Handler], cases: Sequence[Case]) -> Coverage:
    """Return which registered handlers and fusions the cases cover."""
    passing: dict[str, set[str]] = {}
    for case in cases:
        if case.counts:
            passing.setdefault(case.op, set()).add(case.dtype)
    refused = formless(handlers)
    full, part = [], {}
    for code, kernel in REGISTERED.items():
        if code not in handlers or code in refused:
            continue
        dtypes = sorted(kernel.dtypes - passing.get(code, set()))
        newest = handlers[code].max_version
        lacking = [*dtypes, *([f"version {kernel.version}"] if newest < kernel.version else [])]
        if lacking:
            part[code] = ", ".join(lacking)
        else:
            full.append(code)
    missing = tuple(code for code in REGISTERED if code not in handlers)
    return Coverage(tuple(full), part, missing, tuple(code for code in REGISTERED if code in refused))


def formless(handlers: Mapping[str, Handler]) -> dict[str, str]:
    """Return the operators whose handlers decline every model, with the reason."""
    return {code: each.accepts.reason for code, each in handlers.items() if isinstance(each.accepts, Decline)}


def gaps(tried: Suite) -> Iterator[str]:
    """Return one line per handler or fusion with a gap. Built-in fusions have tests of their own.

    Handlers that do not load are problems of the suite. A case that cannot be planned counts as covered: it fails by itself.
    """
    host = tried.host
    codes = {code for code, _ in tried.handlers}
    loaded = {(code, pack): each for code, pack, each in host.handlers(codes) if isinstance(each, Handler)}
    refused = formless({code: each for (code, _), each in loaded.items()})
    reported = {problem.where for problem in tried.problems}
    for op, pack in tried.handlers:
        if op in reported:
            continue
        mine = [case for case in tried.cases if case.op == op and (case.refused if op in refused else case.counts)]
        if not mine:
            yield f"{op} of {pack} has no case"
        elif op in refused or all(case.dtype.startswith("complex") for case in mine):
            continue  # nothing brings complex numbers into another order
        elif not (_keeps_source_order(loaded.get((op, pack))) or _has_transposed_case(mine, host)):
            yield f"{op} of {pack} has no case that passes in another layout than the file's"
        if pack != BUILTIN and mine and (op, pack) in loaded:  # what is built in is held against LiteRT's registrations
            yield from (
                f"{op} of {pack} has no case {text}" for text in _untested_declarations(op, loaded[op, pack], mine)
            )
    for name, pack in tried.fusions:
        if pack != BUILTIN and not any(case.counts and name in case.fuses for case in tried.cases):
            yield f"the fusion {name} of {pack} has no case in which it must apply (fuses=)"


def _untested_declarations(op: str, handler: Handler, cases: Sequence[Case]) -> Iterator[str]:
    """Return declared dtypes and quantized slots that no case has."""
    calls = [call for case in cases for call in instances(read(case.build()), op)]
    for slot, dtypes in ({} if callable(handler.types) else dtypes_by_slot(handler.types)).items():
        present = {tensor.dtype for call in calls if (tensor := call.tensor(slot)) is not None}
        name = f"operand {slot}" if slot >= 0 else f"output {~slot}"
        yield from (f"with {dtype} as {name}, which `types` lists" for dtype in sorted(dtypes - present))
    behavior = handler.quantization
    tensors = [tensor for call in calls for tensor in (*call.inputs, *call.outputs) if tensor is not None]
    if callable(behavior) or not behavior.is_quantizable or (handler.types and not callable(handler.types)):
        return
    if not any(tensor.quantization for tensor in tensors):
        yield f"of quantized tensors, for which it declares {type(behavior).__name__}"


def declarations(case: Case, host: Host) -> Iterator[Declared]:
    """Return the declarations of the handler for each call."""
    calls = instances(read(case.build()), case.op)
    return (each for each in (declarations_of(op, host) for op in calls) if each is not None)


def _keeps_source_order(handler: Handler | None) -> bool:
    """True if the handler keeps the file's layout in every model."""
    return handler is not None and isinstance(handler.layout, Terminate)


def _has_transposed_case(cases: Sequence[Case], host: Host) -> bool:
    """True if a case is planned in another layout, or if the handler keeps the file's layout in every case."""
    single_first = sorted(cases, key=lambda case: bool(case.fuses))
    try:
        return any(_leaves_source_order(case, host) for case in single_first) or all(
            _terminates(case, host) for case in cases
        )
    except (ConversionError, Failed, Refusal):
        return True


def _terminates(case: Case, host: Host) -> bool:
    return all(isinstance(each.layout, Terminate) for each in declarations(case, host))


def _leaves_source_order(case: Case, host: Host) -> bool:
    """True if the plan moves the operator to another layout, whether or not graph inputs and outputs are transposed."""
    data = case.build()
    model = read(data)
    if not all(tensor.has_rank for tensor in model.main.tensors):
        return False  # which axes there are, follows as it is converted
    target = target_named("onnxruntime")
    bound = resolve(host.bind(model, target, target.opsets[2]), target, target.opsets[2])
    for turned in ({}, channels_first(structure.entry(structure.read(data)))):
        layouts = {**turned, **case.options.get("layout", {})}
        edges = interface_layouts(bound.main, apply_signature(model, None)[1], layouts, free=False)
        plan = plan_layout(bound, bytes_of=tensor_bytes, prices=target.price, interface=edges)
        for call in bound.operators():
            if case.op not in {call.op.code, call.op.builtin, *(member.code for member in call.members)}:
                continue
            slots = [*range(len(call.op.inputs)), *(~k for k in range(len(call.op.outputs)))]
            run_time = [
                slot for slot in slots if (tensor := call.op.tensor(slot)) is not None and not tensor.is_constant
            ]
            if any(plan.layout(call, slot) != source_layout(call.op[slot].dims) for slot in run_time):
                return True
    return False
