"""Tensor lists without a stored element type get it from handlers."""

from __future__ import annotations

import pytest

import onnx_tflite_plugin as otp
from conformance.cases.custom.lists import STATIC, drop_variant_tensors, nested_loops, write_list
from conformance.models import Net
from onnx_tflite_plugin.api import Instance, ListContents, Terminate, handler
from onnx_tflite_plugin.conversion import convert
from onnx_tflite_plugin.errors import UnsupportedOperator
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.inspection import inspect
from onnx_tflite_plugin.normalize.tensor_list_elements import complete_lists, merge
from onnx_tflite_plugin.source import read
from onnx_tflite_plugin.source.model import Model
from onnx_tflite_plugin.targets import target_named

GENERIC = target_named("generic")


def older_file(reserved: tuple[int, ...] | None = None) -> bytes:
    model = Net()
    write_list(model, STATIC, reserved=reserved)
    drop_variant_tensors(model.model)
    return model.build()


def count_variants(model: Model) -> int:
    return sum(tensor.dtype == "variant" for graph in model.subgraphs for tensor in graph.tensors)


@pytest.mark.parametrize(
    ("first", "second", "merged"),
    [
        (ListContents(), ListContents("float32", (2, 3)), ListContents("float32", (2, 3))),
        (ListContents("float32"), ListContents(None, (2, None)), ListContents("float32", (2, None))),
        (ListContents("float32", (None, 3)), ListContents("float32", (2, None)), ListContents("float32", (2, 3))),
        (ListContents("float32"), ListContents("int32"), None),
        (ListContents("float32", (2, 3)), ListContents("float32", (2, 5)), None),
        (ListContents("float32", (2, 3)), ListContents("float32", (2,)), None),
        (None, ListContents("float32"), None),
    ],
)
def test_declared_contents_are_merged(
    first: ListContents | None, second: ListContents | None, merged: ListContents | None
) -> None:
    assert merge(first, second) == merge(second, first) == merged


def test_list_contents_are_derived_in_loops_and_branches() -> None:
    model = Net()
    nested_loops(model)
    drop_variant_tensors(model.model)
    before = read(model.build())
    after = complete_lists(before, Host(packs="builtin"), GENERIC)
    assert count_variants(before) == 12
    assert not count_variants(after)
    arrays = [t for graph in after.subgraphs for t in graph.tensors if t.name.endswith(("list", "made list"))]
    assert arrays
    assert {tensor.dims for tensor in arrays} == {(None, *STATIC)}


def test_list_with_conflicting_declarations_stays_unknown() -> None:
    model = read(older_file(reserved=(2, 5)))
    assert count_variants(complete_lists(model, Host(packs="builtin"), GENERIC)) == count_variants(model)


def test_inspect_lists_handlers_of_lists_in_older_files() -> None:
    assert inspect(older_file(), host=Host(packs="builtin"))["missing"] == []


def test_failing_list_contents_cause_a_warning() -> None:
    def raise_key_error(at: Instance) -> ListContents:
        raise KeyError("element_dtype")

    @handler("CUSTOM.MakeList", max_version=1, layout=Terminate(), list_contents=raise_key_error)
    def lower(ctx, *operands):  # type: ignore[no-untyped-def]
        return ctx.ops.Identity(operands[0])

    model = Net()
    x = model.graph.input("x", (2, 3))
    model.graph.operator("CUSTOM.MakeList", [x], [model.graph.tensor("list", (), "variant")])
    host = Host(packs="builtin", handlers={"CUSTOM.MakeList": lower})
    assert count_variants(complete_lists(read(model.build()), host, GENERIC)) == 1
    assert any("contents of handler" in warning for warning in host.warnings)


def test_pack_declares_contents_of_its_lists() -> None:
    @handler(
        "CUSTOM.MakeList",
        max_version=1,
        layout=Terminate(),
        list_contents=lambda at: ListContents(at.op[0].dtype, (3,)),
    )
    def lower(ctx, *operands):  # type: ignore[no-untyped-def]
        return ctx.ops.Identity(operands[0])

    model = Net()
    x = model.graph.input("x", (2, 3))
    model.graph.operator("CUSTOM.MakeList", [x], [model.graph.tensor("list", (), "variant")])
    complete = complete_lists(read(model.build()), Host(packs="builtin", handlers={"CUSTOM.MakeList": lower}), GENERIC)
    (result,) = complete.main.operators[0].outputs
    assert result is not None
    assert (result.dtype, result.dims) == ("float32", (None, 3))


def test_list_operator_without_node_def_is_refused() -> None:
    model = Net()
    write_list(model, STATIC)
    drop_variant_tensors(model.model)
    for k, table in enumerate(model.graph.operators):
        model.graph.operators[k] = type(table)(table.name, {**table.fields, "custom_options": None})
    with pytest.raises(UnsupportedOperator, match="does not store the shape and dtype of the list's elements"):
        convert(model.build(), host=Host(packs="builtin"))


def test_verification_derives_list_contents_of_older_files() -> None:
    verification = otp.convert(older_file(), verify=True).verification
    assert verification is not None
    assert verification.verdict == "inconclusive"
    assert "LiteRT has no kernel for CUSTOM.FlexTensorList" in verification.text
    assert "does not store the shape and dtype" not in verification.text
