"""Random choices for one model: shapes, sizes and zero points."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np

from conformance.builder import TensorRef
from conformance.case import Case
from conformance.models import FIRST_VERSION, Net, Spec, constant, is_image, net
from conformance.registered import REGISTERED
from onnx_tflite_plugin.source.model import Array

OTHER_SIZES = (6, 13)  # further values for dynamic dimensions
PRIMES = (2, 3, 5, 7, 11)
ACTIVATION_DTYPES = ("float32", "int8", "uint8", "int16")
QUANTIZED = ("int8", "uint8", "int16")
MOVABLE = (*ACTIVATION_DTYPES, "int32", "int64", "bool")
FUSED = ("NONE", "NONE", "RELU", "RELU6", "RELU_N1_TO_1")

NO_INPUT_DTYPES = frozenset({"int4", "int2", "bfloat16"})  # dtypes of weights or constants only, never of graph inputs


class Draw:
    """Random number generator for one model."""

    def __init__(self, seed: int, number: int = 0) -> None:
        self.random = np.random.default_rng([seed, number])

    def pick(self, *choices: Any) -> Any:
        return choices[int(self.random.integers(len(choices)))]

    def chance(self, share: float) -> bool:
        return bool(self.random.random() < share)

    def between(self, low: int, high: int) -> int:
        """Return a random integer, both ends included."""
        return int(self.random.integers(low, high, endpoint=True))

    def dtype(self, op: str, *without: str) -> str:
        """Return a random dtype that LiteRT's kernel supports."""
        return str(self.pick(*sorted(REGISTERED[op].dtypes - NO_INPUT_DTYPES - set(without))))

    def shape(self, min_rank: int = 0, max_rank: int = 4, ones: float = 0.12) -> tuple[int, ...]:
        sizes = [int(size) for size in self.random.permutation(PRIMES)][: self.between(min_rank, max_rank)]
        empty = self.chance(0.08)  # empty axes are rare, because they make all others irrelevant
        return tuple(1 if self.chance(ones) else 0 if empty and self.chance(0.4) else size for size in sizes)

    def broadcast(self, shape: Sequence[int]) -> tuple[int, ...]:
        trailing = shape[self.between(0, len(shape)) :] if self.chance(0.5) else shape
        return tuple(1 if self.chance(0.25) else size for size in trailing)

    def axis(self, rank: int, extra_axes: int = 0) -> int:
        """Return a random axis, counted from either end.

        ``extra_axes``: the number of additional axes of the result.
        """
        return self.between(-rank - extra_axes, rank - 1 + extra_axes)

    def spec(self, shape: Sequence[int], dtype: str) -> Spec:
        """Return a spec.

        8-bit and 16-bit integers have random quantization parameters; zero points may be at the limits.
        """
        if dtype not in QUANTIZED:
            return Spec(tuple(shape), dtype)
        limits = np.iinfo(dtype)
        extremes = (limits.min, limits.max, (limits.min + limits.max) // 2 + 7)
        zero_point = 0 if dtype == "int16" else int(self.pick(*extremes, self.between(limits.min, limits.max)))
        return Spec(tuple(shape), dtype, float(np.float32(10 ** self.random.uniform(-3, -0.5))), zero_point)

    def random_array(self, spec: Spec, ends: bool = True) -> Array:
        shape, dtype = tuple(size or 0 for size in spec.shape), spec.dtype
        if dtype == "string":
            return self.strings(shape)
        if dtype == "bool":
            return self.random.integers(0, 2, shape).astype(bool)
        if dtype == "complex64":
            return np.asarray(self.random.normal(0, 3, shape) + 1j * self.random.normal(0, 3, shape), np.complex64)
        if "float" in dtype:
            return np.asarray(self.random.normal(0, 3, shape).astype(getattr(ml_dtypes, dtype, dtype)))
        limits = np.iinfo(dtype)
        is_full_range = limits.bits < 32 or (ends and self.chance(0.15))
        low, high = (limits.min, limits.max) if is_full_range else (max(-100, limits.min), 100)
        return np.asarray(self.random.integers(low, high, shape, endpoint=True, dtype=dtype))

    def strings(self, shape: tuple[int, ...]) -> Array:
        """Return random UTF-8 strings; some are equal, empty or share a prefix."""
        choices = np.array([b"", b"a", b"ab", "é".encode(), "日本".encode(), b"0", b"-1.5"], object)
        return np.asarray(choices[self.random.integers(0, len(choices), shape)], object).reshape(shape)

    def random_array_with_specials(self, spec: Spec) -> Array:
        """Return a random array; some elements may be infinite, tiny, huge, or -0."""
        array = self.random_array(spec)
        if spec.dtype == "float32" and array.size and self.chance(0.3):
            special_values = np.array([np.inf, -np.inf, -0.0, 1e-30, 1e38, -1e20, 0.5, 1.5], np.float32)
            flat = array.reshape(-1)
            positions = self.random.integers(0, flat.size, max(flat.size // 5, 1))
            flat[positions] = self.random.choice(special_values, len(positions))
        return array

    # --- operands -----------------------------------------------------------------------------

    def data(self, spec: Spec, constant_probability: float = 0.2, specials: bool = False) -> Operand:
        """Return an operand with random elements.

        ``constant_probability``: the probability that it is a constant.
        """
        if spec.dtype == "string" and not spec.shape:
            constant_probability = 1.0  # LiteRT's Python reads the address of a string scalar as the string
        return Operand(
            spec, (self.random_array_with_specials if specials else self.random_array)(spec), constant_probability
        )

    def like(self, operand: Operand, shape: Sequence[int] | None = None) -> Spec:
        """Return a result spec with an operand's dtype and parameters."""
        return operand.spec if shape is None else operand.spec.with_shape(*shape)


@dataclass(frozen=True, eq=False)
class Operand:
    """Operand of an operator.

    ``constant_probability``: the probability that it is a constant. ``is_parameter``: it holds parameters such as paddings,
    so its shape is static. ``has_static_channels``: its last axis is never dynamic, because it determines the number of
    groups.
    """

    spec: Spec
    array: Array
    constant_probability: float = 0.0
    is_parameter: bool = False
    has_static_channels: bool = False


def index_operand(values: Any, dtype: str = "int32", constant_probability: float = 0.75) -> Operand:
    """Return an operand of axes, sizes or indices, usually a constant."""
    array = np.asarray(values, dtype)
    return Operand(Spec(array.shape, dtype), array, constant_probability, True)


def weight_operand(spec: Spec) -> Operand:
    """Return the operand of weights: always a constant, with the value of its spec."""
    assert spec.value is not None
    return Operand(spec, spec.value, 1.0)


CaseGenerator = Callable[[Draw, str], Case]
CASE_GENERATORS: dict[str, CaseGenerator] = {}
RARE: dict[str, tuple[float, CaseGenerator]] = {}


def case_generator(*ops: str, rarely: float = 0.0) -> Callable[[CaseGenerator], CaseGenerator]:
    """Register a function that builds cases of operators.

    ``rarely``: the share of cases that it builds; another function builds the others.
    """

    def register(generator: CaseGenerator) -> CaseGenerator:
        if rarely:
            RARE.update(dict.fromkeys(ops, (rarely, generator)))
        else:
            CASE_GENERATORS.update(dict.fromkeys(ops, generator))
        return generator

    return register


@dataclass(frozen=True)
class Surroundings:
    """Context of an operator. ``is_shapeless``: results are stored with the shape []."""

    has_convolutions: bool = False
    has_dynamic_sizes: bool = False
    is_shapeless: bool = False
    has_float16_constants: bool = False

    @classmethod
    def draw(cls, draw: Draw) -> Surroundings:
        kind = draw.pick(
            *[""] * 9,
            *["has_convolutions"] * 4,
            *["has_dynamic_sizes"] * 3,
            "is_shapeless",
            *["has_float16_constants"] * 2,
        )
        return cls(**{kind: True}) if kind else cls()


def operator(
    draw: Draw, op: str, operands: Sequence[Operand | None], *results: Spec,
    in_isolation: bool = False, same_shape: bool = False, sizes_unchecked: bool = False, shapeless: bool = False,
    version: int | None = None, **options: Any,
) -> Case:  # fmt: skip
    """Return a case of one operator in random surroundings.

    ``in_isolation``: without surroundings. ``same_shape``: all operands have one shape. ``sizes_unchecked``: the kernel does not
    check the sizes of operands. ``shapeless``: only LiteRT knows the shapes of results.
    """
    surroundings = Surroundings() if in_isolation else Surroundings.draw(draw)
    if sizes_unchecked and surroundings.has_dynamic_sizes:
        surroundings = Surroundings()
    if shapeless:
        surroundings = Surroundings(is_shapeless=True)
    is_constant = [operand is not None and draw.chance(operand.constant_probability) for operand in operands]
    if same_shape and surroundings.has_dynamic_sizes:
        is_constant = [False] * len(operands)
    if all(is_constant) and operands and operands[0] is not None:
        is_constant[0] = operands[0].constant_probability == 1.0
    arrays: dict[str, Array] = {}
    version = version or choose_version(draw, op)
    dynamic_sizes = {size for size in (0, 1, *PRIMES, 8) if draw.chance(0.4)}
    input_specs: dict[int, Spec] = {}
    for k, operand in enumerate(operands):
        if operand is None or is_constant[k]:
            continue
        spec = replace(operand.spec, name=f"x{k}", value=None)
        if surroundings.has_dynamic_sizes and not operand.is_parameter:
            static_sizes = spec.shape[-1:] if operand.has_static_channels else ()
            other_sizes = spec.shape[: len(spec.shape) - len(static_sizes)]
            spec = spec.with_shape(*(None if size in dynamic_sizes else size for size in other_sizes), *static_sizes)
        input_specs[k] = spec
    through_convolutions = surroundings.has_convolutions and all(
        spec.shape and 0 not in spec.shape for spec in input_specs.values()
    )
    omits_has_rank = draw.chance(0.5)  # as in files of converters older than has_rank

    def place(model: Net, k: int, operand: Operand) -> TensorRef:
        if not is_constant[k]:
            spec = input_specs[k]
            return model.input_through_conv(spec) if through_convolutions and is_image(spec) else model.input(spec)
        spec_with_value = replace(operand.spec, value=operand.array)
        if surroundings.has_float16_constants and spec_with_value.dtype == "float32":
            half_constant = model.add_operand(constant(operand.array.astype(np.float16)))
            return model.call("DEQUANTIZE", [half_constant], replace(operand.spec, value=None))
        return model.add_operand(spec_with_value)

    def build(model: Net) -> None:
        refs = [None if operand is None else place(model, k, operand) for k, operand in enumerate(operands)]
        specs = [result(spec, surroundings) for spec in results]
        outputs = model.call_multi_output(op, refs, *specs, version=version, custom_options=None, **options)
        if surroundings.is_shapeless:
            model.remove_rank(*outputs)
            for table in model.graph.tensors if omits_has_rank else ():
                table.fields["has_rank"] = False
        convolved = [through_convolutions and is_image(spec) and 0 not in spec.shape for spec in specs]
        model.output(
            *(
                model.output_through_conv(ref) if add_convolution else ref
                for ref, add_convolution in zip(outputs, convolved, strict=True)
            )
        )

    for k, spec in input_specs.items():
        operand = operands[k]
        if operand is not None and not (through_convolutions and is_image(spec)):
            arrays[spec.name] = operand.array
    dtype = next((spec.dtype for spec in input_specs.values()), "float32")
    first = next((operand for operand in operands if operand is not None and not operand.is_parameter), None)
    return net(
        op,
        "random",
        build,
        dtype=first.spec.dtype if first else dtype,
        input_arrays=arrays,
        runs=1,
        dynamic_sizes=OTHER_SIZES,
    )


def result(spec: Spec, surroundings: Surroundings) -> Spec:
    spec = replace(spec, value=None, name="")
    if surroundings.has_dynamic_sizes:
        return spec.with_shape(*[None] * len(spec.shape))
    return spec.with_shape() if surroundings.is_shapeless else spec


def choose_version(draw: Draw, op: str) -> int:
    """Return an operator version, usually the newest that LiteRT registers."""
    newest = REGISTERED[op].version if op in REGISTERED else 1
    return newest if draw.chance(0.7) else draw.between(FIRST_VERSION.get(op, 1), newest)


def case(draw: Draw, op: str) -> Case:
    share, rare_generator = RARE.get(op, (0.0, CASE_GENERATORS[op]))
    return (rare_generator if share and draw.chance(share) else CASE_GENERATORS[op])(draw, op)


def sizes(spec: Spec) -> tuple[int, ...]:
    return tuple(size or 0 for size in spec.shape)


def scale(spec: Spec) -> float:
    return float(np.asarray(spec.scale or 1.0))


Options = Mapping[str, Any]
