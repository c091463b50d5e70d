"""Bugs to plant of passes and targets."""

from __future__ import annotations

from ..planted import Planted, of_tests

MUTATIONS: tuple[Planted, ...] = (
    *of_tests(
        "passes/affine",
        (
            "a channel that is repeated is convolved by itself",
            "passes/images/affine_as_convolution.py",
            "if shape[2:] == [1, 1] or sizes(value) != shape:",
            "if shape[2:] == [1, 1]:",
        ),
    ),
    *of_tests(
        "passes/channel_pad",
        (
            "channels that are cut off are zeros",
            "passes/channels/channel_pad_as_convolution.py",
            "if others.any() or pads.min() < 0 else",
            "if others.any() else",
        ),
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
        "passes/matmul_of_tensors",
        (
            "a matrix that others read stays as it is",
            "passes/tokens/matmul_of_tensors.py",
            " and len(value.uses()) == 1 for",
            " for",
        ),
        (
            "rows made of several are no tensor's rows",
            "passes/tokens/matmul_of_tensors.py",
            " or whole[-1] != matrix[1]:",
            ":",
        ),
    ),
    *of_tests(
        "passes/slices_as_split",
        (
            "parts must be all of a tensor",
            "passes/tokens/slices_as_split.py",
            " or ends[-1] != parts[0].size:",
            ":",
        ),
    ),
    *of_tests(
        "passes/products",
        ("two products of 129 in all fit", "passes/weights/products.py", "PAIR = 128", "PAIR = 129"),
    ),
    *of_tests(
        "passes/reshape",
        (
            "a size of 0 is no operand's size",
            "passes/recurrent/reshape_once.py",
            "if target is None or not target.all():",
            "if target is None:",
        ),
    ),
    *of_tests(
        "passes/rows",
        (
            "rows in the order of their products",
            "passes/recurrent/rows.py",
            "[by_index[k] for k in sorted(by_index)]",
            "[*by_index.values()]",
        ),
    ),
    *of_tests(
        "passes/rows_of_integers",
        (
            "each row is rounded to its own scale",
            "passes/recurrent/rows_of_integers.py",
            "np.repeat([row.result.scale.reshape(()) for row in self.rows], self.batch)",
            "np.tile([row.result.scale.reshape(()) for row in self.rows], self.batch)",
        ),
        (
            "a row without a bias adds nothing",
            "passes/recurrent/rows_of_integers.py",
            "[np.zeros_like(present) if bias is None else bias for bias in biases]",
            "[present if bias is None else bias for bias in biases]",
        ),
    ),
    *of_tests(
        "passes/rules",
        (
            "a Transpose alone between DQ and Q is refused",
            "passes/rules.py",
            "and (node.op_type != TRANSPOSED or _within_unit(node)):",
            ":",
        ),
        (
            "what runs on no integers has kernels",
            "targets/base.py",
            'frozenset()) | self.no_integer_kernel.get("*", frozenset())',
            "frozenset())",
        ),
    ),
    *of_tests(
        "passes/sum",
        (
            "a product is repeated by what it adds",
            "passes/recurrent/sum_in_gemm.py",
            "or shape != sizes(node.outputs[0])",
            "",
        ),
    ),
    *of_tests(
        "passes/symmetric",
        ("-128 is a weight of every kernel", "passes/channels/symmetric_weights.py", "MOST = 127 ", "MOST = 128 "),
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
        "quantization/blocks",
        (
            "blocks are no dynamic quantization",
            "verify/comparison/tolerance.py",
            "(slot.quantization is not None or slot.dtype in NIBBLES)",
            "(slot.quantization is not None)",
        ),
        (
            "blocks smaller than the least fuse",
            "targets/base.py",
            "return divisor if divisor >= least else 0",
            "return divisor",
        ),
    ),
)
