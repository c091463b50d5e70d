"""Grouped-query attention: all heads of a group multiply by the same matrix.

Similar patterns must not be fused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from conformance.case import Case
from conformance.models import Net, constant, net, tensor

OP = "BATCH_MATMUL"  # the support table counts these cases for the product


def cases() -> Iterator[Case]:
    for adjoint in (False, True):
        for transposed in (False, True):
            for scale in (None, 0.3):
                name = f"{'transposed' if transposed else 'not transposed'}, {'adjoint' if adjoint else 'not adjoint'}"
                suffix = "" if scale is None else ", scaled"
                if transposed or scale is None:
                    yield shared_matrices_case(f"{name}{suffix}", transposed=transposed, adjoint=adjoint, scale=scale)
    yield shared_matrices_case("one row", rows=1, transposed=True, scale=0.5)
    yield shared_matrices_case("two batches", batches=(2, 3), opsets=(None, 13, 26))
    yield shared_matrices_case("between transposes", heads_last=True, transposed=True, scale=0.5)
    for reshaped_to in ((11, 5), (1, 55), (55, 1)):
        for scale in (None, 0.3):
            suffix = "" if scale is None else ", scaled"
            name = f"not fused, reshaped to {reshaped_to[0]}x{reshaped_to[1]} before TRANSPOSE{suffix}"
            yield shared_matrices_case(name, transposed=True, scale=scale, reshaped_to=reshaped_to)
    yield shared_matrices_case(
        "not fused, batches transposed", batches=(2, 3), transposed=True, batches_transposed=True
    )
    yield shared_matrices_case("not fused, whole batches repeated", repeated="batches")
    yield shared_matrices_case("not fused, rows repeated", repeated="rows")


def shared_matrices_case(
    name: str,
    *,
    batches: Sequence[int] = (3,),
    rows: int = 7,
    transposed: bool = False,
    adjoint: bool = False,
    scale: float | None = None,
    heads_last: bool = False,
    repeated: str = "matrices",
    reshaped_to: tuple[int, int] | None = None,
    batches_transposed: bool = False,
    opsets: tuple[int | None, ...] = (None,),
) -> Case:
    """Return a case of a product whose second operand is repeated for each head.

    For three groups of two heads: [3, 5, 11], RESHAPE to [3, 1, 5, 11], BROADCAST_TO [3, 2, 5, 11], RESHAPE to
    [6, 5, 11], BATCH_MATMUL.

    ``batches``: leading sizes, of which the last is the number of groups. ``rows``: number of rows of the other
    operand. ``adjoint``: BATCH_MATMUL transposes the matrices. ``scale``: factor of the matrices. ``repeated``: what
    BROADCAST_TO repeats, "batches", "matrices" or "rows". ``heads_last``: the graph input is [height, groups, width],
    and is transposed first. ``reshaped_to``: size of the matrices before a TRANSPOSE. ``batches_transposed``: the
    TRANSPOSE also reverses the batch axes.
    """
    height, width, heads_per_group = 5, 11, 2
    is_height_by_width = transposed == adjoint
    depth, columns = (height, width) if is_height_by_width else (width, height)

    def build(model: Net) -> None:
        batch_shape = list(batches)
        if heads_last:
            stored_matrices = model.input(tensor(height, *batches, width))
            w = model.call(
                "TRANSPOSE", [stored_matrices, constant([1, 0, 2], "int32")], tensor(*batches, height, width)
            )
        else:
            w = model.input(tensor(*batch_shape, height, width))
        repeated_axis = {"batches": 0, "matrices": len(batch_shape), "rows": len(batch_shape) + 1}[repeated]
        expanded_shape, repeated_shape = ([*batch_shape, height, width] for _ in range(2))
        expanded_shape.insert(repeated_axis, 1)
        repeated_shape.insert(repeated_axis, heads_per_group)
        head_count = heads_per_group * batch_shape[-1]
        matrix_shape = [*(reshaped_to or (height, width))]
        matrices = model.call("RESHAPE", [w, constant(expanded_shape, "int32")], tensor(*expanded_shape))
        matrices = model.call("BROADCAST_TO", [matrices, constant(repeated_shape, "int32")], tensor(*repeated_shape))
        merged_shape = [*batch_shape[:-1], head_count, *matrix_shape]
        matrices = model.call("RESHAPE", [matrices, constant(merged_shape, "int32")], tensor(*merged_shape))
        if scale is not None:
            matrices = model.call("MUL", [matrices, constant(scale)], tensor(*merged_shape))
        if transposed:
            axes = [
                *range(len(batch_shape))[:: -1 if batches_transposed else 1],
                len(batch_shape) + 1,
                len(batch_shape),
            ]
            transposed_shape = [*merged_shape[:-2], width, height]
            matrices = model.call(
                "TRANSPOSE", [matrices, constant(axes, "int32")], tensor(*(merged_shape[axis] for axis in axes))
            )
            matrices = model.call("RESHAPE", [matrices, constant(transposed_shape, "int32")], tensor(*transposed_shape))
        x = model.input(tensor(*merged_shape[:-2], rows, depth))
        model.output(
            model.call(OP, [x, matrices], tensor(*merged_shape[:-2], rows, columns), adj_x=False, adj_y=adjoint)
        )

    expected_fusions = (
        ("BATCH_MATMUL_SHARED",) if repeated == "matrices" and reshaped_to is None and not batches_transposed else ()
    )
    return net(OP, f"shared matrices, {name}", build, opsets=opsets, fusions=expected_fusions)
