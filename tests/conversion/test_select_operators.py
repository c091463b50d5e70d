"""Select operators: attributes, rewritten operators and reference kernels."""

from __future__ import annotations

import random
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

import onnx_tflite_plugin as otp
from conformance.cases.custom.select import random as random_cases
from conformance.models import Net, Spec, constant, tensor
from conformance.tensorflow import PREFIX, StoredCase, case, node, select_options, stored_cases
from onnx_tflite_plugin.api import Handler
from onnx_tflite_plugin.conversion import convert_model
from onnx_tflite_plugin.errors import UnsupportedOperator
from onnx_tflite_plugin.host import Host
from onnx_tflite_plugin.runtime import Session
from onnx_tflite_plugin.source import read
from op_handlers.custom.select.nodedef import MAX_BYTES, parse_node, parse_options

PLAIN = {"T": "float32"}


def select(name: str, attributes: dict[str, object] | None = None) -> bytes:
    return select_options(name, node(name, attributes or PLAIN))


def chain(*operators: str) -> bytes:
    """Return a chain of binary operators with constant second operands."""
    model = Net()
    x = model.input(tensor(5, 7))
    for name in operators:
        operands = [x, constant(np.float32([[3.0]]))]
        x = model.call(PREFIX + name, operands, tensor(5, 7), custom_options=select(name))
    model.output(x)
    return model.build()


@pytest.fixture(scope="module")
def handlers() -> dict[str, Handler]:
    return {code: handler for code, _, handler in Host(packs="builtin").handlers() if isinstance(handler, Handler)}


# --- reference kernels ------------------------------------------------------------------------


@pytest.mark.quick
def test_numpy_kernels_match_tensorflow(handlers: dict[str, Handler]) -> None:
    for stored_case in stored_cases():
        (op,) = read(case(stored_case, stored_case.name, static=True).build()).main.operators
        kernel = handlers[op.code].kernel
        assert kernel is not None
        results = kernel(op, *stored_case.operands)
        results = [results] if isinstance(results, np.ndarray) else list(results)
        for result, expected in zip(results, stored_case.results, strict=True):
            assert (result.shape, result.dtype) == (expected.shape, expected.dtype), (stored_case.op, stored_case.name)
            tolerance = 4e-3 if expected.dtype == np.float16 else 2e-5
            np.testing.assert_allclose(
                result, expected, tolerance, tolerance, err_msg=f"{stored_case.op}, {stored_case.name}"
            )


def test_each_select_operator_has_a_kernel_and_stored_results(handlers: dict[str, Handler]) -> None:
    operators = {code for code in handlers if code.startswith(PREFIX) and "TensorList" not in code}
    assert all(handlers[code].kernel for code in operators)
    random_operators = {f"{PREFIX}{name}" for name in random_cases.BOUNDS}
    assert operators - random_operators == {PREFIX + stored_case.op for stored_case in stored_cases()}


def test_verifies_select_operators_without_tensorflow() -> None:
    verified = otp.convert(chain("AddV2", "Mul", "Sub"), verify=True).verification
    assert verified is not None
    assert verified.ok


def test_verifies_select_operators_beside_an_empty_constant() -> None:
    """The shape of a scalar is a constant without elements."""
    model = Net()
    x = model.call("RESHAPE", [model.input(tensor(1)), constant(np.zeros(0, np.int32))], tensor())
    y = model.call(PREFIX + "AddV2", [x, constant(np.ones(5, np.float32))], tensor(5), custom_options=select("AddV2"))
    model.output(y)
    verified = otp.convert(model.build(), verify=True).verification
    assert verified is not None
    assert verified.ok


# --- rewritten operators ----------------------------------------------------------------------


def test_report_names_the_operator_of_the_file() -> None:
    report = otp.convert(chain("AddV2", "Mul")).report
    assert report.operators == {"CUSTOM.FlexAddV2": 1, "CUSTOM.FlexMul": 1}
    assert report.nodes == {"Add": 1, "Mul": 1}


def test_error_names_the_operator_of_the_file() -> None:
    stored_case = next(
        stored_case
        for stored_case in stored_cases()
        if (stored_case.op, stored_case.name) == ("Conv2D", "SAME, strides [2, 3]")
    )
    with pytest.raises(otp.ConversionError, match=r"op 0 CUSTOM\.FlexConv2D v1 'y0': SAME padding"):
        otp.convert(case(stored_case, "", static=False).build())


