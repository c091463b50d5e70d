"""Decomposed GELU, HARD_SWISH and PRELU, and patterns that must not be fused."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from conformance.builder import TensorRef
from conformance.case import EVERY_OPSET, Case, Tolerance
from conformance.models import Net, Spec, constant, net, random_array, tensor

Term = Any
"""``"x"``, a number, a key of ``SLOPES``, or a tuple of an operator, its operands and optionally its fused activation."""

IMAGE = (2, 5, 7, 3)
WIDE = (-7.0, 7.0)
K, C = 0.7978845608, 0.044715  # constants of the tanh approximation of GELU

SQUARE = ("MUL", "x", "x")
CUBIC = ("MUL", ("MUL", SQUARE, "x"), C)
C_X_X = ("MUL", ("MUL", C, "x"), "x")
POWER = ("MUL", C, ("POW", "x", 3.0))


def one_plus_tanh(inner: Term) -> Term:
    return ("ADD", ("TANH", inner), 1.0)


INNER = ("MUL", ("ADD", "x", CUBIC), K)
ONE_PLUS_TANH = one_plus_tanh(INNER)

GELU: Mapping[str, Term] = {
    "of PyTorch": ("MUL", "x", ("MUL", ONE_PLUS_TANH, 0.5)),
    "of Keras": ("MUL", ("MUL", 0.5, "x"), one_plus_tanh(("MUL", K, ("ADD", "x", POWER)))),
    "of BERT": ("MUL", "x", ("MUL", 0.5, ("ADD", 1.0, ("TANH", ("MUL", K, ("ADD", POWER, "x")))))),
    "of Hugging Face": ("MUL", ("MUL", "x", ONE_PLUS_TANH), 0.5),
    "with C x x": ("MUL", ("MUL", "x", 0.5), one_plus_tanh(("MUL", ("MUL", "x", K), ("ADD", C_X_X, 1.0)))),
    "with C x^2": ("MUL", one_plus_tanh(("MUL", ("MUL", "x", ("ADD", 1.0, ("MUL", C, SQUARE))), K)), ("MUL", 0.5, "x")),
}
NO_GELU: Mapping[str, Term] = {
    "factor 0.6 instead of 0.5": ("MUL", "x", ("MUL", ONE_PLUS_TANH, 0.6)),
    "addend 1.1 instead of 1": ("MUL", "x", ("MUL", ("ADD", ("TANH", INNER), 1.1), 0.5)),
    "different slope": ("MUL", "x", ("MUL", one_plus_tanh(("MUL", ("ADD", "x", CUBIC), 0.8)), 0.5)),
    "different cubic coefficient": (
        "MUL",
        "x",
        ("MUL", one_plus_tanh(("MUL", ("ADD", "x", ("MUL", ("MUL", SQUARE, "x"), 0.05)), K)), 0.5),
    ),
    "square instead of cube": (
        "MUL",
        "x",
        ("MUL", one_plus_tanh(("MUL", ("ADD", "x", ("MUL", C, ("POW", "x", 2.0))), K)), 0.5),
    ),
    "inner activation": ("MUL", "x", ("MUL", ONE_PLUS_TANH, 0.5, "RELU6")),
    "fused final activation": ("MUL", "x", ("MUL", ONE_PLUS_TANH, 0.5), "RELU6"),
    "subtraction": ("MUL", "x", ("MUL", ("SUB", ("TANH", INNER), 1.0), 0.5)),
}

RAMP = ("ADD", "x", 3.0, "RELU6")
UNFUSED_RAMP = ("RELU6", ("ADD", 3.0, "x"))
LINE = ("ADD", ("MUL", "x", 1 / 6), 0.5)

HARD_SWISH: Mapping[str, Term] = {
    "(x * ramp) * 1/6": ("MUL", ("MUL", "x", RAMP), 1 / 6),
    "(x * ramp) / 6": ("DIV", ("MUL", "x", UNFUSED_RAMP), 6.0),
    "(ramp * 1/6) * x": ("MUL", ("MUL", UNFUSED_RAMP, 1 / 6), "x"),
    "x * (ramp / 6)": ("MUL", "x", ("DIV", RAMP, 6.0)),
    "(1/6 * x) * ramp": ("MUL", ("MUL", 1 / 6, "x"), UNFUSED_RAMP),
    "(x / 6) * ramp": ("MUL", ("DIV", "x", 6.0), RAMP),
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
NEGATIVE_PART = ("NEG", ("RELU", ("NEG", "x")))
SLOPES = {"channel slopes": (3,), "row slopes": (5, 1, 1), "element slopes": (5, 7, 3)}

PRELU: Mapping[str, Term] = {
    "with per-channel slopes": ("ADD", ("RELU", "x"), ("MUL", "channel slopes", NEGATIVE_PART)),
    "with swapped operands": ("ADD", ("MUL", NEGATIVE_PART, "channel slopes"), ("RELU", "x")),
    "with per-row slopes": ("ADD", ("RELU", "x"), ("MUL", "row slopes", NEGATIVE_PART)),
    "with per-element slopes": ("ADD", ("RELU", "x"), ("MUL", "element slopes", NEGATIVE_PART)),
    "with one slope": ("ADD", ("RELU", "x"), ("MUL", 0.25, NEGATIVE_PART)),
}
NO_PRELU: Mapping[str, Term] = {
    "no inner NEG": ("ADD", ("RELU", "x"), ("MUL", "channel slopes", ("NEG", ("RELU", "x")))),
    "no outer NEG": ("ADD", ("RELU", "x"), ("MUL", "channel slopes", ("RELU", ("NEG", "x")))),
    "RELU6": ("ADD", ("RELU6", "x"), ("MUL", "channel slopes", NEGATIVE_PART)),
    "fused final activation": ("ADD", ("RELU", "x"), ("MUL", "channel slopes", NEGATIVE_PART), "RELU6"),
    "subtraction": ("SUB", ("RELU", "x"), ("MUL", "channel slopes", NEGATIVE_PART)),
}


def cases() -> Iterator[Case]:
    patterns = (("GELU", GELU, NO_GELU), ("HARD_SWISH", HARD_SWISH, NO_HARD_SWISH), ("PRELU", PRELU, NO_PRELU))
    for op, fused_terms, similar_terms in patterns:
        for name, term in fused_terms.items():
            yield net(op, f"decomposed {name}", term_model(term), input_range=WIDE, opsets=EVERY_OPSET)
            build = term_model(term, between_convs=True)
            yield net(op, f"decomposed {name} between convolutions", build, input_range=WIDE, max_transposes=2)
        for name, term in similar_terms.items():
            input_range = (-2.0, 7.0) if "quotient" in name else WIDE  # 6 / RELU6(x + 3) is infinite from -3 down
            yield net(op, f"not fused, {name}", term_model(term), input_range=input_range)
        if op == "PRELU":
            yield net(op, "not fused, per-image slopes", slopes_per_image)
            continue
        term = next(iter(fused_terms.values()))
        yield net(op, "not fused, gate from another tensor", two_tensors(term), input_range=WIDE)
        yield net(op, "not fused, intermediate value as output", with_intermediate_output(term), input_range=WIDE)
        image = tensor(*IMAGE, dtype="int8")
        tolerance = (
            {"tolerance": Tolerance(steps=2), "tolerance_reason": "six operators round one after the other"}
            if op == "GELU"
            else {}
        )
        yield net(op, "not fused, int8", term_model(term, image, between_convs=True), dtype="int8", **tolerance)


def slopes_per_image(model: Net) -> None:
    """Build slopes for two images, applied to one image.

    PRelu broadcasts only the slopes, not the image.
    """
    one_image, two_images = tensor(1, *IMAGE[1:]), tensor(*IMAGE)
    x = model.input(one_image)
    negative = model.call("NEG", [model.call("RELU", [model.call("NEG", [x], one_image)], one_image)], one_image)
    slopes = constant(random_array(*IMAGE, seed="slopes", low=-0.7, high=1.8))
    model.output(
        model.call(
            "ADD", [model.call("RELU", [x], one_image), model.call("MUL", [slopes, negative], two_images)], two_images
        )
    )


def term_model(term: Term, image: Spec | None = None, *, between_convs: bool = False) -> Callable[[Net], None]:
    """Return a builder of the term, in isolation or between convolutions."""
    spec = image or tensor(*IMAGE)

    def build(model: Net) -> None:
        x = model.input_through_conv(spec) if between_convs else model.input(spec)
        y = write_term(model, term, spec, {"x": x})
        model.output(model.output_through_conv(y) if between_convs else y)

    return build


def two_tensors(term: Term) -> Callable[[Net], None]:
    """Return a builder of the term with its factor x replaced by another tensor.

    ``x * sigmoid(x)`` becomes ``y * sigmoid(x)``, which is a gate and not an activation.
    """
    code, *terms = term

    def build(model: Net) -> None:
        image = tensor(*IMAGE)
        variables = {"x": model.input(image), "y": model.input(image)}
        gated = (code, *("y" if part == "x" else replace_factor(part) for part in terms))
        model.output(write_term(model, gated, image, variables))

    def replace_factor(part: Term) -> Term:
        is_product_with_x = isinstance(part, tuple) and part[0] == "MUL" and "x" in part
        return ("MUL", *("y" if inner == "x" else inner for inner in part[1:])) if is_product_with_x else part

    return build


def with_intermediate_output(term: Term) -> Callable[[Net], None]:
    """Return a builder of a term, one of whose intermediate values is a graph output."""

    def build(model: Net) -> None:
        image = tensor(*IMAGE)
        code, *terms = term
        variables = {"x": model.input(image)}
        variables["inner"] = write_term(
            model, next(part for part in terms if isinstance(part, tuple)), image, variables
        )
        y = write_term(
            model, (code, *("inner" if isinstance(part, tuple) else part for part in terms)), image, variables
        )
        model.output(y, variables["inner"])

    return build


def write_term(model: Net, term: Term, image: Spec, variables: Mapping[str, TensorRef]) -> TensorRef:
    """Add the operators of a term; all results have the spec ``image``.

    ``variables``: name -> tensor.
    """
    if term in SLOPES:
        return model.add_operand(constant(random_array(*SLOPES[term], seed="slopes", low=-0.7, high=1.8)))
    if isinstance(term, str):
        return variables[term]
    if isinstance(term, float):
        return model.add_operand(scalar_operand(term, image))
    code, *terms = term
    fused = [part for part in terms if isinstance(part, str) and part.isupper()]
    operands = [write_term(model, part, image, variables) for part in terms if part not in fused]
    options = {"fused_activation_function": fused[0]} if fused else {}
    has_fixed_scale = code == "TANH" and image.dtype == "int8"
    return model.call(
        code, operands, replace(image, scale=1 / 128, zero_point=0) if has_fixed_scale else image, **options
    )


def scalar_operand(value: float, image: Spec) -> Spec:
    if image.dtype == "float32":
        return constant(value)
    return constant(127 if value > 0 else -127, image.dtype, abs(value) / 127, 0)
