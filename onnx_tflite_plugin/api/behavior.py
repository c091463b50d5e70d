"""Base class of quantization behaviors: how a kernel treats quantized tensors.

``quantization.py`` has the built-in behaviors. A pack may define another: a frozen dataclass derived from
:class:`Behavior` that implements :meth:`Behavior.choose_arithmetic` and overrides the traits that differ from their
defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum
from functools import cache
from inspect import get_annotations
from types import MappingProxyType
from typing import Any, Protocol, get_type_hints

from onnx_tflite_plugin.api.instance import Instance
from onnx_tflite_plugin.api.refusal import Refusal
from onnx_tflite_plugin.checked import Checked, describe, format_type, has_type
from onnx_tflite_plugin.source.affine import affine
from onnx_tflite_plugin.source.model import Array, Operator, Tensor

Parameters = Mapping[str, tuple[float, int]]
"""Dtype -> scale and zero point."""


class Arithmetic(Enum):
    """Form in which a handler gets its operands and returns its results."""

    UNQUANTIZED = "unquantized"  # no data operand is quantized; values have the dtypes in the file
    FLOAT = "float"  # dequantized operands; the host quantizes the results
    QUANTIZED = "quantized"  # quantized values, in the dtype that the storage plan chose
    QUANTIZED_AS_IN_FILE = "as in file"  # quantized values, in the dtype in the file


class QuantizedOperator(Protocol):
    """An operator with quantized tensors, as a behavior sees it before planning."""

    @property
    def op(self) -> Operator:
        """Return the operator as stored in the file."""

    @property
    def target(self) -> str:
        """Return the name of the target, for messages."""

    @property
    def tensors(self) -> Sequence[Tensor]:
        """Return the quantized tensors that this behavior treats, at least one.

        Outputs in ``output_quantization`` have their own behavior and are not included.
        """

    @property
    def outputs(self) -> Sequence[Tensor]:
        """Return the outputs, except those in ``output_quantization``."""

    @property
    def accesses_states(self) -> bool:
        """True if the operator itself reads or writes states."""

    def quantized(self, slots: Iterable[int]) -> Sequence[Tensor]:
        """Return the tensors in ``slots`` that are quantized."""

    def letters(self, slot: int) -> Sequence[str]:
        """Return the declared letters of the slot's axes; empty if none are declared.

        A group or ``...`` is one entry.
        """

    def has_kernel(self, tensor: Tensor, onnx: str = "") -> bool:
        """True if the target runs the ONNX operator on the tensor's quantized values.

        With ``onnx=""``, True if the target has integer kernels for the tensor's dtype at all.
        """

    def dequantizes(self, onnx: str) -> bool:
        """True if the target prefers to run the ONNX operator on dequantized values.

        The preference applies only if the results are equal.
        """


_SIMILARITY = 0.75
_FIELD_SIMILARITY = 0.85  # higher: the field ``constants`` may resemble ``constant_slots``, the trait that it sets


@dataclass(frozen=True)
class Behavior(Checked):
    """Treatment of quantized tensors by a kernel.

    By default the traits describe a kernel without quantized tensors. A subclass raises TypeError if it defines a public
    name that resembles a trait, because the name is probably misspelled.
    """

    def __init_subclass__(cls, **keywords: object) -> None:
        super().__init_subclass__(**keywords)
        traits = {name for name in vars(Behavior) if not name.startswith("_")}
        fields = get_annotations(cls)
        for name in {**fields, **vars(cls)}:
            inherited = any(hasattr(base, name) for base in cls.__bases__)
            if name.startswith("_") or inherited:
                continue
            if similar := get_close_matches(name, traits, 1, _FIELD_SIMILARITY if name in fields else _SIMILARITY):
                remedy = f"did you mean {similar[0]!r}? The name of a helper must begin with an underscore"
                raise TypeError(f"{cls.__name__}.{name} is not a trait of behaviors; {remedy}")

    def choose_arithmetic(self, operator: QuantizedOperator) -> Arithmetic:
        """Decide whether the handler computes on floats or on quantized values.

        The host calls this method only if a tensor that this behavior treats is quantized. Raise Refusal if the operator
        cannot be converted.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define choose_arithmetic")

    # traits of slots

    @property
    def biases(self) -> Mapping[int, tuple[int, int | float]]:
        """Return bias slot → factors whose product is the scale of the bias.

        The factors are two slots, whose scales are multiplied, or a slot and a number.
        """
        return MappingProxyType({})

    @property
    def weight_slots(self) -> tuple[int, ...]:
        """Return the slots whose constants are weights rather than activations."""
        return ()

    @property
    def block_slots(self) -> tuple[int, ...]:
        """Return the slots whose constants may have blockwise scales along the last axis."""
        return ()

    @property
    def file_slots(self) -> tuple[int, ...]:
        """Return the slots that the handler gets as stored in the file.

        The arithmetic that ``choose_arithmetic`` returns does not apply to them.
        """
        return ()

    @property
    def constant_slots(self) -> tuple[int, ...]:
        """Return the slots of constants that the handler itself stores in another dtype."""
        return ()

    @property
    def output_parameters(self) -> Parameters:
        """Return dtype -> scale and zero point that the outputs must have."""
        return MappingProxyType({})

    @property
    def lookup_table(self) -> Callable[[Instance], Array] | None:
        """Return a function that computes a lookup table, or None.

        For quantized values, the table replaces the handler.
        """
        return None

    # traits of the kernel

    @property
    def is_quantizable(self) -> bool:
        """True if the kernel supports quantized tensors."""
        return True

    @property
    def computes_real_values(self) -> bool:
        """True if the kernel computes on the real values of quantized tensors."""
        return False

    @property
    def needs_scale(self) -> bool:
        """True if the kernel computes with the scale, so that a scale of 0 is an error."""
        return False

    @property
    def moves_values(self) -> bool:
        """True if quantized values may pass from an operand to a result unchanged."""
        return False

    @property
    def rescales(self) -> bool:
        """True if the kernel multiplies each operand by its scale."""
        return False

    @property
    def takes_floats(self) -> bool:
        """True if the reference ``kernel=`` computes on float32, not on quantized values."""
        return False

    @property
    def keeps_file_values(self) -> bool:
        """True if stored bytes must not change, because the result depends on them."""
        return False

    @property
    def allows_shifted_states(self) -> bool:
        """True if states of the operator may be stored with a number added to each value."""
        return False


