"""Write small .tflite files without TensorFlow, for the cases and the tests.

    model = ModelBuilder()
    g = model.main
    x = g.input("x", (1, 5, 7, 3))
    w = g.constant("w", np.ones((4, 3, 3, 3), np.float32))
    y = g.tensor("y", (1, 3, 4, 4))
    g.operator("CONV_2D", [x, w, None], [y], {"padding": "SAME", "stride_h": 2, "stride_w": 2})
    g.output(y)
    data = model.build()

Names of operators, options and enum values are the schema's; a wrong name raises BuilderError with the valid names.
Plain integers are accepted as tensor indices without a check, so that tests can write broken files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import flatbuffers
import numpy as np

from conformance.operators import code_parts, flexbuffer, options_fields
from conformance.schema import BuilderError, Table, encode, enum_value
from conformance.storage import Array, array_and_dtype, buffer_bytes, sparse_storage
from onnx_tflite_plugin.renamed import warn_renamed

__all__ = ["BuilderError", "GraphBuilder", "ModelBuilder", "TensorRef", "blockwise", "quant", "serialize_table"]

_EXTENDED_CODES = 127  # codes from this one up fit only in the field builtin_code
_UNKNOWN_OFFSET = 2  # placeholder until the offset is known; a field with the default value 0 would be omitted


class TensorRef(int):
    """Index of a tensor in its subgraph, with the tensor's name, shape and dtype."""

    graph: GraphBuilder
    name: str
    shape: tuple[int, ...]
    dtype: str


def quant(
    scale: float | Sequence[float] | Array,
    zero_point: int | Sequence[int] | Array = 0,
    axis: int = 0,
    *,
    minimum: Sequence[float] | None = None,
    maximum: Sequence[float] | None = None,
) -> Table:
    """Return affine quantization, with one scale or with scales along ``axis``.

    A single zero point applies to all scales. ``minimum`` and ``maximum``: values of the fields min and max.
    """
    scales = np.atleast_1d(np.asarray(scale, np.float64))
    zero_points = np.broadcast_to(np.asarray(zero_point), scales.shape)
    fields = {"scale": scales, "zero_point": zero_points, "quantized_dimension": axis, "min": minimum, "max": maximum}
    return Table("QuantizationParameters", fields)


def blockwise(scales: int, block_size: int, zero_points: int | None = None) -> Table:
    """Return blockwise quantization along the last axis.

    ``scales`` and ``zero_points`` are indices of tensors in the same subgraph.
    """
    zero_points_index = -1 if zero_points is None else int(zero_points)
    fields = {"scales": int(scales), "zero_points": zero_points_index, "block_size": block_size}
    details = Table("BlockwiseQuantization", fields)
    return Table("QuantizationParameters", {"details_type": "BlockwiseQuantization", "details": details})


@dataclass
class _External:
    """Bytes stored after the flatbuffer; ``offset`` is from the start of the file."""

    data: bytes
    offset: int = _UNKNOWN_OFFSET


