"""Decomposed LayerNormalization and RMSNormalization.

Similar patterns must not be fused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from conformance.builder import TensorRef
from conformance.case import Case
from conformance.models import Net, constant, net, random_array, tensor

IMAGE = (2, 5, 7, 3)
OP = "MEAN"  # the support table counts these cases for MEAN, which each of these patterns contains


def cases() -> Iterator[Case]:
    for scaled in (True, False):
        for shifted in (True, False):
            name = f"{'scaled' if scaled else 'plain'}{', shifted' if shifted else ''}"
            yield normalization_case(f"of Keras, {name}", partial(keras, scaled=scaled, shifted=shifted))
            yield normalization_case(f"of PyTorch, {name}", partial(pytorch, scaled=scaled, shifted=shifted))
    for square in ("SQUARE", "POW", "SQUARED_DIFFERENCE"):
        yield normalization_case(f"of PyTorch, by {square}", partial(pytorch, square=square))
    yield normalization_case("of PyTorch, by a quotient", partial(pytorch, quotient=True))
    for scaled, shifted in ((True, True), (False, False), (True, False), (False, True)):
        name = f"{'scaled' if scaled else 'plain'}{', shifted' if shifted else ''}"
        yield litert_torch_case(name, (2, 5, 7), (2,), scaled=scaled, shifted=shifted)
    yield litert_torch_case("with additional axes of size 1", (1, 5, 7), (0, 2))
    yield litert_torch_case("of rows", (5, 7), (-1,))
    yield litert_torch_case("of dynamic shape", (None, 5, 7), (2,))
    for name, scaled, shifted in (("a scale", True, False), ("an offset", False, True), ("both", True, True)):
        yield litert_torch_case(
            f"{name} of higher rank", (1, 5, 7), (0, 2), scaled=scaled, shifted=shifted, leading=(1, 1, 1)
        )
    yield litert_torch_case("over the middle axis", (2, 5, 1), (1, 2), fused=False)
    yield litert_torch_case("with a nonzero minuend", (2, 5, 7), (2,), minuend=0.25, fused=False)
    yield unfused_case("over height and width", partial(keras, axes=(1, 2)))
    yield unfused_case("over all but the first axis", partial(keras, axes=(1, 2, 3)))
    yield unfused_case("with an activation", partial(keras, activation="RELU"))
    yield unfused_case("with a power of 3", partial(pytorch, square="POW", power=3.0))
    yield unfused_case("with a scale per row", partial(keras, scale=(7, 1)))
    for scale in ((7, 3), (5, 7, 3), (5, 1, 3), (2, 1, 1, 3)):
        name = "x".join(map(str, scale))
        yield unfused_case(f"of Keras with a scale of {name}", partial(keras, scale=scale))
        yield unfused_case(f"of PyTorch with a scale of {name}", partial(pytorch, scale=scale))
        yield unfused_case(f"of PyTorch with an offset of {name}", partial(pytorch, offset=scale))
        yield rms_case(f"with a scale of {name}", shape=IMAGE, axis=3, scale=scale, fused=False, opsets=(None,))
    yield litert_torch_case("with a scale of 5x7", (2, 5, 7), (2,), scaled=True, leading=(5,), fused=False)
    yield litert_torch_case("with an offset of 5x7", (2, 5, 7), (2,), shifted=True, leading=(5,), fused=False)
    yield unfused_case("with the mean as an output", partial(keras, mean_is_output=True))
    yield from rms_cases()


def normalization_case(name: str, add_normalization: Callable[..., TensorRef]) -> Case:
    """Return a case of a normalization between convolutions.

    A normalization needs channels last: there are two Transposes around it, and two at the graph input and output.
    """

    def build(model: Net) -> None:
        model.output(model.output_through_conv(add_normalization(model, model.input_through_conv(tensor(*IMAGE)))))

    return net(OP, f"LayerNormalization {name}", build, max_transposes=4, opsets=(None, 13, 17, 26))


def litert_torch_case(
    name: str,
    shape: tuple[int | None, ...],
    axes: tuple[int, ...],
    *,
    scaled: bool = False,
    shifted: bool = False,
    minuend: float = 0.0,
    fused: bool = True,
    leading: tuple[int, ...] = (),
) -> Case:
    """Return a case of a normalization as litert-torch writes it.

    A mean without the reduced axes is followed by RESHAPE.

    ``axes``: the reduced axes. ``minuend``: constant from which the scaled mean is subtracted, 0 in a normalization.
    ``fused``: the graph becomes one node. ``leading``: sizes of scale and offset before the channels; the result has the
    same rank as they have.
    """
    reduced_axes = {axis % len(shape) for axis in axes}
    mean_shape = tuple(n for k, n in enumerate(shape) if k not in reduced_axes)
    broadcast_shape = (*shape[:-1], 1) if fused else tuple(1 if k in reduced_axes else n for k, n in enumerate(shape))

    def build(model: Net) -> None:
        x, mean_spec, result_spec = model.input(tensor(*shape)), tensor(*mean_shape), tensor(*shape)
        axes_operand = constant(list(axes), "int32")
        shape_operand = constant([-1 if n is None else n for n in broadcast_shape], "int32")

        def restore_axes(ref: TensorRef) -> TensorRef:
            return model.call("RESHAPE", [ref, shape_operand], tensor(*broadcast_shape))

        mean = model.call("MEAN", [x, axes_operand], mean_spec)
        squares = model.call("SQUARED_DIFFERENCE", [x, restore_axes(mean)], result_spec)
        variance = model.call("MEAN", [squares, axes_operand], mean_spec)
        inverse = model.call("RSQRT", [model.call("ADD", [variance, constant(1e-3)], mean_spec)], mean_spec)
        offset = model.call("SUB", [constant(minuend), model.call("MUL", [inverse, mean], mean_spec)], mean_spec)
        normalized = model.call("MUL", [x, restore_axes(inverse)], result_spec)
        y = model.call("ADD", [normalized, restore_axes(offset)], result_spec)
        result_spec = tensor(*(1,) * (1 + len(leading) - len(shape)), *shape)
        if scaled:
            y = model.call("MUL", [y, constant(random_array(*leading, 7, seed="gamma"))], result_spec)
        if shifted:
            y = model.call("ADD", [y, constant(random_array(*leading, 7, seed="beta"))], result_spec)
        model.output(y)

    return net(OP, f"{'' if fused else 'not fused, '}LayerNormalization of litert-torch, {name}", build)


def unfused_case(name: str, add_normalization: Callable[..., TensorRef]) -> Case:
    return net(
        OP,
        f"not fused, LayerNormalization {name}",
        lambda model: model.output(add_normalization(model, model.input(tensor(*IMAGE)))),
    )


def mean(model: Net, x: TensorRef, axes: tuple[int, ...]) -> TensorRef:
    shape = tuple(1 if axis in {a % 4 for a in axes} else size for axis, size in enumerate(IMAGE))
    return model.call("MEAN", [x, constant(list(axes), "int32")], tensor(*shape), keep_dims=True)


def call_like(model: Net, code: str, x: TensorRef, *operands: Any) -> TensorRef:
    """Add a float32 operator whose result has the shape of its first operand."""
    return model.call(code, [x, *operands], tensor(*x.shape))


def keras(
    model: Net,
    x: TensorRef,
    *,
    scaled: bool = True,
    shifted: bool = True,
    axes: tuple[int, ...] = (-1,),
    scale: tuple[int, ...] = (1, 1, 1, 3),
    activation: str = "NONE",
    mean_is_output: bool = False,
) -> TensorRef:
    """Add a normalization as Keras writes it: x times a factor, plus an offset."""
    image = tensor(*IMAGE)
    average = mean(model, x, axes)
    variance = mean(model, model.call("SQUARED_DIFFERENCE", [x, average], image), axes)
    inverse = call_like(model, "RSQRT", call_like(model, "ADD", variance, constant(1e-3)))
    factor_spec = tensor(*np.broadcast_shapes(inverse.shape, scale if scaled else ()))
    factor = model.call("MUL", [inverse, constant(random_array(*scale))], factor_spec) if scaled else inverse
    if shifted:
        scaled_mean = model.call("MUL", [average, factor], factor_spec)
        offset = model.call(
            "SUB",
            [constant(random_array(3, seed="offset")), scaled_mean],
            tensor(*np.broadcast_shapes(inverse.shape, scale if scaled else (), (3,))),
        )
    else:
        offset = model.call("MUL", [call_like(model, "NEG", average), factor], factor_spec)
    if mean_is_output:
        model.output(average)
    return model.call(
        "ADD", [model.call("MUL", [x, factor], image), offset], image, fused_activation_function=activation
    )


def pytorch(
    model: Net,
    x: TensorRef,
    *,
    scaled: bool = True,
    shifted: bool = True,
    square: str = "MUL",
    quotient: bool = False,
    power: float = 2.0,
    scale: tuple[int, ...] = (3,),
    offset: tuple[int, ...] = (1, 1, 3),
) -> TensorRef:
    """Add a normalization as PyTorch writes it.

    The difference from the mean is divided by the deviation.

    ``square``: the operator that computes squares. ``quotient``: DIV by SQRT instead of MUL by RSQRT. ``scale``, ``offset``:
    shapes of the constants.
    """
    image = tensor(*IMAGE)
    average = mean(model, x, (3,))
    centered = model.call("SUB", [x, average], image)
    operands: dict[str, list[Any]] = {
        "MUL": [centered, centered],
        "SQUARE": [centered],
        "POW": [centered, constant(power)],
        "SQUARED_DIFFERENCE": [x, average],
    }
    variance = mean(model, model.call(square, operands[square], image), (3,))
    variance = call_like(model, "ADD", variance, constant(20.0 if power == 3.0 else 1e-5))
    if quotient:
        y = model.call("DIV", [centered, call_like(model, "SQRT", variance)], image)
    else:
        y = model.call("MUL", [centered, call_like(model, "RSQRT", variance)], image)
    y = model.call("MUL", [y, constant(random_array(*scale, seed="scale"))], image) if scaled else y
    return model.call("ADD", [y, constant(random_array(*offset, seed="offset"))], image) if shifted else y


# --- RMSNormalization -------------------------------------------------------------------------


def rms_cases() -> Iterator[Case]:
    for square in ("MUL", "SQUARE", "POW"):
        yield rms_case(f"by {square}", square=square)
    yield rms_case("by a quotient", quotient=True)
    yield rms_case("without a scale", scale=())
    yield rms_case("with a scale of higher rank", scale=(1, 1, 3))
    yield rms_case("with the mean square reshaped", reshaped="mean square")
    yield rms_case("with the inverse root reshaped", reshaped="inverse")
    yield rms_case("of dynamic batch", shape=(None, 7, 3), opsets=(None,))
    yield rms_case("with a large epsilon", epsilon=2.0, opsets=(None,))
    yield rms_case("of a power of 3", square="POW", power=3.0, epsilon=20.0, fused=False, opsets=(None,))
    yield rms_case("over a different axis", axis=1, shape=(5, 3, 3), fused=False, opsets=(None,))
    yield rms_case("with a scale per row", shape=(5, 3, 3), scale=(3, 1), fused=False, opsets=(None,))
    yield rms_case("with the square of another tensor", squares_another_tensor=True, fused=False, opsets=(None,))


def rms_case(
    name: str,
    *,
    shape: tuple[int | None, ...] = (5, 7, 3),
    scale: tuple[int, ...] = (3,),
    square: str = "MUL",
    power: float = 2.0,
    quotient: bool = False,
    reshaped: str = "",
    axis: int = 2,
    epsilon: float = 1e-3,
    squares_another_tensor: bool = False,
    fused: bool = True,
    opsets: tuple[int | None, ...] = (None, 13, 26),
) -> Case:
    """Return a case of a normalization by the root of the mean square.

    ``square``: the operator that computes squares. ``power``: the exponent of POW. ``quotient``: DIV by SQRT instead of MUL by RSQRT.
    ``scale``: shape of the scale, () for none. ``axis``: the normalized axis. ``reshaped``: the value that is reshaped to
    restore this axis, "" if MEAN keeps it. ``squares_another_tensor``: the mean square is that of a second input.
    """
    kept_shape = tuple(1 if k == axis else n for k, n in enumerate(shape))
    reduced_shape = tuple(n for k, n in enumerate(shape) if k != axis)

    def build(model: Net) -> None:
        x, result_spec = model.input(tensor(*shape)), tensor(*shape)
        squared = model.input(tensor(*shape)) if squares_another_tensor else x
        second_operands: dict[str, list[Any]] = {"MUL": [squared], "SQUARE": [], "POW": [constant(power)]}
        squares = model.call(square, [squared, *second_operands[square]], result_spec)
        mean_spec = tensor(*(reduced_shape if reshaped else kept_shape))
        mean_square = model.call("MEAN", [squares, constant([axis], "int32")], mean_spec, keep_dims=not reshaped)
        mean_square = model.call("ADD", [mean_square, constant(epsilon)], mean_spec)
        shape_operand = constant([-1 if n is None else n for n in kept_shape], "int32")
        if reshaped == "mean square":
            mean_square = model.call("RESHAPE", [mean_square, shape_operand], tensor(*kept_shape))
        inverse_spec = tensor(*(reduced_shape if reshaped == "inverse" else kept_shape))
        inverse = model.call("SQRT" if quotient else "RSQRT", [mean_square], inverse_spec)
        if reshaped == "inverse":
            inverse = model.call("RESHAPE", [inverse, shape_operand], tensor(*kept_shape))
        y = model.call("DIV" if quotient else "MUL", [x, inverse], result_spec)
        scaled = model.call("MUL", [y, constant(random_array(*scale, seed="gamma"))], result_spec) if scale else y
        model.output(scaled)

    expected_fusions = ("RMS_NORMALIZATION",) if fused else ()
    return net(
        OP, f"{'' if fused else 'not fused, '}RMSNormalization {name}", build, opsets=opsets, fusions=expected_fusions
    )
