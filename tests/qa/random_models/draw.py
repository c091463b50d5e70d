"""Random choices of one model: shapes of distinct primes, sizes 0 and 1, parameters at the ends of a dtype."""

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

OTHER_SIZES = (6, 13)  # further sizes at which dynamic dimensions are tried
PRIMES = (2, 3, 5, 7, 11)
STORED = ("float32", "int8", "uint8", "int16")
QUANTIZED = ("int8", "uint8", "int16")
MOVED = (*STORED, "int32", "int64", "bool")
FUSED = ("NONE", "NONE", "RELU", "RELU6", "RELU_N1_TO_1")

UNTYPED = frozenset({"int4", "int2", "bfloat16"})  # dtypes of weights only, and dtypes that no graph input has


class Draw:
    """Random number generator of one model."""

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
        return str(self.pick(*sorted(REGISTERED[op].dtypes - UNTYPED - set(without))))

    def shape(self, least: int = 0, most: int = 4, ones: float = 0.12) -> tuple[int, ...]:
        sizes = [int(size) for size in self.random.permutation(PRIMES)][: self.between(least, most)]
        empty = self.chance(0.08)  # empty axes are rare, because they make all others irrelevant
        return tuple(1 if self.chance(ones) else 0 if empty and self.chance(0.4) else size for size in sizes)

    def broadcast(self, whole: Sequence[int]) -> tuple[int, ...]:
        kept = whole[self.between(0, len(whole)) :] if self.chance(0.5) else whole
        return tuple(1 if self.chance(0.25) else size for size in kept)

    def axis(self, rank: int, behind: int = 0) -> int:
        """Return a random axis, counted from either end; ``behind``: the number of additional axes of the result."""
        return self.between(-rank - behind, rank - 1 + behind)

    def spec(self, shape: Sequence[int], dtype: str) -> Spec:
        """Return a spec; 8-bit and 16-bit integers have quantization parameters, sometimes with zero points at the ends."""
        if dtype not in QUANTIZED:
            return Spec(tuple(shape), dtype)
        limits = np.iinfo(dtype)
        ends = (limits.min, limits.max, (limits.min + limits.max) // 2 + 7)
        point = 0 if dtype == "int16" else int(self.pick(*ends, self.between(limits.min, limits.max)))
        return Spec(tuple(shape), dtype, float(np.float32(10 ** self.random.uniform(-3, -0.5))), point)

    def numbers(self, spec: Spec, ends: bool = True) -> Array:
        shape, dtype = tuple(size or 0 for size in spec.shape), spec.dtype
        if dtype == "string":
            return self.texts(shape)
        if dtype == "bool":
            return self.random.integers(0, 2, shape).astype(bool)
        if dtype == "complex64":
            return np.asarray(self.random.normal(0, 3, shape) + 1j * self.random.normal(0, 3, shape), np.complex64)
        if "float" in dtype:
            return np.asarray(self.random.normal(0, 3, shape).astype(getattr(ml_dtypes, dtype, dtype)))
        limits = np.iinfo(dtype)
        whole = limits.bits < 32 or (ends and self.chance(0.15))
        low, high = (limits.min, limits.max) if whole else (max(-100, limits.min), 100)
        return np.asarray(self.random.integers(low, high, shape, endpoint=True, dtype=dtype))

    def texts(self, shape: tuple[int, ...]) -> Array:
        """Return random UTF-8 texts; some are equal, empty or share a prefix."""
        choices = np.array([b"", b"a", b"ab", "é".encode(), "日本".encode(), b"0", b"-1.5"], object)
        return np.asarray(choices[self.random.integers(0, len(choices), shape)], object).reshape(shape)

    def odd_numbers(self, spec: Spec) -> Array:
        """Return random numbers; some are infinite, tiny, huge, or -0."""
        numbers = self.numbers(spec)
        if spec.dtype == "float32" and numbers.size and self.chance(0.3):
            odd = np.array([np.inf, -np.inf, -0.0, 1e-30, 1e38, -1e20, 0.5, 1.5], np.float32)
            flat = numbers.reshape(-1)
            places = self.random.integers(0, flat.size, max(flat.size // 5, 1))
            flat[places] = self.random.choice(odd, len(places))
        return numbers

    # --- operands -----------------------------------------------------------------------------

    def data(self, spec: Spec, fixed: float = 0.2, odd: bool = False) -> Operand:
        """Return an operand of random numbers; ``fixed``: the probability that it is a constant."""
        if spec.dtype == "string" and not spec.shape:
            fixed = 1.0  # for a string scalar LiteRT's Python reads the address as the string
        return Operand(spec, (self.odd_numbers if odd else self.numbers)(spec), fixed)

    def like(self, operand: Operand, shape: Sequence[int] | None = None) -> Spec:
        """Return a result spec with an operand's dtype and parameters."""
        return operand.spec if shape is None else operand.spec.with_shape(*shape)


@dataclass(frozen=True, eq=False)
class Operand:
    """Operand of an operator; ``fixed`` is the probability that it is a constant.

    ``table``: values that are parameters, such as paddings, so their sizes stay fixed. ``channels``: the last axis is never
    dynamic, because it determines the number of groups.
    """

    spec: Spec
    array: Array
    fixed: float = 0.0
    table: bool = False
    channels: bool = False


def table(values: Any, dtype: str = "int32", fixed: float = 0.75) -> Operand:
    """Return an operand of axes, sizes or indices, usually a constant."""
    array = np.asarray(values, dtype)
    return Operand(Spec(array.shape, dtype), array, fixed, True)


def always(spec: Spec) -> Operand:
    """Return a spec that always has a value: weights."""
    assert spec.value is not None
    return Operand(spec, spec.value, 1.0)


Drawer = Callable[[Draw, str], Case]
DRAWERS: dict[str, Drawer] = {}
RARE: dict[str, tuple[float, Drawer]] = {}


def draws(*ops: str, rarely: float = 0.0) -> Callable[[Drawer], Drawer]:
    """Register a function for operators; ``rarely``: its share of their models, if another function builds the rest."""

    def register(drawer: Drawer) -> Drawer:
        if rarely:
            RARE.update(dict.fromkeys(ops, (rarely, drawer)))
        else:
            DRAWERS.update(dict.fromkeys(ops, drawer))
        return drawer

    return register


@dataclass(frozen=True)
class Surroundings:
    """Context of an operator. ``around``: convolutions; ``open``: dynamic sizes; ``shapeless``: results stored as []."""

    around: bool = False
    open: bool = False
    shapeless: bool = False
    half: bool = False

    @classmethod
    def draw(cls, draw: Draw) -> Surroundings:
        kind = draw.pick(*[""] * 9, *["around"] * 4, *["open"] * 3, "shapeless", *["half"] * 2)
        return cls(**{kind: True}) if kind else cls()


def operator(
    draw: Draw, op: str, operands: Sequence[Operand | None], *results: Spec,
    plain: bool = False, alike: bool = False, closed: bool = False, shapeless: bool = False,
    version: int | None = None, **options: Any,
) -> Case:  # fmt: skip
    """Return a case of one operator. ``plain``: without surroundings; ``alike``: operands have one shape. ``closed``:
    the kernel does not check the sizes of operands. ``shapeless``: only LiteRT knows the shapes of results.
    """
    around = Surroundings() if plain else Surroundings.draw(draw)
    if closed and around.open:
        around = Surroundings()
    if shapeless:
        around = Surroundings(shapeless=True)
    fixed = [operand is not None and draw.chance(operand.fixed) for operand in operands]
    if alike and around.open:
        fixed = [False] * len(operands)
    if all(fixed) and operands and operands[0] is not None:
        fixed[0] = operands[0].fixed == 1.0
    given: dict[str, Array] = {}
    version = version or choose_version(draw, op)
    unknown = {size for size in (0, 1, *PRIMES, 8) if draw.chance(0.4)}
    opened: dict[int, Spec] = {}
    for k, operand in enumerate(operands):
        if operand is None or fixed[k]:
            continue
        spec = replace(operand.spec, name=f"x{k}", value=None)
        if around.open and not operand.table:
            kept = spec.shape[-1:] if operand.channels else ()
            sizes_of = spec.shape[: len(spec.shape) - len(kept)]
            spec = spec.with_shape(*(None if size in unknown else size for size in sizes_of), *kept)
        opened[k] = spec
    turned = around.around and all(spec.shape and 0 not in spec.shape for spec in opened.values())
    older = draw.chance(0.5)  # a file of a converter that knew no has_rank

    def place(model: Net, k: int, operand: Operand) -> TensorRef:
        if not fixed[k]:
            spec = opened[k]
            return model.input_through_conv(spec) if turned and is_image(spec) else model.input(spec)
        stored = replace(operand.spec, value=operand.array)
        if around.half and stored.dtype == "float32":
            half = model.place(constant(operand.array.astype(np.float16)))
            return model.call("DEQUANTIZE", [half], replace(operand.spec, value=None))
        return model.place(stored)

    def build(model: Net) -> None:
        refs = [None if operand is None else place(model, k, operand) for k, operand in enumerate(operands)]
        specs = [result(spec, around) for spec in results]
        made = model.calls(op, refs, *specs, version=version, custom_options=None, **options)
        if around.shapeless:
            model.without_rank(*made)
            for table in model.graph.tensors if older else ():
                table.fields["has_rank"] = False
        drained = [turned and is_image(spec) and 0 not in spec.shape for spec in specs]
        model.output(
            *(model.output_through_conv(ref) if drain else ref for ref, drain in zip(made, drained, strict=True))
        )

    for k, spec in opened.items():
        operand = operands[k]
        if operand is not None and not (turned and is_image(spec)):
            given[spec.name] = operand.array
    dtype = next((spec.dtype for spec in opened.values()), "float32")
    first = next((operand for operand in operands if operand is not None and not operand.table), None)
    return net(op, "random", build, dtype=first.spec.dtype if first else dtype, given=given, runs=1, sizes=OTHER_SIZES)


def result(spec: Spec, around: Surroundings) -> Spec:
    spec = replace(spec, value=None, name="")
    if around.open:
        return spec.with_shape(*[None] * len(spec.shape))
    return spec.with_shape() if around.shapeless else spec


def choose_version(draw: Draw, op: str) -> int:
    """Return an operator version, usually the newest that LiteRT registers."""
    newest = REGISTERED[op].version if op in REGISTERED else 1
    return newest if draw.chance(0.7) else draw.between(FIRST_VERSION.get(op, 1), newest)


def case(draw: Draw, op: str) -> Case:
    share, other = RARE.get(op, (0.0, DRAWERS[op]))
    return (other if share and draw.chance(share) else DRAWERS[op])(draw, op)


def sizes(spec: Spec) -> tuple[int, ...]:
    return tuple(size or 0 for size in spec.shape)


def scale(spec: Spec) -> float:
    return float(np.asarray(spec.scale or 1.0))


Options = Mapping[str, Any]