@dataclass(eq=False)
class GraphBuilder:
    """One subgraph under construction."""

    model: ModelBuilder
    index: int
    name: str
    inputs: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    tensors: list[Table] = field(default_factory=list)
    operators: list[Table] = field(default_factory=list)

    def input(
        self,
        name: str,
        shape: Sequence[int | None] | None,
        dtype: str = "float32",
        *,
        quantization: Table | None = None,
        signature: Sequence[int | None] | None = None,
    ) -> TensorRef:
        """Add a graph input. Arguments are as for ``tensor``."""
        ref = self.tensor(name, shape, dtype, quantization=quantization, signature=signature)
        self.inputs.append(ref)
        return ref

    def output(self, *refs: int) -> None:
        """Make tensors graph outputs, in this order."""
        self.outputs += [self._index(ref) for ref in refs]

    def tensor(
        self,
        name: str,
        shape: Sequence[int | None] | None,
        dtype: str = "float32",
        *,
        quantization: Table | None = None,
        signature: Sequence[int | None] | None = None,
        variable: bool = False,
        buffer: int = 0,
        sparsity: Table | None = None,
        list_elements: tuple[str, Sequence[int | None]] | None = None,
        listed: tuple[str, Sequence[int | None]] | None = None,
    ) -> TensorRef:
        """Add a tensor that is computed at runtime, or a variable.

        ``None`` or -1 in ``shape`` means a dynamic dimension. It is stored as 1 in the shape, and as -1 in the shape
        signature. A shape of ``None`` means unknown rank. ``signature``: the shape signature to store in place of the one
        that follows from ``shape``. ``buffer``: index of the buffer with the values; 0 is the empty buffer.
        ``list_elements``: dtype and shape of the tensors in a list, for dtype "variant". ``listed`` is its old name.
        """
        if listed is not None:
            warn_renamed("tensor(listed=...)", "list_elements=")
            list_elements = listed
        sizes = tuple(-1 if size is None else int(size) for size in shape or ())
        if signature is None and -1 in sizes:
            signature = sizes
        stored = tuple(1 if size == -1 else size for size in sizes)
        fields = {
            "shape": stored,
            "type": enum_value("TensorType", dtype),
            "buffer": buffer,
            "name": name,
            "quantization": quantization,
            "is_variable": variable,
            "sparsity": sparsity,
            "shape_signature": None if signature is None else [-1 if size is None else size for size in signature],
            "has_rank": shape is not None,
        }
        if list_elements is not None:
            element = {
                "shape": [-1 if size is None else size for size in list_elements[1]],
                "type": enum_value("TensorType", list_elements[0]),
                "has_rank": True,
            }
            fields["variant_tensors"] = [Table("VariantSubType", element)]
        ref = TensorRef(len(self.tensors))
        ref.graph, ref.name, ref.shape, ref.dtype = self, name, stored, dtype.lower()
        self.tensors.append(Table("Tensor", fields))
        return ref

    def constant(
        self,
        name: str,
        value: Any,
        dtype: str | None = None,
        *,
        quantization: Table | None = None,
        external: bool = False,
        signature: Sequence[int | None] | None = None,
    ) -> TensorRef:
        """Add a constant tensor.

        ``value`` is converted to ``dtype``, by default the dtype that it has. ``external=True`` stores the bytes after
        the flatbuffer. ``signature``: the shape signature to store. Strings, int4, uint4 and int2 (ml_dtypes) are
        packed as the schema requires.
        """
        array, dtype_name = array_and_dtype(value, dtype)
        buffer = self.model.buffer(buffer_bytes(array, dtype_name), external=external)
        return self.tensor(name, array.shape, dtype_name, quantization=quantization, buffer=buffer, signature=signature)

    def sparse(
        self,
        name: str,
        value: Any,
        formats: Sequence[str],
        *,
        order: Sequence[int] | None = None,
        blocks: Sequence[tuple[int, int]] = (),
        index_dtype: str = "int32",
        quantization: Table | None = None,
    ) -> TensorRef:
        """Add a constant in sparse storage.

        ``formats`` has "dense" or "csr" for each dimension. :func:`conformance.storage.sparse_storage` describes the other
        arguments.
        """
        array, dtype_name = array_and_dtype(value, None)
        sparsity, values = sparse_storage(array, formats, order=order, blocks=blocks, index_dtype=index_dtype)
        buffer = self.model.buffer(buffer_bytes(values, dtype_name))
        return self.tensor(name, array.shape, dtype_name, quantization=quantization, buffer=buffer, sparsity=sparsity)

    def operator(
        self,
        code: str | int,
        inputs: Sequence[int | None],
        outputs: Sequence[int | None],
        options: Mapping[str, Any] | None = None,
        *,
        version: int = 1,
        options_table: str | None = None,
        custom_options: bytes | Mapping[str, Any] | None = None,
        external_custom_options: bool = False,
        intermediates: Sequence[int | None] = (),
        mutating: Sequence[int] = (),
    ) -> None:
        """Add an operator.

        ``code`` is the schema's name, ``CUSTOM.<code>``, ``COMPOSITE.<name>`` or a raw number.

        The code determines the options table; ``options_table`` selects another table, and "" writes none. A mapping as
        ``custom_options`` becomes a FlexBuffer map. ``external_custom_options=True`` stores it after the flatbuffer.
        ``mutating``: inputs that the operator changes.
        """
        builtin, custom, composite = code_parts(code)
        fields: dict[str, Any] = {
            "opcode_index": self.model.operator_code(builtin, custom, version),
            "inputs": self._slots(inputs),
            "outputs": self._slots(outputs),
        }
        option_values = dict(options or {})
        if composite:
            option_values.setdefault("name", composite)
            attributes = option_values.get("composite_attributes")
            option_values["composite_attributes"] = None if attributes is None else flexbuffer(attributes)
        fields |= options_fields(builtin, option_values, options_table)
        if custom_options is not None:
            data = flexbuffer(custom_options)
            if external_custom_options:
                fields["large_custom_options_offset"] = self.model.external(data)
                fields["large_custom_options_size"] = len(data)
            else:
                fields["custom_options"] = data
        if intermediates:
            fields["intermediates"] = self._slots(intermediates)
        if mutating:
            if missing := [ref for ref in mutating if ref not in inputs]:
                raise BuilderError(f"{code} mutates tensors {missing}, which are not among its inputs")
            fields["mutating_variable_inputs"] = [ref in mutating for ref in inputs]
        self.operators.append(Table("Operator", fields))

    def _slots(self, refs: Sequence[int | None]) -> list[int]:
        return [-1 if ref is None else self._index(ref) for ref in refs]

    def _index(self, ref: int) -> int:
        if isinstance(ref, TensorRef) and ref.graph is not self:
            raise BuilderError(f"tensor {ref.name!r} belongs to subgraph {ref.graph.name!r}, not to {self.name!r}")
        return int(ref)

    def table(self) -> Table:
        fields = {
            "tensors": self.tensors,
            "inputs": self.inputs,
            "outputs": self.outputs,
            "operators": self.operators,
            "name": self.name,
        }
        return Table("SubGraph", fields)


