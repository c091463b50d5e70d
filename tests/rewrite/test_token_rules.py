"""Rules for transformers and for weights.

Tensors of transformers hold the features of one token per row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir
import onnxruntime

from conformance.builder import TensorRef
from conformance.models import Spec, constant, random_array, tensor
from conformance.weights import weight
from onnx_tflite_plugin.source.model import Array
from tests.helpers.passes_networks import BuildNetwork, Network, RewriteTrial, apply, image
from tests.rewrite.harness import Case, declines, graph, rule_test

# --- slices_to_split --------------------------------------------------------------------------


def slices(
    net: Network, *bounds: tuple[int, int], axis: int = 2, shape: Sequence[int | None] = (2, 3, 7), rows: int = 3
) -> tuple[TensorRef, ...]:
    """Build slices of an axis, each negated.

    ``rows``: the number of elements of axis 1.
    """
    x, results = net.input(tensor(*shape)), []
    for begin, end in bounds:
        begins = [begin if k == axis else 0 for k in range(len(shape))]
        sizes = [shape[0], rows, shape[2]]
        sizes[axis] = end - begin
        slice_spec = tensor(*sizes)
        slice_value = net.call(
            "SLICE", [x, constant(begins), constant([-1 if n is None else n for n in sizes])], slice_spec
        )
        results.append(net.call("NEG", [slice_value], slice_spec))
    return tuple(results)


def slice_graph(axis_and_step: str) -> Any:
    stored = {f"k{k}": np.array([k]) for k in (0, 1, 2, 4, 7)}
    nodes = f"y = Slice (x, k0, k4, {axis_and_step}) z = Slice (x, k4, k7, k1)"
    return graph(f"(float[3,7] x) => (float[3,m] y, float[3,n] z) {{ {nodes} }}", last=np.array([-1]), **stored)


test_adjacent_slices_become_one_split = rule_test(
    "slices_to_split",
    Case("two", lambda net: slices(net, (0, 4), (4, 7)), nodes={"Slice": 0, "Split": 1}),
    Case("three", lambda net: slices(net, (4, 5), (5, 7), (0, 4)), nodes={"Slice": 0, "Split": 1}),
    Case("a dynamic batch", lambda net: slices(net, (0, 4), (4, 7), shape=(None, 3, 7)), batch=5),
    Case("one axis", slice_graph("k1, k1")),
    Case("an axis counted from the end", slice_graph("last, k1")),
    declines("every second", slice_graph("k1, k2")),
    declines("two axes", lambda net: slices(net, (0, 4), (4, 7), rows=2)),
    *(
        declines(str(bounds), lambda net, bounds=bounds: slices(net, *bounds), "overlap, or leave out")
        for bounds in (((0, 4), (5, 7)), ((0, 4), (3, 7)), ((0, 3), (3, 6)), ((1, 4), (4, 7)), ((0, 4), (0, 4), (4, 7)))
    ),
)

# --- gemm_to_matmul ---------------------------------------------------------------------------


def project(
    batch_shape: Sequence[int | None] = (2, 3), weights: Spec | None = None, flat_shape: Sequence[int] = (),
    result_shape: Sequence[int] = (), *, biased: bool = False, shared_matrix: bool = False,
) -> BuildNetwork:  # fmt: skip
    """Build a dense layer that keeps the axes.

    With ``flat_shape``, the layer returns that shape, and a RESHAPE to ``result_shape`` follows. ``shared_matrix``: the
    matrix has another consumer.
    """

    def build(net: Network) -> tuple[TensorRef, ...]:
        x, depth = net.input(tensor(*batch_shape, 5)), 5 * 6 // int(np.prod(flat_shape[:1])) if flat_shape else 5
        matrix = net.add_operand(constant(random_array(7, depth)) if weights is None else weights)
        operands = [x, matrix, *([constant(random_array(7, seed="bias"))] if biased else [])]
        y = net.call(
            "FULLY_CONNECTED", operands, tensor(*(flat_shape or (*batch_shape, 7))), keep_num_dims=not flat_shape
        )
        y = net.call("RESHAPE", [y, constant([*result_shape])], tensor(*result_shape)) if result_shape else y
        rows = net.input(tensor(3, dtype="int32", scale=0)) if shared_matrix else None
        return (y, *([net.call("GATHER", [matrix, rows], tensor(3, 5))] if shared_matrix else []))

    return build


FLAT_GEMM = "a = Reshape (x, flat) b = Gemm <transB = 1> (a, w) y = Reshape (b, back)"


def rows_graph(shape: str, nodes: str, back: list[int]) -> Any:
    def make() -> ir.Model:
        shapes = {"flat": np.array([-1, 5]), "first": np.array([5, -1]), "back": np.array(back)}
        text = f"(float[{shape}] x) => (float[{','.join('rst'[: len(back)])}] y) {{ {nodes} }}"
        model = graph(text, w=random_array(7, 5), per_channel=random_array(5), **shapes)()
        if "m,n" in shape:
            model.graph[2].outputs[0].shape = ir.Shape([None, None, 7])
        return model

    return make


def block_rows(gemm: str = "Gemm (a, d)") -> Any:
    """Return a graph that multiplies rows by a 4-bit matrix with a scale per block."""
    nodes = f"d = DequantizeLinear <axis = 0, block_size = 16> (w, ws) a = Reshape (x, flat) b = {gemm} y = Reshape (b, back)"
    stored = {"w": np.arange(224).reshape(32, 7).astype(ml_dtypes.int4), "ws": random_array(2, 7, seed="scales")}
    shapes = {"flat": np.array([-1, 32]), "back": np.array([2, 3, 7]), "bias": random_array(7, seed="bias")}
    return graph(f"(float[2,3,32] x) => (float[2,3,7] y) {{ {nodes} }}", **stored, **shapes)


MATMUL_ONLY, RESHAPED = {"MatMul": 1, "Reshape": 0, "Gemm": 0}, {"MatMul": 1, "Reshape": 1, "Gemm": 0}

test_tensors_are_multiplied_without_reshapes = rule_test(
    "gemm_to_matmul",
    *(Case(f"{rows} rows", project((2, rows)), tolerance=1e-6, nodes=MATMUL_ONLY, batch=3) for rows in (1, 3, None)),
    Case("another shape", project(flat_shape=(6, 7), result_shape=(2, 21)), tolerance=1e-6, nodes=RESHAPED),
    Case("int8, one scale", project((1, 1), weight((7, 5), "int8", None)), tolerance=1e-5, nodes=MATMUL_ONLY),
    Case("int8, a scale per row", project((1, 1), weight((7, 5), "int8", 0)), tolerance=1e-5, nodes=MATMUL_ONLY),
    Case("a graph", rows_graph("2,3,5", FLAT_GEMM, [2, 3, 7]), nodes=MATMUL_ONLY),
    Case("weights in blocks", block_rows(), tolerance=1e-5, nodes=MATMUL_ONLY),
    declines("weights in blocks with a bias", block_rows("Gemm (a, d, bias)"), "adds"),
    Case("two dynamic sizes", rows_graph("m,n,5", FLAT_GEMM, [3, 2, 7]), nodes=RESHAPED),
    declines("a size of the rows", rows_graph("2,3,5", FLAT_GEMM, [0, 7]), "copies an input dimension"),
    declines("columns", rows_graph("5,2,5", FLAT_GEMM.replace("flat", "first").replace("<", "<transA = 1, "), [2, 5, 7]), "transposes"),
    declines(
        "a scale per column",
        rows_graph("2,3,5", FLAT_GEMM.replace("b =", "k = Mul (w, per_channel) b =").replace("a, w", "a, k"), [2, 3, 7]),
        "not constant, or has other users",
    ),
    declines("the matrix is read", project(shared_matrix=True), "has other users"),
    declines("a bias", project(biased=True), "adds"),
    declines("rows of several", project(flat_shape=(2, 7), result_shape=(7, 2)), "does not reduce the last axis"),
)  # fmt: skip


def test_transposed_matrix_stays_int8() -> None:
    trial = RewriteTrial("gemm_to_matmul", project((1, 1), weight((7, 5), "int8", 0)))
    (node,) = trial.nodes("MatMul")
    assert (trial.constant_values(node, 1).dtype, trial.constant_values(node, 1).shape) == ("int8", (5, 7))


# --- zero_subnormals --------------------------------------------------------------------------

SUBNORMAL, SMALLEST_NORMAL = np.float32(3e-40), np.finfo(np.float32).smallest_normal


def weights_with_subnormals(*shape: int, tiny: np.float32 = SUBNORMAL) -> Array:
    """Return weights, every third of them tiny and of either sign."""
    weights = random_array(*shape, seed="w", dtype="float32")
    weights.reshape(-1)[::3] = tiny
    weights.reshape(-1)[::6] = -tiny
    return weights


def conv(net: Network, tiny: np.float32 = SUBNORMAL) -> TensorRef:
    x = net.input(image(1, 11, 13, 5, dtype="float32"))
    operands = [x, constant(weights_with_subnormals(7, 3, 5, 5, tiny=tiny)), constant(random_array(7, seed="b"))]
    return net.call("CONV_2D", operands, tensor(1, 11, 13, 7), padding="SAME", stride_h=1, stride_w=1)


def subnormal_graph(node: str, kind: str = "float") -> Any:
    tiny = np.full((5, 5), 3e-40, {"float": np.float32, "double": np.float64}[kind])
    return graph(
        f"({kind}[3,5] x) => ({kind}[3,5] y) {{ y = {node} }}", tiny=tiny, row=tiny[0], plain=np.ones_like(tiny)
    )


test_subnormal_weights_become_zeros = rule_test(
    "zero_subnormals",
    Case("a convolution", conv),
    Case("a matrix", subnormal_graph("MatMul (x, tiny)"), tolerance=1.0),
    declines("a bias", subnormal_graph("Gemm (x, plain, row)")),
    declines("64 bits", subnormal_graph("MatMul (x, tiny)", "double")),
    declines("the least normal number", lambda net: conv(net, SMALLEST_NORMAL)),
    declines("a term", lambda net: net.like("ADD", net.input(tensor(3, 7)), constant(weights_with_subnormals(3, 7)))),
)


def test_normal_weights_do_not_become_zero() -> None:
    trial = RewriteTrial("zero_subnormals", conv)
    weights = trial.constant_values(trial.nodes("Conv")[0], 1)
    assert np.count_nonzero(weights == 0) == -(-weights.size // 3)
    assert np.abs(weights[weights != 0]).min() >= SMALLEST_NORMAL


# --- sum_before_norm --------------------------------------------------------------------------

NORM = "s = Add (x, r) y = LayerNormalization <axis = -1, epsilon = 1e-6> (s, scale)"


def norm_graph(nodes: str, more_inputs: str = "float[2,5,7] r", more_outputs: str = "") -> Any:
    text = (
        f"(float[2,5,7] x{', ' + more_inputs if more_inputs else ''}) => (float[2,5,7] y{more_outputs}) {{ {nodes} }}"
    )
    return graph(text, scale=random_array(7, seed="scale"), bias=random_array(2, 5, 7, seed="bias"))


test_sum_before_norm_is_not_fused = rule_test(
    "sum_before_norm",
    Case("a graph", norm_graph(NORM), nodes={"Add": 0, "Sum": 1}, fused={"SkipLayerNormalization": 0}),
    declines(
        "a sum that others read", norm_graph(f"{NORM} z = Neg (s)", more_outputs=", float[2,5,7] z"), "has other users"
    ),
    declines("a sum that is an output", norm_graph(NORM, more_outputs=", float[2,5,7] s"), "has other users"),
    declines("one row for all tokens", norm_graph(NORM, "float[7] r"), "broadcast"),
    declines("a constant addend", norm_graph(NORM.replace("r)", "bias)"), ""), "constant"),
    declines("no sum", norm_graph(NORM.replace("Add", "Mul"))),
)


# --- bound_masked_scores ----------------------------------------------------------------------


def mask_graph(
    nodes: str = "s = Add (x, mask) w = Softmax <axis = -1> (s)", mask_value: float = -1e9, tokens: int = 32
) -> Any:
    """Return causal attention weights of ``tokens`` tokens, times a matrix."""
    shape = (2, 3, tokens, tokens)
    mask = np.triu(np.full(shape[2:], mask_value, np.float32), 1)
    stored = {
        "mask": mask,
        "visible": mask == 0,
        "hidden": np.array(mask_value, np.float32),
        "one": np.array(1.0, np.float32),
        "v": random_array(tokens, 5),
        "flat": np.array([6, tokens, tokens]),
        "full_shape": np.array(shape),
    }
    more_outputs = ", float[2,3,m,m] w" if nodes.startswith("output") else ""
    text = f"(float[{','.join(map(str, shape))}] x, float[{tokens},{tokens}] seen) => (float[2,3,n,5] y{more_outputs})"
    return graph(f"{text} {{ {nodes.removeprefix('output ')} y = MatMul (w, v) }}", **stored)


RESHAPES = "a = Reshape (x, flat) s = Add (a, mask) b = Reshape (s, full_shape) w = Softmax <axis = 3> (b)"
COMPUTED = "u = Sub (one, seen) m = Mul (u, hidden) s = Add (x, m) w = Softmax <axis = -1> (s)"
BOUNDED = {"ReduceMax": 1, "Sub": 1, "Max": 1}

test_masked_scores_are_bounded = rule_test(
    "bound_masked_scores",
    Case("a mask", mask_graph(), tolerance=1e-7, nodes=BOUNDED),
    Case("a mask of -100", mask_graph(mask_value=-100.0), tolerance=1e-7, nodes=BOUNDED),
    Case("a mask of infinity", mask_graph(mask_value=-np.inf), tolerance=1e-7, nodes=BOUNDED),
    Case("a mask between reshapes", mask_graph(RESHAPES), tolerance=1e-7, nodes=BOUNDED),
    Case("a selection", mask_graph("s = Where (visible, x, hidden) w = Softmax (s)"), tolerance=1e-7, nodes=BOUNDED),
    Case("a computed mask", mask_graph(COMPUTED), tolerance=1e-7),
    declines("a bias", mask_graph(mask_value=-30.0)),
    declines("few tokens", mask_graph(tokens=24)),
    declines("another axis", mask_graph("s = Add (x, mask) w = Softmax <axis = 2> (s)")),
    declines("no mask", mask_graph("s = Mul (x, mask) w = Softmax (s)")),
    declines(
        "weights that are an output", mask_graph("output s = Add (x, mask) w = Softmax (s)"), "are a graph output"
    ),
)


def test_masked_weights_are_negligible_and_not_subnormal() -> None:
    model = mask_graph("output s = Add (x, mask) w = Softmax <axis = -1> (s)")()
    model.graph.outputs.pop()
    assert apply("bound_masked_scores", model)
    model.graph.outputs.append(next(node.outputs[0] for node in model.graph if node.op_type == "Softmax"))
    session = onnxruntime.InferenceSession(ir.to_proto(model).SerializeToString())
    _, weights = session.run(None, {"x": random_array(2, 3, 32, 32), "seen": np.ones((32, 32), np.float32)})
    masked = weights[..., np.triu(np.ones((32, 32), bool), 1)]
    assert masked.max() < 1e-24
    assert masked.min() > 1e-30


# --- share_repeated ---------------------------------------------------------------------------


def repeated_graph(
    second: str = "c = Cast <to = 6> (x) d = Add (c, one)", results: str = "y = Concat <axis = 0> (b, d)"
) -> Any:
    """Return a graph of two layers that add the same constant to the same input."""
    text = f"""(float[3] x) => (int32[m] y) {{
        a = Cast <to = 6> (x) b = Add (a, one) {second} {results} }}"""
    return graph(text, one=np.array([1], np.int32), two=np.array([2], np.int32))


test_repeated_values_are_computed_once = rule_test(
    "share_repeated",
    Case("a chain", repeated_graph(), count=2, nodes={"Cast": 1, "Add": 1}),
    Case("its beginning", repeated_graph("c = Cast <to = 6> (x) d = Add (c, two)"), nodes={"Cast": 1, "Add": 2}),
    declines("other attributes", repeated_graph("c = Cast <to = 7> (x) e = Cast <to = 6> (c) d = Add (e, two)")),
    declines("an output", repeated_graph("", "y = Add (a, one)")),
)
