"""Full support of an operator requires a case for every kernel dtype and version."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from conformance.bounds import OPERATOR_TOLERANCE, tolerance_of
from conformance.case import Case
from conformance.cases import builtin_cases
from conformance.coverage import coverage, gaps, inexpressible_operators
from conformance.models import constant, in_isolation, random_array, tensor, unary
from conformance.packs import Suite
from conformance.registered import REGISTERED
from conformance.specs import Spec
from onnx_tflite_plugin.api import Decline, Dequantized, Handler, Lookup, Terminate, handler
from onnx_tflite_plugin.host import HANDLERS, Host, Offer
from onnx_tflite_plugin.host.offers import discover
from onnx_tflite_plugin.source import read


@pytest.fixture(scope="module")
def handlers() -> dict[str, Handler]:
    return {code: handler for code, _, handler in Host(packs="builtin").handlers() if isinstance(handler, Handler)}


def test_every_registered_operator_is_counted_once(handlers: dict[str, Handler]) -> None:
    report = coverage(handlers, builtin_cases())
    listed_codes = [*report.full, *report.partial, *report.missing, *report.refused]
    assert sorted(listed_codes) == sorted(REGISTERED)
    assert str(len(REGISTERED)) in report.text
    assert set(report.refused) <= set(inexpressible_operators(handlers))


def test_untested_dtype_makes_an_operator_partial(handlers: dict[str, Handler]) -> None:
    cases = [case for case in builtin_cases() if case.op == "MAX_POOL_2D"]
    assert "MAX_POOL_2D" in coverage(handlers, cases).full
    without = [case if case.dtype != "int16" else replace(case, known_failure="to come") for case in cases]
    assert coverage(handlers, without).partial["MAX_POOL_2D"] == "int16"


def test_unsupported_version_makes_an_operator_partial(handlers: dict[str, Handler]) -> None:
    older = {**handlers, "MAX_POOL_2D": replace(handlers["MAX_POOL_2D"], max_version=2)}
    assert coverage(older, builtin_cases()).partial["MAX_POOL_2D"] == "version 3"


def test_declined_operator_counts_as_not_expressible(
    handlers: dict[str, Handler],
) -> None:
    declined = {**handlers, "FLOOR": replace(handlers["FLOOR"], accepts=Decline("not expressible"))}
    report = coverage(declined, builtin_cases())
    assert "FLOOR" in report.refused
    assert "FLOOR" not in (*report.full, *report.partial, *report.missing)
    assert inexpressible_operators(declined)["FLOOR"] == "not expressible"


# --- gaps of a pack ---------------------------------------------------------------------------

CODE = "CUSTOM.Acme"


def find_gaps(kernel: Any, results: dict[str, Spec], **declared: Any) -> list[str]:
    """Return the gaps of a pack whose cases have these names and results."""
    x = {name: tensor(2, 5, dtype=result.dtype) for name, result in results.items()}
    cases = tuple(unary(CODE, name, x[name], result) for name, result in results.items())
    return gaps_of_cases(cases, lambda ctx, x: ctx.ops.Abs(x), kernel=kernel, **declared)


def gaps_of_cases(cases: tuple[Case, ...], lower: Any, **declared: Any) -> list[str]:
    """Return the gaps of a pack with one operator."""
    lowered = handler(CODE, max_version=1, layout=Terminate(), **declared)(lower)
    entry: Any = SimpleNamespace(name=CODE, value="mine:lower", load=lambda: lowered)
    host = Host(packs=["mine"], offers=[*discover(), Offer(CODE, "mine", HANDLERS, entry)])
    return list(gaps(Suite(host, ((CODE, "mine"),), (), cases, {})))


def int8(scale: float) -> Spec:
    return tensor(2, 5, dtype="int8", scale=scale)


@pytest.mark.parametrize(
    ("result", "values"),
    [
        (int8(50.0), "all expected values of y0 are -5"),
        (int8(1e-6), "all expected values of y0 are 127, at the limits of int8"),
    ],
)
def test_gaps_name_dtypes_whose_expected_values_never_vary(result: Spec, values: str) -> None:
    def kernel(op: Any, x: Any) -> Any:
        return np.abs(x) + np.float32(0.001)

    (gap,) = find_gaps(kernel, {"float32": tensor(2, 5), "odd": result}, quantization=Dequantized())
    assert gap.startswith(f"{CODE} of mine: {values} in {CODE}-odd, so no case tests values of int8 results; ")
    varying = {"odd": result, "int8": int8(0.05), "float32": tensor(2, 5)}
    assert find_gaps(kernel, varying, quantization=Dequantized()) == []


def test_gaps_name_results_that_are_nearly_all_saturated() -> None:
    def kernel(op: Any, x: Any) -> Any:
        result = np.full_like(x, 100)
        result[0, 0] = 0
        return result

    x, result = tensor(7, 11), tensor(7, 11, dtype="int8", scale=0.05)
    (gap,) = gaps_of_cases(
        (unary(CODE, "odd", tensor(7, 11, dtype="int8"), result), unary(CODE, "float32", x, x)),
        lambda ctx, x: ctx.ops.Abs(x),
        kernel=kernel,
        quantization=Dequantized(),
    )
    assert "nearly all expected values of y0 are 127, at the limits of int8" in gap


def test_gaps_name_swapped_slots_of_a_bias() -> None:
    def lower(ctx: Any, x: Any, w: Any, b: Any) -> Any:
        return ctx.ops.Gemm(x, w, b, transB=1)

    def kernel(op: Any, x: Any, w: Any, b: Any) -> Any:
        return x @ w.T + b

    x, w = tensor(2, 5, dtype="int8"), constant(random_array(3, 5, dtype="int8"), "int8", 0.01)
    b = constant(np.asarray([5, -7, 11], np.int32), "int32")
    case = in_isolation(CODE, "int8", [x, w, b], tensor(2, 3, dtype="int8"))
    (gap,) = gaps_of_cases((case,), lower, kernel=kernel, quantization=Dequantized(bias={2: (1, 0)}))
    assert gap.endswith("in every case slot 1 is constant and slot 0 is not; write bias={2: (0, 1)}")
    assert gaps_of_cases((case,), lower, kernel=kernel, quantization=Dequantized(bias={2: (0, 1)})) == []


def test_case_of_a_fusion_has_the_default_tolerance() -> None:
    case = unary("NEG", "x", tensor(2, 5), tensor(2, 5))
    model = read(case.build())
    assert tolerance_of(case, model).of_range == 0
    assert tolerance_of(replace(case, fusions=("acme",)), model).of_range == OPERATOR_TOLERANCE


def test_gaps_name_results_that_are_all_nan() -> None:
    (gap,) = find_gaps(lambda op, x: np.full_like(x, np.nan), {"float32": tensor(2, 5)})
    assert f"all expected values of y0 are NaN in {CODE}-float32" in gap


def test_constant_results_of_ignored_operands_are_no_gap() -> None:
    assert find_gaps(lambda op, _x: np.zeros_like(_x), {"float32": tensor(2, 5)}) == []


def test_gaps_name_tables_that_no_case_uses() -> None:
    def table(at: Any) -> Any:
        raise AssertionError("is not called")

    results = {"float32": tensor(2, 5), "int8": int8(0.05)}
    gap = "no case uses the table of Lookup (dtypes {}); add a case with quantized tensors of each of these dtypes, or "
    (text,) = find_gaps(lambda op, x: np.abs(x), results, quantization=Lookup(table))
    assert text.startswith(f"{CODE} of mine: {gap.format('int16')}")
    (text,) = find_gaps(lambda op, x: np.abs(x), results, quantization=Lookup(table, dtypes=("int16", "int8", "uint8")))
    assert gap.format("int16, uint8") in text
    assert find_gaps(lambda op, x: np.abs(x), results, quantization=Lookup(table, dtypes=("int8",))) == []