def test_fusions_apply_to_rewritten_operators() -> None:
    """An addition after a convolution becomes its bias."""
    (stored_conv,) = (
        stored_case
        for stored_case in stored_cases()
        if (stored_case.op, stored_case.name) == ("Conv2D", "VALID, strides [1, 1]")
    )
    model = Net()
    w, result = stored_conv.operands[1], stored_conv.results[0]
    y = model.call(
        "CUSTOM.FlexConv2D",
        [tensor(*stored_conv.operands[0].shape), constant(w)],
        tensor(*result.shape),
        custom_options=stored_conv.options,
    )
    bias = constant(np.arange(result.shape[-1], dtype=np.float32))
    model.output(model.call("CUSTOM.FlexBiasAdd", [y, bias], tensor(*result.shape), custom_options=select("BiasAdd")))
    report = otp.convert(model.build()).report
    assert report.nodes.get("Add", 0) == 0
    assert report.operators == {"CUSTOM.FlexConv2D": 1, "CUSTOM.FlexBiasAdd": 1}


def test_requested_shapes_pass_through_a_rewritten_operator() -> None:
    stored_case = next(
        stored_case
        for stored_case in stored_cases()
        if (stored_case.op, stored_case.name) == ("Conv2D", "SAME, strides [1, 1]")
    )
    conversion = otp.convert(case(stored_case, "", static=True).build(), input_shape={"x0": [5, 13, 17, 4]})
    assert conversion.report.outputs[0].shape == (5, 13, 17, 5)


def test_pack_overrides_one_select_operator(handlers: dict[str, Handler]) -> None:
    divide_instead = replace(handlers["CUSTOM.FlexMul"], rewrite=None, lower=lambda ctx, x, y: ctx.ops.Div(x, y))
    report = convert_model(read(chain("AddV2", "Mul")), Host(handlers={"CUSTOM.FlexMul": divide_instead})).report
    assert report.nodes == {"Add": 1, "Div": 1}


def test_select_operator_loads_only_its_module() -> None:
    program = (
        "import sys; from onnx_tflite_plugin.host import Host; "
        "list(Host(packs='builtin').handlers({'CUSTOM.FlexAddV2'})); "
        "print(*(name for name in sys.modules if name.startswith(('op_handlers.custom', 'tensorflow', 'google'))))"
    )
    completed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = set(completed.stdout.split()) - {"op_handlers.custom.packs", "op_handlers.custom.select.unsupported"}
    select = "op_handlers.custom.select"
    assert loaded == {"op_handlers.custom", select, *(f"{select}.{m}" for m in ("arithmetic", "nodedef", "rewriting"))}


# --- attributes -------------------------------------------------------------------------------


def test_parses_attributes_by_kind() -> None:
    options = {"a": -3, "b": True, "c": 0.5, "d": "SAME", "e": "int64", "f": (1, -2, 3)}
    parsed = parse_node(node("Op", options))
    assert parsed.op == "Op"
    assert parsed.attributes == {**options, "d": b"SAME"}
    assert (parsed.integer("missing", 7), parsed.text("missing", "NHWC")) == (7, "NHWC")


