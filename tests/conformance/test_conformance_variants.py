"""Tests of the variants of a case, and the sample of variants that the suite runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from conformance.case import Case
from conformance.cases import builtin_cases
from conformance.models import tensor, unary
from conformance.variants import SAMPLE_INTERVAL, Variant, number_cases, select_variants, variants_of

X = tensor(2, 5, 7, 3)


def test_tests_every_target_and_opset() -> None:
    for name in ("first", "second", "third"):
        variants = list(variants_of(unary("NEG", name, X, opsets=(None, 13, 17))))
        assert {(variant.target, variant.opset) for variant in variants} >= {("onnxruntime", None), ("generic", None)}
        assert {variant.opset for variant in variants if variant.plan == "least"} == {None, 13, 17}
        (local,), (channels_first,) = (
            [variant.target for variant in variants if variant.plan == plan] for plan in ("local", "channels-first")
        )
        assert {local, channels_first} == {"onnxruntime", "generic"}


def test_second_target_tests_both_layouts_if_nodes_are_required() -> None:
    names = ("first", "second", "third")
    second = Variant("generic", None, "least")

    def second_variant_use(*, can_transpose: bool, **requirements: Any) -> set[bool]:
        selected = (
            list(variants_of(unary("NEG", name, X, **requirements), can_transpose=can_transpose)) for name in names
        )
        return {
            second in variants
            for variants in selected
            if ("generic", "channels-first") in {(v.target, v.plan) for v in variants}
        }

    assert second_variant_use(can_transpose=True) == {False}
    assert (
        second_variant_use(can_transpose=False)
        == second_variant_use(can_transpose=True, nodes=("Neg",))
        == second_variant_use(can_transpose=True, refusal="no")
        == {True}
    )


def kinds(case: Case, variants: Any) -> set[tuple[Any, ...]]:
    """Return the kinds of a variant."""
    return {
        (case.op, case.dtype, kind) for variant in variants for kind in (variant.target, variant.opset, variant.plan)
    }


def test_sample_covers_opsets_plans_and_targets_per_dtype() -> None:
    all_kinds, sampled_kinds = set(), set()
    for case, position in number_cases(builtin_cases()):
        variants = [*variants_of(case)]
        all_kinds |= kinds(case, variants)
        sampled_kinds |= kinds(case, select_variants(case, position, variants))
    assert sampled_kinds == all_kinds


def test_similar_cases_share_variants() -> None:
    case = unary("NEG", "sample", X, opsets=(None, 13, 17))
    first, *other_variants = variants_of(case)
    assert select_variants(case, 0, [first, *other_variants]) == [first, *other_variants]
    shared = [
        select_variants(case, position, [first, *other_variants])
        for position in range(SAMPLE_INTERVAL, 2 * SAMPLE_INTERVAL)
    ]
    assert all(selected[0] == first for selected in shared)
    assert sorted(variant.text for selected in shared for variant in selected[1:]) == sorted(
        variant.text for variant in other_variants
    )


def test_requirements_apply_to_every_opset_and_refusals_to_all() -> None:
    case = unary("NEG", "sample", X, opsets=(None, 13, 17), nodes=("Neg",))
    minimum_cost = [variant for variant in variants_of(case) if variant.plan == "least"]
    for position in range(SAMPLE_INTERVAL):
        assert {*minimum_cost} <= {*select_variants(case, position, [*variants_of(case)])}
        refused = replace(case, refusal="no")
        assert [*select_variants(refused, position, [*variants_of(refused)])] == [*variants_of(refused)]
