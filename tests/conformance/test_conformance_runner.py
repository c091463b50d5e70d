"""Tests of the runner's verdicts, and cases supplied by packs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from conformance import command
from conformance.case import Case
from conformance.cases import builtin_cases
from conformance.coverage import gaps
from conformance.models import between_convolutions, in_isolation, net, tensor, unary
from conformance.packs import Suite
from conformance.runner import CaseTrial, run_case
from conformance.table import _row
from conformance.variants import Variant
from onnx_tflite_plugin.api import (
    Attribute,
    Context,
    Decline,
    Dequantized,
    Handler,
    Raw,
    Refusal,
    Terminate,
    Transparent,
    Value,
    handler,
)
from onnx_tflite_plugin.errors import ConversionError
from onnx_tflite_plugin.guard import TRACEBACK_HINT
from onnx_tflite_plugin.host import HANDLERS, Host, Offer
from onnx_tflite_plugin.host.offers import discover
from onnx_tflite_plugin.source.model import Array
from onnx_tflite_plugin.verify import Tolerance

X = tensor(2, 5, 7, 3)


@pytest.fixture(scope="module")
def host() -> Host:
    return Host(packs="builtin")


def add_one_host(code: str, **declared: object) -> Host:
    """Return a host with a handler that adds 1."""

    @handler(code, max_version=9, layout=Transparent(), quantization=Dequantized(), **declared)  # type: ignore[arg-type]
    def lower(ctx: Context, x: object, *_: object) -> object:
        return ctx.ops.Add(x, 1.0)

    return Host(packs="builtin", handlers={code: lower})


def test_case_passes_in_every_plan_target_and_opset(host: Host) -> None:
    result = run_case(between_convolutions("NEG", "sample", [X], X, opsets=(None, 17)), host)
    assert (result.status, result.reasons, result.variants) == ("passed", (), 5)


def test_tests_the_local_plan_only_if_it_differs() -> None:
    unpermuted = run_case(unary("NEG", "sample", X, targets=("onnxruntime",)), Host(packs="builtin"))
    permuted = run_case(between_convolutions("NEG", "sample", [X], X, targets=("onnxruntime",)), Host(packs="builtin"))
    assert (unpermuted.variants, permuted.variants) == (2, 3)


def test_plan_without_permutations_is_the_local_plan(host: Host) -> None:
    compared = 0
    for case in builtin_cases()[::101]:
        trial = CaseTrial(case, host)
        least, local = (Variant(case.targets[0], case.opsets[0], plan) for plan in ("least", "local"))
        try:
            conversion = trial.convert(least)
        except ConversionError:
            continue
        if conversion.report.local_plan_differences == 0:
            assert conversion.proto == trial.convert(local).proto, case.id
            compared += 1
    assert compared > 30


def test_transposed_loop_boundary_counts_as_permuted(host: Host) -> None:
    """Nothing is permuted at the graph's boundary, but the local plan differs."""
    (case,) = (case for case in builtin_cases() if case.id == "WHILE-float32,_convolution_in_the_body")
    trial = CaseTrial(case, host)
    least, local = (trial.convert(Variant("onnxruntime", None, plan)) for plan in ("least", "local"))
    assert least.report.local_plan_differences == 1
    assert local.report.local_plan_differences == 0
    assert least.proto != local.proto


def test_failure_names_the_failing_variants() -> None:
    result = run_case(unary("NEG", "sample", X, targets=("onnxruntime",)), add_one_host("NEG"))
    element, reason = result.reasons
    assert not result.ok
    assert " in the ONNX model and " in element
    assert reason.startswith("onnxruntime least, onnxruntime channels-first: y0: max ")


def test_too_many_transposes_fail() -> None:
    @handler("NEG", max_version=1, layout=Terminate())
    def lower(ctx: Context, x: object) -> object:
        return ctx.ops.Neg(x)

    result = run_case(between_convolutions("NEG", "sample", [X], X), Host(packs="builtin", handlers={"NEG": lower}))
    assert result.reasons == (
        "onnxruntime least, generic least: the least-cost plan has 4 Transposes; the case allows 2; "
        "the handler of inline declares layout=Terminate(unordered=''); if the lowering emits a Transpose itself, give the "
        "case max_transposes=4; otherwise the axes may be declared in the wrong order, or the layout is stricter than necessary",
    )


def test_refusal_must_match_the_expected_text(host: Host) -> None:
    axis = tensor(dtype="int32")
    case = in_isolation("SPLIT", "sample", [axis, X], X, options={"num_splits": 1}, refusal="must be a constant")
    assert run_case(case, host).status == "passed"
    assert (
        "the model was refused, but without the expected text"
        in run_case(replace(case, refusal="too large"), host).text
    )
    converted = unary("NEG", "sample", X, refusal="must be a constant")
    assert "the model was converted, but must be refused" in run_case(converted, host).text


def returns_text(at: Any) -> Any:
    return "the limit is -1"