@pytest.mark.quick
def test_rejects_damaged_options_in_bounded_time() -> None:
    """Bytes are removed, changed and inserted; the result parses or raises ValueError."""
    generator = random.Random(5)
    option_bytes = [stored_case.options for stored_case in stored_cases()[::7]]
    for _ in range(3000):
        data = bytearray(generator.choice(option_bytes))
        for _ in range(generator.randint(1, 4)):
            position = generator.randrange(len(data))
            data[position : position + generator.choice((0, 1, 1, 8))] = generator.randbytes(
                generator.choice((0, 1, 1, 3))
            )
        try:
            parse_options(bytes(data))
        except ValueError:
            continue


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x2a\xff\xff\xff\xff\x0f", "extends beyond its message"),
        (b"\xff" * 11, "more than 10 bytes"),
        (b"\x2b", "wire type 3"),
        (b"\x18\x01" * 20000, "more than 16384 fields"),
        (node("Op", {"a": tuple(range(20000))}), "more than 16384 fields"),
    ],
)
def test_error_on_a_damaged_message_has_the_reason(data: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_node(data)


def test_rejects_oversized_options() -> None:
    with pytest.raises(ValueError, match="at most"):
        parse_options(bytes(MAX_BYTES + 1))


@pytest.mark.quick
def test_rejects_damaged_select_operators() -> None:
    """With options or operands of another case, the error names the operator."""
    cases_by_op: dict[str, list[StoredCase]] = {}
    for stored_case in stored_cases():
        cases_by_op.setdefault(stored_case.op, []).append(stored_case)
    for cases in cases_by_op.values():
        first, last = cases[0], cases[-1]
        for data in (with_options(first, last.options), with_options(first, select_options(first.op, node(first.op)))):
            assert "please report" not in conversion_error(data), first.op


def conversion_error(data: bytes) -> str:
    """Return the error of a conversion; empty if it succeeds."""
    try:
        otp.convert(data)
    except otp.ConversionError as error:
        return str(error)
    return ""


def with_options(stored_case: StoredCase, options: bytes) -> bytes:
    model = Net()

    def spec(array: np.ndarray, value: np.ndarray | None = None) -> Spec:  # type: ignore[type-arg]
        return Spec(array.shape, array.dtype.name, value=value)

    refs = [
        model.add_operand(spec(a, a if c else None))
        for a, c in zip(stored_case.operands, stored_case.constant, strict=True)
    ]
    results = [model.result(spec(array)) for array in stored_case.results]
    model.graph.operator(PREFIX + stored_case.op, refs, results, custom_options=options)
    model.output(*results)
    return model.build()


def change_one_tensor(generator: random.Random, stored_case: StoredCase) -> bytes:
    """Return the operator with another rank, size or dtype of one tensor."""
    arrays = [*stored_case.operands, *stored_case.results]
    k = generator.randrange(len(arrays))
    shape = list(arrays[k].shape)
    change = generator.choice(("more", "less", "size", "dtype"))
    if change == "more":
        shape.insert(generator.randint(0, len(shape)), generator.choice((1, 2)))
    elif change == "less" and shape:
        del shape[generator.randrange(len(shape))]
    elif change == "size" and shape:
        shape[generator.randrange(len(shape))] = generator.choice((0, 1, 4))
    dtype = generator.choice(("int32", "int8", "float64", "bool")) if change == "dtype" else arrays[k].dtype
    arrays[k] = np.resize(arrays[k], shape).astype(dtype)
    count = len(stored_case.operands)
    return with_options(
        replace(stored_case, operands=tuple(arrays[:count]), results=tuple(arrays[count:])), stored_case.options
    )


@pytest.mark.filterwarnings("ignore")
def test_rejects_operands_that_do_not_fit() -> None:
    generator = random.Random(7)
    for _ in range(400):
        stored_case = generator.choice(stored_cases())
        error_text = conversion_error(change_one_tensor(generator, stored_case))
        assert "please report" not in error_text, (stored_case.op, stored_case.name, error_text)


# --- operands that a handler declines, and extreme values ------------------------------------


def call_select(name: str, attributes: dict[str, object], operands: list[Spec], result: Spec) -> bytes:
    model = Net()
    references = [model.input(spec) if spec.value is None else model.add_operand(spec) for spec in operands]
    model.output(model.call(PREFIX + name, references, result, custom_options=select(name, attributes)))
    return model.build()


@pytest.mark.parametrize(
    ("equation", "dims", "reason"),
    [
        ("...ab,...bc->...ac", (2, 5, 3, 2), "the ellipses .* stand for different numbers of axes"),
        ("...ab,bcd->ac", (3, 4), "sums over the axes of an ellipsis"),
    ],
)
def test_einsum_declines_an_ellipsis_that_onnx_cannot_express(
    equation: str, dims: tuple[int, ...], reason: str
) -> None:
    model = call_select("Einsum", {"equation": equation}, [tensor(2, 1, 3, 4), tensor(5, 4, 2)], tensor(*dims))
    with pytest.raises(UnsupportedOperator, match=reason):
        otp.convert(model)


def test_bincount_declines_weights_that_may_be_empty() -> None:
    operands = [tensor(5, dtype="int32"), constant(np.asarray(4, np.int32)), tensor(None)]
    with pytest.raises(UnsupportedOperator, match="the weights have a dynamic shape"):
        otp.convert(call_select("DenseBincount", {"binary_output": False}, operands, tensor(4)))


def test_cumulative_logsumexp_keeps_infinities() -> None:
    x = np.array([[1, np.inf, 2], [-np.inf, -np.inf, 1], [3e38, 3e38, 1]], np.float32)
    attributes: dict[str, object] = {"exclusive": False, "reverse": False}
    operands = [tensor(3, 3), constant(np.asarray(1, np.int32))]
    converted = otp.convert(call_select("CumulativeLogsumexp", attributes, operands, tensor(3, 3)))
    (result,) = Session(converted.proto).run({"x0": x}).values()
    np.testing.assert_allclose(result, np.logaddexp.accumulate(x, 1), 1e-6)
