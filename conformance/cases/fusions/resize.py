"""Nearest-neighbor upsampling by RESHAPE and TILE, as Keras writes it.

Similar patterns must not be fused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from conformance.builder import TensorRef
from conformance.case import EVERY_OPSET, Case
from conformance.models import Net, Spec, constant, net, tensor

IMAGE = (2, 5, 7, 3)
BuildFunction = Callable[[Net], None]


def repeat_by_tile(
    model: Net, ref: TensorRef, x: Spec, shapes: Sequence[Sequence[int]], multiples: Sequence[Sequence[int]]
) -> TensorRef:
    """Add RESHAPE and TILE twice, then RESHAPE; return the result.

    ``shapes``: results of the three RESHAPEs. ``multiples``: factors per axis of both TILEs.
    """
    for shape, factors in zip(shapes, multiples, strict=False):
        ref = model.call("RESHAPE", [ref, constant(list(shape))], x.with_shape(*shape))
        tiled_shape = [n * t for n, t in zip(shape, factors, strict=True)]
        ref = model.call("TILE", [ref, constant(list(factors))], x.with_shape(*tiled_shape))
    return model.call("RESHAPE", [ref, constant(list(shapes[-1]))], x.with_shape(*shapes[-1]))


def upsampling_by_tile(dtype: str, rows: int, columns: int, shape: Sequence[int] = IMAGE) -> BuildFunction:
    n, h, w, c = shape
    shapes = [(n, h, 1, w, c), (n, h * rows, w, 1, c), (n, h * rows, w * columns, c)]
    return tile_chain(dtype, shapes, [(1, 1, rows, 1, 1), (1, 1, 1, columns, 1)], shape)


def tile_chain(
    dtype: str, shapes: Sequence[Sequence[int]], multiples: Sequence[Sequence[int]], shape: Sequence[int] = IMAGE
) -> BuildFunction:
    def build(model: Net) -> None:
        x = tensor(*shape, dtype=dtype)
        model.output(
            model.output_through_conv(repeat_by_tile(model, model.input_through_conv(x), x, shapes, multiples))
        )

    return build


SIMILAR: dict[str, BuildFunction] = {
    "not fused, whole images repeated": tile_chain(
        "float32", [(2, 5, 1, 7, 3), (2, 10, 7, 1, 3), (2, 10, 14, 3)], [(1, 2, 1, 1, 1), (1, 1, 1, 2, 1)]
    ),
    "not fused, sequence of columns repeated": tile_chain(
        "float32", [(2, 5, 1, 7, 3), (2, 10, 7, 1, 3), (2, 10, 14, 3)], [(1, 1, 2, 1, 1), (1, 1, 2, 1, 1)]
    ),
    "not fused, channels repeated": tile_chain(
        "float32", [(2, 5, 1, 7, 3), (2, 10, 7, 3, 1), (2, 10, 7, 6)], [(1, 1, 2, 1, 1), (1, 1, 1, 1, 2)]
    ),
    "not fused, rows and columns swapped": tile_chain(
        "float32", [(2, 7, 1, 5, 3), (2, 14, 5, 1, 3), (2, 14, 10, 3)], [(1, 1, 2, 1, 1), (1, 1, 1, 2, 1)]
    ),
}


def cases() -> Iterator[Case]:
    for dtype in ("float32", "int8", "uint8", "int16"):
        opsets = (None, 26) if dtype == "int16" else EVERY_OPSET
        for rows, columns in ((2, 2), (3, 1), (1, 2)):
            name = f"{dtype}, {rows}x{columns} decomposed between convolutions"
            yield net(
                "TILE", name, upsampling_by_tile(dtype, rows, columns), dtype=dtype, opsets=opsets, max_transposes=2
            )
    yield net(
        "TILE",
        "int8, 2x2 decomposed, many elements",
        upsampling_by_tile("int8", 2, 2, (1, 16, 16, 32)),
        dtype="int8",
        max_transposes=4,
    )
    for name, build in SIMILAR.items():
        yield net("TILE", f"{name} between convolutions", build)
