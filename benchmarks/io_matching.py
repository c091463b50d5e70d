"""Match inputs and outputs of other converters' models to the file's tensors.

Their layout and dtype may differ from the file's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from onnx_tflite_plugin.graph.tensor_value import TensorValue
from onnx_tflite_plugin.source.model import Tensor
from onnx_tflite_plugin.verify.comparison.trial import Session, match_values
from onnx_tflite_plugin.verify.runtimes.structure import Entry

if TYPE_CHECKING:
    from onnx import ValueInfoProto


def guess_tensors(entry: Entry, session: Session) -> Iterator[TensorValue]:
    """Yield the tensor and the layout of each input and output.

    Channels first is detected by the shape. A tensor whose shape is the same in both layouts is assumed to be
    unchanged. Raises VerificationError if the number of inputs or outputs differs.
    """
    sides = (
        (entry.inputs, match_values("input", entry.input_names, session.inputs)),
        (entry.outputs, match_values("output", entry.output_names, session.outputs)),
    )
    for tensors, infos in sides:
        for tensor, info in zip(tensors, infos, strict=True):
            yield TensorValue(info.name, entry.subgraph.index, tensor.index, _channels_first_permutation(tensor, info))


def _channels_first_permutation(tensor: Tensor, info: ValueInfoProto) -> tuple[int, ...] | None:
    sizes = tuple(size.dim_value for size in info.type.tensor_type.shape.dim)
    permutation = (0, tensor.rank - 1, *range(1, tensor.rank - 1))
    is_transposed = (
        tensor.rank > 2 and sizes != tensor.shape and sizes == tuple(tensor.shape[axis] for axis in permutation)
    )
    return permutation if is_transposed else None
