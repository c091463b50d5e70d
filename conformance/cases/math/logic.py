"""Logic of bool, broadcast and between convolutions."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from conformance.case import EVERY_OPSET, Case
from conformance.cases.math.comparison import comparison_case
from conformance.models import Net, Spec, constant, in_isolation, net, random_constant, tensor

IMAGE = (2, 5, 7, 3)
PARTS = ((), (3,), (7, 1), (5, 1, 3))


def cases() -> Iterator[Case]:
    yield from logic_cases()


def logic_cases() -> Iterator[Case]:
    x = tensor(*IMAGE, dtype="bool")
    for op in ("LOGICAL_AND", "LOGICAL_OR"):
        yield comparison_case(op, "bool", x, x)
        for shape in PARTS:
            yield comparison_case(
                op, f"bool and a constant {shape}", x, random_constant(x.with_shape(*shape)), opsets=(None,)
            )
        yield comparison_case(
            op, "bool of rank 5 and 2", x.with_shape(2, 3, 5, 1, 7), x.with_shape(3, 1), opsets=(None,)
        )
        yield net(op, "bool between convolutions", conditions_model(op), opsets=(None,), dtype="bool", max_transposes=2)
        yield comparison_case(
            op, "int32", tensor(7, dtype="int32"), tensor(7, dtype="int32"), kernel_refusal="only support bool"
        )
    yield in_isolation("LOGICAL_NOT", "bool", [x], x, opsets=EVERY_OPSET)
    yield net(
        "LOGICAL_NOT", "bool between convolutions", conditions_model("LOGICAL_NOT"), dtype="bool", max_transposes=2
    )


def conditions_model(op: str) -> Callable[[Net], None]:
    """Return a selection by conditions on a convolution's result; one condition is constant per column."""

    def build(model: Net) -> None:
        x, seen = model.input_through_conv(tensor(*IMAGE)), Spec(IMAGE, "bool")
        greater = model.call("GREATER", [x, constant(0.1)], seen)
        column = random_constant(Spec((7, 1), "bool"))
        both = model.call(op, [greater] if op == "LOGICAL_NOT" else [greater, column], seen)
        model.output(model.output_through_conv(model.call("SELECT_V2", [both, x, constant(-7.0)], tensor(*IMAGE))))

    return build
