"""Find gaps in the cases: handlers, dtypes, layouts and fusions without a case."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from conformance.case import Case
from conformance.constant_results import constant_results
from conformance.declared import declarations_of, find_operators, is_looked_up
from conformance.packs import Suite
from conformance.registered import REGISTERED
from conformance.unread_operands import unread_operands
from conformance.variants import channels_first
from onnx_tflite_plugin.api import Decline, Handler, Lookup, Operator, Refusal, Terminate
from onnx_tflite_plugin.api.dtypes import dtypes_by_slot
from onnx_tflite_plugin.binding.bound import Declared
from onnx_tflite_plugin.binding.declared import resolve
from onnx_tflite_plugin.errors import ConversionError
from onnx_tflite_plugin.guard import BUILTIN, Failed
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.layout.dataflow import tensor_bytes
from onnx_tflite_plugin.layout.plan import plan_layout
from onnx_tflite_plugin.layout.tensor_layout import source_layout
from onnx_tflite_plugin.lowering.interface import apply_signature, interface_layouts
from onnx_tflite_plugin.source import read
from onnx_tflite_plugin.targets import target_named
from onnx_tflite_plugin.verify.runtimes import structure


@dataclass(frozen=True)
class Coverage:
    """The operators that LiteRT registers, grouped by how completely they convert.

    ``full``: operators with a passing case for every dtype of the kernel, and a handler for the newest version.
    ``partial``: other operators with a handler → missing dtypes or versions. ``missing``: operators without a handler.
    ``refused``: operators that ONNX cannot express.
    """

    full: tuple[str, ...]
    partial: Mapping[str, str]
    missing: tuple[str, ...]
    refused: tuple[str, ...]

    @property
    def text(self) -> str:
        """Return a summary of the coverage in two sentences."""
        converted = len(self.full) + len(self.partial)
        full_count = f"{len(self.full)} of them" if self.partial else "all of them"
        exceptions = [
            *([f"{len(self.partial)} convert in some dtypes only"] if self.partial else []),
            *([f"{len(self.missing)} have no handler yet"] if self.missing else []),
            f"{len(self.refused)} cannot be expressed in ONNX",
        ]
        return (
            f"Of the {len(REGISTERED)} builtin operators that LiteRT registers, {converted} convert, {full_count} in every dtype that "
            f"their kernels accept. Exceptions: {'; '.join(exceptions)}."
        )


def coverage(handlers: Mapping[str, Handler], cases: Sequence[Case]) -> Coverage:
    """Group the operators that LiteRT registers by the handlers and cases they have."""
    passing_dtypes: dict[str, set[str]] = {}
    for case in cases:
        if case.expects_success:
            passing_dtypes.setdefault(case.op, set()).add(case.dtype)
    inexpressible = inexpressible_operators(handlers)
    full, missing_support = [], {}
    for code, kernel in REGISTERED.items():
        if code not in handlers or code in inexpressible:
            continue
        missing_dtypes = sorted(kernel.dtypes - passing_dtypes.get(code, set()))
        lacks_version = handlers[code].max_version < kernel.version
        limits = [*missing_dtypes, *([f"version {kernel.version}"] if lacks_version else [])]
        if limits:
            missing_support[code] = ", ".join(limits)
        else:
            full.append(code)
    missing = tuple(code for code in REGISTERED if code not in handlers)
    return Coverage(tuple(full), missing_support, missing, tuple(code for code in REGISTERED if code in inexpressible))


def inexpressible_operators(handlers: Mapping[str, Handler]) -> dict[str, str]:
    """Return {operator that ONNX cannot express: reason}.

    The handlers of these operators decline every instance.
    """
    return {code: handler.accepts.reason for code, handler in handlers.items() if isinstance(handler.accepts, Decline)}


def gaps(suite: Suite) -> Iterator[str]:
    """Yield a line for each handler, declaration or fusion that no case tests.

    Three things are not checked: built-in fusions, which have their own tests; handlers that do not load, which are
    problems of the suite; and operators with a case that cannot be built or planned, because this case fails when it
    runs.
    """
    host = suite.host
    codes = {code for code, _ in suite.handlers}
    loaded = {(code, pack): handler for code, pack, handler in host.handlers(codes) if isinstance(handler, Handler)}
    inexpressible = inexpressible_operators({code: handler for (code, _), handler in loaded.items()})
    reported = {problem.where for problem in suite.problems}
    for op, pack in suite.handlers:
        if op in reported:
            continue
        op_cases = [
            case
            for case in suite.cases
            if case.op == op and (case.refusal if op in inexpressible else case.expects_success)
        ]
        if not op_cases:
            yield f"{op} of {pack} has no case"
        elif not all(map(_can_be_built, op_cases)):
            continue
        elif op in inexpressible or all(case.dtype.startswith("complex") for case in op_cases):
            continue  # complex tensors keep the layout of the file
        elif not (_keeps_source_layout(loaded.get((op, pack))) or _has_transposed_case(op_cases, host)):
            yield f"{op} of {pack} has no case that passes in a layout other than the file's; add a case with between_convolutions"
        # The support table compares built-in handlers with LiteRT's registrations.
        if pack != BUILTIN and op_cases and (op, pack) in loaded:
            handler = loaded[op, pack]
            operators = [operator for case in op_cases for operator in find_operators(read(case.build()), op)]
            yield from (f"{op} of {pack} has no case {text}" for text in _untested_declarations(handler, operators))
            yield from (
                f"{op} of {pack}: neither the lowering nor the kernel reads the operand {name!r}, so no case can find a wrong "
                f"result; use the operand, or name the parameter _{name} if the operator ignores it"
                for name in unread_operands(handler)
            )
            yield from (f"{op} of {pack}: {text}" for text in _unused_tables(operators, host))
            yield from (f"{op} of {pack}: {text}" for text in _swapped_weights(handler, operators))
            yield from (f"{op} of {pack}: {text}" for text in constant_results(op, handler, op_cases, host))
    for name, pack in suite.fusions:
        if pack != BUILTIN and not any(case.expects_success and name in case.fusions for case in suite.cases):
            yield f"the fusion {name} of {pack} has no case that requires the fusion to apply; add a case with fusions=({name!r},)"


def _can_be_built(case: Case) -> bool:
    """True if the function of a case returns a model, and does not raise an exception."""
    try:
        case.build()
    except Exception:  # reported when the case runs
        return False
    return True


def _untested_declarations(handler: Handler, operators: Sequence[Operator]) -> Iterator[str]:
    """Yield the end of a message for each declared dtype or behavior without a case."""
    for slot, dtypes in ({} if callable(handler.types) else dtypes_by_slot(handler.types)).items():
        present = {tensor.dtype for operator in operators if (tensor := operator.tensor(slot)) is not None}
        slot_name = f"operand {slot}" if slot >= 0 else f"output {~slot}"
        yield from (f"with {dtype} as {slot_name}, which `types` lists" for dtype in sorted(dtypes - present))
    behavior = handler.quantization
    tensors = [
        tensor for operator in operators for tensor in (*operator.inputs, *operator.outputs) if tensor is not None
    ]
    if callable(behavior) or not behavior.is_quantizable or (handler.types and not callable(handler.types)):
        return
    if not any(tensor.quantization for tensor in tensors):
        yield f"with quantized tensors, although it declares {type(behavior).__name__}; add one of tensor(..., dtype='int8')"


def _unused_tables(operators: Sequence[Operator], host: Host) -> Iterator[str]:
    """Yield a message if no case uses the operator's Lookup table in some dtype."""
    declared_dtypes: dict[str, None] = {}
    used_dtypes: set[str] = set()
    for op in operators:
        try:
            declared = declarations_of(op, host)
        except (Failed, Refusal):  # reported when the case runs
            return
        if declared is not None and isinstance(declared.quantization, Lookup):
            declared_dtypes |= dict.fromkeys(declared.quantization.dtypes)
            used_dtypes |= {op[0].dtype} if is_looked_up(op, host) else set()
    if unused := [dtype for dtype in declared_dtypes if dtype not in used_dtypes]:
        yield (
            f"no case uses the table of Lookup (dtypes {', '.join(unused)}); add a case with quantized tensors of each of these "
            "dtypes, or correct Lookup(dtypes=...)"
        )


