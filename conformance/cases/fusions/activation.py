"""Decomposed GELU, HARD_SWISH and PRELU, and similar patterns that are no activation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from conformance.builder import TensorRef
from conformance.case import EVERY_OPSET, Case, Tolerance
from conformance.models import Net, Spec, constant, net, random_array, tensor

Term = Any
"""``"x"``, a number, the name of some ``SLOPES``, or (operator, its terms...), a fused activation last where there is one."""

IMAGE = (2, 5, 7, 3)
WIDE = (-7.0, 7.0)
K, C = 0.7978845608, 0.044715

SQUARE = ("MUL", "x", "x")
CUBIC = ("MUL", ("MUL", SQUARE, "x"), C)
C_X_X = ("MUL", ("MUL", C, "x"), "x")
POWER = ("MUL", C, ("POW", "x", 3.0))


def gaussian(inner: Term) -> Term:
    return ("ADD", ("TANH", inner), 1.0)


CURVE = gaussian(("MUL", ("ADD", "x", CUBIC), K))

GELU: Mapping[str, Term] = {
    "of PyTorch": ("MUL", "x", ("MUL", CURVE, 0.5)),
    "of Keras": ("MUL", ("MUL", 0.5, "x"), gaussian(("MUL", K, ("ADD", "x", POWER)))),
    "of BERT": ("MUL", "x", ("MUL", 0.5, ("ADD", 1.0, ("TANH", ("MUL", K, ("ADD", POWER, "x")))))),
    "of Hugging Face": ("MUL", ("MUL", "x", CURVE), 0.5),
    "with C x x": ("MUL", ("MUL", "x", 0.5), gaussian(("MUL", ("MUL", "x", K), ("ADD", C_X_X, 1.0)))),
    "with C x^2": ("MUL", gaussian(("MUL", ("MUL", "x", ("ADD", 1.0, ("MUL", C, SQUARE))), K)), ("MUL", 0.5, "x")),
}
NO_GELU: Mapping[str, Term] = {
    "0.6": ("MUL", "x", ("MUL", CURVE, 0.6)),
    "1.1": ("MUL", "x", ("MUL", ("ADD", ("TANH", CURVE[1][1]), 1.1), 0.5)),
    "different slope": ("MUL", "x", ("MUL", gaussian(("MUL", ("ADD", "x", CUBIC), 0.8)), 0.5)),
    "different cubic coefficient": (
        "MUL",
        "x",
        ("MUL", gaussian(("MUL", ("ADD", "x", ("MUL", ("MUL", SQUARE, "x"), 0.05)), K)), 0.5),
    ),
    "square instead of cube": (
        "MUL",
        "x",
        ("MUL", gaussian(("MUL", ("ADD", "x", ("MUL", C, ("POW", "x", 2.0))), K)), 0.5),
    ),
    "inner activation": ("MUL", "x", ("MUL", CURVE, 0.5, "RELU6")),
    "fused final activation": ("MUL", "x", ("MUL", CURVE, 0.5), "RELU6"),
    "subtraction": ("MUL", "x", ("MUL", ("SUB", CURVE[1], 1.0), 0.5)),
}

RAMP = ("ADD", "x", 3.0, "RELU6")
OPEN_RAMP = ("RELU6", ("ADD", 3.0, "x"))
LINE = ("ADD", ("MUL", "x", 1 / 6), 0.5)

HARD_SWISH: Mapping[str, Term] = {
    "x ramp 1/6": ("MUL", ("MUL", "x", RAMP), 1 / 6),
    "x ramp 6": ("DIV", ("MUL", "x", OPEN_RAMP), 6.0),
    "ramp 1/6 x": ("MUL", ("MUL", OPEN_RAMP, 1 / 6), "x"),
    "ramp 6 x": ("MUL", "x", ("DIV", RAMP, 6.0)),
    "1/6 x ramp": ("MUL", ("MUL", 1 / 6, "x"), OPEN_RAMP),
    "x 6 ramp": ("MUL", ("DIV", "x", 6.0), RAMP),
    "clipped line": ("MUL", "x", ("RELU", ("MINIMUM", LINE, 1.0))),
    "clipped line with division": ("MUL", ("RELU_0_TO_1", ("ADD", 0.5, ("DIV", "x", 6.0))), "x"),
}
NO_HARD_SWISH: Mapping[str, Term] = {
    "steeper ramp": ("MUL", ("MUL", "x", RAMP), 1 / 5),
    "different offset": ("MUL", "x", ("MUL", ("ADD", "x", 2.0, "RELU6"), 1 / 6)),
    "unbounded ramp": ("MUL", ("MUL", "x", ("ADD", "x", 3.0)), 1 / 6),
    "different bound": ("MUL", "x", ("RELU", ("MINIMUM", LINE, 0.9))),
    "inverted quotient": ("MUL", "x", ("DIV", 6.0, ("ADD", "x", 3.0, "RELU6"))),
    "inner activation": ("MUL", ("MUL", "x", RAMP, "RELU"), 1 / 6),
    "fused final activation": ("MUL", ("MUL", "x", RAMP), 1 / 6, "RELU"),
}
NEGATIVE = ("NEG", ("RELU", ("NEG", "x")))
SLOPES = {"by channel": (3,), "by row": (5, 1, 1), "by element": (5, 7, 3)}

PRELU: Mapping[str, Term] = {
    "with per-channel slopes": ("ADD", ("RELU", "x"), ("MUL", "by channel", NEGATIVE)),
    "with swapped operands": ("ADD", ("MUL", NEGATIVE, "by channel"), ("RELU", "x")),
    "with per-row slopes": ("ADD", ("RELU", "x"), ("MUL", "by row", NEGATIVE)),
    "with per-element slopes": ("ADD", ("RELU", "x"), ("MUL", "by element", NEGATIVE)),
    "with one slope": ("ADD", ("RELU", "x"), ("MUL", 0.25, NEGATIVE)),
}
NO_PRELU: Mapping[str, Term] = {
    "positive part twice": ("ADD", ("RELU", "x"), ("MUL", "by channel", ("NEG", ("RELU", "x")))),
    "missing sign": ("ADD", ("RELU", "x"), ("MUL", "by channel", ("RELU", ("NEG", "x")))),
    "RELU6": ("ADD", ("RELU6", "x"), ("MUL", "by channel", NEGATIVE)),
    "fused final activation": ("ADD", ("RELU", "x"), ("MUL", "by channel", NEGATIVE), "RELU6"),
    "subtraction": ("SUB", ("RELU", "x"), ("MUL", "by channel", NEGATIVE)),
}


def cases() -> Iterator[Case]:
    forms_of = (("GELU", GELU, NO_GELU), ("HARD_SWISH", HARD_SWISH, NO_HARD_SWISH), ("PRELU", PRELU, NO_PRELU))
    for op, forms, others in forms_of:
        for name, term in forms.items():
            yield net(op, f"decomposed {name}", term_model(term), input_range=WIDE, opsets=EVERY_OPSET)
            inside = term_model(term, inside=True)
            yield net(op, f"decomposed {name} between convolutions", inside, input_range=WIDE, max_transposes=2)
        for name, term in others.items():
            span = (-2.0, 7.0) if "quotient" in name else WIDE
            yield net(op, f"decomposed with {name}", term_model(term), input_range=span)
        if op == "PRELU":
            yield net(op, "decomposed with per-image slopes", slopes_per_image)
            continue
        first = next(iter(forms.values()))
        yield net(op, "decomposed on two tensors", two_tensors(first), input_range=WIDE)
        yield net(op, "decomposed with an inner output", with_intermediate_output(first), input_range=WIDE)
        stored = tensor(*IMAGE, dtype="int8")
        steps = (
            {"tolerance": Tolerance(steps=2), "tolerance_reason": "six operators round one after the other"}
            if op == "GELU"
            else {}
        )
        yield net(op, "decomposed int8", term_model(first, stored, inside=True), dtype="int8", **steps)


def slopes_per_image(model: Net) -> None:
    """Build slopes for a batch of two, which broadcast one image to two."""
    one_image, two_images = tensor(1, *IMAGE[1:]), tensor(*IMAGE)
    x = model.input(one_image)
    negative = model.call("NEG", [model.call("RELU", [model.call("NEG", [x], one_image)], one_image)], one_image)
    slopes = constant(random_array(*IMAGE, seed="slopes", low=-0.7, high=1.8))
    model.output(
        model.call(
            "ADD", [model.call("RELU", [x], one_image), model.call("MUL", [slopes, negative], two_images)], two_images
        )
    )


def term_model(term: Term, image: Spec | None = None, *, inside: bool = False) -> Callable[[Net], None]:
    """Return a model of the term, or of the term between convolutions."""
    like = image or tensor(*IMAGE)

    def build(model: Net) -> None:
        x = model.input_through_conv(like) if inside else model.input(like)
        y = write_term(model, term, like, {"x": x})
        model.output(model.output_through_conv(y) if inside else y)

    return build


def two_tensors(term: Term) -> Callable[[Net], None]:
    """Return a model whose last factor is another tensor: a gate instead of an activation."""
    code, *terms = term

    def build(model: Net) -> None:
        like = tensor(*IMAGE)
        variables = {"x": model.input(like), "y": model.input(like)}
        gated = (code, *("y" if part == "x" else swap_operands(part) for part in terms))
        model.output(write_term(model, gated, like, variables))

    def swap_operands(part: Term) -> Term:
        product = isinstance(part, tuple) and part[0] == "MUL" and "x" in part
        return ("MUL", *("y" if inner == "x" else inner for inner in part[1:])) if product else part

    return build


def with_intermediate_output(term: Term) -> Callable[[Net], None]:
    """Return a model that also returns an intermediate value of the activation."""

    def build(model: Net) -> None:
        like = tensor(*IMAGE)
        code, *terms = term
        variables = {"x": model.input(like)}
        variables["inner"] = write_term(model, next(part for part in terms if isinstance(part, tuple)), like, variables)
        y = write_term(
            model, (code, *("inner" if isinstance(part, tuple) else part for part in terms)), like, variables
        )
        model.output(y, variables["inner"])

    return build


def write_term(model: Net, term: Term, like: Spec, variables: Mapping[str, TensorRef]) -> TensorRef:
    """Add the operators of a term."""
    if term in SLOPES:
        return model.add_operand(constant(random_array(*SLOPES[term], seed="slopes", low=-0.7, high=1.8)))
    if isinstance(term, str):
        return variables[term]
    if isinstance(term, float):
        return model.add_operand(number(term, like))
    code, *terms = term
    fused = [part for part in terms if isinstance(part, str) and part.isupper()]
    operands = [write_term(model, part, like, variables) for part in terms if part not in fused]
    more = {"fused_activation_function": fused[0]} if fused else {}
    table = code == "TANH" and like.dtype == "int8"
    return model.call(code, operands, replace(like, scale=1 / 128, zero_point=0) if table else like, **more)


def number(value: float, like: Spec) -> Spec:
    if like.dtype == "float32":
        return constant(value)
    return constant(127 if value > 0 else -127, like.dtype, abs(value) / 127, 0)
