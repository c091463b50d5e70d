"""Cut of the TFLite model: a LiteRT session runs many operators independently."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from onnx_tflite_plugin.source.model import Array, Operator
from onnx_tflite_plugin.verify.runtimes.extraction import SubmodelWriter
from onnx_tflite_plugin.verify.runtimes.litert import LiteRT


class CutLiteRT:
    """LiteRT session of some operators of a subgraph.

    Tensors are indices. ``inputs``: graph inputs of the whole model that the operators read. ``extra_inputs``: tensors
    that become inputs instead of being computed. ``results``: tensors to return. ``floats``: dequantize weights of
    dynamic-range operators. Raises LiteRTError, or InvalidModel if the file cannot be written.
    """

    def __init__(
        self,
        writer: SubmodelWriter,
        operators: Sequence[Operator],
        inputs: Sequence[int],
        extra_inputs: Collection[int],
        results: Sequence[int],
        kernels: str = "builtin",
        *,
        floats: bool = False,
    ) -> None:
        self.inputs, self.extra_inputs, self.results = list(inputs), sorted(extra_inputs), list(results)
        data = writer.write(operators, inputs, results, self.extra_inputs, floats=floats)
        self.session = LiteRT(data, kernels, known=writer.structure(inputs, results, self.extra_inputs))

    def run(self, values: Mapping[int, Array]) -> dict[int, Array]:
        """Run once, and return tensor index -> result.

        ``values``: tensor index -> array, for all inputs. Raises LiteRTError.
        """
        arrays = self.session.run([values[index] for index in (*self.inputs, *self.extra_inputs)])
        return dict(zip(self.results, arrays, strict=True))
