"""LOGICAL_AND, LOGICAL_OR and LOGICAL_NOT: broadcasting, and conditions on images."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from conformance.case import EVERY_OPSET, Case
from conformance.cases.math.comparison import comparison_case
from conformance.models import Net, Spec, constant, in_isolation, net, random_constant, tensor

IMAGE = (2, 5, 7, 3)
OPERAND_SHAPES = ((), (3,), (7, 1), (5, 1, 3))


def cases() -> Iterator[Case]:
    yield from logic_cases()


def logic_cases() -> Iterator[Case]:
    x = tensor(*IMAGE, dtype="bool")
    for op in ("LOGICAL_AND", "LOGICAL_OR"):
        yield comparison_case(op, "bool", x, x)
        for shape in OPERAND_SHAPES:
            yield comparison_case(
                op, f"bool and a constant {shape}", x, random_constant(x.with_shape(*shape)), opsets=(None,)
            )
        yield comparison_case(
            op, "bool of rank 5 and 2", x.with_shape(2, 3, 5, 1, 7), x.with_shape(3, 1), opsets=(None,)
        )
        yield net(
            op, "bool between convolutions", select_by_condition(op), opsets=(None,), dtype="bool", max_transposes=2
        )
        yield comparison_case(
            op, "int32", tensor(7, dtype="int32"), tensor(7, dtype="int32"), kernel_refusal="only support bool"
        )
    yield in_isolation("LOGICAL_NOT", "bool", [x], x, opsets=EVERY_OPSET)
    yield net(
        "LOGICAL_NOT", "bool between convolutions", select_by_condition("LOGICAL_NOT"), dtype="bool", max_transposes=2
    )


def select_by_condition(op: str) -> Callable[[Net], None]:
    """Return a builder of a selection among image elements by the result of ``op``.

    The operands of ``op`` are a comparison of the image with 0.1 and a constant of shape (7, 1). The case fails if
    the constant is not transposed with the image.
    """

    def build(model: Net) -> None:
        x, condition = model.input_through_conv(tensor(*IMAGE)), Spec(IMAGE, "bool")
        greater = model.call("GREATER", [x, constant(0.1)], condition)
        column = random_constant(Spec((7, 1), "bool"))
        selected = model.call(op, [greater] if op == "LOGICAL_NOT" else [greater, column], condition)
        model.output(model.output_through_conv(model.call("SELECT_V2", [selected, x, constant(-7.0)], tensor(*IMAGE))))

    return build
