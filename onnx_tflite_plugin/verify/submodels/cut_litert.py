"""LiteRT on operators that each read given tensors: one interpreter runs all of them on any operands."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from onnx_tflite_plugin.source.model import Array, Operator
from onnx_tflite_plugin.verify.runtimes.extraction import SubmodelWriter
from onnx_tflite_plugin.verify.runtimes.litert import LiteRT


class CutLiteRT:
    """Operators of a subgraph, each between tensors that are ``given`` or computed by its neighbors.

    ``inputs``: those of the whole model that the operators read. ``results``: the tensors that are returned. ``floats``:
    weights of dynamic-range operators are dequantized. Raises LiteRTError, or InvalidModel if the file cannot be written.
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
        """Return the results by tensor index, from the values of tensors. Raises LiteRTError."""
        returned = self.session.run([values[index] for index in (*self.inputs, *self.given)])
        return dict(zip(self.results, returned, strict=True))
