"""A TFLite model as immutable objects.

They represent the content of the file, without anything derived for ONNX. Tensors are identified by index, never by
name (names repeat or are empty). An absent operand keeps its slot as ``None``. Nothing here imports onnx or tflite.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from onnx_tflite_plugin.renamed import TENSOR, renamed_attributes
from onnx_tflite_plugin.source.authored import Metadata
from onnx_tflite_plugin.source.content import Content

Array = npt.NDArray[Any]
Dims = tuple[int | None, ...]


def agree(dims: Sequence[int | None], other_dims: Sequence[int | None]) -> bool:
    """True if two shapes have equal ranks, and equal sizes where both are static."""
    if len(dims) != len(other_dims):
        return False
    return all(size == other or None in (size, other) for size, other in zip(dims, other_dims, strict=True))


@dataclass(frozen=True, slots=True)
class Quantization:
    """Affine quantization: ``real = scale * (stored - zero_point)``.

    ``scale`` and ``zero_point`` have one entry (per-tensor) or one per element of ``axis``.
    Their elements are Python numbers, because numpy integers overflow silently.
    """

    scale: tuple[float, ...]
    zero_point: tuple[int, ...]
    axis: int = 0

    @property
    def per_axis(self) -> bool:
        return len(self.scale) > 1


@dataclass(frozen=True, slots=True)
class BlockwiseQuantization:
    """Blockwise quantization along the last axis: ``real = scale * stored``.

    There is one scale per ``block_size`` elements. ``scales`` is a float16 constant of the same subgraph, in the
    order of the blocks: ``[O, K / block_size]`` for a tensor ``[O, K]``.
    """

    scales: Tensor
    block_size: int

    def flat(self) -> Array:
        """Return the scales as a flat float32 array, one per block in stored order."""
        return self.scales.array.astype("float32").reshape(-1)


@dataclass(frozen=True, slots=True)
class MultiAxisQuantization:
    """Quantization along several ``axes``.

    Each scale applies to ``block_size`` elements, or to one coordinate of each axis if ``block_size`` is 0.
    ``scales`` and ``zero_points`` are tensor indices in the same subgraph. No LiteRT CPU kernel supports it.
    """

    scales: int
    zero_points: int | None
    block_size: int
    axes: tuple[int, ...]


AnyQuantization = Quantization | BlockwiseQuantization | MultiAxisQuantization


class Options(Mapping[str, Any]):
    """Decoded operator options: snake_case fields, enums by name, vectors as tuples.

    ``options.stride_h`` and ``options["stride_h"]`` are equivalent. A field that the table does not have raises
    AttributeError with the name of the table. A field absent from the file has the schema's default. ``table`` is the
    table's name in the schema ("" for none). ``absent``: values of fields whose table the file leaves out; iteration
    does not list them.
    """

    __slots__ = ("_absent", "_fields", "table")

    def __init__(
        self, table: str = "", fields: Mapping[str, Any] | None = None, absent: Mapping[str, Any] | None = None
    ) -> None:
        self.table = table
        self._fields = dict(fields or {})
        self._absent = absent or {}

    def __getitem__(self, key: str) -> Any:
        return self._fields[key] if key in self._fields else self._absent[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self[name]
        except KeyError:
            names = ", ".join(self._fields) or "none"
            raise AttributeError(f"{self.table or 'this operator'} has no option {name!r}; options: {names}") from None

    def with_fields(self, fields: Mapping[str, Any]) -> Options:
        """Return options of the same table with these fields."""
        return Options(self.table, fields, self._absent)

    def __repr__(self) -> str:
        return f"Options({self.table}, {self._fields})"


class Data:
    """The stored value of a constant, decoded on first use as a read-only array."""

    @cached_property
    def array(self) -> Array:
        raise NotImplementedError


class ArrayData(Data):
    """A constant given as an array."""

    def __init__(self, array: Array) -> None:
        self.array = array


class Widening(Data):
    """The values of the constant ``source`` in a wider dtype, computed on first use."""

    def __init__(self, source: Tensor, compute: Callable[[], Array]) -> None:
        self.source = source
        self._compute = compute

    @cached_property
    def array(self) -> Array:
        return self._compute()


@dataclass(frozen=True, eq=False)
class Tensor:
    """One tensor of a subgraph.

    ``shape`` is the shape in the file (dynamic dimensions are 1, as converters write them); ``dims`` has ``None`` for
    dynamic dimensions. ``dtype`` is the name in numpy or ml_dtypes ("float32", "int8", "int4", "float8_e4m3fn", ...),
    or "string", "resource", "variant". ``ignored_quantization``: parameters that the file stores for a float tensor,
    and that kernels ignore. ``fake_quantization``: int8 parameters with which the values of a float tensor are
    quantized and dequantized.
    """

    subgraph: int
    index: int
    name: str
    dtype: str
    shape: tuple[int, ...]
    dims: Dims
    data: Data | None = None
    quantization: AnyQuantization | None = None
    is_variable: bool = False
    has_rank: bool = True
    ignored_quantization: Quantization | None = None
    fake_quantization: Quantization | None = None

    @property
    def is_constant(self) -> bool:
        """True if the value is stored and never changes; False for variables."""
        return self.data is not None and not self.is_variable

    @property
    def narrower(self) -> Tensor | None:
        """The stored constant of narrower dtype; ``None`` if this tensor is not widened."""
        return self.data.source if isinstance(self.data, Widening) else None

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def is_static(self) -> bool:
        return None not in self.dims

    @property
    def blocks(self) -> BlockwiseQuantization | None:
        """The blockwise parameters, ``None`` for a tensor without them."""
        return self.quantization if isinstance(self.quantization, BlockwiseQuantization) else None

    @property
    def array(self) -> Array:
        """The value of a constant. Raises ValueError for other tensors."""
        if self.data is None:
            raise ValueError(f"tensor {self} is not a constant")
        return self.data.array

    def __str__(self) -> str:
        return f"{self.index} {self.name!r}"

    def __hash__(self) -> int:
        return hash((self.subgraph, self.index))

    if not TYPE_CHECKING:
        __getattr__ = renamed_attributes(TENSOR)


@dataclass(frozen=True, eq=False)
class Operator:
    """One operator.

    ``code`` is the schema's name, ``CUSTOM.<code>`` or ``COMPOSITE.<name>``. ``builtin`` is the schema's name without
    the suffix. ``inputs`` and ``outputs`` hold tensors; an absent optional operand (-1 in the file) is ``None`` in
    its slot. ``options`` holds a custom operator's FlexBuffer and a composite's attributes as values.
    ``custom_options`` that are not a FlexBuffer map stay bytes, and ``options`` is empty.
    """

    subgraph: int
    index: int
    code: str
    builtin: str
    version: int
    options: Options
    inputs: tuple[Tensor | None, ...]
    outputs: tuple[Tensor | None, ...]
    intermediates: tuple[Tensor | None, ...] = ()
    custom_options: bytes = b""
    mutating: tuple[bool, ...] = ()

    def __hash__(self) -> int:
        first = self.outputs[0] if self.outputs else None  # distinguishes copies of one operator
        return hash((self.subgraph, self.index, 0 if first is None else first))

    def tensor(self, slot: int) -> Tensor | None:
        """Return input ``slot``, or output ``~slot`` if negative; ``None`` if absent."""
        operands, k = (self.inputs, slot) if slot >= 0 else (self.outputs, ~slot)
        return operands[k] if k < len(operands) else None

    def __getitem__(self, slot: int) -> Tensor:
        """Return the operand in a slot. Raises LookupError if it is absent."""
        tensor = self.tensor(slot)
        if tensor is None:
            kind, k = ("input", slot) if slot >= 0 else ("output", ~slot)
            raise LookupError(f"{self.code} has no {kind} {k}")
        return tensor

    def constant(self, slot: int) -> Array | None:
        """Return the operand's value if it is a constant of the file, otherwise ``None``."""
        tensor = self.tensor(slot)
        return tensor.array if tensor is not None and tensor.is_constant else None


@dataclass(frozen=True, eq=False)
class Subgraph:
    index: int
    name: str
    tensors: tuple[Tensor, ...]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    operators: tuple[Operator, ...]


@dataclass(frozen=True, slots=True)
class Signature:
    """A named entry point: name -> tensor index, for the inputs and for the outputs."""

    key: str
    subgraph: int
    inputs: Mapping[str, int]
    outputs: Mapping[str, int]


@dataclass(frozen=True, eq=False)
class Model:
    """A TFLite model. ``content``: the file that was read; None if there is no file."""

    subgraphs: tuple[Subgraph, ...]
    signatures: tuple[Signature, ...] = ()
    metadata: Mapping[str, bytes] = field(default_factory=dict)
    authored: Metadata | None = None
    description: str = ""
    version: int = 3
    size: int = 0
    root: int = 0
    content: Content | None = field(default=None, repr=False)

    @property
    def main(self) -> Subgraph:
        """The subgraph to convert: the first one, or the selected signature's."""
        return self.subgraphs[self.root]
