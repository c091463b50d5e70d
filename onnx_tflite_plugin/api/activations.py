"""Fused activations: their bounds, and which of them LiteRT's kernels apply.

The table in this module is the only place that lists which kernels apply which activation. A handler declares the
kernel family of an operator (:class:`FusedActivation`). The host then rejects the operator, or sets its option to the
applied activation. Fusions and lowerings read this option.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from onnx_tflite_plugin.api.refusal import Refusal
from onnx_tflite_plugin.checked import Checked

_BOUNDS: Mapping[str, tuple[float | None, float | None]] = {
    "NONE": (None, None),
    "RELU": (0.0, None),
    "RELU_N1_TO_1": (-1.0, 1.0),
    "RELU6": (0.0, 6.0),
    "RELU_0_TO_1": (0.0, 1.0),  # an operator, but not in the schema's ActivationFunctionType
}
_CLAMPS, _CURVES = ("RELU", "RELU_N1_TO_1", "RELU6"), ("TANH", "SIGN_BIT")
_ALL = ("NONE", *_CLAMPS, *_CURVES)
ACTIVATIONS = frozenset({*_BOUNDS, *_CURVES})


class ActivationKernel(Enum):
    """A family of LiteRT kernels that treat fused activations in the same way."""

    CLAMPED = auto()
    """Clamp to the bounds of RELU, RELU_N1_TO_1 and RELU6; ignore TANH and SIGN_BIT (CalculateActivationRange)."""
    CLAMPED_ONLY = auto()
    """Clamp to the bounds of RELU, RELU_N1_TO_1 and RELU6; refuse TANH and SIGN_BIT."""
    ELEMENTWISE = auto()
    """Apply every activation to the float results (ApplyActivationToVector)."""
    CELLS = auto()
    """Apply every activation within a recurrent cell; for NONE, read an uninitialized buffer."""
    ALWAYS_TANH = auto()
    """Apply TANH within a recurrent cell and ignore the option."""
    UNSIGNED = auto()
    """Clamp to the bounds of RELU and RELU6; read the bound -1 of RELU_N1_TO_1 as the highest integer; ignore TANH and SIGN_BIT."""
    BLOCKWISE = auto()
    """Clamp only in XNNPACK; the results for TANH and SIGN_BIT differ between kernel sets."""
    BLOCKWISE_UNFUSED = auto()
    """Like BLOCKWISE, but XNNPACK does not support the block size: results differ for every activation."""
    RELU_BY_RANGE = auto()
    """Refuse all but RELU, which is implied by the range of the quantized results."""
    NONE_OR_RELU_BY_RANGE = auto()
    """Refuse all but NONE and RELU, which is implied by the range of the quantized results (TensorFlow Lite Micro)."""
    UNFUSED = auto()
    """Refuse every activation, or ignore it if XNNPACK runs the operator."""


class _Row(NamedTuple):
    """Activations of one kernel family: option value → applied activation.

    An option value that ``applied`` does not contain is rejected with ``reason``.
    """

    applied: Mapping[str, str]
    reason: str = ""


def _identity_map(*names: str) -> dict[str, str]:
    return dict(zip(names, names, strict=True))


def _constant_map(name: str, names: Iterable[str]) -> dict[str, str]:
    return dict.fromkeys(names, name)


_REMEDY = "use a separate operator for the activation"
_TABLE: Mapping[ActivationKernel, _Row] = {
    ActivationKernel.CLAMPED: _Row(_identity_map("NONE", *_CLAMPS) | _constant_map("NONE", _CURVES)),
    ActivationKernel.CLAMPED_ONLY: _Row(
        _identity_map("NONE", *_CLAMPS), f"LiteRT refuses a fused {{}} with operands of these dtypes; {_REMEDY}"
    ),
    ActivationKernel.ELEMENTWISE: _Row(_identity_map(*_ALL)),
    ActivationKernel.CELLS: _Row(
        _identity_map(*_CLAMPS, *_CURVES),
        "with activation {} LiteRT's cells read an uninitialized buffer; convert the model with another activation",
    ),
    ActivationKernel.ALWAYS_TANH: _Row(_constant_map("TANH", _ALL)),
    ActivationKernel.UNSIGNED: _Row(
        _identity_map("NONE", "RELU", "RELU6") | _constant_map("NONE", _CURVES),
        "LiteRT's kernel for unsigned integers reads the lower bound -1 of a fused {} as the highest integer; use RELU6 or int32",
    ),
    ActivationKernel.BLOCKWISE: _Row(
        _identity_map("NONE", *_CLAMPS),
        f"LiteRT's kernel sets disagree on a fused {{}} with blockwise weight scales; {_REMEDY}",
    ),
    ActivationKernel.BLOCKWISE_UNFUSED: _Row(
        _identity_map("NONE"),
        "LiteRT's kernel sets disagree on a fused {} with blockwise weight scales, unless blocks are multiples of 32; "
        f"{_REMEDY}",
    ),
    ActivationKernel.RELU_BY_RANGE: _Row(
        _identity_map("RELU"), "LiteRT's integer kernel requires RELU, but the fused activation is {}; use RELU"
    ),
    ActivationKernel.NONE_OR_RELU_BY_RANGE: _Row(
        _identity_map("NONE", "RELU"),
        "TensorFlow Lite Micro's integer kernel requires RELU, but the fused activation is {}; use RELU",
    ),
    ActivationKernel.UNFUSED: _Row(
        _identity_map("NONE"),
        f"LiteRT refuses a fused {{}} for this operator, or ignores it if XNNPACK runs the operator; {_REMEDY}",
    ),
}


def effective_activation(kernel: ActivationKernel, name: str) -> str:
    """Return the activation that a kernel family applies for the option ``name``.

    Raises Refusal if the kernels refuse it, return undefined results, or disagree.
    """
    row = _TABLE[kernel]
    if name not in row.applied:
        raise Refusal(row.reason.format(name) if name in ACTIVATIONS else f"the fused activation {name} is unknown")
    return row.applied[name]


def activation_bounds(name: str) -> tuple[float | None, float | None] | None:
    """Return the lower and upper bound of a clamping activation.

    A bound is None if the activation does not clamp on that side. Return None for TANH and SIGN_BIT, which do not clamp.
    """
    return _BOUNDS.get(name)


@dataclass(frozen=True)
class FusedActivation(Checked):
    """Declaration of a fused activation: its option, and the family of its kernel.

    ``kernel`` determines which activations are applied: pass a family, or a function of the instance that returns one.
    ``option``: name of the operator's option that holds the activation. ``in_lowering``: pass True if the lowering
    applies the activation, by calling ``ctx.activate``. By default the host applies it to every result.
    """

    kernel: ActivationKernel | Callable[..., ActivationKernel] = ActivationKernel.CLAMPED
    option: str = "fused_activation_function"
    in_lowering: bool = False
