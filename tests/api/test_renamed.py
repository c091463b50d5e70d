"""Old names of the API still work, and warn with their replacement."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from conformance import cases, models
from conformance.builder import ModelBuilder, quant
from onnx_tflite_plugin import api, renamed, verify
from onnx_tflite_plugin.conversion import convert_model
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.options import ConvertOptions
from onnx_tflite_plugin.source import read
from onnx_tflite_plugin.verify import Comparison, Verification


@pytest.mark.parametrize("old", renamed.EXPORTS)
def test_old_export_is_the_new_export(old: str) -> None:
    with pytest.warns(DeprecationWarning, match=rf"api\.{old} is now {renamed.EXPORTS[old]}"):
        assert getattr(api, old) is getattr(api, renamed.EXPORTS[old])


def test_unknown_export_raises_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        api.Nothing  # noqa: B018


@pytest.mark.parametrize("old", renamed.CASES)
def test_old_names_of_cases_warn(old: str) -> None:
    with pytest.warns(DeprecationWarning, match=rf"cases\.{old} is now {renamed.CASES[old]}"):
        assert getattr(cases, old) is getattr(cases, renamed.CASES[old])


@pytest.mark.parametrize("old", renamed.KIT)
def test_old_helper_of_the_conformance_kit_is_an_alias(old: str) -> None:
    with pytest.warns(DeprecationWarning, match=rf"models\.{old} is now {renamed.KIT[old]}"):
        assert getattr(models, old) is getattr(models, renamed.KIT[old])


@pytest.mark.parametrize(("owner", "old", "new"), [
    *((models.tensor(2, 3), old, new) for old, new in renamed.SPEC.items()),
    *((models.Net(), old, new) for old, new in renamed.NET.items()),
])  # fmt: skip
def test_old_method_of_the_conformance_kit_is_an_alias(owner: Any, old: str, new: str) -> None:
    with pytest.warns(DeprecationWarning, match=rf"\.{old} is now {new}"):
        assert getattr(owner, old) == getattr(owner, new)


def test_old_keywords_of_a_case_set_the_new_fields() -> None:
    arrays = {"x0": np.ones((2, 3), np.float32)}
    old: dict[str, Any] = {"given": arrays, "span": (0, 1), "sizes": (), "fuses": ("F",), "transposes": 1, "why": "w"}
    refusals: dict[str, Any] = {"refused": "r", "kernel_refuses": "k", "known": "f"}
    with pytest.warns(DeprecationWarning) as caught:  # noqa: PT030, PT031 (one of each keyword)
        case = models.unary("NEG", "sample", models.tensor(2, 3), **old)
        refused_case = replace(case, **refusals)
    new_names = {old_name: renamed.CASE[old_name] for old_name in (*old, *refusals)}
    assert [getattr(case, new_names[name]) for name in old] == [*old.values()]
    assert [getattr(refused_case, new_names[name]) for name in refusals] == [*refusals.values()]
    assert {warning.filename for warning in caught if "the case" in str(warning.message)} == {__file__}
    assert {str(warning.message).partition(";")[0].partition("(")[2] for warning in caught} == {
        f"{old_name}=...) is now {new_name}=" for old_name, new_name in new_names.items()
    }
    with pytest.warns(DeprecationWarning, match=r"Case\.given is now input_arrays"):
        assert case.given is arrays  # type: ignore[attr-defined]
    with pytest.warns(DeprecationWarning, match=r"Case\.counts is now expects_success"):
        assert case.counts  # type: ignore[attr-defined]


def test_old_keywords_of_a_handler_set_the_new_fields() -> None:
    boundary, price = api.SubgraphBoundary(2), api.AxisPrice("Softmax", "a")
    contents: Any = lambda at: api.ListContents("float32", (3,))
    shape: Any = lambda at: (3,)
    old: dict[str, Any] = {
        "along": price,
        "assumes": {1},
        "borders": boundary,
        "contents": contents,
        "converts": {"int8": ("float32",)},
        "holds_axes": {0},
        "holds_batch": {0: -1},
        "inlines": "body",
        "sizes": shape,
    }
    with pytest.warns(DeprecationWarning) as caught:  # noqa: PT030 (one of each keyword)
        new_declaration = api.handler("CUSTOM.Old", max_version=1, layout=api.Terminate(), **old)(lambda ctx, x: x)
    assert [str(warning.message).partition(";")[0] for warning in caught] == [
        f"@handler({old}=...) is now {new}=" for old, new in renamed.DECLARATIONS.items()
    ]
    assert (new_declaration.axis_price, new_declaration.boundary, new_declaration.list_contents) == (
        price,
        boundary,
        contents,
    )


@pytest.mark.parametrize(("owner", "names", "value"), [
    (api.SubgraphBoundary, renamed.BOUNDARY, 1),
    (partial(api.AxisPrice, letters="a"), renamed.AXIS_PRICE, "Softmax"),
    (api.Effects, renamed.EFFECTS, lambda at: "state"),
    (api.Dequantized, renamed.DEQUANTIZED, (0,)),
    (api.SameScale, renamed.SAME_SCALE, (0,)),
])  # fmt: skip
def test_old_fields_of_a_declaration_are_aliases(owner: Any, names: dict[str, str], value: Any) -> None:
    name = getattr(owner, "func", owner).__name__
    for old, new in names.items():
        with pytest.warns(DeprecationWarning, match=rf"{name}\({old}=\.\.\.\) is now {new}="):
            declaration = owner(**{old: value})
        with pytest.warns(DeprecationWarning, match=rf"{name}\.{old} is now {new}"):
            assert getattr(declaration, old) == getattr(declaration, new) == value


@pytest.mark.parametrize(("old", "new"), renamed.TARGET.items())
def test_old_traits_change_a_target(old: str, new: str) -> None:
    target = api.builtin_target("generic")
    mappings = {"wider_dtypes": {"Add": {"int8": "int32"}}, "missing_operators": {"Conv": ""}}
    value: Any = (
        mappings[new]
        if new in mappings
        else frozenset({"int8"})
        if "dtypes" in new
        else frozenset({"Conv"})
        if "operators" in new
        else 21
        if "opset" in new
        else True
    )
    changes: dict[str, Any] = {old: value}
    with pytest.warns(DeprecationWarning, match=rf"Target\({old}=\.\.\.\) is now {new}="):
        changed = replace(target, **changes)
    with pytest.warns(DeprecationWarning, match=rf"Target\.{old} is now {new}"):
        assert getattr(changed, old) == getattr(changed, new) == value
    assert changed == replace(target, **{new: value})


@pytest.mark.parametrize("old", renamed.VERIFY)
def test_old_function_of_verify_is_an_alias(old: str) -> None:
    with pytest.warns(DeprecationWarning, match=rf"verify\.{old} is now {renamed.VERIFY[old]}"):
        assert getattr(verify, old) is getattr(verify, renamed.VERIFY[old])


def test_old_attributes_of_results_are_aliases() -> None:
    conversion = convert_model(read(model()), Host(packs="builtin"), ConvertOptions())
    comparison: Any = Comparison("y", "step", 2.0, 0.5, 1.0, mean_error=0.25)
    with pytest.warns(DeprecationWarning, match="is now"):
        assert (comparison.distance, comparison.mean) == (2.0, 0.25)
    report: Any = conversion.report
    with pytest.warns(DeprecationWarning, match="is now"):
        assert report.moved == report.local_plan_differences
    with pytest.warns(DeprecationWarning, match=r"Report\.lengths is now signature_lengths"):
        assert report.lengths == {}
    verification: Any = Verification((comparison,), (), 1, pack_kernel_operators=3)
    with pytest.warns(DeprecationWarning, match=r"Verification\.by_packs is now pack_kernel_operators"):
        assert verification.by_packs == 3


def test_old_keywords_of_a_pattern_set_the_new_fields() -> None:
    x, y = api.operands("x y")
    old: dict[str, Any] = {"beside": (api.Call("MUL", x, y),)}
    with pytest.warns(DeprecationWarning, match=r"Call\(beside=\.\.\.\) is now siblings="):
        call = api.Call("ADD", x, y, **old)
    assert call.siblings == old["beside"]
    assert not call.options
    condition: Any = lambda match: {"found": True}
    with pytest.warns(DeprecationWarning, match=r"@fusion\(where=\.\.\.\) is now check="):
        new_declaration = api.fusion("F", layout=api.Terminate(), pattern=call, inputs=[x, y], **{"where": condition})(
            lambda ctx, x, y: x
        )
    assert new_declaration.check is condition


def model() -> bytes:
    """Return ADD of an int8 input and an int8 constant of shape [2, 3]."""
    builder = ModelBuilder()
    g = builder.main
    x = g.input("x", (2, 3), "int8", quantization=quant(0.5, -3))
    w = g.constant("w", np.ones((2, 3), np.int8), quantization=quant(0.25, 2))
    g.output(y := g.tensor("y", (2, 3), "int8", quantization=quant(0.5, 1)))
    g.operator("ADD", [x, w], [y])
    return builder.build()


def test_old_attributes_of_a_tensor_are_aliases() -> None:
    x, w = read(model()).main.tensors[:2]
    with pytest.warns(DeprecationWarning, match=r"Tensor\.constant is now is_constant"):
        assert (x.constant, w.constant) == (False, True)  # type: ignore[attr-defined]
    with pytest.warns(DeprecationWarning, match=r"Tensor\.static is now is_static"):
        assert x.static  # type: ignore[attr-defined]


def test_old_attributes_of_a_context_are_aliases() -> None:
    equal: list[bool] = []
    names: set[str] = set()

    @api.handler("ADD", max_version=3, layout=api.Transparent(), axes="..., ... -> ...", quantization=api.Dequantized())
    def add(ctx: Any, x: Any, w: Any) -> Any:
        with pytest.warns(DeprecationWarning, match="is now") as caught:
            equal.extend([
                ctx.quantized == ctx.is_quantized,
                ctx.integers == ctx.uses_integers,
                ctx.folds == ctx.folds_weights,
                ctx.wanted(0) == ctx.is_used(0),
                list(ctx.by_axis([5, 7])) == list(ctx.permute_entries([5, 7])),
                np.array_equal(ctx.required(1), ctx.require_constant(1)),
                ctx.known(x) is ctx.constant_array(x),
                ctx.reshaped(x, 0) is not None,
                ctx.raw(0) is not None,
            ])  # fmt: skip
        names.update(str(warning.message).split()[0] for warning in caught)
        return ctx.ops.Add(x, w)

    convert_model(read(model()), Host(prefer=["inline"], handlers={"ADD": add}), ConvertOptions())
    assert all(equal)
    assert names == {f"Context.{name}" for name in renamed.CONTEXT if name != "looked_up"}


def test_old_keyword_of_the_builder_is_an_alias() -> None:
    tensor: Any = ModelBuilder().main.tensor
    with pytest.warns(DeprecationWarning, match=r"tensor\(listed=\.\.\.\) is now list_elements="):
        old = tensor("x", (), "variant", listed=("float32", (2, 3)))
    new = tensor("x", (), "variant", list_elements=("float32", (2, 3)))
    fields = [table.fields["variant_tensors"][0].fields for table in old.graph.tensors]
    assert fields[0] == fields[1], new
