"""CONCATENATION and PACK along every axis, positive and negative."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from conformance.case import Case
from conformance.cases.tensor.splitting import unpack
from conformance.models import (
    PLACEMENTS,
    Net,
    Placement,
    Spec,
    between_convolutions,
    in_isolation,
    net,
    opsets,
    random_array,
    random_constant,
    tensor,
)

IMAGE = (2, 5, 7, 3)
AXES = (0, 1, 2, 3, -1, -2, -3, -4)
FLOAT_OR_QUANTIZED = ("float32", "int8", "uint8", "int16")


def cases() -> Iterator[Case]:
    yield from concatenation_cases()
    yield from pack_cases()


# --- CONCATENATION ----------------------------------------------------------------------------


def concatenation_case(
    name: str,
    operands: Sequence[Spec],
    axis: int,
    place: Placement = in_isolation,
    y: Spec | None = None,
    **case_fields: Any,
) -> Case:
    first = operands[0]
    shape = list(first.shape)
    shape[axis] = sum(part.shape[axis] or 0 for part in operands)
    options = {"axis": axis, **case_fields.pop("options", {})}
    return place(
        "CONCATENATION",
        name,
        operands,
        (y or Spec(first.shape, first.dtype, first.scale, first.zero_point)).with_shape(*shape),
        options=options,
        **case_fields,
    )


def concatenation_cases() -> Iterator[Case]:
    for axis in (0, 1, 2, 3, -1, -2, -3, -4):
        shape = list(IMAGE)
        shape[axis] += 1
        x = tensor(*IMAGE)
        yield concatenation_case(f"float32 axis {axis}", [x, x.with_shape(*shape)], axis, between_convolutions)
    for dtype in (*FLOAT_OR_QUANTIZED, "float16", "int32", "int64", "uint32", "bool"):
        x = tensor(*IMAGE, dtype=dtype)
        yield concatenation_case(dtype, [x, x.with_shape(2, 5, 7, 4), x], 3, opsets=opsets(dtype))
    for dtype in FLOAT_OR_QUANTIZED:
        x = tensor(*IMAGE, dtype=dtype)
        yield concatenation_case(f"{dtype} along channels", [x, x.with_shape(2, 5, 7, 4)], -1, between_convolutions)
        yield concatenation_case(
            f"{dtype} with a constant", [x, random_constant(x.with_shape(2, 5, 2, 3))], 2, between_convolutions
        )
        yield concatenation_case(
            f"{dtype}, leading constant", [random_constant(x.with_shape(2, 5, 7, 2)), x], 3, between_convolutions
        )
    x = tensor(*IMAGE, dtype="uint8")
    operands = [x, x.rescale(0.5, 3), x.rescale(2.0, 200)]
    for place in PLACEMENTS:
        yield concatenation_case(
            "uint8 with different scales, which are requantized", operands, 3, place, x.rescale(1.3, 90)
        )
    unscaled = Spec(IMAGE, "uint8")
    yield concatenation_case("uint8, one operand without scale", [x, unscaled], 3, refusal="has no scale")
    yield concatenation_case("uint8 without scales", [unscaled, unscaled.with_shape(2, 5, 7, 4)], 3)
    y = tensor(*IMAGE, dtype="int8")
    yield concatenation_case("int8 with different scales", [y, y.rescale(2)], 3, kernel_refusal="params.scale")
    options = {"fused_activation_function": "RELU"}
    refusal = "LiteRT refuses a fused RELU for this operator"
    yield concatenation_case(
        "RELU", [tensor(*IMAGE)], 3, options=options, refusal=refusal, kernel_refusal="kTfLiteActNone"
    )
    yield concatenation_case(
        "RELU, two operands", [tensor(*IMAGE), tensor(*IMAGE)], 3, options=options, refusal=refusal
    )
    yield concatenation_case("one operand", [tensor(*IMAGE)], 3)
    yield concatenation_case("empty operand", [tensor(2, 0, 3), tensor(2, 5, 3)], 1)
    yield concatenation_case("rank 1", [tensor(3), tensor(5)], 0)
    yield concatenation_case("rank 5", [tensor(2, 3, 1, 5, 7), tensor(2, 3, 4, 5, 7)], 2)
    yield net("CONCATENATION", "repeated operand", concatenate_twice, max_transposes=2)


def concatenate_twice(model: Net) -> None:
    image = model.input_through_conv(tensor(*IMAGE))
    model.output(model.output_through_conv(model.call("CONCATENATION", [image, image], tensor(2, 5, 7, 6), axis=-1)))


# --- PACK -------------------------------------------------------------------------------------


def pack_case(name: str, operands: Sequence[Spec], axis: int, **case_fields: Any) -> Case:
    shape, axis_index = operands[0].shape, axis % (len(operands[0].shape) + 1)
    y = replace(operands[0], value=None, name="").with_shape(*shape[:axis_index], len(operands), *shape[axis_index:])
    return in_isolation("PACK", name, operands, y, options={"axis": axis, "values_count": len(operands)}, **case_fields)


def pack_cases() -> Iterator[Case]:
    """Yield cases of PACK.

    A negative axis counts from the end of the result, which has one more axis.
    """
    for axis in (*AXES, 4, -5):
        yield pack_case(f"axis {axis}", [tensor(*IMAGE), tensor(*IMAGE)], axis)
        yield net("PACK", f"axis {axis} between convolutions", swap_images(axis, "float32"), max_transposes=4)
    for dtype in FLOAT_OR_QUANTIZED:
        x = tensor(*IMAGE, dtype=dtype)
        yield pack_case(dtype, [x, x, x], -2, opsets=opsets(dtype))
        yield pack_case(f"{dtype} with a constant", [x, random_constant(x)], 2, dtype=dtype)
        yield net("PACK", f"{dtype} between convolutions", swap_images(2, dtype), dtype=dtype, max_transposes=4)
    for dtype in ("int32", "int64", "uint32"):
        yield pack_case(dtype, [tensor(5, 3, dtype=dtype)] * 2, 1)
    yield pack_case("one operand", [tensor(5, 3)], 1)
    yield pack_case("scalars", [tensor(), tensor(), tensor()], 0)
    yield pack_case(
        "dynamic sizes",
        [tensor(None, None)] * 2,
        1,
        input_arrays=[{"x0": random_array(n, 3), "x1": random_array(n, 3)} for n in (1, 4)],
    )
    yield pack_case("bool", [tensor(5, dtype="bool")] * 2, 0, kernel_refusal="not supported by pack")
    x = tensor(5, dtype="int8")
    kernel_refusal = "params.zero_point"
    yield pack_case("int8 with different zero points", [x, x.rescale(1, 40)], 0, kernel_refusal=kernel_refusal)


def swap_images(axis: int, dtype: str) -> Callable[[Net], None]:
    """Return a build function: pack, unpack and swap two images, between convolutions.

    RELU is applied to the packed images.
    """

    def build(model: Net) -> None:
        x = tensor(*IMAGE, dtype=dtype)
        axis_index = axis % 5
        stacked_spec = x.with_shape(*IMAGE[:axis_index], 2, *IMAGE[axis_index:])
        stacked = model.call(
            "PACK", [model.input_through_conv(x), model.input_through_conv(x)], stacked_spec, axis=axis, values_count=2
        )
        activated = model.call("RELU", [stacked], stacked_spec)
        first, second = unpack(model, activated, [x, x], axis)
        model.output(model.output_through_conv(second), model.output_through_conv(first))

    return build
