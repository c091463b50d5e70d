"""SVDF: ranks, memory sizes, every activation, hybrid and integer, states over fifty runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from conformance.case import EVERY_OPSET, Case
from conformance.lstms import begin
from conformance.models import Net, Spec, constant, net, random_array, tensor
from onnx_tflite_plugin.source.model import Array, Operator, Quantization
from onnx_tflite_plugin.verify import Tolerance

BATCH, INPUTS, UNITS, MEMORY = 3, 7, 5, 11
LONG = {"runs": 50}
RESET = {"options": {"state": "reset"}}
OUTPUTS = {"int8": (0.0293, -17)}


@dataclass(frozen=True)
class Svdf:
    """One operator with ``units`` * ``rank`` filters. ``bytes``: its state has 8 bits, with this scale and zero point (``byte_state``).

    ``halves``: scales are powers of two, so that many sums are ties.
    """

    dtype: str = "float32"
    weights: str = "float32"
    rank: int = 2
    memory: int = MEMORY
    batch: int = BATCH
    inputs: int = INPUTS
    units: int = UNITS
    biased: bool = True
    activation: str = "RELU"
    variable: bool = True
    initial_dtype: str = ""
    given: bool = False
    asymmetric: bool = False
    point: int = 0
    output: tuple[float, int] = (0.0293, -17)
    state: float = 0.00011
    bytes: bool = False
    byte_state: tuple[float, int] = (0.011, -9)
    halves: bool = False

    @property
    def filters(self) -> int:
        return self.units * self.rank

    def matrix(self, rows: int, columns: int, name: str, dtype: str, scale: float) -> Spec:
        if dtype == "float32":
            weights = constant(0.6 * random_array(rows, columns, seed=name))
            return Spec((rows, columns)) if self.given else weights
        low, high = {"uint8": (0, 255), "int16": (-32767, 32767)}.get(dtype, (-127, 127))
        return constant(
            random_array(rows, columns, dtype=dtype, seed=name, low=low, high=high), None, scale, self.point
        )

    def build(self, model: Net) -> None:
        whole = self.dtype == "int8"
        step, kind = (self.byte_state[0], "int8") if self.bytes else (self.state, "int16")
        fine = 0.0067 if self.bytes else 1.3e-5
        given, by = (0.031, 0.0047)
        if self.halves:
            given, by, fine = 2**-5, 2**-8, 2**-7
        x = model.input(tensor(self.batch, self.inputs, dtype=self.dtype, scale=given if whole else None))
        features = self.matrix(self.filters, self.inputs, "features", self.weights, by)
        times = self.matrix(self.filters, self.memory, "times", kind if whole else self.weights, fine)
        if self.weights in ("int8", "uint8") and not whole:
            times = self.matrix(self.filters, self.memory, "times", self.weights, 0.0031)
        values = random_array(self.units, seed="bias", low=-0.9, high=0.9)
        counts = (3000 if self.bytes else 3e6) * values
        bias = constant(counts.astype("int32"), "int32", step * fine) if whole else constant(values)
        memory = Spec((self.batch, self.filters * self.memory), kind, step) if whole else None
        memory = memory or Spec((self.batch, self.filters * self.memory))
        if self.bytes:
            memory = replace(memory, zero_point=self.byte_state[1])
        state = (
            model.graph.tensor(
                "state",
                memory.shape,
                memory.dtype,
                quantization=memory.quantization,
                variable=True,
            )
            if self.variable
            else model.input(memory)
        )
        if self.initial_dtype:
            begin(model.graph, state, self.initial_dtype)
        scale, zero_point = self.output
        y = model.result(
            tensor(self.batch, self.units, dtype=self.dtype, scale=scale if whole else None, zero_point=zero_point)
        )
        refs = [x, model.place(features), model.place(times), model.place(bias) if self.biased else None, state]
        options = {
            "rank": self.rank,
            "fused_activation_function": self.activation,
            "asymmetric_quantize_inputs": self.asymmetric,
        }
        model.graph.operator("SVDF", refs, [y], options)
        model.output(y)


def svdf(name: str, case: dict[str, Any] | None = None, **fields: Any) -> Case:
    network = Svdf(**fields)
    return net("SVDF", name, network.build, **{"dtype": network.dtype, **(case or {})})


def cases() -> Iterator[Case]:
    for activation in ("NONE", "RELU", "RELU_N1_TO_1", "RELU6", "TANH", "SIGN_BIT"):
        yield svdf(f"float32 with {activation}", activation=activation)
        for weights in ("int8", "uint8"):
            yield svdf(f"float32 with {weights} weights and {activation}", activation=activation, weights=weights)
    yield svdf("float32, 50 runs", {**LONG, "opsets": EVERY_OPSET})
    yield svdf("float32 with weights as graph inputs", given=True)
    yield svdf("float32 with the state as a graph input", {"refused": "not variable tensors"}, variable=False)
    kinds: tuple[dict[str, Any], ...] = (
        {},
        {"weights": "int8"},
        {"weights": "uint8"},
        {"dtype": "int8", "weights": "int8"},
    )
    for kind in kinds:
        of = f"{kind.get('dtype', 'float32')} on {kind.get('weights', 'float32')}"
        yield svdf(f"{of} of rank 1", LONG, rank=1, **kind)
        yield svdf(f"{of} of rank 3", LONG, rank=3, **kind)
        yield svdf(f"{of} without a bias", biased=False, **kind)
        yield svdf(f"{of} with a memory of 1", memory=1, **kind)
        yield svdf(f"{of}, batch size 1", batch=1, **kind)
        yield svdf(f"{of}, reset in every run", RESET, **kind)
        if kind.get("weights", "float32") != "float32":
            yield svdf(f"{of} with zero points", {"refused": "nonzero zero points"}, point=3, **kind)
    yield svdf("float32 with int8 weights, asymmetric activations", weights="int8", asymmetric=True)
    yield svdf("float32 with a float16 initial state", initial_dtype="float16")
    yield svdf("float32 with a float16 initial state in every run", RESET, initial_dtype="float16")
    whole: dict[str, Any] = {"dtype": "int8", "weights": "int8"}
    yield svdf("int8 below and above its bounds", LONG, output=(0.0041, 3), **whole)
    yield svdf("int8 with a saturated state", LONG, state=1.7e-5, **whole)
    insists = {"refused": "requires RELU", "kernel_refuses": "params->activation != kTfLiteActRelu"}
    for activation in ("NONE", "RELU_N1_TO_1", "RELU6", "TANH", "SIGN_BIT"):
        yield svdf(f"int8 with {activation}", insists, activation=activation, **whole)
    yield from int8_state_cases()


# --- a state of 8 bits ------------------------------------------------------------------------


def int8_state_cases() -> Iterator[Case]:
    """Yield 8-bit states, compared with TensorFlow Lite for Microcontrollers; LiteRT writes beyond the end of such states."""
    exact = {"kernel": run_micro, "tolerance": Tolerance(steps=0), "why": "every rounding is the kernel's"}
    options: dict[str, dict[str, Any]] = {
        "int8": {},
        "int8 of rank 1": {"rank": 1},
        "int8 without a bias": {"biased": False},
        "int8 with a memory of 1": {"memory": 1},
        "int8, batch size 1": {"batch": 1},
        "int8 without an activation": {"activation": "NONE"},
        "int8, state without a zero point": {"byte_state": (0.011, 0)},
        "int8, saturated state": {"byte_state": (0.0023, 0)},
        "int8, state that underflows": {"byte_state": (0.0031, -30)},
        "int8, state that overflows": {"byte_state": (0.0031, 30)},
        "int8, state with a small scale": {"byte_state": (0.047, 11)},
        "int8 below and above its bounds": {"output": (0.0041, 3)},
        "int8, sums halfway between integers": {"halves": True, "byte_state": (2**-2, 5), "output": (2**-4, -17)},
        "int8, many inputs": {"inputs": 653, "byte_state": (0.11, 5)},
    }
    for name, fields in options.items():
        yield svdf(f"{name}, 8-bit state", {**LONG, **exact}, dtype="int8", weights="int8", bytes=True, **fields)
    yield svdf("int8, reset in every run, 8-bit state", {**RESET, **exact}, dtype="int8", weights="int8", bytes=True)
    refused = {"refused": "requires RELU"}
    yield svdf("int8 with TANH, 8-bit state", refused, dtype="int8", weights="int8", bytes=True, activation="TANH")


def run_micro(op: Operator, x: Array, features: Array, times: Array, bias: Array | None, state: Array) -> Array:
    """Compute one run number by number, after tflite-micro's svdf_common.cc and common.cc; changes ``state``."""
    parameters = [op.inputs[0], op.inputs[1], op.inputs[2], op.inputs[4], op.outputs[0]]
    quantizations = [p.quantization for p in parameters if p is not None and isinstance(p.quantization, Quantization)]
    (before, _, _, point, after) = (quantization.zero_point[0] for quantization in quantizations)
    of_x, of_features, of_times, of_state, of_y = (np.float32(quantization.scale[0]) for quantization in quantizations)
    first, second = float(of_x * of_features / of_state), float(of_state * of_times / of_y)
    filters, runs = times.shape
    flat, units = state.reshape(-1), filters // int(op.options.rank)
    flat[:-1] = flat[1:].copy()
    result = np.zeros((len(x), units), np.int8)
    for b, row in enumerate(x.astype(int)):
        sums = [0] * filters
        for f in range(filters):
            product = multiply(int(((row - before) * features[f].astype(int)).sum()), first)
            place = (b * filters + f) * runs
            flat[place + runs - 1] = (point + min(max(product, -128), 127) + 128) % 256 - 128
            byte_state = flat[place : place + runs].astype(int) - point
            sums[f] = int((byte_state * times[f].astype(int)).sum())
        for u in range(units):
            total = sum(sums[u * op.options.rank : (u + 1) * op.options.rank]) + (0 if bias is None else int(bias[u]))
            result[b, u] = min(max(multiply(total, second) + after, -128), 127)
    return result


def multiply(number: int, factor: float) -> int:
    """Return an integer times a mantissa of 31 bits and a power of two, rounded twice (MultiplyByQuantizedMultiplier)."""
    fraction, exponent = np.frexp(factor)
    mantissa, exponent = round(float(fraction) * 2**31), int(exponent)
    if mantissa == 2**31:
        mantissa, exponent = 2**30, exponent + 1
    product = number * 2 ** max(exponent, 0) * mantissa
    nudged = product + (2**30 if product >= 0 else 1 - 2**30)
    high: int = nudged // 2**31 if nudged >= 0 else -(-nudged // 2**31)
    bits = max(-exponent, 0)
    low, mask = high & (1 << bits) - 1, (1 << bits) - 1
    return (high >> bits) + (1 if low > (mask >> 1) + (high < 0) else 0)
