"""Small models in a line or two: one operator, one between two convolutions, or a net built step by step.

The convolutions around an operator only move data: 1 x 1, every output channel is one input channel. They add no
rounding, in float or integers, so the comparison shows only the operator itself, in channels-first layout.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from zlib import crc32

import ml_dtypes
import numpy as np

from conformance.builder import ModelBuilder, TensorRef, quant
from conformance.case import DEFAULT_OPSET, EVERY_OPSET, OPERATOR_KEYWORDS, Case, check_case_keywords
from conformance.schema import Table
from onnx_tflite_plugin.checked import did_you_mean
from onnx_tflite_plugin.renamed import KIT, NET, SPEC, renamed_attributes, warn_renamed
from onnx_tflite_plugin.source.dtypes import NAMES
from onnx_tflite_plugin.source.model import Array

Options = Mapping[str, Any]

# Zero points are near the middle and not round, so that a handler that ignores them fails.
QUANTIZED: Mapping[str, tuple[float, int]] = {"int8": (0.047, -5), "uint8": (0.047, 122), "int16": (0.0003, 0)}
_IMAGE_DTYPES = ("float32", "int8", "uint8", "int16")
_NIBBLES = {"int4": (-8, 7), "int2": (-2, 1), "uint4": (0, 15)}
_EXTRA_CHANNELS = 2  # channels that convolutions before the operator drop, and that those after it add


@dataclass(frozen=True, eq=False)
class Spec:
    """A tensor to create: a graph input, a result, or a constant if it has a ``value``. Quantized if it has a ``scale``."""

    shape: tuple[int | None, ...]
    dtype: str = "float32"
    scale: float | Sequence[float] | None = None
    zero_point: int | Sequence[int] = 0
    axis: int = 0
    value: Array | None = None
    name: str = ""

    @property
    def quantization(self) -> Table | None:
        return None if self.scale is None else quant(self.scale, self.zero_point, self.axis)

    def rescale(self, factor: float, zero_point: int | None = None) -> Spec:
        """Return the spec with other quantization parameters, if it is quantized."""
        if self.scale is None:
            return self
        new_point = self.zero_point if zero_point is None else zero_point
        return replace(self, scale=float(np.asarray(self.scale)) * factor, zero_point=new_point)

    def with_shape(self, *shape: int | None) -> Spec:
        return replace(self, shape=shape)

    if not TYPE_CHECKING:
        __getattr__ = renamed_attributes(SPEC)


def tensor(
    *shape: int | None,
    dtype: str = "float32",
    scale: float | None = None,
    zero_point: int | None = None,
    name: str = "",
) -> Spec:
    """Return the spec of an activation; integers of 8 and 16 bits are quantized unless ``scale`` is 0."""
    if dtype not in NAMES:
        raise TypeError(f"tensor(dtype={dtype!r}): it is not a dtype{did_you_mean(dtype, NAMES)}")
    if isinstance(scale, str):
        raise TypeError(f"tensor(scale={scale!r}): the scale is a number, such as 0.1")
    default = QUANTIZED.get(dtype)
    if (default is None and scale is None) or scale == 0:
        return Spec(shape, dtype, name=name)
    default_scale, default_point = default or (1.0, 0)
    return Spec(shape, dtype, scale or default_scale, default_point if zero_point is None else zero_point, name=name)


def constant(
    value: Any,
    dtype: str | None = None,
    scale: float | Sequence[float] | None = None,
    zero_point: int | Sequence[int] = 0,
    axis: int = 0,
) -> Spec:
    """Return the spec of a constant operand; Python numbers become float32 or int32."""
    array = np.asarray(value)
    if dtype is None and not isinstance(value, np.ndarray):
        dtype = {"float64": "float32", "int64": "int32"}.get(array.dtype.name)
    array = array.astype(_numpy(dtype)) if dtype else array
    return Spec(array.shape, array.dtype.name, scale, zero_point, axis, array)


def random_array(
    *shape: int, dtype: str = "float32", seed: str = "", low: float | None = None, high: float | None = None
) -> Array:
    """Return random values that depend only on the arguments.

    Floats are normal, or uniform between ``low`` and ``high``. Integers are uniform between the bounds, ends included; by
    default over the range of the dtype, and from -100 to 100 for 32 and 64 bits.
    """
    generator = np.random.default_rng(crc32(f"{seed}{shape}{dtype}".encode()))
    kind = _numpy(dtype)
    if dtype == "bool":
        return generator.integers(0, 2, shape).astype(bool)
    if "float" in dtype:
        values = (
            generator.standard_normal(shape) if low is None or high is None else generator.uniform(low, high, shape)
        )
        return values.astype(kind)
    smallest, largest = _NIBBLES.get(dtype) or (
        (-100, 100) if kind.itemsize > 2 else (np.iinfo(kind).min, np.iinfo(kind).max)
    )
    bounds = (smallest if low is None else int(low), largest if high is None else int(high))
    return generator.integers(*bounds, shape, endpoint=True).astype(kind)


def random_constant(like: Spec, seed: str = "") -> Spec:
    """Return the spec as a constant with random values."""
    return replace(like, value=random_array(*(size or 1 for size in like.shape), dtype=like.dtype, seed=seed))


def _numpy(dtype: str) -> np.dtype[Any]:
    return np.dtype(getattr(ml_dtypes, dtype, dtype))


FIRST_VERSION = {"BROADCAST_TO": 2}
"""The first versions of operators that LiteRT registers, where it is not version 1."""


class Net:
    """A model built step by step. Graph inputs are named x0, x1, ..., outputs y0, y1, ... unless a spec has a name."""

    def __init__(self) -> None:
        self.model = ModelBuilder()
        self.graph = self.model.main
        self._specs: dict[int, Spec] = {}
        self._inputs = 0
        self._outputs = 0

    def input(self, spec: Spec) -> TensorRef:
        name = spec.name or f"x{self._inputs}"
        self._inputs += 1
        return self._remember_spec(spec, self.graph.input(name, spec.shape, spec.dtype, quantization=spec.quantization))

    def result(self, spec: Spec) -> TensorRef:
        """Add a tensor that an operator will compute."""
        name = spec.name or f"t{len(self.graph.tensors)}"
        return self._remember_spec(
            spec, self.graph.tensor(name, spec.shape, spec.dtype, quantization=spec.quantization)
        )

    def add_operand(self, spec: Spec) -> TensorRef:
        """Add a constant or a graph input."""
        if spec.value is None:
            return self.input(spec)
        return self._remember_spec(
            spec,
            self.graph.constant(f"c{len(self.graph.tensors)}", spec.value, spec.dtype, quantization=spec.quantization),
        )

    def call(
        self, code: str, inputs: Sequence[Spec | TensorRef | None], *outputs: Spec,
        custom_options: Any = None, version: Any = None, **options: Any,
    ) -> TensorRef:  # fmt: skip
        """Add an operator on existing tensors or on new specs; return its first output."""
        return next(
            iter(
                self.call_multi_output(
                    code, inputs, *outputs, custom_options=custom_options, version=version, **options
                )
            ),
            TensorRef(-1),
        )

    def call_multi_output(
        self, code: str, inputs: Sequence[Spec | TensorRef | None], *outputs: Spec,
        custom_options: Any = None, version: Any = None, **options: Any,
    ) -> list[TensorRef]:  # fmt: skip
        """Add an operator with several outputs; return all of them."""
        refs = [self.add_operand(operand) if isinstance(operand, Spec) else operand for operand in inputs]
        results = [self.result(spec) for spec in outputs]
        version = version or FIRST_VERSION.get(code, 1)
        self.graph.operator(code, refs, results, options, version=version, custom_options=custom_options)
        return results

    def input_through_conv(self, spec: Spec) -> TensorRef:
        """Add a graph input and a convolution; return its result, which has that spec and is channels first."""
        *_, channels = spec.shape
        channel_count = (channels or 1) + _EXTRA_CHANNELS
        return self.select_channels(
            self.input(spec.with_shape(*spec.shape[:-1], channel_count)),
            spec,
            [(3 * k + 1) % channel_count for k in range(channels or 1)],
        )

    def output_through_conv(self, ref: TensorRef) -> TensorRef:
        """Add a convolution on a tensor; return its result, which has more channels."""
        spec = self._specs[ref]
        *shape, channels = spec.shape
        widened = spec.with_shape(*shape, (channels or 1) + _EXTRA_CHANNELS)
        return self.select_channels(
            ref, replace(widened, name=""), [k % (channels or 1) for k in range((channels or 1) + _EXTRA_CHANNELS)]
        )

    def select_channels(self, ref: TensorRef, spec: Spec, channels: Sequence[int]) -> TensorRef:
        """Add a 1 x 1 convolution whose output channel ``k`` is input channel ``channels[k]``."""
        weights = np.zeros((len(channels), 1, 1, self._specs[ref].shape[-1] or 1))
        weights[range(len(channels)), 0, 0, channels] = 1
        w = {
            "float32": lambda: constant(weights, "float32"),
            "uint8": lambda: constant(weights + 3, "uint8", 1.0, 3),
            "int8": lambda: constant(weights, "int8", 1.0),
            "int16": lambda: constant(weights, "int8", 1.0),
        }[spec.dtype]()
        zeros = np.zeros(len(channels))
        bias = {"float32": lambda: constant(zeros, "float32"), "int16": lambda: constant(zeros, "int64", spec.scale)}
        b = bias.get(spec.dtype, lambda: constant(zeros, "int32", spec.scale))()
        return self.call("CONV_2D", [ref, w, b], spec, padding="VALID", stride_h=1, stride_w=1)

    def spec(self, ref: TensorRef) -> Spec:
        return self._specs[ref]

    def _remember_spec(self, spec: Spec, ref: TensorRef) -> TensorRef:
        self._specs[ref] = spec
        return ref

    def output(self, *refs: TensorRef) -> None:
        """Make tensors graph outputs, named y0, y1, ... unless their spec has a name."""
        for ref in refs:
            if not self._specs[ref].name:
                self.graph.tensors[ref] = Table(
                    "Tensor", {**self.graph.tensors[ref].fields, "name": f"y{self._outputs}"}
                )
            self._outputs += 1
            self.graph.output(ref)

    def remove_rank(self, *refs: TensorRef) -> None:
        """Remove the rank of these tensors from the file, as old converters do for results of unknown shape."""
        for ref in refs:
            fields = {**self.graph.tensors[ref].fields, "shape": (), "shape_signature": None, "has_rank": False}
            self.graph.tensors[ref] = Table("Tensor", fields)

    def build(self) -> bytes:
        return self.model.build()

    if not TYPE_CHECKING:
        __getattr__ = renamed_attributes(NET)


# --- cases ------------------------------------------------------------------------------------


def net(op: str, name: str, build_net: Callable[[Net], Any], **case: Any) -> Case:
    """Return a case of a model that ``build_net`` builds. Raises TypeError for an unknown keyword."""
    case = check_case_keywords(name, case)

    def build() -> bytes:
        model = Net()
        build_net(model)
        return model.build()

    return Case(op, name, build, **case)


def in_isolation(
    op: str, name: str, inputs: Sequence[Spec | None], *outputs: Spec, options: Options | None = None,
    custom_options: Any = None, version: Any = None, **case: Any,
) -> Case:  # fmt: skip
    """Return a case of one operator; operands that are not constant are graph inputs, results are graph outputs.

    ``custom_options``: options of a custom operator, as bytes or as a mapping that becomes a FlexBuffer. ``version``: by
    default the first that LiteRT registers.
    """
    case = check_case_keywords(name, case, OPERATOR_KEYWORDS)

    def build_net(model: Net) -> None:
        model.output(
            *model.call_multi_output(
                op, inputs, *outputs, custom_options=custom_options, version=version, **(options or {})
            )
        )

    return net(op, name, build_net, **{"dtype": _dtype(inputs), **case})


def between_convolutions(
    op: str, name: str, inputs: Sequence[Spec | None], *outputs: Spec, options: Options | None = None,
    custom_options: Any = None, version: Any = None, **case: Any,
) -> Case:  # fmt: skip
    """Return a case of one operator with a convolution before each image operand and after each image result.

    The least-cost plan needs a Transpose at each graph input and output only, unless ``max_transposes`` says otherwise.
    """
    case = check_case_keywords(name, case, OPERATOR_KEYWORDS)

    def build_net(model: Net) -> None:
        refs = [model.input_through_conv(spec) if spec is not None and is_image(spec) else spec for spec in inputs]
        results = model.call_multi_output(
            op, refs, *outputs, custom_options=custom_options, version=version, **(options or {})
        )
        model.output(*(model.output_through_conv(ref) if is_image(model.spec(ref)) else ref for ref in results))

    if not any(is_image(spec) for spec in (*inputs, *outputs)):
        raise ValueError(
            f"between_convolutions({op!r}, {name!r}): no operand or result is an image (rank 4; float32, int8, uint8 or "
            "int16), so no convolution can be added; use in_isolation"
        )
    if all(is_image(spec) for spec in outputs):
        transposed = [spec for spec in inputs if spec is not None and spec.value is None and len(spec.shape) > 2]
        case.setdefault("max_transposes", len(transposed) + len(outputs))
    return net(op, f"{name} between convolutions", build_net, **{"dtype": _dtype(inputs), **case})


def is_image(spec: Spec | None) -> bool:
    """True if a tensor is an image that convolutions can produce."""
    return (
        spec is not None
        and spec.value is None
        and len(spec.shape) == 4
        and spec.dtype in _IMAGE_DTYPES
        and (spec.dtype == "float32" or spec.scale is not None)
    )


def _dtype(inputs: Sequence[Spec | None]) -> str:
    """Return the dtype of the first operand that is not constant, else of the first operand."""
    specs = [spec for spec in inputs if spec is not None]
    return next((spec.dtype for spec in specs if spec.value is None), specs[0].dtype if specs else "float32")


Placement = Callable[..., Case]
PLACEMENTS: tuple[Placement, Placement] = (in_isolation, between_convolutions)


def in_bfloat16(op: str, operands: Sequence[Spec | None], *results: Spec, name: str = "bfloat16", **case: Any) -> Case:
    """Return a case of one operator on bfloat16, cast from and to float32, because ONNX Runtime's Python API has no bfloat16 inputs.

    Every float32 operand and result becomes bfloat16. ``options`` among the keywords are the operator's, not the case's.
    """
    options = case.pop("options", {})

    def build_net(model: Net) -> None:
        def cast(spec: Spec) -> Spec | TensorRef:
            narrow = replace(spec, dtype="bfloat16", value=None, name="")
            return model.call("CAST", [spec], narrow) if spec.dtype == "float32" else spec

        placed = [spec if spec is None else cast(spec) for spec in operands]
        refs = [model.add_operand(spec) if isinstance(spec, Spec) else spec for spec in placed]
        narrow_results = [
            model.result(replace(spec, dtype="bfloat16") if spec.dtype == "float32" else spec) for spec in results
        ]
        model.graph.operator(op, refs, narrow_results, options, version=FIRST_VERSION.get(op, 1))
        model.output(*(model.call("CAST", [ref], spec) for ref, spec in zip(narrow_results, results, strict=True)))

    return net(op, name, build_net, **{"dtype": "bfloat16", "opsets": EVERY_OPSET, **case})


def unary(op: str, name: str, x: Spec, y: Spec | None = None, place: Placement = in_isolation, **case: Any) -> Case:
    """Return a case of ``y = op(x)``; by default the result is like ``x``."""
    return place(op, name, [x], y or replace(x, name=""), **case)


def binary(
    op: str, name: str, x: Spec, y: Spec, z: Spec | None = None, place: Placement = in_isolation, **case: Any
) -> Case:
    """Return a case of ``z = op(x, y)``; the result is like the operand that is not constant, in the broadcast shape."""
    result = z or replace(x if x.value is None else y, name="", value=None)
    return place(op, name, [x, y], result if z else result.with_shape(*_broadcast_shape(x.shape, y.shape)), **case)


def _broadcast_shape(*shapes: tuple[int | None, ...]) -> list[int | None]:
    """Return the shape of a broadcast; a size is dynamic if it depends on a dynamic one."""
    static = np.broadcast_shapes(*(tuple(1 if size is None else size for size in shape) for shape in shapes))
    dynamic = {k - len(shape) for shape in shapes for k, size in enumerate(shape) if size is None}
    return [None if size == 1 and k - len(static) in dynamic else size for k, size in enumerate(static)]


def opsets(dtype: str = "float32", place: Placement = in_isolation) -> tuple[int | None, ...]:
    """Return the opsets to test: every supported one in isolation, only the default between convolutions."""
    return (
        (DEFAULT_OPSET,) if place is between_convolutions else (DEFAULT_OPSET, 26) if dtype == "int16" else EVERY_OPSET
    )


def int32_arrays(**arrays: Any) -> dict[str, Array]:
    """Return runtime values of int32 operands by name, for a case's ``input_arrays``."""
    return {name: np.asarray(array, np.int32) for name, array in arrays.items()}


def __getattr__(name: str) -> Any:
    """Return the replacement of a renamed helper, with a DeprecationWarning. Raises AttributeError for other names."""
    if name not in KIT:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warn_renamed(f"{__name__}.{name}", KIT[name])
    return globals()[KIT[name]]
