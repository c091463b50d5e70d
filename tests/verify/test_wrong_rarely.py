"""Models that are wrong on numbers that hardly ever come by chance, or that kernels refuse: verify fails each, and passes the right one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import onnx_tflite_plugin as otp
from conformance.builder import TensorRef
from conformance.models import Net, Spec, constant, random_array
from onnx_tflite_plugin.errors import VerificationError
from onnx_tflite_plugin.source.model import Array
from onnx_tflite_plugin.verify import verify
from onnx_tflite_plugin.verify.runtimes import structure
from tests.helpers.passes_networks import Network, image
from tests.helpers.wrong_models import Draw, Spoil, Wrong, change_nodes, integers, of_size

SHAPE = (5, 7)

# --- networks ---------------------------------------------------------------------------------


def of_two(code: str, dtype: str, result: str = "", shape: tuple[int, ...] = SHAPE) -> Draw:
    def make_handler(net: Net) -> TensorRef:
        operands = [net.input(Spec(shape, dtype, name=name)) for name in "ab"]
        return net.call(code, operands, Spec(shape, result or dtype))

    return make_handler


def of_one(code: str, dtype: str = "float32", result: str = "float32") -> Draw:
    return lambda net: net.call(code, [net.input(Spec(SHAPE, dtype))], Spec(SHAPE, result))


def above(net: Net) -> TensorRef:
    return net.call("GREATER", [net.input(Spec(SHAPE)), constant(np.float32(0.7))], Spec(SHAPE, "bool"))


def largest(net: Net) -> TensorRef:
    x = net.input(Spec((5, 31)))
    return net.call("ARG_MAX", [x, constant(np.int32(1))], Spec((5,), "int32"), output_type="INT32")


def dequantize(net: Network) -> TensorRef:
    x = net.conv(net.input(image(1, 11, 7, 5)), 8, name="last")
    return net.call("DEQUANTIZE", [x], Spec((1, 11, 7, 8)))


def of_bytes(net: Network) -> TensorRef:
    return net.call("DEQUANTIZE", [net.input(image(1, 11, 7, 5))], Spec((1, 11, 7, 5)))


def sure_of_bytes(net: Network) -> TensorRef:
    """Nothing shows of them, for the sigmoid is 1."""
    faint = net.like("MUL", of_bytes(net), constant(np.float32(1e-3)))
    return net.like("LOGISTIC", net.like("ADD", faint, constant(np.float32(30.0))))


def of_unknown_rank(net: Network) -> TensorRef:
    x = net.conv(net.input(image(1, 11, 7, 5)), 16, name="first")
    y = net.conv(x, 8, name="last")
    net.without_rank(x)
    return y


def never(net: Net) -> TensorRef:
    """A mask that no number meets that is drawn."""
    x = net.input(Spec(SHAPE))
    mask = net.call("GREATER", [x, constant(np.float32(1000))], Spec(SHAPE, "bool"))
    others = [net.call(code, [x], Spec(SHAPE)) for code in ("NEG", "ABS")]
    return net.call("SELECT_V2", [mask, *others], Spec(SHAPE))


def its_sizes(net: Net) -> tuple[TensorRef, TensorRef]:
    y = net.call("ABS", [net.input(Spec((None, None)))], Spec((None, None)))
    return net.call("SHAPE", [y], Spec((2,), "int32"), out_type="INT32"), y


def prices(net: Net) -> TensorRef:
    """Two columns that are a 100,000th of the others."""
    x = net.call("TANH", [net.input(Spec((11, 16)))], Spec((11, 16)))
    weights = random_array(5, 16) * np.array([1e5, 1e5, 1e5, 1, 1])[:, None]
    return net.call("FULLY_CONNECTED", [x, constant(weights, "float32"), None], Spec((11, 5)))


def boxes(net: Net) -> TensorRef:
    """Places in pixels beside scores that are all near 0, as those of noise are."""
    x = net.input(Spec((1, 11, 16)))
    places = constant(random_array(4, 16) * 100, "float32"), None
    scores = constant(random_array(7, 16) * 0.1, "float32"), constant(np.full(7, -6.0), "float32")
    one, other = (
        net.call("FULLY_CONNECTED", [x, *given], Spec((1, 11, n)), keep_num_dims=True)
        for given, n in ((places, 4), (scores, 7))
    )
    return net.call("CONCATENATION", [one, net.call("LOGISTIC", [other], Spec((1, 11, 7)))], Spec((1, 11, 11)), axis=2)


# --- what is spoilt ---------------------------------------------------------------------------


def another(op_type: str) -> Callable[[onnx.NodeProto], None]:
    def change(node: onnx.NodeProto) -> None:
        node.op_type = op_type

    return change


def exchange(node: onnx.NodeProto) -> None:
    node.input[0], node.input[1] = node.input[1], node.input[0]


def attribute(name: str, value: int) -> Callable[[onnx.NodeProto], None]:
    def change(node: onnx.NodeProto) -> None:
        del node.attribute[:]
        node.attribute.append(helper.make_attribute(name, value))

    return change


def always(value: bool) -> Spoil:
    """The same truth, whatever comes in."""

    def spoil(proto: onnx.ModelProto) -> None:
        [output] = proto.graph.output
        shape = [dim.dim_value for dim in output.type.tensor_type.shape.dim]
        proto.graph.initializer.append(numpy_helper.from_array(np.full(shape, value), "constant"))
        del proto.graph.node[:]
        proto.graph.node.append(helper.make_node("Identity", ["constant"], [output.name]))

    return spoil


def through(dtype: int) -> Spoil:
    """The first input, made narrower and wide again."""

    def spoil(proto: onnx.ModelProto) -> None:
        x = proto.graph.input[0]
        for node in proto.graph.node:
            node.input[:] = ["again" if name == x.name else name for name in node.input]
        wide = x.type.tensor_type.elem_type
        proto.graph.node.insert(0, helper.make_node("Cast", ["narrow"], ["again"], to=wide))
        proto.graph.node.insert(0, helper.make_node("Cast", [x.name], ["narrow"], to=dtype))

    return spoil


def before(op_type: str, *more: str, node: str, becomes: str, constant: float | None = None, slot: int = 0) -> Spoil:
    """Another operator before one, which becomes another too and has what is made as its operand of that ``slot``."""

    def spoil(proto: onnx.ModelProto) -> None:
        [found] = [each for each in proto.graph.node if each.op_type == node]
        if constant is not None:
            proto.graph.initializer.append(numpy_helper.from_array(np.float32(constant), more[0]))
        at = [*proto.graph.node].index(found)
        proto.graph.node.insert(at, helper.make_node(op_type, [found.input[0], *more], ["made"]))
        found = proto.graph.node[at + 1]
        found.op_type = becomes
        found.input[slot:] = ["made"]

    return spoil


def zero_point(proto: onnx.ModelProto) -> None:
    """That of the last dequantization, by 1."""
    last = [node for node in proto.graph.node if node.op_type == "DequantizeLinear"][-1]
    [stored] = [stored for stored in proto.graph.initializer if stored.name == last.input[2]]
    point = numpy_helper.to_array(stored)
    proto.graph.initializer.append(numpy_helper.from_array((point + 1).astype(point.dtype), "another"))
    last.input[2] = "another"


def unmask(node: onnx.NodeProto) -> None:
    node.input[1] = node.input[2]


def backwards(proto: onnx.ModelProto) -> None:
    """The first output's two elements."""
    name = proto.graph.output[0].name
    [maker] = [node for node in proto.graph.node if name in node.output]
    maker.output[0] = "forwards"
    proto.graph.initializer.append(numpy_helper.from_array(np.array([1, 0]), "backwards"))
    proto.graph.node.append(helper.make_node("Gather", ["forwards", "backwards"], [name]))


