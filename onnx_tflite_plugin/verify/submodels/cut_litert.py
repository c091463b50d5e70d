"""Cut of the TFLite model at given tensors: one LiteRT session runs many operators, each on given operands."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from onnx_tflite_plugin.source.model import Array, Operator
from onnx_tflite_plugin.verify.runtimes.extraction import SubmodelWriter
from onnx_tflite_plugin.verify.runtimes.litert import LiteRT


class CutLiteRT:
    """LiteRT session of some operators of a subgraph, which read ``given`` tensors instead of computed ones.

    Tensors are indices. ``inputs``: graph inputs of the whole model that the operators read. ``results``: tensors to return.
    ``floats``: dequantize weights of dynamic-range operators. Raises LiteRTError, or InvalidModel if the file cannot be written.
    """

    def __init__(
        self,
        writer: SubmodelWriter,
        operators: Sequence[Operator],
        inputs: Sequence[int],
        given: Collection[int],
        results: Sequence[int],
        kernels: str = "builtin",
        *,
        floats: bool = False,
    ) -> None:
        self.inputs, self.given, self.results = list(inputs), sorted(given), list(results)
        data = writer.write(operators, inputs, results, self.given, floats=floats)
        self.session = LiteRT(data, kernels, known=writer.structure(inputs, results, self.given))

    def run(self, values: Mapping[int, Array]) -> dict[int, Array]:
        """Return the results by tensor index. ``values``: arrays of inputs and given tensors. Raises LiteRTError."""
        arrays = self.session.run([values[index] for index in (*self.inputs, *self.given)])
        return dict(zip(self.results, arrays, strict=True))
