"""Random networks of several operators: float, with 8-bit weights, or fully quantized and calibrated on random inputs.

``python -m tests.qa.random_models --networks`` tries more than
``tests/qa/test_random_models.py`` does. Around single operators that are drawn is
always the same; here each takes what others give, so that layouts, scales and passes meet.
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
from tests.qa.random_models.draw import STORED, Draw
from tests.qa.random_models.elementwise import LOWEST
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
LARGEST = 4000  # elements of a tensor
FINEST = 16  # steps of a result for one of an operand

Draws = Callable[["Network", TensorRef], None]


class Step(NamedTuple):
    """A registered step. ``weight``: its frequency in networks of these activations."""

    weight: float
    dtypes: Collection[str]
    draws: Draws


STEPS: dict[str, Step] = {}
"""By operator, or by the name of a block of several."""
Ranges = Mapping[int, tuple[float, float]]


def step(*codes: str, weight: float = 1.0) -> Callable[[Draws], Draws]:
    """Register a function that adds these operators."""

    def register(draws: Draws) -> Draws:
        for code in codes:
            dtypes = REGISTERED[code].dtypes
            STEPS[code] = Step(weight, STORED if code == "QUANTIZE" else dtypes, draws)
        return draws

    return register


def block(weight: float = 1.0, dtypes: Collection[str] = STORED) -> Callable[[Draws], Draws]:
    """Register a function that adds several operators, as networks decompose them."""

    def register(draws: Draws) -> Draws:
        STEPS[draws.__name__] = Step(weight, dtypes, draws)
        return draws

    return register


class Unfit(Exception):
    """Raised by a step that does not support the given tensor."""


@dataclass
class Network:
    """Network ``number`` of a seed. ``ranges``: of each tensor from a float run; without them the network is float."""

    draw: Draw
    kind: str
    ranges: Ranges | None = None
    code: str = ""

    def __post_init__(self) -> None:
        self.net = Net()
        self.pool: list[TensorRef] = []
        self.beside: list[TensorRef] = []  # indices and the like, which few operators take
        self.read: set[TensorRef] = set()
        self.requested: dict[Spec, int] = {}
        self.free: set[Spec] = set()  # whose parameters are those of their range
        self.numbered: dict[TensorRef, int] = {}  # activations in the order in which they were requested

    @property
    def dtype(self) -> str:
        """Dtype of activations after calibration."""
        return self.kind if self.kind in ("int8", "uint8", "int16") else "float32"

    def build(self, operators: int) -> bytes:
        self.pool.append(self.net.input(self.activation(self.draw.pick(*IMAGES))))
        codes = [code for code, step in STEPS.items() if self.dtype in step.dtypes]
        shares = np.array([STEPS[code].weight for code in codes])
        tried = 0
        while operators and tried < 200:
            tried += 1
            self.code = codes[int(self.draw.random.choice(len(codes), p=shares / shares.sum()))]
            x = self.draw.pick(*self.pool[-4:])
            try:
                STEPS[self.code].draws(self, x)
            except Unfit:
                continue
            operators -= 1
        outputs = [ref for ref in (*self.pool[1:], *self.beside) if ref not in self.read]
        if len(self.pool) > 3 and self.draw.chance(0.3):  # one that others read, too
            outputs.append(self.draw.pick(*[ref for ref in self.pool[1:] if ref in self.read] or outputs[:1]))
        self.net.output(*dict.fromkeys(outputs))
        return self.net.build()

    # --- tensors ------------------------------------------------------------------------------

    def shape(self, ref: TensorRef) -> tuple[int, ...]:
        return tuple(size or 0 for size in self.net.spec(ref).shape)

    def rank(self, ref: TensorRef, *ranks: int) -> tuple[int, ...]:
        """Return the shape. Raises Unfit if the rank is different."""
        shape = self.shape(ref)
        if len(shape) not in ranks:
            raise Unfit
        return shape

    def activation(self, shape: Sequence[int], *, like: TensorRef | None = None, fixed: Any = None) -> Spec:
        """Add a result tensor with the parameters of another, those that a kernel requires, or those of its range."""
        if prod(shape) > LARGEST or not all(shape):
            raise Unfit
        number = len(self.requested)
        spec = Spec(tuple(shape), "float32")
        self.requested[spec] = number
        if self.ranges is None or self.dtype == "float32":
            return spec
        if fixed is not None:
            return Spec(tuple(shape), self.dtype, *fixed[self.dtype])
        if like is not None:
            return replace(self.net.spec(like), shape=tuple(shape), value=None, name="")
        low, high = self.ranges.get(number, (-3.0, 3.0))
        spec = Spec(tuple(shape), self.dtype, *parameters(low, high, self.dtype))
        self.free.add(spec)
        return spec

    def numbers(self, *shape: int, spread: float = 1.0) -> Array:
        return np.asarray(self.draw.random.normal(0, spread, shape), np.float32)

    def operand(self, array: Array, like: TensorRef | None = None) -> Spec:
        """Add a constant operand with the parameters of its range or of another tensor."""
        if self.dtype == "float32" or self.ranges is None:
            return constant(array)
        scale, point = parameters(float(array.min(initial=0)), float(array.max(initial=0)), self.dtype)
        if like is not None:
            spec = self.net.spec(like)
            scale, point = float(np.asarray(spec.scale)), int(np.asarray(spec.zero_point))
        limits = np.iinfo(self.dtype)
        stored = np.clip(np.rint(array / scale) + point, limits.min, limits.max)
        return constant(stored.astype(self.dtype), None, scale, point)

    def table(self, values: Any) -> Spec:
        return constant(np.asarray(values, np.int32))

    def weights(self, x: TensorRef, array: Array, axis: int, bias: Array | None) -> list[Spec | TensorRef | None]:
        """Add weights and a bias in the dtypes of this kind of network."""
        several, biased = self.draw.chance(0.7), self.draw.chance(0.7) or self.code != "FULLY_CONNECTED"
        b = bias if biased else None
        if self.kind == "float32" or self.ranges is None or (self.kind == "dynamic" and not several):
            return [constant(array), None if b is None else constant(b)]
        if self.kind == "half":
            halves = [self.net.place(constant(a.astype(np.float16))) for a in (array, b) if a is not None]
            floats = [self.net.call("DEQUANTIZE", [half], Spec(self.net.spec(half).shape)) for half in halves]
            return [*floats, None] if b is None else list(floats)
        if self.dtype == "uint8":
            scale, point = parameters(float(array.min()), float(array.max()), "uint8")
            stored = np.clip(np.rint(array / scale) + point, 0, 255).astype(np.uint8)
            w, scales = constant(stored, None, scale, point), np.array([scale])
        else:
            others = tuple(k for k in range(array.ndim) if k != axis)
            peaks = np.abs(array).max(axis=others if several else None, keepdims=True)
            steps = np.maximum(np.float32(peaks / 127), np.float32(1e-6))
            scales = steps.reshape(-1)
            stored = np.rint(array / steps).astype(np.int8)
            listed: Any = scales.tolist() if several else float(scales[0])
            w = constant(stored, None, listed, [0] * len(scales) if several else 0, axis)
        if b is None:
            return [w, None]
        if self.dtype == "float32":
            return [w, constant(b)]
        product = scales.astype(np.float64) * float(np.asarray(self.net.spec(x).scale))
        wide = "int64" if self.dtype == "int16" else "int32"
        return [w, constant(np.rint(b / product).astype(wide), None, np.float32(product).tolist(), [0] * len(product))]

    def bias_type(self, operands: Sequence[Any]) -> dict[str, str]:
        return {"quantized_bias_type": "INT64"} if self.dtype == "int16" and operands[-1] is not None else {}

    # --- operators ----------------------------------------------------------------------------

    def call(self, inputs: Sequence[Any], *results: Spec, code: str = "", **options: Any) -> TensorRef:
        """Add an operator, by default the current one, and return its first result."""
        code = code or self.code
        while inputs[-1] is None:  # the hybrid kernels count operands
            inputs = inputs[:-1]
        results = tuple(self.coarse(result, inputs) for result in results)
        made = self.net.calls(code, inputs, *results, version=REGISTERED[code].version, **options)
        self.read.update(i for i in inputs if isinstance(i, TensorRef))
        self.numbered.update(
            {ref: self.requested[spec] for ref, spec in zip(made, results, strict=True) if spec in self.requested}
        )
        self.pool += made
        return made[0]

    def apply(
        self, code: str, inputs: Sequence[Any], shape: Sequence[int] | None = None, *, like: TensorRef | None = None,
        **options: Any,
    ) -> TensorRef:  # fmt: skip
        """Add an operator of a block; the result has the first operand's shape, and the parameters of ``like`` if given."""
        fixed = {**LOWEST, **PARAMETERS}.get(code)
        y = self.activation(self.shape(inputs[0]) if shape is None else shape, like=like, fixed=fixed)
        return self.call(inputs, y, code=code, **options)

    def aside(self, code: str, inputs: Sequence[Any], *results: Spec, **options: Any) -> list[TensorRef]:
        """Add an operator whose results are no activations."""
        made = self.net.calls(code, inputs, *results, version=REGISTERED[code].version, **options)
        self.read.update(i for i in inputs if isinstance(i, TensorRef))
        self.beside += made
        return made

    def coarse(self, result: Spec, inputs: Sequence[Any]) -> Spec:
        """Return a result scale so coarse that one step of an operand is at most this many steps of the result."""
        specs = [self.net.spec(i) for i in inputs if isinstance(i, TensorRef)]
        steps = [float(np.asarray(spec.scale)) for spec in specs if spec.scale is not None and np.ndim(spec.scale) == 0]
        if result not in self.free or not steps:
            return result
        return replace(result, scale=max(float(np.asarray(result.scale)), max(steps) / FINEST))

    def near(self, value: float) -> Spec:
        """Return a number that a fusion requires, or sometimes another number."""
        return self.operand(np.asarray(value * (1.5 if self.draw.chance(0.08) else 1.0), np.float32))

    def rescale(self, x: TensorRef, like: TensorRef | None = None) -> TensorRef:
        """Add a QUANTIZE to different parameters; no-op in float networks."""
        y = self.activation(self.shape(x), like=like)
        if self.ranges is None:
            return self.call([x, self.operand(np.zeros(1, np.float32))], y, code="ADD")
        return self.call([x], y, code="QUANTIZE")

    def other(self, x: TensorRef) -> TensorRef:
        """Return another tensor of the same shape, or the tensor itself if there is none."""
        shape = self.shape(x)
        return self.draw.pick(*[ref for ref in self.pool if self.shape(ref) == shape])

    def activation_function(self) -> str:
        return str(self.draw.pick("NONE", "NONE", "NONE", "RELU", "RELU", "RELU6", "RELU_N1_TO_1"))