def declines(at: Any) -> Any:
    return Decline("the limit is -1")


def fails(ctx: Any, x: Any) -> Any:
    raise ValueError("the limit is -1")


def refuses(ctx: Any, x: Any) -> Any:
    raise Refusal("the limit is -1")


@pytest.mark.parametrize(
    ("declared", "lower", "passes"),
    [
        ({"accepts": returns_text}, fails, False),
        ({"accepts": declines}, fails, True),
        ({}, fails, False),
        ({}, refuses, True),
    ],
)
def test_failure_of_a_packs_code_is_not_a_refusal(declared: Any, lower: Any, passes: bool) -> None:
    declare = handler("CUSTOM.Acme", max_version=1, layout=Transparent(), **declared)
    case = unary("CUSTOM.Acme", "refused", X, refusal="the limit is -1")
    result = run_case(case, Host(handlers={"CUSTOM.Acme": declare(lower)}))
    assert result.ok is passes
    if not passes:
        assert "the text 'the limit is -1' must come from a Decline, a Refusal or a check" in result.text
        assert " failed: " in result.text


def test_rejection_by_litert_is_checked(host: Host) -> None:
    case = unary("NEG", "sample", tensor(2, 3, dtype="uint8"), kernel_refusal="Neg only currently supports")
    assert run_case(case, host).status == "skipped"
    assert "but without the expected text" in run_case(replace(case, kernel_refusal="no memory"), host).text
    accepted_case = unary("NEG", "sample", X, kernel_refusal="Neg only currently supports")
    assert (
        run_case(accepted_case, host).text
        == "NEG-sample failed\n  LiteRT runs the model, but must refuse it with 'Neg only currently supports'"
    )


def test_known_failure_must_fail(host: Host) -> None:
    case = unary("NEG", "sample", X, known_failure="it adds one")
    assert run_case(case, add_one_host("NEG")).status == "known"
    assert run_case(case, host).reasons == ("the case passes although it is marked as a known failure",)


def test_case_with_a_build_error_fails(host: Host) -> None:
    def fail_to_build() -> bytes:
        raise OSError("disk full")

    line = fail_to_build.__code__.co_firstlineno + 1
    assert run_case(Case("NEG", "sample", fail_to_build), host).reasons == (
        f"the case cannot be run: OSError: disk full, at {__file__}:{line} in fail_to_build ({TRACEBACK_HINT})",
    )


def test_error_of_a_reference_is_located_in_the_authors_code(host: Host) -> None:
    case = unary("NEG", "sample", X, reference=lambda arrays: [arrays[1]])
    (reason,) = run_case(case, host).reasons
    assert reason.startswith(f"the case cannot be run: IndexError: list index out of range, at {__file__}:")


def test_reference_function_replaces_litert() -> None:
    def plus_one(inputs: Sequence[Array]) -> Sequence[Array]:
        return [inputs[0] + 1]

    case = unary("CUSTOM.Plus", "sample", X, reference=plus_one)
    assert run_case(case, add_one_host("CUSTOM.Plus")).status == "passed"
    wrong_reference = replace(case, reference=lambda inputs: [inputs[0] + 2])
    assert "compared with reference function" in run_case(wrong_reference, add_one_host("CUSTOM.Plus")).text


def test_difference_from_a_pack_kernel_names_it() -> None:
    host = add_one_host("CUSTOM.Plus", kernel=lambda op, x: x)
    assert "compared with the reference kernel)" in run_case(unary("CUSTOM.Plus", "sample", X), host).text


def test_inputs_are_given_or_random_within_a_span(host: Host) -> None:
    arrays_seen: list[list[Array]] = []

    def reference(inputs: Sequence[Array]) -> Sequence[Array]:
        arrays_seen.append(list(inputs))
        return [inputs[0] + inputs[1]]

    axis_operands = {"x1": np.arange(3, dtype=np.float32)}
    case = in_isolation(
        "ADD",
        "sample",
        [X, tensor(3)],
        X,
        reference=reference,
        input_arrays=axis_operands,
        input_range=(5.0, 6.0),
        runs=2,
    )
    assert run_case(case, host).status == "passed"
    assert len(arrays_seen) == 2
    for x, y in arrays_seen:
        assert y.tolist() == [0, 1, 2]
        assert 5 <= x.min() <= x.max() <= 6
    assert not np.array_equal(arrays_seen[0][0], arrays_seen[1][0])


def test_custom_tolerance_needs_a_reason() -> None:
    with pytest.raises(
        ValueError, match="NEG-sample: tolerance= requires tolerance_reason=: say why the kernel's results differ"
    ):
        unary("NEG", "sample", X, tolerance=Tolerance(steps=2))


