"""Operands that neither the lowering nor the reference kernel of a pack reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from conformance.models import constant, in_isolation, random_array, tensor
from conformance.runner import run_case
from conformance.unread_operands import operands_that_only_the_kernel_reads, unread_operands
from onnx_tflite_plugin.api import Transparent, handler
from onnx_tflite_plugin.host import Host


def reads_both(ctx: Any, x: Any, bias: Any) -> Any:
    return ctx.ops.Add(x, bias)


def forgets_bias(ctx: Any, x: Any, bias: Any) -> Any:
    return ctx.ops.Identity(x)


def marks_bias(ctx: Any, x: Any, _bias: Any) -> Any:
    return ctx.ops.Identity(x)


def takes_any(ctx: Any, *operands: Any) -> Any:
    return ctx.ops.Identity(operands[0])


def reads_in_a_closure(ctx: Any, x: Any, bias: Any) -> Any:
    return next(ctx.ops.Add(part, bias) for part in (x,))


@pytest.mark.parametrize(
    ("lower", "kernel", "names"),
    [
        (forgets_bias, forgets_bias, ["bias"]),
        (forgets_bias, reads_both, []),  # a comparison finds it
        (reads_both, forgets_bias, []),
        (marks_bias, forgets_bias, []),
        (forgets_bias, marks_bias, []),
        (takes_any, forgets_bias, []),
        (reads_in_a_closure, forgets_bias, []),
        (forgets_bias, None, []),
    ],
)
def test_operand_that_neither_kernel_nor_lowering_reads_is_found(
    lower: Callable[..., Any], kernel: Callable[..., Any] | None, names: list[str]
) -> None:
    declare = handler("CUSTOM.Acme", max_version=1, layout=Transparent(), kernel=kernel)
    assert [*unread_operands(declare(lower))] == names


def test_failing_case_names_an_operand_that_only_the_kernel_reads() -> None:
    declare = handler("CUSTOM.Acme", max_version=1, layout=Transparent(), kernel=lambda op, x, bias: x + bias)
    host = Host(handlers={"CUSTOM.Acme": declare(forgets_bias)}, prefer=["inline"])
    case = in_isolation("CUSTOM.Acme", "float32", [tensor(2, 5), constant(random_array(5))], tensor(2, 5))
    expected = "the lowering of CUSTOM.Acme does not read its operand 'bias', but the reference kernel does"
    assert expected in run_case(case, host).reasons[0]


def test_lowering_may_read_a_constant_through_its_context() -> None:
    def lower(ctx: Any, x: Any, bias: Any) -> Any:
        return ctx.ops.Add(x, ctx.require_constant(1))

    declare = handler("CUSTOM.Acme", max_version=1, layout=Transparent(), kernel=reads_both)
    assert not [*operands_that_only_the_kernel_reads(declare(lower))]
