"""Results of operators that LiteRT has no kernel for, taken from the ONNX model so that LiteRT can run the operators after them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from onnx_tflite_plugin.errors import VerificationError
from onnx_tflite_plugin.graph.metadata import TensorValue
from onnx_tflite_plugin.source.model import Array, Operator, Tensor
from onnx_tflite_plugin.verify.comparison.trial import MatchedInterface, dtype_to_restore
from onnx_tflite_plugin.verify.runtimes.dequantized import as_stored
from onnx_tflite_plugin.verify.runtimes.ort import OnnxRuntime
from onnx_tflite_plugin.verify.runtimes.structure import Entry

if TYPE_CHECKING:
    from onnx import ModelProto


class OnnxResults:
    """Callable that returns the results of ``ops`` for the inputs of a run, as far as the ONNX model holds them."""

    def __init__(
        self, onnx: ModelProto | bytes | Path, entry: Entry, session: OnnxRuntime, ops: Iterable[Operator]
    ) -> None:
        values = {value.tensor: value for value in session.tensor_values if value.subgraph == entry.subgraph.index}
        self.values: dict[Tensor, TensorValue] = {}
        for op in ops:
            for tensor in filter(None, op.outputs):
                if tensor.index in values:
                    self.values[tensor] = values[tensor.index]
        ends = {info.name for info in session.outputs}
        self.session = OnnxRuntime(onnx, keep=[value.name for value in self.values.values() if value.name not in ends])
        self.interface = MatchedInterface(entry, self.session)

    def __call__(self, inputs: Sequence[Array]) -> dict[int, Array]:
        """Return results by tensor index, as the file stores them."""
        self.interface.run(self.session, inputs)
        returned = self.session.values()
        results = {}
        for tensor, value in self.values.items():
            array = returned[value.name]
            restored = value.restore(array, dtype_to_restore(tensor, array))
            if restored is None:
                raise VerificationError(f"the ONNX model holds tensor {tensor} in another shape than the file")
            results[tensor.index] = as_stored(tensor, restored)
        return results
