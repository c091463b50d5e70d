"""Bugs to plant in the core, where ``core`` has none: orders, sizes, cuts, passes, drawn inputs."""

from __future__ import annotations

from .planted import Planted, of_tests

MUTATIONS: tuple[Planted, ...] = (
    *of_tests(
        "layout/order",
        (
            "elements that leave a gap continue each other",
            "layout/order.py",
            "last.stride == atom.stride * atom.size",
            "last.stride == atom.stride",
        ),
        (
            "a cut axis is not reshaped before it moves",
            "layout/order.py",
            "None if split == before else split, perm",
            "None, perm",
        ),
        (
            "pieces of an axis have the size of all below",
            "layout/order.py",
            "sizes = [high // low for low, high in",
            "sizes = [high for low, high in",
        ),
    ),
    *of_tests(
        "lowering/states",
        ("a state is seen in one shape", "layout/states.py", "for b in group}) == 1", "for b in group}) >= 1"),
    ),
    *of_tests(
        "conversion/resizing",
        (
            "sizes that broadcast have one name",
            "shapes/dimensions.py",
            "is None for size in (1, large)):",
            "is None for size in (large,)):",
        ),
        (
            "every input has the batch in front",
            "shapes/resizing.py",
            "if t.rank and t.dims[0] == stored}",
            "if t.rank}",
        ),
    ),
    *of_tests(
        "conversion/cutting",
        (
            "an output may be where the part begins",
            "shapes/cutting.py",
            "        if tensor in ends:\n",
            "        if False:\n",
        ),
    ),
    *of_tests(
        "passes/unroll",
        (
            "what runs backwards is read forwards",
            "passes/recurrent/unroll.py",
            "np.array(trips - 1 - k if back else k)",
            "np.array(k)",
        ),
        ("as often as may be is too often", "passes/recurrent/unroll.py", "0 < trips <= most", "0 < trips < most"),
    ),
    *of_tests(
        "passes/exact_neighbours",
        (
            "only those that gain have a say in the order",
            "passes/channels/exact_neighbours.py",
            "if reader.weights is not None and reader.exact]",
            "if reader.weights is None]",
        ),
        (
            "those that are left over stay so",
            "passes/channels/exact_neighbours.py",
            "if second in also:",
            "if second not in also:",
        ),
        (
            "features stay in their order",
            "passes/channels/exact_neighbours.py",
            "array[order]) if array.ndim",
            "array[order]) if not array.ndim",
        ),
    ),
    *of_tests(
        "passes/fold_depthwise",
        (
            "-128 is a weight of every dense kernel",
            "passes/images/fold_depthwise.py",
            " or (stored == LEAST).any()",
            "",
        ),
        (
            "every channel has the weights of all",
            "passes/images/fold_depthwise.py",
            "np.eye(len(stored)",
            "np.tri(len(stored)",
        ),
    ),
    *of_tests(
        "passes/symmetric",
        ("-128 is a weight of every kernel", "passes/channels/symmetric_weights.py", "MOST = 127 ", "MOST = 128 "),
    ),
    *of_tests(
        "lowering/values",
        (
            "a size of 0 is the operand's",
            "lowering/values.py",
            '{"allowzero": 1} if 0 in dims and self.emitter.opset >= 14 else {}',
            "{}",
        ),
        (
            "an operand that is handed on loses its sizes",
            "lowering/values.py",
            "dims = _as_known(value, physical_dims(tensor, order))",
            "dims = physical_dims(tensor, order)",
        ),
    ),
    *of_tests(
        "verify/inputs",
        (
            "the neighbours of a threshold are not drawn",
            "verify/inputs/drawn.py",
            "np.concatenate([numbers, numbers - 1, numbers + 1])",
            "np.concatenate([numbers])",
        ),
        (
            "thresholds are not drawn",
            "verify/inputs/drawn.py",
            "if told.size else values",
            "if told.size > len(values) else values",
        ),
        (
            "what is added is a threshold",
            "verify/inputs/drawn.py",
            'results[0].shape != tensor.shape or results[0].dtype != "bool"',
            "results[0].shape != tensor.shape",
        ),
        (
            "a neighbour wraps around",
            "verify/inputs/drawn.py",
            "near[(near >= limits.min) & (near <= limits.max)]",
            "near",
        ),
        (
            "a perm is any numbers",
            "verify/inputs/drawn.py",
            "if not caution and _numbers_axes(",
            "if caution and _numbers_axes(",
        ),
    ),
    *of_tests(
        "verify/wrong_more",
        ("ten times the steps are near without quantization", "verify/operators/apart.py", "steps=3,", "steps=30,"),
        (
            "inputs that are given once are run once",
            "verify/inputs/drawn.py",
            "named * runs if len(named) == 1 else named",
            "named",
        ),
    ),
    *of_tests(
        "source/data",
        (
            "a blocked axis of sparse weights reaches into the next row",
            "source/sparsity.py",
            "limit[axis] //= sizes[rank + block]",
            "limit[axis] //= 1",
        ),
        (
            "small constants unfold 256 times at most",
            "source/buffers.py",
            "max(DECODED_BYTES, DECODED_RATIO * stored)",
            "min(DECODED_BYTES, DECODED_RATIO * stored)",
        ),
    ),
    *of_tests(
        "quantization/rounding",
        (
            "a bound halfway between two integers goes to the even one",
            "quantization/activation.py",
            "math.copysign(math.floor(abs(value) + 0.5), value)",
            "math.copysign(round(abs(value)), value)",
        ),
    ),
    *of_tests(
        "quantization/storage_plan",
        (
            "a state of several entries is stored as each likes",
            "quantization/plan.py",
            "    if not complete:\n        return {tensor for group in together for tensor in group}\n",
            "",
        ),
    ),
    *of_tests(
        "lowering/states",
        (
            "two states share the value that comes next",
            "lowering/state.py",
            "                or following in outputs\n",
            "",
        ),
    ),
    *of_tests(
        "verify/verify",
        (
            "what remembers runs at other sizes",
            "verify/examined.py",
            "if not others or self.stateful:",
            "if not others:",
        ),
    ),
)
