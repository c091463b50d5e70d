"""Grouped-query attention: products with matrices shared by the heads of a group, and similar patterns that must not be fused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from conformance.case import Case
from conformance.models import Net, constant, net, tensor

OP = "BATCH_MATMUL"  # the support table counts these cases for the product


def cases() -> Iterator[Case]:
    for adjoint in (False, True):
        for transposed in (False, True):
            for scale in (None, 0.3):
                name = f"{'transposed' if transposed else 'as they are'}, {'adjoint' if adjoint else 'not adjoint'}"
                scaled = "" if scale is None else ", scaled"
                if transposed or scale is None:
                    yield shared_matrices_case(f"{name}{scaled}", transposed=transposed, adjoint=adjoint, scale=scale)
    yield shared_matrices_case("one row", rows=1, transposed=True, scale=0.5)
    yield shared_matrices_case("two batches", batches=(2, 3), opsets=(None, 13, 26))
    yield shared_matrices_case("between transposes", heads_last=True, transposed=True, scale=0.5)
    for reshaped_to in ((11, 5), (1, 55), (55, 1)):
        for scale in (None, 0.3):
            scaled = "" if scale is None else ", scaled"
            name = f"no: reshaped to {reshaped_to[0]}x{reshaped_to[1]} before TRANSPOSE{scaled}"
            yield shared_matrices_case(name, transposed=True, scale=scale, reshaped_to=reshaped_to)
    yield shared_matrices_case("no: batches transposed", batches=(2, 3), transposed=True, swapped=True)
    yield shared_matrices_case("no: whole batches repeated", repeated="batches")
    yield shared_matrices_case("no: rows repeated", repeated="rows")


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
    swapped: bool = False,
    opsets: tuple[int | None, ...] = (None,),
) -> Case:
    """Return a case. ``heads_last``: heads follow the rows and are transposed. ``repeated``: the operand that is repeated.

    ``reshaped_to``: the sizes that the matrices are reshaped to before the TRANSPOSE. ``swapped``: it transposes the batches too.
    """
    height, width, group = 5, 11, 2
    is_height_by_width = transposed == adjoint
    depth, columns = (height, width) if is_height_by_width else (width, height)

    def build(model: Net) -> None:
        lead = list(batches)
        if heads_last:
            stored = model.input(tensor(height, *batches, width))
            w = model.call("TRANSPOSE", [stored, constant([1, 0, 2], "int32")], tensor(*batches, height, width))
        else:
            w = model.input(tensor(*lead, height, width))
        place = {"batches": 0, "matrices": len(lead), "rows": len(lead) + 1}[repeated]
        expanded_shape, repeated_shape = ([*lead, height, width] for _ in range(2))
        expanded_shape.insert(place, 1)
        repeated_shape.insert(place, group)
        count = group * lead[-1]
        last = [*(reshaped_to or (height, width))]
        matrices = model.call("RESHAPE", [w, constant(expanded_shape, "int32")], tensor(*expanded_shape))
        matrices = model.call("BROADCAST_TO", [matrices, constant(repeated_shape, "int32")], tensor(*repeated_shape))
        merged_shape = [*lead[:-1], count, *last]
        matrices = model.call("RESHAPE", [matrices, constant(merged_shape, "int32")], tensor(*merged_shape))
        if scale is not None:
            matrices = model.call("MUL", [matrices, constant(scale)], tensor(*merged_shape))
        if transposed:
            axes = [*range(len(lead))[:: -1 if swapped else 1], len(lead) + 1, len(lead)]
            transposed_shape = [*merged_shape[:-2], width, height]
            matrices = model.call(
                "TRANSPOSE", [matrices, constant(axes, "int32")], tensor(*(merged_shape[axis] for axis in axes))
            )
            matrices = model.call("RESHAPE", [matrices, constant(transposed_shape, "int32")], tensor(*transposed_shape))
        x = model.input(tensor(*merged_shape[:-2], rows, depth))
        model.output(
            model.call(OP, [x, matrices], tensor(*merged_shape[:-2], rows, columns), adj_x=False, adj_y=adjoint)
        )

    fuses = ("BATCH_MATMUL_SHARED",) if repeated == "matrices" and reshaped_to is None and not swapped else ()
    return net(OP, f"shared matrices, {name}", build, opsets=opsets, fusions=fuses)
