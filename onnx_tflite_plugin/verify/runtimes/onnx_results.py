"""Results that the ONNX model computes for operators without a LiteRT kernel.

LiteRT can then run the operators downstream of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from onnx_tflite_plugin.errors import VerificationError
from onnx_tflite_plugin.graph.tensor_value import TensorValue
from onnx_tflite_plugin.source.model import Array, Operator, Tensor
from onnx_tflite_plugin.verify.comparison.trial import MatchedInterface, dtype_to_restore
from onnx_tflite_plugin.verify.runtimes.dequantized import as_stored
from onnx_tflite_plugin.verify.runtimes.ort import OnnxRuntime
from onnx_tflite_plugin.verify.runtimes.structure import Entry

if TYPE_CHECKING:
    from onnx import ModelProto


class OnnxResults:
    """Callable that returns the results of operators in the ONNX model.

    Call it with the inputs of a run. A result is left out if no value of the ONNX model holds it.
    """

    def __init__(
        self, onnx: ModelProto | bytes | Path, entry: Entry, session: OnnxRuntime, operators: Iterable[Operator]
    ) -> None:
        values = {value.tensor: value for value in session.tensor_values if value.subgraph == entry.subgraph.index}
        self.values: dict[Tensor, TensorValue] = {}
        for op in operators:
            for tensor in filter(None, op.outputs):
                if tensor.index in values:
                    self.values[tensor] = values[tensor.index]
        outputs = {info.name for info in session.outputs}
        inner_values = [value.name for value in self.values.values() if value.name not in outputs]
        self.session = OnnxRuntime(onnx, keep=inner_values)
        self.interface = MatchedInterface(entry, self.session)

    def __call__(self, inputs: Sequence[Array]) -> dict[int, Array]:
        """Return tensor index -> result, in the shape and dtype of the TFLite file."""
        self.interface.run(self.session, inputs)
        onnx_values = self.session.values()
        results = {}
        for tensor, value in self.values.items():
            array = onnx_values[value.name]
            restored = value.restore(array, dtype_to_restore(tensor, array))
            if restored is None:
                raise VerificationError(
                    f"the ONNX value for tensor {tensor} has a different shape from the TFLite tensor"
                )
            results[tensor.index] = as_stored(tensor, restored)
        return results
