"""Built-in quantization behaviors.

A handler declares one of them, such as ``quantization=Dequantized()``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from onnx_tflite_plugin.api.behavior import Arithmetic, Behavior, Parameters, QuantizedOperator, check_output_parameters
from onnx_tflite_plugin.api.dtypes import check_dtypes
from onnx_tflite_plugin.api.instance import Instance
from onnx_tflite_plugin.api.refusal import Refusal
from onnx_tflite_plugin.renamed import DEQUANTIZED, SAME_SCALE, rename_fields
from onnx_tflite_plugin.source.affine import affine
from onnx_tflite_plugin.source.model import Array, Tensor


@dataclass(frozen=True)
class _RealValued(Behavior):
    """Behavior of a kernel that computes on the real values of quantized tensors."""

    @property
    def computes_real_values(self) -> bool:
        return True

    @property
    def needs_scale(self) -> bool:
        return True

    @property
    def takes_floats(self) -> bool:
        return True


@rename_fields(DEQUANTIZED)
@dataclass(frozen=True)
class Dequantized(_RealValued):
    """Dequantize, compute in float, quantize.

    ``bias`` maps a bias slot to two factors: the slots of input and weights, whose scales are multiplied, or a slot and a
    number. Their product is the scale of the bias; the scale that the file stores for it is ignored, as in the kernels.
    ``weights``: slots whose constants are weights rather than activations. The weights that ``bias`` names need not be
    listed. ``blocks``: slots whose constants may have blockwise scales along the last axis. The plan never splits this
    axis. ``as_in_file``: slots that are not dequantized. The handler gets the quantized values as stored in the file, for
    example to assign them to a state.
    """

    bias: Mapping[int, tuple[int, int | float]] = field(default_factory=dict)
    weights: tuple[int, ...] = ()
    blocks: tuple[int, ...] = ()
    as_in_file: tuple[int, ...] = ()

    def choose_arithmetic(self, operator: QuantizedOperator) -> Arithmetic:
        for weight in self._bias_weight_slots:
            _check_channels(operator, weight)
        return Arithmetic.FLOAT

    @property
    def biases(self) -> Mapping[int, tuple[int, int | float]]:
        return self.bias

    @property
    def weight_slots(self) -> tuple[int, ...]:
        return (*self.weights, *self._bias_weight_slots)

    @property
    def _bias_weight_slots(self) -> tuple[int, ...]:
        """Return the weight slots that determine the scale of a bias."""
        return tuple(weight for _, weight in self.bias.values() if isinstance(weight, int))

    @property
    def block_slots(self) -> tuple[int, ...]:
        return self.blocks

    @property
    def file_slots(self) -> tuple[int, ...]:
        return self.as_in_file

    @property
    def rescales(self) -> bool:
        return not self.as_in_file  # the handler itself applies the scales of these slots


@rename_fields(SAME_SCALE)
@dataclass(frozen=True)
class SameScale(Behavior):
    """Pass quantized values through if all quantization parameters are equal.

    ``unequal`` says what happens if the parameters differ. With ``"dequantize"``, the handler computes in float,
    because the kernel rescales. With ``"refuse"``, the operator is refused, because the kernel fails. ``slots``: slots
    whose parameters are compared, by default all quantized ones. ``onnx``: name of the ONNX operator that the lowering
    emits. If the target has no integer kernel for it, the handler computes in float.
    """

    unequal: Literal["dequantize", "refuse"] = "dequantize"
    slots: tuple[int, ...] | None = None
    onnx: str = ""

    def choose_arithmetic(self, operator: QuantizedOperator) -> Arithmetic:
        tensors = operator.tensors if self.slots is None else operator.quantized(self.slots)
        if not tensors:
            return Arithmetic.QUANTIZED
        equal = _have_equal_parameters(tensors)
        if not equal and self.unequal == "refuse":
            raise Refusal("the quantized operands differ in scale or zero point, which the kernel refuses")
        return Arithmetic.QUANTIZED if equal and operator.has_kernel(tensors[0], self.onnx) else Arithmetic.FLOAT

    @property
    def computes_real_values(self) -> bool:
        return True

    @property
    def moves_values(self) -> bool:
        return True


@dataclass(frozen=True)
class FixedOutputRange(_RealValued):
    """Dequantize, compute in float, and require an output scale and zero point.

    ``parameters`` maps the dtype of an output to the (scale, zero point) that it must have.
    """

    parameters: Parameters

    def __post_init__(self) -> None:
        super().__post_init__()
        check_dtypes("FixedOutputRange(parameters=...)", self.parameters)

    def choose_arithmetic(self, operator: QuantizedOperator) -> Arithmetic:
        check_output_parameters(self, operator.outputs)
        return Arithmetic.FLOAT

    @property
    def output_parameters(self) -> Parameters:
        return self.parameters


@dataclass(frozen=True)
class Raw(Behavior):
    """Compute on the stored bytes without rescaling.

    ``shift_safe``: True if the operator commutes with an offset that is added to all quantized values, as maximum and
    copy do. The values may then be stored with an offset. ``onnx``: name of the ONNX operator that the lowering emits.
    If the target has no integer kernel for this operator, a shift-safe handler computes in float if all parameters are
    equal; otherwise the operator is refused.
    """

    shift_safe: bool = False
    onnx: str = ""

    def choose_arithmetic(self, operator: QuantizedOperator) -> Arithmetic:
        tensors = operator.tensors
        can_use_floats = self.shift_safe and not operator.accesses_states and _have_equal_parameters(tensors)
        if operator.has_kernel(tensors[0], self.onnx) and not (can_use_floats and operator.dequantizes(self.onnx)):
            return Arithmetic.QUANTIZED if self.shift_safe else Arithmetic.QUANTIZED_AS_IN_FILE
        if not can_use_floats:
            raise Refusal(
                f"the kernel computes on {tensors[0].dtype} values, for which target {operator.target} has no "
                f"{self.onnx or 'kernel'}; convert with --quantization float"
            )
        return Arithmetic.FLOAT

    @property
    def moves_values(self) -> bool:
        return True

    @property
    def keeps_file_values(self) -> bool:
        return not self.shift_safe

    @property
    def allows_shifted_states(self) -> bool:
        return self.shift_safe


@dataclass(frozen=True)
class Integer(Behavior):
    """Pass quantized values to the handler.

    ``ctx.quantization(slot)`` returns their parameters. ``outputs`` maps the dtype of an output to the (scale, zero point)
    that the kernel requires. ``constants``: slots whose constants the handler reads with ``ctx.require_constant`` and
    stores in another dtype. The dtype in the file then does not raise the opset.
    """

    outputs: Parameters = field(default_factory=dict)
    constants: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        check_dtypes("Integer(outputs=...)", self.outputs)

    def choose_arithmetic(self, operator: QuantizedOperator) -> Arithmetic:
        check_output_parameters(self, operator.outputs)
        return _require_integer_kernels(operator)

    @property
    def constant_slots(self) -> tuple[int, ...]:
        return self.constants

    @property
    def output_parameters(self) -> Parameters:
        return self.outputs

    @property
    def needs_scale(self) -> bool:
        return True


@dataclass(frozen=True)
class Lookup(_RealValued):
    """Look up the result of each quantized value of input 0 in a table.

    On targets without integer kernels for the dtype, the handler is called instead and computes in float; results may
    differ by one quantization step.

    ``table``: a function of the instance that returns the quantized results in order of the input's unsigned bit
    pattern: 0, 1, ..., then (signed dtypes) lowest, ..., -1. ``dtypes``: the dtypes of input 0 for which the table is
    used; other dtypes are dequantized. ``outputs`` maps the dtype of an output to the (scale, zero point) that the kernel
    requires.
    """

    table: Callable[[Instance], Array]
    dtypes: Collection[str] = ("int16",)
    outputs: Parameters = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_dtypes("Lookup(dtypes=...)", self.dtypes)
        check_dtypes("Lookup(outputs=...)", self.outputs)

    def choose_arithmetic(self, operator: QuantizedOperator) -> Arithmetic:
        check_output_parameters(self, operator.outputs)
        looks_up = operator.op[0].dtype in self.dtypes and all(map(operator.has_kernel, operator.tensors))
        return Arithmetic.QUANTIZED if looks_up else Arithmetic.FLOAT

    @property
    def lookup_table(self) -> Callable[[Instance], Array]:
        return self.table

    @property
    def output_parameters(self) -> Parameters:
        return self.outputs


@dataclass(frozen=True)
class NotQuantizable(Behavior):
    """Refuse quantized operands: the kernel has no quantized implementation."""

    def choose_arithmetic(self, operator: QuantizedOperator) -> Arithmetic:
        names = " and ".join(f"{t.name!r} ({t.dtype})" for t in operator.tensors)
        are = "is" if len(operator.tensors) == 1 else "are"
        raise Refusal(f"{names} {are} quantized, but the handler supports only floats")

    @property
    def is_quantizable(self) -> bool:
        return False


OutputBehavior = Dequantized | FixedOutputRange


def _check_channels(operator: QuantizedOperator, weight: int) -> None:
    """Raise Refusal if weights with a bias have scales along another axis.

    Kernels read the scales as scales of the output channels, whatever axis the file names
    (PopulateConvolutionQuantizationParams, kernel_util.cc).
    """
    scales, letters, result = affine(operator.op.tensor(weight)), operator.letters(weight), operator.letters(~0)
    if scales is None or not scales.per_axis or len(letters) != operator.op[weight].rank or not result:
        return
    channels = result[-1]
    if channels in letters and letters[scales.axis] != channels:
        name, axis = operator.op[weight].name, letters.index(channels)
        meaning = f"but the kernel reads them as scales of axis {axis}, the channels of the result"
        raise Refusal(f"{name!r} has per-channel scales along axis {scales.axis}, {meaning}")


def _require_integer_kernels(operator: QuantizedOperator) -> Arithmetic:
    """Return ``Arithmetic.QUANTIZED``.

    Raises Refusal if the target has no integer kernel for the dtype of a tensor.
    """
    if all(operator.has_kernel(tensor) for tensor in operator.tensors):
        return Arithmetic.QUANTIZED
    dtype = operator.tensors[0].dtype
    raise Refusal(f"the operator computes on {dtype} values, which target {operator.target} does not support")


def _have_equal_parameters(tensors: Sequence[Tensor]) -> bool:
    """True if all tensors have one dtype and equal quantization parameters."""
    return all(t.dtype == tensors[0].dtype and affine(t) == affine(tensors[0]) for t in tensors)