def parameters(low: float, high: float, dtype: str) -> tuple[float, int]:
    """Scale and zero point as TFLite's converter chooses them: the range includes 0; int16 is symmetric."""
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
    made, _ = build_model(seed, number, None)
    return made.shape(made.pool[0])


def network(seed: int, number: int) -> bytes:
    """Return network ``number`` of a seed. Raises RuntimeError if LiteRT does not run it in float."""
    floats, data = build_model(seed, number, None)
    return data if floats.kind == "float32" else build_model(seed, number, ranges(floats, data, number))[1]


def build_model(seed: int, number: int, found: Ranges | None) -> tuple[Network, bytes]:
    """Build the network in float, or with the measured ranges."""
    draw = Draw(seed, number)
    made = Network(draw, draw.pick(*KINDS), found)
    return made, made.build(draw.between(2, 12))


def ranges(network: Network, data: bytes, number: int) -> Ranges:
    """Return the range of each activation, in the order of :attr:`Network.numbered`, on inputs between -3 and 3."""
    kernels = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    original = Interpreter(
        model_content=data, experimental_preserve_all_tensors=True, experimental_op_resolver_type=kernels
    )
    original.allocate_tensors()
    random = np.random.default_rng(number)
    for given in original.get_input_details():
        original.set_tensor(given["index"], random.uniform(-3, 3, given["shape"]).astype(np.float32))
    original.invoke()
    arrays = {number: original.get_tensor(int(ref)) for ref, number in network.numbered.items()}
    return {number: (float(a.min()), float(a.max())) for number, a in arrays.items() if a.dtype == np.float32}