def test_surrounding_convolutions_are_exact() -> None:
    """Convolutions are exact in all dtypes, so that only the operator is compared."""
    for dtype in ("float32", "int8", "uint8", "int16"):
        image = tensor(2, 5, 7, 3, dtype=dtype)
        case = net(
            "CONV_2D",
            dtype,
            lambda model, image=image: model.output(model.output_through_conv(model.input_through_conv(image))),
        )  # type: ignore[misc]
        exact = replace(case, tolerance=Tolerance(of_range=0, steps=0), tolerance_reason="nothing is computed")
        assert run_case(exact, Host(packs="builtin")).status == "passed", dtype


def find_gaps(handlers: dict[str, Handler], cases: list[Case], *more: tuple[str, str]) -> list[str]:
    requested = (*((code, "mine") for code in handlers), *more)
    offers = [Offer(code, "mine", HANDLERS, Entry(handler)) for code, handler in handlers.items()]
    return list(gaps(Suite(Host(packs=["mine"], offers=[*discover(), *offers]), requested, (), tuple(cases), {})))


class Entry:
    """An entry point that loads an object."""

    def __init__(self, loaded: object) -> None:
        self.loaded, self.name, self.value = loaded, "x", "x"

    def load(self) -> object:
        return self.loaded


def identity_handler(code: str, layout: Any = Attribute(), **declared: Any) -> Handler:  # noqa: B008
    @handler(code, max_version=1, layout=layout, **declared)
    def lower(ctx: Context, x: Value) -> Value:
        return x

    return lower


def test_gaps_name_handlers_without_cases_or_transposed_layout() -> None:
    handlers = {
        "CUSTOM.Kept": identity_handler("CUSTOM.Kept", axes=lambda at: None),
        "CUSTOM.Last": identity_handler("CUSTOM.Last", Terminate(), axes=lambda at: None),
    }
    cases = [*(unary(code, "sample", X) for code in handlers), unary("NEG", "sample", X)]
    assert find_gaps(handlers, cases, ("CUSTOM.Gone", "mine"), ("NEG", "built-in")) == [
        "CUSTOM.Kept of mine has no case that passes in a layout other than the file's; add a case with between_convolutions",
        "CUSTOM.Gone of mine has no case",
    ]


def test_gaps_name_declared_dtypes_without_a_case() -> None:
    rows = {"CUSTOM.Rows": identity_handler("CUSTOM.Rows", Terminate(), types=("float32 int32", "int8 -> int8"))}
    assert find_gaps(rows, [unary("CUSTOM.Rows", "sample", X)]) == [
        "CUSTOM.Rows of mine has no case with int32 as operand 0, which `types` lists",
        "CUSTOM.Rows of mine has no case with int8 as operand 0, which `types` lists",
        "CUSTOM.Rows of mine has no case with int8 as output 0, which `types` lists",
    ]
    raw = {"CUSTOM.Raw": identity_handler("CUSTOM.Raw", Terminate(), quantization=Raw())}
    assert find_gaps(raw, [unary("CUSTOM.Raw", "sample", X)]) == [
        "CUSTOM.Raw of mine has no case with quantized tensors, although it declares Raw; add one of tensor(..., dtype='int8')"
    ]
    assert find_gaps(raw, [unary("CUSTOM.Raw", "sample", tensor(2, 3, dtype="int8"))]) == []


def test_gaps_name_fusions_without_a_case() -> None:
    host, case = Host(packs="builtin"), unary("NEG", "sample", X)
    fusions = (("MINE", "mine"),)
    assert list(gaps(Suite(host, (), fusions, (case,), {}))) == [
        "the fusion MINE of mine has no case that requires the fusion to apply; add a case with fusions=('MINE',)"
    ]
    assert list(gaps(Suite(host, (), fusions, (replace(case, fusions=["MINE"]),), {}))) == []


def test_command_prints_operators_and_exits_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.run(None, ["SHAPE"]) == 0
    output = capsys.readouterr().out
    assert "SHAPE" in output
    assert "onnx-tflite-plugin" in output


def test_table_cells_escape_separators() -> None:
    assert _row(["a|b", "c"]) == r"| a\|b | c |"


def test_conversion_valid_only_at_the_stored_size_fails() -> None:
    @handler("NEG", max_version=1, layout=Terminate())
    def lower(ctx: Context, x: object) -> object:
        return ctx.ops.Reshape(ctx.ops.Neg(x), [1, 3])

    batch = tensor(None, 3)
    result = run_case(unary("NEG", "sample", batch), Host(packs="builtin", handlers={"NEG": lower}))
    assert result.status == "failed"
    assert run_case(unary("NEG", "sample", batch, dynamic_sizes=()), Host(packs="builtin", handlers={"NEG": lower})).ok


def test_given_inputs_are_also_resized() -> None:
    case = unary("NEG", "sample", tensor(None, 3, None), input_arrays={"x0": np.ones((1, 3, 5), np.float32)}, runs=1)
    assert [arrays[0].shape for arrays in CaseTrial(case, Host(packs="builtin")).runs] == [
        (1, 3, 5),
        (2, 3, 4),
        (7, 3, 9),
    ]
