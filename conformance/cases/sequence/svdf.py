"""SVDF: ranks, memory sizes, activations, dtypes, states over fifty runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from conformance.case import EVERY_OPSET, Case
from conformance.lstms import initialize_state
from conformance.models import Net, Spec, constant, net, random_array, tensor
from onnx_tflite_plugin.source.model import Array, Operator, Quantization
from onnx_tflite_plugin.verify import Tolerance

BATCH, INPUTS, UNITS, MEMORY = 3, 7, 5, 11
MANY_RUNS = {"runs": 50}
RESET = {"options": {"state": "reset"}}
OUTPUTS = {"int8": (0.0293, -17)}


@dataclass(frozen=True)
class Svdf:
    """One SVDF operator with ``units`` * ``rank`` filters and constant random weights."""

    dtype: str = "float32"
    weights: str = "float32"  # dtype of matrices
    rank: int = 2
    memory: int = MEMORY
    batch: int = BATCH
    inputs: int = INPUTS
    units: int = UNITS
    biased: bool = True
    activation: str = "RELU"
    variable: bool = True  # the state is a variable tensor, otherwise a graph input
    initial_dtype: str = ""  # of the constant that initializes the state; "" for none
    weights_as_inputs: bool = False
    asymmetric: bool = False
    weight_zero_point: int = 0
    output_quantization: tuple[float, int] = (0.0293, -17)
    int16_state_scale: float = 0.00011  # scale of an int8 operator's state if it has 16 bits
    int8_state: bool = False  # the state of an int8 operator has 8 bits
    int8_state_quantization: tuple[float, int] = (0.011, -9)
    power_of_two_scales: bool = False  # so that many sums are halfway between integers

    @property
    def filters(self) -> int:
        return self.units * self.rank

    def matrix(self, rows: int, columns: int, name: str, dtype: str, scale: float) -> Spec:
        if dtype == "float32":
            weights = constant(0.6 * random_array(rows, columns, seed=name))
            return Spec((rows, columns)) if self.weights_as_inputs else weights
        low, high = {"uint8": (0, 255), "int16": (-32767, 32767)}.get(dtype, (-127, 127))
        return constant(
            random_array(rows, columns, dtype=dtype, seed=name, low=low, high=high), None, scale, self.weight_zero_point
        )

    def build(self, model: Net) -> None:
        is_int8 = self.dtype == "int8"
        state_scale, state_dtype = (
            (self.int8_state_quantization[0], "int8") if self.int8_state else (self.int16_state_scale, "int16")
        )
        time_scale = 0.0067 if self.int8_state else 1.3e-5
        input_scale, feature_scale = 0.031, 0.0047
        if self.power_of_two_scales:
            input_scale, feature_scale, time_scale = 2**-5, 2**-8, 2**-7
        x = model.input(tensor(self.batch, self.inputs, dtype=self.dtype, scale=input_scale if is_int8 else None))
        features = self.matrix(self.filters, self.inputs, "features", self.weights, feature_scale)
        time_weights = self.matrix(
            self.filters, self.memory, "times", state_dtype if is_int8 else self.weights, time_scale
        )
        if self.weights in ("int8", "uint8") and not is_int8:
            time_weights = self.matrix(self.filters, self.memory, "times", self.weights, 0.0031)
        bias_values = random_array(self.units, seed="bias", low=-0.9, high=0.9)
        quantized_bias = ((3000 if self.int8_state else 3e6) * bias_values).astype("int32")
        bias = constant(quantized_bias, "int32", state_scale * time_scale) if is_int8 else constant(bias_values)
        state_shape = (self.batch, self.filters * self.memory)
        state_spec = Spec(state_shape, state_dtype, state_scale) if is_int8 else Spec(state_shape)
        if self.int8_state:
            state_spec = replace(state_spec, zero_point=self.int8_state_quantization[1])
        state = (
            model.graph.tensor(
                "state",
                state_spec.shape,
                state_spec.dtype,
                quantization=state_spec.quantization,
                variable=True,
            )
            if self.variable
            else model.input(state_spec)
        )
        if self.initial_dtype:
            initialize_state(model.graph, state, self.initial_dtype)
        scale, zero_point = self.output_quantization
        y = model.result(
            tensor(self.batch, self.units, dtype=self.dtype, scale=scale if is_int8 else None, zero_point=zero_point)
        )
        refs = [
            x,
            model.add_operand(features),
            model.add_operand(time_weights),
            model.add_operand(bias) if self.biased else None,
            state,
        ]
        options = {
            "rank": self.rank,
            "fused_activation_function": self.activation,
            "asymmetric_quantize_inputs": self.asymmetric,
        }
        model.graph.operator("SVDF", refs, [y], options)
        model.output(y)


def svdf(name: str, case_fields: dict[str, Any] | None = None, **fields: Any) -> Case:
    operator = Svdf(**fields)
    return net("SVDF", name, operator.build, **{"dtype": operator.dtype, **(case_fields or {})})


def cases() -> Iterator[Case]:
    for activation in ("NONE", "RELU", "RELU_N1_TO_1", "RELU6", "TANH", "SIGN_BIT"):
        yield svdf(f"float32 with {activation}", activation=activation)
        for weights in ("int8", "uint8"):
            yield svdf(f"float32 with {weights} weights and {activation}", activation=activation, weights=weights)
    yield svdf("float32, 50 runs", {**MANY_RUNS, "opsets": EVERY_OPSET})
    yield svdf("float32 with weights as graph inputs", weights_as_inputs=True)
    yield svdf("float32 with the state as a graph input", {"refusal": "not variable tensors"}, variable=False)
    dtype_fields: tuple[dict[str, Any], ...] = (
        {},
        {"weights": "int8"},
        {"weights": "uint8"},
        {"dtype": "int8", "weights": "int8"},
    )
    for fields in dtype_fields:
        prefix = f"{fields.get('dtype', 'float32')} with {fields.get('weights', 'float32')} weights"
        yield svdf(f"{prefix}, rank 1", MANY_RUNS, rank=1, **fields)
        yield svdf(f"{prefix}, rank 3", MANY_RUNS, rank=3, **fields)
        yield svdf(f"{prefix}, without a bias", biased=False, **fields)
        yield svdf(f"{prefix}, memory of 1", memory=1, **fields)
        yield svdf(f"{prefix}, batch size 1", batch=1, **fields)
        yield svdf(f"{prefix}, reset in every run", RESET, **fields)
        if fields.get("weights", "float32") != "float32":
            yield svdf(
                f"{prefix}, nonzero weight zero points",
                {"refusal": "nonzero zero points"},
                weight_zero_point=3,
                **fields,
            )
    yield svdf("float32 with int8 weights, asymmetric activations", weights="int8", asymmetric=True)
    yield svdf("float32 with a float16 initial state", initial_dtype="float16")
    yield svdf("float32 with a float16 initial state in every run", RESET, initial_dtype="float16")
    int8_fields: dict[str, Any] = {"dtype": "int8", "weights": "int8"}
    yield svdf("int8 with saturated outputs", MANY_RUNS, output_quantization=(0.0041, 3), **int8_fields)
    yield svdf("int8 with a saturated state", MANY_RUNS, int16_state_scale=1.7e-5, **int8_fields)
    refusal = {"refusal": "requires RELU", "kernel_refusal": "params->activation != kTfLiteActRelu"}
    for activation in ("NONE", "RELU_N1_TO_1", "RELU6", "TANH", "SIGN_BIT"):
        yield svdf(f"int8 with {activation}", refusal, activation=activation, **int8_fields)
    yield from int8_state_cases()


# --- 8-bit states ------------------------------------------------------------------------------


def int8_state_cases() -> Iterator[Case]:
    """Yield cases of 8-bit states.

    The reference is TensorFlow Lite for Microcontrollers. LiteRT writes beyond the end of 8-bit states.
    """
    compared_with_micro = {
        "kernel": run_micro,
        "tolerance": Tolerance(steps=0),
        "tolerance_reason": "each value is rounded as in the kernel",
    }
    fields_by_name: dict[str, dict[str, Any]] = {
        "int8": {},
        "int8 of rank 1": {"rank": 1},
        "int8 without a bias": {"biased": False},
        "int8 with a memory of 1": {"memory": 1},
        "int8, batch size 1": {"batch": 1},
        "int8 without an activation": {"activation": "NONE"},
        "int8, state without a zero point": {"int8_state_quantization": (0.011, 0)},
        "int8, saturated state": {"int8_state_quantization": (0.0023, 0)},
        "int8, state that underflows": {"int8_state_quantization": (0.0031, -30)},
        "int8, state that overflows": {"int8_state_quantization": (0.0031, 30)},
        "int8, state with a small scale": {"int8_state_quantization": (0.047, 11)},
        "int8 with saturated outputs": {"output_quantization": (0.0041, 3)},
        "int8, sums halfway between integers": {
            "power_of_two_scales": True,
            "int8_state_quantization": (2**-2, 5),
            "output_quantization": (2**-4, -17),
        },
        "int8, many inputs": {"inputs": 653, "int8_state_quantization": (0.11, 5)},
    }
    for name, fields in fields_by_name.items():
        yield svdf(
            f"{name}, 8-bit state",
            {**MANY_RUNS, **compared_with_micro},
            dtype="int8",
            weights="int8",
            int8_state=True,
            **fields,
        )
    yield svdf(
        "int8, reset in every run, 8-bit state",
        {**RESET, **compared_with_micro},
        dtype="int8",
        weights="int8",
        int8_state=True,
    )
    refused = {"refusal": "requires RELU"}
    yield svdf("int8 with TANH, 8-bit state", refused, dtype="int8", weights="int8", int8_state=True, activation="TANH")


def run_micro(op: Operator, x: Array, features: Array, time_weights: Array, bias: Array | None, state: Array) -> Array:
    """Compute the output of one run, element by element, and update ``state``.

    Source: svdf_common.cc and common.cc of tflite-micro.
    """
    tensors = [op.inputs[0], op.inputs[1], op.inputs[2], op.inputs[4], op.outputs[0]]
    quantizations = [t.quantization for t in tensors if t is not None and isinstance(t.quantization, Quantization)]
    (x_zero_point, _, _, state_zero_point, y_zero_point) = (
        quantization.zero_point[0] for quantization in quantizations
    )
    x_scale, feature_scale, time_scale, state_scale, y_scale = (
        np.float32(quantization.scale[0]) for quantization in quantizations
    )
    to_state, to_output = float(x_scale * feature_scale / state_scale), float(state_scale * time_scale / y_scale)
    filters, memory = time_weights.shape
    flat_state, units = state.reshape(-1), filters // int(op.options.rank)
    flat_state[:-1] = flat_state[1:].copy()
    result = np.zeros((len(x), units), np.int8)
    for b, row in enumerate(x.astype(int)):
        sums = [0] * filters
        for f in range(filters):
            product = multiply_quantized(int(((row - x_zero_point) * features[f].astype(int)).sum()), to_state)
            start = (b * filters + f) * memory
            clipped = min(max(product, -128), 127)
            flat_state[start + memory - 1] = (state_zero_point + clipped + 128) % 256 - 128
            centered_state = flat_state[start : start + memory].astype(int) - state_zero_point
            sums[f] = int((centered_state * time_weights[f].astype(int)).sum())
        for u in range(units):
            total = sum(sums[u * op.options.rank : (u + 1) * op.options.rank]) + (0 if bias is None else int(bias[u]))
            result[b, u] = min(max(multiply_quantized(total, to_output) + y_zero_point, -128), 127)
    return result


def multiply_quantized(value: int, factor: float) -> int:
    """Return ``value * factor``, rounded twice, as in MultiplyByQuantizedMultiplier.

    The factor is a 31-bit mantissa times a power of two.
    """
    fraction, exponent = np.frexp(factor)
    mantissa, exponent = round(float(fraction) * 2**31), int(exponent)
    if mantissa == 2**31:
        mantissa, exponent = 2**30, exponent + 1
    product = value * 2 ** max(exponent, 0) * mantissa
    nudged = product + (2**30 if product >= 0 else 1 - 2**30)
    high: int = nudged // 2**31 if nudged >= 0 else -(-nudged // 2**31)
    bits = max(-exponent, 0)
    low, mask = high & (1 << bits) - 1, (1 << bits) - 1
    return (high >> bits) + (1 if low > (mask >> 1) + (high < 0) else 0)
