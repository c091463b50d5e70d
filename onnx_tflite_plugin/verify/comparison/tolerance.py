"""Tolerances of outputs, by their dtype and the operators that computed them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from onnx_tflite_plugin.source.model import Model, Operator, Quantization, Tensor
from onnx_tflite_plugin.verify.comparison.distance import NIBBLES
from onnx_tflite_plugin.verify.runtimes.structure import operands

STEPPED = {"int8", "uint8", "int16", "uint16"}
"""The dtypes of quantized activations, which are compared in quantization steps."""

_WEIGHTS = {"int8", "uint8", "int4", "uint4", "int2"}


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Tolerance by the dtype of an output.

    ``of_range``: a share of the range of a float output. ``steps``: quantization steps of int8, uint8, int16 and
    uint16; ``int16_steps``: of 16-bit ones, where those are more. ``integers``: the difference of wider integers,
    booleans and text. ``dynamic_range``: the model has operators whose kernels quantize activations.
    ``by_channel``: the share of a float output is also one of each channel's own range.
    """

    of_range: float = 1e-3
    steps: float = 1
    integers: float = 0
    int16_steps: float = 0
    dynamic_range: bool = False
    by_channel: bool = False

    def of_dtype(self, dtype: str) -> float:
        """Return the steps that quantized integers of a dtype may differ by."""
        return max(self.steps, self.int16_steps) if dtype in ("int16", "uint16") else self.steps

    @classmethod
    def of(cls, model: Model) -> Tolerance:
        """Return the tolerance of a model: dynamic-range arithmetic is coarse, a single operator is exact."""
        operators = [operator for graph in model.subgraphs for operator in graph.operators]
        coarse = [operator for operator in operators if is_dynamic_range(operator)]
        if coarse:
            entries = {model.main.index, *(signature.subgraph for signature in model.signatures)}
            fed_back = any(operator.subgraph not in entries or _remembers(operator) for operator in coarse)
            return cls(of_range=FED_BACK if fed_back else 2e-2, int16_steps=INT16_STEPS, dynamic_range=True)
        if len(operators) == 1:
            return cls(of_range=HANDED_ON if _remembers(operators[0]) else 1e-5)
        return cls(int16_steps=INT16_STEPS)


INT16_STEPS = 16
"""Steps that a network of int16 activations may differ by: the kernels round a convolution's multiplier to 16 bits, which is a
step off in one result of 20 (MultiplyByQuantizedMultiplier, internal/common.cc); after the layers of a ResNet50 it is 15.
"""


HANDED_ON = 1e-4
"""Share of the range that one float32 operator may differ by, if its state carries the last digits to the next run.

An LSTM that normalizes is 1.6e-5 off after 50 runs.
"""

FED_BACK = 5e-2
"""Share of the range that dynamic quantization may differ by, if a loop or a state feeds rounded values back.

LiteRT rounds activations to 8 bits at every time step (BatchQuantizeFloats, kernels/lstm_eval.cc), by default to 127 steps of
a row's largest magnitude. An LSTM of 67 cells is 0.022 from what it would be without, after 7 time steps.
"""


def _remembers(operator: Operator) -> bool:
    return any(slot is not None and slot.is_variable for slot in operator.inputs)


def is_dynamic_range(operator: Operator) -> bool:
    """True if float activations meet int8 or smaller weights, so that the kernel quantizes the activations.

    Weights of 4 and 2 bits may have a scale per block, which ``structure`` does not read.
    """
    weights = any(
        slot is not None and slot.dtype in _WEIGHTS and (slot.quantization is not None or slot.dtype in NIBBLES)
        for slot in operator.inputs
    )
    floats = any(slot.dtype.startswith("float") for slot in operands(operator))
    return weights and floats and any(slot is not None and slot.dtype.startswith("float") for slot in operator.outputs)


def inherited_step(
    tensor: Tensor, producers: Mapping[int, Operator], tolerance: Tolerance, given: Collection[int] = ()
) -> float:
    """Return the dequantized step of the integers that a float tensor was computed from; 0 if there are none.

    A network that dequantizes its result cannot be nearer than they are. The way back goes through operators
    with a single computed operand, up to the tensors that both are ``given``, by index, which are off by nothing.
    """
    seen = set()
    while tensor.index not in seen:
        seen.add(tensor.index)
        quantization = tensor.quantization
        if isinstance(quantization, Quantization) and tensor.dtype in STEPPED:
            return max(quantization.scale) * tolerance.of_dtype(tensor.dtype)
        sources = list(operands(producers[tensor.index])) if tensor.index in producers else []
        if len(sources) != 1 or not tensor.dtype.startswith("float") or sources[0].index in given:
            return 0.0
        tensor = sources[0]
    return 0.0
