"""A TFLite model as immutable objects: what the file says, nothing derived for ONNX.

Tensors are known by index, never by name (names repeat or are empty). Absent
operands keep their slot as ``None``. Nothing here imports onnx or tflite.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy.typing as npt

from onnx_tflite_plugin.source.authored import Metadata

Array = npt.NDArray[Any]
Dims = tuple[int | None, ...]


def agree(one: Sequence[int | None], other: Sequence[int | None]) -> bool:
    """Whether two shapes may be of one tensor: as many axes, and equal sizes wherever both are known."""
    return len(one) == len(other) and all(a == b or None in (a, b) for a, b in zip(one, other, strict=True))


@dataclass(frozen=True, slots=True)
class Quantization:
    """Affine quantization: ``real = scale * (stored - zero_point)``.

    ``scale`` and ``zero_point`` have one entry (per-tensor) or one per element of ``axis``.
    They are Python numbers on purpose: numpy integers overflow silently.
    """

    scale: tuple[float, ...]
    zero_point: tuple[int, ...]
    axis: int = 0

    @property
    def per_axis(self) -> bool:
        return len(self.scale) > 1


@dataclass(frozen=True, slots=True)
class BlockwiseQuantization:
    """Blocks of ``block_size`` along the last axis share a scale: ``real = scale * stored``.

    ``scales`` is a float16 constant of the same subgraph, in the order of the blocks: ``[O, K / block_size]`` for a
    tensor ``[O, K]``.
    """

    scales: Tensor
    block_size: int

    def flat(self) -> Array:
        """The scales as float32, one a block in stored order."""
        return self.scales.array.astype("float32").reshape(-1)


@dataclass(frozen=True, slots=True)
class MultiAxisQuantization:
    """Scales along several ``axes``, each entry for ``block_size`` elements (0: for one coordinate of each axis).

    ``scales`` and ``zero_points`` are tensor indices in the same subgraph. No LiteRT CPU kernel takes it.
    """

    scales: int
    zero_points: int | None
    block_size: int
    axes: tuple[int, ...]


AnyQuantization = Quantization | BlockwiseQuantization | MultiAxisQuantization


class Options(Mapping[str, Any]):
    """Decoded operator options: snake_case fields, enums by name, vectors as tuples.

    ``options.stride_h`` and ``options["stride_h"]`` are the same. A field the
    table does not know raises AttributeError naming the table; a field absent
    from the file has the schema's default. ``table`` is the schema's table name ("" for none). ``absent``: what fields have
    that a table would hold which the file leaves out; they are not listed.
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
            listed = ", ".join(self._fields) or "nothing"
            raise AttributeError(f"{self.table or 'this operator'} has no option {name!r}; it holds {listed}") from None

    def with_fields(self, fields: Mapping[str, Any]) -> Options:
        """The options with other fields, of the same table."""
        return Options(self.table, fields, self._absent)

    def __repr__(self) -> str:
        return f"Options({self.table}, {self._fields})"


class Data:
    """The stored value of a constant tensor, decoded when first asked for.

    ``array`` is read-only.
    """

    @cached_property
    def array(self) -> Array:
        raise NotImplementedError


class Widening(Data):
    """The numbers of another constant in a wider dtype, computed when first asked for; ``source`` is what a file keeps."""

    def __init__(self, source: Tensor, compute: Callable[[], Array]) -> None:
        self.source = source
        self._compute = compute

    @cached_property
    def array(self) -> Array:
        return self._compute()


@dataclass(frozen=True, eq=False)
class Tensor:
    """One tensor of a subgraph.

    ``shape`` is what the file stores (with 1 for unknown sizes, as converters write it);
    ``dims`` has ``None`` where the size is unknown until run time. ``dtype`` is numpy's or
    ml_dtypes' name ("float32", "int8", "int4", "float8_e4m3fn", ...), or "string", "resource", "variant".
    ``disregarded``: parameters that the file gives a float tensor, which no kernel looks at.
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
    disregarded: Quantization | None = None

    @property
    def constant(self) -> bool:
        """Whether its value is known and stays; that of a variable is only what it begins with."""
        return self.data is not None and not self.is_variable

    @property
    def narrower(self) -> Tensor | None:
        """The constant of a narrower dtype that has this one's numbers and is kept in its place."""
        return self.data.source if isinstance(self.data, Widening) else None

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def static(self) -> bool:
        return None not in self.dims

    @property
    def blocks(self) -> BlockwiseQuantization | None:
        """The parameters of a tensor with a scale per block."""
        return self.quantization if isinstance(self.quantization, BlockwiseQuantization) else None

    @property
    def array(self) -> Array:
        """The constant's value; raises ValueError on a tensor computed at run time."""
        if self.data is None:
            raise ValueError(f"tensor {self} is not a constant")
        return self.data.array

    def __str__(self) -> str:
        return f"{self.index} {self.name!r}"

    def __hash__(self) -> int:
        return hash((self.subgraph, self.index))


@dataclass(frozen=True, eq=False)
class Operator:
    """One operator call: ``code`` is the schema's name, ``CUSTOM.<code>`` or ``COMPOSITE.<name>``.

    ``builtin`` is the schema's name without the suffix. ``inputs`` and ``outputs`` hold tensors; an absent optional
    operand (-1 in the file) is ``None`` in its slot. ``options`` holds a custom operator's FlexBuffer and a composite's
    attributes as values; where ``custom_options`` are no FlexBuffer map they are left as bytes, and ``options`` is empty.
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
        first = self.outputs[0] if self.outputs else None  # differs between copies of one operator
        return hash((self.subgraph, self.index, 0 if first is None else first))

    def tensor(self, slot: int) -> Tensor | None:
        """The operand in a slot: input ``slot``, or output ``~slot`` where negative; ``None`` where absent."""
        operands, k = (self.inputs, slot) if slot >= 0 else (self.outputs, ~slot)
        return operands[k] if k < len(operands) else None

    def __getitem__(self, slot: int) -> Tensor:
        """The operand in a slot; raises LookupError where it is absent."""
        tensor = self.tensor(slot)
        if tensor is None:
            kind, k = ("input", slot) if slot >= 0 else ("output", ~slot)
            raise LookupError(f"{self.code} has no {kind} {k}")
        return tensor

    def constant(self, slot: int) -> Array | None:
        """The operand's value where it is a constant of the file, else ``None``."""
        tensor = self.tensor(slot)
        return tensor.array if tensor is not None and tensor.constant else None


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
    """A named entry: input and output names mapped to tensor indices of ``subgraph``."""

    key: str
    subgraph: int
    inputs: Mapping[str, int]
    outputs: Mapping[str, int]


@dataclass(frozen=True, eq=False)
class Model:
    subgraphs: tuple[Subgraph, ...]
    signatures: tuple[Signature, ...] = ()
    metadata: Mapping[str, bytes] = field(default_factory=dict)
    authored: Metadata | None = None
    description: str = ""
    version: int = 3
    size: int = 0
    root: int = 0

    @property
    def main(self) -> Subgraph:
        """The subgraph that one invocation runs: the first, or that of the signature asked for."""
        return self.subgraphs[self.root]
