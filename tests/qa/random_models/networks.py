"""Random networks of several operators.

They are float, have 8-bit weights, or are quantized and calibrated on random inputs. ``python -m tests.qa.random_models
--networks`` tests more networks than ``tests/qa/test_random_models.py``. In models of single operators the surroundings
are simple. In networks, operators read the results of other operators, so that layouts, scales and passes interact.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, NamedTuple

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from conformance.builder import TensorRef
from conformance.models import Net, Spec, constant
from conformance.registered import REGISTERED
from onnx_tflite_plugin.source.model import Array
from tests.qa.random_models.draw import ACTIVATION_DTYPES, Draw
from tests.qa.random_models.elementwise import REQUIRED_PARAMETERS
from tests.qa.random_models.reductions import PARAMETERS

KINDS = ("float32", "float32", "dynamic", "half", "int8", "int8", "int8", "int8", "uint8", "int16")
IMAGES = (
    (1, 7, 5, 3),
    (2, 5, 7, 8),
    (1, 1, 11, 6),
    (1, 12, 12, 4),
    (1, 3, 3, 16),
    (3, 13),
    (2, 11, 5),
    (1, 2, 3, 5, 7),
)
MAX_ELEMENTS = 4000  # elements of a tensor
MAX_STEP_RATIO = 16  # an operand's step over the result's step

AddStep = Callable[["Network", TensorRef], None]


class Step(NamedTuple):
    """A function that adds operators to a network."""

    weight: float  # relative frequency
    dtypes: Collection[str]  # supported dtypes of activations
    add: AddStep


STEPS: dict[str, Step] = {}
"""Steps by operator, or by the name of a block of operators."""
Ranges = Mapping[int, tuple[float, float]]


def step(*codes: str, weight: float = 1.0) -> Callable[[AddStep], AddStep]:
    """Register a function that adds one of these operators to a network."""

    def register(add_step: AddStep) -> AddStep:
        for code in codes:
            dtypes = REGISTERED[code].dtypes
            STEPS[code] = Step(weight, ACTIVATION_DTYPES if code == "QUANTIZE" else dtypes, add_step)
        return add_step

    return register


def block(weight: float = 1.0, dtypes: Collection[str] = ACTIVATION_DTYPES) -> Callable[[AddStep], AddStep]:
    """Register a function that adds several operators, such as a decomposed activation."""

    def register(add_step: AddStep) -> AddStep:
        STEPS[add_step.__name__] = Step(weight, dtypes, add_step)
        return add_step

    return register


class Unsupported(Exception):
    """Raised by a step that does not support the given tensor."""


@dataclass
class Network:
    """A random network."""

    draw: Draw
    kind: str
    ranges: Ranges | None = None  # range of each tensor in a float run; without them, the network is float
    code: str = ""  # operator or block that is being added

    def __post_init__(self) -> None:
        self.net = Net()
        self.pool: list[TensorRef] = []
        self.auxiliary: list[TensorRef] = []  # indices and conditions, which few operators read
        self.read: set[TensorRef] = set()
        self.spec_numbers: dict[Spec, int] = {}
        self.range_specs: set[Spec] = set()  # specs with parameters from their measured range
        self.activation_numbers: dict[TensorRef, int] = {}  # position of each activation in the order of requests

    @property
    def dtype(self) -> str:
        """Dtype of activations after calibration."""
        return self.kind if self.kind in ("int8", "uint8", "int16") else "float32"

    def build(self, operators: int) -> bytes:
        self.pool.append(self.net.input(self.activation(self.draw.pick(*IMAGES))))
        codes = [code for code, step in STEPS.items() if self.dtype in step.dtypes]
        shares = np.array([STEPS[code].weight for code in codes])
        attempts = 0
        while operators and attempts < 200:
            attempts += 1
            self.code = codes[int(self.draw.random.choice(len(codes), p=shares / shares.sum()))]
            x = self.draw.pick(*self.pool[-4:])
            try:
                STEPS[self.code].add(self, x)
            except Unsupported:
                continue
            operators -= 1
        outputs = [ref for ref in (*self.pool[1:], *self.auxiliary) if ref not in self.read]
        if len(self.pool) > 3 and self.draw.chance(0.3):  # an output that operators read too
            outputs.append(self.draw.pick(*[ref for ref in self.pool[1:] if ref in self.read] or outputs[:1]))
        self.net.output(*dict.fromkeys(outputs))
        return self.net.build()

    # --- tensors ------------------------------------------------------------------------------

    def shape(self, ref: TensorRef) -> tuple[int, ...]:
        return tuple(size or 0 for size in self.net.spec(ref).shape)

    def rank(self, ref: TensorRef, *ranks: int) -> tuple[int, ...]:
        """Return the shape; raise Unsupported if the rank is different."""
        shape = self.shape(ref)
        if len(shape) not in ranks:
            raise Unsupported
        return shape

    def activation(self, shape: Sequence[int], *, like: TensorRef | None = None, required: Any = None) -> Spec:
        """Return a result spec.

        Its quantization parameters are ``required`` by the kernel, or those of ``like``, or follow from its measured range.
        """
        if prod(shape) > MAX_ELEMENTS or not all(shape):
            raise Unsupported
        number = len(self.spec_numbers)
        spec = Spec(tuple(shape), "float32")
        self.spec_numbers[spec] = number
        if self.ranges is None or self.dtype == "float32":
            return spec
        if required is not None:
            return Spec(tuple(shape), self.dtype, *required[self.dtype])
        if like is not None:
            return replace(self.net.spec(like), shape=tuple(shape), value=None, name="")
        low, high = self.ranges.get(number, (-3.0, 3.0))
        spec = Spec(tuple(shape), self.dtype, *parameters(low, high, self.dtype))
        self.range_specs.add(spec)
        return spec

    def numbers(self, *shape: int, spread: float = 1.0) -> Array:
        return np.asarray(self.draw.random.normal(0, spread, shape), np.float32)

    def operand(self, array: Array, like: TensorRef | None = None) -> Spec:
        """Return a constant operand with the parameters of its range or of another tensor."""
        if self.dtype == "float32" or self.ranges is None:
            return constant(array)
        scale, point = parameters(float(array.min(initial=0)), float(array.max(initial=0)), self.dtype)
        if like is not None:
            spec = self.net.spec(like)
            scale, point = float(np.asarray(spec.scale)), int(np.asarray(spec.zero_point))
        limits = np.iinfo(self.dtype)
        quantized = np.clip(np.rint(array / scale) + point, limits.min, limits.max)
        return constant(quantized.astype(self.dtype), None, scale, point)

    def index_constant(self, values: Any) -> Spec:
        return constant(np.asarray(values, np.int32))

    def weights(self, x: TensorRef, array: Array, axis: int, bias: Array | None) -> list[Spec | TensorRef | None]:
        """Return weights and a bias in the dtypes of this kind of network."""
        per_channel, has_bias = self.draw.chance(0.7), self.draw.chance(0.7) or self.code != "FULLY_CONNECTED"
        b = bias if has_bias else None
        if self.kind == "float32" or self.ranges is None or (self.kind == "dynamic" and not per_channel):
            return [constant(array), None if b is None else constant(b)]
        if self.kind == "half":
            half_tensors = [self.net.add_operand(constant(a.astype(np.float16))) for a in (array, b) if a is not None]
            float_tensors = [
                self.net.call("DEQUANTIZE", [half], Spec(self.net.spec(half).shape)) for half in half_tensors
            ]
            return [*float_tensors, None] if b is None else list(float_tensors)
        if self.dtype == "uint8":
            scale, point = parameters(float(array.min()), float(array.max()), "uint8")
            quantized = np.clip(np.rint(array / scale) + point, 0, 255).astype(np.uint8)
            w, scales = constant(quantized, None, scale, point), np.array([scale])
        else:
            reduced_axes = tuple(k for k in range(array.ndim) if k != axis)
            peaks = np.abs(array).max(axis=reduced_axes if per_channel else None, keepdims=True)
            steps = np.maximum(np.float32(peaks / 127), np.float32(1e-6))
            scales = steps.reshape(-1)
            quantized = np.rint(array / steps).astype(np.int8)
            scale_list: Any = scales.tolist() if per_channel else float(scales[0])
            w = constant(quantized, None, scale_list, [0] * len(scales) if per_channel else 0, axis)
        if b is None:
            return [w, None]
        if self.dtype == "float32":
            return [w, constant(b)]
        product = scales.astype(np.float64) * float(np.asarray(self.net.spec(x).scale))
        bias_dtype = "int64" if self.dtype == "int16" else "int32"
        return [
            w,
            constant(np.rint(b / product).astype(bias_dtype), None, np.float32(product).tolist(), [0] * len(product)),
        ]

    def bias_type(self, operands: Sequence[Any]) -> dict[str, str]:
        return {"quantized_bias_type": "INT64"} if self.dtype == "int16" and operands[-1] is not None else {}

    # --- operators ----------------------------------------------------------------------------

    def call(self, inputs: Sequence[Any], *results: Spec, code: str = "", **options: Any) -> TensorRef:
        """Add an operator, by default the current one, and return its first result."""
        code = code or self.code
        while inputs[-1] is None:  # the hybrid kernels count operands
            inputs = inputs[:-1]
        results = tuple(self.limit_resolution(result, inputs) for result in results)
        refs = self.net.call_multi_output(code, inputs, *results, version=REGISTERED[code].version, **options)
        self.read.update(i for i in inputs if isinstance(i, TensorRef))
        self.activation_numbers.update(
            {ref: self.spec_numbers[spec] for ref, spec in zip(refs, results, strict=True) if spec in self.spec_numbers}
        )
        self.pool += refs
        return refs[0]

    def apply(
        self, code: str, inputs: Sequence[Any], shape: Sequence[int] | None = None, *, like: TensorRef | None = None,
        **options: Any,
    ) -> TensorRef:  # fmt: skip
        """Add an operator of a block, whose result has the first operand's shape.

        ``like``: the tensor whose parameters the result gets.
        """
        required = {**REQUIRED_PARAMETERS, **PARAMETERS}.get(code)
        y = self.activation(self.shape(inputs[0]) if shape is None else shape, like=like, required=required)
        return self.call(inputs, y, code=code, **options)

    def add_auxiliary(self, code: str, inputs: Sequence[Any], *results: Spec, **options: Any) -> list[TensorRef]:
        """Add an operator whose results are indices, sizes or conditions."""
        refs = self.net.call_multi_output(code, inputs, *results, version=REGISTERED[code].version, **options)
        self.read.update(i for i in inputs if isinstance(i, TensorRef))
        self.auxiliary += refs
        return refs

    def limit_resolution(self, result: Spec, inputs: Sequence[Any]) -> Spec:
        """Return the result spec, with a larger scale if the operands are much coarser.

        The scale is at least the largest operand scale divided by ``MAX_STEP_RATIO``.
        """
        specs = [self.net.spec(i) for i in inputs if isinstance(i, TensorRef)]
        steps = [float(np.asarray(spec.scale)) for spec in specs if spec.scale is not None and np.ndim(spec.scale) == 0]
        if result not in self.range_specs or not steps:
            return result
        return replace(result, scale=max(float(np.asarray(result.scale)), max(steps) / MAX_STEP_RATIO))

    def fusion_constant(self, value: float) -> Spec:
        """Return the constant that a fusion requires, or sometimes another number."""
        return self.operand(np.asarray(value * (1.5 if self.draw.chance(0.08) else 1.0), np.float32))

    def rescale(self, x: TensorRef, like: TensorRef | None = None) -> TensorRef:
        """Add a QUANTIZE to other parameters; in a float network, an ADD of 0."""
        y = self.activation(self.shape(x), like=like)
        if self.ranges is None:
            return self.call([x, self.operand(np.zeros(1, np.float32))], y, code="ADD")
        return self.call([x], y, code="QUANTIZE")

    def same_shape_tensor(self, x: TensorRef) -> TensorRef:
        """Return another tensor of the same shape, or the tensor itself if there is none."""
        shape = self.shape(x)
        return self.draw.pick(*[ref for ref in self.pool if self.shape(ref) == shape])

    def activation_function(self) -> str:
        return str(self.draw.pick("NONE", "NONE", "NONE", "RELU", "RELU", "RELU6", "RELU_N1_TO_1"))


def parameters(low: float, high: float, dtype: str) -> tuple[float, int]:
    """Return scale and zero point as TFLite's converter computes them.

    The range includes 0; int16 is symmetric.
    """
    low, high = min(low, 0.0), max(high, 0.0)
    if high - low < 1e-5:
        high = low + 1.0
    limits = np.iinfo(dtype)
    if dtype == "int16":
        return float(np.float32(max(high, -low) / limits.max)), 0
    scale = float(np.float32((high - low) / (limits.max - limits.min)))
    return scale, int(np.clip(np.rint(limits.min - low / scale), limits.min, limits.max))


def kind(seed: int, number: int) -> str:
    return str(Draw(seed, number).pick(*KINDS))


def input_shape(seed: int, number: int) -> tuple[int, ...]:
    """Return the shape of the only input."""
    float_network, _ = build_model(seed, number, None)
    return float_network.shape(float_network.pool[0])


def network(seed: int, number: int) -> bytes:
    """Return network ``number`` of a seed.

    Raises RuntimeError if LiteRT cannot run it in float.
    """
    float_network, data = build_model(seed, number, None)
    return (
        data if float_network.kind == "float32" else build_model(seed, number, ranges(float_network, data, number))[1]
    )


def build_model(seed: int, number: int, measured_ranges: Ranges | None) -> tuple[Network, bytes]:
    """Build the network in float, or with the measured ranges."""
    draw = Draw(seed, number)
    result = Network(draw, draw.pick(*KINDS), measured_ranges)
    return result, result.build(draw.between(2, 12))


def ranges(network: Network, data: bytes, number: int) -> Ranges:
    """Return the range of each activation on inputs between -3 and 3, by its number."""
    kernels = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    interpreter = Interpreter(
        model_content=data, experimental_preserve_all_tensors=True, experimental_op_resolver_type=kernels
    )
    interpreter.allocate_tensors()
    random = np.random.default_rng(number)
    for info in interpreter.get_input_details():
        interpreter.set_tensor(info["index"], random.uniform(-3, 3, info["shape"]).astype(np.float32))
    interpreter.invoke()
    arrays = {number: interpreter.get_tensor(int(ref)) for ref, number in network.activation_numbers.items()}
    return {number: (float(a.min()), float(a.max())) for number, a in arrays.items() if a.dtype == np.float32}
