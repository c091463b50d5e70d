"""Decomposed LayerNormalization, and similar patterns that must not be fused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from conformance.builder import TensorRef
from conformance.case import Case
from conformance.models import Net, constant, net, random_array, tensor

IMAGE = (2, 5, 7, 3)
OP = "MEAN"  # the support table counts these cases for MEAN, which only normalizations need


def cases() -> Iterator[Case]:
    for scaled in (True, False):
        for shifted in (True, False):
            name = f"{'scaled' if scaled else 'plain'}{', shifted' if shifted else ''}"
            yield normalization_case(f"of Keras, {name}", partial(keras, scaled=scaled, shifted=shifted))
            yield normalization_case(f"of PyTorch, {name}", partial(pytorch_case, scaled=scaled, shifted=shifted))
    for square in ("SQUARE", "POW", "SQUARED_DIFFERENCE"):
        yield normalization_case(f"of PyTorch, by {square}", partial(pytorch_case, square=square))
    yield normalization_case("of PyTorch, by a quotient", partial(pytorch_case, quotient=True))
    for scaled, shifted in ((True, True), (False, False), (True, False), (False, True)):
        name = f"{'scaled' if scaled else 'plain'}{', shifted' if shifted else ''}"
        yield litert_torch_case(name, (2, 5, 7), (2,), scaled=scaled, shifted=shifted)
    yield litert_torch_case("with additional axes of size 1", (1, 5, 7), (0, 2))
    yield litert_torch_case("of rows", (5, 7), (-1,))
    yield litert_torch_case("of dynamic shape", (None, 5, 7), (2,))
    for name, scaled, shifted in (("a scale", True, False), ("an offset", False, True), ("both", True, True)):
        more = f"{name} of higher rank"
        yield litert_torch_case(more, (1, 5, 7), (0, 2), scaled=scaled, shifted=shifted, leading=(1, 1, 1))
    yield litert_torch_case("over the middle axis", (2, 5, 1), (1, 2), fused=False)
    yield litert_torch_case("with a nonzero start value", (2, 5, 7), (2,), start=0.25, fused=False)
    yield unfused_case("over other axes", partial(keras, axes=(1, 2)))
    yield unfused_case("over all but the first axis", partial(keras, axes=(1, 2, 3)))
    yield unfused_case("with an activation", partial(keras, activation="RELU"))
    yield unfused_case("with a power of 3", partial(pytorch_case, square="POW", power=3.0))
    yield unfused_case("with a scale per row", partial(keras, scale=(7, 1)))
    for scale in ((7, 3), (5, 7, 3), (5, 1, 3), (2, 1, 1, 3)):
        name = "x".join(map(str, scale))
        yield unfused_case(f"of Keras with a scale of {name}", partial(keras, scale=scale))
        yield unfused_case(f"of PyTorch with a scale of {name}", partial(pytorch_case, scale=scale))
        yield unfused_case(f"of PyTorch with an offset of {name}", partial(pytorch_case, offset=scale))
        yield rms_case(f"with a scale of {name}", shape=IMAGE, over=3, scale=scale, fused=False, opsets=(None,))
    yield litert_torch_case("with a scale of 5x7", (2, 5, 7), (2,), scaled=True, leading=(5,), fused=False)
    yield litert_torch_case("with an offset of 5x7", (2, 5, 7), (2,), shifted=True, leading=(5,), fused=False)
    yield unfused_case("with the mean as an output", partial(keras, mean_is_output=True))
    yield from squares_case()


def normalization_case(name: str, write: Callable[..., TensorRef]) -> Case:
    """Return a normalization between convolutions, which needs channels last: two Transposes inside, two at the ends."""

    def build(model: Net) -> None:
        model.output(model.output_through_conv(write(model, model.input_through_conv(tensor(*IMAGE)))))

    return net(OP, f"LayerNormalization {name}", build, max_transposes=4, opsets=(None, 13, 17, 26))


def litert_torch_case(
    name: str,
    shape: tuple[int | None, ...],
    over: tuple[int, ...],
    *,
    scaled: bool = False,
    shifted: bool = False,
    start: float = 0.0,
    fused: bool = True,
    leading: tuple[int, ...] = (),
) -> Case:
    """Return a case as litert-torch writes it: means of rank 1 or more, then RESHAPE; ``fused``: it becomes one node.

    ``leading``: axes of the scale and the offset before the last, all of which the result has.
    """
    mean_shape = tuple(n for k, n in enumerate(shape) if k not in {axis % len(shape) for axis in over})
    thin = (
        (*shape[:-1], 1)
        if fused
        else tuple(n if k not in {a % len(shape) for a in over} else 1 for k, n in enumerate(shape))
    )

    def build(model: Net) -> None:
        x, flat, wide = model.input(tensor(*shape)), tensor(*mean_shape), tensor(*shape)
        axes, back = constant(list(over), "int32"), constant([-1 if n is None else n for n in thin], "int32")

        def column(of: TensorRef) -> TensorRef:
            return model.call("RESHAPE", [of, back], tensor(*thin))

        mean = model.call("MEAN", [x, axes], flat)
        difference = model.call("SQUARED_DIFFERENCE", [x, column(mean)], wide)
        spread = model.call("ADD", [model.call("MEAN", [difference, axes], flat), constant(1e-3)], flat)
        inverse = model.call("RSQRT", [spread], flat)
        offset = model.call("SUB", [constant(start), model.call("MUL", [inverse, mean], flat)], flat)
        y = model.call("ADD", [model.call("MUL", [x, column(inverse)], wide), column(offset)], wide)
        wide = tensor(*(1,) * (1 + len(leading) - len(shape)), *shape)
        if scaled:
            y = model.call("MUL", [y, constant(random_array(*leading, 7, seed="gamma"))], wide)
        if shifted:
            y = model.call("ADD", [y, constant(random_array(*leading, 7, seed="beta"))], wide)
        model.output(y)

    return net(OP, f"{'' if fused else 'no '}LayerNormalization of litert-torch, {name}", build)


def unfused_case(name: str, write: Callable[..., TensorRef]) -> Case:
    return net(
        OP, f"no LayerNormalization {name}", lambda model: model.output(write(model, model.input(tensor(*IMAGE))))
    )


def mean(model: Net, x: TensorRef, over: tuple[int, ...]) -> TensorRef:
    shape = tuple(1 if axis in {a % 4 for a in over} else size for axis, size in enumerate(IMAGE))
    return model.call("MEAN", [x, constant(list(over), "int32")], tensor(*shape), keep_dims=True)


def add_per_part(model: Net, code: str, like: TensorRef, *more: Any) -> TensorRef:
    """Add an operator on one number per normalized part."""
    return model.call(code, [like, *more], tensor(*like.shape))


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
    image = tensor(*IMAGE)
    average = mean(model, x, axes)
    variance = mean(model, model.call("SQUARED_DIFFERENCE", [x, average], image), axes)
    inverse = add_per_part(model, "RSQRT", add_per_part(model, "ADD", variance, constant(1e-3)))
    like = tensor(*np.broadcast_shapes(inverse.shape, scale if scaled else ()))
    factor = model.call("MUL", [inverse, constant(random_array(*scale))], like) if scaled else inverse
    if shifted:
        scaled_mean = model.call("MUL", [average, factor], like)
        offset = model.call(
            "SUB",
            [constant(random_array(3, seed="offset")), scaled_mean],
            tensor(*np.broadcast_shapes(inverse.shape, scale if scaled else (), (3,))),
        )
    else:
        offset = model.call("MUL", [add_per_part(model, "NEG", average), factor], like)
    if mean_is_output:
        model.output(average)
    return model.call(
        "ADD", [model.call("MUL", [x, factor], image), offset], image, fused_activation_function=activation
    )


def pytorch_case(
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
    image = tensor(*IMAGE)
    average = mean(model, x, (3,))
    centred = model.call("SUB", [x, average], image)
    operands: dict[str, list[Any]] = {
        "MUL": [centred, centred],
        "SQUARE": [centred],
        "POW": [centred, constant(power)],
        "SQUARED_DIFFERENCE": [x, average],
    }
    variance = mean(model, model.call(square, operands[square], image), (3,))
    spread = add_per_part(model, "ADD", variance, constant(20.0 if power == 3.0 else 1e-5))
    if quotient:
        y = model.call("DIV", [centred, add_per_part(model, "SQRT", spread)], image)
    else:
        y = model.call("MUL", [centred, add_per_part(model, "RSQRT", spread)], image)
    y = model.call("MUL", [y, constant(random_array(*scale, seed="scale"))], image) if scaled else y
    return model.call("ADD", [y, constant(random_array(*offset, seed="offset"))], image) if shifted else y


# --- by the root of the mean square -------------------------------------------------------------


def squares_case() -> Iterator[Case]:
    for square in ("MUL", "SQUARE", "POW"):
        yield rms_case(f"by {square}", square=square)
    yield rms_case("by a quotient", quotient=True)
    yield rms_case("without a scale", scale=())
    yield rms_case("with a scale of higher rank", scale=(1, 1, 3))
    for back in ("spread", "inverse"):
        yield rms_case(f"with a {back} reshaped to a column", back=back)
    yield rms_case("of dynamic batch", shape=(None, 7, 3), opsets=(None,))
    yield rms_case("with a large epsilon", epsilon=2.0, opsets=(None,))
    yield rms_case("of a power of 3", square="POW", power=3.0, epsilon=20.0, fused=False, opsets=(None,))
    yield rms_case("over a different axis", over=1, shape=(5, 3, 3), fused=False, opsets=(None,))
    yield rms_case("with a scale per row", shape=(5, 3, 3), scale=(3, 1), fused=False, opsets=(None,))
    yield rms_case("with the square of another tensor", other=True, fused=False, opsets=(None,))


def rms_case(
    name: str,
    *,
    shape: tuple[int | None, ...] = (5, 7, 3),
    scale: tuple[int, ...] = (3,),
    square: str = "MUL",
    power: float = 2.0,
    quotient: bool = False,
    back: str = "",
    over: int = 2,
    epsilon: float = 1e-3,
    other: bool = False,
    fused: bool = True,
    opsets: tuple[int | None, ...] = (None, 13, 26),
) -> Case:
    """Return a case. ``back``: the operator that restores the removed axis of the mean; ``other``: squares of another tensor."""
    column = tuple(1 if axis == over else n for axis, n in enumerate(shape))
    flat = tuple(n for axis, n in enumerate(shape) if axis != over)

    def build(model: Net) -> None:
        x, wide = model.input(tensor(*shape)), tensor(*shape)
        of = model.input(tensor(*shape)) if other else x
        more: dict[str, list[Any]] = {"MUL": [of], "SQUARE": [], "POW": [constant(power)]}
        squares = model.call(square, [of, *more[square]], wide)
        small_shape = tensor(*(flat if back else column))
        spread = model.call("MEAN", [squares, constant([over], "int32")], small_shape, keep_dims=not back)
        spread = model.call("ADD", [spread, constant(epsilon)], small_shape)
        upright = constant([-1 if n is None else n for n in column], "int32")
        if back == "spread":
            spread = model.call("RESHAPE", [spread, upright], tensor(*column))
        inverse = model.call(
            "SQRT" if quotient else "RSQRT", [spread], tensor(*(flat if back == "inverse" else column))
        )
        if back == "inverse":
            inverse = model.call("RESHAPE", [inverse, upright], tensor(*column))
        y = model.call("DIV" if quotient else "MUL", [x, inverse], wide)
        model.output(model.call("MUL", [y, constant(random_array(*scale, seed="gamma"))], wide) if scale else y)

    fuses = ("RMS_NORMALIZATION",) if fused else ()
    return net(OP, f"{'' if fused else 'no '}RMSNormalization {name}", build, opsets=opsets, fusions=fuses)