class ModelBuilder:
    """A model under construction; ``main`` is its first subgraph."""

    def __init__(self, description: str = "") -> None:
        self.description = description
        self._codes: dict[tuple[int, str, int], int] = {}
        self._buffers: list[bytes | _External] = [b""]
        self._externals: list[_External] = []
        self._signatures: list[Table] = []
        self._metadata: list[Table] = []
        self.subgraphs: list[GraphBuilder] = []
        self.main = self.subgraph("main")

    def subgraph(self, name: str) -> GraphBuilder:
        """Add a subgraph; operators refer to it by its ``index``."""
        self.subgraphs.append(GraphBuilder(self, len(self.subgraphs), name))
        return self.subgraphs[-1]

    def signature(self, key: str, inputs: Mapping[str, int], outputs: Mapping[str, int], subgraph: int = 0) -> None:
        """Add a signature, which maps names to tensors of a subgraph."""
        maps = {
            side: [Table("TensorMap", {"name": name, "tensor_index": int(ref)}) for name, ref in refs.items()]
            for side, refs in (("inputs", inputs), ("outputs", outputs))
        }
        self._signatures.append(Table("SignatureDef", {**maps, "signature_key": key, "subgraph_index": subgraph}))

    def metadata(self, name: str, data: bytes) -> None:
        self._metadata.append(Table("Metadata", {"name": name, "buffer": self.buffer(data)}))

    def buffer(self, data: bytes, *, external: bool = False) -> int:
        """Add a buffer; return its index."""
        self._buffers.append(self.external(data) if external else data)
        return len(self._buffers) - 1

    def external(self, data: bytes) -> _External:
        """Add bytes that are stored after the flatbuffer; return their placeholder."""
        self._externals.append(_External(data))
        return self._externals[-1]

    def operator_code(self, builtin: int, custom: str, version: int) -> int:
        """Return the index of an operator code; add the code if it is new."""
        return self._codes.setdefault((builtin, custom, version), len(self._codes))

    def build(self) -> bytes:
        """Return the bytes of the .tflite file."""
        if not self._externals:
            return self._encode()
        position = len(_pad_to_alignment(self._encode()))
        for item in self._externals:
            item.offset = position
            position += len(_pad_to_alignment(item.data))
        # Offsets have a fixed width, so the flatbuffer keeps its length when it is encoded again with the real offsets.
        return b"".join(map(_pad_to_alignment, [self._encode(), *(item.data for item in self._externals)]))

    def table(self) -> Table:
        """Return the root table of the file with all its children."""
        codes = [
            Table(
                "OperatorCode",
                {
                    "deprecated_builtin_code": min(builtin, _EXTENDED_CODES),
                    "custom_code": custom or None,
                    "version": version,
                    "builtin_code": builtin,
                },
            )
            for builtin, custom, version in self._codes
        ]
        fields = {
            "version": 3,
            "operator_codes": codes,
            "subgraphs": [_resolve_option_offsets(graph.table()) for graph in self.subgraphs],
            "description": self.description or None,
            "buffers": [Table("Buffer"), *(_buffer(item) for item in self._buffers[1:])],
            "metadata": self._metadata or None,
            "signature_defs": self._signatures or None,
        }
        return Table("Model", fields)

    def _encode(self) -> bytes:
        return serialize_table(self.table())


def serialize_table(model: Table) -> bytes:
    """Return the bytes of a .tflite file with this root table."""
    builder = flatbuffers.Builder(1024)
    builder.Finish(encode(builder, model), file_identifier=b"TFL3")
    return bytes(builder.Output())


def _pad_to_alignment(data: bytes) -> bytes:
    return data + bytes(-len(data) % 16)


def _buffer(item: bytes | _External) -> Table:
    if isinstance(item, _External):
        return Table("Buffer", {"offset": item.offset, "size": len(item.data)})
    return Table("Buffer", {"data": item})


def _resolve_option_offsets(graph: Table) -> Table:
    """Return the subgraph with offsets in place of external custom options."""
    operators = [
        Table(
            table.name,
            {name: value.offset if isinstance(value, _External) else value for name, value in table.fields.items()},
        )
        for table in graph.fields["operators"]
    ]
    return Table(graph.name, {**graph.fields, "operators": operators})
