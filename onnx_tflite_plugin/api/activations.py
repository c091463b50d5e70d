"""Fused activations: what each one computes, and which of them LiteRT's kernels apply.

The table of this module is the only place that knows the latter. A handler declares the kernel family of an operator
(:class:`FusedActivation`); the host then refuses the operator, or sets its option to the activation that is applied,
before a fusion or a lowering looks at it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from onnx_tflite_plugin.api.refusal import Refused
from onnx_tflite_plugin.checked import Checked

_BOUNDS: Mapping[str, tuple[float | None, float | None]] = {
    "NONE": (None, None),
    "RELU": (0.0, None),
    "RELU_N1_TO_1": (-1.0, 1.0),
    "RELU6": (0.0, 6.0),
    "RELU_0_TO_1": (0.0, 1.0),  # an operator, but no value of the schema's ActivationFunctionType
}
_CLAMPS, _CURVES = ("RELU", "RELU_N1_TO_1", "RELU6"), ("TANH", "SIGN_BIT")
_ALL = ("NONE", *_CLAMPS, *_CURVES)
ACTIVATIONS = frozenset({*_BOUNDS, *_CURVES})


class ActivationKernel(Enum):
    """A family of LiteRT kernels that treat fused activations alike."""

    CLAMPED = auto()
    """Clamp to the bounds of RELU, RELU_N1_TO_1 and RELU6; ignore TANH and SIGN_BIT (CalculateActivationRange)."""
    CLAMPED_ONLY = auto()
    """Clamp likewise; refuse TANH and SIGN_BIT."""
    ELEMENTWISE = auto()
    """Apply every activation to the float results (ApplyActivationToVector)."""
    CELLS = auto()
    """Apply every activation within a recurrent cell; without one, read a buffer that was never written."""
    ALWAYS_TANH = auto()
    """Apply TANH within a recurrent cell, whatever the option says."""
    UNSIGNED = auto()
    """Clamp to the bounds of RELU and RELU6; take the -1 of RELU_N1_TO_1 for the highest integer; ignore the rest."""
    BLOCKWISE = auto()
    """Clamp with XNNPACK alone; on TANH and SIGN_BIT the kernel sets disagree."""
    BLOCKWISE_UNFUSED = auto()
    """The same where XNNPACK takes no such blocks: the kernel sets disagree on every activation."""
    RELU_BY_RANGE = auto()
    """Refuse all but RELU, which the range of the quantized results stands for."""
    NONE_OR_RELU_BY_RANGE = auto()
    """Refuse all but NONE and RELU, which the range of the quantized results stands for (TensorFlow Lite Micro)."""
    UNFUSED = auto()
    """Refuse every activation, or ignore it with XNNPACK alone."""


class _Row(NamedTuple):
    """``applied``: the activation that is applied, by the one that the option names. Others are refused with ``reason``."""

    applied: Mapping[str, str]
    reason: str = ""


def _same(*names: str) -> dict[str, str]:
    return dict(zip(names, names, strict=True))


def _as(name: str, names: Iterable[str]) -> dict[str, str]:
    return dict.fromkeys(names, name)


_APART = "make the activation an operator of its own"
_TABLE: Mapping[ActivationKernel, _Row] = {
    ActivationKernel.CLAMPED: _Row(_same("NONE", *_CLAMPS) | _as("NONE", _CURVES)),
    ActivationKernel.CLAMPED_ONLY: _Row(
        _same("NONE", *_CLAMPS), f"LiteRT refuses a fused {{}} with operands of these dtypes; {_APART}"
    ),
    ActivationKernel.ELEMENTWISE: _Row(_same(*_ALL)),
    ActivationKernel.CELLS: _Row(
        _same(*_CLAMPS, *_CURVES),
        "with activation {} LiteRT's cells read a buffer that was never written; convert it with another activation",
    ),
    ActivationKernel.ALWAYS_TANH: _Row(_as("TANH", _ALL)),
    ActivationKernel.UNSIGNED: _Row(
        _same("NONE", "RELU", "RELU6") | _as("NONE", _CURVES),
        "LiteRT's kernel of unsigned integers takes the -1 of a fused {} for the highest integer; use RELU6, or int32",
    ),
    ActivationKernel.BLOCKWISE: _Row(
        _same("NONE", *_CLAMPS),
        f"LiteRT's kernel sets disagree on a fused {{}} with a weight scale per block; {_APART}",
    ),
    ActivationKernel.BLOCKWISE_UNFUSED: _Row(
        _same("NONE"),
        "LiteRT's kernel sets disagree on a fused {} with a weight scale per block, unless blocks are multiples of 32; "
        f"{_APART}",
    ),
    ActivationKernel.RELU_BY_RANGE: _Row(
        _same("RELU"), "LiteRT's integer kernel insists on RELU, and its fused activation is {}; use RELU"
    ),
    ActivationKernel.NONE_OR_RELU_BY_RANGE: _Row(
        _same("NONE", "RELU"),
        "TensorFlow Lite Micro's integer kernel insists on RELU, and its fused activation is {}; use RELU",
    ),
    ActivationKernel.UNFUSED: _Row(_same("NONE"), f"LiteRT refuses a fused {{}} here, or XNNPACK ignores it; {_APART}"),
}


def applied_activation(kernel: ActivationKernel, name: str) -> str:
    """Return the activation that a kernel family applies where an operator's option says ``name``.

    Raises Refused where the kernels refuse it, give arbitrary numbers, or disagree.
    """
    row = _TABLE[kernel]
    if name not in row.applied:
        raise Refused(row.reason.format(name) if name in ACTIVATIONS else f"its fused activation {name} is not known")
    return row.applied[name]


def activation_bounds(name: str) -> tuple[float | None, float | None] | None:
    """Return the lower and upper bound of an activation that clamps; ``None`` for TANH and SIGN_BIT, which do not."""
    return _BOUNDS.get(name)


@dataclass(frozen=True)
class FusedActivation(Checked):
    """The option that names a fused activation, and the kernel family, which tells what becomes of it.

    ``kernel``: the family, or a function of the instance that returns it. ``inside``: the lowering applies the activation,
    with ``ctx.activate``; otherwise the host applies it to every result.
    """

    kernel: ActivationKernel | Callable[..., ActivationKernel] = ActivationKernel.CLAMPED
    option: str = "fused_activation_function"
    inside: bool = False