def scores_backwards(proto: onnx.ModelProto) -> None:
    name = proto.graph.output[0].name
    [maker] = [node for node in proto.graph.node if name in node.output]
    maker.output[0] = "forwards"
    order = np.array([0, 1, 2, 3, *range(10, 3, -1)])
    proto.graph.initializer.append(numpy_helper.from_array(order, "order"))
    proto.graph.node.append(helper.make_node("Gather", ["forwards", "order"], [name], axis=2))


def small_negated(weights: Array) -> Array:
    return np.where(np.abs(weights) < 100, -weights, weights)


def untold(proto: onnx.ModelProto) -> None:
    """The last bias, in a model of whose values but inputs nobody knows what they hold."""
    for info in (*proto.graph.value_info, *proto.graph.output):
        del info.metadata_props[:]
    of_size(8, lambda bias: bias + 100)(proto)


WRONG: dict[str, Wrong] = {
    "a conjunction that never holds": Wrong(of_two("LOGICAL_AND", "bool", shape=(1,)), always(False), Net),
    "either for one of both": Wrong(of_two("LOGICAL_OR", "bool", shape=(1,)), change_nodes("Or", another("Xor")), Net),
    "a product for a quotient": Wrong(of_two("DIV", "int32"), change_nodes("Div", another("Mul")), Net),
    "a remainder with the other sign": Wrong(
        of_two("FLOOR_MOD", "int32"), change_nodes("Mod", attribute("fmod", 1)), Net
    ),
    "a power with its operands exchanged": Wrong(of_two("POW", "int32"), change_nodes("Pow", exchange), Net),
    "equal floats that are told apart": Wrong(of_two("EQUAL", "float32", "bool"), always(False), Net),
    "what is equal for what is less": Wrong(
        of_two("LESS", "float32", "bool"), change_nodes("Less", another("LessOrEqual")), Net
    ),
    "a threshold that is met": Wrong(above, change_nodes("Greater", another("GreaterOrEqual")), Net),
    "integers through 8 bits": Wrong(of_two("ADD", "int32"), through(onnx.TensorProto.INT8), Net),
    "integers through 16 bits": Wrong(of_two("MAXIMUM", "int32"), through(onnx.TensorProto.INT16), Net),
    "integers through 32 bits": Wrong(of_two("ADD", "int64"), through(onnx.TensorProto.INT32), Net),
    "integers through halves of floats": Wrong(
        of_one("CAST", "int32"), through(onnx.TensorProto.FLOAT16), Net
    ),
    "halves that are rounded up": Wrong(
        of_one("ROUND"), before("Add", "half", node="Round", becomes="Floor", constant=0.5), Net
    ),
    "the sign of 0": Wrong(of_one("SIGN"), before("Abs", node="Sign", becomes="Div", slot=1), Net),
    "the last of equal floats": Wrong(largest, change_nodes("ArgMax", lambda node: node.attribute.append(
        helper.make_attribute("select_last_index", 1)
    )), Net),
    "floats that are all one step off": Wrong(dequantize, zero_point),
    "floats of bytes that are all one step off": Wrong(of_bytes, zero_point),
    "a mask that nothing meets": Wrong(never, change_nodes("Where", unmask), Net),
    "sizes that are open, in another order": Wrong(its_sizes, backwards, Net),
    "small columns beside large ones": Wrong(prices, of_size(80, small_negated), Net),
    "scores in another order": Wrong(boxes, scores_backwards, Net),
    "floats that no value names": Wrong(integers, untold, options=(("quantization", "float"),)),
    "floats of bytes that are one step off behind which nothing shows": Wrong(
        sure_of_bytes, zero_point, options=(("optimize", "none"),)
    ),
    "floats after a rank that nobody knows": Wrong(
        of_unknown_rank, of_size(8, lambda bias: bias + 100), options=(("quantization", "float"),)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_model_fails_and_the_right_one_passes(name: str) -> None:
    data, right, wrong = WRONG[name].models()
    judged = verify(data, right)
    assert judged.ok, judged.text
    assert not verify(data, wrong).ok


def test_an_output_of_other_sizes_than_the_model_says_is_refused() -> None:
    def say(*sizes: int | None) -> Spoil:
        def spoil(proto: onnx.ModelProto) -> None:
            del proto.graph.output[0].type.tensor_type.shape.dim[:]
            for size in sizes:
                dim = proto.graph.output[0].type.tensor_type.shape.dim.add()
                if size is not None:
                    dim.dim_value = size

        return spoil

    for sizes, reported in (((5, 9), r"\[5, 9\]"), ((5,), r"\[5\]"), ((None, 9), r"\[\?, 9\]")):
        data, _, wrong = Wrong(above, say(*sizes), Net).models()
        with pytest.raises(
            VerificationError, match=rf"'y0' has shape \[5, 7\], but the ONNX model declares {reported}"
        ):
            verify(data, wrong)
    data, _, open_ = Wrong(above, say(5, None), Net).models()
    assert verify(data, open_).ok
    open_.graph.output[0].type.tensor_type.ClearField("shape")
    assert verify(data, open_).ok


def test_sizes_that_an_operand_of_the_run_decides_may_be_others_than_the_file_says() -> None:
    net = Net()
    x = net.input(Spec((2, 5, 7)))
    net.output(net.call("TRANSPOSE", [x, net.input(Spec((3,), "int32", name="perm"))], Spec((7, 2, 5))))
    data = net.build()
    given = {"perm": np.array([1, 0, 2], np.int32)}
    judged = verify(data, otp.convert(data).proto, inputs=given)
    assert judged.ok, judged.text


def test_a_small_step_of_integers_that_enter_the_model_excuses_no_float() -> None:
    """The right model of bytes that are dequantized is exact, those that are computed may be a step off."""
    data, right, _ = WRONG["floats of bytes that are all one step off"].models()
    assert verify(data, right).comparisons[0].tolerance == 1e-3
    data, right, _ = WRONG["floats that are all one step off"].models()
    assert verify(data, right).comparisons[0].tolerance > 1e-3


def test_right_outputs_that_no_value_tells_of_pass_as_a_whole() -> None:
    data, right, _ = WRONG["floats that no value names"].models()
    for info in (*right.graph.value_info, *right.graph.output):
        del info.metadata_props[:]
    judged = verify(data, right)
    assert judged.ok
    assert [one.name for one in judged.comparisons] == ["last"]


def test_two_batches_of_other_sizes_are_not_taken_row_by_row() -> None:
    net = Net()
    inputs = [net.input(Spec((None, 3), name=name)) for name in "ab"]
    net.output(*(net.call("ABS", [x], Spec((None, 3))) for x in inputs))
    data = net.build()
    judged = verify(data, otp.convert(data).proto)
    assert judged.ok
    assert "a [2, 3], b [3, 3]" in judged.text


def test_a_rank_that_the_file_does_not_tell_is_unknown() -> None:
    net = Network()
    net.output(of_unknown_rank(net))
    read = structure.read(net.build())
    assert [t.has_rank for t in read.main.tensors].count(False) == 1
