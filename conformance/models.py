"""Small models in a line or two: one operator, or a net built step by step.

An operator can be placed between two convolutions, which require channels first. These 1 x 1 convolutions only move
data: every output channel is one input channel. They do not round, in float or integers, so the comparison shows only
the operator itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from conformance.builder import ModelBuilder, TensorRef
from conformance.case import DEFAULT_OPSET, EVERY_OPSET, OPERATOR_KEYWORDS, Case, check_case_keywords
from conformance.schema import Table
from conformance.specs import QUANTIZED as QUANTIZED
from conformance.specs import Spec as Spec
from conformance.specs import constant as constant
from conformance.specs import random_array as random_array
from conformance.specs import random_constant as random_constant
from conformance.specs import tensor as tensor
from onnx_tflite_plugin.renamed import KIT, NET, renamed_attributes, warn_renamed
from onnx_tflite_plugin.source.model import Array

Options = Mapping[str, Any]

_IMAGE_DTYPES = ("float32", "int8", "uint8", "int16")
_EXTRA_CHANNELS = 2  # channels that convolutions drop before the operator and add after it


FIRST_VERSION = {"BROADCAST_TO": 2}
"""Operator → first version that LiteRT registers, for operators without version 1."""


class Net:
    """A model built step by step.

    Unless a spec has a name, graph inputs are named x0, x1, ..., and outputs y0, y1, ...
    """

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
        """Add an operator; return its first output.

        A Spec in ``inputs`` becomes a new constant or graph input; a TensorRef is an existing tensor.
        """
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
        """Add a graph input and a convolution; return the convolution's result.

        The result has the shape, dtype and quantization of ``spec``, and is channels first in ONNX.
        """
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
        wider_spec = spec.with_shape(*shape, (channels or 1) + _EXTRA_CHANNELS)
        return self.select_channels(
            ref, replace(wider_spec, name=""), [k % (channels or 1) for k in range((channels or 1) + _EXTRA_CHANNELS)]
        )

    def select_channels(self, ref: TensorRef, spec: Spec, channels: Sequence[int]) -> TensorRef:
        """Add a 1 x 1 convolution that selects channels.

        Output channel ``k`` is input channel ``channels[k]``, unchanged: weights are 0 and 1, and their scale is 1.
        """
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
        """Remove the rank of these tensors from the file.

        Old converters do this for results of unknown shape.
        """
        for ref in refs:
            fields = {**self.graph.tensors[ref].fields, "shape": (), "shape_signature": None, "has_rank": False}
            self.graph.tensors[ref] = Table("Tensor", fields)

    def build(self) -> bytes:
        return self.model.build()

    if not TYPE_CHECKING:
        __getattr__ = renamed_attributes(NET)


# --- cases ------------------------------------------------------------------------------------


def net(op: str, name: str, build_net: Callable[[Net], Any], **case_fields: Any) -> Case:
    """Return a case of a model that ``build_net`` builds.

    ``build_net`` gets an empty Net and adds the operators. ``case_fields`` are fields of :class:`Case`. Raises TypeError for
    an unknown keyword.
    """
    case_fields = check_case_keywords(name, case_fields)

    def build() -> bytes:
        model = Net()
        build_net(model)
        return model.build()

    return Case(op, name, build, **case_fields)


def in_isolation(
    op: str, name: str, inputs: Sequence[Spec | None], *outputs: Spec, options: Options | None = None,
    custom_options: Any = None, version: Any = None, **case_fields: Any,
) -> Case:  # fmt: skip
    """Return a case of one operator.

    Operands that are not constant are graph inputs, and results are graph outputs. ``options``: options of the operator,
    by name. ``custom_options``: options of a custom operator, as bytes or as a mapping that becomes a FlexBuffer.
    ``version``: version of the operator, by default the first that LiteRT registers.
    """
    case_fields = check_case_keywords(name, case_fields, OPERATOR_KEYWORDS)

    def build_net(model: Net) -> None:
        model.output(
            *model.call_multi_output(
                op, inputs, *outputs, custom_options=custom_options, version=version, **(options or {})
            )
        )

    return net(op, name, build_net, **{"dtype": _dtype(inputs), **case_fields})


def between_convolutions(
    op: str, name: str, inputs: Sequence[Spec | None], *outputs: Spec, options: Options | None = None,
    custom_options: Any = None, version: Any = None, **case_fields: Any,
) -> Case:  # fmt: skip
    """Return a case of one operator with convolutions before and after it.

    A convolution precedes each image operand and follows each image result. If all results are images,
    ``max_transposes`` is by default one for each graph input of rank 3 or more and for each graph output.
    """
    case_fields = check_case_keywords(name, case_fields, OPERATOR_KEYWORDS)

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
        case_fields.setdefault("max_transposes", len(transposed) + len(outputs))
    return net(op, f"{name} between convolutions", build_net, **{"dtype": _dtype(inputs), **case_fields})


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
    """Return the dtype of the first runtime operand, or else of the first operand."""
    specs = [spec for spec in inputs if spec is not None]
    return next((spec.dtype for spec in specs if spec.value is None), specs[0].dtype if specs else "float32")


Placement = Callable[..., Case]
PLACEMENTS: tuple[Placement, Placement] = (in_isolation, between_convolutions)


def in_bfloat16(
    op: str, operands: Sequence[Spec | None], *results: Spec, name: str = "bfloat16", **case_fields: Any
) -> Case:
    """Return a case of one operator on bfloat16, with casts from and to float32.

    The casts are needed because ONNX Runtime's Python API has no bfloat16 inputs. Every float32 operand and result
    becomes bfloat16. The keyword ``options`` has the options of the operator, not those of ``convert``.
    """
    options = case_fields.pop("options", {})

    def build_net(model: Net) -> None:
        def cast(spec: Spec) -> Spec | TensorRef:
            bfloat16_spec = replace(spec, dtype="bfloat16", value=None, name="")
            return model.call("CAST", [spec], bfloat16_spec) if spec.dtype == "float32" else spec

        operands_or_refs = [spec if spec is None else cast(spec) for spec in operands]
        refs = [model.add_operand(spec) if isinstance(spec, Spec) else spec for spec in operands_or_refs]
        bfloat16_results = [
            model.result(replace(spec, dtype="bfloat16") if spec.dtype == "float32" else spec) for spec in results
        ]
        model.graph.operator(op, refs, bfloat16_results, options, version=FIRST_VERSION.get(op, 1))
        model.output(*(model.call("CAST", [ref], spec) for ref, spec in zip(bfloat16_results, results, strict=True)))

    return net(op, name, build_net, **{"dtype": "bfloat16", "opsets": EVERY_OPSET, **case_fields})


def unary(
    op: str, name: str, x: Spec, y: Spec | None = None, place: Placement = in_isolation, **case_fields: Any
) -> Case:
    """Return a case of ``y = op(x)``.

    By default the result has the shape, dtype and quantization of ``x``.
    """
    return place(op, name, [x], y or replace(x, name=""), **case_fields)


def binary(
    op: str, name: str, x: Spec, y: Spec, z: Spec | None = None, place: Placement = in_isolation, **case_fields: Any
) -> Case:
    """Return a case of ``z = op(x, y)``.

    By default the result has the dtype and quantization of ``x``, or of ``y`` if ``x`` is constant, and the broadcast shape.
    """
    result = z or replace(x if x.value is None else y, name="", value=None)
    result = result if z else result.with_shape(*_broadcast_shape(x.shape, y.shape))
    return place(op, name, [x, y], result, **case_fields)


def _broadcast_shape(*shapes: tuple[int | None, ...]) -> list[int | None]:
    """Return the broadcast shape; None for a size that depends on a dynamic dimension."""
    static = np.broadcast_shapes(*(tuple(1 if size is None else size for size in shape) for shape in shapes))
    dynamic = {k - len(shape) for shape in shapes for k, size in enumerate(shape) if size is None}
    return [None if size == 1 and k - len(static) in dynamic else size for k, size in enumerate(static)]


def opsets(dtype: str = "float32", place: Placement = in_isolation) -> tuple[int | None, ...]:
    """Return the opsets to test. Between convolutions, only the default is tested."""
    return (
        (DEFAULT_OPSET,) if place is between_convolutions else (DEFAULT_OPSET, 26) if dtype == "int16" else EVERY_OPSET
    )


def int32_arrays(**arrays: Any) -> dict[str, Array]:
    """Return keyword arguments as int32 arrays, for the ``input_arrays`` of a case."""
    return {name: np.asarray(array, np.int32) for name, array in arrays.items()}


def __getattr__(name: str) -> Any:
    """Return the replacement of a renamed helper, with a DeprecationWarning.

    Raises AttributeError for other names.
    """
    if name not in KIT:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warn_renamed(f"{__name__}.{name}", KIT[name])
    return globals()[KIT[name]]