def find_trait_error(behavior: Behavior) -> str:
    """Return a message about the first trait with a wrong type; else ""."""
    behavior_type = type(behavior)
    for name, trait in vars(Behavior).items():
        if not isinstance(trait, property) or getattr(behavior_type, name) is trait:
            continue
        hint, value = _trait_types()[name], getattr(behavior, name)
        if not has_type(value, hint):
            return f"{behavior_type.__name__}.{name} must be {format_type(hint)}, not {describe(value)}"
    return ""


@cache
def _trait_types() -> Mapping[str, Any]:
    traits = {name: trait.fget for name, trait in vars(Behavior).items() if isinstance(trait, property)}
    return {name: get_type_hints(function)["return"] for name, function in traits.items() if function is not None}


def declared_slots(behavior: Behavior) -> tuple[int, ...]:
    """Return the operand slots that occur in the traits of a behavior."""
    pairs = behavior.biases.items()
    scales = (slot for _, pair in pairs for slot in pair if isinstance(slot, int))
    return (
        *behavior.biases,
        *scales,
        *behavior.weight_slots,
        *behavior.block_slots,
        *behavior.file_slots,
        *behavior.constant_slots,
    )


def check_output_parameters(behavior: Behavior, outputs: Iterable[Tensor]) -> None:
    """Raise Refusal if an output's scale or zero point differs from the required one."""
    for tensor in outputs:
        quantization, required = affine(tensor), behavior.output_parameters.get(tensor.dtype)
        if quantization is None or required is None:
            continue
        (scale, zero_point), (file_scale, file_zero_point) = (
            required,
            (quantization.scale[0], quantization.zero_point[0]),
        )
        if abs(file_scale - scale) > 1e-3 * scale or file_zero_point != zero_point:
            raise Refusal(
                f"the kernel requires scale {scale:g} and zero point {zero_point}, the file has {file_scale:g} and {file_zero_point}"
            )
