"""Products with matrices that are repeated for the heads of a group, and similar patterns that must not be fused."""

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
    for others in ((11, 5), (1, 55), (55, 1)):
        for scale in (None, 0.3):
            scaled = "" if scale is None else ", scaled"
            name = f"no: reshaped to {others[0]}x{others[1]} before TRANSPOSE{scaled}"
            yield shared_matrices_case(name, transposed=True, scale=scale, others=others)
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
    others: tuple[int, int] | None = None,
    swapped: bool = False,
    opsets: tuple[int | None, ...] = (None,),
) -> Case:
    """Return a case. ``heads_last``: heads follow the rows and are transposed. ``repeated``: the operand that is repeated.

    ``others``: the sizes that the matrices are reshaped to before the TRANSPOSE. ``swapped``: it transposes the batches too.
    """
    height, width, group = 5, 11, 2
    upright = transposed == adjoint
    depth, columns = (height, width) if upright else (width, height)

    def build(model: Net) -> None:
        lead = list(batches)
        if heads_last:
            stored = model.input(tensor(height, *batches, width))
            w = model.call("TRANSPOSE", [stored, constant([1, 0, 2], "int32")], tensor(*batches, height, width))
        else:
            w = model.input(tensor(*lead, height, width))
        place = {"batches": 0, "matrices": len(lead), "rows": len(lead) + 1}[repeated]
        apart, wide = ([*lead, height, width] for _ in range(2))
        apart.insert(place, 1)
        wide.insert(place, group)
        count = group * lead[-1]
        last = [*(others or (height, width))]
        each = model.call("RESHAPE", [w, constant(apart, "int32")], tensor(*apart))
        each = model.call("BROADCAST_TO", [each, constant(wide, "int32")], tensor(*wide))
        together = [*lead[:-1], count, *last]
        each = model.call("RESHAPE", [each, constant(together, "int32")], tensor(*together))
        if scale is not None:
            each = model.call("MUL", [each, constant(scale)], tensor(*together))
        if transposed:
            axes = [*range(len(lead))[:: -1 if swapped else 1], len(lead) + 1, len(lead)]
            turned = [*together[:-2], width, height]
            each = model.call("TRANSPOSE", [each, constant(axes, "int32")], tensor(*(together[axis] for axis in axes)))
            each = model.call("RESHAPE", [each, constant(turned, "int32")], tensor(*turned))
        x = model.input(tensor(*together[:-2], rows, depth))
        model.output(model.call(OP, [x, each], tensor(*together[:-2], rows, columns), adj_x=False, adj_y=adjoint))

    fuses = ("BATCH_MATMUL_SHARED",) if repeated == "matrices" and others is None and not swapped else ()
    return net(OP, f"shared matrices, {name}", build, opsets=opsets, fuses=fuses)