def _swapped_weights(handler: Handler, operators: Sequence[Operator]) -> Iterator[str]:
    """Yield a message for each bias whose weights and activations are swapped.

    The second slot of a bias's pair is the slot of the weights.
    """
    if callable(handler.quantization):
        return
    for bias, (activations, weights) in handler.quantization.biases.items():
        if not isinstance(weights, int):
            continue
        pairs = [(operator.tensor(activations), operator.tensor(weights)) for operator in operators]
        present = [(a, w) for a, w in pairs if a is not None and w is not None]
        if present and all(a.is_constant and not w.is_constant for a, w in present):
            yield (
                f"the bias in slot {bias} declares the weights in slot {weights}, but in every case slot {activations} is constant "
                f"and slot {weights} is not; write bias={{{bias}: ({weights}, {activations})}}"
            )


def declarations(case: Case, host: Host) -> Iterator[Declared]:
    """Yield the handler's declarations for each tested operator of the case."""
    operators = find_operators(read(case.build()), case.op)
    return (declared for op in operators if (declared := declarations_of(op, host)) is not None)


def _keeps_source_layout(handler: Handler | None) -> bool:
    """True if the handler keeps the file's layout in every model."""
    return handler is not None and isinstance(handler.layout, Terminate)


def _has_transposed_case(cases: Sequence[Case], host: Host) -> bool:
    """True if a case runs the operator in a transposed layout, or if no case can."""
    cases_without_fusions_first = sorted(cases, key=lambda case: bool(case.fusions))
    try:
        return any(_changes_layout(case, host) for case in cases_without_fusions_first) or all(
            _terminates(case, host) for case in cases
        )
    except (ConversionError, Failed, Refusal):
        return True


def _terminates(case: Case, host: Host) -> bool:
    return all(isinstance(declared.layout, Terminate) for declared in declarations(case, host))


def _changes_layout(case: Case, host: Host) -> bool:
    """True if a layout plan gives the operator a layout other than the file's.

    Two plans are made: with graph inputs and outputs in the file's layout, and with channels first.
    """
    data = case.build()
    model = read(data)
    if not all(tensor.has_rank for tensor in model.main.tensors):
        return False  # ranks are known only after the conversion
    target = target_named("onnxruntime")
    bound = resolve(host.bind(model, target, target.opsets[2]), target, target.opsets[2])
    for requested in ({}, channels_first(structure.entry(structure.read(data)))):
        layouts = {**requested, **case.options.get("layout", {})}
        interface = interface_layouts(bound.main, apply_signature(model, None)[1], layouts, plan_all=False)
        plan = plan_layout(bound, bytes_of=tensor_bytes, prices=target.price, interface=interface)
        for call in bound.operators():
            if case.op not in {call.op.code, call.op.builtin, *(member.code for member in call.members)}:
                continue
            slots = [*range(len(call.op.inputs)), *(~k for k in range(len(call.op.outputs)))]
            runtime_slots = [
                slot for slot in slots if (tensor := call.op.tensor(slot)) is not None and not tensor.is_constant
            ]
            if any(plan.layout(call, slot) != source_layout(call.op[slot].dims) for slot in runtime_slots):
                return True
    return False
